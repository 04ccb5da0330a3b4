"""Gemma 3 (arXiv 2503.19786), text: windows in five of six layers, which have a rotation of their own."""

from ..family import ATTENTION_BIASES, HEAD_NORMS, NAMES, Family, Option, Windows
from .gemma2 import NORMS

FAMILY = Family(
    model_types=("gemma3_text",),
    architectures=("gemma3",),
    names={**NAMES, **HEAD_NORMS, **NORMS},
    bias_options={"attention_bias": ATTENTION_BIASES},
    norm_offset=1.0,
    windows=Windows(default=4096, every=("sliding_window_pattern", 6)),
    local_base=Option(10000.0, "rope_local_base_freq", "rope.freq_base_swa"),
    rope_base=1e6,
    gate_key="hidden_activation",
    gates={"gelu_pytorch_tanh": "gelu_tanh"},
    options={
        "embedding_scale": Option(lambda spec: spec.width**0.5),
        # GGUF files do not say it: of the model with 27 billion weights the scale is another one.
        "attention_scale": Option(
            lambda spec: (spec.width / spec.heads if len(spec.layers) == 62 else spec.head_dim) ** -0.5,
            "query_pre_attn_scalar",
            value=lambda scalar: scalar**-0.5,
        ),
        "score_cap": Option(None, "attn_logit_softcapping"),
        "logit_cap": Option(None, "final_logit_softcapping", "final_logit_softcapping"),
    },
    refused=("use_bidirectional_attention",),
)
