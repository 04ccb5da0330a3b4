"""The Triton backend: owns weights, KV cache and programs on one CUDA GPU."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from ..cache_format import CacheShape
from ..interface import BackendSettings, Float32, Forward, Int32, Limits, RopeLayout, Rotation, StepOutput
from ..reference.cache import PagedCache
from ..reference.device import find_device, free_bytes
from ..step import Step
from ..weights import Weight
from .matrix import Matrix, place
from .operations import TritonOperations

READ_BYTES = 1 << 30
"""The largest buffer read for the bandwidth: no cache of a GPU holds much of it."""


def interpreted() -> bool:
    """Whether kernels are interpreted, on any device, instead of compiled for a GPU."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


class TritonBackend:
    """One GPU. Handles are matrices of `matrix.py`, and float32 tensors.

    On a CPU only where kernels are interpreted, which is for tests.
    """

    name = "triton"

    def __init__(self, settings: BackendSettings) -> None:
        """ValueError: the device is not there, or no CUDA GPU."""
        self.torch_device = find_device(settings.device)
        if self.torch_device.type != "cuda" and not interpreted():
            raise ValueError(
                f"backend triton computes on CUDA GPUs, not on device {self.torch_device}; "
                "use backend auto, native or reference"
            )
        self.device = str(self.torch_device)
        self.cache: PagedCache | None = None
        self.weight_bytes = 0
        self.cache_bytes = 0
        self.shares_arrays = self.torch_device.type == "cpu"
        self.exact = True
        dtype = "bfloat16" if settings.dtype == "auto" else settings.dtype
        self._dtype: torch.dtype = getattr(torch, dtype)

    def place_matrix(self, *parts: Weight) -> Matrix:
        """The parts one below the other, in the formats that they have."""
        matrix = place(parts, self.torch_device, self._dtype)
        self.weight_bytes += matrix.nbytes
        return matrix

    def place_vector(self, values: Float32) -> Tensor:
        """A copy on the device."""
        vector = torch.tensor(values, dtype=torch.float32, device=self.torch_device)
        self.weight_bytes += vector.nbytes
        return vector

    def place_rotation(self, cos: Float32, sin: Float32, layout: RopeLayout) -> Rotation:
        """Copies on the device; in main memory the tables themselves."""
        device = self.torch_device
        return Rotation(torch.from_numpy(cos).to(device), torch.from_numpy(sin).to(device), layout)

    def free_bytes(self) -> int:
        """Bytes that can be taken on the device now."""
        return free_bytes(self.torch_device)

    def allocate_cache(self, shape: CacheShape) -> None:
        """Make the KV memory, in place of any earlier one."""
        self.close()
        self.cache = PagedCache(shape, self.torch_device)
        self.cache_bytes = shape.nbytes

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks in all layers; every source is read before a target is written."""
        assert self.cache is not None, "the KV cache is allocated before blocks are copied"
        self.cache.copy_blocks(sources, targets)

    def capture(self, forward: Forward, limits: Limits) -> TritonProgram:
        """A program that runs the forward."""
        return TritonProgram(self, forward, limits)

    def read_bandwidth(self, nbytes: int) -> float:
        """Best of five sums over at most 1 GiB, in bytes a second."""
        buffer = torch.ones(max(1, min(nbytes, READ_BYTES) // 4), device=self.torch_device)
        best = math.inf
        for _ in range(5):
            started = time.perf_counter()
            buffer.sum().item()
            best = min(best, time.perf_counter() - started)
        return buffer.nbytes / best

    def close(self) -> None:
        """Free the KV cache; a weight goes with its last handle."""
        self.cache = None
        self.cache_bytes = 0


class TritonProgram:
    """A forward that is run anew each step."""

    def __init__(self, backend: TritonBackend, forward: Forward, limits: Limits) -> None:
        self._backend = backend
        self._forward = forward
        self._limits = limits

    def launch(self, step: Step, *, logits: bool = False) -> StepOutput:
        """Compute a step, at once. ValueError: it exceeds the limits."""
        self._limits.check(step.counts)
        with torch.inference_mode():
            operations = TritonOperations(step, self._backend.cache, self._backend.torch_device)
            result = self._forward(operations, operations.inputs())
        assert isinstance(result, StepOutput), "a forward returns what sample returned"
        return result if logits else StepOutput(result.tokens, None, result.expert_bytes)
