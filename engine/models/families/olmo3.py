"""OLMo 3: OLMo 2 with windows in three of four layers, whose rotation nothing stretches.

GGUF files call both olmo2, and those of OLMo 2 have no window.
"""

from dataclasses import replace

from ..family import Option, Windows
from . import olmo2

FAMILY = replace(
    olmo2.FAMILY,
    model_types=("olmo3",),
    architectures=("olmo2",),
    windows=Windows(default=4096, every=("", 4)),
    local_base=Option(None, "rope_theta", "rope.freq_base_swa"),
    rope_base=500000.0,
)
