"""Which backend a configuration gets on this machine, and what of it is not as it was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kernels.backends import Choice, automatic
from kernels.interface import BackendSettings
from kernels.machine import most_cpus

from .config import EngineConfig


class Selection(NamedTuple):
    """A backend's name, and what it is made with.

    why: what keeps a faster one from being used, "" if nothing does; mend: what to do about it. notes:
    sentences for whoever opens it.
    """

    name: str
    settings: BackendSettings
    why: str
    mend: str
    notes: tuple[str, ...]


def select_backend(config: EngineConfig) -> Selection:
    """The backend for a configuration. Nothing is opened; a GPU that is there is tried out."""
    settings = BackendSettings(config.device, config.dtype, config.threads, config.cpu_isa)
    notes = []
    choice = Choice(config.backend)
    if config.backend == "auto":
        choice = automatic(settings)
        if choice.news and choice.name == "native":
            notes.append(f"{choice.why}; {choice.mend}")
    if config.ranks > 1 and choice.name == "native":
        why = "several processes (tensor_parallel, pipeline_parallel) compute with the reference backend"
        choice = Choice("reference", why, "leave tensor_parallel and pipeline_parallel at 1 on a CPU")
        notes.append(f"{why}, which is slower on a CPU than the native one in a single process")
    most = most_cpus()
    if settings.threads is not None and settings.threads > most:
        # More would take turns on the same processors, and wait for each other.
        there = "1 processor" if most == 1 else f"{most} processors"
        notes.append(
            f"threads {settings.threads} is more than this process can use: {most} on {there} compute"
        )
        settings = replace(settings, threads=most)
    return Selection(choice.name, settings, choice.why, choice.mend, tuple(notes))
