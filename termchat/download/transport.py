"""Opening a file at an address, from a given byte on: http, https and file, with the rules for redirects.

What talks to the network is a thread of its own (a name that is being resolved cannot be stopped): who waits
for it looks up often, and can leave it alone at any moment. It touches no file.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from .answer import (
    Body,
    RangeError,
    StatusError,
    TransferError,
    content_range,
    innermost,
    kind_in,
    sha256_in,
    size_in,
    without_secrets,
)
from .errors import DownloadError
from .progress import BEAT_SECONDS
from .proxies import proxy_of
from .trust import trust

if TYPE_CHECKING:
    import httpx

CONNECT_S = 10.0
ANSWER_S = 20.0
LARGEST_ANSWER = 16 << 20
_REDIRECTS = 10
_PACKED = frozenset(("gzip", "deflate"))  # what the client unpacks
_PACKINGS = _PACKED | {"br", "compress", "dcb", "dcz", "x-compress", "x-gzip", "zstd"}
"""Content codings that change the bytes. Stores name others (`aws-chunked`, `utf-8`), which do not."""
_AHEAD = 32  # chunks that wait to be written, 64 KiB each at most

log = logging.getLogger(__name__)


def open_body(
    url: str,
    headers: Mapping[str, str],
    offset: int,
    etag: str | None,
    timeout: float,
    beat: Callable[[], object] = lambda: None,
) -> Body:
    """Ask for `url` from byte `offset` on, if it still has `etag`; the answer may begin at 0 all the same.

    timeout: seconds without a byte that end it. beat: called while it waits, about ten times a second; what
    it raises ends the wait. What was compressed on the way comes unpacked. TransferError (StatusError,
    RangeError), DownloadError.
    """
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise TransferError(str(error), error) from error
    if scheme == "file":
        return _open_file(url, offset)
    if scheme not in ("http", "https"):
        raise TransferError("only http, https and file addresses are supported", ValueError(scheme))
    asked = {**headers, "User-Agent": "termchat", "Accept": "*/*", "Accept-Encoding": "identity"}
    if offset:
        asked["Range"] = f"bytes={offset}-"
        if etag is not None and not etag.startswith("W/"):  # weak tags may not be used (RFC 9110, 13.1.5)
            asked["If-Range"] = etag
    return _Exchange(url, asked, timeout, beat).body()


def read_answer(url: str, headers: Mapping[str, str], beat: Callable[[], object] = lambda: None) -> bytes:
    """A short answer, whole. beat: as for `open_body`. TransferError (StatusError), DownloadError."""
    body = open_body(url, headers, 0, None, ANSWER_S, beat)
    try:
        answer = bytearray()
        while data := body.read():
            answer += data
            if len(answer) > LARGEST_ANSWER:
                raise TransferError(f"the answer has more than {LARGEST_ANSWER} bytes", ValueError(), url=url)
        if body.total is not None and len(answer) < body.total:
            raise TransferError("the connection ended in the middle of the answer", OSError(), url=url)
    finally:
        body.close()
    return bytes(answer)


class _Exchange:
    """A request and its answer, made by a thread; chunks come through a queue."""

    def __init__(self, url: str, headers: dict[str, str], timeout: float, beat: Callable[[], object]) -> None:
        self._url = self._at = url
        self._headers = headers
        self._timeout = timeout
        self._beat = beat
        self._items: queue.Queue[Body | bytes | BaseException] = queue.Queue(_AHEAD)
        self._left = threading.Event()
        self._socket: socket.socket | None = None
        threading.Thread(target=self._talk, name="download", daemon=True).start()

    def body(self) -> Body:
        """The answer's head."""
        try:
            item = self._next()
            assert isinstance(item, Body), "the head comes first"
        except BaseException:
            self.close()
            raise
        return item

    def read(self) -> bytes:
        item = self._next()
        assert isinstance(item, bytes), "there is one head"
        return item

    def close(self) -> None:
        """Leave the thread alone; what it waits for ends at once if it has got as far as an answer."""
        self._left.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _next(self) -> Body | bytes:
        # The client has its own limits; only a name that is never resolved needs this one.
        end = time.monotonic() + CONNECT_S + 2 * self._timeout
        while True:
            try:
                item = self._items.get(timeout=BEAT_SECONDS)
            except queue.Empty:
                self._beat()
                if time.monotonic() > end:
                    raise TransferError("no answer came in time", TimeoutError(), url=self._at) from None
                continue
            if isinstance(item, BaseException):
                raise item
            return item

    def _put(self, item: Body | bytes | BaseException) -> bool:
        """Hand something over; False: nobody wants it any more."""
        while not self._left.is_set():
            with suppress(queue.Full):
                self._items.put(item, timeout=BEAT_SECONDS)
                return True
        return False

    def _talk(self) -> None:
        import httpx

        try:
            self._follow(httpx)
        except (TransferError, DownloadError) as error:
            self._put(error)
        except Exception as error:  # also what the client's own libraries let through
            self._put(self._failure(httpx, error))
        except BaseException as error:  # for whoever waits
            self._put(error)

    def _failure(self, httpx: Any, error: Exception) -> TransferError:
        """What went wrong on the way, in words."""
        inner = innermost(error)
        text = getattr(inner, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, httpx.TimeoutException):
            inner, text = TimeoutError(text), "no answer came in time"
        # OpenSSL's word for an answer without TLS.
        if getattr(inner, "reason", None) == "WRONG_VERSION_NUMBER":
            text = "the answer is not TLS; http:// instead of https:// may be meant"
        proxy = None
        by_socks = type(error).__module__.partition(".")[0] == "socksio"  # it does not speak SOCKS
        if by_socks or isinstance(error, (httpx.ProxyError, httpx.ConnectError, httpx.ConnectTimeout)):
            proxy = proxy_of(self._at)
        if not isinstance(error, (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError)):
            log.warning("%s: an unusual failure", without_secrets(self._at), exc_info=error)
        failure = TransferError(text, inner, url=self._at, by_proxy=proxy)
        failure.__cause__ = error
        return failure

    def _follow(self, httpx: Any) -> None:
        """Go where the file is. A token is handed to its own server only; https is never left for http."""
        headers = dict(self._headers)
        linked_sha256: str | None = None
        linked_size: int | None = None
        for _ in range(_REDIRECTS):
            url = self._at
            with _client(url, self._timeout) as client, client.stream("GET", url, headers=headers) as answer:
                self._socket = answer.extensions["network_stream"].get_extra_info("socket")
                if not 300 <= answer.status_code < 400 or "Location" not in answer.headers:
                    self._receive(answer, url, url == self._url, linked_sha256, linked_size)
                    return
                linked_sha256 = sha256_in(answer.headers.get("X-Linked-Etag")) or linked_sha256
                linked_size = size_in(answer.headers.get("X-Linked-Size")) or linked_size
                new = urljoin(url, answer.headers["Location"])
                old, parts = urlsplit(url), urlsplit(new)
                if parts.scheme not in ("http", "https") or (old.scheme, parts.scheme) == ("https", "http"):
                    reason = f"with a redirect to {without_secrets(new)}"
                    raise StatusError(answer.status_code, reason, answer.headers, url)
                if (old.scheme, old.netloc) != (parts.scheme, parts.netloc):
                    headers.pop("Authorization", None)
                code, answered = answer.status_code, answer.headers
                self._at = new
        raise StatusError(code, "with redirects without end", answered, url)

    def _receive(
        self, answer: httpx.Response, url: str, direct: bool, sha256: str | None, size: int | None
    ) -> None:
        headers = answer.headers
        if answer.status_code not in (200, 206):
            raise StatusError(answer.status_code, answer.reason_phrase, headers, url)
        codings = {each.strip().lower() for each in headers.get("Content-Encoding", "").split(",")}
        packings = codings & _PACKINGS
        if not packings <= _PACKED:
            raise TransferError("the server compresses the file on the way", ValueError())
        start, total, etag = 0, size_in(headers.get("Content-Length")), headers.get("ETag")
        if packings:  # both are of what is compressed
            total = etag = None
        # Some mirrors say 200 to one who asked for the rest, and send just that.
        if answer.status_code == 206 or ("Range" in self._headers and "Content-Range" in headers):
            if packings:
                raise RangeError("the server gives a part of the compressed file", ValueError())
            start, total = content_range(headers.get("Content-Range", ""))
        body = Body(
            read=self.read,
            close=self.close,
            start=start,
            total=total,
            etag=etag,
            framed="Content-Length" in headers or "chunked" in headers.get("Transfer-Encoding", "").lower(),
            linked_sha256=sha256 or sha256_in(headers.get("X-Linked-Etag")),
            etag_sha256=sha256_in(etag) if direct else None,
            linked_size=size or size_in(headers.get("X-Linked-Size")),
            kind=kind_in(headers),
        )
        if not self._put(body):
            return
        for chunk in answer.iter_bytes() if packings else answer.iter_raw():
            if chunk and not self._put(chunk):
                return
        self._put(b"")


def _client(url: str, timeout: float) -> httpx.Client:
    """A client for one request, by way of the proxy that the environment names. DownloadError."""
    import httpx

    proxy, context = proxy_of(url), trust()
    by_way_of = None
    if proxy is not None:
        secure = context if proxy.scheme == "https" else None
        by_way_of = httpx.Proxy(proxy.url, auth=proxy.credentials, ssl_context=secure)
    times = httpx.Timeout(timeout, connect=min(CONNECT_S, timeout))
    transport = httpx.HTTPTransport(verify=context, trust_env=False, proxy=by_way_of)
    return httpx.Client(transport=transport, trust_env=False, timeout=times)


def _open_file(url: str, offset: int) -> Body:
    try:
        stream = open(urllib.request.url2pathname(urlsplit(url).path), "rb")  # noqa: SIM115 - the caller closes it
        info = os.fstat(stream.fileno())
    except OSError as error:
        raise TransferError(error.strerror or str(error), error) from error
    start = min(offset, info.st_size)
    stream.seek(start)

    def read() -> bytes:
        try:
            return stream.read(1 << 18)
        except OSError as error:
            raise TransferError(error.strerror or str(error), error) from error

    etag = f'"{info.st_size}-{info.st_mtime_ns}"'
    return Body(read, stream.close, start, info.st_size, etag, framed=True)
