"""The native backend: weights in tiles and the KV cache in the library's memory, programs recorded once."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..interface import BackendSettings, CacheShape, Float32, Forward, Int32, Limits, RopeLayout
from ..machine import free_memory, total_memory, usable_cpus
from ..weights import FORMATS, GROUP, Plain, Weight, blocks_of_rows
from . import can_compute, unavailable_reason
from .library import FORMAT_NUMBERS, Message, Source, addressof, kernels, load
from .program import NativeProgram
from .recorder import Matrix, Rotation

_LARGEST_HEAD = 1024
_LARGEST_PENDING = 1 << 24
"""Bytes of weights in memory that wait to be repacked; those in mapped files cost none."""
_LARGEST_READ = 1 << 30
"""Bytes: so many fit into no cache, and to read more would only take longer."""


def _in_file(array: NDArray[Any]) -> bool:
    """Whether this is a view of a file mapped read-only."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and base.readonly and isinstance(base.obj, mmap.mmap)


def _source(part: Weight) -> Source:
    """Where a weight lies: any strides will do but within a group (or a plain value)."""
    form = FORMAT_NUMBERS[part.format]
    if isinstance(part, Plain):
        fields = [addressof(part.values), *part.values.strides]
        return Source(form, part.shape[0], *fields, mapped=_in_file(part.values))
    assert part.codes.strides[2] == 1, part.codes.strides
    fields = [addressof(part.codes), *part.codes.strides[:2], addressof(part.scales), *part.scales.strides]
    if part.minima is not None:
        fields += [addressof(part.minima), *part.minima.strides]
    return Source(form, part.shape[0], *fields, mapped=_in_file(part.codes))


class NativeBackend:
    """C++ kernels on the CPU. Not thread-safe; several of them in a process share one thread team."""

    name = "native"
    exact = True
    shares_arrays = True

    def __init__(self, settings: BackendSettings) -> None:
        """ValueError: the library is missing, or the settings ask for what it can't do."""
        if unavailable_reason():
            raise ValueError(f"backend native: {unavailable_reason()}")
        if settings.device not in ("auto", "cpu"):
            raise ValueError(f"backend native computes on the CPU, not on device {settings.device!r}")
        if not can_compute(settings.dtype):
            raise ValueError(f"backend native computes in float32 and int8, not in dtype {settings.dtype!r}")
        address = kernels(settings.cpu_isa)
        if address is None:
            raise ValueError(
                f"cpu_isa {settings.cpu_isa!r}: this machine does not offer these instructions; use auto"
            )
        self.threads = settings.threads or usable_cpus()
        self.cpu_isa: str = load().native_kernels_name(address).decode()
        self.device = f"cpu ({self.cpu_isa}, {self.threads} thread{'s' * (self.threads > 1)})"
        self.weight_bytes = 0
        self.cache_bytes = 0
        self._vector_bytes = 0
        self._pending: list[Weight] = []  # placed, but not repacked yet
        self._pending_bytes = 0
        self._message = Message()
        self._model: int | None = load().native_model(address, self.threads)
        if not self._model:
            raise MemoryError("no memory for a model")

    @property
    def address(self) -> int:
        """The model in the library."""
        assert self._model is not None, "the backend is closed"
        return self._model

    def place_matrix(self, *parts: Weight) -> Matrix:
        """Make room for the parts, one below the other, in tiles; formats stay as they are.

        They are repacked by `fill`, which `capture` calls.
        """
        parts = tuple(block for part in parts for block in blocks_of_rows(part))
        columns = parts[0].shape[1]
        assert all(part.shape[1] == columns for part in parts)
        sources = (Source * len(parts))(*(_source(part) for part in parts))
        address = load().native_matrix(self.address, sources, len(parts), columns)
        if not address:
            raise MemoryError(f"no memory for a matrix of {sum(part.nbytes for part in parts)} bytes")
        self.weight_bytes = load().native_weight_bytes(self.address) + self._vector_bytes
        self._pending += parts
        self._pending_bytes += sum(
            part.nbytes for part, source in zip(parts, sources, strict=True) if not source.mapped
        )
        if self._pending_bytes > _LARGEST_PENDING:
            self.fill()
        packed = [FORMATS[part.format].packed for part in parts]
        return Matrix(
            address,
            rows=sum(part.shape[0] for part in parts),
            columns=columns,
            quantized=any(packed),
            plain=not all(packed),
            halves=len(parts) == 2
            and all(packed)
            and len({(part.format, part.shape[0]) for part in parts}) == 1
            and parts[0].shape[0] % GROUP == 0,
        )

    def fill(self) -> None:
        """Repack all matrices that wait for it: one call, so that other threads run meanwhile."""
        self._message.call("the weights can't be repacked", load().native_fill, self.address)
        self._pending.clear()
        self._pending_bytes = 0

    def place_vector(self, values: Float32) -> Float32:
        """The values, contiguous; whoever records with them keeps them alive."""
        vector = np.ascontiguousarray(values, np.float32)
        self._vector_bytes += vector.nbytes
        self.weight_bytes += vector.nbytes
        return vector

    def place_rotation(self, cos: Float32, sin: Float32, layout: RopeLayout) -> Rotation:
        """The tables themselves."""
        assert all(table.dtype == np.float32 and table.flags.c_contiguous for table in (cos, sin))
        return Rotation(cos, sin, layout)

    def free_bytes(self) -> int:
        """Bytes of main memory that can be taken now."""
        return free_memory()

    def allocate_cache(self, shape: CacheShape) -> None:
        """Make the KV memory, zeroed; once, before the first capture."""
        if shape.head_dim > _LARGEST_HEAD:
            raise ValueError(f"backend native takes heads of up to {_LARGEST_HEAD}, not {shape.head_dim}")
        message = (
            f"a KV cache of {shape.blocks} blocks of {shape.block_size} tokens needs {shape.nbytes} bytes, "
            "more than this machine has; lower kv_memory or kv_blocks"
        )
        # A system that overcommits would only fail once the pages are written.
        if shape.nbytes > total_memory():
            raise MemoryError(message)
        assert self.cache_bytes == 0, "the cache is allocated once"
        cache = load().native_cache(
            self.address,
            shape.layers,
            shape.blocks,
            shape.block_size,
            shape.kv_heads,
            shape.head_dim,
            shape.dtype == "float16",
        )
        if not cache:
            raise MemoryError(message)
        self.cache_bytes = load().native_cache_bytes(cache)

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks in all layers; every source is read before a target is written."""
        sources, targets = np.ascontiguousarray(sources, np.int32), np.ascontiguousarray(targets, np.int32)
        assert len(sources) == len(targets), "each source has a target"
        arguments = self.address, addressof(sources), addressof(targets), len(sources)
        self._message.call("blocks can't be copied", load().native_copy_blocks, *arguments)

    def capture(self, forward: Forward, limits: Limits) -> NativeProgram:
        """Record the forward and prepare its buffers."""
        program = NativeProgram(self, forward, limits)
        self.fill()
        return program

    def read_bandwidth(self, nbytes: int) -> float:
        """Best of a few reads by the team of the weights, at most 1 GiB of them, in bytes a second."""
        return float(load().native_read_bandwidth(self.address, max(1, min(nbytes, _LARGEST_READ))))

    def close(self) -> None:
        """Free weights, cache, programs and the logits they gave out; with the last backend the threads."""
        if self._model is not None:
            load().native_close(self._model)
            self._model = None
