"""The Hugging Face Hub, or its mirror at HF_ENDPOINT, asked as this user: files, and their lists."""

from __future__ import annotations

import json
import logging
import os
import re
from urllib.parse import quote, urlsplit

from ..hub.listing import HubFile, Listing, ListingError, read_listing
from ..hub.name import HubName
from ..model_entry import HuggingFaceSource
from . import retry_after
from .answer import StatusError, TransferError, without_secrets
from .errors import DownloadError, NoNetworkError, NoSuchModelError, page_instead, refused
from .part import Remote
from .progress import Meter
from .refusal import Asked, is_missing, of_hub
from .transfer import RETRIED_STATUS, unopened
from .transport import read_answer

ATTEMPTS = 4

log = logging.getLogger(__name__)


def hub_remote(source: HuggingFaceSource, file: HubFile) -> Remote:
    """A file's address at HF_ENDPOINT, with the user's token."""
    path = f"/{source.repo}/resolve/{quote(source.revision, safe='')}/{quote(file.path)}"
    url, headers = hub_endpoint() + path, _headers()
    asked = Asked(hub_endpoint(), source.repo, source.revision, bool(headers))
    return Remote(url, headers, file.sha256, file.size, file.blob, lambda error: of_hub(asked, error))


def ask(name: HubName, meter: Meter) -> Listing:
    """What a repository holds at a revision. Blocks.

    NoSuchModelError: there is no such repository or revision. DownloadError: it is not for this user, or
    cannot be reached.
    """
    from engine.loading.recognized import is_page  # the command line starts without

    address = f"/api/models/{name.repo}/revision/{quote(name.revision, safe='')}?blobs=true"
    url, headers = hub_endpoint() + address, _headers()
    asked = Asked(hub_endpoint(), name.repo, name.revision, bool(headers))
    meter.report("resolve")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            answer = read_answer(url, headers, meter.beat)
            if is_page(answer):
                raise DownloadError(page_instead(without_secrets(url), "list of files"))
            return read_listing(name.repo, json.loads(answer))
        except StatusError as error:
            if error.code not in RETRIED_STATUS:
                said = of_hub(asked, error, listing=True)
                said = said or refused(without_secrets(url), error.code, error, page=error.is_page)
                raise (NoSuchModelError if is_missing(error) else DownloadError)(said) from error
            wait = retry_after.told(error.headers)
            if wait is not None and wait > retry_after.LONGEST_S:
                come = retry_after.when(wait)
                raise DownloadError(f"{_host()} answered {error}, and asks to come back {come}") from error
            problem = f"{_host()} answered {error}"
        except TransferError as error:
            failure = unopened(without_secrets(url), error)
            if isinstance(failure, DownloadError):
                raise failure from error
            if attempt == 2 and failure.unreached:
                raise NoNetworkError(["Hugging Face"], [str(failure)]) from error
            wait, problem = None, str(failure)
        except (ListingError, ValueError, RecursionError) as error:
            raise DownloadError(f"the answer of {_host()} on {name.repo} cannot be used: {error}") from error
        log.warning("%s", problem)
        if attempt < ATTEMPTS:
            meter.pause(wait or 0.5 * 2**attempt, problem)
    raise DownloadError(f"{problem}, {ATTEMPTS} times; try again later")


def hub_endpoint() -> str:
    """Where the Hugging Face Hub is asked. DownloadError: HF_ENDPOINT is not usable."""
    endpoint = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or "https://huggingface.co"
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        usable = False
    if not usable:
        raise DownloadError("HF_ENDPOINT is no address; write https://HOST, or unset it")
    return endpoint


def _host() -> str:
    return urlsplit(hub_endpoint()).hostname or "the Hub"


def _headers() -> dict[str, str]:
    """The user's token: of HF_TOKEN, or what `hf auth login` wrote. DownloadError."""
    if "HF_ENDPOINT" in os.environ:  # the library takes it apart as it stands, when it is imported
        os.environ["HF_ENDPOINT"] = hub_endpoint()
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise DownloadError("HF_HUB_OFFLINE is set, so the Hub is not asked; unset it for downloads")
    token = get_token()
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise DownloadError("HF_TOKEN holds characters that no token has")
    return {"Authorization": f"Bearer {token}"} if token else {}
