"""What comes back for an address: the open file, or why there is none; what its headers say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from .proxies import Proxy


class TransferError(Exception):
    """An address cannot be opened, or no more can be read from it.

    cause: what the system said, if it did. url: where that was, after redirects. by_proxy: the proxy said so,
    or it is the proxy that cannot be reached.
    """

    def __init__(
        self,
        message: str,
        cause: BaseException | None = None,
        *,
        url: str = "",
        by_proxy: Proxy | None = None,
    ) -> None:
        super().__init__(message)
        self.cause = cause
        self.url = url
        self.by_proxy = by_proxy


class StatusError(TransferError):
    """The server answered with something else than the file."""

    def __init__(self, code: int, reason: str, headers: Mapping[str, str], url: str) -> None:
        super().__init__(f"{code} {reason}".rstrip(), url=url)
        self.code = code
        self.headers = headers

    @property
    def is_page(self) -> bool:
        """Whether it is a web page, for people."""
        return kind_in(self.headers) == "text/html"


class RangeError(TransferError):
    """The answer is a part of the file, and does not say which."""


@dataclass(slots=True)
class Body:
    """An open answer. start: position of its first byte; total: size of the whole file, None if not said.

    framed: the end of the stream is marked, so that a cut is noticed. linked_*: what a Hugging Face server
    says of the file, or of the one it redirects to (X-Linked-Size, and X-Linked-Etag, the sha256 of a large
    file); etag_sha256: an ETag that looks like one, of the server that was asked. kind: its media type.
    read: some bytes as they come, empty at the end; TransferError.
    """

    read: Callable[[], bytes]
    close: Callable[[], object]
    start: int
    total: int | None
    etag: str | None
    framed: bool
    linked_sha256: str | None = None
    linked_size: int | None = None
    etag_sha256: str | None = None
    kind: str = ""


def without_secrets(url: str) -> str:
    """The address as it may be shown and logged: no user, password or query."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no address at all
        return url.partition("?")[0]
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def innermost(error: BaseException) -> BaseException:
    """What an exception came from in the end."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return error


def sha256_in(etag: str | None) -> str | None:
    """The sha256 that an ETag holds, if it looks like one."""
    value = (etag or "").removeprefix("W/").strip('"')
    return value.lower() if re.fullmatch(r"[0-9a-fA-F]{64}", value) else None


def size_in(value: str | None) -> int | None:
    """The number of bytes that a header names, None if it is none."""
    return int(value) if value and re.fullmatch(r"[0-9]{1,18}", value) else None


def kind_in(headers: Mapping[str, str]) -> str:
    """The media type of an answer, without its parameters."""
    said = {name.lower(): value for name, value in headers.items()}
    return said.get("content-type", "").partition(";")[0].strip().lower()


def content_range(value: str) -> tuple[int, int | None]:
    """Where a part begins, and the size of the whole file if it is said. RangeError."""
    found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", value.strip())
    if found is None:
        said = (
            f"a range that cannot be read: {value[:80]!r}"
            if value
            else "a part of the file without its place"
        )
        raise RangeError(f"the server gives {said}", ValueError())
    return int(found[1]), None if found[2] == "*" else int(found[2])
