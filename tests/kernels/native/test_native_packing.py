"""Quantizing by the library: the bits, kept rows and refusals of numpy, whatever the instruction set."""

import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest

from kernels.native.library import kernels
from kernels.native.packing import NativePacker, fastest_packer
from kernels.quantize import NumpyPacker, quantize_rows
from kernels.weights import Packed, Plain, dequantize

ISAS = [isa for isa in ("amx", "avx512", "avx2", "portable") if kernels(isa) is not None]
RNG = np.random.default_rng(30)


def normal(shape):
    return RNG.standard_normal(shape)


def of_all_sizes(shape):
    return normal(shape) * 2.0 ** RNG.integers(-149, 15, shape)


def far_from_zero(shape):
    return normal(shape) * 1e-3 + RNG.uniform(-3000, 3000, (shape[0], 1))


def of_three_values(shape):
    return RNG.integers(-1, 2, shape) * RNG.choice([0, 1e-3, -1, 5e4], (shape[0], 1))


def rows_of_their_own_size(shape):
    return normal(shape) * 10.0 ** RNG.integers(-9, 4, (shape[0], 1))


def at_the_edge_of_float16(shape):
    return np.clip(normal(shape) * 3e4, -65504, 65504)


KINDS = (normal, of_all_sizes, far_from_zero, of_three_values, rows_of_their_own_size, at_the_edge_of_float16)


def packed(plain: Plain, format: str, packer) -> Packed:
    return quantize_rows(plain.shape, format, lambda rows: Plain(plain.values[rows], plain.format), packer)


def check_same(got: Packed, want: Packed) -> None:
    for name in ("codes", "scales", "minima"):
        a, b = getattr(got, name), getattr(want, name)
        assert (a is None) == (b is None)
        assert a is None or a.tobytes() == b.tobytes(), name
    assert (got.kept is None) == (want.kept is None)
    if got.kept is not None and want.kept is not None:
        assert got.kept.rows.tolist() == want.kept.rows.tolist()
        assert got.kept.values.tobytes() == want.kept.values.tobytes()


@pytest.mark.parametrize("format", ["q4", "q8", "nf4"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_library_packs_the_bits_of_numpy(format, kind):
    for shape in ((17, 200), (3, 100), (5, 1), (5, 33), (300, 576)):
        plain = Plain(kind(shape).astype(np.float32), "f32")
        want = packed(plain, format, NumpyPacker())
        for isa in ISAS:
            for threads in (1, 2):
                check_same(packed(plain, format, NativePacker(threads, isa)), want)


@pytest.mark.parametrize("format", ["q4", "q8"])
def test_values_of_two_bytes_at_any_address(format):
    wide = normal((9, 70)).astype(np.float32)
    bfloat = (wide.view(np.uint32) >> 16).astype(np.uint16)
    for values, plain in ((wide.astype(np.float16), "f16"), (bfloat, "bf16")):
        odd = np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:].view(values.dtype).reshape(values.shape)
        want = packed(Plain(dequantize(Plain(values, plain)), "f32"), format, NumpyPacker())
        for packer in (NumpyPacker(), *(NativePacker(2, isa) for isa in ISAS)):
            check_same(packed(Plain(odd, plain), format, packer), want)


@pytest.mark.parametrize(("format", "bad"), [("q4", np.nan), ("q8", np.inf), ("q4", -7e4), ("q8", 1e7)])
def test_what_cannot_be_held_is_refused_with_the_sentence_of_numpy(format, bad):
    w = normal((300, 1100)).astype(np.float32)  # three pieces of numpy's
    w[290, 70], w[299, 3] = bad, bad
    native = NativePacker(2)
    native.pieces = 2
    sentences = []
    for packer in (NumpyPacker(), native):
        with pytest.raises(ValueError, match="row 29") as caught:
            packed(Plain(w, "f32"), format, packer)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]


def test_the_search_leaves_a_fifth_less_of_the_squared_error():
    """Against codes from the least to the largest value, which Q4_1 has."""
    for values in (normal((40, 512)), RNG.laplace(size=(40, 512)), RNG.uniform(-1, 1, (40, 512))):
        w = values.astype(np.float32)
        groups = w.reshape(40, -1, 32)
        minimum = groups.min(2, keepdims=True).astype(np.float16).astype(np.float32)
        scale = (np.ptp(groups, axis=2, keepdims=True) / 15).astype(np.float16).astype(np.float32)
        plain = np.clip(np.rint((groups - minimum) / scale), 0, 15) * scale + minimum
        found = dequantize(packed(Plain(w, "f32"), "q4", fastest_packer()))
        assert np.square(found - w).sum() < 0.8 * np.square(plain - groups).sum()


def test_nf4_is_what_its_paper_says():
    """Against a statement of the method, value by value: Dettmers et al. 2023, section 3 and appendix E."""
    levels = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635]
    levels += [-0.18477343022833334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725]
    levels += [0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941]
    levels += [0.7229568362236023, 1.0]
    w = normal((3, 192)).astype(np.float32)
    w[1, 64:128] = 0
    found = packed(Plain(w, "f32"), "nf4", fastest_packer())
    halves = np.stack([found.codes & 15, found.codes >> 4], axis=2).reshape(3, 192)
    for row in range(3):
        for block in range(3):
            values = [float(value) for value in w[row, 64 * block : 64 * block + 64]]
            peak = max(map(abs, values))
            assert found.scales[row, block] == np.float32(peak) / np.float32(127)
            for i, value in enumerate(values):
                share = value / peak if peak else 0.0
                nearest = min(range(16), key=lambda level: abs(levels[level] - share))
                assert halves[row, 64 * block + i] == nearest


def test_three_values_are_met_exactly():
    w = (RNG.integers(-1, 2, (8, 256)) * 0.25).astype(np.float32)
    assert np.abs(dequantize(packed(Plain(w, "f32"), "q4", fastest_packer())) - w).max() < 1e-4


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not tell of threads")
def test_a_forked_process_computes_on_threads_of_its_own():
    plain, packer = Plain(normal((4096, 64)).astype(np.float32), "f32"), NativePacker(threads=3)
    want = packed(plain, "q8", packer)
    assert threads() >= 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what is forked here starts no Python
        child = os.fork()
    if not child:
        signal.alarm(60)  # ends it, should it wait for ever
        code = 1
        try:
            same = packed(plain, "q8", packer).codes.tobytes() == want.codes.tobytes()
            code = 0 if same and threads() == 3 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
