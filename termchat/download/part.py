"""The unfinished file of a download: what it is a part of, and whether the whole is right.

`FILE.part.json` beside `FILE.part` remembers which content the bytes belong to, so that a next run asks for
the rest only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..files import write_private
from .answer import StatusError, without_secrets
from .progress import Meter

_KINDS = {".gguf": "GGUF", ".safetensors": "safetensors"}


@dataclass(frozen=True, slots=True)
class Remote:
    """A file that can be downloaded. sha256 and size are None where only the server knows them.

    blob: git's id of the content, where that is known instead of a sha256 (of a Hub's small files).
    refused: why its server does not give it, in that server's own terms; "" where it has none.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sha256: str | None = None
    size: int | None = None
    blob: str | None = None
    refused: Callable[[StatusError], str] = lambda error: ""


class Part:
    """The unfinished file and the note of what it is a part of."""

    def __init__(self, target: Path, remote: Remote) -> None:
        self.path = target.with_name(target.name + ".part")
        self.note = target.with_name(target.name + ".part.json")
        self.resumed = False
        known: object = None
        with suppress(OSError, ValueError, RecursionError):
            known = json.loads(self.note.read_text(encoding="utf-8"))
        noted = known if isinstance(known, dict) else {}
        self.etag = noted["etag"] if isinstance(noted.get("etag"), str) else None
        self.sha256 = noted["sha256"] if isinstance(noted.get("sha256"), str) else None
        # The same sha256 makes parts of different servers exchangeable; else address and ETag must agree.
        if remote.sha256 is not None:
            same = self.sha256 == remote.sha256
        else:
            same = self.etag is not None and noted.get("url") == without_secrets(remote.url)
        if not same:
            self.discard()

    def size(self) -> int:
        """Bytes that are here."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def remember(self, remote: Remote, etag: str | None) -> None:
        """Note what the bytes that come belong to."""
        self.etag, self.sha256 = etag, remote.sha256
        note = {"url": without_secrets(remote.url), "sha256": remote.sha256, "etag": etag}
        write_private(self.note, json.dumps(note))

    def discard(self) -> None:
        """Remove what is here, and the note."""
        self.etag = self.sha256 = None
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def verify(path: Path, remote: Remote, meter: Meter) -> str | None:
    """What is wrong with the finished file, or None."""
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"{without_secrets(remote.url)} gave {size} bytes, not {remote.size}"
    if remote.sha256 is None and remote.blob is not None:
        found = git_blob_of(path)
        return (
            None if found == remote.blob else f"{without_secrets(remote.url)} is not the file that is listed"
        )
    if remote.sha256 is None:
        return _other_kind(path, without_secrets(remote.url))
    found = sha256_of(path, meter)
    if found == remote.sha256:
        return None
    return f"{without_secrets(remote.url)} has sha256 {found}, not {remote.sha256}"


def _other_kind(path: Path, shown: str) -> str | None:
    """That a file is of another kind than its name says, where nothing else tells what it has to be.

    Servers send pages, messages and pointers with status 200, too.
    """
    from engine.loading.recognized import HEAD, kind_of

    expected = _KINDS.get(Path(path.name.removesuffix(".part")).suffix.lower())
    if expected is None:
        return None
    with path.open("rb") as file:
        head = file.read(HEAD)
    kind = kind_of(head)
    if kind is None or kind.noun == f"a {expected} file":
        return None
    return f"{shown} gives no {expected} file but what is {kind.noun}"


def git_blob_of(path: Path) -> str:
    """The id that git gives to a file's content: the sha1 of a header and the bytes. OSError."""
    digest = hashlib.sha1(usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        digest.update(b"blob %d\0" % path.stat().st_size)
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def sha256_of(path: Path, meter: Meter) -> str:
    """The sha256 of a file in hexadecimal digits, lower case. OSError."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        size = path.stat().st_size
        while data := file.read(1 << 20):
            digest.update(data)
            done += len(data)
            meter.report("verify", done, size)
    return digest.hexdigest()
