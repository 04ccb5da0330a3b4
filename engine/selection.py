"""Which backend a configuration gets on this machine, and what of it is not as it was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kernels import cuda, driver
from kernels.backends import Choice, automatic, resolve
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
    settings = BackendSettings(
        config.device,
        config.dtype,
        config.threads,
        config.cpu_isa,
        findings_folder=None if config.findings is None else str(config.findings),
        exact=config.exact,
    )
    notes = []
    if config.backend == "auto":
        choice = automatic(settings)
        if choice.news and choice.name == "native":
            notes.append(f"{choice.why}; {choice.mend}")
    else:
        choice = Choice(config.backend, resolve(config.backend, settings)[1].device)
    if config.ranks > 1 and choice.name == "native":
        why = "several processes (tensor_parallel, pipeline_parallel) compute with torch on a CPU"
        mend = "leave tensor_parallel and pipeline_parallel at 1 for a model that one device holds"
        notes.append(f"{why}; the {choice.name} one, in a single process, computes a step faster")
        choice = Choice("reference", choice.device, why, mend)
    settings = replace(settings, device=choice.device)
    if not config.exact and choice.name != "triton":
        notes.append(
            f"exact = false changes nothing: the {choice.name} backend has one way to compute products"
        )
    most = most_cpus()
    if settings.threads is not None and settings.threads > most:
        # More would take turns on the same processors, and wait for each other.
        there = "1 processor" if most == 1 else f"{most} processors"
        notes.append(
            f"threads {settings.threads} is more than this process can use: {most} on {there} compute"
        )
        settings = replace(settings, threads=most)
    return Selection(choice.name, settings, choice.why, choice.mend, tuple(notes))


class GpuState(NamedTuple):
    """A GPU of this machine. device: its name in the settings, "" if CUDA does not show it. Sizes in bytes,
    0: not known. memory_errors: that could not be corrected, since it was last reset.

    why: what keeps it from being used, "" if it is used; mend: what to do about it. wanted: somebody has
    arranged it so.
    """

    name: str
    uuid: str
    device: str
    total: int
    free: int
    memory_errors: int
    used: bool
    why: str = ""
    mend: str = ""
    wanted: bool = False


class Gpus(NamedTuple):
    """driver: version of NVIDIA's, with the CUDA it serves; "" if there is none or it does not answer."""

    driver: str
    cards: tuple[GpuState, ...]


def list_gpus(selection: Selection) -> Gpus:
    """All GPUs of this machine, and whether a selection uses them. Each is tried: for a look, not a start."""
    found = driver.read() if cuda.devices() else driver.Driver()
    version = (
        f"{found.version} (CUDA {found.cuda // 1000}.{found.cuda % 1000 // 10})" if found.version else ""
    )
    return Gpus(version, tuple(_state(gpu, selection) for gpu in cuda.survey()))


def _state(gpu: cuda.Gpu, selection: Selection) -> GpuState:
    card, obstacle = gpu.card, gpu.obstacle
    device = "" if gpu.number is None else f"cuda:{gpu.number}"
    used = obstacle is None and selection.settings.device == device and selection.name != "native"
    if obstacle is None and not used:
        why = f"{selection.settings.device} computes"
        obstacle = cuda.Obstacle(why, f"--device {device} takes this one", wanted=True)
    why, mend, wanted = obstacle or ("", "", False)
    errors = card.memory_errors
    return GpuState(card.name, card.uuid, device, card.total, card.free, errors, used, why, mend, wanted)
