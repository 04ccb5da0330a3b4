"""pip, run so that the user's index, proxy and passwords hold: nothing but a look-up or a download."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from urllib.parse import urlsplit

from .errors import DownloadError, UnreachedError, proxy_password, untrusted
from .progress import BEAT_SECONDS, Meter
from .proxies import proxy_of

INDEX = "https://pypi.org/simple"

_LOOKUP_S, _DOWNLOAD_S = 120.0, 24 * 3600.0
_ONE_BEAT = BEAT_SECONDS / 2

_KEPT = (
    *("INDEX_URL", "EXTRA_INDEX_URL", "NO_INDEX", "FIND_LINKS", "TRUSTED_HOST", "CONFIG_FILE", "CONSTRAINT"),
    *("CERT", "CLIENT_CERT", "PROXY", "KEYRING_PROVIDER", "CACHE_DIR", "NO_CACHE_DIR", "USE_FEATURE"),
)
"""What the user may tell pip by variables: where packages come from, and how to get there."""

_SET = {
    "REQUIRE_VIRTUALENV": "0",
    "USER": "0",
    "QUIET": "0",
    "VERBOSE": "0",
    "NO_COLOR": "1",
    "REQUIRE_HASHES": "0",
}
"""What makes sense for installing but ends a look-up with an error; also over pip's own settings files."""


class Pip:
    """pip of this environment. give_up: asked while it works, why it should end, if it should."""

    def __init__(self, meter: Meter, give_up: Callable[[], str | None] = lambda: None) -> None:
        self.meter = meter
        self._give_up = give_up

    @property
    def is_there(self) -> bool:
        """Whether this environment has it."""
        return find_spec("pip") is not None

    @property
    def speaks_socks(self) -> bool:
        """Whether it can use a SOCKS proxy: it needs PySocks, which few have."""
        return find_spec("socks") is not None

    @cached_property
    def looks_elsewhere(self) -> bool:
        """Whether its settings name packages, or a way to them, that the environment does not."""
        if any(os.environ.get(f"PIP_{name}") for name in ("FIND_LINKS", "EXTRA_INDEX_URL")):
            return True
        listed = Pip(self.meter)._run(["config", "list"], _LOOKUP_S).splitlines()
        names = [line.partition("=")[0] for line in listed if not line.startswith(":env:")]
        return any(word in name for name in names for word in ("index", "find-links", "proxy"))

    def run(self, command: str, *arguments: str, patient: bool = False) -> str:
        """What it prints. Only wheels: a source package would run its own code. patient: bytes will flow.

        DownloadError. Whatever ends the wait ends pip too.
        """
        if not self.is_there:
            raise DownloadError("pip is not installed in termchat's environment")
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
        if not patient:
            options += ["--retries", "1", "--timeout", "4"]
        return self._run([command, *options, *arguments], _DOWNLOAD_S if patient else _LOOKUP_S)

    def _run(self, arguments: list[str], limit: float) -> str:
        try:
            # -P: code in the current folder is not ours to run.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pip", *arguments],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise DownloadError(f"pip cannot be started: {error.strerror}") from error
        try:
            out, err = self._wait(process, limit)
        finally:
            _end(process)
        if process.returncode != 0:
            raise UnreachedError(_explained(arguments[0], err, process.returncode))
        return out

    def _wait(self, process: subprocess.Popen[str], limit: float) -> tuple[str, str]:
        beats = 0
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=_ONE_BEAT)
            beats += 1
            reason = self._give_up()
            self.meter.beat()
            if beats * _ONE_BEAT > limit:
                reason = f"pip has not come to an end in {round(limit)} s"
            if reason is not None:
                raise UnreachedError(reason)


def _explained(command: str, err: str, code: int) -> str:
    """Why pip failed. That a host cannot be reached it calls a warning, and the error "no distribution"."""
    index = index_url() or INDEX
    broken = re.findall(r"connection broken by '(.*)'", err)
    if "CERTIFICATE_VERIFY_FAILED" in err:
        found = re.search(r"certificate verify failed: ([^('\"]+)", err)
        return untrusted(urlsplit(index).hostname or index, found[1].strip() if found else "says pip")
    if "407 Proxy Authentication" in err:
        return proxy_password(str(proxy_of(index) or "the proxy"))
    if broken and "No matching distribution" in err:
        reason = broken[-1].rstrip("'\")").rpartition(": ")[2]
        return f"pip {command} failed: the index cannot be reached: {reason}"
    lines = err.strip().splitlines()
    said = [line for line in lines if line.startswith("ERROR:")] or lines
    if said and said[-1] == "ERROR: Exception:":  # a fault of pip's own: what follows ends in what it was
        said = lines
    return f"pip {command} failed: {said[-1].removeprefix('ERROR: ') if said else f'exit code {code}'}"


def _end(process: subprocess.Popen[str]) -> None:
    """Have it clean up behind itself; then it has no choice."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def index_url() -> str | None:
    """The index that pip asks, as far as the environment tells; None: none, or by a proxy of its own."""
    if any(os.environ.get(f"PIP_{name}") for name in ("NO_INDEX", "PROXY")):
        return None
    return os.environ.get("PIP_INDEX_URL") or INDEX


def _environment() -> dict[str, str]:
    kept = {f"PIP_{name}" for name in _KEPT}
    found = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") or name in kept}
    for name in ("FORCE_COLOR", "PYTHONINSPECT"):
        found.pop(name, None)
    path = found.pop("PYTHONPATH", "").split(os.pathsep)
    if elsewhere := [entry for entry in path if os.path.isabs(entry) and not _is_here(entry)]:
        found["PYTHONPATH"] = os.pathsep.join(elsewhere)
    trusted = os.environ.get("SSL_CERT_FILE")
    if trusted and not any(found.get(name) for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")):
        found["REQUESTS_CA_BUNDLE"] = trusted  # what pip knows of these variables
    return {**found, **{f"PIP_{name}": value for name, value in _SET.items()}, "NO_COLOR": "1"}


def _is_here(folder: str) -> bool:
    try:
        return os.path.samefile(folder, os.curdir)
    except OSError:
        return False
