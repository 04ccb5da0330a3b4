"""gpt-oss of OpenAI (arXiv 2508.10925): experts with clamped gates, sinks, some windows."""

from ..family import ATTENTION_BIASES, NAMES, SINKS, Family, Windows
from ..mixture import Mixture

GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
EXPERTS = {
    "router": ("ffn_gate_inp.weight", "mlp.router.weight"),
    "router_bias": ("ffn_gate_inp.bias", "mlp.router.bias"),
    "expert_gate": ("ffn_gate_exps.weight", GATE_UP),
    "expert_up": ("ffn_up_exps.weight", GATE_UP),
    "expert_down": ("ffn_down_exps.weight", DOWN),
    "expert_gate_bias": ("ffn_gate_exps.bias", f"{GATE_UP}_bias"),
    "expert_up_bias": ("ffn_up_exps.bias", f"{GATE_UP}_bias"),
    "expert_down_bias": ("ffn_down_exps.bias", f"{DOWN}_bias"),
}
MLP_NORM = {"mlp_norm": ("post_attention_norm.weight", "post_attention_layernorm.weight")}

ROPE = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}
"""Of the library, where config.json says nothing."""

FAMILY = Family(
    model_types=("gpt_oss",),
    architectures=("gpt-oss",),
    defaults={"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5, "rope_parameters": ROPE},
    names={**NAMES, **MLP_NORM, **SINKS},
    biases=(*ATTENTION_BIASES, *(role for role in EXPERTS if role.endswith("_bias"))),
    windows=Windows(default=128, every=("", 2), gguf_default=128),
    gates={"silu": "clamped"},
    rope_base=150000.0,
    yarn_truncated=False,
    fixed={"swiglu_limit": 7.0, "swiglu_alpha": 1.702},
    mixture=Mixture(names=EXPERTS, alternating=True, inputs_first=True),
)
