"""Which part of a model each rank holds: ranges of its layers, heads, hidden columns and vocabulary.

Tensor parallelism cuts each layer (Megatron-LM, arXiv 1909.08053): queries, keys, values and gates by their
outputs, what follows them by its inputs, so that a layer needs two sums over the ranks. Pipeline parallelism
cuts between layers. Everything here follows from the specification alone, so ranks need not agree on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from ..models.spec import LayerSpec, ModelSpec

UNITS = (256, 32, 1)
"""Columns that stay together where there are enough: the blocks and groups of packed formats."""


class Split(NamedTuple):
    """Ranks that share each layer, and stages of layers."""

    tensor: int = 1
    pipeline: int = 1

    @property
    def ranks(self) -> int:
        """Processes in all."""
        return self.tensor * self.pipeline

    def place(self, rank: int) -> tuple[int, int]:
        """A rank's stage, and its number in there."""
        return divmod(rank, self.tensor)

    @property
    def sampling(self) -> int:
        """The rank that has all logits, and samples: the first of the last stage."""
        return (self.pipeline - 1) * self.tensor

    def words(self) -> str:
        """For people; "" for a single process."""
        named = zip(("tensor", "pipeline"), self, strict=True)
        return " x ".join(f"{name} {size}" for name, size in named if size > 1)


class LayerShare(NamedTuple):
    """Of one layer: key heads, columns inside its network, its experts, and the network beside these."""

    kv_heads: range
    feed_forward: range
    experts: range
    shared: range


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank holds. layers: numbers in the model. spec: what its part looks like, as a model itself.

    tensor: its number among the ranks of its stage. heads: of queries. vocabulary: rows of the tables.
    """

    tensor: int
    first: bool
    last: bool
    layers: range
    heads: range
    vocabulary: range
    of_layers: tuple[LayerShare, ...]
    spec: ModelSpec


def share_of(spec: ModelSpec, split: Split, rank: int) -> Share:
    """The part of a rank. ValueError, a sentence: the model can't be cut into so many."""
    stage, number = split.place(rank)
    layers = stages(spec, split.pipeline)[stage]
    heads = head_ranges(spec, split.tensor)[number]
    own = tuple(_layer_share(spec, i, heads, split.tensor, number) for i in layers)
    kept = tuple(
        _layer_spec(spec.layers[i], share, layers.start) for i, share in zip(layers, own, strict=True)
    )
    return Share(
        tensor=number,
        first=stage == 0,
        last=stage == split.pipeline - 1,
        layers=layers,
        heads=heads,
        vocabulary=even(spec.vocabulary, split.tensor)[number],
        of_layers=own,
        spec=replace(spec, layers=kept, heads=len(heads)),
    )


def even(size: int, parts: int) -> list[range]:
    """About equal parts of `size` columns, none empty, at borders of the largest unit that allows it."""
    if size == 0:
        return [range(0)] * parts
    unit = next((unit for unit in UNITS if size // unit >= 2 * parts), 1)
    if size < parts:
        raise ValueError(f"{size} columns can't be shared by {parts} processes")
    units = -(-size // unit)
    borders = [min(size, units * part // parts * unit) for part in range(parts + 1)]
    return [range(start, stop) for start, stop in pairwise(borders)]


def head_ranges(spec: ModelSpec, parts: int) -> list[range]:
    """The query heads of each rank: whole groups that share a key head, or parts of one such group.

    Where there are fewer key heads than ranks, several ranks hold the same one. ValueError: no such cut.
    """
    found = _head_ranges(spec, parts)
    if found is None:
        possible = [n for n in range(2, min(spec.heads, 64) + 1) if _head_ranges(spec, n) is not None]
        can = f"tensor_parallel can be {_listed(possible)}" if possible else "only pipeline_parallel can"
        raise ValueError(
            f"the {spec.heads} query heads and {spec.kv_heads} key heads of a layer can't be shared by "
            f"{parts} processes; {can}"
        )
    return found


def _head_ranges(spec: ModelSpec, parts: int) -> list[range] | None:
    groups = {spec.heads // spec.sizes(i).kv_heads for i in range(len(spec.layers))}
    for unit in (1, max(groups)):
        units = spec.heads // unit
        if units < parts or (unit == 1 and units % parts):
            continue
        borders = [units * part // parts * unit for part in range(parts + 1)]
        ranges = [range(start, stop) for start, stop in pairwise(borders)]
        if all(_fits(heads, group) for heads in ranges for group in groups):
            return ranges
    return None


def _fits(heads: range, group: int) -> bool:
    whole = heads.start % group == 0 and heads.stop % group == 0
    return whole or heads.start // group == (heads.stop - 1) // group


def _layer_share(spec: ModelSpec, layer: int, heads: range, parts: int, number: int) -> LayerShare:
    sizes, experts = spec.sizes(layer), spec.layers[layer].experts
    group = sizes.heads // sizes.kv_heads
    inside = (sizes.feed_forward, 0, 0) if experts is None else (0, experts.hidden, experts.shared)
    return LayerShare(
        range(heads.start // group, -(-heads.stop // group)), *(even(n, parts)[number] for n in inside)
    )


def _layer_spec(layer: LayerSpec, share: LayerShare, before: int) -> LayerSpec:
    experts = layer.experts
    if experts is not None:
        experts = replace(experts, hidden=len(share.experts), shared=len(share.shared))
    return replace(
        layer,
        experts=experts,
        kv_heads=len(share.kv_heads),
        feed_forward=len(share.feed_forward) or None,
        shares=None if layer.shares is None else layer.shares - before,
    )


def stages(spec: ModelSpec, count: int) -> list[range]:
    """Layers of each stage, so that the largest one has as few weights as possible.

    A layer stays with the one whose keys and values it reads. ValueError: there are not so many stages.
    """
    layers = len(spec.layers)
    borders = [
        border
        for border in range(1, layers)
        if all(layer.shares is None or layer.shares >= border for layer in spec.layers[border:])
    ]
    if len(borders) < count - 1:
        shared = "" if len(borders) == layers - 1 else " as layers share their keys and values"
        raise ValueError(
            f"the {layers} layers of the model can be at most {len(borders) + 1} stages{shared}; "
            f"pipeline_parallel {count} is more"
        )
    sums = [0, *accumulate(_weights(spec, i) for i in range(layers))]
    table = spec.vocabulary * spec.width

    def cost(start: int, stop: int) -> int:
        return sums[stop] - sums[start] + table * ((start == 0) + (stop == layers))

    # best[border]: the least possible size of the largest stage up to there, and where the last one begins.
    best: dict[int, tuple[int, tuple[int, ...]]]
    best = {border: (cost(0, border), (0,)) for border in [*borders, layers]}
    for _ in range(count - 1):
        best = {
            stop: min(
                (max(size, cost(start, stop)), (*starts, start))
                for start, (size, starts) in best.items()
                if start < stop
            )
            for stop in [*borders, layers]
            if any(start < stop for start in best)
        }
    starts = best[layers][1]
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], layers], strict=True)]


def _weights(spec: ModelSpec, layer: int) -> int:
    sizes, experts = spec.sizes(layer), spec.layers[layer].experts
    attention = 2 * spec.width * (sizes.q_columns + sizes.kv_columns)
    inside = sizes.feed_forward if experts is None else experts.count * experts.hidden + experts.shared
    return attention + 3 * spec.width * inside


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + (" or " if numbers[1:] else "") + str(numbers[-1])
