"""A recorded forward, replayed by one call of the library a step."""

from __future__ import annotations

import ctypes
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float32
from ..interface import Forward
from ..program import Limits, StepOutput, WriteMask
from ..step import Step
from .library import Buffer, Message, Op, StepLimits, addressof, load
from .lowering import lower
from .recorder import INPUTS, RecordingOperations, Sampled

if TYPE_CHECKING:
    from .backend import NativeBackend


class NativeProgram:
    """The operations of one forward in the library's memory."""

    def __init__(self, backend: NativeBackend, forward: Forward, limits: Limits) -> None:
        operations = RecordingOperations()
        result = forward(operations, INPUTS)
        assert isinstance(result, Sampled), "a forward returns what sample returned"
        self._vocabulary = result.logits.columns
        self._backend = backend
        self._nodes = operations.nodes  # they own the arrays that the library points to
        self._limits = limits
        lowered = lower(operations.nodes)
        self._address: int | None = load().native_program(
            backend.address,
            (Op * len(lowered.ops))(*lowered.ops),
            len(lowered.ops),
            (Buffer * len(lowered.buffers))(*lowered.buffers),
            len(lowered.buffers),
            ctypes.byref(StepLimits(*astuple(limits))),
        )
        if not self._address:
            raise MemoryError("no memory for the values of a step; lower max_batch_tokens or max_sequences")
        self._logits = self._rows_of(lowered.logits)
        self._tokens = _array_at(load().native_tokens(self._address), np.int32, limits.samples)
        self._message = Message()

    def _rows_of(self, buffer: int) -> Float32:
        samples = self._limits.samples
        stride = (-(-self._vocabulary // 16) | 1) * 16  # row_stride of formats.hpp
        address = load().native_buffer(self._address, buffer)
        values: Float32 = _array_at(address, np.float32, samples * stride)
        return values.reshape(samples, stride)[:, : self._vocabulary]

    def launch(self, step: Step, *, logits: bool = False, write_mask: WriteMask | None = None) -> StepOutput:
        """Compute a step, at once; the mask before it: all processors are the step's, and threads beside it
        would take from it what they save.

        ValueError: it exceeds the limits or points outside tables and cache. MemoryError: there is none for
        what a step needs besides its buffers; the next one may fare better.
        """
        assert self._backend.address, "its memory goes with the backend"
        if write_mask is not None:
            write_mask()
        memory = addressof(step.memory), step.memory.nbytes
        self._message.call("the step can't be computed", load().native_run, self._address, *memory)
        samples = step.counts.samples
        read: int = load().native_expert_bytes(self._address)
        return StepOutput(self._tokens[:samples].copy(), self._logits[:samples] if logits else None, read)


def _array_at(address: int, dtype: type[np.generic], size: int) -> NDArray[Any]:
    """So many values in the library's memory."""
    memory = (ctypes.c_char * (size * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory), dtype)
