"""EXAONE 3 and 3.5 of LG AI Research (arXiv 2408.03541): Llama's build by other names."""

from ..family import ATTENTION_BIASES, MLP_BIASES, NAMES, Family

PLACES = {
    "embedding": "transformer.wte.weight",
    "norm": "transformer.ln_f.weight",
    "attention_norm": "ln_1.weight",
    "q": "attn.attention.q_proj.weight",
    "k": "attn.attention.k_proj.weight",
    "v": "attn.attention.v_proj.weight",
    "q_bias": "attn.attention.q_proj.bias",
    "k_bias": "attn.attention.k_proj.bias",
    "v_bias": "attn.attention.v_proj.bias",
    "output": "attn.attention.out_proj.weight",
    "output_bias": "attn.attention.out_proj.bias",
    "mlp_norm": "ln_2.weight",
    "gate": "mlp.c_fc_0.weight",
    "up": "mlp.c_fc_1.weight",
    "down": "mlp.c_proj.weight",
    "gate_bias": "mlp.c_fc_0.bias",
    "up_bias": "mlp.c_fc_1.bias",
    "down_bias": "mlp.c_proj.bias",
}

FAMILY = Family(
    model_types=("exaone",),
    architectures=("exaone",),
    aliases={
        "num_layers": "num_hidden_layers",
        "layer_norm_epsilon": "rms_norm_eps",
        "activation_function": "hidden_act",
    },
    defaults={"num_key_value_heads": 8, "rms_norm_eps": 1e-5},
    names={role: (name[0], PLACES.get(role, name[1])) for role, name in {**NAMES, **MLP_BIASES}.items()},
    layer_prefix="transformer.h",
    bias_options={"attention_bias": ATTENTION_BIASES, "mlp_bias": tuple(MLP_BIASES)},
    rope_base=500000.0,
)
