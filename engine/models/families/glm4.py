"""GLM-4-0414, dense: norms around each block, half of a head rotates, gate and up are one tensor."""

from ..family import NAMES, Family

NORMS = {
    "attention_post_norm": ("post_attention_norm.weight", "post_self_attn_layernorm.weight"),
    "mlp_post_norm": ("post_ffw_norm.weight", "post_mlp_layernorm.weight"),
}
FUSED = dict.fromkeys(("gate", "up"), ("ffn_up.weight", "mlp.gate_up_proj.weight"))

FAMILY = Family(
    model_types=("glm4",),
    architectures=("glm4",),
    layout="interleaved",
    gguf_layout="interleaved",
    names={**{role: name for role, name in NAMES.items() if role != "output_bias"}, **NORMS, **FUSED},
    bias_options={"attention_bias": ("q_bias", "k_bias", "v_bias")},
    defaults={"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-07},
    turning=0.5,
)
