"""One file over HTTP(S) or from disk: resumed across runs, retried, checked, landed in one step.

Bytes go to `FILE.part`; `FILE.part.json` remembers which content they belong to, so that a next run asks for
the rest only (RFC 9110: Range, If-Range). `FILE` appears when size and sha256 are right.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from .. import units
from ..files import open_private, sync, write_private
from . import retry_after
from .checksum import sha256_of
from .errors import DownloadError, UnreachedError, page_instead, proxy_password, refused, untrusted
from .progress import Meter
from .transport import Body, RangeError, StatusError, TransferError, open_body, without_secrets

__all__ = ["DownloadError", "Remote", "Retries", "fetch", "verify"]

_SPARE = 16 << 20  # bytes left free on the disk
_SILENT_S = 5.0
_RETRIED_STATUS = (408, 425, 429, 500, 502, 503, 504)
_LASTING = (ssl.SSLCertVerificationError, FileNotFoundError, IsADirectoryError, PermissionError, ValueError)
_PAGE = ("<!doctype html", "<html")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Remote:
    """A file to fetch. sha256 and size are None where only the server knows them."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Retries:
    """timeout: seconds without a byte that end a connection; attempts: failures in a row without any.

    unreached: how often a host that cannot be reached is tried before anything has come from it. pause: for
    tests, instead of waiting.
    """

    timeout: float = 20.0
    attempts: int = 5
    unreached: int | None = None
    pause: Callable[[float], None] | None = None


_DEFAULT_RETRIES = Retries()


class _CutError(Exception):
    """The transfer ended early for a reason that may pass.

    wait: seconds that the server asks for. unreached: there was no connection at all.
    """

    def __init__(self, message: str, wait: float | None = None, *, unreached: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.unreached = unreached


def fetch(remote: Remote, target: Path, meter: Meter, retries: Retries = _DEFAULT_RETRIES) -> Remote:
    """Bring `remote` to `target`, whose folder exists and which nobody else fetches (the caller has a lock).

    What is returned has the sha256 and size that were checked, by our own knowledge or the server's. What is
    at `target` already stays until the new file is verified.

    DownloadError: the server refuses, the content is wrong (deleted then), the disk is full, or the
    connection failed again and again (the part is kept and resumed by the next call).
    """
    part = _Part(target, remote)
    failures, asked, waited, best, clean = 0, 0, 0.0, part.size(), False
    while True:
        try:
            remote = _transfer(remote, part, meter, retries.timeout)
        except _CutError as error:
            if part.size() > best:
                failures, asked, waited, best = 0, 0, 0.0, part.size()
            log.warning("%s: %s", without_secrets(remote.url), error)
            kept = f"; {units.size(part.size())} are kept for the next try" if part.size() else ""
            if error.wait:  # no failure, as long as all the waiting stays bearable
                asked += 1
                pause = max(error.wait, _pause(asked) if asked > 1 else 0.0)
                waited += pause
                reason = f"{urlsplit(remote.url).hostname} asks to wait {units.duration(error.wait)}"
                if waited > retry_after.LONGEST_S:
                    come = retry_after.when(error.wait)
                    raise DownloadError(f"{error}, and asks to come back {come}{kept}") from error
            else:
                failures += 1
                pause, reason = _pause(failures), str(error)
            attempts = retries.attempts
            unreached = best == 0 and error.unreached
            if unreached:
                lost = isinstance(error.__cause__, socket.gaierror)
                attempts = 1 if lost else retries.unreached or attempts
            if failures >= attempts:
                raise (UnreachedError if unreached else DownloadError)(f"{error}{kept}") from error
            if retries.pause is not None:
                retries.pause(pause)
            else:
                meter.pause(pause, reason)
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
    return remote


def _pause(failures: int) -> float:
    """Seconds before the next try, after so many failures in a row."""
    return float(min(30.0, 0.5 * 2**failures))


class _Part:
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
    silence = _Silence(meter)
    try:
        body = open_body(remote.url, remote.headers, offset, part.etag, timeout, silence)
    except StatusError as error:
        if error.code == 416 and offset:  # the part is no beginning of what the server has now
            part.discard()
            raise _CutError(f"{shown} has changed") from error
        if error.code in _RETRIED_STATUS:
            raise _CutError(f"{shown} answered {error}", retry_after.told(error.headers)) from error
        raise DownloadError(refused(shown, error.code, error)) from error
    except RangeError as error:
        if not offset:
            raise _unopened(shown, error) from error
        part.discard()  # else each run would ask for the rest again
        raise _CutError(f"{shown}: {error}") from error
    except TransferError as error:
        raise _unopened(shown, error) from error.cause or error
    try:
        remote = _completed(remote, body, shown)
        _receive(body, remote, part, meter, silence, offset)
    finally:
        body.close()
    return remote


class _Silence:
    """Says how long nothing has come."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.heard()

    def heard(self) -> None:
        self._since = time.monotonic()

    def __call__(self) -> None:
        silent = time.monotonic() - self._since
        self._meter.beat(f"no answer for {units.duration(silent)}" if silent > _SILENT_S else "")


def _unopened(shown: str, error: TransferError) -> DownloadError | _CutError:
    """What it means that an address cannot be opened."""
    host = urlsplit(error.url).hostname or shown
    if isinstance(error.cause, ssl.SSLCertVerificationError):
        return DownloadError(untrusted(host, error.cause.verify_message))
    if error.by_proxy is not None:
        if "407" in str(error):
            return DownloadError(proxy_password(str(error.by_proxy)))
        return _CutError(f"cannot reach {host} through {error.by_proxy}: {error}", unreached=True)
    if isinstance(error.cause, _LASTING):
        return DownloadError(f"cannot open {shown}: {error}")
    return _CutError(f"cannot reach {shown}: {error}", unreached=isinstance(error.cause, OSError))


def _completed(remote: Remote, body: Body, shown: str) -> Remote:
    """The remote with what the server says of its size and sha256. DownloadError: it is not the file."""
    if body.kind == "text/html" and (body.total is None or remote.size != body.total):
        raise DownloadError(page_instead(shown))
    if remote.sha256 is not None and body.linked_sha256 not in (None, remote.sha256):
        raise DownloadError(
            f"{shown} is another file now: its sha256 is {body.linked_sha256}, not {remote.sha256}"
        )
    remote = replace(
        remote,
        sha256=remote.sha256 or body.linked_sha256 or body.etag_sha256,
        size=remote.size if remote.size is not None else body.linked_size,
    )
    if body.total is not None and remote.size not in (None, body.total):
        raise DownloadError(f"{shown} has {body.total} bytes, not the {remote.size} expected")
    remote = replace(remote, size=remote.size if remote.size is not None else body.total)
    if remote.size is None and remote.sha256 is None and not body.framed:
        raise DownloadError(f"{shown} gives no length, so a cut could not be noticed")
    return remote


def _receive(body: Body, remote: Remote, part: _Part, meter: Meter, silence: _Silence, offset: int) -> None:
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
    try:
        data = body.read()
    except TransferError as error:
        raise _CutError(f"the connection broke: {error}") from error
    if body.start == 0 and _looks_like_page(data) and remote.size != body.total:
        raise DownloadError(page_instead(without_secrets(remote.url)))
    part.resumed = keep > 0
    free = shutil.disk_usage(part.path.parent).free
    if remote.size is not None and remote.size - keep > free - _SPARE:
        raise DownloadError(
            f"not enough space in {part.path.parent}: {units.size(remote.size - keep)} are needed, "
            f"{units.size(free)} are free"
        )
    part.remember(remote, body.etag)
    position = body.start
    with open(open_private(part.path, os.O_WRONLY), "wb", buffering=0) as file:
        file.truncate(keep)
        file.seek(keep)
        meter.report("download", keep, remote.size)
        while data:
            silence.heard()
            fresh = data[max(0, keep - position) :]
            position += len(data)
            if remote.size is not None and position > remote.size:
                raise DownloadError(f"{without_secrets(remote.url)} sends more than {remote.size} bytes")
            _write(file.write, fresh, part.path)
            meter.report("download", max(keep, position), remote.size)
            try:
                data = body.read()
            except TransferError as error:
                raise _CutError(f"the connection broke: {error}") from error
        if remote.size is not None and position < remote.size:
            raise _CutError(f"the connection ended after {position} of {remote.size} bytes")
        sync(file.fileno())


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
    found = sha256_of(path, meter)
    if found == remote.sha256:
        return None
    return f"{without_secrets(remote.url)} has sha256 {found}, not {remote.sha256}"


def _looks_like_page(data: bytes) -> bool:
    return data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").decode("latin-1").lower().startswith(_PAGE)
