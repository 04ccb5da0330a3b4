import numpy as np
import pytest

from kernels.reference.quantized_backend import QuantizedBackend
from kernels.weights import Plain

WIDTHS = (1, 15, 16, 17, 64, 100)


def equal_to_twin(native, isas, helpers, x, make):
    twin = QuantizedBackend()
    expected = helpers.compute(twin, x, make(twin))
    for isa in isas:
        backend = native(isa)
        assert helpers.same_bits(helpers.compute(backend, x, make(backend)), expected), isa
    return expected


@pytest.mark.parametrize("width", WIDTHS)
def test_norm_of_rows(native, isas, helpers, width):
    rng = np.random.default_rng(width)
    x = rng.standard_normal((9, width)).astype(np.float32)
    weight = rng.standard_normal(width).astype(np.float32)

    def make(backend):
        vector = backend.place_vector(weight)
        return lambda ops, v, inputs: ops.rms_norm(v, vector, 1e-5)

    got = equal_to_twin(native, isas, helpers, x, make)
    exact = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-5) * weight
    assert np.allclose(got, exact, rtol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_without_their_mean(native, isas, helpers, width):
    x = (np.random.default_rng(width).standard_normal((9, width)) + 3).astype(np.float32)
    got = equal_to_twin(native, isas, helpers, x, lambda backend: lambda ops, v, inputs: ops.center(v))
    assert np.allclose(got, x - x.astype(np.float64).mean(axis=1, keepdims=True), atol=1e-5)


def test_norm_of_heads(native, isas, helpers):
    rng = np.random.default_rng(1)
    weight = rng.standard_normal(24).astype(np.float32)

    def make(backend):
        vector = backend.place_vector(weight)
        return lambda ops, v, inputs: ops.rms_norm(ops.split(v, (72, 5))[0], vector, 1e-6)

    got = equal_to_twin(native, isas, helpers, rng.standard_normal((3, 77)).astype(np.float32), make)
    assert got.shape == (3, 72)


@pytest.mark.parametrize("width", WIDTHS)
def test_gate(native, isas, helpers, width):
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((5, 2 * width)) * 20).astype(np.float32)
    x[0, :width] = np.linspace(-100, 100, width, dtype=np.float32)
    got = equal_to_twin(native, isas, helpers, x, lambda backend: lambda ops, v, inputs: ops.gated(v))
    gate, up = np.split(x.astype(np.float64), 2, axis=1)
    with np.errstate(over="ignore"):
        assert np.allclose(got, gate / (1 + np.exp(-gate)) * up, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("kind", ["gelu_tanh", "gelu", "clamped"])
@pytest.mark.parametrize("width", [1, 17, 64])
def test_other_gates(native, isas, helpers, kind, width):
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((9, 2 * width)) * 6).astype(np.float32)
    x[0, :width] = np.linspace(-100, 100, width, dtype=np.float32)
    x[1, width:] = np.linspace(-100, 100, width, dtype=np.float32)
    got = equal_to_twin(native, isas, helpers, x, lambda backend: lambda ops, v, inputs: ops.gated(v, kind))
    assert not helpers.same_bits(got, helpers.compute(native(), x, lambda ops, v, inputs: ops.gated(v)))


@pytest.mark.parametrize("width", WIDTHS)
def test_scale_and_cap(native, isas, helpers, width):
    x = (np.random.default_rng(width).standard_normal((5, width)) * 30).astype(np.float32)
    x[0, 0] = 1e30
    got = equal_to_twin(
        native, isas, helpers, x, lambda backend: lambda ops, v, inputs: ops.cap(ops.scale(v, 0.3), 7.5)
    )
    assert np.allclose(got, np.tanh(x.astype(np.float64) * 0.3 / 7.5) * 7.5, rtol=1e-6)


def test_sum(native, isas, helpers):
    x = np.random.default_rng(2).standard_normal((5, 19)).astype(np.float32)
    got = equal_to_twin(
        native, isas, helpers, x, lambda backend: lambda ops, v, inputs: ops.add(v, ops.add(v, v))
    )
    assert helpers.same_bits(got, x + (x + x))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("head_dim", [2, 8, 20, 32, 64, 80])
def test_rotation(native, isas, helpers, layout, head_dim):
    rng = np.random.default_rng(head_dim)
    angles = rng.random((40, head_dim // 2)) * 6
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    x = rng.standard_normal((12, 3 * head_dim)).astype(np.float32)

    def make(backend):
        rotation = backend.place_rotation(cos, sin, layout)
        return lambda ops, v, inputs: ops.rope(v, inputs.positions, rotation)

    got = equal_to_twin(native, isas, helpers, x, make)
    assert np.allclose(np.linalg.norm(got, axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("turning", "head_dim"), [(2, 8), (20, 21), (32, 64), (96, 128)])
def test_rotation_of_the_first_columns_of_a_head(native, isas, helpers, layout, turning, head_dim):
    rng = np.random.default_rng(head_dim)
    angles = rng.random((40, turning // 2)) * 6
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    x = rng.standard_normal((12, 3 * head_dim)).astype(np.float32)

    def make(backend, columns=head_dim):
        rotation = backend.place_rotation(cos, sin, layout)
        return lambda ops, v, inputs: ops.rope(v, inputs.positions, rotation, head_dim=columns)

    got = equal_to_twin(native, isas, helpers, x, make).reshape(12, 3, head_dim)
    heads = x.reshape(12, 3, head_dim)
    assert helpers.same_bits(got[..., turning:], heads[..., turning:])
    first = np.ascontiguousarray(heads[..., :turning]).reshape(12, -1)
    backend = native()
    whole = helpers.compute(backend, first, make(backend, turning))
    assert helpers.same_bits(np.ascontiguousarray(got[..., :turning]).reshape(12, -1), whole)


def test_every_half_is_widened_exactly(native, isas, helpers):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(64, 1024)
    for isa in isas:
        backend = native(isa)
        table = backend.place_matrix(Plain(halves, "f16"))
        got = helpers.step(
            backend,
            lambda ops, inputs, table=table: ops.sample(
                ops.gather(ops.embedding(table, inputs.tokens), inputs.sample_rows), inputs.sampling
            ),
            helpers.batch([(list(range(64)), 0, [0] * 2)]),
        )
        number = ~np.isnan(halves)
        assert (got.view(np.uint32) == halves.astype(np.float32).view(np.uint32))[number].all()
        assert np.isnan(got[~number]).all()


def test_products_with_every_half(native, isas, helpers):
    """The conversion inside the kernels, subnormal numbers included."""
    halves = np.arange(0, 65536, 7, dtype=np.uint16).view(np.float16)
    halves = np.where(np.isfinite(halves), halves, np.float16(0)).reshape(-1, 1)
    x = np.ones((1, 1), np.float32)
    for isa in isas:
        backend = native(isa)
        matrix = backend.place_matrix(Plain(halves, "f16"))
        got = helpers.compute(backend, x, lambda ops, v, inputs, matrix=matrix: ops.linear(v, matrix))
        assert np.array_equal(got[0], halves[:, 0].astype(np.float32))
