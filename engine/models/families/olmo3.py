"""OLMo 3: OLMo 2 with windows in three of four layers, whose rotation nothing stretches."""

from dataclasses import replace

from ..family import Option, Windows
from . import olmo2

FAMILY = replace(
    olmo2.FAMILY,
    model_types=("olmo3",),
    architectures=(),
    windows=Windows(default=4096, every=("", 4)),
    local_base=Option(500000.0, "rope_theta"),
    rope_base=500000.0,
)
