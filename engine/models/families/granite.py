"""Granite 3 of IBM, dense: Llama's build with multipliers."""

from ..family import ATTENTION_BIASES, MLP_BIASES, NAMES, Family, Option

FAMILY = Family(
    model_types=("granite",),
    architectures=("granite",),
    gguf_layout="interleaved",
    names={**NAMES, **MLP_BIASES},
    bias_options={"attention_bias": ATTENTION_BIASES, "mlp_bias": tuple(MLP_BIASES)},
    options={
        "attention_scale": Option(1.0, "attention_multiplier", "attention.scale"),
        "embedding_scale": Option(1.0, "embedding_multiplier", "embedding_scale"),
        "residual_scale": Option(1.0, "residual_multiplier", "residual_scale"),
        "head_scale": Option(1.0, "logits_scaling", "logit_scale", value=lambda divisor: 1 / divisor),
    },
)
