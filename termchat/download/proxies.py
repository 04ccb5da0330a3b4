"""Which proxy an address is asked for through: the variables that other programs go by, never passed over.

HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, the lower-case ones first, as curl and requests read them.
"""

from __future__ import annotations

import ipaddress
import os
import re
import sys
import urllib.request
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from .errors import DownloadError

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_KINDS = "http, https, socks5 and socks5h"


class Proxy(NamedTuple):
    """A proxy, and the variable that names it. credentials: user and password."""

    scheme: str
    host: str
    port: int
    credentials: tuple[str, str] | None
    variable: str

    @property
    def url(self) -> str:
        """Its address, without the credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __str__(self) -> str:
        return f"the proxy {self.url} ({self.variable})"


def proxy_of(url: str) -> Proxy | None:
    """The proxy for an address, None for a direct connection. DownloadError: its variable is not usable."""
    parts = urlsplit(url)
    if not parts.hostname:
        return None
    variable, value = _chosen(parts.scheme)
    if not value or _excepted(parts.hostname, port_of(parts)):
        return None
    return _parse(value, variable)


def port_of(parts: SplitResult) -> int:
    """The port of an address that may not name it. ValueError."""
    return parts.port or (443 if parts.scheme == "https" else 80)


def _chosen(scheme: str) -> tuple[str, str]:
    """The variable that speaks for a scheme, and its value; an empty one says that there is no proxy."""
    for name in (f"{scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            value = os.environ.get(variable)
            if value is not None:
                return variable, value.strip()
    if sys.platform in ("darwin", "win32"):
        return "the system's settings", urllib.request.getproxies().get(scheme, "")
    return "", ""


def _parse(value: str, variable: str) -> Proxy:
    text = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(text)
        host, port, scheme = parts.hostname, parts.port, parts.scheme.lower()
    except ValueError:
        host, port, scheme = None, None, ""
    if scheme == "socks":  # what desktops write
        scheme = "socks5"
    if scheme.startswith("socks") and scheme not in _PORTS:
        raise DownloadError(f"{variable} names a {scheme.upper()} proxy; termchat can use {_KINDS} proxies")
    if not host or scheme not in _PORTS or re.search(r"[\s\x00-\x1f]", value):
        raise DownloadError(
            f"{variable} does not name a proxy; write SCHEME://HOST:PORT with one of {_KINDS}, or unset it"
        )
    credentials = None
    if parts.username is not None:
        credentials = unquote(parts.username), unquote(parts.password or "")
    return Proxy(scheme, host, port or _PORTS[scheme], credentials, variable)


def _excepted(host: str, port: int) -> bool:
    """Whether NO_PROXY lists a host: its name, a domain above it, its address, or the network it is in."""
    listed = os.environ.get("no_proxy")
    if listed is None:
        listed = os.environ.get("NO_PROXY")
    if listed is None:
        return sys.platform in ("darwin", "win32") and bool(urllib.request.proxy_bypass(host))
    host = host.lower().rstrip(".").partition("%")[0]
    return any(_names(entry, host, port) for entry in re.split(r"[\s,]+", listed.lower()) if entry)


def _names(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    found = re.fullmatch(r"(\[[^\]]+\]|[^:]+):([0-9]{1,5})", entry)
    if found is not None:
        if int(found[2]) != port:
            return False
        entry = found[1]
    entry = entry.strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = entry.removeprefix("*").strip(".")
        return bool(name) and (host == name or host.endswith(f".{name}"))
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:  # a name
        return False
