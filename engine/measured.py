"""The machine here, as a plan takes it: its free memory, and how fast it reads and multiplies, measured."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from kernels import machine
from kernels.backends import free_bytes
from kernels.interface import BackendSettings, Inputs, Operations, Value
from kernels.program import Limits
from kernels.step import Step
from kernels.weights import Packed, Plain

from .bandwidth import place_of
from .config import EngineConfig
from .data_sheets import Machine, machine_of
from .selection import select_backend
from .types import EngineError

ROWS = 64
"""Of the product that is timed: so many that reading its matrix costs next to nothing."""

_COLUMNS = 2048
_LEAST, _MOST = 16 << 20, 128 << 20  # bytes of the matrix
_TIMES = 5


class Measured(NamedTuple):
    """A machine, and the place of its bandwidth (see `place_of`); "" where a data sheet has it."""

    machine: Machine
    place: str


def this_machine(config: EngineConfig, nbytes: int) -> Measured:
    """Where an engine of this configuration would compute; nbytes: of its weights. EngineError."""
    try:
        selection = select_backend(config)
        free = free_bytes(selection.name, selection.settings)
    except ValueError as error:
        raise EngineError("model_invalid", str(error)) from error
    if selection.name == "native":
        return _native(selection.settings, nbytes, free)
    if selection.settings.device.startswith("cuda"):
        return Measured(_card(selection.settings.device, free), "")
    name = f"{machine.processor()} ({selection.name} backend)"
    return Measured(Machine(name, free, None, None, None, "free memory", "here"), "")


def _card(device: str, free: int) -> Machine:
    """A GPU by its data sheet, with what is free of its memory."""
    import torch

    name = torch.cuda.get_device_name(device)
    try:
        known = machine_of(name)
    except EngineError:
        return Machine(name, free, None, None, None, "free memory", "here")
    return known._replace(name=name, memory=free, kind="here")


def _native(settings: BackendSettings, nbytes: int, free: int) -> Measured:
    """The best of a few reads of a matrix, and of a few products of many rows with it."""
    from contextlib import closing

    from kernels.native.backend import NativeBackend

    size = max(_LEAST, min(nbytes, _MOST, free // 8))
    outputs = size // _COLUMNS
    codes = np.ones((outputs, _COLUMNS // 32, 32), np.int8)
    scales = np.full((outputs, _COLUMNS // 32), 1e-3, np.float16)
    matrix = Packed("q8", (outputs, _COLUMNS), codes, scales)
    with closing(NativeBackend(settings)) as backend:
        table = backend.place_matrix(Plain(np.ones((1, _COLUMNS), np.float32), "f32"))
        weight = backend.place_matrix(matrix)

        def forward(ops: Operations, inputs: Inputs) -> Value:
            rows = ops.gather(ops.embedding(table, inputs.tokens), inputs.sample_rows)
            return ops.sample(ops.linear(rows, weight), inputs.sampling)

        program = backend.capture(forward, Limits(ROWS, ROWS, 1, 1))
        rows = np.arange(ROWS, dtype=np.int32)
        zeros = np.zeros(ROWS, np.int32)
        step = Step.of(
            tokens=zeros,
            positions=rows,
            slots=rows,
            sequences=zeros,
            block_tables=np.zeros((1, 1), np.int32),
            sample_rows=rows,
            temperature=np.zeros(ROWS, np.float32),
        )
        times = []
        for _ in range(_TIMES):
            started = time.perf_counter()
            program.launch(step).result()
            times.append(time.perf_counter() - started)
        bandwidth = backend.read_bandwidth(size)
        device = backend.device
    rate = 2.0 * ROWS * outputs * _COLUMNS / min(times)
    found = Machine(f"{machine.processor()}, {device}", free, bandwidth, None, rate, "measured", "here")
    return Measured(found, place_of(device, nbytes))
