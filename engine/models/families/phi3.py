"""Phi-3 and Phi-4-mini (arXiv 2404.14219): fused tensors, part of a head rotates."""

from ..family import NAMES, Family, Windows

FUSED = {
    **dict.fromkeys("qkv", ("attn_qkv.weight", "self_attn.qkv_proj.weight")),
    **dict.fromkeys(("gate", "up"), ("ffn_up.weight", "mlp.gate_up_proj.weight")),
}

FAMILY = Family(
    model_types=("phi3",),
    architectures=("phi3",),
    names={role: FUSED.get(role, name) for role, name in NAMES.items() if not role.endswith("_bias")},
    windows=Windows(default=None, same=True),
    defaults={"original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
    rope_kinds={"su": "longrope", "yarn": "longrope"},
    turning=1.0,
    refused=("attention_bias",),
)
