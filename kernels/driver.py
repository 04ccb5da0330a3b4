"""What NVIDIA's driver says of its GPUs: names, identifiers, memory, and what is wrong with one.

Asked through NVML (docs.nvidia.com/deploy/nvml-api) by the package nvidia-ml-py, which makes no context on a
GPU and so takes none of its memory; imported only where there is a device file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")

RESET = "reset it (nvidia-smi --gpu-reset) or restart the machine; if it comes again, the card is broken"
RESTART = "restart the machine; if that does not help, install the NVIDIA driver again"
SHARE = "end the program that has it, or let it be shared: nvidia-smi -c DEFAULT"


class Obstacle(NamedTuple):
    """Why a GPU that is there is of no use. wanted: somebody has arranged it so, so it is no news."""

    why: str
    mend: str
    wanted: bool = False


class Card(NamedTuple):
    """A GPU, or a slice of one (MIG). Sizes in bytes, 0: not known.

    uuid: GPU-… or MIG-…; parent: the identifier of the card a slice is of. place: its number in the order of
    the driver, which is that of the bus. memory_errors: uncorrectable ones since it was last reset.
    obstacle: what the driver knows against it.
    """

    name: str
    uuid: str = ""
    total: int = 0
    free: int = 0
    parent: str = ""
    place: int = 0
    memory_errors: int = 0
    obstacle: Obstacle | None = None

    @property
    def label(self) -> str:
        """What people know it by."""
        return f"{self.name} ({self.uuid[:12]})" if self.uuid else self.name


class Driver(NamedTuple):
    """version: as NVIDIA numbers drivers, "" if not known. cuda: the CUDA version it serves, 1000 * major +
    10 * minor, 0 if not known. obstacle: why nothing could be asked.
    """

    version: str = ""
    cuda: int = 0
    cards: tuple[Card, ...] = ()
    obstacle: Obstacle | None = None


def read() -> Driver:
    """The driver and its cards now. Never fails: what can't be asked is not known."""
    try:
        import pynvml
    except ImportError:
        return Driver(
            obstacle=Obstacle("the package nvidia-ml-py is not installed", "pip install nvidia-ml-py")
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Driver(obstacle=_why_silent(pynvml, error))
    try:
        count = _asked(pynvml, pynvml.nvmlDeviceGetCount, 0)
        return Driver(
            _text(_asked(pynvml, pynvml.nvmlSystemGetDriverVersion, "")),
            _asked(pynvml, pynvml.nvmlSystemGetCudaDriverVersion_v2, 0),
            tuple(card for place in range(count) for card in _cards(pynvml, place)),
        )
    finally:
        _asked(pynvml, pynvml.nvmlShutdown, None)


def _why_silent(nvml: Any, error: Any) -> Obstacle:
    known = {
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Obstacle(
            "the NVIDIA driver was updated, and the one that runs is still the old one", "restart the machine"
        ),
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: Obstacle("the NVIDIA driver is not loaded", RESTART),
        nvml.NVML_ERROR_NO_PERMISSION: Obstacle(
            "this user may not use the NVIDIA driver",
            "let this user open /dev/nvidia*, see ls -l /dev/nvidia*",
        ),
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: Obstacle(
            "the library of the NVIDIA driver (libnvidia-ml.so.1) is not here",
            "install the NVIDIA driver; a container is started with --gpus all",
        ),
    }
    return known.get(error.value, Obstacle(f"the NVIDIA driver does not answer: {error}", RESTART))


def _cards(nvml: Any, place: int) -> Iterator[Card]:
    """The card at a place; if it is split, its slices."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(place)
    except nvml.NVMLError as error:
        yield Card(f"GPU {place}", place=place, obstacle=_lost(error))
        return
    kinds = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    card = _described(nvml, handle)._replace(
        place=place,
        memory_errors=_asked(nvml, lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, *kinds), 0),
        obstacle=_obstacle(nvml, handle),
    )
    split, _ = _asked(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle), (0, 0))
    if not split:
        yield card
        return
    slices = 0
    for number in range(_asked(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)):
        slice = _asked(nvml, partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number), None)
        if slice is not None:
            slices += 1
            part = _described(nvml, slice)
            yield part._replace(
                parent=card.uuid, place=place, memory_errors=card.memory_errors, obstacle=card.obstacle
            )
    if not slices:
        mend = "make a slice (nvidia-smi mig -cgi PROFILE -C), or do without: nvidia-smi -mig 0"
        yield card._replace(obstacle=card.obstacle or Obstacle("MIG is on, and it has no slice", mend))


def _described(nvml: Any, handle: Any) -> Card:
    memory = _asked(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle), None)
    return Card(
        _text(_asked(nvml, lambda: nvml.nvmlDeviceGetName(handle), "")) or "NVIDIA GPU",
        _text(_asked(nvml, lambda: nvml.nvmlDeviceGetUUID(handle), "")),
        int(memory.total) if memory else 0,
        int(memory.free) if memory else 0,
    )


def _obstacle(nvml: Any, handle: Any) -> Obstacle | None:
    """What the driver knows against using a card."""
    mode = _asked(nvml, lambda: nvml.nvmlDeviceGetComputeMode(handle), nvml.NVML_COMPUTEMODE_DEFAULT)
    if mode == nvml.NVML_COMPUTEMODE_PROHIBITED:
        return Obstacle("its compute mode allows no program", "allow it: nvidia-smi -c DEFAULT")
    if mode in (nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD):
        running: list[Any] = []
        programs = _asked(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle), running)
        others = [str(program.pid) for program in programs if program.pid != os.getpid()]
        if others:
            return Obstacle(f"a program (process {', '.join(others)}) has it for itself", SHARE)
    return None


def _lost(error: Any) -> Obstacle:
    return Obstacle(f"the driver can't reach it: {error}", RESET)


def _asked(nvml: Any, question: Callable[[], _T], otherwise: _T) -> _T:
    """The answer to one question; cards and drivers differ in what they answer."""
    try:
        return question()
    except nvml.NVMLError:
        return otherwise


def _text(value: str | bytes) -> str:
    """Old versions of the package give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
