"""No memory and no threads: what goes wrong inside the library is an error in Python, never the end of it."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HELPERS = HERE.parents[1] / "helpers"

SETUP = """
import ctypes, sys
import numpy as np
from kernels.cache_format import CacheShape
from kernels.interface import BackendSettings
from kernels.program import Limits
from kernels.native.backend import NativeBackend
from kernels.weights import Plain
sys.path[:0] = [{folder!r}, {helpers!r}]
from conftest import Helpers

hooks = ctypes.CDLL({hooks!r})
backend = NativeBackend(BackendSettings(threads=4))
backend.allocate_cache(CacheShape.alike(1, 64, 32, 2, 16, "float16"))
rng = np.random.default_rng(0)
table = backend.place_matrix(Plain(rng.standard_normal((5000, 32)).astype(np.float32), "f32"))
wide = backend.place_matrix(Helpers.packed(rng, "q4", 5000, 32))

def forward(ops, inputs):
    x = ops.embedding(table, inputs.tokens)
    ops.kv_write(0, x, x, inputs.slots)
    x = ops.add(x, ops.paged_attention(0, x, inputs, scale=1.0))
    return ops.sample(ops.linear(ops.gather(x, inputs.sample_rows), wide), inputs.sampling)

def batch(rows, start=0):
    made = Helpers.batch([(list(range(i, i + n)), start, [20 * i + j for j in range(20)])
                          for i, n in enumerate(rows)])
    some = np.arange(len(made.tokens))
    return Helpers.changed(made, temperature=np.ones(len(some)), top_p=np.full(len(some), 0.9),
                           top_k=np.where(some % 2, 50, 0))
"""


@pytest.fixture(scope="module")
def hooks(tmp_path_factory) -> Path:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C++ compiler and a preloaded library")
    path = tmp_path_factory.mktemp("hooks") / "failures.so"
    source = HERE / "failures.cpp"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", path, "-ldl"], check=True, timeout=300)
    return path


def run(hooks: Path, program: str) -> str:
    """The output of a Python that runs this with the hooks preloaded."""
    # Before a sanitizer, which has an allocator of its own.
    preloaded = " ".join(filter(None, (str(hooks), os.environ.get("LD_PRELOAD"))))
    sanitizer = f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0:alloc_dealloc_mismatch=0"
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            SETUP.format(folder=str(HERE), helpers=str(HELPERS), hooks=str(hooks)) + textwrap.dedent(program),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "LD_PRELOAD": preloaded, "ASAN_OPTIONS": sanitizer},
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


def test_C8_every_refused_allocation_of_a_step_is_a_memory_error(hooks):
    """On the calling thread and on the team's: the n-th allocation of a step is refused, for each small n
    and some larger ones."""
    out = run(
        hooks,
        """
        limits = Limits(rows=64, samples=64, sequences=8, blocks_per_sequence=32)
        program = backend.capture(forward, limits)
        steps = [batch([1, 5, 1], 500), batch([40]), batch([1], 600)]
        for step in steps:
            program.launch(step).result()
        expected = [program.launch(step).result().tokens.tolist() for step in steps]
        refused = 0
        for number, step in enumerate(steps):
            for count in [*range(16), *(int(16 * 1.3**i) for i in range(1, 40))]:
                program = backend.capture(forward, limits)  # with buffers that have not grown yet
                hooks.refuse_memory_after(count)
                try:
                    tokens = program.launch(step).result().tokens.tolist()
                except MemoryError as error:
                    hooks.refuse_memory_after(-1)
                    assert "no memory" in str(error), error
                    refused += 1
                    assert program.launch(step).result().tokens.tolist() == expected[number]
                else:
                    left = hooks.memory_left_now()
                    hooks.refuse_memory_after(-1)
                    assert tokens == expected[number]
                    if left:
                        break
            else:
                raise AssertionError("the step never succeeded")
        print(refused)
        """,
    )
    assert int(out) > 20, "some allocations of a step were refused"


def test_C8_refused_allocations_elsewhere_are_memory_errors(hooks):
    """Copying blocks, capturing, placing and repacking."""
    out = run(
        hooks,
        """
        def until_it_succeeds(action):
            failures = 0
            for count in range(200):
                hooks.refuse_memory_after(count)
                try:
                    action()
                except MemoryError:
                    failures += 1
                else:
                    left = hooks.memory_left_now()
                    if left:
                        return failures
                finally:
                    hooks.refuse_memory_after(-1)
            raise AssertionError("never")

        pairs = np.arange(2, dtype=np.int32)
        print(until_it_succeeds(lambda: backend.copy_blocks(pairs, pairs + 2)))
        limits = Limits(rows=64, samples=64, sequences=8, blocks_per_sequence=32)
        print(until_it_succeeds(lambda: backend.capture(forward, limits)))
        weight = Helpers.packed(rng, "q8", 64, 64)
        print(until_it_succeeds(lambda: (backend.place_matrix(weight), backend.fill())))
        backend.close()
        """,
    )
    assert all(int(count) > 0 for count in out.split()), out
    assert len(out.split()) == 3


@pytest.mark.parametrize("given", [0, 1])
def test_few_threads_of_the_system_compute_the_same(hooks, given):
    out = run(
        hooks,
        f"""
        limits = Limits(rows=64, samples=64, sequences=8, blocks_per_sequence=32)
        steps = [batch([1, 5, 1], 500), batch([40])]
        hooks.refuse_threads_after({given})
        program = backend.capture(forward, limits)
        first = [program.launch(step).result().tokens.tolist() for step in steps]
        backend.close()
        hooks.refuse_threads_after(-1)
        again = NativeBackend(BackendSettings(threads=4))
        again.allocate_cache(CacheShape.alike(1, 64, 32, 2, 16, "float16"))
        rng = np.random.default_rng(0)
        table = again.place_matrix(Plain(rng.standard_normal((5000, 32)).astype(np.float32), "f32"))
        wide = again.place_matrix(Helpers.packed(rng, "q4", 5000, 32))
        program = again.capture(forward, limits)
        assert first == [program.launch(step).result().tokens.tolist() for step in steps]
        print("same")
        """,
    )
    assert out.strip() == "same"
