"""Which layers of a model have experts, and how many, as its files declare it."""

from __future__ import annotations

from kernels.interface import Routing

from ..models.mixture import Mixture
from ..models.spec import ExpertsSpec
from . import declared
from .fields import Fields, shown

_COUNT = (1, 1 << 12)
_COUNTS = ("num_local_experts", "num_experts")
"""Names in config.json of how many there are, of which files may have either."""
_SOFTMAX = (0, 1, 3)
"""Kinds of gating in GGUF files: not said, softmax, softmax of those chosen."""


def folder_experts(config: Fields, mixture: Mixture | None, layers: int) -> list[ExpertsSpec | None]:
    """Of each layer, as a config.json says."""
    given = [name for name in _COUNTS if config.get(name) is not None]
    if mixture is None:
        return [None] * layers
    if not (
        config.boolean(mixture.switch, default=False) if mixture.switch else given or not mixture.optional
    ):
        return [None] * layers
    count = config.integer((given or _COUNTS)[0], *_COUNT)
    if given and config.integer(given[-1], *_COUNT) != count:
        config.fail(given[-1], f"is not {given[0]} ({count})")
    used = config.integer(mixture.used, 1, count)
    hidden = config.integer(mixture.hidden or "intermediate_size", *declared.FEED_FORWARD)
    normalised = mixture.normalised is None or config.boolean(*mixture.normalised)
    shared = 0
    if mixture.shared is not None:
        shared = config.integer(mixture.shared[0], 0, declared.FEED_FORWARD[1], default=0)
    spec = ExpertsSpec(count, hidden, Routing(used, "chosen" if normalised else "all"), shared)
    if mixture.sparse is None:
        return [spec] * layers
    chosen = declared.last_of(config, mixture.sparse.every, 1, layers)
    dense = config.get(mixture.sparse.dense, [])
    if not isinstance(dense, list) or any(type(layer) is not int for layer in dense):
        config.fail(mixture.sparse.dense, f"must list numbers of layers, not {shown(dense)}")
    without = set(dense)
    return [spec if chosen[layer] and layer not in without else None for layer in range(layers)]


def gguf_experts(model: Fields, mixture: Mixture | None, layers: int) -> list[ExpertsSpec | None]:
    """Of each layer, as the metadata of a GGUF file says."""
    if mixture is None or (mixture.optional and not model.integer("expert_count", 0, _COUNT[1], default=0)):
        return [None] * layers
    count = model.integer("expert_count", *_COUNT)
    used = model.integer("expert_used_count", 1, count)
    hidden = model.integer("expert_feed_forward_length", *declared.FEED_FORWARD, default=None)
    if hidden is None:
        hidden = model.integer("feed_forward_length", *declared.FEED_FORWARD)
    if model.integer("expert_gating_func", 0, 1 << 16, default=0) not in _SOFTMAX:
        model.fail("expert_gating_func", "other than a softmax is not supported")
    normalised = model.boolean("expert_weights_norm", default=mixture.gguf_normalised)
    shared = 0
    if mixture.shared is not None:
        shared = model.integer(mixture.shared[1], 0, declared.FEED_FORWARD[1], default=0)
    return [ExpertsSpec(count, hidden, Routing(used, "chosen" if normalised else "all"), shared)] * layers
