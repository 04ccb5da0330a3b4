"""Peak bandwidths by machine, threads and size of model, kept from run to run; the best one counts."""

from __future__ import annotations

import json
import logging
import math
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import PathError, private_folder, write_private

if TYPE_CHECKING:
    from engine import Engine, Peak

log = logging.getLogger(__name__)

MOST = 64
"""Machines and models that are remembered; the latest ones."""

LARGEST = 1e15
"""Bytes a second that no memory reaches: a file that says more is wrong."""


class Peaks:
    """The file of peaks. What is wrong with it, or with its folder, costs nothing but a measurement."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tell(self, engine: Engine) -> None:
        """Tell an engine the peak of earlier runs at its place."""
        from engine import Peak

        entry = self._read().get(_key(engine.info.place))
        if entry is not None:
            engine.tell_peak(Peak(float(entry["rate"]), bool(entry["quiet"])))

    def at(self, place: str) -> float | None:
        """The best peak of earlier runs at a place, in bytes a second."""
        entry = self._read().get(_key(place))
        return None if entry is None or not place else float(entry["rate"])

    async def measure(self, engine: Engine) -> float | None:
        """The best peak of all runs in GB/s, measured anew if the engine is idle, and kept."""
        self.tell(engine)
        gbs = await engine.bandwidth_peak()
        if engine.peak is not None and engine.info.place:
            self._keep(_key(engine.info.place), engine.peak)
        return gbs

    def _keep(self, key: str, peak: Peak) -> None:
        entries = self._read()
        entry = {"rate": peak.rate, "quiet": peak.quiet}
        if entries.get(key) == entry:
            return
        entries.pop(key, None)
        entries = dict([*entries.items(), (key, entry)][-MOST:])
        try:
            private_folder(self._path.parent)
            write_private(self._path, json.dumps(entries, indent=1) + "\n")
        except (OSError, PathError) as error:
            log.info("the peak bandwidth was not kept: %s", error)

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            content = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            log.info("%s cannot be read: %s", self._path, error)
            return {}
        entries = content.items() if isinstance(content, dict) else ()
        return {key: entry for key, entry in entries if _sound(entry)}


def _key(place: str) -> str:
    """Several machines may share a home folder."""
    return f"{platform.node()}: {place}"


def _sound(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("quiet"), bool):
        return False
    rate = entry.get("rate")
    return isinstance(rate, (int, float)) and math.isfinite(rate) and 1 < rate < LARGEST
