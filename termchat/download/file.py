"""One file over HTTP(S) or from disk: resumed across runs, retried, checked, landed in one step.

Bytes go to `FILE.part`; `FILE` appears when size and sha256 are right.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .. import units
from . import retry_after
from .answer import without_secrets
from .errors import DownloadError, UnreachedError
from .part import Part, Remote, verify
from .progress import Meter
from .transfer import CutError, transfer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retries:
    """timeout: seconds without a byte that end a connection; attempts: failures in a row without any.

    unreached: how often a host that cannot be reached is tried before anything has come from it. pause: for
    tests, instead of waiting.
    """

    timeout: float = 20.0
    attempts: int = 5
    unreached: int | None = None
    pause: Callable[[float], None] | None = None


_DEFAULT_RETRIES = Retries()


def download_file(remote: Remote, target: Path, meter: Meter, retries: Retries = _DEFAULT_RETRIES) -> Remote:
    """Bring `remote` to `target`, whose folder exists and which nobody else fetches (the caller has a lock).

    What is returned has the sha256 and size that were checked, by our own knowledge or the server's. What is
    at `target` already stays until the new file is verified.

    DownloadError: the server refuses, the content is wrong (deleted then), the disk is full, or the
    connection failed again and again (the part is kept and resumed by the next call).
    """
    part = Part(target, remote)
    failures, asked, waited, best, clean = 0, 0, 0.0, part.size(), False
    while True:
        try:
            remote = transfer(remote, part, meter, retries.timeout)
        except CutError as error:
            if part.size() > best:
                failures, asked, waited, best = 0, 0, 0.0, part.size()
            log.warning("%s: %s", without_secrets(remote.url), error)
            kept = f"; {units.size(part.size())} are kept for the next try" if part.size() else ""
            if error.wait:  # no failure, as long as all the waiting stays bearable
                asked += 1
                pause = max(error.wait, _pause(asked) if asked > 1 else 0.0)
                waited += pause
                reason = f"{urlsplit(remote.url).hostname} asks to wait {units.duration(error.wait)}"
                if waited > retry_after.LONGEST_S:
                    come = retry_after.when(error.wait)
                    raise DownloadError(f"{error}, and asks to come back {come}{kept}") from error
            else:
                failures += 1
                pause, reason = _pause(failures), str(error)
            attempts = retries.attempts
            unreached = best == 0 and error.unreached
            if unreached:
                lost = isinstance(error.__cause__, socket.gaierror)
                attempts = 1 if lost else retries.unreached or attempts
            if failures >= attempts:
                raise (UnreachedError if unreached else DownloadError)(f"{error}{kept}") from error
            if retries.pause is not None:
                retries.pause(pause)
            else:
                meter.pause(pause, reason)
            continue
        problem = verify(part.path, remote, meter)
        if problem is None:
            break
        part.discard()
        if clean or not part.resumed:
            raise DownloadError(f"{problem}; the file is deleted")
        log.warning("%s: %s; begun anew", without_secrets(remote.url), problem)
        clean, best = True, 0
    os.replace(part.path, target)
    part.discard()
    return remote


def _pause(failures: int) -> float:
    """Seconds before the next try, after so many failures in a row."""
    return float(min(30.0, 0.5 * 2**failures))
