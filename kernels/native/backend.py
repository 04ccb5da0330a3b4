"""The native backend: weights in tiles and the KV cache in the library's memory, programs recorded once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float32, Int32
from ..cache_format import CacheShape
from ..formats import ARRAYS, FORMATS, GROUP
from ..interface import BackendSettings, Forward, RopeLayout, Rotation
from ..machine import free_memory, total_memory, usable_cpus
from ..program import Limits
from ..stored import canonical, check_finite, mapping_of
from ..weights import Plain, Stored, Weight, blocks_of_rows
from . import can_compute, unavailable_reason
from .library import (
    CACHE_FORMAT_NUMBERS,
    FORMAT_NUMBERS,
    MOST_HEAD_DIM,
    STORED_NUMBERS,
    Message,
    Source,
    addressof,
    kernels,
    load,
)
from .program import NativeProgram
from .recorder import Matrix

_LARGEST_PENDING = 1 << 24
"""Bytes of weights in memory that wait to be repacked; those in mapped files cost none."""
_LARGEST_READ = 1 << 30
"""Bytes: so many fit into no cache, and to read more would only take longer."""
_LARGEST_SPARING = 1 << 28
"""Bytes of weights: repacking more of them takes longer than whatever else there is to do meanwhile."""


def _in_file(array: NDArray[Any]) -> bool:
    """Whether this is a view of a file mapped read-only."""
    mapped = mapping_of(array)
    return mapped is not None and memoryview(mapped).readonly


def _source(part: Weight) -> Source:
    """Where a weight lies: any strides will do but within a group (or a plain value)."""
    head = FORMAT_NUMBERS[part.format], STORED_NUMBERS[part.type] if isinstance(part, Stored) else -1
    if isinstance(part, Stored):
        assert part.data.strides[1] == 1, part.data.strides
        fields = [addressof(part.data), part.data.strides[0]]
        return Source(*head, part.shape[0], *fields, mapped=_in_file(part.data), factor=part.factor)
    if isinstance(part, Plain):
        fields = [addressof(part.values), *part.values.strides]
        mapped, finite = _in_file(part.values), bool(part.name)
        return Source(*head, part.shape[0], *fields, mapped=mapped, finite=finite, factor=1.0)
    assert part.format in ARRAYS, f"{part.format} is taken as blocks of a file"
    assert part.codes.strides[2] == 1, part.codes.strides
    fields = [addressof(part.codes), *part.codes.strides[:2], addressof(part.scales), *part.scales.strides]
    if part.minima is not None:
        fields += [addressof(part.minima), *part.minima.strides]
    return Source(*head, part.shape[0], *fields, mapped=_in_file(part.codes), factor=part.factor)


def _blocks(weight: Weight) -> list[Weight]:
    """Blocks of rows in one form each, which the library takes."""
    if isinstance(weight, Stored) and weight.type in STORED_NUMBERS:
        return [weight]
    return [*blocks_of_rows(canonical(weight))]


class NativeBackend:
    """C++ kernels on the CPU. Not thread-safe; several of them in a process share one thread team."""

    name = "native"
    replaced = ()
    working_bytes = 0
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

        They are repacked by `fill`, which `capture` calls. ValueError, naming the part: its values can't be
        held.
        """
        matrix = self._place([block for part in parts for block in _blocks(part)])
        if self._pending_bytes > _LARGEST_PENDING:
            self.fill()
        return matrix

    def _place(self, blocks: list[Weight]) -> Matrix:
        columns = blocks[0].shape[1]
        assert all(block.shape[1] == columns for block in blocks)
        sources = (Source * len(blocks))(*(_source(block) for block in blocks))
        address = load().native_matrix(self.address, sources, len(blocks), columns)
        if not address:
            raise MemoryError(f"no memory for a matrix of {sum(block.nbytes for block in blocks)} bytes")
        self.weight_bytes = load().native_weight_bytes(self.address) + self._vector_bytes
        self._pending += blocks
        self._pending_bytes += sum(
            block.nbytes for block, source in zip(blocks, sources, strict=True) if not source.mapped
        )
        packed = [FORMATS[block.format].packed for block in blocks]
        return Matrix(
            address,
            rows=sum(block.shape[0] for block in blocks),
            columns=columns,
            quantized=any(packed),
            plain=not all(packed),
            halves=len(blocks) == 2
            and all(packed)
            and len({(block.format, block.shape[0]) for block in blocks}) == 1
            and blocks[0].shape[0] % GROUP == 0,
        )

    def fill(self, spare: int = 0) -> None:
        """Repack all matrices that wait for it: one call, so that other threads run meanwhile.

        spare: CPUs that are left to them. ValueError, naming the part: its values can't be held. MemoryError:
        they go on waiting.
        """
        waiting, threads, held = [*self._pending], max(1, self.threads - spare), True
        try:
            self._message.call("the weights can't be repacked", load().native_fill, self.address, threads)
        except ValueError:
            held = False
        self._pending.clear()
        self._pending_bytes = 0
        if not held:
            for weight in waiting:
                check_finite(weight)
            raise AssertionError("the library refused weights in which nothing is wrong")

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
        if (widest := max(layer.head_dim for layer in shape.layers)) > MOST_HEAD_DIM:
            raise ValueError(f"backend native takes heads of up to {MOST_HEAD_DIM}, not {widest}")
        message = (
            f"a KV cache of {shape.blocks} blocks of {shape.block_size} tokens needs {shape.nbytes} bytes, "
            "more than this machine has; lower kv_memory or kv_blocks"
        )
        # A system that overcommits would only fail once the pages are written.
        if shape.nbytes > total_memory():
            raise MemoryError(message)
        assert self.cache_bytes == 0, "the cache is allocated once"
        kv_heads, head_dims = np.ascontiguousarray(np.array(shape.layers, np.int32).T)
        cache = load().native_cache(
            self.address,
            len(shape.layers),
            shape.blocks,
            shape.block_size,
            addressof(kv_heads),
            addressof(head_dims),
            CACHE_FORMAT_NUMBERS[shape.format],
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
        # Whoever loads a small model waits for what other threads do meanwhile (its tokenizer), not for this.
        self.fill(spare=1 if self.weight_bytes <= _LARGEST_SPARING else 0)
        return program

    def read_bandwidth(self, nbytes: int) -> float:
        """Best of a few reads by the team of the weights, at most 1 GiB of them, in bytes a second."""
        return float(load().native_read_bandwidth(self.address, max(1, min(nbytes, _LARGEST_READ))))

    def close(self) -> None:
        """Free weights, cache, programs and the logits they gave out; with the last backend the threads."""
        if self._model is not None:
            load().native_close(self._model)
            self._model = None
