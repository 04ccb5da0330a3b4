"""Qwen 1.5 and 2 with experts (arXiv 2407.10671), and a network that each row takes a share of."""

from ..family import NAMES, Family
from ..mixture import EXPERTS, Mixture, Sparse, shared

SHARED = {
    **shared("shared_expert"),
    "shared_router": ("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"),
}

FAMILY = Family(
    model_types=("qwen2_moe",),
    architectures=("qwen2moe",),
    defaults={"num_key_value_heads": 16, "shared_expert_intermediate_size": 5632},
    names=NAMES,
    biases=("q_bias", "k_bias", "v_bias"),
    refused=("use_sliding_window",),
    fixed={"qkv_bias": True},
    mixture=Mixture(
        names={**EXPERTS, **SHARED},
        hidden="moe_intermediate_size",
        normalised=("norm_topk_prob", False),
        gguf_normalised=False,
        shared=("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
        sparse=Sparse("decoder_sparse_step", "mlp_only_layers"),
    ),
)
