"""Mixtral of Mistral AI (arXiv 2401.04088), as safetensors; its GGUF files say llama."""

from dataclasses import replace

from ..family import Windows
from ..mixture import EXPERTS, Mixture
from . import mistral

PLACE = "block_sparse_moe."
NAMES = {
    "router": PLACE + "gate.weight",
    "expert_gate": PLACE + "experts.{}.w1.weight",
    "expert_up": PLACE + "experts.{}.w3.weight",
    "expert_down": PLACE + "experts.{}.w2.weight",
}

FAMILY = replace(
    mistral.FAMILY,
    model_types=("mixtral",),
    multimodal=(),
    defaults={"num_key_value_heads": 8, "rms_norm_eps": 1e-5},
    windows=Windows(default=None, same=True),
    rope_base=1e6,
    mixture=Mixture(names={role: (EXPERTS[role][0], name) for role, name in NAMES.items()}),
)
