"""Mixtures of experts: the reference's routing, every pair computed once, and a row that knows no other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.interface import Experts, Routing
from kernels.reference import experts as reference
from kernels.triton.experts import mixture, mixture_twin
from kernels.triton.kernel import Draw
from kernels.triton.matrix import place
from kernels.triton.routing import route
from kernels.triton.trials import weight

CPU = torch.device("cpu")


def experts_of(draw, count, width, hidden, formats, *, biases=False):
    """Experts whose halves and down matrices take the formats by turns."""
    turns = iter(formats * 3 * count)
    gate_up, down = [], []
    for _ in range(count):
        halves = [weight(next(turns), (hidden, width), draw) for _ in range(2)]
        gate_up.append(place(tuple(halves), CPU))
        down.append(place((weight(next(turns), (width, hidden), draw),), CPU))
    own = (draw.normal(count, 2 * hidden), draw.normal(count, width)) if biases else (None, None)
    return Experts(tuple(gate_up), tuple(down), *own, draw.normal(count) if biases else None)


def logits_of(draw, rows, count):
    """In steps, so that some are equal."""
    return (draw.normal(rows, count) * 3).round() / 2


@pytest.mark.parametrize(
    ("count", "rows", "routing", "preferred"),
    [
        (2, 1, Routing(2), False),
        (5, 65, Routing(2, "all"), False),
        (128, 33, Routing(8), False),
        (3, 200, Routing(1), False),
        (40, 3, Routing(19), False),
        (1, 9, Routing(1, "all", "sigmoid"), False),
        (65, 33, Routing(8, "chosen", "sigmoid"), True),
        (5, 20, Routing(2, "all"), True),
    ],
)
def test_rows_are_routed_as_the_reference_does(count, rows, routing, preferred):
    draw = Draw(CPU, 1)
    logits = logits_of(draw, rows, count)
    logits[0, 0] = -torch.inf
    if rows > 2 and count > 1:
        logits[1, 1], logits[2] = torch.nan, -torch.inf
        logits[2, -1] = 0
    nbytes = draw.integers(1, 1000, count).long()
    preference = draw.normal(count) if preferred else None
    routed = route(logits, None, preference, routing, nbytes)
    chosen, weights = reference.route(logits, routing, preference)
    assert torch.allclose(routed.weights, weights, rtol=1e-6, atol=0, equal_nan=True)
    assert int(routed.nbytes) == int(nbytes[chosen.unique()].sum())
    found = {}
    for tile, expert in zip(routed.order.view(-1, routed.tile).tolist(), routed.tiles.tolist(), strict=True):
        pairs = [pair for pair in tile if pair >= 0]
        assert (expert < 0) == (not pairs), "tiles are whole, and one expert's"
        found.update(dict.fromkeys(pairs, expert))
        assert pairs == sorted(pairs)
    assert [found[pair] for pair in range(rows * routing.used)] == chosen.flatten().tolist()


def test_factors_multiply_the_weights():
    draw = Draw(CPU, 2)
    logits, factors = draw.normal(7, 6), draw.normal(6)
    chosen, weights = reference.route(logits, Routing(3))
    routed = route(logits, factors, None, Routing(3), torch.ones(6, dtype=torch.int64))
    assert torch.allclose(routed.weights, weights * factors[chosen], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("count", "width", "hidden", "rows", "formats", "routing", "gate", "biases"),
    [
        (4, 64, 32, 19, ["q4"], Routing(2), "silu", False),
        (5, 33, 45, 7, ["bf16", "q8"], Routing(3, "all"), "clamped", True),
        (3, 40, 64, 2, ["q4", "nf4", "f32", "q8", "f16"], Routing(2, "all"), "gelu_tanh", True),
    ],
)
def test_a_mixture_is_the_reference_s_and_a_row_of_it_that_row_alone(
    count, width, hidden, rows, formats, routing, gate, biases
):
    draw = Draw(CPU, 3)
    experts = experts_of(draw, count, width, hidden, formats, biases=biases)
    x, logits = draw.normal(rows, width), logits_of(draw, rows, count)
    together, twin = (f(x, logits, experts, routing, gate) for f in (mixture, mixture_twin))
    assert (together.rows - twin.rows).abs().max() <= 2e-6 * twin.rows.abs().max()
    assert int(together.expert_bytes) == int(twin.expert_bytes) > 0
    poisoned = x.clone()
    poisoned[0] = torch.nan
    for row in (rows - 1, rows // 2):
        alone = mixture(x[row : row + 1], logits[row : row + 1], experts, routing, gate)
        assert torch.equal(alone.rows[0], together.rows[row])
    if rows > 2:
        assert torch.equal(mixture(poisoned, logits, experts, routing, gate).rows[1:], together.rows[1:])


def test_experts_of_a_model_that_was_closed_are_forgotten():
    from kernels.triton.experts import _KNOWN

    draw = Draw(CPU, 4)
    before = len(_KNOWN)
    experts = experts_of(draw, 2, 8, 8, ["f32"])
    result = mixture(draw.normal(1, 8), draw.normal(1, 2), experts, Routing(1), "silu")
    assert len(_KNOWN) == before + 1
    assert mixture(draw.normal(0, 8), draw.normal(0, 2), experts, Routing(1), "silu").rows.shape == (0, 8)
    del experts
    assert len(_KNOWN) == before
    assert np.isfinite(result.rows.numpy()).all()
