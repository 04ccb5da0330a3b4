"""What the mixtures of experts of one architecture have in common: part of a family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kernels.interface import RoutingScores

EXPERTS: Mapping[str, tuple[str, str]] = {
    "router": ("ffn_gate_inp.weight", "mlp.gate.weight"),
    "expert_gate": ("ffn_gate_exps.weight", "mlp.experts.{}.gate_proj.weight"),
    "expert_up": ("ffn_up_exps.weight", "mlp.experts.{}.up_proj.weight"),
    "expert_down": ("ffn_down_exps.weight", "mlp.experts.{}.down_proj.weight"),
}
"""Names of their tensors as most families have them; see `Mixture.names`."""

PREFERENCE = ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias")


def shared(place: str) -> Mapping[str, tuple[str, str]]:
    """Names of the network that all rows go through besides, which is called so in safetensors."""
    return {
        f"shared_{role}": (f"ffn_{role}_shexp.weight", f"mlp.{place}.{role}_proj.weight")
        for role in ("gate", "up", "down")
    }


class Sparse(NamedTuple):
    """Which layers have experts, by options of config.json: each `every`-th (default 1), but for those that
    `dense` lists, the first ones, whose number is `first` or that key of GGUF files, and those behind `last`.
    """

    every: str = ""
    dense: str = ""
    first: tuple[str, str] | None = None
    last: str = ""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Layers whose feed-forward network is a mixture of experts.

    names: role -> names in GGUF and safetensors, as in `Family.names`, in place of those of the feed-forward
    network; {} stands for the number of an expert; a tensor without it holds all experts, one below the
    other. Roles with the same name are blocks of rows of each expert. preference: see `Experts`.
    shared_router: says how much a row takes of the network that all go through.
    count: option of config.json that says how many there are, if it is none of those that most have.
    hidden: option that says how many columns an expert has inside; without it they are those
    of the feed-forward network. scores: see `Routing`.
    used: option that says how many a row chooses; switch: option that is true where there are experts.
    normalised: option that says whether a row's weights sum to 1, and its default; None: they do.
    gguf_normalised: what GGUF files mean that do not say. shared: options of config.json and GGUF that say
    how large the network is that all rows go through besides; shared_count: that say it in experts, where
    that is not said. scale: options of what weights are multiplied by. sparse: None if all layers have
    experts. optional: there are models of the architecture without experts.
    alternating: in safetensors the rows of gate and up alternate. inputs_first: and a tensor of all experts
    that is not in blocks is [experts, inputs, outputs].
    """

    names: Mapping[str, tuple[str, str]] = field(default_factory=lambda: EXPERTS)
    count: str = ""
    hidden: str = ""
    used: str = "num_experts_per_tok"
    switch: str = ""
    normalised: tuple[str, bool] | None = None
    gguf_normalised: bool = True
    scores: RoutingScores = "softmax"
    shared: tuple[str, str] | None = None
    shared_count: tuple[str, str] | None = None
    scale: tuple[str, str] | None = None
    sparse: Sparse | None = None
    optional: bool = False
    alternating: bool = False
    inputs_first: bool = False
