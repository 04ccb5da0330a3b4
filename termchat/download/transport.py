"""Opening a file at an address, from a given byte on: http, https and file, with the rules for redirects."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPMessage, HTTPResponse
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit


@dataclass(slots=True)
class Body:
    """An open answer. start: position of its first byte; total: size of the whole file, None if not said.

    framed: the end of the stream is marked, so that a cut is noticed. linked_*: what a Hugging Face server
    says of the file it redirects to (X-Linked-Size, and X-Linked-Etag, the sha256 of a large file).
    """

    stream: Any
    start: int
    total: int | None
    etag: str | None
    framed: bool
    linked_sha256: str | None = None
    linked_size: int | None = None

    def read(self, size: int) -> bytes:
        """Up to `size` bytes as they come, empty at the end. OSError, http.client.HTTPException."""
        data: bytes = self.stream.read1(size)
        return data


def open_body(url: str, headers: Mapping[str, str], offset: int, etag: str | None, timeout: float) -> Body:
    """Ask for `url` from byte `offset` on, if it still has `etag`; the answer may begin at 0 all the same.

    urllib.error.URLError (HTTPError with a status), OSError, http.client.HTTPException.
    """
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return _open_file(url, offset)
    if scheme not in ("http", "https"):
        raise urllib.error.URLError(ValueError(f"{scheme!r} addresses are not supported"))
    request = urllib.request.Request(url, headers=dict(headers))
    request.add_header("User-Agent", "termchat")
    request.add_header("Accept-Encoding", "identity")
    if offset:
        request.add_header("Range", f"bytes={offset}-")
        if etag is not None and not etag.startswith(
            "W/"
        ):  # a weak tag may not be used here (RFC 9110, 13.1.5)
            request.add_header("If-Range", etag)
    redirects = _Redirects()
    response: HTTPResponse = urllib.request.build_opener(redirects).open(request, timeout=timeout)
    answer = response.headers
    if answer.get("Content-Encoding", "identity") != "identity":
        response.close()
        raise urllib.error.URLError(ValueError("the server compresses the file on the way"))
    start, total = 0, None
    if response.status == 206:
        start, total = _content_range(answer.get("Content-Range", ""))
    elif response.length is not None:
        total = response.length
    return Body(
        stream=response,
        start=start,
        total=total,
        etag=answer.get("ETag"),
        framed=response.length is not None or response.chunked,
        linked_sha256=redirects.linked_sha256 or _sha256(answer),
        linked_size=redirects.linked_size,
    )


def without_secrets(url: str) -> str:
    """The address as it may be shown and logged: no user, password or query."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no address at all
        return url.partition("?")[0]
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but hands a token to its own server only and never leaves https for http."""

    linked_sha256: str | None = None
    linked_size: int | None = None

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        self.linked_sha256 = _sha256(headers) or self.linked_sha256
        size = headers.get("X-Linked-Size", "")
        self.linked_size = int(size) if re.fullmatch(r"[0-9]{1,18}", size) else self.linked_size
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme == "http"):
            shown = without_secrets(newurl)
            raise urllib.error.HTTPError(req.full_url, code, f"with a redirect to {shown}", headers, fp)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            request.remove_header("Authorization")
        return request


def _sha256(headers: HTTPMessage) -> str | None:
    etag = headers.get("X-Linked-Etag", "").removeprefix("W/").strip('"')
    return etag.lower() if re.fullmatch(r"[0-9a-fA-F]{64}", etag) else None


def _content_range(value: str) -> tuple[int, int | None]:
    found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", value.strip())
    if found is None:
        raise urllib.error.URLError(ValueError(f"the server gives a range that cannot be read: {value!r}"))
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _open_file(url: str, offset: int) -> Body:
    stream = open(urllib.request.url2pathname(urlsplit(url).path), "rb")  # noqa: SIM115 - the caller closes it
    info = os.fstat(stream.fileno())
    start = min(offset, info.st_size)
    stream.seek(start)
    return Body(stream, start, info.st_size, f'"{info.st_size}-{info.st_mtime_ns}"', framed=True)
