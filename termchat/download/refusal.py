"""Why the Hub does not give a file or a list, and what to do; never with the token in it.

The Hub says more than its status does in X-Error-Code: a repository that is not there and one that is private
look the same to those who may not see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from .answer import StatusError

_TOKEN = "run hf auth login, or set HF_TOKEN to a token of yours"


def is_missing(error: StatusError) -> bool:
    """Whether an answer about a repository says that there is none, or no such revision; one that is private
    looks the same.
    """
    said = {name.lower(): value for name, value in error.headers.items()}
    kind, message = said.get("x-error-code", ""), said.get("x-error-message", "")
    nameless = error.code == 404 or (error.code == 401 and "credential" not in message.lower())
    return kind in ("RepoNotFound", "RevisionNotFound") or (nameless and not kind)


def of_hub(url: str, error: StatusError, headers: Mapping[str, str]) -> str:
    """The sentence on an answer to `url`, "" if the Hub has no words of its own for it.

    headers: of the request, for whether it had a token.
    """
    said = {name.lower(): value for name, value in error.headers.items()}
    kind, message = said.get("x-error-code", ""), said.get("x-error-message", "")
    parts = urlsplit(url)
    words = unquote(parts.path).strip("/").removeprefix("api/models/").split("/")
    repo, page = (
        "/".join(words[:2]),
        f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{'/'.join(words[:2])}",
    )
    with_token = "Authorization" in headers
    listing = parts.path.startswith("/api/")
    if kind == "GatedRepo" or (error.code == 403 and not kind and listing):
        accept = f"{repo} is only for those who accept its licence: do so at {page}"
        return (
            f"{accept} with the account that your token is of" if with_token else f"{accept}, then {_TOKEN}"
        )
    if kind == "RevisionNotFound":
        return f"{repo} has no revision {words[3] if len(words) > 3 else ''}".rstrip()
    if error.code == 401 and with_token and "credential" in message.lower():
        return f"the Hub does not know your token; make a new one: {_TOKEN}, or unset it"
    if kind == "RepoNotFound" or (error.code in (401, 404) and not kind and listing):
        private = "your token may not see it" if with_token else f"it is private: {_TOKEN}"
        return f"there is no repository {repo} at {parts.hostname}, or {private}"
    return ""
