"""Granite 4 of IBM where all layers attend and none has experts: Granite 3 by other names.

Its GGUF files say granite. What has recurrent layers or experts is refused.
"""

from dataclasses import replace

from ..family import ATTENTION_BIASES, NAMES
from . import granite

GATE_UP, DOWN = "shared_mlp.input_linear.weight", "shared_mlp.output_linear.weight"

FAMILY = replace(
    granite.FAMILY,
    model_types=("granitemoehybrid",),
    architectures=(),
    names={
        **NAMES,
        **dict.fromkeys(("gate", "up"), ("ffn_up.weight", GATE_UP)),
        "down": ("ffn_down.weight", DOWN),
    },
    bias_options={"attention_bias": ATTENTION_BIASES},
    defaults={
        "num_local_experts": 8,
        "layer_types": ["linear_attention"],
        "shared_intermediate_size": 1024,
    },
    feed_forward="shared_intermediate_size",
    rotates=("position_embedding_type", "rope"),
    fixed={"num_local_experts": 0},
)
