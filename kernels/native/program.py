"""A recorded forward, replayed by one call of the library a step."""

from __future__ import annotations

import ctypes
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..interface import Batch, Float32, Forward, Limits, StepOutput
from .library import STEP, Buffer, Message, Op, StepLimits, addressof, load
from .lowering import lower
from .recorder import INPUTS, RecordingOperations, Sampled

if TYPE_CHECKING:
    from .backend import NativeBackend


def _address(array: NDArray[Any], dtype: type[np.generic], size: int, kept: list[NDArray[Any]]) -> int:
    """Address of the array's values, checked; a copy in `kept` where type or layout differ."""
    if array.size != size:
        raise ValueError(f"an array of the step has {array.size} values where {size} were expected")
    if array.dtype != dtype or not array.flags.c_contiguous:
        array = np.ascontiguousarray(array, dtype)
        kept.append(array)
    return addressof(array)


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
        self._step = ctypes.create_string_buffer(STEP.size)
        self._message = Message()

    def _rows_of(self, buffer: int) -> Float32:
        stride = (-(-self._vocabulary // 16) | 1) * 16  # row_stride of formats.hpp
        values = ctypes.c_float * (self._limits.samples * stride)
        memory = values.from_address(load().native_buffer(self._address, buffer))
        rows = np.frombuffer(memoryview(memory), np.float32).reshape(self._limits.samples, stride)
        return rows[:, : self._vocabulary]

    def run(self, batch: Batch, *, logits: bool = False) -> StepOutput:
        """Take one step. ValueError: the batch exceeds the limits or points outside tables and cache.

        MemoryError: there is none for what a step needs besides its buffers; the next one may fare better.
        """
        assert self._backend.address, "its memory goes with the backend"
        rows, samples = len(batch.tokens), len(batch.sample_rows)
        sequences, width = batch.block_tables.shape
        tokens = np.empty(samples, np.int32)
        kept: list[NDArray[Any]] = []
        rules = batch.sampling
        seen, biased = rules.seen_ids.size, rules.bias_ids.size
        STEP.pack_into(
            self._step,
            0,
            rows,
            samples,
            sequences,
            width,
            _address(batch.tokens, np.int32, rows, kept),
            _address(batch.positions, np.int32, rows, kept),
            _address(batch.slots, np.int32, rows, kept),
            _address(batch.sequences, np.int32, rows, kept),
            _address(batch.block_tables, np.int32, sequences * width, kept),
            _address(batch.sample_rows, np.int32, samples, kept),
            _address(rules.temperature, np.float32, samples, kept),
            _address(rules.top_p, np.float32, samples, kept),
            _address(rules.min_p, np.float32, samples, kept),
            _address(rules.repetition, np.float32, samples, kept),
            _address(rules.presence, np.float32, samples, kept),
            _address(rules.frequency, np.float32, samples, kept),
            _address(rules.bias_values, np.float32, biased, kept),
            _address(rules.top_k, np.int32, samples, kept),
            _address(rules.seen_offsets, np.int32, samples + 1, kept),
            _address(rules.seen_ids, np.int32, seen, kept),
            _address(rules.seen_counts, np.int32, seen, kept),
            _address(rules.bias_offsets, np.int32, samples + 1, kept),
            _address(rules.bias_ids, np.int32, biased, kept),
            _address(rules.seeds, np.uint64, samples, kept),
            _address(rules.positions, np.int64, samples, kept),
            addressof(tokens),
        )
        if rules.seen_offsets[samples] > seen or rules.bias_offsets[samples] > biased:
            raise ValueError("offsets of seen or biased tokens point past the end of their arrays")
        self._message.call("the step can't be computed", load().native_run, self._address, self._step)
        return StepOutput(tokens, self._logits[:samples] if logits else None)
