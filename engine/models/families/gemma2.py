"""Gemma 2 (arXiv 2408.00118): caps, norms around each block, a window in every other layer."""

from ..family import ATTENTION_BIASES, NAMES, Family, Option, Windows

NORMS = {
    "attention_post_norm": ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    "mlp_norm": ("ffn_norm.weight", "pre_feedforward_layernorm.weight"),
    "mlp_post_norm": ("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
}


def attention_scale(largest: int) -> Option:
    """GGUF files do not say it: of the largest model, known by its layers, the scale is another one."""
    return Option(
        lambda spec: (spec.width / spec.heads if len(spec.layers) == largest else spec.head_dim) ** -0.5,
        "query_pre_attn_scalar",
        value=lambda scalar: scalar**-0.5,
    )


FAMILY = Family(
    model_types=("gemma2",),
    architectures=("gemma2",),
    names={**NAMES, **NORMS},
    bias_options={"attention_bias": ATTENTION_BIASES},
    norm_offset=1.0,
    defaults={
        "vocab_size": 256000,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "query_pre_attn_scalar": 256,
        "tie_word_embeddings": True,
    },
    windows=Windows(default=4096, every=("", 2), gguf_default=4096),
    gate_key="hidden_activation",
    gates={"gelu_pytorch_tanh": "gelu_tanh"},
    options={
        "embedding_scale": Option(lambda spec: spec.width**0.5),
        "attention_scale": attention_scale(largest=46),
        "score_cap": Option(50.0, "attn_logit_softcapping", "attn_logit_softcapping", null=True),
        "logit_cap": Option(30.0, "final_logit_softcapping", "final_logit_softcapping", null=True),
    },
    refused=("use_bidirectional_attention",),
)
