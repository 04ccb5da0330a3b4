"""The text of Qwen3-VL with experts: Qwen 3's, as all positions of a text's token are the same."""

from dataclasses import replace

from ..mixture import EXPERTS, Mixture, Sparse
from . import qwen3_vl

GATE_UP = "mlp.experts.gate_up_proj"
NAMES = {
    "router": EXPERTS["router"],
    "expert_gate": (EXPERTS["expert_gate"][0], GATE_UP),
    "expert_up": (EXPERTS["expert_up"][0], GATE_UP),
    "expert_down": (EXPERTS["expert_down"][0], "mlp.experts.down_proj"),
}

FAMILY = replace(
    qwen3_vl.FAMILY,
    model_types=("qwen3_vl_moe_text",),
    multimodal=("qwen3_vl_moe",),
    architectures=("qwen3vlmoe",),
    aliases={"num_local_experts": "num_experts"},
    defaults={
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 128000,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
    },
    mixture=Mixture(
        names=NAMES,
        hidden="moe_intermediate_size",
        sparse=Sparse("decoder_sparse_step", "mlp_only_layers"),
        inputs_first=True,
    ),
)
