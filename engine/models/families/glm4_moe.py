"""GLM-4.5 and later ones of its build (arXiv 2508.06471): many experts behind some dense layers."""

from ..family import HEAD_NORMS, NAMES, Family
from ..mixture import EXPERTS, PREFERENCE, Mixture, Sparse, shared

MLP_NORM = {"mlp_norm": ("post_attention_norm.weight", "post_attention_layernorm.weight")}

FAMILY = Family(
    model_types=("glm4_moe",),
    architectures=("glm4moe",),
    aliases={"num_mtp_layers": "num_nextn_predict_layers"},
    defaults={
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "n_routed_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1408,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    names={
        **{role: name for role, name in NAMES.items() if role != "output_bias"},
        **MLP_NORM,
        **HEAD_NORMS,
    },
    optional=tuple(HEAD_NORMS),
    bias_options={"attention_bias": ("q_bias", "k_bias", "v_bias"), "use_qk_norm": tuple(HEAD_NORMS)},
    turning=0.5,
    fixed={"n_group": 1, "topk_group": 1},
    mixture=Mixture(
        names={**EXPERTS, "preference": PREFERENCE, **shared("shared_experts")},
        count="n_routed_experts",
        hidden="moe_intermediate_size",
        normalised=("norm_topk_prob", True),
        scores="sigmoid",
        shared_count=("n_shared_experts", "expert_shared_count"),
        scale=("routed_scaling_factor", "expert_weights_scale"),
        sparse=Sparse(first=("first_k_dense_replace", "leading_dense_block_count")),
    ),
    guessing=("num_nextn_predict_layers", "nextn_predict_layers"),
)
