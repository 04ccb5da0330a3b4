"""What can go wrong with a download, in words."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UserError

CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Who is trusted, by the names that other programs go by."""

_BLOCKED = "a filter of your network may do so; open that address in a browser to see why"
_LOG_IN = "a log-in page of your network does so; open a browser to see it, then try again"


class DownloadError(UserError):
    """A download that cannot be finished; says why, and whether it goes on where it stopped.

    summary: the same for where there is little room.
    """

    def __init__(self, message: str, summary: str = "") -> None:
        super().__init__(message)
        self.summary = summary or message


class NoSuchModelError(DownloadError):
    """The Hub has no such repository or revision, or does not say so to this user."""


class UnreachedError(DownloadError):
    """One for which the network may be to blame."""


class NoNetworkError(DownloadError):
    """None of the hosts that have the file can be reached."""

    def __init__(self, tried: Iterable[str], problems: Iterable[str]) -> None:
        summary = f"no network (tried {', '.join(dict.fromkeys(tried))})"
        super().__init__(f"{summary}: {'; '.join(dict.fromkeys(problems))}", summary)


def page_instead(shown: str, wanted: str = "file") -> str:
    """A web page came; shown: from where."""
    return f"{shown} answered with a web page instead of the {wanted}; {_LOG_IN}"


def untrusted(host: str, reason: str) -> str:
    """The certificate is not one of an authority that is trusted."""
    variables = f"{', '.join(CA_VARIABLES[:-1])} or {CA_VARIABLES[-1]}"
    own = f"if your network has its own authority, name its file in {variables}"
    return f"the certificate of {host} is not trusted ({reason}); {own}"


def proxy_password(proxy: str) -> str:
    """The proxy wants to know who asks."""
    return f"{proxy} asks for a password; write USER:PASSWORD@ before its host in the variable that names it"


def refused(shown: str, code: int, said: object, *, page: bool = False) -> str:
    """A server's answer that will not change by itself. page: it is a web page."""
    if code == 407:
        return proxy_password("the proxy")
    licence = "if the model asks for it, accept its licence on its page and set HF_TOKEN"
    hints = {401: licence, 403: licence, 404: "there is no such file", 511: _LOG_IN}
    hints |= dict.fromkeys((301, 302, 303, 307, 308), _LOG_IN)
    if page and code == 403:  # the Hub says such things to programs without one
        return f"{shown} answered {said} with a web page; {_BLOCKED}"
    hint = hints.get(code)
    return f"{shown} answered {said}" + (f"; {hint}" if hint else "")
