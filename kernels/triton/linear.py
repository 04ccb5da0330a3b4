"""Products with placed matrices, and their twin in plain torch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..formats import GROUP, group_count
from ..reference.linear import linear as product
from .activations import Quantized, quantize
from .kernel import Draw, Kernel, Trial, called_with
from .matrix import Matrix, place
from .product import multiply
from .trials import matrices, weight

OUTPUTS_AT_ONCE = 4096
"""Rows of a matrix that the twin holds as float32 values at a time."""


def linear(x: Tensor, matrix: Matrix, bias: Tensor | None = None, planes: int = 1) -> Tensor:
    """Float32 [rows, outputs]: x [rows, inputs] @ matrix.T, and the bias [outputs].

    planes: parts that rows are rounded to, 2 for sensitive inputs.
    """
    out = torch.empty(len(x), matrix.shape[0], device=x.device)
    if not len(x):
        return out
    quantized: Quantized | None = None
    for block in matrix.blocks:
        if not block.plain and quantized is None:
            quantized = quantize(x, planes)
        multiply(x if block.plain or quantized is None else quantized, block, out, bias, planes)
    return out


def linear_twin(x: Tensor, matrix: Matrix, bias: Tensor | None = None, planes: int = 1) -> Tensor:
    """The same in plain torch, of the same values: its sums run in another order."""
    parts: list[Tensor] = []
    for block in matrix.blocks:
        rows = round_rows(x, block.format, planes)
        starts = range(0, block.outputs, OUTPUTS_AT_ONCE)
        parts += [product(rows, block.read(slice(start, start + OUTPUTS_AT_ONCE))) for start in starts]
    result = torch.cat(parts, dim=1)
    return result if bias is None else result + bias


def round_rows(x: Tensor, format: str, planes: int) -> Tensor:
    """Rows as products with weights of this format see them."""
    if format in ("f16", "bf16", "f32"):
        drop = {"f16": 13, "bf16": 16, "f32": 0}[format]
        high = _rounded(x, drop)
        return high + _rounded(x - high, drop) if planes == 2 else high
    limit = 32639 if planes == 2 else 127
    groups = torch.nn.functional.pad(x, (0, -x.shape[1] % GROUP)).unflatten(
        1, (group_count(x.shape[1]), GROUP)
    )
    peak = groups.abs().amax(dim=2, keepdim=True)
    finite, tiny = peak.isfinite(), peak < 2.0**-100
    steps = torch.where(finite & ~tiny, limit / peak, torch.zeros_like(peak))
    scales = torch.where(
        finite, torch.where(tiny, torch.zeros_like(peak), peak / limit), torch.full_like(peak, torch.nan)
    )
    integers = torch.where(finite, groups * steps, torch.zeros_like(groups)).round()
    if planes == 2:
        high = ((integers + 128) / 256).floor()
        integers = high * 256 + (integers - high * 256).clamp(min=-127)
    return (integers * scales).flatten(1)[:, : x.shape[1]]


def _rounded(x: Tensor, drop: int) -> Tensor:
    """Float32 without its last bits, to nearest even."""
    if not drop:
        return x
    bits = x.view(torch.int32)
    bits = bits + ((1 << drop - 1) - 1) + ((bits >> drop) & 1)
    short = (bits & -(1 << drop)).view(torch.float32)
    return torch.where(x.isnan(), x, short)


def _trials(draw: Draw) -> Iterator[Trial]:
    """Every format, more rows than a tile has, and a matrix of blocks and spans."""
    for i, matrix in enumerate(matrices(draw)):
        rows, planes = (1, 1) if i % 2 else (17, 2)
        yield called_with(draw.normal(rows, matrix.shape[1]), matrix, draw.normal(matrix.shape[0]), planes)
    small = place((weight("q4", (5, 40), draw), weight("bf16", (7, 40), draw)), draw.device)
    yield called_with(draw.normal(65, 40), small, None, 1)
    parts = [weight(format, (33, 1030), draw) for format in ("q8", "f16")]
    yield called_with(draw.normal(2, 1030), place(tuple(parts), draw.device), None, 2)


KERNEL = Kernel("linear", linear, linear_twin, _trials, tolerance=1e-5)
