import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kernels.interface import Backend, BackendSettings, Batch, CacheShape, Forward, Limits, SamplingBatch
from kernels.native import available, unavailable_reason
from kernels.weights import Packed, Plain, Weight, group_count

ISAS = ("amx", "avx512", "avx2", "portable")


@pytest.fixture(scope="session", autouse=True)
def _library() -> None:
    """With a compiler the library has to be there; without one there is nothing to test."""
    if not available():
        compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        (pytest.fail if compiler else pytest.skip)(unavailable_reason())


@pytest.fixture
def native() -> Iterator[Callable[..., Backend]]:
    """Opens native backends: native(cpu_isa, threads)."""
    from kernels.native.backend import NativeBackend

    opened = []

    def make(cpu_isa: str = "auto", threads: int = 2) -> Backend:
        opened.append(NativeBackend(BackendSettings(cpu_isa=cpu_isa, threads=threads)))
        return opened[-1]

    yield make
    for backend in opened:
        backend.close()


def supported_isas() -> list[str]:
    from kernels.native.library import kernels

    return [isa for isa in ISAS if kernels(isa)]


@pytest.fixture
def isas() -> list[str]:
    return supported_isas()


def greedy(samples: int) -> SamplingBatch:
    zero, empty = np.zeros(samples, np.float32), np.zeros(0, np.int32)
    return SamplingBatch(
        temperature=zero,
        top_k=np.zeros(samples, np.int32),
        top_p=zero + 1,
        min_p=zero,
        repetition=zero + 1,
        presence=zero,
        frequency=zero,
        seeds=np.zeros(samples, np.uint64),
        positions=np.zeros(samples, np.int64),
        seen_offsets=np.zeros(samples + 1, np.int32),
        seen_ids=empty,
        seen_counts=empty,
        bias_offsets=np.zeros(samples + 1, np.int32),
        bias_ids=empty,
        bias_values=np.zeros(0, np.float32),
    )


class Helpers:
    """What the tests of this folder share."""

    LIMITS = Limits(rows=64, samples=64, sequences=8, blocks_per_sequence=64)

    greedy = staticmethod(greedy)

    @staticmethod
    def batch(
        parts: list[tuple[list[int], int, list[int]]], block_size: int = 32, samples: str = "all"
    ) -> Batch:
        """A step of (tokens, first position, blocks) for each sequence; samples: all rows, or last ones."""
        counts = [len(tokens) for tokens, _, _ in parts]
        positions = np.concatenate([start + np.arange(len(t)) for t, start, _ in parts]).astype(np.int32)
        sequences = np.repeat(np.arange(len(parts)), counts).astype(np.int32)
        tables = np.zeros((len(parts), max(1, *(len(b) for *_, b in parts))), np.int32)
        for i, (_, _, blocks) in enumerate(parts):
            tables[i, : len(blocks)] = blocks
        slots = tables[sequences, positions // block_size] * block_size + positions % block_size
        rows = np.arange(len(positions)) if samples == "all" else np.cumsum(counts) - 1
        return Batch(
            tokens=np.concatenate([np.array(t) for t, _, _ in parts]).astype(np.int32),
            positions=positions,
            slots=slots.astype(np.int32),
            sequences=sequences,
            block_tables=tables,
            sample_rows=rows.astype(np.int32),
            sampling=greedy(len(rows)),
        )

    @classmethod
    def compute(
        cls, backend: Backend, x: np.ndarray, operation: Callable[[Any, Any, Any], Any]
    ) -> np.ndarray:
        """operation(ops, value of x, inputs) on the rows of x, through a program of the backend."""
        table = backend.place_matrix(Plain(x, "f32"))

        def forward(ops: Any, inputs: Any) -> Any:
            result = operation(ops, ops.embedding(table, inputs.tokens), inputs)
            return ops.sample(ops.gather(result, inputs.sample_rows), inputs.sampling)

        return cls.step(backend, forward, cls.batch([(list(range(len(x))), 0, [0] * 64)]))

    @classmethod
    def step(cls, backend: Backend, forward: Forward, batch: Batch) -> np.ndarray:
        logits = backend.capture(forward, cls.LIMITS).run(batch, logits=True).logits
        assert logits is not None
        return logits.copy()

    @staticmethod
    def packed(rng: np.random.Generator, form: str, rows: int, columns: int) -> Packed:
        groups = group_count(columns)
        scales = (rng.random((rows, groups), np.float32) * (0.02 if form == "q4" else 0.002)).astype(
            np.float16
        )
        if form == "q8":
            codes = rng.integers(-128, 128, (rows, groups, 32)).astype(np.int8)
            return Packed("q8", (rows, columns), codes, scales)
        codes = rng.integers(0, 256, (rows, groups, 16)).astype(np.uint8)
        return Packed("q4", (rows, columns), codes, scales, (scales * np.float16(-7)).astype(np.float16))

    @classmethod
    def weight(cls, rng: np.random.Generator, form: str, rows: int, columns: int) -> Weight:
        if form in ("q4", "q8"):
            return cls.packed(rng, form, rows, columns)
        values = rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(0.1)
        if form == "bf16":
            return Plain((values.view(np.uint32) >> 16).astype(np.uint16), "bf16")
        return Plain(values.astype(np.float16) if form == "f16" else values, form)

    @staticmethod
    def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()

    @staticmethod
    def cache(
        layers: int = 1,
        blocks: int = 64,
        block_size: int = 32,
        kv_heads: int = 2,
        head_dim: int = 16,
        dtype: str = "float16",
    ) -> CacheShape:
        return CacheShape(layers, blocks, block_size, kv_heads, head_dim, dtype)


@pytest.fixture
def helpers() -> type[Helpers]:
    return Helpers
