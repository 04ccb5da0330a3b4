"""Files in a message: `@path` puts a text file's content below the message.

Only what was typed attaches: a sign in pasted text is text. One that was put back (a draft, an earlier
prompt, the editor's text) attaches after it was said, and so does nothing else.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import UserError
from ...files import TextError, binary_kind, decode, encoding_of, expanded, lost_link, read_up_to
from ...store.values import clean
from .origin import Origin, origin_at

LARGEST = 1_000_000
"""Bytes of one file; more would not fit any model's context."""

MOST = 4 * LARGEST
"""Characters of all files of a message."""

_LONGEST = 4096  # characters of a path
_TRIES = 64  # readings of one mention, so that a hostile text costs no time
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "「": "」"}
_OPENING = "([{<" + "".join(_QUOTES)
_PUNCTUATION = ".,;:!?)]}>\"'’”»」】）。，、；：！？…—–*`|"
_EXTENSION = re.compile(r"\.([A-Za-z][A-Za-z0-9]{0,11})$")
_LONG_ENDINGS = (
    *("jsonl", "json5", "ndjson", "geojson", "ipynb", "parquet", "sqlite", "safetensors", "patch", "config"),
    *("swift", "scala", "proto", "kotlin", "gradle", "cmake", "csproj", "graphql", "plist", "gitignore"),
    *("markdown", "textile", "xhtml", "latex", "typst", "bashrc", "zshrc"),
)
_NO_FILES = ("com", "net", "io", "dev", "app", "get", "put", "post")  # hosts and methods end so
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9._~-]*/[a-z0-9][a-z0-9._~-]*(@[\w.^~-]+)?")


class AttachError(UserError):
    """A file cannot be attached."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A sign with what it stands for. name: as written; path: None if there is no such file or folder."""

    name: str
    path: Path | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file's text, to go along. name: its own; as it was written where several are called so.

    odd: bytes that were no UTF-8 and are shown as U+FFFD.
    """

    name: str
    text: str
    odd: bool = False


def mentions(text: str, origins: bytes, folder: Path) -> list[Mention]:
    """What a text mentions with @, each once: what is there, or looks like a path. Looks at the disk.

    origins: of its characters, as `conversations.origin` has them.
    """
    found: dict[tuple[str, Origin], Mention] = {}
    at = 0
    while (at := text.find("@", at)) >= 0:
        origin = origin_at(origins, at)
        mention, at = _read(text, at, origin, folder) if begins(text, at) else (None, at + 1)
        if mention is not None:
            found.setdefault((mention.name, origin), mention)
    return list(found.values())


def begins(text: str, at: int) -> bool:
    """Whether a sign can begin a mention: it follows no word (`a@b` is an address) but of a wide script."""
    before = text[at - 1] if at else " "
    wide = unicodedata.east_asian_width(before) in "WF"
    return wide or not (before.isalnum() or before in "._%+-/@\\")


def _read(text: str, at: int, origin: Origin, folder: Path) -> tuple[Mention | None, int]:
    """The mention that begins at a sign, if it is one; and where to read on."""
    begin = at + 1
    before, quote = text[at - 1] if at else "", text[begin : begin + 1]
    for opening, start in ((quote, begin + 1), (before, begin)):  # @"a b.txt", or "@a b.txt"
        end = text.find(_QUOTES[opening], start, start + _LONGEST) if opening in _QUOTES else -1
        name = text[start:end] if end >= 0 else ""
        if name and "\n" not in name:
            path = _there(name, folder)
            if path is not None or start > begin:
                return Mention(name, path, origin), end + 1
    word = re.compile(r"(?:\\\s|\S)*").match(text, begin, begin + _LONGEST)
    whole = word[0] if word is not None else ""
    for name in _readings(whole):
        path = _there(name, folder) or (
            _there(re.sub(r"\\(.)", r"\1", name), folder) if "\\" in name else None
        )
        if path is not None:
            return Mention(name, path, origin), begin + len(name)
    for name in (whole.rstrip(_PUNCTUATION), *_readings(whole)):
        if _is_pathlike(name, folder):
            return Mention(name, None, origin), begin + len(name)
    return None, begin


def _readings(whole: str) -> Iterator[str]:
    """What of a word may be the name, the longest first: it may end before a mark or a wide character.

    A mark within a word (`a,b`) ends a name only where that has an ending of its own, and a dot never.
    """
    yield whole
    tried = 0
    for end in range(len(whole) - 1, 0, -1):
        mark, after = whole[end], whole[end + 1 : end + 2]
        if mark in _PUNCTUATION or mark in _OPENING:
            ends = not after.isalnum() or (mark != "." and _EXTENSION.search(whole[:end]) is not None)
        else:
            ends = unicodedata.east_asian_width(mark) in "WF"
        if ends:
            yield whole[:end]
            tried += 1
            if tried == _TRIES:
                return


def _there(name: str, folder: Path) -> Path | None:
    """The file, folder or whatever else of this name."""
    if not name.strip("./"):
        return None
    try:
        path = folder / expanded(name)
        path.stat()
    except (OSError, ValueError, RuntimeError):  # none, or no name that a file could have
        return None
    return path


def _is_pathlike(name: str, folder: Path) -> bool:
    """Whether a name of no file was meant as one: `src/x`, `~/x`, `x.txt`; not `someone`, `scope/package`."""
    if "(" in name or "://" in name or not name.strip("./~"):
        return False
    if name.startswith(("/", "./", "../", "~")):
        return True
    found = _EXTENSION.search(name)
    ending = found[1].lower() if found is not None else ""
    if (0 < len(ending) <= 4 and ending not in _NO_FILES) or ending in _LONG_ENDINGS:
        return "@" not in name
    first, slash, rest = name.partition("/")
    if not slash or not rest or "@" in first:
        return False
    return _PACKAGE.fullmatch(name) is None or _there(first, folder) is not None


def read(path: Path) -> Attachment:
    """A file's text. AttachError: it is none, cannot be read, or is too large."""
    name = path.name or str(path)
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise AttachError(f"{path} is a folder; name a file in it")
        if not stat.S_ISREG(kind):
            raise AttachError(f"{path} is no file with text but a {_kind(kind)}")
        data = read_up_to(path, LARGEST + 1)
    except (OSError, ValueError) as error:
        raise AttachError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if not encoding_of(data)[1] and (binary := binary_kind(data)) is not None:
        raise AttachError(f"{path} is no text file but {binary}")
    if len(data) > LARGEST:
        raise AttachError(f"{path} has more than {LARGEST} bytes; attach a part of it")
    try:
        text, odd = decode(data).text, False
    except TextError:
        text, odd = data.decode("utf-8", "replace"), True
    if "\0" in text:
        raise AttachError(
            f"{path} is no text file, or UTF-16 without a byte order mark: it holds bytes of value 0"
        )
    return Attachment(name, clean(text), odd)


def _kind(mode: int) -> str:
    return "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"


@dataclass(frozen=True, slots=True)
class Files:
    """What the mentions of a text come to.

    going: the files that go along. asked: names of those whose mention was put back, not typed. problems: why
    others cannot. notes: what to know besides.
    """

    going: list[Attachment]
    asked: list[str]
    problems: list[str]
    notes: list[str]

    def added(self, text: str) -> str:
        """The text with the files' content below it."""
        return "\n\n".join([text, *(block(attachment) for attachment in self.going)])


def gather(text: str, origins: bytes, folder: Path) -> Files:
    """Read the files that a text mentions. Blocks."""
    files = Files([], [], [], [])
    done: set[str] = set()
    order: tuple[Origin, ...] = ("typed", "back", "pasted")
    found = sorted(mentions(text, origins, folder), key=lambda each: order.index(each.origin))
    there = {os.path.realpath(each.path): each.path.name for each in found if each.path is not None}
    called = Counter(there.values())
    for mention in found:
        path = mention.path or folder / mention.name
        name = path.name if called[path.name] < 2 else mention.name
        place = str(path) if mention.path is None else os.path.realpath(path)
        if place in done or (mention.origin == "back" and carries(text, name)):
            continue
        done.add(place)
        if mention.origin == "pasted":
            if mention.path is not None and os.path.isfile(path):
                files.notes.append(
                    f"@{mention.name} stands in pasted text, so the file does not go along; "
                    "a mention that is typed attaches it"
                )
            continue
        if mention.path is None:
            said = mention.name if len(mention.name) <= 200 else f"{mention.name[:200]}…"
            lost = lost_link(folder / expanded(mention.name))
            files.problems.append(f"{said} {lost}" if lost else f"there is no file {said}")
            continue
        try:
            attachment = replace(read(path), name=name)
        except AttachError as error:
            files.problems.append(str(error))
            continue
        files.going.append(attachment)
        if mention.origin == "back":
            files.asked.append(attachment.name)
        if attachment.odd:
            files.notes.append(f"{attachment.name} is no UTF-8: some of its characters went as \ufffd")
    if sum(len(attachment.text) for attachment in files.going) > MOST:
        files.problems.append(f"the files have more than {MOST} characters together; attach fewer")
    return files


def block(attachment: Attachment) -> str:
    """A file's text as a code block, with a fence longer than any in it."""
    text = attachment.text
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    name = attachment.name.replace("\n", " ").replace("`", "'")
    return f"{fence}{name}\n{text.rstrip()}\n{fence}"


def carries(text: str, name: str) -> bool:
    """Whether a file's text is in a message already, as it is where one is put back that was sent."""
    return re.search(rf"^`{{3,}}{re.escape(name)}$", text, re.MULTILINE) is not None
