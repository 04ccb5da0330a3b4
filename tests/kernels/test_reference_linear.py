"""Matrix products: right, and a row's bits the same in any company."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.reference.linear import linear, products

pytestmark = pytest.mark.usefixtures("torch_threads")

SEED = 20

SHAPES = [(1, 64), (96, 64), (576, 1536), (50, 33), (5, 3)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def normal(*shape: int, seed: int = SEED) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_linear_multiplies(outputs, inputs, dtype):
    x, weight = normal(21, inputs), normal(outputs, inputs, seed=1).to(dtype)
    found = linear(x, weight)
    assert found.dtype == torch.float32
    assert found.shape == (21, outputs)
    exact = x.to(dtype).double() @ weight.double().T
    digits = {torch.float32: 1e-6, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[dtype]
    assert (found - exact).abs().max() < digits * 4 * inputs**0.5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_rows_have_the_same_bits_at_every_count_order_and_thread_count(outputs, inputs, dtype, torch_threads):
    x, weight = normal(40, inputs), normal(outputs, inputs, seed=1).to(dtype)
    draw = np.random.default_rng(SEED)
    whole = linear(x, weight)
    for threads in (1, 2):
        torch_threads(threads)
        for rows in range(1, 41) if dtype is torch.float32 else (1, 2, 5, 16, 17, 40):
            chosen = torch.from_numpy(draw.permutation(40)[:rows])
            assert torch.equal(linear(x[chosen], weight), whole[chosen]), f"{rows} rows, {threads=}, {SEED=}"


def test_torch_itself_does_not_hold_this():
    """Why there are tiles. A torch that passes without them would make them needless on that machine only."""
    x, weight = normal(16, 576), normal(960, 576, seed=1)
    plain = [torch.nn.functional.linear(x[:rows], weight)[0] for rows in range(1, 17)]
    if all(torch.equal(row, plain[0]) for row in plain):
        pytest.skip("this BLAS does not pick its kernel by the number of rows")
    tiled = [linear(x[:rows], weight)[0] for rows in range(1, 17)]
    assert all(torch.equal(row, tiled[0]) for row in tiled)


def test_no_rows_give_no_rows():
    for dtype in DTYPES:
        assert linear(normal(0, 8), normal(5, 8).to(dtype)).shape == (0, 5)


def test_nan_and_infinity_stay_in_their_row():
    x, weight = normal(20, 64), normal(96, 64, seed=1)
    whole = linear(x, weight)
    x[3], x[17, 5] = torch.nan, torch.inf
    broken = linear(x, weight)
    sound = [row for row in range(20) if row not in (3, 17)]
    assert torch.equal(broken[sound], whole[sound])
    assert broken[3].isnan().all()
    assert not broken[17].isfinite().any()


@pytest.mark.parametrize("tiles", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [1, 3, 6])
def test_products_multiply_every_tile_alone(n, tiles):
    a, b = normal(n, tiles, 4, 64), normal(n, 64, 128, seed=1)
    found = products(a, b)
    torch.testing.assert_close(found, a @ b[:, None], rtol=1e-4, atol=1e-4)
    for i in range(n):
        for tile in range(tiles):
            alone = products(a[i : i + 1, tile : tile + 1], b[i : i + 1])
            assert torch.equal(found[i, tile], alone[0, 0])
    out = torch.empty_like(found)
    assert products(a, b, out=out) is out
    assert torch.equal(out, found)


def test_rows_beyond_float16_keep_their_precision_and_leave_others_alone():
    x, weight = normal(20, 64), normal(96, 64, seed=1).half()
    whole = linear(x, weight)
    large = x.clone()
    large[3] *= 1e7
    large[9] *= 4000
    found = linear(large, weight)
    others = [row for row in range(20) if row not in (3, 9)]
    assert torch.equal(found[others], whole[others])
    exact = large.double() @ weight.double().T
    assert ((found - exact).abs().amax(1) <= 2.0**-9 * exact.abs().amax(1)).all()
    assert torch.equal(linear(large[3:4], weight)[0], found[3])
