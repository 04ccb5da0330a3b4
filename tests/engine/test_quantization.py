"""Quantizing to q8 and q4: error bounds, zero groups, tails, values at the edges of float16."""

import warnings

import numpy as np
import pytest

from engine.quantization import dequantize, quantize
from kernels.interface import BackendSettings
from kernels.native.backend import NativeBackend
from kernels.program import Limits
from kernels.reference.quantized import product
from kernels.step import Step
from kernels.weights import Packed, Plain, blocks_of_rows
from kernels.weights import dequantize as kernels_dequantize

FORMATS = ("q8", "q4")


def steps(packed: Packed) -> np.ndarray:
    """The step each weight was rounded to, [rows, columns]."""
    return np.repeat(packed.scales.astype(np.float32), 32, axis=1)[:, : packed.shape[1]]


def check_half_a_step(w: np.ndarray, packed: Packed) -> None:
    error = np.abs(dequantize(packed).astype(np.float64) - w)
    # Code * scale + minimum is rounded to float32 once, which the second term allows for.
    bound = steps(packed) * 0.50001 + np.abs(w) * 2.0**-22
    worst = int(np.argmax(error - bound))
    assert (error <= bound).all(), (w.flat[worst], error.flat[worst], bound.flat[worst])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seed", range(5))
def test_weights_come_back_within_half_a_step(format: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((17, 200)).astype(np.float32) * 10.0 ** rng.integers(-9, 4, (17, 1))
    packed = quantize(w.astype(np.float32), format)
    check_half_a_step(w.astype(np.float32), packed)
    # No coarser than the range demands: a tenth above the ideal step, or float16's smallest.
    padded = np.pad(w, ((0, 0), (0, 24)), mode="edge").reshape(17, -1, 32)
    span, codes = (np.abs(padded).max(2), 127) if format == "q8" else (np.ptp(padded, axis=2), 15)
    rounding = np.abs(padded.min(2)) * 2.0**-10 / 15 if format == "q4" else 0
    assert (packed.scales <= span / codes * 1.1 + rounding + 2.0**-23).all()


@pytest.mark.parametrize("format", FORMATS)
def test_values_near_float16_s_smallest_come_back_within_half_a_step(format: str) -> None:
    """A subnormal scale is rounded coarsely: it must never end too small to reach the largest value."""
    rng = np.random.default_rng(0)
    sizes = 2.0 ** np.arange(-30, -10, 0.25)[:, None]
    w = (rng.uniform(-1, 1, (len(sizes), 64)) * sizes).astype(np.float32)
    check_half_a_step(w, quantize(w, format))


def test_narrow_groups_far_from_zero_keep_their_spread() -> None:
    """The minimum is rounded to float16; the scale covers what the rounding takes off."""
    rng = np.random.default_rng(1)
    w = (rng.choice([-1, 1], (50, 1)) * rng.uniform(1, 3000, (50, 1)) + rng.uniform(0, 0.1, (50, 64))).astype(
        np.float32
    )
    packed = quantize(w, "q4")
    check_half_a_step(w, packed)
    assert (steps(packed) <= np.abs(w) * 2.0**-10 / 15 + 0.1 / 15 * 1.1).all()


@pytest.mark.parametrize("value", [1.0, -3.5, 0.1, 1234.567, -1e-7])
def test_constant_groups(value: float) -> None:
    w = np.full((2, 40), value, np.float32)
    packed = quantize(w, "q4")
    assert packed.minima is not None
    assert np.abs(dequantize(packed) - w).max() <= abs(value) * 2.0**-10 / 15 + 2.0**-25
    if float(np.float16(value)) == value:
        assert (packed.minima == np.float16(value)).all()
        assert np.array_equal(dequantize(packed), w)


@pytest.mark.parametrize("format", FORMATS)
def test_B049_zero_parts_come_back_exactly_zero(format: str) -> None:
    w = np.random.default_rng(2).standard_normal((6, 96)).astype(np.float32)
    before = dequantize(quantize(w, format))
    w[2] = 0
    w[4, 32:64] = 0
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        packed = quantize(w, format)
        result = dequantize(packed)
        zeros = dequantize(quantize(np.zeros((3, 64), np.float32), format))
    assert not result[2].any()
    assert not result[4, 32:64].any()
    assert not zeros.any()
    assert np.isfinite(result).all()
    others = np.ones_like(w, bool)
    others[2] = False
    others[4, 32:64] = False
    assert np.array_equal(result[others], before[others]), "other groups are untouched"
    x = np.random.default_rng(3).standard_normal((4, 96)).astype(np.float32)
    output = x @ result.T
    assert np.isfinite(output).all()
    assert not output[:, 2].any()


@pytest.mark.parametrize("format", FORMATS)
def test_B051_widths_that_groups_do_not_divide(format: str) -> None:
    w = np.random.default_rng(4).standard_normal((3, 100)).astype(np.float32) + 5
    first = quantize(w, format)
    assert first.shape == (3, 100)
    assert first.scales.shape == (3, 4)
    check_half_a_step(w, first)
    tail = first.codes[:, -1, 4:] if format == "q8" else first.codes[:, -1] >> 4
    assert not tail.any(), "the filling has codes of zero"
    for _ in range(20):
        again = quantize(w, format)
        assert again.codes.tobytes() == first.codes.tobytes()
        assert again.scales.tobytes() == first.scales.tobytes()
        assert (again.minima is None) == (first.minima is None)
        if again.minima is not None and first.minima is not None:
            assert again.minima.tobytes() == first.minima.tobytes()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("columns", [1, 2, 31, 32, 33, 64, 65])
def test_every_tail_is_held(format: str, columns: int) -> None:
    w = np.random.default_rng(columns).standard_normal((5, columns)).astype(np.float32) - 3
    packed = quantize(w, format)
    check_half_a_step(w, packed)
    # The filling widens neither the range nor the step of the last group.
    alone = quantize(np.pad(w, ((0, 0), (0, -columns % 32)), mode="edge"), format)
    assert np.array_equal(packed.scales, alone.scales)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_do_not_depend_on_each_other(format: str) -> None:
    w = np.random.default_rng(5).standard_normal((9, 5000)).astype(np.float32)
    whole = quantize(w, format)
    for row in range(9):
        one = quantize(w[row : row + 1], format)
        assert np.array_equal(one.codes[0], whole.codes[row])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(format: str, bad: float) -> None:
    w = np.ones((40, 8192), np.float32)
    w[33, 8000] = bad
    with pytest.raises(ValueError, match="row 33 holds a value that is not finite"):
        quantize(w, format)


@pytest.mark.parametrize(
    ("format", "value", "what"),
    [
        ("q8", 1e7, "scale"),
        ("q8", -1e30, "scale"),
        ("q4", 1e6, "scale"),
        ("q4", 3e38, "scale"),
        ("q4", -70000, "minimum"),
    ],
)
def test_values_beyond_float16_are_refused(format: str, value: float, what: str) -> None:
    w = np.zeros((3, 96), np.float32)
    w[1, 70] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=f"row 1, group 2 needs a {what} of"):
            quantize(w, format)


def test_the_largest_values_that_can_be_held() -> None:
    for format, value in (("q8", 65504 * 127), ("q4", 65504 * 15), ("q4", -65504)):
        w = np.zeros((1, 32), np.float32)
        w[0, 3] = value
        check_half_a_step(w, quantize(w, format))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_float_types(dtype: type) -> None:
    w = np.random.default_rng(6).standard_normal((4, 64)).astype(np.float16)
    assert np.array_equal(quantize(w.astype(dtype), "q8").codes, quantize(w.astype(np.float32), "q8").codes)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="q4 or q8 or nf4, not 'q5'"):
        quantize(np.ones((2, 2), np.float32), "q5")  # type: ignore[arg-type]
    for shape in ((4,), (0, 4), (4, 0), (2, 2, 2)):
        with pytest.raises(ValueError, match="a matrix"):
            quantize(np.ones(shape, np.float32), "q8")


@pytest.mark.parametrize("format", FORMATS)
def test_input_is_left_alone(format: str) -> None:
    w = np.random.default_rng(7).standard_normal((4, 100)).astype(np.float32)
    copy = w.copy()
    quantize(w, format)
    assert np.array_equal(w, copy)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("size", [1e-4, 1e-5, 1e-6, 1e-8, 1e-11, 1e-30, 1e-40])
@pytest.mark.parametrize("beside", [None, 1.0])
def test_small_rows_keep_their_values(format: str, size: float, beside: float | None) -> None:
    """Alone in a matrix, and beside rows of usual size; from float32, and from bfloat16 values."""
    rng = np.random.default_rng(int(-np.log10(size)))
    w = rng.standard_normal((6, 100))
    w *= size
    if beside is not None:
        w[[0, 3]] = rng.standard_normal((2, 100)) * beside
    w = w.astype(np.float32)
    cut = (w.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    for values in (w, cut, np.abs(cut)):
        packed = quantize(values, format)
        found = dequantize(packed)
        error = np.abs(found - values).max(axis=1)
        if beside is not None and size < 1e-12:
            assert not found[1].any(), "nothing beside the others"
            continue
        bound = 0.006 if format == "q8" else 0.09  # half a step and a quarter, of the range
        assert (error <= bound * np.abs(values).max(axis=1)).all(), (error, np.abs(values).max(axis=1))
        for start, stop in ((0, 6), (1, 3), (3, 4), (5, 6)):
            assert np.array_equal(kernels_dequantize(packed, start, stop), found[start:stop])
        if size >= 1e-4:
            assert packed.kept is None, "float16 scales hold these rows"


@pytest.mark.parametrize("format", FORMATS)
def test_small_rows_compute_the_same_in_every_backend(format: str) -> None:
    rng = np.random.default_rng(7)
    w = rng.standard_normal((50, 64)).astype(np.float32)
    w[[0, 1, 17, 49]] *= np.float32(1e-7)
    packed = quantize(w, format)
    assert packed.kept is not None
    assert packed.kept.rows.tolist() == [0, 1, 17, 49]
    x = rng.standard_normal((3, 64)).astype(np.float32)
    twin = np.concatenate([product(x, block, 1) for block in blocks_of_rows(packed)], axis=1)
    exact = x.astype(np.float64) @ dequantize(packed).astype(np.float64).T
    assert np.abs(twin / exact - 1)[:, [0, 1, 17, 49]].max() < 1e-3
    backend = NativeBackend(BackendSettings(threads=2))
    try:
        table, matrix = backend.place_matrix(Plain(x, "f32")), backend.place_matrix(packed)

        def forward(ops, inputs):  # type: ignore[no-untyped-def]
            x = ops.gather(ops.embedding(table, inputs.tokens), inputs.sample_rows)
            return ops.sample(ops.linear(x, matrix), inputs.sampling)

        program = backend.capture(forward, Limits(3, 3, 3, 1))
        logits = program.launch(batch_of(3), logits=True).result().logits
        assert logits is not None
        assert logits.tobytes() == twin.astype(np.float32).tobytes()
    finally:
        backend.close()


def batch_of(rows: int) -> Step:
    return Step.of(tokens=np.arange(rows), block_tables=[[0]], sample_rows=np.arange(rows))
