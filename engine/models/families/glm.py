"""GLM-4 of 2024 (arXiv 2406.12793): half of a head rotates, gate and up are one tensor.

Its GGUF files say chatglm, and those made of its first form have one tensor of queries, keys and values.
"""

from dataclasses import replace

from ..family import NAMES
from . import glm4

QKV = {
    **{role: ("attn_qkv.weight", NAMES[role][1]) for role in "qkv"},
    **{role: ("attn_qkv.bias", NAMES[role][1]) for role in ("q_bias", "k_bias", "v_bias")},
}

FAMILY = replace(
    glm4.FAMILY,
    model_types=("glm",),
    architectures=("chatglm",),
    defaults={**glm4.FAMILY.defaults, "attention_bias": True},
    names={**{role: name for role, name in NAMES.items() if role != "output_bias"}, **glm4.FUSED},
    fused=QKV,
)
