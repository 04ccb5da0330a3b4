"""Hunyuan of Tencent, dense: queries and keys are normed behind their rotation."""

from ..family import ATTENTION_BIASES, NAMES, Family

NORMS = {
    "q_norm": ("attn_q_norm.weight", "self_attn.query_layernorm.weight"),
    "k_norm": ("attn_k_norm.weight", "self_attn.key_layernorm.weight"),
}

FAMILY = Family(
    model_types=("hunyuan_v1_dense",),
    architectures=("hunyuan-dense",),
    defaults={"rms_norm_eps": 1e-5},
    names={**NAMES, **NORMS},
    bias_options={"attention_bias": ATTENTION_BIASES},
    rotated_norm=True,
    stretched="dynamic",
)
