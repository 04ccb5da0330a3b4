import numpy as np
import pytest

from kernels.formats import FORMATS
from kernels.reference.quantized import quantize_rows
from kernels.reference.quantized_backend import QuantizedBackend
from random_weights import fitting

FORMS = tuple(FORMATS)
PACKED = tuple(name for name, form in FORMATS.items() if form.packed)


def product(parts, bias=None, planes=1):
    def make(backend):
        matrix = backend.place_matrix(*parts)
        vector = None if bias is None else backend.place_vector(bias)
        return lambda ops, x, inputs: ops.linear(x, matrix, vector, planes=planes)

    return make


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_products_equal_the_twin_bit_for_bit_on_every_instruction_set(native, isas, helpers, form, planes):
    rng = np.random.default_rng(7)
    for outputs, least, rows in ((16, 32, 1), (48, 96, 5), (33, 100, 9), (1, 31, 3), (80, 576, 33)):
        columns = fitting(form, least)
        weight = helpers.weight(rng, form, outputs, columns)
        x = rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(3)
        bias = rng.standard_normal(outputs).astype(np.float32)
        make = product([weight], bias, planes)
        twin = QuantizedBackend()
        expected = helpers.compute(twin, x, make(twin))
        for isa in isas:
            backend = native(isa)
            assert helpers.same_bits(helpers.compute(backend, x, make(backend)), expected), (
                isa,
                outputs,
                columns,
            )


def test_blocks_of_rows_in_different_formats_form_one_matrix(native, isas, helpers):
    rng = np.random.default_rng(8)
    parts = [
        helpers.weight(rng, form, n, 70)
        for form, n in (("q4", 20), ("f32", 7), ("q8", 33), ("bf16", 16), ("f16", 1))
    ]
    x = rng.standard_normal((6, 70)).astype(np.float32)
    make = product(parts, rng.standard_normal(77).astype(np.float32), 2)
    twin = QuantizedBackend()
    expected = helpers.compute(twin, x, make(twin))
    for isa in isas:
        backend = native(isa)
        assert helpers.same_bits(helpers.compute(backend, x, make(backend)), expected), isa


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_row_has_the_same_bits_among_any_number_of_rows(native, isas, helpers, form):
    rng = np.random.default_rng(9)
    weight = helpers.weight(rng, form, 40, fitting(form, 64))
    x = rng.standard_normal((33, weight.shape[1])).astype(np.float32)
    for isa in isas:
        backend = native(isa)
        make = product([weight])(backend)
        whole = helpers.compute(backend, x, make)
        for rows in range(1, 33):
            assert helpers.same_bits(helpers.compute(backend, x[:rows], make), whole[:rows]), (isa, rows)
            assert helpers.same_bits(helpers.compute(backend, x[rows:], make), whole[rows:]), (isa, rows)


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("form", PACKED)
def test_any_number_of_rows_on_any_threads_and_instructions(native, isas, helpers, form, planes):
    """Blocks of 16 rows and what is left of them, more groups than are unpacked at a time."""
    rng = np.random.default_rng(16)
    weight = helpers.weight(rng, form, 37, fitting(form, 50 * 32 + 5))
    x = rng.standard_normal((40, weight.shape[1])).astype(np.float32)
    twin = QuantizedBackend()
    expected = helpers.compute(twin, x, product([weight], None, planes)(twin))
    for isa in isas:
        for threads in (1, 2):
            backend = native(isa, threads)
            make = product([weight], None, planes)(backend)
            for rows in range(1, 41) if isa == "amx" else (1, 7, 16, 17, 40):
                found = helpers.compute(backend, x[:rows], make)
                assert helpers.same_bits(found, expected[:rows]), (isa, threads, rows)


def test_extreme_codes_and_activations_do_not_saturate(native, isas, helpers):
    from kernels.weights import Packed

    rng = np.random.default_rng(10)
    codes = rng.choice(np.array([-128, 127], np.int8), (16, 2, 32))
    codes[0], codes[1] = -128, 127
    weight = Packed("q8", (16, 64), codes, np.ones((16, 2), np.float16))
    x = rng.choice(np.array([-1, 1], np.float32), (16, 64))
    x[0], x[1] = -1, 1
    for planes in (1, 2):
        rows = quantize_rows(x, planes)
        exact = np.einsum("mgi,ngi->mng", rows.integers.astype(np.int64), codes.astype(np.int64))
        top = 127 if planes == 1 else 32639
        assert abs(exact).max() == 32 * 128 * top
        for isa in isas:
            backend = native(isa)
            got = helpers.compute(backend, x, product([weight], None, planes)(backend))
            assert np.allclose(got, (exact / top).sum(axis=2), rtol=1e-6, atol=1e-2), isa


def test_the_low_plane_never_holds_minus_128(helpers):
    """AVX2 multiplies by the sign of a code, and -(-128) is not an int8."""
    x = np.linspace(-1, 1, 32 * 2000, dtype=np.float32).reshape(-1, 32)
    integers = quantize_rows(x, 2).integers
    high = (integers + 128) >> 8
    assert np.abs(integers - 256 * high).max() == 127


def test_zero_and_tiny_and_broken_groups(native, isas, helpers):
    rng = np.random.default_rng(11)
    weight = helpers.weight(rng, "q4", 16, 64)
    x = rng.standard_normal((6, 64)).astype(np.float32)
    x[0] = 0
    x[1, :32] = 1e-40
    x[2, 5] = np.nan
    x[3, 40] = np.inf
    x[4, :32] = 3e38
    twin = QuantizedBackend()
    with np.errstate(all="ignore"):
        expected = helpers.compute(twin, x, product([weight])(twin))
    assert not expected[0].any()
    assert np.isnan(expected[2]).all()
    assert np.isnan(expected[3]).all()
    for isa in isas:
        backend = native(isa)
        got = helpers.compute(backend, x, product([weight])(backend))
        fine = [0, 1, 4, 5]
        assert helpers.same_bits(got[fine], expected[fine]), isa
        assert np.isnan(got[[2, 3]]).all()


def test_a_residual_is_added_in_the_product(native, helpers):
    rng = np.random.default_rng(12)
    weight = helpers.weight(rng, "q4", 33, 33)
    x = rng.standard_normal((5, 33)).astype(np.float32)
    twin = QuantizedBackend()

    def residual(backend):
        matrix = backend.place_matrix(weight)
        return lambda ops, v, inputs: ops.add(v, ops.linear(v, matrix))

    expected = helpers.compute(twin, x, residual(twin))
    backend = native()
    assert helpers.same_bits(helpers.compute(backend, x, residual(backend)), expected)


@pytest.mark.parametrize("form", PACKED)
@pytest.mark.parametrize("planes", [1, 2])
def test_gate_and_up_are_one_operation_with_the_same_bits(native, isas, helpers, form, planes):
    """Quantized in the product itself, where it can be: what follows reads only the quantized rows."""
    rng = np.random.default_rng(15)
    columns = fitting(form, 70)
    gate, up = (helpers.weight(rng, form, 64, columns) for _ in range(2))
    down = helpers.weight(rng, "q8", 33, 64)
    bias = rng.standard_normal(128).astype(np.float32)
    x = rng.standard_normal((37, columns)).astype(np.float32)

    def make(backend):
        first, last = backend.place_matrix(gate, up), backend.place_matrix(down)
        vector = backend.place_vector(bias)
        return lambda ops, v, inputs: ops.linear(ops.gated(ops.linear(v, first, vector, planes=planes)), last)

    twin = QuantizedBackend()
    expected = helpers.compute(twin, x, make(twin))
    for isa in isas:
        backend = native(isa)
        mlp = make(backend)
        for rows in (1, 8, 12, 13, 16, 20, 37):
            assert helpers.same_bits(helpers.compute(backend, x[:rows], mlp), expected[:rows]), (isa, rows)


@pytest.mark.parametrize("form", FORMS)
def test_one_matrix_serves_embedding_and_product(native, isas, helpers, form):
    rng = np.random.default_rng(13)
    weight = helpers.weight(rng, form, 37, fitting(form, 50))

    def forward(backend):
        table = backend.place_matrix(weight)
        return lambda ops, inputs: ops.sample(
            ops.gather(ops.linear(ops.embedding(table, inputs.tokens), table), inputs.sample_rows),
            inputs.sampling,
        )

    batch = helpers.batch([(list(range(37)), 0, [0] * 2)])
    twin = QuantizedBackend()
    expected = helpers.step(twin, forward(twin), batch)
    for isa in isas:
        backend = native(isa)
        assert helpers.same_bits(helpers.step(backend, forward(backend), batch), expected), isa


def test_strided_and_unaligned_sources_are_read_as_they_are(native, helpers):
    """GGUF blocks: scale, minimum and codes side by side, at any address."""
    from kernels.weights import Packed

    rng = np.random.default_rng(14)
    block = np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])
    blocks = np.zeros((8, 3), block)
    blocks["d"], blocks["m"] = rng.random((8, 3)), rng.random((8, 3))
    blocks["q"] = rng.integers(0, 256, (8, 3, 16))
    memory = np.zeros(blocks.nbytes + 1, np.uint8)
    memory[1:] = np.frombuffer(blocks.tobytes(), np.uint8)
    views = np.frombuffer(memory.data, block, 24, 1).reshape(8, 3)
    packed = Packed("q4", (8, 96), views["q"], views["d"], views["m"])
    x = rng.standard_normal((3, 96)).astype(np.float32)
    twin = QuantizedBackend()
    expected = helpers.compute(twin, x, product([packed])(twin))
    backend = native()
    assert helpers.same_bits(helpers.compute(backend, x, product([packed])(backend)), expected)
