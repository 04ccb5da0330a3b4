"""Where a model is written to: beside its place until it is whole, then there in one step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..types import EngineError


def check_target(target: Path, *, folder: bool, replace: bool, source: Path) -> None:
    """Refuse a place where a model must not go. EngineError(invalid_request)."""

    def refuse(reason: str) -> None:
        raise EngineError("invalid_request", f"{target}: {reason}")

    if not os.path.isdir(target.parent):
        refuse(f"the folder {target.parent} does not exist")
    if os.path.lexists(target):
        if os.path.realpath(target) == os.path.realpath(source):
            refuse("is the model that is read; name another place")
        if os.path.isdir(target) != folder:
            refuse("is a folder; name a file" if os.path.isdir(target) else "is a file; name a folder")
        if not replace:
            refuse("exists already; --force replaces it")
        if folder and not os.path.isfile(target / "config.json"):
            refuse("is a folder that holds no model, and is not replaced")
        if not folder and not os.path.isfile(target):
            refuse("is no regular file, and is not replaced")


_NAME_KEPT = 40
"""Characters of a target's name in that of what becomes it: a name is at most 255 bytes."""


@contextmanager
def becoming(target: Path, *, folder: bool) -> Iterator[Path]:
    """A path beside the target that takes its place when the block is done. Else nothing is left of it."""
    prefix = f".{target.name[:_NAME_KEPT]}.partial-"
    if folder:
        path = Path(tempfile.mkdtemp(dir=target.parent, prefix=prefix))
    else:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=prefix)
        os.close(descriptor)
        path = Path(name)
    try:
        mask = os.umask(0)
        os.umask(mask)
        path.chmod((0o777 if folder else 0o666) & ~mask)
        yield path
        _put(path, target, folder)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True) if folder else path.unlink(missing_ok=True)
        raise


def _put(path: Path, target: Path, folder: bool) -> None:
    if not folder or not os.path.exists(target):
        os.replace(path, target)
        _sync_folder(target.parent)
        return
    # A folder that has something in it can't be replaced in one step: it steps aside, and back if need be.
    aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:_NAME_KEPT]}.old-"))
    os.rename(target, aside / target.name)
    try:
        os.rename(path, target)
    except BaseException:
        os.rename(aside / target.name, target)
        raise
    finally:
        if os.path.exists(target):
            shutil.rmtree(aside, ignore_errors=True)
    _sync_folder(target.parent)


def sync(path: Path) -> None:
    """Have a file's content on the disk."""
    with open(path, "rb") as file, suppress(OSError):
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
