"""Gemma 4, text, alone or in a multimodal model: dense, and with experts beside the dense network.

Layers that see all keys have larger heads, and in some models keys that are values; in the small ones the
last layers read the keys and values of earlier ones, and each layer gets of the tokens besides.
"""

from ..family import ATTENTION_BIASES, HEAD_NORMS, NAMES, Family, Option, Varied, Windows
from ..mixture import Mixture
from .gemma2 import NORMS

INPUTS = {
    "inputs_embedding": ("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"),
    "inputs_projection": ("per_layer_model_proj.weight", "model.per_layer_model_projection.weight"),
    "inputs_norm": ("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"),
    "input_gate": ("inp_gate.weight", "per_layer_input_gate.weight"),
    "input_projection": ("proj.weight", "per_layer_projection.weight"),
    "input_norm": ("post_norm.weight", "post_per_layer_input_norm.weight"),
}
EXPERTS = {
    "router": ("ffn_gate_inp.weight", "router.proj.weight"),
    "router_norm": ("ffn_gate_inp.scale", "router.scale"),
    "mixture_scales": ("ffn_down_exps.scale", "router.per_expert_scale"),
    "mixture_norm": ("pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"),
    "mixture_post_norm": ("post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"),
    "expert_gate": ("ffn_gate_up_exps.weight", "experts.gate_up_proj"),
    "expert_up": ("ffn_gate_up_exps.weight", "experts.gate_up_proj"),
    "expert_down": ("ffn_down_exps.weight", "experts.down_proj"),
    "shared_gate": ("ffn_gate.weight", "mlp.gate_proj.weight"),
    "shared_up": ("ffn_up.weight", "mlp.up_proj.weight"),
    "shared_down": ("ffn_down.weight", "mlp.down_proj.weight"),
    "shared_post_norm": ("post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"),
}
ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}
"""Of the library, where config.json says nothing."""

FAMILY = Family(
    model_types=("gemma4_text",),
    multimodal=("gemma4",),
    architectures=("gemma4",),
    names={
        **NAMES,
        **NORMS,
        **HEAD_NORMS,
        **INPUTS,
        "layer_scale": ("layer_output_scale.weight", "layer_scalar"),
    },
    bias_options={"attention_bias": ATTENTION_BIASES},
    defaults={
        "vocab_size": 262144,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 30,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "global_head_dim": 512,
        "max_position_embeddings": 131072,
        "hidden_size_per_layer_input": 256,
        "rope_parameters": ROPES,
        "tie_word_embeddings": True,
    },
    windows=Windows(default=512, every=("", 6), last=True),
    local_base=Option(10000.0, "", "rope.freq_base_swa"),
    rope_base=1e6,
    gate_key="hidden_activation",
    gates={"gelu_pytorch_tanh": "gelu_tanh"},
    options={
        "embedding_scale": Option(lambda spec: spec.width**0.5),
        "attention_scale": Option(1.0),
        "logit_cap": Option(None, "final_logit_softcapping", "final_logit_softcapping"),
    },
    # Only images see what comes after them.
    fixed={"use_bidirectional_attention": "vision"},
    mixture=Mixture(
        names=EXPERTS,
        hidden="moe_intermediate_size",
        used="top_k_experts",
        switch="enable_moe_block",
        shared=("intermediate_size", "feed_forward_length"),
        optional=True,
    ),
    varied=Varied(
        head_dim="global_head_dim",
        kv_heads="num_global_key_value_heads",
        keys_are_values="attention_k_eq_v",
        shared="num_kv_shared_layers",
        wide="use_double_wide_mlp",
        layers="per_layer_config",
    ),
    inputs=("hidden_size_per_layer_input", "embedding_length_per_layer_input"),
    value_norm=True,
)
