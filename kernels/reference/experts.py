"""Mixtures of experts in plain torch: routing, and each expert for the rows that chose it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..arithmetic import gated
from ..interface import Experts, Gate, Routing
from .linear import linear
from .numerics import exp, tree_sum


class Mixed(NamedTuple):
    """Results of all rows [rows, width], and bytes of the experts that were read for them."""

    rows: Tensor
    expert_bytes: int


def route(logits: Tensor, routing: Routing, preference: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Experts of each row, from the first choice on, int64 [rows, used], and their weights, float32."""
    if routing.scores == "sigmoid":
        scores = 1 / (exp(-logits) + 1)
    elif preference is not None:
        scores = exp(logits - logits.max(dim=1, keepdim=True).values)
        scores = scores / tree_sum(scores)
    else:
        chosen = _chosen(logits, routing.used)
        logits = logits - logits.gather(1, chosen[:, :1])
        weights = exp(logits.gather(1, chosen))
        return chosen, weights / (tree_sum(exp(logits)) if routing.weights == "all" else _sum(weights))
    chosen = _chosen(scores if preference is None else scores + preference, routing.used)
    weights = scores.gather(1, chosen)
    return chosen, weights if routing.weights == "all" else weights / _sum(weights)


def _chosen(keys: Tensor, used: int) -> Tensor:
    keys = torch.where(keys.isnan(), torch.inf, keys)
    return keys.sort(dim=1, descending=True, stable=True).indices[:, :used]


def _sum(weights: Tensor) -> Tensor:
    """Of each row, from its first choice on."""
    total = weights[:, :1]
    for i in range(1, weights.shape[1]):
        total = total + weights[:, i : i + 1]
    return total


def mixture(
    x: Tensor,
    logits: Tensor,
    experts: Experts,
    routing: Routing,
    gate: Gate,
    product: Callable[[Tensor, Any], Tensor] = linear,
) -> Mixed:
    """`Operations.experts`. product: of rows and an expert's matrix."""
    chosen, weights = route(logits, routing, experts.preference)
    if experts.scales is not None:
        weights = weights * experts.scales[chosen]
    results = x.new_empty(*chosen.shape, x.shape[1])
    nbytes = 0
    for expert in sorted(set(chosen.flatten().tolist())):
        rows, ranks = (chosen == expert).nonzero(as_tuple=True)
        gate_up, down = experts.gate_up[expert], experts.down[expert]
        nbytes += gate_up.nbytes + down.nbytes
        hidden = product(x[rows], gate_up)
        if experts.gate_up_bias is not None:
            hidden = hidden + experts.gate_up_bias[expert]
        first, second = hidden.chunk(2, dim=1)
        result = product(gated(gate, first, second, exp), down)
        if experts.down_bias is not None:
            result = result + experts.down_bias[expert]
        results[rows, ranks] = result
    total = results[:, 0] * weights[:, :1]
    for i in range(1, routing.used):
        total = total + results[:, i] * weights[:, i : i + 1]
    return Mixed(total, nbytes)
