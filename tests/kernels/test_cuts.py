"""Parts of matrices: the values of any part are those that the whole has there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels.cuts import cut
from kernels.formats import ARRAYS, BLOCKS, FORMATS
from kernels.stored import canonical
from kernels.weights import Kept, Packed, Plain, dequantize
from random_weights import random_packed
from stored_blocks import random_blocks

ROWS, COLUMNS = 7, 512


def check(weight, rows, columns):
    part, whole = cut(weight, rows, columns), dequantize(canonical(weight))
    inside = range(whole.shape[1]) if columns is None else columns
    assert part.shape == (len(rows), len(inside))
    found = dequantize(canonical(part))
    assert np.array_equal(found, whole[rows.start : rows.stop, inside.start : inside.stop])
    return part


@pytest.mark.parametrize("type", BLOCKS)
def test_parts_of_blocks_of_a_file(type):
    rng, format = np.random.default_rng(1), FORMATS[BLOCKS[type].format]
    weight = random_blocks(rng, "Q8_0" if not format.packed else type, ROWS, COLUMNS)
    if not format.packed:  # small bytes are finite in any type
        data = rng.integers(0, 60, (ROWS, COLUMNS * BLOCKS[type].nbytes), np.uint8)
        weight = replace(weight, type=type, data=data)
    assert check(weight, range(2, 5), None).nbytes == weight.nbytes * 3 // ROWS
    assert check(weight, range(ROWS), range(256, 512)).nbytes == weight.nbytes // 2
    for columns in (range(32, 320), range(64, COLUMNS)):
        part = check(weight, range(1, 7), columns)
        assert not isinstance(part, Plain) or format.group > 32, "it stays packed"
    assert isinstance(check(weight, range(3), range(8, 500)), Plain) is format.packed


@pytest.mark.parametrize("form", [form for form in ARRAYS if FORMATS[form].packed])
def test_parts_of_packed_matrices(form):
    weight = random_packed(np.random.default_rng(2), form, ROWS, 480)
    group = max(32, FORMATS[form].group)
    kept = Kept(np.array([1, 4, 5]), np.random.default_rng(3).standard_normal((3, 480), np.float32))
    for whole in (weight, replace(weight, kept=kept)):
        part = check(whole, range(2, 6), range(group, 480))
        assert isinstance(part, Packed)
        assert (part.kept is None) is (whole.kept is None)
        assert isinstance(check(whole, range(ROWS), range(100)), Plain)


def test_parts_of_vectors_and_plain_matrices():
    values = np.arange(60, dtype=np.float32)
    assert np.array_equal(cut(Plain(values, "f32"), range(5, 9)).values, values[5:9])
    check(Plain(values.reshape(6, 10), "f32"), range(1, 6), range(3, 10))
