"""The operations of a rank: those of its backend, and an exchange where a weight is only a part of one.

The decoder does not know of it: the handles say what they are a part of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernels.interface import Experts, Gate, Handle, Routing

from ..models.spec import ModelSpec
from ..models.weights import FeedForward, LayerWeights, Linear, Mixture, Weights
from .group import Group
from .shares import Share, share_of


class Summed(NamedTuple):
    """A matrix that has some of the inputs, or experts that do: the products of all ranks are added up."""

    own: Any


class Table(NamedTuple):
    """A matrix [vocabulary, width] of which each rank has some rows."""

    own: Handle
    rows: tuple[range, ...]


class RowNorm(NamedTuple):
    """The weights of a norm of whole rows, of which each rank has some columns."""

    whole: Handle
    columns: tuple[range, ...]


class RankOperations:
    """`Operations` of a rank; what needs no exchange is its backend's."""

    def __init__(self, inner: Any, group: Group) -> None:
        self._inner = inner
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def embedding(self, table: Handle, tokens: Tensor) -> Tensor:
        """Rows of the table, each from the rank that has it."""
        if not isinstance(table, Table):
            return self._of(self._inner.embedding(table, tokens))
        rows = table.rows[self._group.rank]
        here = (tokens >= rows.start) & (tokens < rows.stop)
        found = self._inner.embedding(table.own, torch.where(here, tokens - rows.start, 0))
        return self._group.sum(torch.where(here[:, None], found, 0.0))

    def rms_norm(self, x: Tensor, weight: Handle, eps: float) -> Tensor:
        """Of the rank's columns; a norm of whole rows takes those of all ranks."""
        if not isinstance(weight, RowNorm):
            return self._of(self._inner.rms_norm(x, weight, eps))
        x = self.tensor(x)
        own = weight.columns[self._group.rank]
        whole = self._inner.rms_norm(self._group.columns(x, weight.columns), weight.whole, eps)
        return self._of(whole[:, own.start : own.stop].contiguous())

    def tensor(self, x: Any) -> Tensor:
        """A value of the backend, computed now if it isn't yet: what is sent to another rank."""
        return x if isinstance(x, Tensor) else self._of(self._inner.tensor(x))

    def linear(self, x: Tensor, weight: Handle, bias: Handle | None = None, *, planes: int = 1) -> Tensor:
        """The product; of a table, all columns at the stage's first rank, its own at the others."""
        if isinstance(weight, Summed):
            return self._group.sum(self._inner.linear(x, weight.own, bias, planes=planes))
        if not isinstance(weight, Table):
            return self._of(self._inner.linear(x, weight, bias, planes=planes))
        own = self._inner.linear(x, weight.own, bias, planes=planes)
        whole = self._group.columns_at_first(own, weight.rows)
        return self._of(own if whole is None else whole)

    def experts(
        self, x: Tensor, logits: Tensor, experts: Any, routing: Routing, gate: Gate = "silu"
    ) -> Tensor:
        """Each rank has some columns inside every expert: all choose the same, and add up what came out."""
        if not isinstance(experts, Summed):
            return self._of(self._inner.experts(x, logits, experts, routing, gate))
        return self._group.sum(self._inner.experts(x, logits, experts.own, routing, gate))

    def sample(self, logits: Tensor, sampling: Any) -> Any:
        """At the first rank of the last stage, which has all logits; `nothing` at the others."""
        return self._inner.sample(logits, sampling) if self._group.rank == 0 else self._inner.nothing()

    @staticmethod
    def _of(x: Any) -> Tensor:
        assert isinstance(x, Tensor)
        return x


def joined(weights: Weights, whole: ModelSpec, group: Group) -> Weights:
    """The weights of a rank, marked where they are parts. Of a stage of one rank: as they are."""
    split = group.split
    if split.tensor == 1:
        return weights
    shares = [share_of(whole, split, group.stage * split.tensor + i) for i in range(split.tensor)]
    tables = tuple(share.vocabulary for share in shares)

    def table(handle: Handle | None) -> Handle | None:
        return None if handle is None else Table(handle, tables)

    inputs = weights.inputs
    return replace(
        weights,
        embedding=table(weights.embedding),
        head=table(weights.head),
        inputs=None if inputs is None else replace(inputs, embedding=table(inputs.embedding)),
        layers=tuple(_layer(layer, shares) for layer in weights.layers),
    )


def _layer(layer: LayerWeights, shares: list[Share]) -> LayerWeights:
    head_dim = shares[0].spec.sizes(layer.index).head_dim

    def norm(weight: Handle | None, heads: Callable[[Share], range]) -> Handle | None:
        if weight is None or len(weight) == head_dim:
            return weight
        of_ranks = (heads(share) for share in shares)
        return RowNorm(weight, tuple(range(own.start * head_dim, own.stop * head_dim) for own in of_ranks))

    network = layer.network
    if isinstance(network, Mixture):
        network = replace(
            network,
            experts=_summed(network.experts),
            shared=_shared(network.shared),
        )
    else:
        network = _network(network)
    return replace(
        layer,
        output=Linear(Summed(layer.output.matrix), layer.output.bias),
        q_norm=norm(layer.q_norm, lambda share: share.heads),
        k_norm=norm(layer.k_norm, lambda share: share.of_layers[layer.index].kv_heads),
        network=network,
    )


def _network(network: FeedForward) -> FeedForward:
    return replace(network, down=Linear(Summed(network.down.matrix), network.down.bias))


def _shared(shared: FeedForward | Experts | None) -> Any:
    if isinstance(shared, FeedForward):
        return _network(shared)
    return None if shared is None else _summed(shared)


def _summed(experts: Experts) -> Any:
    """Where experts are expected: `RankOperations.experts` alone looks at them."""
    return Summed(experts)
