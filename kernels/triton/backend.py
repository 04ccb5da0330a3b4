"""The Triton backend: owns weights, KV cache and programs on one CUDA GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ..arrays import Float32, Int32
from ..cache_format import CacheShape
from ..interface import BackendSettings, Forward, RopeLayout, Rotation
from ..program import Limits
from ..reference.device import find_device, free_bytes, named, place_rotation, place_vector, room
from ..weights import Weight
from . import RESERVED_BYTES, interpreted
from .cache import Cache
from .exactness import rows_are_independent
from .functions import Functions
from .graphs import Graphs, cuda_record, used_bytes
from .matrix import Matrix, place
from .program import TritonProgram
from .self_check import CheckFault, Finding, Record, check
from .table import KERNELS
from .vendor import with_vendor

READ_BYTES = 1 << 30
"""The largest buffer read for the bandwidth: no cache of a GPU holds much of it."""


def _dtype(name: str) -> torch.dtype | None:
    """What plain weights are rounded to; auto: they stay as they are."""
    if name == "auto":
        return None
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


class TritonBackend:
    """One GPU. Handles are matrices of `matrix.py`, and float32 tensors.

    On a CPU only where kernels are interpreted, which is for tests.
    """

    name = "triton"

    def __init__(self, settings: BackendSettings, told: Callable[[str], None] = lambda words: None) -> None:
        """ValueError: the device is not there, or no CUDA GPU. The kernels are checked, if need be; told: how
        far that is, in words.
        """
        self._told = told
        self.torch_device = find_device(settings.device)
        if self.torch_device.type != "cuda" and not interpreted():
            raise ValueError(
                f"backend triton computes on CUDA GPUs, not on device {self.torch_device}; "
                "use backend auto, native or reference"
            )
        if self.torch_device.type == "cuda":
            torch.cuda.set_device(self.torch_device)  # kernels are launched on the thread's own device
        self.device = named(self.torch_device)
        self.cache: Cache | None = None
        self.weight_bytes = 0
        self.cache_bytes = 0
        self._programs: list[TritonProgram] = []
        self.shares_arrays = self.torch_device.type == "cpu"
        self._dtype = _dtype(settings.dtype)
        self._replays = settings.replays
        folder = None if settings.findings_folder is None else Path(settings.findings_folder)
        self._record = Record(folder, self.torch_device)
        finding = self._record.read() or Finding({}, complete=False)
        if not finding.complete:
            finding = self._look(finding)
        failed = finding.failed
        if finding.fault:
            failed = {kernel.name: f"the GPU failed earlier: {finding.fault}" for kernel in KERNELS}
        self.exact = finding.exact and settings.exact
        self._finding = finding
        self._use = Functions(KERNELS if settings.exact else with_vendor(KERNELS), failed)

    @property
    def replaced(self) -> tuple[str, ...]:
        """Kernels that plain torch computes in place of, as they fail here."""
        return self._use.replaced

    @property
    def working_bytes(self) -> int:
        """Of the programs' buffers and graphs."""
        return sum(program.nbytes for program in self._programs)

    def _look(self, known: Finding) -> Finding:
        """Check every kernel of which nothing is known, and keep what is found, whatever comes of it."""
        try:
            with torch.inference_mode():
                failed, lasting = check(KERNELS, self.torch_device, known.failed, self._told)
        except CheckFault as error:
            self._record.write(Finding(error.failed, exact=False, complete=False))
            raise
        exact = rows_are_independent(Functions(KERNELS, failed), self.torch_device)
        self._record.write(Finding(lasting, exact, complete=len(lasting) == len(failed)))
        return Finding(failed, exact)

    def _faulted(self, said: str) -> str:
        """A kernel made the GPU fail: nothing more can be computed here, and the next start avoids it."""
        first = said.strip().splitlines()[0] if said.strip() else "no reason was given"
        self._record.write(self._finding._replace(fault=first, exact=False))
        sentence = f"GPU {self.device} failed: {first}"
        if self._record.path is None:
            return sentence
        return (
            f"{sentence}; the next start computes without GPU kernels, until {self._record.path} is deleted"
        )

    def place_matrix(self, *parts: Weight) -> Matrix:
        """The parts one below the other, in the formats that they have."""
        with room(self.torch_device, "the weights"):
            matrix = place(parts, self.torch_device, self._dtype)
        self.weight_bytes += matrix.nbytes
        return matrix

    def place_vector(self, values: Float32) -> Tensor:
        """A copy on the device."""
        vector = place_vector(values, self.torch_device)
        self.weight_bytes += vector.nbytes
        return vector

    def place_rotation(self, cos: Float32, sin: Float32, layout: RopeLayout) -> Rotation:
        """Copies on the device; in main memory the tables themselves."""
        return place_rotation(cos, sin, layout, self.torch_device)

    def free_bytes(self) -> int:
        """Bytes that can be taken on the device now."""
        reserved = RESERVED_BYTES if self.torch_device.type == "cuda" else 0
        return max(0, free_bytes(self.torch_device) - reserved)

    def allocate_cache(self, shape: CacheShape) -> None:
        """Make the KV memory, in place of any earlier one."""
        self.cache = None  # first of all, so that both never lie side by side
        self.cache = Cache(shape, self.torch_device)
        self.cache_bytes = self.cache.shape.nbytes

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks in all layers; every source is read before a target is written."""
        assert self.cache is not None, "the KV cache is allocated before blocks are copied"
        self.cache.copy_blocks(sources, targets)

    def capture(self, forward: Forward, limits: Limits) -> TritonProgram:
        """A program; graphs are recorded as sizes of steps recur."""
        graphs: Graphs[tuple[Tensor, ...]] = Graphs(None)
        if self.torch_device.type == "cuda" and self._replays:
            graphs = Graphs(cuda_record(self.torch_device), used=lambda: used_bytes(self.torch_device))
        program = TritonProgram(
            self._use, self._own_cache, self.torch_device, forward, limits, graphs, self._faulted
        )
        self._programs.append(program)
        return program

    def _own_cache(self) -> Cache:
        assert self.cache is not None, "the KV cache is allocated before the first step"
        return self.cache

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
        """Free the KV cache, buffers and graphs; a weight goes with its last handle."""
        self._programs.clear()
        self.cache = None
        self.cache_bytes = 0
