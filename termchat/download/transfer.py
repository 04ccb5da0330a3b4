"""One attempt to bring what is missing of a file (RFC 9110: Range, If-Range), and what its failure means."""

from __future__ import annotations

import os
import shutil
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from .. import units
from ..files import open_private, sync
from . import retry_after
from .answer import Body, RangeError, StatusError, TransferError, without_secrets
from .errors import DownloadError, page_instead, proxy_password, refused, untrusted
from .part import Part, Remote
from .progress import Meter
from .transport import open_body

_SPARE = 16 << 20  # bytes left free on the disk
_SILENT_S = 5.0
RETRIED_STATUS = (408, 425, 429, 500, 502, 503, 504)
_EXPIRED = (401, 403, 410)
"""What a store behind a redirect says where the address is of no use any more; the next one is a new one."""
_LASTING = (ssl.SSLCertVerificationError, FileNotFoundError, IsADirectoryError, PermissionError, ValueError)
_PAGE = ("<!doctype html", "<html")


class CutError(Exception):
    """The transfer ended early for a reason that may pass.

    wait: seconds that the server asks for. unreached: there was no connection at all.
    """

    def __init__(self, message: str, wait: float | None = None, *, unreached: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.unreached = unreached


def transfer(remote: Remote, part: Part, meter: Meter, timeout: float) -> Remote:
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
            raise CutError(f"{shown} has changed") from error
        if error.code in RETRIED_STATUS:
            raise CutError(f"{shown} answered {error}", retry_after.told(error.headers)) from error
        said = remote.refused(error)
        if not said and error.code in _EXPIRED and error.url != remote.url:
            raise CutError(f"{_place(shown, error)} answered {error}") from error
        raise DownloadError(said or refused(shown, error.code, error, page=error.is_page)) from error
    except RangeError as error:
        if not offset:
            raise unopened(shown, error) from error
        part.discard()  # else each run would ask for the rest again
        raise CutError(f"{shown}: {error}") from error
    except TransferError as error:
        raise unopened(shown, error) from error.cause or error
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


def unopened(shown: str, error: TransferError) -> DownloadError | CutError:
    """What it means that an address cannot be opened."""
    host = urlsplit(error.url).hostname or shown
    if isinstance(error.cause, ssl.SSLCertVerificationError):
        return DownloadError(untrusted(host, error.cause.verify_message))
    if error.by_proxy is not None:
        if "407" in str(error):
            return DownloadError(proxy_password(str(error.by_proxy)))
        return CutError(f"cannot reach {host} through {error.by_proxy}: {error}", unreached=True)
    if isinstance(error.cause, _LASTING):
        return DownloadError(f"cannot open {shown}: {error}")
    text = str(error).rstrip(".")
    return CutError(
        f"cannot reach {_place(shown, error)}: {text}", unreached=isinstance(error.cause, OSError)
    )


def _place(shown: str, error: TransferError) -> str:
    """Where that was: the address that was asked, or the host that it leads to."""
    host = urlsplit(error.url).hostname or shown
    return shown if host in (urlsplit(shown).hostname, shown) else f"{host}, to which {shown} leads"


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


def _receive(body: Body, remote: Remote, part: Part, meter: Meter, silence: _Silence, offset: int) -> None:
    # A server that ignores Range sends all again: what is here already is dropped if it is the same content.
    same = (part.sha256 is not None and part.sha256 == remote.sha256) or (
        part.etag is not None and body.etag == part.etag
    )
    keep = offset if body.start == offset or (body.start == 0 and same) else 0
    changed = body.start > 0 and part.etag is not None and body.etag not in (None, part.etag)
    if keep < body.start or changed:
        part.discard()
        raise CutError(f"{without_secrets(remote.url)} has changed, or sent another range than was asked for")
    try:
        data = body.read()
    except TransferError as error:
        raise CutError(f"the connection broke: {error}") from error
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
                raise CutError(f"the connection broke: {error}") from error
        if remote.size is not None and position < remote.size:
            raise CutError(f"the connection ended after {position} of {remote.size} bytes")
        sync(file.fileno())


def _write(write: Callable[[memoryview], int | None], data: bytes, path: Path) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[write(left) or 0 :]
    except OSError as error:
        raise DownloadError(f"cannot write {path}: {error.strerror}; what is there is kept") from error


def _looks_like_page(data: bytes) -> bool:
    return data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").decode("latin-1").lower().startswith(_PAGE)
