"""InternLM 3 of Shanghai AI Laboratory: Llama's build; its GGUF files say llama."""

from dataclasses import replace

from . import llama

FAMILY = replace(
    llama.FAMILY,
    model_types=("internlm3",),
    architectures=(),
    aliases={"qkv_bias": "attention_bias", "bias": "mlp_bias"},
    defaults={"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5},
    mixture=None,
)
