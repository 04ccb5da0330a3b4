"""How many bits a model's weights get in the memory that is free, and what is said about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .config import EngineConfig, Quantization
from .memory_plan import size_kv_cache
from .types import EngineError

if TYPE_CHECKING:
    from .loading.checkpoint import Checkpoint

USEFUL_TOKENS = 4096
"""Tokens, or as many as the context has, that there must be room for besides the weights."""

_UNPACKS = ("reference",)
"""Backends that hold plain values, whatever the format of the weights."""

_SMALLER: tuple[Quantization, ...] = ("int8", "int4")


def unpacked_bytes(backend: str, device: str, dtype: str) -> int | None:
    """Bytes of a value of a matrix in a backend that holds no packed ones; None: in one that does."""
    if backend not in _UNPACKS:
        return None
    plain = ("float32" if device == "cpu" else "bfloat16") if dtype == "auto" else dtype
    return 4 if plain == "float32" else 2


def fitted(
    checkpoint: Checkpoint, config: EngineConfig, backend: str, free: int, device: str = "cpu"
) -> Checkpoint:
    """The checkpoint with its weights in as many bits as fit, if that is left to this machine; with a note
    where they are not as stored, or not as asked for.

    free: bytes of memory of the device. A backend that holds weights in another form than theirs gets them as
    they are.
    """
    if backend in _UNPACKS:
        return checkpoint
    tensors = checkpoint.tensors
    if config.quantization in ("int8", "int4", "nf4") and not tensors.changed():
        return checkpoint.noting(
            f"{checkpoint.name} stays as it is stored, as {tensors.label()}: "
            f"that has no more bits than {config.quantization}"
        )
    needed = tensors.nbytes()
    if config.quantization == "auto":
        room = free - _useful(checkpoint, config, free, device)
        for smaller in _SMALLER:
            if tensors.nbytes() <= room:
                break
            fewer = checkpoint.tensors._replace(quantization=smaller)
            if fewer.nbytes() < tensors.nbytes():
                tensors = fewer
        if tensors.quantization != "auto":
            checkpoint = checkpoint._replace(tensors=tensors).noting(
                f"the weights of {checkpoint.name} are quantized to {tensors.label()}: as stored "
                f"({checkpoint.tensors.label()}) they take {_gb(needed)} and {_gb(free)} of memory are free; "
                f"--quantize {tensors.quantization} says so without this note"
            )
    return checkpoint


def check_fit(checkpoint: Checkpoint, backend: str, free: int) -> None:
    """EngineError(out_of_memory): the weights don't fit into so many bytes, and the system would swap."""
    tensors = checkpoint.tensors
    if backend in _UNPACKS or tensors.nbytes() <= free:
        return
    fewer = tensors._replace(quantization="int4").nbytes() <= free
    advice = "--quantize int4 fits" if fewer else "close other programs, or take a smaller model"
    raise EngineError(
        "out_of_memory",
        f"{checkpoint.name} does not fit: its weights need {_gb(tensors.nbytes())} as {tensors.label()}, "
        f"and {_gb(free)} of memory are free; {advice}",
    )


def _useful(checkpoint: Checkpoint, config: EngineConfig, free: int, device: str) -> int:
    """Bytes of a KV cache that is worth having: what was asked for, else one long conversation's."""
    context = checkpoint.context_length(config.context_length)
    shape = size_kv_cache(config, checkpoint.spec.cached, context, free, device)
    if config.sizes_cache:
        return shape.nbytes
    return min(shape.nbytes, min(context, USEFUL_TOKENS) * shape.bytes_per_token)


def _gb(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:.0f} MB"
