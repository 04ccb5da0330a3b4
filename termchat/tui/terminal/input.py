"""What a terminal sends, cut into texts, keys and pastes: from bytes in any pieces and of any kind.

A paste is cut out before anything in it is looked at, so that nothing it holds can be a key. Which bytes
belong together is decided by the reads they came with and by the time between them, as a terminal writes a
sequence at once and a person cannot:

- ESC with nothing behind it within `ESCAPE_DELAY` is the key. What would have followed and comes late, as one
  read that is the rest of a sequence to its last byte, is that rest and not typed text.
- An unfinished sequence waits `REST_SECONDS`, then it is dropped; what came in later reads is looked at anew.
- What comes in one read with a line end among other characters, while the end of a paste is overdue, still
  belongs to it.
- Lines that come in one read, more than one of them, were not typed: a terminal that does not mark pastes
  sends them so. They are a paste, unless the terminal has said that it marks its pastes. A line end that is
  the last of its read is the key Enter, as is one before a control character.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from typing import Literal, NamedTuple

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.constants import ESCAPE_DELAY

from ...charset import UTF_8
from .paste import PASTE_BEGIN, PASTE_END, Paste, lines

REST_SECONDS = 0.5
LATE_SECONDS = 2.0
LONGEST_SEQUENCE = 65_536
LONGEST_TYPED = 256
"""More printable characters in one read are handed on as one text: as keys they would take long."""

_CSI = re.compile(rb"\x1b\[(?:\[[A-E]|<\d+;-?\d+;-?\d+[Mm]|[0-9]+\$(?![a-z])|[0-?]*[ -/]*[@-~])")
_CSI_BEGUN = re.compile(rb"\x1b\[(?:<[0-9;]*-[0-9;-]*|[0-?]*[ -/]*)")
_OLD_MOUSE = b"\x1b[M"
_SS3 = re.compile(rb"\x1bO[0-9;]*[A-Za-z]")
_SS3_BEGUN = re.compile(rb"\x1bO[0-9;]*\Z")
# Operating system and device control strings, and kitty's graphics answers. The first character after the
# introducer tells them from a letter that was typed with alt.
_STRING = re.compile(rb"\x1b(?:\][0-9]|P[0-9;<=>?!$+|]|_G)[^\x00-\x1f]*(?:\x07|\x1b\\)")
_STRING_BEGUN = re.compile(rb"\x1b(?:[\]P_]|(?:\][0-9]|P[0-9;<=>?!$+|]|_G)[^\x00-\x1f]*)\x1b?\Z")
# Sequences that terminals send: keys, mouse, answers. A CSI cut in two reads must be one of these.
_KNOWN = re.compile(
    rb"\x1b\[(?:<\d+;-?\d+;-?\d+[Mm]|\d+;\d+;\d+M|[IO]|\??[\d;]*\$y|[?>=][\d;]*[cnmtuRS]|\d[\d;:]*[ntu~^$@R]"
    rb"|[\d:;]*[A-HP-SZ]|\[[A-E])"
)
_MARKS_PASTES = re.compile(rb"\x1b\[\?2004;[12]\$y")
_LINES = re.compile(rb"[\r\n][\r\n]*[^\x00-\x1f\x7f]")
_WHOLE_LINES = re.compile(rb"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+")
_WITH_ALT = b"\r\b"  # Enter, and Backspace as some terminals send it
_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")


class Token(NamedTuple):
    """A part of what came. text: of "keys", to be typed one after another; "sequence": a control sequence, or
    ESC and a character, which is that key with alt; "text": many characters at once; "paste"; "mouse": the
    three bytes of an old report as characters.
    """

    kind: Literal["keys", "sequence", "text", "paste", "mouse"]
    text: str


class Input:
    """The state between two reads."""

    def __init__(self, codec: str = UTF_8) -> None:
        """codec: of the terminal's texts; one in which ASCII is ASCII."""
        self._buffer = bytearray()
        self._codec = codec
        self._decode = getincrementaldecoder(codec)("replace").decode
        self._came = 0.0  # when the last read was
        self._begun = 0  # so many bytes of the buffer came in the read in which its sequence began
        self._late: tuple[bytes, float] = b"", 0.0  # a beginning that was given up, and until when it counts
        self._paste: Paste | None = None
        self.marks_pastes = False

    @property
    def deadline(self) -> float | None:
        """When `tick` is to be called if nothing comes before."""
        if self._paste is not None:
            return self._paste.deadline(self._came)
        if not self._buffer:
            return None
        return self._came + (ESCAPE_DELAY if self._buffer == b"\x1b" else REST_SECONDS)

    def feed(self, data: bytes, now: float) -> list[Token]:
        """Take in a read; what is complete with it. now: of a monotonic clock, in seconds."""
        tokens = self.tick(now)
        self._came = now
        if self._paste is not None:
            paste, typed = self._paste, self._paste.overdue is not None and self._typed(self._paste, data)
            if typed:
                self._paste = None
            self._buffer += data
            self._cut(tokens, 0)
            if typed and self._paste is None and not self._buffer:
                self._paste = paste  # its end may still come
            return tokens
        prefix, until = self._late
        self._late = b"", 0.0
        if prefix and now < until and _is_rest(prefix, data):
            data = prefix + data
        fresh = len(self._buffer)
        self._buffer += data
        self._cut(tokens, fresh)
        return tokens

    def tick(self, now: float) -> list[Token]:
        """Give up waiting for what is overdue; what is complete with that."""
        tokens: list[Token] = []
        paste = self._paste
        if paste is not None and paste.overdue is not None and now >= paste.overdue:
            self._paste = None
        if (deadline := self.deadline) is None or now < deadline:
            return tokens
        if self._paste is not None:
            if self._paste.ended:
                self._end_paste(self._paste, tokens)
                self._cut(tokens, 0)
            else:
                _take_paste(self._paste.part(now), tokens)
            return tokens
        dropped, rest = bytes(self._buffer[: self._begun]), bytes(self._buffer[self._begun :])
        self._buffer.clear()
        self._begun = 0
        if dropped == b"\x1b":
            tokens.append(Token("keys", "\x1b"))
        self._late = (dropped if not rest else b""), now + LATE_SECONDS
        self._buffer += rest
        self._cut(tokens, 0)
        return tokens

    # Keys and sequences

    def _cut(self, tokens: list[Token], fresh: int) -> None:
        """Take what is complete. fresh: where the last read begins in the buffer."""
        moved = False
        while True:
            if (paste := self._paste) is not None:
                over = paste.add(bytes(self._buffer), self._came)
                self._buffer.clear()
                if not over:
                    if paste.overdue is not None and not paste.ended:
                        _take_paste(paste.part(self._came), tokens)
                    break
                self._end_paste(paste, tokens)
            length = self._next(fresh, tokens)
            if length == 0:
                break
            del self._buffer[:length]
            fresh = max(0, fresh - length)
            moved = True
        if moved or not self._begun:
            self._begun = fresh or len(self._buffer)

    def _next(self, fresh: int, tokens: list[Token]) -> int:
        """Take the first thing in the buffer; its length, 0: there is nothing complete."""
        buffer = self._buffer
        if not buffer:
            return 0
        at = buffer.find(b"\x1b")
        if at == 0:
            self._take_text(b"", True, tokens)
            return self._sequence(fresh, tokens) or (len(buffer) if len(buffer) > LONGEST_SEQUENCE else 0)
        run = bytes(buffer if at < 0 else buffer[:at])
        self._take_text(run, at > 0, tokens)
        return len(run)

    def _sequence(self, fresh: int, tokens: list[Token]) -> int:
        """Take the sequence at the beginning of the buffer; its length, 0: it is not complete."""
        buffer = self._buffer
        if len(buffer) == 1 or buffer == b"\x1b[[":
            return 0
        if buffer.startswith(_OLD_MOUSE):
            if len(buffer) < 6:
                return 0
            tokens.append(Token("mouse", bytes(buffer[3:6]).decode("latin-1")))
            return 6
        if buffer[1] == ord("["):
            if (found := _CSI.match(buffer)) is not None:
                text = found[0]
                if 0 < fresh < found.end() and not _KNOWN.fullmatch(text):
                    return fresh  # its beginning was never finished; the rest is something else
                if text == PASTE_BEGIN:
                    self._paste = Paste(self._codec)
                    self.marks_pastes = True
                elif text != PASTE_END:
                    self.marks_pastes = self.marks_pastes or _MARKS_PASTES.fullmatch(text) is not None
                    tokens.append(Token("sequence", text.decode("ascii")))
                return found.end()
            begun = _CSI_BEGUN.match(buffer)
            assert begun is not None, "it begins with ESC ["
            return begun.end() if begun.end() < len(buffer) else 0  # broken off by a byte that cannot follow
        if buffer[1] == ord("O"):
            found = _SS3.match(buffer)
            if found is not None and (len(found[0]) > 3 or found[0].decode() in ANSI_SEQUENCES_KEYS):
                tokens.append(Token("sequence", found[0].decode("ascii")))
                return found.end()
            if found is None and _SS3_BEGUN.match(buffer):
                return 0
        elif buffer[1] in b"]P_":
            if (found := _STRING.match(buffer)) is not None:
                return found.end()  # an answer that nobody here waits for
            if _STRING_BEGUN.match(buffer):
                return 0
            if (broken := re.match(rb"\x1b(?:\][0-9]|P[0-9;<=>?!$+|]|_G)[^\x00-\x1f]*", buffer)) is not None:
                return broken.end()
        return self._with_alt(tokens)

    def _with_alt(self, tokens: list[Token]) -> int:
        """Take ESC and the character behind it."""
        buffer = self._buffer
        if buffer[1] < 0x20 and buffer[1] not in _WITH_ALT:
            tokens.append(Token("keys", "\x1b"))
            return 1
        size = 1 if buffer[1] < 0xC2 else 2 if buffer[1] < 0xE0 else 3 if buffer[1] < 0xF0 else 4
        if self._codec != UTF_8:
            size = 1
        if len(buffer) < 1 + size and all(0x80 <= byte < 0xC0 for byte in buffer[2:]):
            return 0
        try:
            character = bytes(buffer[1 : 1 + size]).decode(self._codec)
        except UnicodeDecodeError:
            tokens.append(Token("keys", "\x1b"))
            return 1
        tokens.append(Token("sequence", f"\x1b{character}"))
        return 1 + size

    def _take_text(self, run: bytes, ended: bool, tokens: list[Token]) -> None:
        """Take bytes without ESC. ended: something else follows, so that no character goes on."""
        pasted = not self.marks_pastes and _LINES.search(run) and _WHOLE_LINES.fullmatch(run)
        text = self._decode(run, ended)
        if pasted:
            tokens.append(Token("paste", lines(text)))
            return
        at = 0
        for found in _PLAIN.finditer(text):
            if len(found[0]) > LONGEST_TYPED:
                if found.start() > at:
                    tokens.append(Token("keys", text[at : found.start()]))
                tokens.append(Token("text", found[0]))
                at = found.end()
        if at < len(text):
            tokens.append(Token("keys", text[at:]))

    # Pastes

    def _end_paste(self, paste: Paste, tokens: list[Token]) -> None:
        """The paste is over: give it away; what came behind it is to be looked at."""
        text, behind = paste.close()
        self._paste, self._buffer = None, bytearray(behind)
        self._begun = 0
        _take_paste(text, tokens)

    def _typed(self, paste: Paste, data: bytes) -> bool:
        """Whether a read after the paste should have ended was typed: one key, or no control character."""
        if paste.pending or PASTE_END in data:
            return False
        return (
            len(data) == 1
            or _KNOWN.fullmatch(data) is not None
            or data.startswith(PASTE_BEGIN)
            or not any(byte < 0x20 or byte == 0x7F for byte in data)
        )


def _take_paste(text: str, tokens: list[Token]) -> None:
    if text:
        tokens.append(Token("paste", text))


def _is_rest(prefix: bytes, data: bytes) -> bool:
    """Whether a read is what the beginning of a sequence lacked, and nothing else that could be typed."""
    if len(data) < 2 and len(prefix) < 3:
        return False
    whole = prefix + data
    if whole.startswith((PASTE_BEGIN, PASTE_END)):
        return True
    found = _CSI.match(whole) or _STRING.match(whole) or _SS3.match(whole)
    if found is None or found.end() <= len(prefix):
        return False
    known = _KNOWN.fullmatch(found[0]) or _STRING.fullmatch(found[0])
    if known is None and found[0].decode("latin-1") not in ANSI_SEQUENCES_KEYS:
        return False
    return whole[found.end() : found.end() + 1] in (b"", b"\x1b")
