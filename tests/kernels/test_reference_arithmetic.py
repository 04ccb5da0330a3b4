"""exp32 and what is made of it, cosine_sine and tree_sum: error bounds, edges, the same bits everywhere."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch

from kernels.arithmetic import cosine_sine, exp32, gated, gelu, gelu_tanh, silu, tanh32
from kernels.reference.numerics import PIECE, exp, exp_, tree_sum

pytestmark = pytest.mark.usefixtures("torch_threads")


def bits(values) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.int32)


def test_exp_is_within_the_promised_error_of_the_exact_value():
    draw = np.random.default_rng(1)
    x = np.concatenate([draw.uniform(-87.3, 88, 300_000), draw.uniform(-1, 1, 300_000)]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    error = np.abs(exp32(x) - exact) / np.spacing(exact.astype(np.float32))
    assert error.max() < 1.2


def test_exp_of_the_edges():
    x = np.array([0.0, -0.0, -87.8, -88.0, -1e30, -np.inf, 88.0, 88.1, 1e30, np.inf, np.nan], np.float32)
    y = exp32(x)
    assert y[:2].tolist() == [1.0, 1.0]
    assert bits(y[2:6]).tolist() == [0, 0, 0, 0], "+0, not -0 and no denormal"
    assert y[6:10] == pytest.approx([math.exp(88)] * 4, rel=1e-6)
    assert np.isnan(y[10])


def test_exp_leaves_its_argument_alone_and_keeps_the_shape():
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    before = x.copy()
    assert exp32(x).shape == (3, 4)
    assert exp32(x).dtype == np.float32
    np.testing.assert_array_equal(x, before)
    tensor = torch.from_numpy(x)
    assert exp32(tensor, torch.int32).shape == (3, 4)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("largest", [1, 100, 2**20])
def test_cosine_and_sine_are_within_the_promised_error(largest):
    x = np.random.default_rng(3).uniform(-largest, largest, 200_000)
    x[:9] = np.arange(-4, 5) * (math.pi / 4) * min(largest, 1)
    cosine, sine = cosine_sine(x)
    # The library's have an error of 2^-53 themselves.
    assert np.abs(cosine - np.cos(x)).max() < 2.0**-52 + 2.0**-53
    assert np.abs(sine - np.sin(x)).max() < 2.0**-52 + 2.0**-53


def test_cosine_and_sine_have_the_same_bits_on_every_machine():
    """Seen on x86-64 with and without AVX-512 and AVX2, and on aarch64."""
    x = np.arange(-100_000, 100_000) * 0.375
    digest = hashlib.sha256(b"".join(values.tobytes() for values in cosine_sine(x))).hexdigest()
    assert digest == "2ee37366018c455eb03503d436a64453e7d1ca02a18e746334b06085474cc454"


@pytest.mark.parametrize("threads", [1, 2])
def test_exp_has_the_same_bits_in_numpy_and_torch_at_every_size_and_offset(threads, torch_threads):
    torch_threads(threads)
    draw = np.random.default_rng(2)
    x = np.concatenate([draw.uniform(-90, 90, 70_000), [np.nan, np.inf, -np.inf, 1e-40]]).astype(np.float32)
    whole = bits(exp32(x))
    np.testing.assert_array_equal(whole, bits(exp32(torch.from_numpy(x), torch.int32).numpy()))
    for size in (*range(1, 40), 63, 64, 65, 1000):
        for offset in (0, 1, 3, 17):
            part = x[offset : offset + size]
            want = whole[offset : offset + size]
            np.testing.assert_array_equal(bits(exp32(part)), want)
            np.testing.assert_array_equal(bits(exp32(torch.from_numpy(part), torch.int32).numpy()), want)


def test_exp_in_place_is_the_same_in_every_piece():
    x = torch.from_numpy(np.random.default_rng(4).uniform(-20, 20, (3, PIECE // 2 + 7)).astype(np.float32))
    want = exp32(x, torch.int32)
    assert exp_(x) is x
    assert torch.equal(x, want)


def around_zero(count: int) -> np.ndarray:
    draw = np.random.default_rng(5)
    parts = [draw.uniform(-width, width, count) for width in (12, 1, 1e-3)]
    edges = [0.0, 0.625, -0.625, 1e30, -1e30, np.nan]
    return np.concatenate([*parts, edges]).astype(np.float32)


def test_tanh_is_within_the_promised_error_of_the_exact_value():
    x = around_zero(200_000)
    with np.errstate(over="ignore", invalid="ignore"):
        y = tanh32(x, exp32)
    exact = np.tanh(x[:-1].astype(np.float64))
    assert (np.abs(y[:-1] - exact) / np.spacing(np.abs(exact).astype(np.float32))).max() < 2
    assert np.isnan(y[-1])
    assert tanh32(np.array([-np.inf, np.inf], np.float32)[:0], exp32).shape == (0,)


def test_gates_are_those_of_the_papers():
    x = around_zero(20_000)[:-3]
    exact = x.astype(np.float64)
    below = np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in exact])
    cubic = math.sqrt(2 / math.pi) * (exact + 0.044715 * exact**3)
    cases = {
        silu: exact / (1 + np.exp(-exact)),
        gelu: exact * below,
        gelu_tanh: exact / 2 * (1 + np.tanh(cubic)),
    }
    for function, want in cases.items():
        found = function(x, exp32)
        assert np.abs(found - want).max() < 2e-6, function
        near = np.abs(exact) < 3
        assert np.allclose(found[near], want[near], rtol=1e-6, atol=0), function


def test_the_clamped_gate_is_gpt_oss_s():
    gate, up = np.meshgrid(np.linspace(-12, 12, 97), np.linspace(-12, 12, 97))
    low, high = np.minimum(gate, 7), np.clip(up, -7, 7)
    want = (high + 1) * low / (1 + np.exp(-1.702 * low))
    found = gated("clamped", gate.astype(np.float32), up.astype(np.float32), exp32)
    assert np.allclose(found, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh", "gelu", "clamped"])
def test_gates_have_the_same_bits_in_numpy_and_torch(kind):
    x, up = around_zero(5000)[:-1], around_zero(5000)[::-1][1:].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        want = gated(kind, x, up, exp32)
        capped = tanh32(x, exp32)
    found = gated(kind, torch.from_numpy(x), torch.from_numpy(up), exp)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(bits(found.numpy())[number], bits(want)[number])
    np.testing.assert_array_equal(bits(tanh32(torch.from_numpy(x), exp).numpy()), bits(capped))


def halving_sum(values: list[np.float32]) -> np.float32:
    """The order of tree_sum, value by value."""
    while len(values) > 1:
        half = (len(values) + 1) // 2
        values = [values[i] + values[half + i] if half + i < len(values) else values[i] for i in range(half)]
    return values[0]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 9, 31, 64, 100, 576, 577])
def test_tree_sum_adds_in_its_order(n):
    x = np.random.default_rng(n).standard_normal((5, n), np.float32)
    want = np.array([[halving_sum(list(row))] for row in x])
    np.testing.assert_array_equal(bits(tree_sum(torch.from_numpy(x)).numpy()), bits(want))
    assert x.sum(1).tolist() == pytest.approx(want[:, 0].tolist(), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_tree_sum_of_a_row_does_not_depend_on_the_others(threads, torch_threads):
    torch_threads(threads)
    x = torch.from_numpy(np.random.default_rng(3).standard_normal((300, 576), np.float32))
    whole = tree_sum(x)
    for rows in (1, 2, 3, 7, 40):
        assert torch.equal(tree_sum(x[11 : 11 + rows]), whole[11 : 11 + rows])
    assert torch.equal(tree_sum(x.view(300, 9, 64).transpose(0, 1))[4], tree_sum(x.view(300, 9, 64)[:, 4]))
