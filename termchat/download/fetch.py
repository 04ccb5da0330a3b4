"""One file over HTTP(S) or from disk: resumed across runs, retried, checked, landed in one step.

Bytes go to `FILE.part`; `FILE.part.json` remembers which content they belong to, so that a next run asks for
the rest only (RFC 9110: Range, If-Range). `FILE` appears when size and sha256 are right.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import shutil
import socket
import ssl
import time
import urllib.error
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import UserError
from ..files import open_private, write_private
from ..units import format_bytes
from .progress import Meter
from .transport import Body, open_body, without_secrets

_CHUNK = 1 << 18
_SPARE = 16 << 20  # bytes left free on the disk
_RETRIED_STATUS = (408, 425, 429, 500, 502, 503, 504)
_LASTING = (ssl.SSLCertVerificationError, FileNotFoundError, IsADirectoryError, PermissionError, ValueError)

log = logging.getLogger(__name__)


class DownloadError(UserError):
    """A download that cannot be finished; says why, and whether it goes on where it stopped."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file to fetch. sha256 and size are None where only the server knows them."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Retries:
    """timeout: seconds without a byte that end a connection; attempts: failures in a row without any."""

    timeout: float = 30.0
    attempts: int = 5
    pause: Callable[[float], None] = time.sleep


_DEFAULT_RETRIES = Retries()


class _CutError(Exception):
    """The transfer ended early for a reason that may pass."""


def fetch(remote: Remote, target: Path, meter: Meter, retries: Retries = _DEFAULT_RETRIES) -> None:
    """Bring `remote` to `target`, whose folder exists and which nobody else fetches (the caller has a lock).

    DownloadError: the server refuses, the content is wrong (deleted then), the disk is full, or the
    connection failed again and again (the part is kept and resumed by the next call).
    """
    part = _Part(target, remote)
    failures, best, clean = 0, part.size(), False
    while True:
        try:
            remote = _transfer(remote, part, meter, retries.timeout)
        except _CutError as error:
            failures = 1 if part.size() > best else failures + 1
            best = max(best, part.size())
            log.warning("%s: %s (failure %d)", without_secrets(remote.url), error, failures)
            unreached = isinstance(error.__cause__, socket.gaierror) and best == 0
            if failures >= retries.attempts or unreached:
                kept = f"; {format_bytes(part.size())} are kept for the next try" if part.size() else ""
                raise DownloadError(f"{error}{kept}") from error
            retries.pause(min(30.0, 0.5 * 2**failures))
            continue
        problem = verify(part.path, remote, meter)
        if problem is None:
            break
        part.discard()
        if clean or not part.resumed:
            raise DownloadError(f"{problem}; the file is deleted")
        log.warning("%s: %s; begun anew", without_secrets(remote.url), problem)
        clean, best = True, 0
    os.replace(part.path, target)
    part.discard()


class _Part:
    """The unfinished file and the note of what it is a part of."""

    def __init__(self, target: Path, remote: Remote) -> None:
        self.path = target.with_name(target.name + ".part")
        self.note = target.with_name(target.name + ".part.json")
        self.resumed = False
        known: object = None
        with suppress(OSError, ValueError):
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
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def remember(self, remote: Remote, etag: str | None) -> None:
        self.etag, self.sha256 = etag, remote.sha256
        note = {"url": without_secrets(remote.url), "sha256": remote.sha256, "etag": etag}
        write_private(self.note, json.dumps(note))

    def discard(self) -> None:
        self.etag = self.sha256 = None
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def _transfer(remote: Remote, part: _Part, meter: Meter, timeout: float) -> Remote:
    """Fetch what is missing of the part; the remote with what the server said of its size and sha256."""
    offset = part.size()
    if remote.size is not None and offset == remote.size:
        part.resumed = True
        return remote
    if remote.size is not None and offset > remote.size:
        part.discard()
        offset = 0
    shown = without_secrets(remote.url)
    try:
        body = open_body(remote.url, remote.headers, offset, part.etag, timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416 and offset:  # the part is no beginning of what the server has now
            part.discard()
            raise _CutError(f"{shown} has changed") from error
        if error.code in _RETRIED_STATUS:
            raise _CutError(f"{shown} answered {error.code} {error.reason}") from error
        raise DownloadError(_refused(shown, error)) from error
    except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
        inner = error.reason if isinstance(error, urllib.error.URLError) else error
        reason = inner if isinstance(inner, BaseException) else error
        text = getattr(reason, "strerror", None) or str(inner) or type(reason).__name__
        if isinstance(reason, _LASTING):
            raise DownloadError(f"cannot open {shown}: {text}") from error
        raise _CutError(f"cannot reach {shown}: {text}") from reason
    with body.stream:
        remote = replace(
            remote,
            sha256=remote.sha256 if remote.sha256 is not None else body.linked_sha256,
            size=remote.size if remote.size is not None else body.linked_size,
        )
        if body.total is not None and remote.size is not None and body.total != remote.size:
            part.discard()
            raise DownloadError(f"{shown} has {body.total} bytes, not the {remote.size} expected")
        remote = replace(remote, size=remote.size if remote.size is not None else body.total)
        if remote.size is None and remote.sha256 is None and not body.framed:
            raise DownloadError(f"{shown} gives no length, so a cut could not be noticed")
        _receive(body, remote, part, meter, offset)
    return remote


def _receive(body: Body, remote: Remote, part: _Part, meter: Meter, offset: int) -> None:
    # A server that ignores Range sends all again: what is here already is dropped if it is the same content.
    same = (part.sha256 is not None and part.sha256 == remote.sha256) or (
        part.etag is not None and body.etag == part.etag
    )
    keep = offset if body.start == offset or (body.start == 0 and same) else 0
    changed = body.start > 0 and part.etag is not None and body.etag not in (None, part.etag)
    if keep < body.start or changed:
        part.discard()
        raise _CutError(
            f"{without_secrets(remote.url)} has changed, or sent another range than was asked for"
        )
    part.resumed = keep > 0
    free = shutil.disk_usage(part.path.parent).free
    if remote.size is not None and remote.size - keep > free - _SPARE:
        raise DownloadError(
            f"not enough space in {part.path.parent}: {format_bytes(remote.size - keep)} are needed, "
            f"{format_bytes(free)} are free"
        )
    part.remember(remote, body.etag)
    position = body.start
    with open(open_private(part.path, os.O_WRONLY), "wb", buffering=0) as file:
        file.truncate(keep)
        file.seek(keep)
        meter.report("download", keep, remote.size)
        while True:
            try:
                data = body.read(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _CutError(f"the connection broke: {str(error) or type(error).__name__}") from error
            if not data:
                break
            fresh = data[max(0, keep - position) :]
            position += len(data)
            if remote.size is not None and position > remote.size:
                raise DownloadError(f"{without_secrets(remote.url)} sends more than {remote.size} bytes")
            _write(file.write, fresh, part.path)
            meter.report("download", max(keep, position), remote.size)
        if remote.size is not None and position < remote.size:
            raise _CutError(f"the connection ended after {position} of {remote.size} bytes")
        os.fsync(file.fileno())


def _write(write: Callable[[memoryview], int | None], data: bytes, path: Path) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[write(left) or 0 :]
    except OSError as error:
        raise DownloadError(f"cannot write {path}: {error.strerror}; what is there is kept") from error


def verify(path: Path, remote: Remote, meter: Meter) -> str | None:
    """What is wrong with the finished file, or None."""
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"{without_secrets(remote.url)} gave {size} bytes, not {remote.size}"
    if remote.sha256 is None:
        return None
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        done = 0
        while data := file.read(1 << 20):
            digest.update(data)
            done += len(data)
            meter.report("verify", done, size)
    if digest.hexdigest() == remote.sha256:
        return None
    return f"{without_secrets(remote.url)} has sha256 {digest.hexdigest()}, not {remote.sha256}"


def _refused(shown: str, error: urllib.error.HTTPError) -> str:
    hint = {
        401: "; if the model asks for it, accept its licence on its page and set HF_TOKEN",
        403: "; if the model asks for it, accept its licence on its page and set HF_TOKEN",
        404: "; there is no such file",
    }
    return f"{shown} answered {error.code} {error.reason}{hint.get(error.code, '')}"
