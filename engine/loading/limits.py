"""The sizes a model may declare, whatever file declares them: far above any model in use, far below harm."""

from __future__ import annotations

from ..models.spec import ModelSpec, RopeSpec
from .fields import Fields

LAYERS = (1, 1 << 10)
WIDTH = (1, 1 << 17)
HEADS = (1, 1 << 12)
HEAD_DIM = (2, 1 << 12)
FEED_FORWARD = (1, 1 << 20)
VOCABULARY = (1, 1 << 22)
CONTEXT = (2, 1 << 24)
WINDOW = (1, 1 << 31)
NORM_EPS = (0.0, 1.0)
ROPE_BASE = (2.0, 1e15)
ROPE_FACTOR = (1e-3, 1e6)


def check_relations(spec: ModelSpec, fields: Fields) -> None:
    """Refuse sizes that contradict each other."""
    if spec.heads % spec.kv_heads:
        fields.refuse(f"{spec.kv_heads} key-value heads do not divide {spec.heads} query heads")
    if spec.head_dim % 2:
        fields.refuse(f"a head size of {spec.head_dim} is odd; rotary embedding needs an even one")
    if spec.rope.scaling == "yarn" and spec.rope.beta_fast <= spec.rope.beta_slow:
        fields.refuse(f"beta_fast {spec.rope.beta_fast:g} must be above beta_slow {spec.rope.beta_slow:g}")


def usable_context(declared: int, rope: RopeSpec) -> int:
    """Tokens a model can hold: files that add YaRN afterwards still declare the length it was trained for."""
    if rope.scaling != "yarn":
        return declared
    return min(max(declared, int(rope.factor * rope.original_context)), CONTEXT[1])
