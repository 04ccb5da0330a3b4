"""Qwen 3 (arXiv 2505.09388): norms on queries and keys, no biases."""

from ..family import ATTENTION_BIASES, HEAD_NORMS, NAMES, Family
from .qwen2 import WINDOWS

FAMILY = Family(
    model_types=("qwen3",),
    architectures=("qwen3",),
    defaults={"num_key_value_heads": 32, "head_dim": 128},
    names={**NAMES, **HEAD_NORMS},
    bias_options={"attention_bias": ATTENTION_BIASES},
    windows=WINDOWS,
)
