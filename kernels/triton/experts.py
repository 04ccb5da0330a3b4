"""Mixtures of experts: routing, and each expert for the rows that chose it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ..interface import Experts, Gate, Routing
from ..reference import experts as reference
from .activations import Quantized, quantize
from .arithmetic import EXACT
from .elementwise import gated
from .kernel import Draw, Kernel, Trial, called_with
from .linear import linear_twin
from .matrix import Block, Matrix, place
from .product import Chosen, multiply
from .routing import Routed, route
from .trials import weight

COLUMNS = 1024
"""Columns of a row that a program adds up."""


class Mixed(NamedTuple):
    """Results of all rows [rows, width], and bytes of the experts that were read: int64 [1] on the device."""

    rows: Tensor
    expert_bytes: Tensor


class _Alike(NamedTuple):
    """Blocks of several experts that only differ in their values. table: int64 [experts], their addresses, 0
    where an expert has none. expert, block: one of them.
    """

    table: Tensor
    expert: int
    block: int


class _Tables(NamedTuple):
    """What a mixture's kernels look up. nbytes: int64 [experts]."""

    gate_up: tuple[_Alike, ...]
    down: tuple[_Alike, ...]
    nbytes: Tensor


_KNOWN: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Tables by the data of the first expert."""


def _alike(matrices: tuple[Matrix, ...]) -> tuple[_Alike, ...]:
    kinds: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    for expert, matrix in enumerate(matrices):
        for index, block in enumerate(matrix.blocks):
            kinds.setdefault((block.format, block.start, block.outputs), []).append((expert, index))
    found = []
    for places in kinds.values():
        addresses = [0] * len(matrices)
        for expert, index in places:
            addresses[expert] = matrices[expert].blocks[index].data.data_ptr()
        found.append(_Alike(torch.tensor(addresses, device=matrices[0].device), *places[0]))
    return tuple(found)


def _tables(experts: Experts) -> _Tables:
    """Made once for a mixture: they cross from main memory."""
    key = experts.gate_up[0].blocks[0].data
    if key not in _KNOWN:
        nbytes = [a.nbytes + b.nbytes for a, b in zip(experts.gate_up, experts.down, strict=True)]
        sizes = torch.tensor(nbytes, device=key.device)
        _KNOWN[key] = _Tables(_alike(experts.gate_up), _alike(experts.down), sizes)
    tables = _KNOWN[key]
    assert isinstance(tables, _Tables)
    return tables


def _products(
    x: Tensor,
    matrices: tuple[Matrix, ...],
    kinds: tuple[_Alike, ...],
    routed: Routed,
    share: int,
    bias: Tensor | None,
) -> Tensor:
    """Each pair's product with its expert's matrix: [pairs, outputs]. share: pairs of each row of x."""
    out = torch.empty(len(x) * share, matrices[0].shape[0], device=x.device)
    quantized: Quantized | None = None
    for kind in kinds:
        block: Block = matrices[kind.expert].blocks[kind.block]
        if not block.plain and quantized is None:
            quantized = quantize(x, 1)
        values = x if block.plain or quantized is None else quantized
        multiply(
            values, block, out, bias, 1, Chosen(kind.table, routed.order, routed.tiles, routed.tile, share)
        )
    return out


@triton.jit
def _combine(results, weights, out, width, USED: tl.constexpr, COLUMNS: tl.constexpr):
    """A row's sum of its experts' results by their weights, from the first choice on."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    for i in tl.static_range(USED):
        weight = tl.load(weights + row * USED + i)
        term = tl.load(results + (row * USED + i) * width + column, mask=column < width, other=0.0) * weight
        total = term if i == 0 else total + term
    tl.store(out + row * width + column, total, mask=column < width)


def mixture(x: Tensor, logits: Tensor, experts: Experts, routing: Routing, gate: Gate) -> Mixed:
    """`Operations.experts`."""
    if not len(x):
        return Mixed(torch.empty_like(x), torch.zeros(1, dtype=torch.int64, device=x.device))
    tables = _tables(experts)
    routed = route(logits, experts.scales, experts.preference, routing, tables.nbytes)
    hidden = _products(x, experts.gate_up, tables.gate_up, routed, routing.used, experts.gate_up_bias)
    results = _products(gated(hidden, gate), experts.down, tables.down, routed, 1, experts.down_bias)
    width = results.shape[1]
    out = torch.empty(len(x), width, device=x.device)
    _combine[len(x), -(-width // COLUMNS)](
        results, routed.weights, out, width, USED=routing.used, COLUMNS=COLUMNS, **EXACT
    )
    return Mixed(out, routed.nbytes)


def mixture_twin(x: Tensor, logits: Tensor, experts: Experts, routing: Routing, gate: Gate) -> Mixed:
    """The same in plain torch, which looks at the choices on the host."""
    rows, nbytes = reference.mixture(x, logits, experts, routing, gate, linear_twin)
    return Mixed(rows, torch.tensor([nbytes], device=x.device))


def _trials(draw: Draw) -> Iterator[Trial]:
    """Experts of several formats, with all that they may have."""
    width, hidden, rows, count = 64, 33, 7, 4
    formats = ("q4", "bf16", "q8")
    gate_up, down = [], []
    for i in range(count):
        halves = (weight(formats[(i + j) % 3], (hidden, width), draw) for j in range(2))
        gate_up.append(place(tuple(halves), draw.device))
        down.append(place((weight(formats[i % 3], (width, hidden), draw),), draw.device))
    own = draw.normal(count, 2 * hidden), draw.normal(count, width), draw.normal(count)
    experts = Experts(tuple(gate_up), tuple(down), *own)
    x, logits = draw.normal(rows, width), draw.normal(rows, count)
    for routing in (Routing(2), Routing(3, "all")):
        yield called_with(x, logits, experts, routing, "silu")
    preferred = experts._replace(preference=draw.normal(count))
    for routing in (Routing(3), Routing(2, "all", "sigmoid")):
        yield called_with(x, logits, preferred, routing, "silu")


KERNEL = Kernel("experts", mixture, mixture_twin, _trials, tolerance=1e-5)
