"""What the Hub says of a repository: commit, licence and files, out of an answer that nobody has checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ..errors import UserError

_MOST_FILES = 20_000


class HubFile(NamedTuple):
    """A file of a repository. size: bytes; sha256: of a large one; blob: git's own id, of a small one.

    None is not known.
    """

    path: str
    size: int | None = None
    sha256: str | None = None
    blob: str | None = None

    @property
    def name(self) -> str:
        """Its name without folders."""
        return PurePosixPath(self.path).name


def total_size(files: Iterable[HubFile]) -> int | None:
    """Bytes of all of them; None where one is not known."""
    sizes = [file.size for file in files]
    return sum(size for size in sizes if size is not None) if None not in sizes else None


class Listing(NamedTuple):
    """A repository at one commit. gated: its licence has to be accepted first."""

    repo: str
    commit: str
    licence: str
    gated: bool
    files: tuple[HubFile, ...]

    def file(self, path: str) -> HubFile | None:
        """The file of that path."""
        return next((file for file in self.files if file.path == path), None)


class ListingError(UserError):
    """The answer is none that the Hub gives."""


def read_listing(repo: str, answer: object) -> Listing:
    """The listing in an answer to /api/models/REPO/revision/REVISION?blobs=true. ListingError."""
    if not isinstance(answer, dict):
        raise ListingError("it is no JSON object")
    commit, siblings = answer.get("sha"), answer.get("siblings")
    if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise ListingError("it names no commit")
    if not isinstance(siblings, list) or len(siblings) > _MOST_FILES:
        raise ListingError("it lists no files, or too many")
    files = tuple(file for file in map(_file, siblings) if file is not None)
    named = answer.get("id")
    if isinstance(named, str) and named.lower() == repo.lower():  # as its owner writes it
        repo = named
    return Listing(repo, commit, _licence(answer), answer.get("gated") not in (None, False), files)


def _file(entry: object) -> HubFile | None:
    """None for what cannot be a file below a folder of ours."""
    if not isinstance(entry, dict) or not isinstance(entry.get("rfilename"), str):
        return None
    path = entry["rfilename"]
    parts = PurePosixPath(path).parts
    wrong = not path.isprintable() or path.startswith("/") or "\\" in path or ":" in path or ".." in parts
    if not parts or wrong or len(path) > 500:
        return None
    stored = entry["lfs"] if isinstance(entry.get("lfs"), dict) else {}
    sha256 = _hex(stored.get("sha256") or stored.get("oid"), 64)
    size = _size(stored.get("size")) if stored else None
    blob = None if stored else _hex(entry.get("blobId"), 40)
    return HubFile(path, size if size is not None else _size(entry.get("size")), sha256, blob)


def read_file(noted: object) -> HubFile | None:
    """A file as a note of ours has it; None if that is none."""
    if not isinstance(noted, dict):
        return None
    found = _file({"rfilename": noted.get("path"), "size": noted.get("size"), "blobId": noted.get("blob")})
    return found._replace(sha256=_hex(noted.get("sha256"), 64)) if found is not None else None


def _licence(answer: Mapping[str, Any]) -> str:
    card = answer.get("cardData")
    card = card if isinstance(card, dict) else {}
    tags = answer.get("tags")
    tags = tags if isinstance(tags, list) else []
    tagged = [tag.removeprefix("license:") for tag in tags if isinstance(tag, str) and tag[:8] == "license:"]
    named = (card.get("license_name"), card.get("license"), *tagged)
    words = [word for word in named if isinstance(word, str) and word and word != "other"]
    return " ".join(words[0].split())[:60] if words else ""


def _hex(value: object, digits: int) -> str | None:
    text = value.removeprefix("sha256:").lower() if isinstance(value, str) else ""
    return text if re.fullmatch(rf"[0-9a-f]{{{digits}}}", text) else None


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60 else None
