"""EXAONE 4 of LG AI Research (arXiv 2507.11407): norms behind each block and on queries and keys.

The large one has windows in three of four layers, and the others do not rotate.
"""

from ..family import Family, Windows
from . import olmo2

FAMILY = Family(
    model_types=("exaone4",),
    architectures=("exaone4",),
    defaults={"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096},
    names={role: name for role, name in olmo2.FAMILY.names.items() if not role.endswith("_bias")},
    windows=Windows(default=4096, every=("sliding_window_pattern", 4)),
    windows_rotate=True,
)
