"""OLMo 3: OLMo 2 with windows in three of four layers, whose rotation nothing stretches."""

from ..family import ATTENTION_BIASES, Family, Option, Windows
from .olmo2 import NAMES_BEHIND

FAMILY = Family(
    model_types=("olmo3",),
    names=NAMES_BEHIND,
    bias_options={"attention_bias": ATTENTION_BIASES},
    norm_of_rows=True,
    windows=Windows(default=4096, every=("", 4)),
    local_base=Option(500000.0, "rope_theta"),
    rope_base=500000.0,
)
