"""Seed-OSS of ByteDance: Llama's build with biases on queries, keys and values."""

from ..family import MLP_BIASES, NAMES, Family

MLP_NORM = {"mlp_norm": ("post_attention_norm.weight", "post_attention_layernorm.weight")}

FAMILY = Family(
    model_types=("seed_oss",),
    architectures=("seed_oss",),
    defaults={"num_key_value_heads": 8, "head_dim": 128, "attention_bias": True},
    names={**NAMES, **MLP_NORM, **MLP_BIASES},
    bias_options={
        "attention_bias": ("q_bias", "k_bias", "v_bias"),
        "attention_out_bias": ("output_bias",),
        "mlp_bias": tuple(MLP_BIASES),
    },
)
