"""The user's files: private from their first moment, replaced in one step, read in any form of Unicode."""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import UserError

if TYPE_CHECKING:
    from engine.loading.recognized import Kind

LARGEST_TEXT = 1 << 20
"""Bytes of a file that a person writes by hand, such as the settings."""

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like the next one
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks, which Windows' editors and shells put in front of a text, and what they say."""

_NOT_OFFERED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EPERM)
"""How file systems say that they cannot do a thing."""


class PathError(UserError):
    """A folder or file of the user cannot be used. Callers may go on without saving."""


class TextError(ValueError):
    """A file that does not hold what it should; the sentence goes on from the file's name: "is not ..."."""


class TomlError(TextError):
    """A text that is not TOML, for this reason."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"is not valid TOML: {reason}")
        self.reason = reason


class Text(NamedTuple):
    """What a file says, how it is encoded, and the byte order mark in front of it."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""


def expanded(name: str) -> Path:
    """A path as a person writes it: `~` is the home folder, `~NAME` stays if there is nobody of that name."""
    try:
        return Path(os.path.expanduser(name))
    except ValueError:  # no name that a user could have
        return Path(name)


def lost_link(path: Path) -> str:
    """What a link to nothing leads to, as a sentence goes on from its name; "" for anything else."""
    if not os.path.islink(path) or os.path.exists(path):
        return ""
    return f"is a link to {os.readlink(path)}, which is not there"


def private_folder(path: Path) -> Path:
    """Create `path` and its missing parents, all with mode 0700. Folders that exist keep their mode."""
    missing = []
    folder = path
    while not os.path.isdir(folder) and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    try:
        for folder in reversed(missing):
            with suppress(FileExistsError):  # another process was faster
                folder.mkdir(mode=0o700)
        if not os.path.isdir(path):
            raise NotADirectoryError(0, "there is a file of that name")
    except OSError as error:
        raise PathError(f"cannot create the folder {path}: {error.strerror}") from error
    return path


def open_private(path: Path | str, flags: int, *, create: bool = True) -> int:
    """A file descriptor of `path`: a new file gets mode 0600, an old one that others can read is tightened.

    Devices keep their mode, so that a file linked to /dev/null stays harmless. OSError, also for a pipe, on
    whose other end one would wait.
    """
    fd = os.open(path, flags | (os.O_CREAT if create else 0) | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        info = os.fstat(fd)
        _no_pipe(info.st_mode, path)
        os.set_blocking(fd, True)
        if stat.S_ISREG(info.st_mode) and stat.S_IMODE(info.st_mode) & 0o077:
            with _where_offered():  # a file of someone else is theirs to guard
                os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_private(path: Path, text: str | Text) -> None:
    """Replace a file by `text` in one step, mode 0600; a link stays a link, a device a device.

    The owner stays too, for one who edits another's file as root.
    """
    target = Path(os.path.realpath(path))
    text, encoding, mark = text if isinstance(text, Text) else Text(text)
    data = mark + text.encode(encoding)
    if os.path.exists(target) and not os.path.isfile(target):
        with open(open_private(target, os.O_WRONLY, create=False), "wb") as device:
            device.write(data)
        return
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            with _where_offered(), suppress(FileNotFoundError):
                before = target.stat()
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(fd, before.st_uid, before.st_gid)
            sync(fd)
        os.replace(name, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise


def sync(fd: int) -> None:
    """Have the system write an open file to its disk, where the file system offers that."""
    with _where_offered():
        os.fsync(fd)


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if another process has just taken it away."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read_bytes(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """What a file holds. OSError: as `read_up_to`, or it has more than `largest` bytes."""
    data = read_up_to(path, largest + 1)
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"it has more than {largest} bytes", str(path))
    return data


def read_up_to(path: Path, most: int) -> bytes:
    """The first bytes of a file. OSError: it cannot be read, or is a pipe or the like, which would block."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY  # a terminal must not become ours
    with open(os.open(path, flags), "rb", buffering=0) as file:
        _no_pipe(os.fstat(file.fileno()).st_mode, path)
        data = bytearray()
        while more := file.read(min(1 << 20, most - len(data))):
            data += more
    return bytes(data)


def _no_pipe(mode: int, path: Path | str) -> None:
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def decode(data: bytes) -> Text:
    """Bytes as text: UTF-8, or what the byte order mark at their beginning says. TextError."""
    encoding, mark = encoding_of(data) if len(data) != 2 else ("utf-8", b"")  # as likely no text at all
    body = data[len(mark) :]
    try:
        return Text(body.decode(encoding), encoding, mark)
    except UnicodeDecodeError as error:
        line = body[: error.start].decode(encoding, "replace").count("\n") + 1
        wrong = f"wrong byte 0x{body[error.start]:02x} in line {line}"
        raise TextError(f"is not {name_of(encoding)}: {wrong}") from error


def binary_kind(data: bytes) -> Kind | None:
    """What data are that are given as a text and are none: a picture, an archive; None if nobody knows."""
    from engine.loading import recognized  # only what reads people's texts needs it

    return recognized.binary_kind(data[: recognized.HEAD])


def encoding_of(data: bytes) -> tuple[str, bytes]:
    """What the mark at the head of a text says, and the mark; UTF-8 and b"" without one."""
    return next(((name, mark) for mark, name in MARKS if data.startswith(mark)), ("utf-8", b""))


def name_of(encoding: str) -> str:
    """An encoding, for people."""
    return encoding.removesuffix("-le").removesuffix("-be").upper()


def read_text(path: Path, largest: int = LARGEST_TEXT) -> Text:
    """A text file that a person has written, in any form of Unicode; line ends stay as they are.

    OSError, TextError.
    """
    return decode(read_bytes(path, largest))


def read_toml(path: Path, largest: int = LARGEST_TEXT) -> dict[str, Any]:
    """What a TOML file that a person has written holds. OSError, TextError."""
    return parse_toml(read_text(path, largest).text)


def parse_toml(text: str) -> dict[str, Any]:
    """The content of a text. TomlError."""
    import tomllib  # most of what reads files does without

    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise TomlError("it is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits is no TOMLDecodeError
        raise TomlError(error) from error


def rewritten_toml(before: Text, text: str, wanted: dict[str, Any]) -> Text | None:
    """A TOML file's new text with the line ends it had; None if it means anything but `wanted`.

    TextError: it holds what no encoding has, such as a file's name of other bytes than UTF-8.
    """
    try:
        text.encode(before.encoding)
    except UnicodeEncodeError as error:
        raise TextError("cannot hold a name that is not UTF-8") from error
    if "\r\n" in before.text:
        text = re.sub(r"\r?\n", "\r\n", text)
    return before._replace(text=text) if parse_toml(text) == wanted else None


@contextmanager
def _where_offered() -> Iterator[None]:
    """Go on if the file system, or its owner, does not let one do this."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
