"""Why the Hub does not give a file or a list, and what to do; never with the token in it.

The Hub says more than its status does in X-Error-Code: a repository that is not there and one that is private
look the same to those who may not see it.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from .answer import StatusError, without_secrets

_LONGEST = 300
_TOKEN = "run hf auth login, or set HF_TOKEN to a token of yours"


def is_missing(error: StatusError) -> bool:
    """Whether an answer about a repository says that there is none, or no such revision; one that is private
    looks the same.
    """
    said = {name.lower(): value for name, value in error.headers.items()}
    kind, message = said.get("x-error-code", ""), said.get("x-error-message", "")
    nameless = error.code == 404 or (error.code == 401 and not _is_about_token(message))
    return kind in ("RepoNotFound", "RevisionNotFound") or (nameless and not kind)


class Asked(NamedTuple):
    """What the Hub was asked for: a repository (OWNER/NAME) at a revision. with_token: as a user of its."""

    endpoint: str
    repo: str
    revision: str
    with_token: bool


def of_hub(asked: Asked, error: StatusError, *, listing: bool = False) -> str:
    """The sentence on an answer, "" if the Hub has no words of its own for it. listing: to the question what
    the repository holds.
    """
    said = {name.lower(): value for name, value in error.headers.items()}
    kind, message = said.get("x-error-code", ""), said.get("x-error-message", "")
    repo, with_token = asked.repo, asked.with_token
    if kind == "GatedRepo":
        page = f"{without_secrets(asked.endpoint)}/{repo}"
        accept = f"{repo} is only for those who accept its licence: do so at {page}"
        return (
            f"{accept} with the account that your token is of" if with_token else f"{accept}, then {_TOKEN}"
        )
    if kind == "RevisionNotFound":
        return f"{repo} has no revision {asked.revision}"
    if error.code == 401 and with_token and _is_about_token(message):
        return f"the Hub does not take your token ({_words(message)}); make a new one: {_TOKEN}, or unset it"
    if kind == "RepoNotFound" or (error.code in (401, 404) and not kind and listing):
        private = "your token may not see it" if with_token else f"it is private: {_TOKEN}"
        return f"there is no repository {repo} at {urlsplit(asked.endpoint).hostname}, or {private}"
    if error.code == 403 and message:
        return f"the Hub does not give {repo}: {_words(message)}"
    return ""


def _is_about_token(message: str) -> bool:
    return any(word in message.lower() for word in ("credential", "token"))


def _words(message: str) -> str:
    """What a server says, as part of a sentence."""
    text = "".join(each if each.isprintable() else " " for each in message[:_LONGEST])
    return " ".join(text.split()).rstrip(".")
