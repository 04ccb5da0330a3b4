"""Blocks as files store them, repacked by the library: the same bits and the same refusals as by numpy."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from kernels.formats import ARRAYS, BLOCKS, FORMATS
from kernels.native.library import STORED_NUMBERS
from kernels.reference.quantized_backend import QuantizedBackend
from kernels.stored import canonical
from kernels.weights import Packed, Plain, Stored, blocks_of_rows, dequantize
from stored_blocks import FLOATS, put, random_blocks

PACKED = sorted(type for type, block in BLOCKS.items() if FORMATS[block.format].packed)
COLUMNS = 512
ODD = np.array([0, -0.0, 6e-8, -6e-7, 1e-5, 3e-4, -0.02, 0.3, 7, -40], np.float16)


def with_numbers(stored: Stored, choose) -> Stored:
    """The blocks with other float16 numbers: choose(rows, blocks) for each place."""
    data = stored.data.reshape(stored.shape[0], -1, BLOCKS[stored.type].nbytes).copy()
    for at in FLOATS.get(stored.type, ()):
        put(data, at, choose(*data.shape[:2]))
    return Stored(stored.type, stored.shape, data.reshape(stored.data.shape), stored.name)


def values_and_products(backend, helpers, *parts):
    """Every row as it is read, and its products with some rows."""
    columns, rows = parts[0].shape[1], sum(part.shape[0] for part in parts)
    matrix = backend.place_matrix(*parts)

    def read(ops, inputs):
        value = ops.embedding(matrix, inputs.tokens)
        return ops.sample(ops.gather(value, inputs.sample_rows), inputs.sampling)

    read_rows = helpers.step(backend, read, helpers.batch([(list(range(rows)), 0, [0] * 64)]))
    x = np.random.default_rng(1).standard_normal((5, columns)).astype(np.float32)
    return read_rows, helpers.compute(backend, x, lambda ops, v, _: ops.linear(v, matrix, planes=2))


def check_equal(native, helpers, *parts, isas=("auto",), threads=2):
    expected = values_and_products(QuantizedBackend(), helpers, *parts)
    for isa in isas:
        results = values_and_products(native(isa, threads), helpers, *parts)
        for got, want in zip(results, expected, strict=True):
            assert helpers.same_bits(got, want), (isa, [part.type for part in parts])


@pytest.mark.parametrize("type", PACKED)
def test_blocks_of_every_type_become_the_same_bits(native, isas, helpers, type):
    rng = np.random.default_rng(20)
    for rows, columns in ((1, 256), (37, COLUMNS)):
        stored = random_blocks(rng, type, rows, columns)
        values, _ = values_and_products(native(), helpers, stored)
        assert values.any(axis=1).all(), "these are cases where it matters"
        check_equal(native, helpers, stored, isas=isas)


def test_factors_of_matrices_are_of_their_values_and_products(native, isas, helpers):
    """With a bias, with a residual, and in a pair of which one gates the other."""
    rng, factors = np.random.default_rng(21), (0.37, 1.0, -2.6, 1e-3)
    parts, narrow = (
        [replace(random_blocks(rng, "NVFP4", rows, COLUMNS), factor=factor) for factor in factors]
        for rows in (32, 9)
    )
    outward = replace(random_blocks(rng, "NVFP4", COLUMNS, 64), factor=0.6)
    bias = rng.standard_normal(128).astype(np.float32)
    x = rng.standard_normal((19, COLUMNS)).astype(np.float32)

    def results(backend):
        matrix, down, pair = (backend.place_matrix(*each) for each in (parts, [outward], parts[1:3]))
        added = backend.place_vector(bias)

        def network(ops, v, _):
            return ops.add(v, ops.linear(ops.gated(ops.linear(v, matrix)), down))

        return (
            *values_and_products(backend, helpers, *narrow),
            helpers.compute(backend, x, lambda ops, v, _: ops.linear(v, matrix, added)),
            helpers.compute(backend, x, network),
            helpers.compute(backend, x, lambda ops, v, _: ops.gated(ops.linear(v, pair))),
        )

    expected = results(QuantizedBackend())
    for isa in isas:
        for got, want in zip(results(native(isa)), expected, strict=True):
            assert helpers.same_bits(got, want), isa


@pytest.mark.parametrize("type", sorted(STORED_NUMBERS))
def test_the_library_repacks_these_types_itself(native, helpers, type):
    stored = random_blocks(np.random.default_rng(21), type, 20, COLUMNS)
    for threads in (1, 2):
        with mock.patch("kernels.native.backend.canonical", side_effect=canonical) as by_numpy:
            check_equal(native, helpers, stored, threads=threads)
        assert all(call.args[0] is not stored for call in by_numpy.call_args_list)


@pytest.mark.parametrize("type", sorted(set(PACKED) & set(FLOATS)))
def test_odd_scales_become_the_same_bits(native, helpers, type):
    """Zeros, both signs, subnormal and large numbers, in a mixture and row by row."""
    rng = np.random.default_rng(22)
    for choose in (
        lambda rows, blocks: rng.choice(ODD, (rows, blocks)),
        lambda rows, blocks: np.repeat(rng.choice(ODD, (rows, 1)), blocks, axis=1),
        lambda rows, blocks: np.zeros((rows, blocks)),
    ):
        check_equal(native, helpers, with_numbers(random_blocks(rng, type, 24, COLUMNS), choose))


@pytest.mark.parametrize("exponents", [(0, 3), (110, 140), (252, 253)])
def test_odd_powers_of_mxfp4_become_the_same_bits(native, helpers, exponents):
    rng = np.random.default_rng(23)
    stored = random_blocks(rng, "MXFP4", 24, COLUMNS)
    stored.data.reshape(24, -1, 17)[..., 0] = rng.integers(*exponents, (24, COLUMNS // 32))
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values_and_products(QuantizedBackend(), helpers, stored)
        values, products = values_and_products(native(), helpers, stored)
    assert helpers.same_bits(values, expected[0])
    finite = np.isfinite(expected[1])
    assert helpers.same_bits(products[finite], expected[1][finite])
    assert not np.isfinite(products[~finite]).any()


@pytest.mark.parametrize("exponent", [253, 255])
def test_powers_beyond_float32_are_refused_by_name(native, exponent):
    stored = random_blocks(np.random.default_rng(29), "MXFP4", 24, COLUMNS)
    stored.data.reshape(24, -1, 17)[7, 1, 0] = exponent
    backend = native()
    backend.place_matrix(stored)
    with pytest.raises(ValueError, match="tensor 'w': row 7 holds a value that is not finite"):
        backend.fill()
    with pytest.raises(ValueError, match="tensor 'w': row 7 holds a value that is not finite"):
        canonical(stored)


def test_rows_too_small_for_float16_scales_are_kept_as_they_are(native, helpers):
    """Of a type without a format of its own."""
    rng = np.random.default_rng(24)
    tiny = np.full((24, 1), 0.01)
    tiny[[3, 4, 17]] = 2.0**-24
    stored = with_numbers(
        random_blocks(rng, "IQ2_S", 24, COLUMNS), lambda _, blocks: tiny.repeat(blocks, axis=1)
    )
    assert len(blocks_of_rows(canonical(stored))) == 5
    check_equal(native, helpers, stored)


@pytest.mark.parametrize("type", ["Q4_0", "Q4_K", "Q6_K"])
def test_what_exceeds_float16_keeps_its_format(native, helpers, type):
    """Only what multiplies is a float16: products may be larger."""
    rng = np.random.default_rng(25)
    large = {"Q4_0": 9000, "Q4_K": 1500, "Q6_K": 60000}[type]
    stored = with_numbers(random_blocks(rng, type, 24, COLUMNS), lambda *shape: np.full(shape, large))
    packed = canonical(stored)
    assert isinstance(packed, Packed)
    assert packed.format == BLOCKS[type].format
    assert np.abs(dequantize(packed)).max() > 65504
    check_equal(native, helpers, stored)


def refusal(place, weight) -> str | None:
    try:
        place(weight)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("type", sorted({*STORED_NUMBERS, "IQ2_S"} & set(FLOATS)))
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 65504])
def test_what_cannot_be_held_is_refused_with_the_same_sentence(native, helpers, type, number):
    stored = random_blocks(np.random.default_rng(26), type, 40, COLUMNS)
    blocks = stored.data.reshape(40, -1, BLOCKS[type].nbytes)
    put(blocks[33:34, 1:2], FLOATS[type][0], np.array([[number]]))
    backend = native()
    sentence = refusal(canonical, stored)

    def place(weight):
        backend.place_matrix(weight)
        backend.fill()

    assert refusal(place, stored) == sentence
    if sentence is None:  # 65504 times the integers of some types is not too large
        assert np.isfinite(number)
        check_equal(native, helpers, stored)
    else:
        assert sentence.startswith("tensor 'w': row 33"), sentence
    # What is placed after it is not harmed.
    other = random_blocks(np.random.default_rng(27), "Q6_K", 24, COLUMNS)
    expected = values_and_products(QuantizedBackend(), helpers, other)
    assert helpers.same_bits(values_and_products(backend, helpers, other)[1], expected[1])


def test_parts_of_different_types_form_one_matrix(native, helpers):
    rng = np.random.default_rng(28)
    types = "Q4_K", "Q6_K", "IQ2_S", "MXFP4", "Q3_K", "Q4_K"
    parts = [random_blocks(rng, type, 9, COLUMNS) for type in types]
    parts.append(canonical(random_blocks(rng, "Q8_0", 5, COLUMNS)))
    expected = values_and_products(QuantizedBackend(), helpers, *parts)
    for got, want in zip(values_and_products(native(), helpers, *parts), expected, strict=True):
        assert helpers.same_bits(got, want)


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("type", sorted(STORED_NUMBERS))
def test_the_largest_integers_do_not_saturate(native, isas, helpers, type, planes):
    """Codes and scales of all ones or none, against rows of the largest magnitude and both signs."""
    rng = np.random.default_rng(30)
    data = random_blocks(rng, type, 16, COLUMNS).data.reshape(16, -1, BLOCKS[type].nbytes)
    data[:] = rng.choice(np.array([0, 255], np.uint8), data.shape)
    data[0], data[1] = 0, 255
    for at in FLOATS.get(type, ()):
        put(data, at, np.ones(data.shape[:2]))
    if type == "MXFP4":
        data[..., 0] = 128
    stored = Stored(type, (16, COLUMNS), data.reshape(16, -1), "tensor 'w'")
    x = rng.choice(np.array([-1, 1], np.float32), (9, COLUMNS))
    x[0], x[1] = -1, 1

    def make(backend):
        matrix = backend.place_matrix(stored)
        return lambda ops, value, _: ops.linear(value, matrix, planes=planes)

    twin = QuantizedBackend()
    expected = helpers.compute(twin, x, make(twin))
    exact = x.astype(np.float64) @ dequantize(canonical(stored)).astype(np.float64).T
    assert np.allclose(expected, exact, rtol=1e-4, atol=1e-3 * np.abs(exact).max())
    for isa in isas:
        backend = native(isa)
        assert helpers.same_bits(helpers.compute(backend, x, make(backend)), expected), isa


@pytest.mark.parametrize("form", ARRAYS)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_arrays_with_scales_that_are_not_finite_are_refused(native, helpers, form, number):
    weight = helpers.packed(np.random.default_rng(31), form, 24, 128)
    weight.scales[9, 1] = number
    backend = native()
    backend.place_matrix(weight)
    with pytest.raises(ValueError, match="row 9 holds a value that is not finite"):
        backend.fill()


@pytest.mark.parametrize("form", ["f32", "f16", "bf16"])
def test_plain_values_are_the_same_however_they_lie_in_memory(native, isas, helpers, form):
    """Row by row, column by column, and with other rows in between; widths that fill no vector, too."""
    rng = np.random.default_rng(32)
    for columns in (1, 7, 8, 45):
        values = helpers.weight(rng, form, 35, columns).values
        turned = values.T.copy().T
        apart = np.repeat(values, 2, axis=0)[::2]
        x = rng.standard_normal((3, columns)).astype(np.float32)

        def product(backend, weight, x=x):
            matrix = backend.place_matrix(weight)
            return helpers.compute(backend, x, lambda ops, v, _: ops.linear(v, matrix))

        for isa in isas:
            products = [product(native(isa), Plain(each, form)) for each in (values, turned, apart)]
            assert products[0].any()
            assert all(helpers.same_bits(product, products[0]) for product in products), (isa, columns)


@pytest.mark.parametrize("form", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_plain_values_that_are_not_finite_are_refused_wherever_they_are(native, isas, helpers, form, number):
    rng = np.random.default_rng(33)
    bits = helpers.weight(rng, form, 20, 45).values
    odd = np.array(number, np.float32).view(np.uint32) >> 16
    for isa in isas:
        for column in (0, 1, 6, 7, 43, 44):
            values = bits.copy()
            values[18, column] = odd if form == "bf16" else number
            backend = native(isa)
            backend.place_matrix(Plain(values, form, "tensor 'w'"))
            with pytest.raises(ValueError, match="tensor 'w': row 18 holds a value that is not finite"):
                backend.fill()
            backend.place_matrix(Plain(values, form))  # nobody asks
            backend.fill()
