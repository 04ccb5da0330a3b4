"""Products with weights: placed exactly, the bits of the numerics page, and of a row alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.blocks import READERS
from kernels.formats import BLOCKS, FORMATS, group_count
from kernels.interface import BackendSettings
from kernels.quantize import quantize_rows
from kernels.reference.quantized import product
from kernels.stored import canonical
from kernels.triton import vendor
from kernels.triton.activations import quantize
from kernels.triton.backend import TritonBackend
from kernels.triton.embedding import embedding
from kernels.triton.kernel import Draw
from kernels.triton.linear import linear, linear_twin
from kernels.triton.matrix import STEP, place, span_of
from kernels.triton.self_check import Finding
from kernels.triton.trials import stored, weight
from kernels.weights import Packed, Plain, blocks_of_rows, dequantize
from stored_blocks import put, random_blocks

CPU = torch.device("cpu")
PACKED = [*READERS, "Q4_1", "Q8_0", "nf4", "q8_64"]
PLAIN = ["f32", "f16", "bf16"]


def made(kind, rows, columns, draw):
    """A weight of a type of blocks, or of a format."""
    if kind == "q8_64":
        groups = -(-columns // 64)
        codes = draw.generator.integers(-127, 128, (rows, group_count(columns), 32), np.int8)
        codes.reshape(rows, -1)[:, columns:] = 0
        return Packed(kind, (rows, columns), codes, draw.normal(rows, groups).numpy())
    return stored(kind, rows, draw.generator) if kind not in FORMATS else weight(kind, (rows, columns), draw)


def in_spans(x, packed, span, planes):
    """The product as the numerics page has it, span by span."""
    form = FORMATS[packed.format]
    total = np.zeros((len(x), packed.shape[0]), np.float32)
    for first in range(0, packed.shape[1], span):
        last = min(first + span, packed.shape[1])
        groups = slice(first // form.group, -(-last // form.group))
        part = Packed(
            packed.format,
            (packed.shape[0], last - first),
            packed.codes[:, first // 32 : group_count(last)],
            packed.scales[:, groups],
            None if packed.minima is None else packed.minima[:, groups],
        )
        total = total + product(x[:, first:last], part, planes)
    return total


@pytest.mark.parametrize("kind", PACKED)
def test_a_packed_product_has_the_bits_of_the_numerics_page(kind):
    draw = Draw(CPU, 3)
    weight = made(kind, 37, 200, draw)
    matrix, packed = place((weight,), CPU), canonical(weight)
    alignment = 8 * 16
    assert matrix.blocks[0].data.nbytes < FORMATS[packed.format].nbytes(packed.shape) + alignment
    numbers = draw.integers(0, 37, 21)
    assert np.array_equal(embedding(matrix, numbers).numpy(), dequantize(packed)[numbers.numpy()])
    for rows, planes in ((1, 2), (17, 1)):
        x = draw.normal(rows, packed.shape[1])
        expected = in_spans(x.numpy(), packed, span_of(*packed.shape), planes)
        assert np.array_equal(linear(x, matrix, None, planes).numpy(), expected), (rows, planes)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_plain_product_is_that_of_values_rounded_to_its_precision(kind):
    draw = Draw(CPU, 4)
    matrix = place((weight(kind, (70, 201), draw),), CPU)
    bias = draw.normal(70)
    for planes, step in ((1, {"f32": 0, "f16": 2.0**-11, "bf16": 2.0**-8}[kind]), (2, 2.0**-15)):
        x = draw.normal(19, 201)
        result, twin = (function(x, matrix, bias, planes) for function in (linear, linear_twin))
        assert (result - twin).abs().max() <= 2e-6 * twin.abs().max()
        values = matrix.blocks[0].read(slice(None)).double().T
        most = (x.abs().double() @ values.abs()).max()
        assert (result - (x.double() @ values + bias)).abs().max() <= (step + 1e-6) * most


@pytest.mark.parametrize(
    ("kind", "columns", "planes"), [("bf16", 1090, 2), ("f16", 1090, 1), ("f32", 530, 1), ("q4", 1025, 1)]
)
def test_a_row_is_the_same_alone_in_every_tile_and_in_spans_apart(kind, columns, planes):
    """Rows up to 64 have programs for each span; more have one that goes through all spans."""
    draw = Draw(CPU, 5)
    matrix = place((weight(kind, (5, columns), draw),), CPU)
    outputs, inputs = matrix.shape
    assert columns < 1000 or span_of(outputs, inputs) < inputs, "the case of several spans"
    x = draw.normal(65, inputs)
    together = linear(x, matrix, None, planes)
    for rows in ([0], [64, 3], range(40, 23, -1)):
        assert torch.equal(linear(x[list(rows)], matrix, None, planes), together[list(rows)]), rows


def test_what_lies_beside_a_matrix_of_rows_is_not_read():
    draw = Draw(CPU, 6)
    whole = torch.full((20, 300), torch.nan)
    whole[3:11, 40:241] = draw.normal(8, 201)
    x = whole[3:11, 40:241]
    for kind in ("q4", "q8", "nf4", "bf16", "f32"):
        matrix = place((weight(kind, (33, 201), draw),), CPU)
        assert torch.equal(linear(x, matrix), linear(x.clone(), matrix)), kind
        assert linear(x, matrix).isfinite().all(), kind


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_with_a_value_that_is_not_finite_spoils_itself_alone(bad):
    draw = Draw(CPU, 7)
    x = draw.normal(5, 100)
    x[2, 70] = bad
    for kind in ("q4", "q8", "f16"):
        matrix = place((weight(kind, (9, 100), draw),), CPU)
        for planes in (1, 2):
            finite = linear(x, matrix, None, planes).isfinite().all(dim=1)
            assert finite.tolist() == [True, True, False, True, True], (kind, planes)


def test_large_and_small_activations_stay_in_range():
    """A row may exceed float16, and its values may be too small for a scale."""
    draw = Draw(CPU, 8)
    x = draw.normal(4, 96) * torch.tensor([[1e6], [1e30], [1e-32], [0.0]])
    for kind in ("f16", "bf16", "q4", "q8"):
        matrix = place((weight(kind, (7, 96), draw),), CPU)
        exact = x.double() @ matrix.blocks[0].read(slice(0, 1)).double().T
        result = linear(x, matrix, None, 2)[:, :1]
        assert ((result - exact).abs() <= 1e-3 * x.abs().amax(dim=1, keepdim=True) + 1e-29).all(), kind


def test_parts_lie_one_below_the_other_with_rows_that_scales_cannot_hold():
    draw = Draw(CPU, 9)
    values = draw.normal(50, 64).numpy()
    values[[0, 20, 21, 49]] *= np.float32(1e-9)
    kept = quantize_rows((50, 64), "q4", lambda rows: Plain(values[rows], "f32"))
    assert kept.kept is not None
    parts = (
        weight("bf16", (3, 64), draw),
        kept,
        stored("IQ4_NL", 5, draw.generator),
        weight("q8", (4, 64), draw),
    )
    matrix = place(parts, CPU)
    assert [block.format for block in matrix.blocks].count("f32") == 4, "three runs of rows and one of q8"
    whole = np.concatenate([dequantize(canonical(part)) for part in parts])
    assert np.array_equal(embedding(matrix, torch.arange(62, dtype=torch.int32)).numpy(), whole)
    x = draw.normal(3, 64)
    result = linear(x, matrix, None, 2)
    assert np.allclose(result.numpy(), x.numpy() @ whole.T, rtol=0, atol=0.05 * np.abs(whole).max())
    blocks = [parts[0], *blocks_of_rows(kept), *parts[2:]]
    alone = [linear(x, place((block,), CPU), None, 2) for block in blocks]
    assert torch.equal(result, torch.cat(alone, dim=1))


def test_neighbours_in_one_format_become_one_block():
    draw = Draw(CPU, 10)
    parts = [stored("Q4_K", rows, draw.generator) for rows in (7, 3, 9)]
    (block,) = place(tuple(parts), CPU).blocks
    assert (block.outputs, block.inputs) == (19, 512)
    assert np.array_equal(
        block.read(slice(None)).numpy(), np.concatenate([dequantize(canonical(p)) for p in parts])
    )


@pytest.mark.parametrize("type", BLOCKS)
def test_every_type_of_a_file_is_placed_with_the_values_that_it_stands_for(type):
    part = random_blocks(np.random.default_rng(1), type, 5, 256)
    matrix = place((part,), CPU)
    assert np.array_equal(matrix.blocks[0].read(slice(None)).numpy(), dequantize(canonical(part)))


@pytest.mark.parametrize("type", ["Q4_K", "Q8_0", "IQ2_XXS", "F16"])
def test_values_that_are_not_finite_are_refused_by_name(type):
    weight = random_blocks(np.random.default_rng(1), type, 9, 256)
    put(weight.data[5:6, None], 0, np.array([[np.inf]]))
    with pytest.raises(ValueError, match="tensor 'w': row 5 holds a value that is not finite"):
        place((weight,), CPU)


def test_spans_depend_on_the_matrix_alone_and_are_whole_super_blocks():
    for outputs in (1, 64, 1000, 4096, 6144, 28672, 128256):
        for inputs in (1, 33, 576, 1536, 4096, 14336):
            span = span_of(outputs, inputs)
            assert span % STEP == 0
            assert span >= min(inputs, 512)
            assert outputs < 16384 or span >= inputs, "tall matrices keep a GPU busy without"
    assert span_of(4096, 4096) == 1024


def test_no_rows_are_no_work():
    draw = Draw(CPU, 11)
    for kind in ("q8", "f32"):
        matrix = place((weight(kind, (5, 64), draw),), CPU)
        assert linear(torch.empty(0, 64), matrix).shape == (0, 5)
        assert embedding(matrix, torch.empty(0, dtype=torch.int32)).shape == (0, 64)


def test_quantized_rows_have_the_integers_of_the_numerics_page():
    from kernels.reference.quantized import quantize_rows as twin

    draw = Draw(CPU, 12)
    x = draw.normal(7, 1100)
    x[1, 5], x[2, 40], x[3, 64:96] = np.nan, -np.inf, 1e-31
    for planes in (1, 2):
        result, expected = quantize(x, planes), twin(x.numpy(), planes)
        numbers = result.numbers.int().numpy()
        joined = numbers[0] * 256 + numbers[1] if planes == 2 else numbers[0]
        assert np.array_equal(joined, expected.integers)
        assert np.array_equal(result.scales.numpy().T, expected.scales, equal_nan=True)
        assert np.array_equal(result.sums.numpy()[:, 0].T, expected.sums, equal_nan=True)
        assert np.array_equal(result.sums.numpy()[:, 1:].transpose(2, 0, 1), expected.halves, equal_nan=True)


def test_a_matrix_with_a_factor_is_held_as_the_values_that_are_meant():
    """Of a few files of NVFP4; the kernels of its format know none."""
    plain = stored("NVFP4", 5, np.random.default_rng(4))
    matrix = place((replace(plain, factor=0.37), plain), CPU)
    values = [dequantize(canonical(plain)) * np.float32(0.37), dequantize(canonical(plain))]
    got = np.concatenate([block.read(slice(None)).numpy() for block in matrix.blocks])
    assert np.array_equal(got, np.concatenate(values))


@pytest.mark.parametrize("kind", PLAIN)
def test_products_of_the_vendor_are_those_of_the_twin_as_nearly_as_the_weights_arithmetic_allows(kind):
    draw = Draw(CPU, 31)
    matrix = place((weight(kind, (70, 200), draw), weight(kind, (9, 200), draw)), CPU)
    x, bias = draw.normal(19, 200), draw.normal(79)
    x[3] *= 1e6  # beyond float16
    found, want = vendor.linear(x, matrix, bias), linear_twin(x, matrix, bias)
    worst = ((found - want).abs() / want.abs().amax(1, keepdim=True)).max()
    assert worst < {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}[kind]


def test_products_with_packed_weights_are_the_backend_s_own_also_beside_those_of_the_vendor():
    draw = Draw(CPU, 32)
    matrix = place((weight("q4", (40, 64), draw), weight("bf16", (9, 64), draw)), CPU)
    x = draw.normal(3, 64)
    assert torch.equal(vendor.linear(x, matrix, None, 2), linear(x, matrix, None, 2))


@pytest.mark.parametrize("exact", [True, False])
def test_a_backend_that_takes_products_of_the_vendor_does_not_call_itself_exact(exact, monkeypatch):
    monkeypatch.setattr(TritonBackend, "_look", lambda self, known: Finding({}))
    backend = TritonBackend(BackendSettings(device="cpu", exact=exact))
    assert backend.exact is exact
    assert backend.replaced == ()
    calls = []
    monkeypatch.setattr(vendor, "_product", lambda x, w: calls.append(len(x)) or x @ w.float().T)
    draw = Draw(CPU, 33)
    matrix = backend.place_matrix(weight("bf16", (5, 32), draw))
    backend._use["linear"](draw.normal(2, 32), matrix, None, 1)
    assert calls == ([] if exact else [2])
