"""Torch devices by the names of the settings: found, how much of their memory is free, what fills it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .. import cuda
from ..arrays import Float32
from ..interface import RopeLayout, Rotation
from ..machine import free_memory


def find_device(name: str) -> torch.device:
    """The torch device of a setting; ValueError says what is missing, and what to do. auto is the CPU: where
    a GPU computes, `kernels.backends.resolve` has named it.
    """
    device = torch.device("cpu" if name == "auto" else name)
    if device.type == "cuda" and (obstacle := cuda.why_not(device.index or 0)) is not None:
        raise ValueError(
            f"device {name!r}: {obstacle.why}; {obstacle.mend}; --device cpu computes without it"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"device {name!r}: torch {torch.__version__} finds no Apple GPU; use device cpu")
    return device


def named(device: torch.device) -> str:
    """A device for people, and for what is kept of it: cuda:0 can be another card the next time."""
    if device.type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_properties(device).name})"


def free_bytes(device: torch.device) -> int:
    """Bytes that can be taken on a device now: a GPU's own memory, else main memory.

    What other programs have on a GPU is theirs; what torch keeps for later of what this one gave back counts
    as free.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        torch.mps.empty_cache()
        return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return free_memory()


@contextmanager
def room(device: torch.device, what: str) -> Iterator[None]:
    """MemoryError, with who holds the memory, where a device has none for what is made inside."""
    try:
        yield
        return
    except torch.OutOfMemoryError:
        pass
    except RuntimeError as error:  # libraries beside torch's allocator, and Apple's devices
        if "out of memory" not in str(error) or device.type == "cpu":
            raise
    # Raised out here, so that nothing holds on to what was made before the room ran out.
    raise MemoryError(f"device {device} has no room for {what}{_holders(device)}")


def _holders(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    try:
        free, total = torch.cuda.mem_get_info(device)
        own = torch.cuda.memory_reserved(device)
    except RuntimeError:  # so full that even the question fails
        return ""
    others = max(0, total - free - own)
    return (
        f": {free / 1e9:.1f} of {total / 1e9:.1f} GB are free, this program has {own / 1e9:.1f}, "
        f"others {others / 1e9:.1f}"
    )


def place_vector(values: Float32, device: torch.device) -> Tensor:
    """A copy on the device. MemoryError: it is full."""
    with room(device, "the weights"):
        return torch.tensor(values, dtype=torch.float32, device=device)


def place_rotation(cos: Float32, sin: Float32, layout: RopeLayout, device: torch.device) -> Rotation:
    """Copies on the device; in main memory the tables themselves."""
    return Rotation(torch.from_numpy(cos).to(device), torch.from_numpy(sin).to(device), layout)
