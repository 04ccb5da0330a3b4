import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import steps
from kernels.cache_format import CacheShape
from kernels.interface import Backend, BackendSettings, Forward
from kernels.native import available, unavailable_reason
from kernels.program import Limits
from kernels.step import Step
from kernels.weights import Plain
from random_weights import random_packed, random_weight

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


class Helpers:
    """What the tests of this folder share."""

    LIMITS = Limits(rows=64, samples=64, sequences=8, blocks_per_sequence=64)

    batch = staticmethod(steps.step)
    changed = staticmethod(steps.changed)
    packed = staticmethod(random_packed)
    weight = staticmethod(random_weight)

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
    def step(cls, backend: Backend, forward: Forward, batch: Step) -> np.ndarray:
        logits = backend.capture(forward, cls.LIMITS).launch(batch, logits=True).result().logits
        assert logits is not None
        return logits.copy()

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
        return CacheShape.alike(layers, blocks, block_size, kv_heads, head_dim, dtype)


@pytest.fixture
def helpers() -> type[Helpers]:
    return Helpers
