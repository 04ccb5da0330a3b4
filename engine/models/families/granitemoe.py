"""Granite 3 of IBM with experts: Granite's multipliers; in some models a network that all rows go through."""

from dataclasses import replace

from ..family import ATTENTION_BIASES, NAMES
from ..mixture import Mixture
from . import granite

GATE_UP, SHARED = "block_sparse_moe.input_linear.weight", "shared_mlp.input_linear.weight"
EXPERTS = {
    "router": ("ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight"),
    "expert_gate": ("ffn_gate_exps.weight", GATE_UP),
    "expert_up": ("ffn_up_exps.weight", GATE_UP),
    "expert_down": ("ffn_down_exps.weight", "block_sparse_moe.output_linear.weight"),
    "shared_gate": ("ffn_gate_shexp.weight", SHARED),
    "shared_up": ("ffn_up_shexp.weight", SHARED),
    "shared_down": ("ffn_down_shexp.weight", "shared_mlp.output_linear.weight"),
}

FAMILY = replace(
    granite.FAMILY,
    model_types=("granitemoe", "granitemoeshared"),
    architectures=("granitemoe",),
    names=NAMES,
    bias_options={"attention_bias": ATTENTION_BIASES},
    mixture=Mixture(names=EXPERTS, shared=("shared_intermediate_size", "expert_shared_feed_forward_length")),
)
