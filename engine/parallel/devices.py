"""The devices of the ranks: a GPU for each of them, or the processors and the main memory that they share."""

from __future__ import annotations

from dataclasses import replace

from kernels.backends import free_bytes
from kernels.interface import BackendSettings

from ..types import EngineError


def device_of(kind: str, rank: int, ranks: int) -> str:
    """The device of a rank. EngineError: there are not enough of them."""
    if kind == "cpu":
        return kind
    import torch

    count = torch.cuda.device_count()
    if count < ranks:
        raise EngineError(
            "model_invalid",
            f"tensor_parallel times pipeline_parallel is {ranks}, and each needs a GPU of its own: torch "
            f"finds {count}; ask for fewer, or for --device cpu",
        )
    return f"cuda:{rank}"


def free_of_ranks(name: str, settings: BackendSettings, ranks: int) -> list[int]:
    """Free bytes of each rank's GPU; of main memory, which all of them share, once. For one process too.

    EngineError: there are not enough GPUs. ValueError as `free_bytes`.
    """
    if ranks == 1 or not settings.device.startswith("cuda"):
        return [free_bytes(name, settings)]
    own = (replace(settings, device=device_of("cuda", rank, ranks)) for rank in range(ranks))
    return [free_bytes(name, each) for each in own]
