import contextlib
import ctypes
import dataclasses
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from kernels.backends import open_backend
from kernels.cache_format import CacheFormat
from kernels.formats import BLOCKS, FORMATS
from kernels.interface import BackendSettings
from kernels.native.library import Kind, load
from kernels.native.lowering import lower
from kernels.native.recorder import INPUTS, Matrix, RecordingOperations
from kernels.program import Limits
from kernels.step import ArrayOfStep
from kernels.weights import Plain
from waiting import wait_for

KINDS = get_args(Kind)
ROOT = Path(__file__).parents[3]


def test_settings_it_cannot_serve_are_refused():
    for settings, word in (
        (BackendSettings(device="cuda"), "cuda"),
        (BackendSettings(dtype="bfloat16"), "bfloat16"),
        (BackendSettings(cpu_isa="sse9"), "sse9"),
    ):
        with pytest.raises(ValueError, match=word):
            open_backend("native", settings)


def test_auto_is_native_on_the_cpu():
    backend = open_backend("auto", BackendSettings(device="cpu", threads=1))
    assert backend.name == "native"
    assert backend.exact
    assert "1 thread" in backend.device
    backend.close()


@pytest.fixture
def program(native, helpers):
    backend = native()
    backend.allocate_cache(helpers.cache(blocks=4))
    table = backend.place_matrix(Plain(np.eye(10, 64, dtype=np.float32), "f32"))
    angles = np.zeros((80, 8), np.float32)
    rotation = backend.place_rotation(angles, angles, "half")

    def forward(ops, inputs):
        q, k = ops.split(ops.embedding(table, inputs.tokens), (32, 32))
        ops.kv_write(0, ops.rope(k, inputs.positions, rotation), k, inputs.slots)
        mixed = ops.paged_attention(0, q, inputs, scale=1.0)
        return ops.sample(ops.gather(mixed, inputs.sample_rows), inputs.sampling)

    return backend.capture(forward, Limits(rows=8, samples=4, sequences=2, blocks_per_sequence=3))


def test_steps_outside_limits_tables_and_cache_are_refused(program, helpers):
    good = helpers.batch([([1, 2, 3], 0, [1, 2])], samples="last")
    program.launch(good).result()

    seen = {"seen_offsets": [0, 1], "seen_ids": [32], "seen_counts": [1]}
    bad = {
        "9 rows": lambda: helpers.batch([([1] * 9, 0, [1])], samples="last"),
        "5 sample rows": lambda: helpers.batch([([1] * 5, 0, [1])]),
        "3 sequences": lambda: helpers.batch([([1], 0, [1])] * 3),
        "4 blocks": lambda: helpers.batch([([1], 0, [1, 2, 3, 0])], samples="last"),
        "token is 10": {"tokens": [1, 2, 10]},
        "token is -1": {"tokens": [1, 2, -1]},
        "position is 80": {"positions": [0, 1, 80]},
        "position is -1": {"positions": [-1, 1, 2]},
        "block of a row is 2": {"positions": [0, 1, 64]},
        "slot is 128": {"slots": [0, 1, 128]},
        "sequence is 1": {"sequences": [0, 0, 1]},
        "block is 4": {"block_tables": [[4, 0]]},
        "sample row is 3": {"sample_rows": [3]},
        "seen token is 32": seen,
        "point past the end": seen | {"seen_offsets": [0, 2]},
        "backwards": seen | {"seen_offsets": [0, -1]},
        "begin at 0": seen | {"seen_offsets": [-5, 0]},
        "do not begin": seen | {"bias_offsets": [-1, 0]},
        "2 values where 3": {"slots": [0, 1]},
        "mask of 2 words, the vocabulary takes 1": {"mask": [[0, 0]]},
    }
    for words, made in bad.items():
        with pytest.raises(ValueError, match=words):
            program.launch(made() if callable(made) else helpers.changed(good, **made)).result()
    assert program.launch(good).result().tokens.shape == (1,)


def test_counts_that_the_buffer_does_not_hold_are_refused(program, helpers):
    """Whatever the counts say: nothing outside the buffer is read, and nothing beyond the limits computed."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    good = helpers.batch([([1, 2, 3], 0, [1, 2])], samples="last")
    refused = 0
    for count in range(len(good.counts)):
        for value in (-1, -(2**31), 2**31 - 1, 1 << 16, 1 << 12, *(rng.randrange(50) for _ in range(20))):
            step = helpers.changed(good)
            step.memory[4 * count : 4 * count + 4].view(np.int32)[0] = value
            try:
                program.launch(step).result()
            except ValueError:
                refused += 1
            else:
                assert 0 <= value < 50
    assert refused > 100
    for size in range(0, good.memory.nbytes, 5):
        with pytest.raises(ValueError, match="are not all in its"):
            program.launch(dataclasses.replace(good, memory=good.memory[:size].copy())).result()


def test_C9_the_shortest_rotation_bounds_the_positions(native, helpers):
    """A forward may have several tables, and the last one is not the shortest."""
    backend = native()
    table = backend.place_matrix(Plain(np.eye(10, 16, dtype=np.float32), "f32"))
    angles = np.zeros((50, 8), np.float32)
    short, long = (backend.place_rotation(angles[:n], angles[:n], "half") for n in (20, 50))

    def forward(ops, inputs):
        x = ops.embedding(table, inputs.tokens)
        turned = ops.rope(ops.rope(x, inputs.positions, short), inputs.positions, long)
        return ops.sample(ops.gather(turned, inputs.sample_rows), inputs.sampling)

    program = backend.capture(forward, helpers.LIMITS)
    good = helpers.batch([([1], 19, [0])])
    program.launch(good).result()
    with pytest.raises(ValueError, match="a position is 20, outside 0 to 19"):
        program.launch(helpers.changed(good, positions=[20])).result()


@pytest.mark.slow
def test_C9_a_stage_has_as_many_tasks_as_it_wants(native, helpers):
    """Rows of as many sequences with many key heads: 1.2 million tasks, more than 20 bits can count."""
    heads, rows = 4096, 300
    backend = native()
    backend.allocate_cache(helpers.cache(blocks=rows, block_size=16, kv_heads=heads, head_dim=2))
    values = np.random.default_rng(0).integers(-99, 99, (1, 2 * heads)).astype(np.float32)
    table = backend.place_matrix(Plain(values, "f32"))

    def forward(ops, inputs):
        x = ops.embedding(table, inputs.tokens)
        ops.kv_write(0, x, x, inputs.slots)
        mixed = ops.paged_attention(0, x, inputs, scale=1.0)
        return ops.sample(ops.gather(mixed, inputs.sample_rows), inputs.sampling)

    program = backend.capture(forward, Limits(rows, samples=rows, sequences=rows, blocks_per_sequence=1))
    batch = helpers.batch([([0], 0, [row]) for row in range(rows)], block_size=16)
    mixed = program.launch(batch, logits=True).result().logits
    assert np.array_equal(mixed, np.repeat(values, rows, axis=0))


def test_C9_a_library_of_another_layout_is_refused(monkeypatch):
    """Fields of the same size that change places are noticed, and structures may grow."""
    from kernels.native import library

    swapped = (*library.ARRAYS[1::-1], *library.ARRAYS[2:])
    monkeypatch.setattr(library, "ARRAYS", swapped)
    with pytest.raises(OSError, match="was built from other sources"):
        library.load.__wrapped__()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_FUNCTIONS", {"native_fill": (None, [ctypes.c_void_p])}),
        ("FORMATS", {"q8": dataclasses.replace(FORMATS["q8"], low=0)}),
        ("FORMATS", {"q8": dataclasses.replace(FORMATS["q8"], group=16)}),
        ("FORMATS", {"q4": dataclasses.replace(FORMATS["q4"], minima=False)}),
        ("FORMATS", {"f16": dataclasses.replace(FORMATS["f16"], bits=32)}),
        ("FORMATS", {"q5": dataclasses.replace(FORMATS["q4"], name="q5", bits=5)}),
        ("CACHE_FORMATS", {"float16": CacheFormat("float16", np.float32)}),
        ("CACHE_FORMATS", {"float16": CacheFormat("float16", np.float16, scale_bytes=4)}),
        ("BLOCKS", {"Q6_K": BLOCKS["Q6_K"]._replace(nbytes=212)}),
        ("BLOCKS", {"Q6_K": BLOCKS["Q6_K"]._replace(format="q4")}),
        ("STORED_NUMBERS", {"Q4_0": 1, "Q5_0": 0}),
        ("KINDS", ("norm", "embedding")),
        ("ARRAYS", (ArrayOfStep("temperature", np.dtype(np.float64), ("samples",)),)),
        ("ARRAYS", (ArrayOfStep("temperature", np.dtype(np.float32), ("rows",)),)),
        ("ALIGNMENT", 32),
    ],
)
def test_a_library_with_other_signatures_or_numbers_is_refused(monkeypatch, name, value):
    from kernels.native import library

    now = getattr(library, name)
    if isinstance(now, dict):
        value = {**now, **value}
    elif isinstance(now, tuple):
        value = (*value, *now[len(value) :])
    monkeypatch.setattr(library, name, value)
    with pytest.raises(OSError, match="was built from other sources"):
        library.load.__wrapped__()


def test_an_older_library_is_refused_before_anything_of_it_runs(monkeypatch, tmp_path):
    """Its check once had a result that was taken for an address. The reference backend computes then."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    from kernels import backends, native
    from kernels.native import library

    source, older = tmp_path / "older.c", tmp_path / "older.so"
    functions = [f"long {name}(void) {{ __builtin_trap(); }}" for name in library._FUNCTIONS]
    source.write_text("\n".join(["long native_layout(void) { return 12345; }", *functions]))
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", older], check=True, timeout=300)
    monkeypatch.setattr(library, "_find", lambda: older)
    library.load.cache_clear()
    native.unavailable_reason.cache_clear()
    try:
        choice = backends.automatic(BackendSettings(device="cpu"))
        assert choice.name == "reference"
        assert choice.why.startswith("older.so was built from other sources than the Python files")
    finally:
        library.load.cache_clear()
        native.unavailable_reason.cache_clear()


def test_blocks_outside_the_cache_are_not_copied(native, helpers):
    backend = native()
    backend.allocate_cache(helpers.cache(blocks=4))
    for sources, targets in (([0], [4]), ([-1], [0])):
        with pytest.raises(ValueError, match="a block to copy is"):
            backend.copy_blocks(np.array(sources), np.array(targets))


def test_other_integer_types_and_strides_are_converted(program, helpers):
    good = helpers.batch([([1, 2, 3], 0, [1, 2])], samples="last")
    expected = program.launch(good, logits=True).result().logits.copy()
    odd = helpers.changed(
        good,
        tokens=good.tokens.astype(np.int64),
        slots=np.repeat(good.slots, 2)[::2],
        positions=good.positions.astype(np.uint8),
    )
    assert helpers.same_bits(program.launch(odd, logits=True).result().logits.copy(), expected)


def kinds(ops):
    return [KINDS[op.kind] for op in lower(ops.nodes).ops]


def recorded(layers, *, halves=True):
    ops = RecordingOperations()
    norm = np.ones(64, np.float32)
    square, wide, narrow = (
        Matrix(1, rows, columns, True, False, halves) for rows, columns in ((64, 64), (256, 64), (64, 128))
    )
    x = ops.embedding(Matrix(1, 100, 64, True, False), INPUTS.tokens)
    for _ in range(layers):
        x = ops.add(x, ops.linear(ops.rms_norm(x, norm, 1e-5), square, planes=2))
        x = ops.add(x, ops.linear(ops.gated(ops.linear(ops.rms_norm(x, norm, 1e-5), wide)), narrow))
    ops.sample(ops.gather(x, INPUTS.sample_rows), INPUTS.sampling)
    return ops


def test_a_layer_has_no_idle_operations():
    layer = ["norm", "quantize", "linear", "norm", "quantize", "gated_linear", "linear"]
    assert kinds(recorded(2)) == ["embedding", *layer, *layer, "gather", "sample"]
    layer[5:] = ["linear", "gated", "quantize", "linear"]
    assert kinds(recorded(1, halves=False)) == ["embedding", *layer, "gather", "sample"]


def test_a_deep_decoder_needs_no_more_buffers_than_a_shallow_one():
    assert len(lower(recorded(20).nodes).buffers) == len(lower(recorded(2).nodes).buffers)


def test_an_add_of_a_product_that_is_used_twice_stays():
    ops = RecordingOperations()
    matrix = Matrix(1, 64, 64, False, True)
    x = ops.embedding(Matrix(1, 100, 64, False, True), INPUTS.tokens)
    y = ops.linear(x, matrix)
    ops.sample(ops.gather(ops.add(ops.add(x, y), y), INPUTS.sample_rows), INPUTS.sampling)
    assert kinds(ops).count("add") == 2


def test_a_gated_value_that_is_used_twice_stays():
    ops = RecordingOperations()
    wide, narrow = Matrix(1, 128, 64, True, False, True), Matrix(1, 64, 64, True, False)
    gated = ops.gated(ops.linear(ops.embedding(Matrix(1, 100, 64, True, False), INPUTS.tokens), wide))
    ops.sample(ops.gather(ops.add(ops.linear(gated, narrow), gated), INPUTS.sample_rows), INPUTS.sampling)
    assert "gated_linear" not in kinds(ops)


def test_models_on_threads_of_their_own_share_the_team(native, helpers):
    """Two engines in one process step at the same time; each gets its own results."""
    rng = np.random.default_rng(0)
    weight = helpers.packed(rng, "q4", 200, 128)
    inputs = [rng.standard_normal((n, 128)).astype(np.float32) for n in (3, 17)]
    backends = [native(threads=n) for n in (2, 4)]

    def forward(backend, x):
        matrix, table = backend.place_matrix(weight), backend.place_matrix(Plain(x, "f32"))
        return lambda ops, i: ops.sample(
            ops.gather(ops.linear(ops.embedding(table, i.tokens), matrix), i.sample_rows), i.sampling
        )

    programs = [b.capture(forward(b, x), helpers.LIMITS) for b, x in zip(backends, inputs, strict=True)]
    batches = [helpers.batch([(list(range(len(x))), 0, [0])]) for x in inputs]
    expected = [
        p.launch(b, logits=True).result().logits.copy() for p, b in zip(programs, batches, strict=True)
    ]
    wrong = []

    def repeat(i):
        results = (programs[i].launch(batches[i], logits=True).result().logits.copy() for _ in range(300))
        wrong.extend(i for result in results if not helpers.same_bits(result, expected[i]))

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads in /proc")
def test_closing_frees_the_threads_and_opening_again_works(native, helpers):
    def team():
        threads = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                threads.append((task / "comm").read_text().strip())
        return threads.count("kernel-team")

    def team_becomes(count):
        """A thread takes a moment to get its name, and one that was joined may be listed a little longer."""
        wait_for(lambda: team() == count)

    for _ in range(3):
        backend = native(threads=5)
        backend.place_matrix(helpers.weight(np.random.default_rng(0), "f32", 64, 64))
        assert backend.read_bandwidth(1 << 20) > 0
        team_becomes(4)
        backend.close()
        team_becomes(0)
    backend.close()


def test_caches_larger_than_the_machine_are_refused(native, helpers):
    backend = native()
    with pytest.raises(MemoryError, match="kv_memory"):
        backend.allocate_cache(helpers.cache(blocks=1 << 30))


def test_memory_is_reported(native, helpers):
    backend = native()
    weight = helpers.packed(np.random.default_rng(0), "q4", 64, 64)
    backend.place_matrix(weight)
    assert backend.weight_bytes == weight.nbytes
    shape = helpers.cache()
    backend.allocate_cache(shape)
    assert backend.cache_bytes == shape.nbytes


def test_a_failing_compiler_leaves_a_working_install(tmp_path):
    """The extension is optional: the build says so and goes on."""
    result = subprocess.run(
        [
            sys.executable,
            "setup.py",
            "-q",
            "build_ext",
            "--build-lib",
            str(tmp_path / "lib"),
            "--build-temp",
            str(tmp_path),
        ],
        cwd=ROOT,
        env={**os.environ, "CC": "false", "CXX": "false"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert "failed" in result.stdout + result.stderr
    assert not list(tmp_path.rglob("*.so"))


def test_the_package_of_data_has_no_modules(tmp_path):
    """`termchat._data` is the root of the checkout, where setup.py lies; a package has no use for it."""
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    data = tmp_path / "termchat" / "_data"
    assert (data / "models.toml").is_file()
    assert list(data.rglob("*.py")) == []
    assert (tmp_path / "termchat" / "__init__.py").is_file()


def test_without_the_library_the_reason_is_a_sentence(monkeypatch):
    import kernels.native.library as library

    monkeypatch.setattr(library, "EXTENSION_SUFFIXES", [])
    load.cache_clear()
    try:
        with pytest.raises(OSError, match="was not built"):
            load()
    finally:
        load.cache_clear()
