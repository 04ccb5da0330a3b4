"""Whether there is a network at all, said within seconds: the hosts are called, all at once."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from .progress import BEAT_SECONDS, Meter
from .proxies import port_of, proxy_of

PATIENCE_S, ANSWER_S = 1.0, 3.0
"""After so long without success the hosts are called, and so long they may take to answer."""


class Hop(NamedTuple):
    """Who is called first for an address: its host, or the proxy that the environment names."""

    host: str
    port: int
    name: str


def hop_of(url: str) -> Hop | None:
    """None: nobody is called for it. DownloadError: a proxy's variable is not usable."""
    try:
        parts = urlsplit(url)
        port = port_of(parts)
    except ValueError:
        return None
    proxy = proxy_of(url)
    if proxy is not None:
        return Hop(proxy.host, proxy.port, str(proxy))
    return Hop(parts.hostname, port, parts.hostname) if parts.hostname and parts.scheme != "file" else None


class Reach:
    """Calls hosts in the background, if asking them takes long or has failed: then a host that cannot be
    reached is told from one that is slow. Nothing is kept; it may be otherwise a moment later.
    """

    def __init__(self, hops: Iterable[Hop | None]) -> None:
        self._hops = tuple(dict.fromkeys(hop for hop in hops if hop is not None))
        self._found: dict[Hop, str | None] = {}
        self._began = time.monotonic()
        self._called: float | None = None

    def call(self) -> None:
        """Call them all, if that has not been done."""
        if self._called is None:
            self._called = time.monotonic()
            for hop in self._hops:
                threading.Thread(target=self._call, args=(hop,), name="reach", daemon=True).start()

    def problem(self, hop: Hop | None) -> str | None:
        """Why a host cannot be reached; None: it can, or that is not known yet."""
        if self._called is None and time.monotonic() - self._began > PATIENCE_S:
            self.call()
        if self._known(hop) and hop is not None:
            reason = self._found.get(hop, "no answer")
            return f"{hop.name}: {reason}" if reason is not None else None
        return None

    def settled(self, hop: Hop | None, meter: Meter) -> str | None:
        """Like `problem`, but when it is known."""
        self.call()
        while hop in self._hops and not self._known(hop):
            meter.beat()
            time.sleep(BEAT_SECONDS / 4)
        return self.problem(hop)

    @property
    def nobody(self) -> bool:
        """Whether none of them can be reached."""
        return all(self.problem(hop) is not None for hop in self._hops)

    def _known(self, hop: Hop | None) -> bool:
        late = self._called is not None and time.monotonic() - self._called > ANSWER_S
        return hop in self._hops and (hop in self._found or late)

    def _call(self, hop: Hop) -> None:
        reason = None
        try:
            socket.create_connection((hop.host, hop.port), timeout=ANSWER_S).close()
        except (OSError, ValueError) as error:  # a host of letters that no name has is a UnicodeError
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        self._found[hop] = reason
