"""OLMo 2 (arXiv 2501.00656): norms behind each block instead of before it, and on all queries and keys."""

from ..family import ATTENTION_BIASES, HEAD_NORMS, NAMES, Family

NORMS = {
    "attention_post_norm": ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    "mlp_post_norm": ("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
}
BEFORE = ("attention_norm", "mlp_norm")

FAMILY = Family(
    model_types=("olmo2",),
    defaults={"rms_norm_eps": 1e-5},
    names={**{role: name for role, name in NAMES.items() if role not in BEFORE}, **HEAD_NORMS, **NORMS},
    bias_options={"attention_bias": ATTENTION_BIASES},
    norm_of_rows=True,
)
