"""Command R and Aya of Cohere: both blocks of a layer take the same rows, normed without their mean."""

from ..family import ATTENTION_BIASES, NAMES, Family, Option

FAMILY = Family(
    model_types=("cohere",),
    architectures=("command-r",),
    layout="interleaved",
    gguf_layout="interleaved",
    aliases={"layer_norm_eps": "rms_norm_eps"},
    defaults={"rms_norm_eps": 1e-5, "tie_word_embeddings": True},
    names={role: name for role, name in NAMES.items() if role != "mlp_norm"},
    bias_options={"attention_bias": ATTENTION_BIASES},
    centered=True,
    parallel=True,
    options={"head_scale": Option(0.0625, "logit_scale", "logit_scale")},
    rope_base=500000.0,
    refused=("use_qk_norm",),
)
