"""Gemma 1 (arXiv 2403.08295): scaled embeddings, norms whose weights count from one."""

from ..family import ATTENTION_BIASES, Family, Option

FAMILY = Family(
    model_types=("gemma",),
    architectures=("gemma",),
    bias_options={"attention_bias": ATTENTION_BIASES},
    norm_offset=1.0,
    defaults={"num_key_value_heads": 16, "head_dim": 256, "tie_word_embeddings": True},
    # Files from before there was a name for the approximation say gelu and mean it.
    gates={"gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu_tanh"},
    options={"embedding_scale": Option(lambda spec: spec.width**0.5)},
    refused=("use_bidirectional_attention",),
)
