"""What a file is by its first bytes, for people whose file is not what they took it for.

Signatures as in the formats' own specifications; those of ggml's older files as llama.cpp once read them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD = 512
"""Bytes from the beginning of a file that are enough to tell what it is."""


NO_PICKLES = "pickle files are not loaded, they can run code; convert the model to safetensors or GGUF"

SHORTEST = 24
"""No model's file has fewer bytes."""


class Kind(NamedTuple):
    """What a file is: a noun with its article, and what to do ("" if nothing but another file helps).

    text: people can read it, whoever may have written it.
    """

    noun: str
    advice: str = ""
    text: bool = False

    def __str__(self) -> str:
        return f"{self.noun}; {self.advice}" if self.advice else self.noun


_UNPACK = "unpack it first"
_ARCHIVES = (
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"PK\x03\x04", "a ZIP archive"),
)
_OTHERS = (
    (b"\x89PNG\r\n\x1a\n", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"GIF8", "a picture (GIF)"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of an old Office program"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"OggS\0", "sound (Ogg)"),
    (b"fLaC\0", "sound (FLAC)"),
    (b"ID3", "sound (MP3)"),
)
_OLD_GGML = (b"lmgg", b"fmgg", b"tjgg", b"algg")  # of ggml, ggmf, ggjt and ggla, least significant byte first
_OFFICE = re.compile(rb"(word|xl|ppt)/|\[Content_Types\]\.xml|mimetypeapplication/vnd\.oasis")
_PICKLED = re.compile(rb"/?data\.pkl|archive/|byteorder")
_PDF = re.compile(rb"%PDF-\d\.\d")
_OBJECT = re.compile(rb"\d obj\b")  # of a PDF document
_PAGE = (b"<!doctype html", b"<html")
BEFORE = b"\xef\xbb\xbf \t\r\n"
"""Bytes that may stand in front of what a text says."""


def kind_of(head: bytes) -> Kind | None:
    """What a file that begins so is (`HEAD` bytes of it, or all); None if that is nothing known."""
    if not head:
        return Kind("empty (0 bytes)", "download it again")
    if not head.strip(b"\0"):
        return Kind("all zeros at its beginning", "a download that has not ended looks so: download it again")
    if _is_pdf(head):
        return Kind("a PDF document", "make a text of it first (pdftotext does)")
    return _model(head) or _text(head) or _binary(head)


def no(expected: str, head: bytes) -> str:
    """The rest of a sentence about a file that is not what is expected of it ("GGUF"): what it is instead."""
    kind = kind_of(head)
    if kind is None:
        short = f": it ends after {len(head)} bytes; download it again" if len(head) < SHORTEST else ""
        return f"is not a {expected} file{short}"
    return f"is not a {expected} file: it is {kind}"


def is_page(data: bytes) -> bool:
    """Whether it is a web page."""
    return data.lstrip(BEFORE)[:16].lower().startswith(_PAGE)


def binary_kind(head: bytes) -> Kind | None:
    """The same for what is given as a text: what nobody can read, or None.

    A text may begin like a picture does: it takes bytes besides that no text has.
    """
    kind = kind_of(head) if head.strip(b"\0") else None
    if kind is None or kind.text or not (_is_binary(head) or _is_pdf(head)):
        return None
    return kind


def _model(head: bytes) -> Kind | None:
    if head.startswith(b"GGUF"):
        return Kind("a GGUF file")
    if head[:4] in _OLD_GGML:
        return Kind("a file of ggml's older formats, from before GGUF", "take a GGUF file of the model")
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 32:
        return Kind("a safetensors file")
    if head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        return Kind("a pickle", NO_PICKLES)
    return None


def _text(head: bytes) -> Kind | None:
    start = head.lstrip(BEFORE)
    if start.startswith(b"version https://git-lfs"):
        return Kind("a Git LFS pointer, not the file it stands for", "get that with: git lfs pull", True)
    if is_page(head):
        return Kind("a web page", "download the file itself", True)
    if start.startswith(b"<?xml"):
        return Kind("an XML text, as servers answer with when something is wrong", "download it again", True)
    if start[:1] == b"{" and not _is_binary(head):
        return Kind("a JSON text", "", True)
    return None


def _binary(head: bytes) -> Kind | None:
    if head.startswith(b"PK\x03\x04") and _OFFICE.search(head):
        return Kind("an Office document", "save it as text first")
    if head.startswith(b"PK\x03\x04") and _PICKLED.search(head[30:]):
        return Kind("an archive with a pickle in it", NO_PICKLES)
    for mark, noun in _ARCHIVES:
        if head.startswith(mark):
            return Kind(noun, _UNPACK)
    if head[257:262] == b"ustar":
        return Kind("a tar archive", _UNPACK)
    if head.startswith(b"RIFF"):
        return Kind("a picture (WebP)" if head[8:12] == b"WEBP" else "sound or video (RIFF)")
    if head[4:8] == b"ftyp":
        return Kind("sound, video or a picture (MP4, HEIC)")
    return next((Kind(noun) for mark, noun in _OTHERS if head.startswith(mark)), None)


def _is_pdf(head: bytes) -> bool:
    """Whether a document begins here, not a text that speaks of one."""
    found = _PDF.match(head)
    if found is None:
        return False
    rest = head[found.end() :]
    return not rest.strip() or _is_binary(rest) or _OBJECT.search(rest) is not None


def _is_binary(head: bytes) -> bool:
    """Whether bytes are no text: they hold a zero, or what is not UTF-8 before a character cut by the end."""
    if b"\0" in head:
        return True
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.end < len(head) or error.reason != "unexpected end of data"
    return False
