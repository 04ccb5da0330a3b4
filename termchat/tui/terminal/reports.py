"""What a terminal reports, as the application's events: keys in every form, mouse, focus, size, modes.

A key has three descriptions where the kitty protocol is spoken: the character it gives, the character with
shift, and the key at its place of a Latin keyboard. A shortcut is meant by the last one where the first is no
Latin character, so that Ctrl+C is the same key on every layout.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator

from textual import constants, events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS, IGNORE_SEQUENCE
from textual._keyboard_protocol import FUNCTIONAL_KEYS, MODIFIER_FUNCTIONAL_KEYS
from textual._xterm_parser import IS_ITERM, XTermParser
from textual.keys import _character_to_key
from textual.message import Message
from textual.messages import InBandWindowResize, TerminalSupportsSynchronizedOutput

from .input import Token

log = logging.getLogger(__name__)

_SHIFT, _ALT, _CTRL, _CAPS, _NUM = 1, 2, 4, 64, 128
_HELD = (("alt", 2), ("ctrl", 4), ("super", 8), ("hyper", 16), ("meta", 32))
_RELEASED = "3"
_OTHER_KEYS = "27"  # xterm's modifyOtherKeys: CSI 27 ; modifiers ; code ~

_KEY = re.compile(
    r"\x1b\[(?P<code>\d{0,7})(?::(?P<shifted>\d{0,7}))?(?::(?P<base>\d{0,7}))?"
    r"(?:;(?P<held>\d{0,4})(?::(?P<event>\d?))?)?(?:;(?P<text>[\d:]{0,200}))?(?P<final>[u~A-HP-SZ])"
)
_MOVES = re.compile(r"\x1b(?:\[[\d;]*[A-HPQS~]|O[A-Za-z])")  # a key that moves or edits, in its old form
_PLACE = re.compile(r"\x1b\[(\d{1,5});(\d{1,5})R")
_NUMBER = re.compile(r"\x1b\[>(\d{1,5})(?:;[\d;]*)?c")  # secondary device attributes
_ATTRIBUTES = re.compile(r"\x1b\[\?[\d;]*c")  # primary device attributes
_FOCUS = ("\x1b[I", "\x1b[O")
_MODE = re.compile(r"\x1b\[\?(\d+);([0-4])\$y")
_SIZE = re.compile(r"\x1b\[48;(\d{1,4})(?::\d*)*;(\d{1,4})(?::\d*)*;(\d{1,5})(?::\d*)*;(\d{1,5})(?::\d*)*t")
_MOUSE = re.compile(r"\x1b\[<(\d{1,3});(-?\d{1,5});(-?\d{1,5})([Mm])")
_DECIMAL_MOUSE = re.compile(r"\x1b\[(\d{1,3});(\d{1,5});(\d{1,5})M")  # mode 1015
_MODIFIERS_OF_MOUSE = 4 | 8 | 16
_OTHER_BUTTONS = (1, 2, *range(128, 132))
_MOST_ROWS, _MOST_COLUMNS = 500, 1000
_IGNORED_KEYS = MODIFIER_FUNCTIONAL_KEYS | {"caps_lock", "num_lock", "scroll_lock"}

_ALSO_WITH_SHIFT = ("backspace", "escape")
"""Keys that do the same with shift, which is still held after a capital letter."""

CONTROLS = {"h": "\b", "i": "\t", "m": "\r", "[": "\x1b", "/": "\x1f"}
"""What most terminals send for ctrl and these: other keys, too, which they are then on every terminal."""

_TYPED = {"enter": "\r", "tab": "\t", "backspace": "\x7f", "divide": "/", "multiply": "*", "add": "+"}
_TYPED |= {"subtract": "-", "decimal": ".", "equal": "=", "separator": ","}

# For terminals that do not say which key it is at its place: the usual Russian, Ukrainian, Greek and Hebrew
# layouts, on the Latin one.
_LATIN = dict(
    zip(
        "йцукенгшщзхъфывапролджэячсмитьбюіїєёςερτυθιοπασδφγηξκλζχψωβνμקראטוןםפשדגכעיחלךףזסבהנמצתץ",
        "qwertyuiop[]asdfghjkl;'zxcvbnm,.s]'`wertyuiopasdfghjklzxcvbnmertyuiopasdfghjkl;zxcvbnm,.",
        strict=True,
    )
)


class Reports:
    """Turns what `Input` has cut out into events. It knows the terminal's size, for the mouse in pixels.

    number: of the terminal, if it was asked for that and has answered. answered: what all terminals answer.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.answered = False
        self._parser = XTermParser()
        self._button = 0  # that an old mouse report said is down: their releases do not name it
        self._sizes = False  # whether the terminal has said that it reports its size

    def messages(self, tokens: Iterable[Token]) -> Iterator[Message]:
        """The events of these. One that cannot be made is left out: no report is worth the interface.

        Of several reports of the focus the last one says it all; each costs a drawing of the whole screen.
        """
        tokens = list(tokens)
        done = {number for number, token in enumerate(tokens) if token.text in _FOCUS}
        done -= {max(done, default=0)}
        for number, token in enumerate(tokens):
            if number in done:
                continue
            try:
                if token.text == "\x1b" and (key := _with_alt(tokens[number + 1 : number + 2])):
                    done.add(number + 1)
                    yield key
                else:
                    yield from list(self._messages(token))
            except Exception:
                log.exception("a report of the terminal cannot be understood: %r", token.text[:100])

    def _messages(self, token: Token) -> Iterator[Message]:
        match token.kind:
            case "keys":
                for character in token.text:
                    yield from typed(character)
            case "text" | "paste":
                yield events.Paste(token.text)
            case "mouse":
                button, x, y = (ord(character) - 32 for character in token.text)
                yield from self._old_mouse(button, x, y)
            case "sequence":
                yield from self._sequence(token.text)

    def _sequence(self, text: str) -> Iterator[Message]:
        if text == "\x1b[I":
            yield events.AppFocus()
        elif text == "\x1b[O":
            yield events.AppBlur()
        elif (found := _PLACE.fullmatch(text)) is not None:
            yield events.CursorPosition(int(found[2]) - 1, int(found[1]) - 1)
        elif (found := _NUMBER.fullmatch(text)) is not None:
            self.number = int(found[1])
        elif _ATTRIBUTES.fullmatch(text):
            self.answered = True
        elif _MOUSE.fullmatch(text):
            yield from self._mouse(text)
        elif (found := _DECIMAL_MOUSE.fullmatch(text)) is not None:
            yield from self._old_mouse(int(found[1]) - 32, int(found[2]), int(found[3]))
        elif (found := _MODE.fullmatch(text)) is not None:
            yield from self._mode(found[1], int(found[2]))
        elif (found := _SIZE.fullmatch(text)) is not None:
            yield from self._size(*(int(number) for number in found.groups()))
        else:
            yield from keys(text)

    def _mouse(self, text: str) -> Iterator[Message]:
        """A click of another button than the left one is none: it is meant for the terminal, to paste, say,
        and as if it was a left one it would end a selection or open what is under it.
        """
        if int(text[3 : text.index(";")]) & ~_MODIFIERS_OF_MOUSE in _OTHER_BUTTONS:
            return
        event = self._parser.parse_mouse_code(text)
        if event is not None:
            yield event

    def _old_mouse(self, button: int, x: int, y: int) -> Iterator[Message]:
        """As if it had come in the form of today."""
        if button < 0 or x < 1 or y < 1:
            return
        released = button & 3 == 3 and not button & (32 | 64)
        if released:
            button = (button & ~3) | self._button
        elif not button & (32 | 64):
            self._button = button & 3
        yield from self._mouse(f"\x1b[<{button};{x};{y}{'m' if released else 'M'}")

    def _mode(self, mode: str, setting: int) -> Iterator[Message]:
        if mode == "2026" and setting > 0:
            yield TerminalSupportsSynchronizedOutput()
        elif mode == "2048" and constants.SMOOTH_SCROLL and not IS_ITERM:
            answer = InBandWindowResize.from_setting_parameter(setting)
            self._sizes = self._sizes or answer.supported
            yield answer

    def _size(self, rows: int, columns: int, height: int, width: int) -> Iterator[Message]:
        if self._sizes and 0 < rows <= _MOST_ROWS and 0 < columns <= _MOST_COLUMNS:
            event = events.Resize.from_dimensions((columns, rows), (width, height))
            if width and height:
                self._parser.terminal_size, self._parser.terminal_pixel_size = event.size, event.pixel_size
                self._parser.mouse_pixels = True
            yield event


def typed(character: str) -> Iterator[events.Key]:
    """The key that gives a character, or that a terminal sends as one control character."""
    known = ANSI_SEQUENCES_KEYS.get(character)
    if isinstance(known, tuple):
        for key in known:
            yield events.Key(key.value, character)
    elif not _is_control(character):
        yield events.Key(_character_to_key(character), character)


def keys(sequence: str) -> Iterator[events.Key]:
    """The keys of a control sequence, or of ESC and a character; none for what is no key."""
    found = _KEY.fullmatch(sequence)
    if found is not None and any(found.group("code", "held")):
        yield from _reported(found)
        return
    known = ANSI_SEQUENCES_KEYS.get(sequence)
    if known is IGNORE_SEQUENCE:
        return
    if isinstance(known, tuple):
        for each in known:
            yield events.Key(each.value, None)
    elif isinstance(known, str) and sequence.startswith("\x1bO"):  # the character of a keypad
        yield from typed(known)
    elif len(sequence) == 2:  # alt: what is bound to it is done, else the character is typed
        for key in typed(sequence[1]):
            name = f"shift+{key.key.lower()}" if len(key.key) == 1 and key.key.isupper() else key.key
            yield events.Key(f"alt+{name}", key.character)


def _with_alt(following: list[Token]) -> events.Key | None:
    """The key whose sequence came right behind an ESC, with alt: Option and an arrow in macOS' terminal."""
    named = [key for token in following if _MOVES.fullmatch(token.text) for key in keys(token.text)]
    if not named:
        return None
    *modifiers, name = named[0].key.split("+")
    return events.Key("+".join([*sorted({*modifiers, "alt"}), name]), None)


def _reported(found: re.Match[str]) -> Iterator[events.Key]:
    """The key of a report with numbers: code:shifted:base ; modifiers:event ; text."""
    code, shifted, base, held, event, text, final = found.groups(default="")
    if event == _RELEASED:
        return
    if code == _OTHER_KEYS and final == "~" and text:
        code, text, final = text.partition(":")[0], "", "u"
    bits = max(0, int(held or 1) - 1)
    modifiers = [name for name, bit in _HELD if bits & bit]
    characters = _characters(text)
    if bits & _ALT and "".join(characters) in (_character(code), _character(shifted)):
        characters = []  # the text of the key itself: a shortcut, not what a layout composes with alt
    composing = _ALT | _CTRL if bits & _ALT else 0  # AltGr is both of them on Windows
    if characters and not bits & ~(_SHIFT | _CAPS | _NUM | composing):
        for character in characters:
            yield events.Key(_character_to_key(character), character)
        return
    name = FUNCTIONAL_KEYS.get(f"{int(code or 1)}{final}")
    if name in _IGNORED_KEYS:
        return
    if name is None:
        if final != "u" or not (character := _character(code)):
            return
        character = _base(character, _character(base)) if modifiers else character
        upper = _character(shifted) or character.upper()
        if not modifiers:
            shift = bool(bits & _SHIFT) != bool(bits & _CAPS and upper.isalpha())
            yield from typed(upper if shift else character)
            return
        if bits & _SHIFT and not upper.isalpha() and upper != character:
            character, bits = upper, bits & ~_SHIFT  # ctrl+_ rather than ctrl+shift+-
        character = character.lower()
        if modifiers == ["ctrl"] and not bits & _SHIFT and character in CONTROLS:
            yield from typed(CONTROLS[character])
            return
        name = _character_to_key(character)
    if bits & _SHIFT and (modifiers or name not in _ALSO_WITH_SHIFT):
        modifiers.append("shift")
    yield events.Key(
        "+".join([*sorted(modifiers), name]),
        None if modifiers else _TYPED.get(name, name if len(name) == 1 else None),
    )


def _base(character: str, base: str) -> str:
    """The key a shortcut means: the one at that place of a Latin keyboard, if the own one is not Latin."""
    if character.isascii():
        return character
    return base if base and base.isascii() else _LATIN.get(character.lower(), character)


def _characters(codes: str) -> list[str]:
    """The text of a report; control characters are none."""
    return [character for code in codes.split(":") if (character := _character(code))]


def _character(code: str) -> str:
    """The character of a decimal code; "" for none, and for what cannot be typed, as kitty's own codes."""
    number = int(code) if code and len(code) <= 7 else 0
    character = chr(number) if 0 < number <= 0x10FFFF else ""
    return "" if not character or _is_control(character) or 0xE000 <= number < 0xF900 else character


def _is_control(character: str) -> bool:
    number = ord(character)
    return number < 0x20 or 0x7F <= number < 0xA0 or 0xD800 <= number < 0xE000
