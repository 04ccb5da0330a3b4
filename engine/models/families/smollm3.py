"""SmolLM3: Llama's build, but every fourth layer does not rotate (arXiv 2501.18795)."""

from ..family import ATTENTION_BIASES, MLP_BIASES, NAMES, Family

FAMILY = Family(
    model_types=("smollm3",),
    architectures=("smollm3",),
    gguf_layout="interleaved",
    names={**NAMES, **MLP_BIASES},
    bias_options={"attention_bias": ATTENTION_BIASES, "mlp_bias": tuple(MLP_BIASES)},
    defaults={"num_key_value_heads": 4},
    still=("no_rope_layers", "no_rope_layer_interval", 4),
    rope_base=2e6,
    refused=("use_sliding_window",),
)
