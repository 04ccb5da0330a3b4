"""ERNIE 4.5 of Baidu with experts behind some dense layers."""

from dataclasses import replace

from ..mixture import EXPERTS, PREFERENCE, Mixture, Sparse, shared
from . import ernie4_5

FAMILY = replace(
    ernie4_5.FAMILY,
    model_types=("ernie4_5_moe",),
    architectures=("ernie4_5-moe",),
    defaults={
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "moe_num_experts": 64,
        "moe_k": 6,
        "moe_intermediate_size": 1536,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
    },
    mixture=Mixture(
        names={
            **EXPERTS,
            "preference": (PREFERENCE[0], "mlp.moe_statics.e_score_correction_bias"),
            **shared("shared_experts"),
        },
        count="moe_num_experts",
        hidden="moe_intermediate_size",
        used="moe_k",
        shared=("", "expert_shared_feed_forward_length"),
        shared_count=("moe_num_shared_experts", "expert_shared_count"),
        sparse=Sparse(
            every="moe_layer_interval",
            first=("moe_layer_start_index", "leading_dense_block_count"),
            last="moe_layer_end_index",
        ),
    ),
)
