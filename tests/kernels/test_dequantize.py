"""Canonical weights to float32: every value against a naive reading of the format."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.formats import group_count
from kernels.weights import Packed, Plain, dequantize


def random_packed(form: str, rows: int, columns: int, seed: int) -> Packed:
    draw = np.random.default_rng(seed)
    grid = (rows, group_count(columns))
    scales = draw.uniform(-2, 2, grid).astype(np.float16)
    if form == "q8":
        return Packed("q8", (rows, columns), draw.integers(-128, 128, (*grid, 32), np.int8), scales)
    minima = draw.uniform(-9, 9, grid).astype(np.float16)
    return Packed("q4", (rows, columns), draw.integers(0, 256, (*grid, 16), np.uint8), scales, minima)


def naive(weight: Packed) -> np.ndarray:
    """Value by value, in float32."""
    rows, columns = weight.shape
    values = np.empty((rows, columns), np.float32)
    for row in range(rows):
        for column in range(columns):
            group, i = divmod(column, 32)
            scale = np.float32(weight.scales[row, group])
            if weight.minima is None:
                values[row, column] = np.float32(weight.codes[row, group, i]) * scale
            else:
                byte = int(weight.codes[row, group, i % 16])
                code = byte >> 4 if i >= 16 else byte & 15
                values[row, column] = np.float32(code) * scale + np.float32(weight.minima[row, group])
    return values


@pytest.mark.parametrize("form", ["q4", "q8"])
@pytest.mark.parametrize("columns", [1, 31, 32, 33, 64, 100])
def test_packed_values_are_exact(form, columns):
    weight = random_packed(form, 5, columns, columns)
    values = dequantize(weight)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, naive(weight))


@pytest.mark.parametrize("form", ["q4", "q8"])
def test_some_rows_are_those_of_the_whole(form):
    weight = random_packed(form, 7, 40, 1)
    whole = dequantize(weight)
    np.testing.assert_array_equal(dequantize(weight, 2, 5), whole[2:5])
    np.testing.assert_array_equal(dequantize(weight, 6, 99), whole[6:])


def test_B047_q4_1_block_decodes_to_its_values():
    block = np.frombuffer(bytes.fromhex("003c0049f0e1d2c3b4a5968778695a4b3c2d1e0f"), np.uint8)
    scale, minimum = block[:4].view(np.float16)
    weight = Packed(
        "q4", (1, 32), block[4:].reshape(1, 1, 16), np.full((1, 1), scale), np.full((1, 1), minimum)
    )
    assert dequantize(weight).tolist() == [[*range(10, 26), *range(25, 9, -1)]]


def test_B049_all_zero_groups_are_exactly_zero():
    zeros = np.zeros((2, 2), np.float16)
    packed = Packed("q4", (2, 64), np.zeros((2, 2, 16), np.uint8), zeros, zeros)
    assert not dequantize(packed).any()
    assert not dequantize(Packed("q8", (2, 64), np.zeros((2, 2, 32), np.int8), zeros)).any()


def test_plain_values_widen_exactly():
    f32 = np.array([[1e-40, -3.5], [np.inf, 7e37]], np.float32)
    np.testing.assert_array_equal(dequantize(Plain(f32, "f32")), f32)
    f16 = np.array([6e-8, -65504, 0.1], np.float16)
    np.testing.assert_array_equal(dequantize(Plain(f16, "f16")), f16.astype(np.float32))
    bf16 = np.array([[0x3F80, 0xC049], [0x0001, 0x7F80]], np.uint16)
    assert dequantize(Plain(bf16, "bf16")).tolist() == [[1.0, -3.140625], [2.0**-133, np.inf]]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_the_result_is_a_writable_copy_of_a_read_only_file(dtype):
    stored = np.ones((3, 4), {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[dtype])
    stored.flags.writeable = False
    values = dequantize(Plain(stored, dtype), 1, 3)
    values[:] = 0
    assert stored.all()
