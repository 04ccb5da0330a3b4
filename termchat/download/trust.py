"""Whose certificates are trusted: what the usual variables name, else the system's, else certifi's."""

from __future__ import annotations

import os
import ssl
from functools import cache
from pathlib import Path

from .errors import CA_VARIABLES, DownloadError


def trust() -> ssl.SSLContext:
    """A context for TLS. DownloadError: a variable names what cannot be used."""
    return _context(tuple((name, os.environ.get(name, "")) for name in CA_VARIABLES))


@cache
def _context(named: tuple[tuple[str, str], ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for variable, value in named:
        if not value:
            continue
        places = [value]
        if variable == "SSL_CERT_DIR":
            places = [place for place in value.split(os.pathsep) if os.path.isdir(place)] or places
        try:
            for place in places:
                folder = os.path.isdir(place)
                context.load_verify_locations(None if folder else place, place if folder else None)
        except (OSError, ValueError) as error:
            reason = "it holds no certificates" if isinstance(error, ssl.SSLError) else _words(error)
            raise DownloadError(f"{variable} names {value}, which cannot be used: {reason}") from error
    if not any(value for _, value in named):
        context.load_default_certs()
        if not _system_has_some(context):
            import certifi  # httpx brings it

            context.load_verify_locations(certifi.where())
    return context


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _system_has_some(context: ssl.SSLContext) -> bool:
    """Whether the system has certificates; those of a folder are read when they are needed."""
    if context.cert_store_stats()["x509_ca"]:
        return True
    folder = ssl.get_default_verify_paths().capath
    return folder is not None and any(Path(folder).glob("*"))
