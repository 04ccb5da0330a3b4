"""The reference backend: owns weights, KV cache and programs on one torch device."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from ..arrays import Float32, Int32
from ..cache_format import CacheShape
from ..interface import BackendSettings, Forward, RopeLayout, Rotation
from ..machine import usable_cpus
from ..program import Limits, StepOutput, WriteMask
from ..step import Step
from ..stored import canonical, check_finite
from ..weights import Weight, dequantize
from .cache import PagedCache
from .device import find_device, free_bytes, named, place_rotation, place_vector, room
from .operations import ReferenceOperations
from .self_check import rows_are_independent
from .work import KEYS

ROWS_AT_ONCE = 256
"""Rows of a matrix dequantized at a time: their float32 values stay in a CPU's cache."""

OWN_THREADS = torch.get_num_threads()
"""What torch starts with: fewer than there are processors where OMP_NUM_THREADS says so."""

READ_BYTES = 1 << 28
"""The largest buffer read for the bandwidth: few caches hold it, and it takes no long time."""


def _dtype(name: str, device: torch.device) -> torch.dtype:
    """auto: on a GPU a short format, whose arithmetic is far faster; float32 on a CPU."""
    if name == "auto":
        return {"cuda": torch.bfloat16, "mps": torch.float16}.get(device.type, torch.float32)
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


class ReferenceBackend:
    """Plain torch on one device. Handles are tensors: weights in the settings' dtype, vectors in float32.

    exact is measured, see `rows_are_independent`. The number of threads holds for torch in the whole process.
    """

    name = "reference"
    replaced = ()
    working_bytes = 0

    def __init__(self, settings: BackendSettings) -> None:
        """ValueError: the device is not there, or does not compute. MemoryError: it is full."""
        self.torch_device = find_device(settings.device)
        self.device = named(self.torch_device)
        self.cache: PagedCache | None = None
        self.weight_bytes = 0
        self.cache_bytes = 0
        self._dtype = _dtype(settings.dtype, self.torch_device)
        torch.set_num_threads(settings.threads or min(usable_cpus(), OWN_THREADS))
        self.shares_arrays = self.torch_device.type == "cpu"
        with room(self.torch_device, "a first product"):
            self.exact = rows_are_independent(self.torch_device, self._dtype)

    def place_matrix(self, *parts: Weight) -> Tensor:
        """The parts one below the other, dequantized, [outputs, inputs] in the backend's dtype."""
        rows = sum(part.shape[0] for part in parts)
        with room(self.torch_device, "the weights"):
            matrix = torch.empty(rows, parts[0].shape[1], dtype=self._dtype, device=self.torch_device)
        row = 0
        for part in parts:
            weight = canonical(part)
            check_finite(weight)
            for start in range(0, part.shape[0], ROWS_AT_ONCE):
                values = torch.from_numpy(dequantize(weight, start, start + ROWS_AT_ONCE))
                matrix[row : row + len(values)] = values
                row += len(values)
        self.weight_bytes += matrix.nbytes
        return matrix

    def place_vector(self, values: Float32) -> Tensor:
        """A copy on the device."""
        vector = place_vector(values, self.torch_device)
        self.weight_bytes += vector.nbytes
        return vector

    def place_rotation(self, cos: Float32, sin: Float32, layout: RopeLayout) -> Rotation:
        """The tables themselves in main memory, copies elsewhere."""
        return place_rotation(cos, sin, layout, self.torch_device)

    def free_bytes(self) -> int:
        """Bytes that can be taken on the device now."""
        return free_bytes(self.torch_device)

    def allocate_cache(self, shape: CacheShape) -> None:
        """Make the KV memory, in place of any earlier one. ValueError: block_size does not divide 128."""
        if KEYS % shape.block_size:
            raise ValueError(f"block_size must divide {KEYS} tokens, not be {shape.block_size}")
        self.close()
        self.cache = PagedCache(shape, self.torch_device)
        self.cache_bytes = shape.nbytes

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks in all layers; every source is read before a target is written."""
        assert self.cache is not None, "the KV cache is allocated before blocks are copied"
        self.cache.copy_blocks(sources, targets)

    def capture(self, forward: Forward, limits: Limits) -> ReferenceProgram:
        """Nothing is recorded: the program calls the forward each step."""
        return ReferenceProgram(self, forward, limits)

    def read_bandwidth(self, nbytes: int) -> float:
        """Best of five reads of at most 256 MiB, by a dot product or, on a GPU, a sum; in bytes a second."""
        buffer = torch.ones(max(1, min(nbytes, READ_BYTES) // 4), device=self.torch_device)
        best = math.inf
        for _ in range(5):
            started = time.perf_counter()
            (torch.dot(buffer, buffer) if self.torch_device.type == "cpu" else buffer.sum()).item()
            best = min(best, time.perf_counter() - started)
        return buffer.nbytes / best

    def close(self) -> None:
        """Free the KV cache; a weight goes with its last handle."""
        self.cache = None
        self.cache_bytes = 0


class ReferenceProgram:
    """A forward that is run anew each step."""

    def __init__(self, backend: ReferenceBackend, forward: Forward, limits: Limits) -> None:
        self._backend = backend
        self._forward = forward
        self._limits = limits

    def launch(self, step: Step, *, logits: bool = False, write_mask: WriteMask | None = None) -> StepOutput:
        """Compute a step, at once. ValueError: it exceeds the limits. MemoryError: no room for it."""
        self._limits.check(step.counts)
        device = self._backend.torch_device
        with torch.inference_mode(), room(device, f"a step of {step.counts.rows} tokens"):
            operations = ReferenceOperations(step, self._backend.cache, device, write_mask)
            result = self._forward(operations, operations.inputs())
        assert isinstance(result, StepOutput), "a forward returns what sample returned"
        return result if logits else StepOutput(result.tokens, None, result.expert_bytes)
