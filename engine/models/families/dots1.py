"""dots.llm1 of rednote (arXiv 2506.05767): many experts behind some dense layers."""

from ..family import ATTENTION_BIASES, HEAD_NORMS, NAMES, Family, Windows
from ..mixture import EXPERTS, PREFERENCE, Mixture, Sparse, shared

FAMILY = Family(
    model_types=("dots1",),
    architectures=("dots1",),
    defaults={
        "num_key_value_heads": 32,
        # What a file has to say: the library takes none.
        **dict.fromkeys(("n_routed_experts", "n_shared_experts", "num_experts_per_tok")),
    },
    names={**NAMES, **HEAD_NORMS},
    bias_options={"attention_bias": ATTENTION_BIASES},
    windows=Windows(default=4096, first=("max_window_layers", 62)),
    fixed={"n_group": 1, "topk_group": 1},
    mixture=Mixture(
        names={**EXPERTS, "preference": PREFERENCE, **shared("shared_experts")},
        count="n_routed_experts",
        hidden="moe_intermediate_size",
        normalised=("norm_topk_prob", False),
        gguf_normalised=False,
        scores="sigmoid",
        shared_count=("n_shared_experts", "expert_shared_count"),
        scale=("routed_scaling_factor", "expert_weights_scale"),
        sparse=Sparse(first=("first_k_dense_replace", "leading_dense_block_count")),
    ),
)
