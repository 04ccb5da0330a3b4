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
_GATINGS = {"softmax": (0, 1, 3), "sigmoid": (0, 2)}
"""Kinds of gating in GGUF files: not said (0), softmax (1), sigmoid (2), softmax of those chosen (3)."""
_SCALE = (1e-3, 1e3)


def folder_experts(config: Fields, mixture: Mixture | None, layers: int) -> list[ExpertsSpec | None]:
    """Of each layer, as a config.json says."""
    if mixture is None:
        return [None] * layers
    names = (mixture.count,) if mixture.count else _COUNTS
    given = [name for name in names if config.get(name) is not None]
    if not (
        config.boolean(mixture.switch, default=False) if mixture.switch else given or not mixture.optional
    ):
        return [None] * layers
    count = config.integer((given or names)[0], *_COUNT)
    if given and config.integer(given[-1], *_COUNT) != count:
        config.fail(given[-1], f"is not {given[0]} ({count})")
    used = _alike(config, mixture.used).integer(mixture.used, 1, count)
    hidden = config.integer(mixture.hidden or "intermediate_size", *declared.FEED_FORWARD)
    normalised = mixture.normalised is None or config.boolean(*mixture.normalised)
    routing = Routing(used, "chosen" if normalised else "all", mixture.scores)
    shared = _shared(config, mixture, 0, hidden)
    spec = ExpertsSpec(count, hidden, routing, shared, _scale(config, mixture, 0))
    if mixture.sparse is None:
        return [spec] * layers
    chosen = declared.last_of(config, mixture.sparse.every, 1, layers)
    dense = config.get(mixture.sparse.dense, []) if mixture.sparse.dense else []
    if not isinstance(dense, list) or any(type(layer) is not int for layer in dense):
        config.fail(mixture.sparse.dense, f"must list numbers of layers, not {shown(dense)}")
    last = layers - 1
    if mixture.sparse.last and (named := config.integer(mixture.sparse.last, -1, 1 << 16, default=-1)) >= 0:
        last = named  # it may be a layer behind those that there are
    without = {*dense, *range(_first(config, mixture, 0)), *range(last + 1, layers)}
    return [spec if chosen[layer] and layer not in without else None for layer in range(layers)]


def _alike(config: Fields, option: str) -> Fields:
    """With one number in place of a list that has the same one for each layer."""
    value = config.get(option)
    if not isinstance(value, list) or not value or any(entry != value[0] for entry in value):
        return config
    return config._replace(values={**config.values, config.prefix + option: value[0]})


def _first(fields: Fields, mixture: Mixture, column: int) -> int:
    """How many layers come before the first one with experts. column: 0 of config.json, 1 of a GGUF file."""
    if mixture.sparse is None or mixture.sparse.first is None:
        return 0
    return int(fields.integer(mixture.sparse.first[column], 0, declared.LAYERS[1], default=0))


def _shared(fields: Fields, mixture: Mixture, column: int, hidden: int) -> int:
    """Columns inside the network that all rows go through besides."""
    size = None
    if mixture.shared is not None and mixture.shared[column]:
        size = fields.integer(mixture.shared[column], 0, declared.FEED_FORWARD[1], default=None)
    if size is None and mixture.shared_count is not None:
        size = hidden * fields.integer(mixture.shared_count[column], 0, _COUNT[1], default=0)
    return size or 0


def _scale(fields: Fields, mixture: Mixture, column: int) -> float:
    if mixture.scale is None:
        return 1.0
    return float(fields.number(mixture.scale[column], *_SCALE, default=1.0))


def gguf_experts(model: Fields, mixture: Mixture | None, layers: int) -> list[ExpertsSpec | None]:
    """Of each layer, as the metadata of a GGUF file says."""
    if mixture is None or (mixture.optional and not model.integer("expert_count", 0, _COUNT[1], default=0)):
        return [None] * layers
    count = model.integer("expert_count", *_COUNT)
    used = model.integer("expert_used_count", 1, count)
    hidden = model.integer("expert_feed_forward_length", *declared.FEED_FORWARD, default=None)
    if hidden is None:
        hidden = model.integer("feed_forward_length", *declared.FEED_FORWARD)
    if model.integer("expert_gating_func", 0, 1 << 16, default=0) not in _GATINGS[mixture.scores]:
        model.fail("expert_gating_func", f"other than a {mixture.scores} is not supported")
    normalised = model.boolean("expert_weights_norm", default=mixture.gguf_normalised)
    routing = Routing(used, "chosen" if normalised else "all", mixture.scores)
    spec = ExpertsSpec(count, hidden, routing, _shared(model, mixture, 1, hidden), _scale(model, mixture, 1))
    first = min(_first(model, mixture, 1), layers)
    return [*[None] * first, *[spec] * (layers - first)]
