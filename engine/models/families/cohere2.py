"""Command R7B, Command A and their like of Cohere (arXiv 2504.00698): Command R with windows.

Three of four layers have one, and the others do not rotate.
"""

from dataclasses import replace

from ..family import Windows
from . import cohere

FAMILY = replace(
    cohere.FAMILY,
    model_types=("cohere2",),
    architectures=("cohere2",),
    defaults={**cohere.FAMILY.defaults, "sliding_window": 4096},
    windows=Windows(default=4096, every=("sliding_window_pattern", 4)),
    windows_rotate=True,
    rope_base=10000.0,
    refused=(),
)
