"""What the models of one architecture have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from kernels.interface import Gate, RopeLayout

from .mixture import Mixture
from .spec import ModelSpec

Naming = Literal["gguf", "huggingface"]

NAMES: Mapping[str, tuple[str, str]] = {
    "embedding": ("token_embd.weight", "model.embed_tokens.weight"),
    "norm": ("output_norm.weight", "model.norm.weight"),
    "head": ("output.weight", "lm_head.weight"),
    "attention_norm": ("attn_norm.weight", "input_layernorm.weight"),
    "q": ("attn_q.weight", "self_attn.q_proj.weight"),
    "k": ("attn_k.weight", "self_attn.k_proj.weight"),
    "v": ("attn_v.weight", "self_attn.v_proj.weight"),
    "q_bias": ("attn_q.bias", "self_attn.q_proj.bias"),
    "k_bias": ("attn_k.bias", "self_attn.k_proj.bias"),
    "v_bias": ("attn_v.bias", "self_attn.v_proj.bias"),
    "output": ("attn_output.weight", "self_attn.o_proj.weight"),
    "output_bias": ("attn_output.bias", "self_attn.o_proj.bias"),
    "mlp_norm": ("ffn_norm.weight", "post_attention_layernorm.weight"),
    "gate": ("ffn_gate.weight", "mlp.gate_proj.weight"),
    "up": ("ffn_up.weight", "mlp.up_proj.weight"),
    "down": ("ffn_down.weight", "mlp.down_proj.weight"),
}
"""Names of tensors as most families have them: role -> name in a GGUF file, name in safetensors."""

HEAD_NORMS: Mapping[str, tuple[str, str]] = {
    "q_norm": ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    "k_norm": ("attn_k_norm.weight", "self_attn.k_norm.weight"),
}
"""Norms of queries and keys."""

SINKS: Mapping[str, tuple[str, str]] = {"sinks": ("attn_sinks.weight", "self_attn.sinks")}
"""What each head's scores share a softmax with besides."""

ATTENTION_BIASES = ("q_bias", "k_bias", "v_bias", "output_bias")

MLP_BIASES: Mapping[str, tuple[str, str]] = {
    "gate_bias": ("ffn_gate.bias", "mlp.gate_proj.bias"),
    "up_bias": ("ffn_up.bias", "mlp.up_proj.bias"),
    "down_bias": ("ffn_down.bias", "mlp.down_proj.bias"),
}
"""Biases of the feed-forward network."""


class Windows(NamedTuple):
    """Which layers see no more than a window of keys, where config.json's layer_types do not say it.

    default: the window where config.json has no `sliding_window`, None for none; gguf_default: where a GGUF
    file has none. switch: option of config.json that must be true, or there are no windows. first: option
    and its default: layers before it see all keys. every: option (or an empty name) and its default: the last
    of so many layers sees all keys. same: all layers are alike; a config.json that says otherwise is refused.
    last: the last layer sees all keys, whatever is said.
    """

    default: int | None
    switch: str = ""
    first: tuple[str, int] | None = None
    every: tuple[str, int] | None = None
    same: bool = False
    last: bool = False
    gguf_default: int | None = None


class Varied(NamedTuple):
    """Sizes that differ from layer to layer; options of config.json.

    head_dim, kv_heads: of layers that see all keys. keys_are_values: whether these have no values of their
    own; without it kv_heads is of no account. shared: how many of the last layers read the keys and values
    of the last one of their kind (with a window or without) before them. wide: whether those have twice the
    columns inside their feed-forward network. layers: an object that says it by layer, and wins.
    """

    head_dim: str
    kv_heads: str
    keys_are_values: str
    shared: str
    wide: str
    layers: str


class Option(NamedTuple):
    """Where a number of the specification comes from.

    config: key of config.json. metadata: key of a GGUF file below its architecture. default: where there is
    no such key, a number or what follows from the rest of the specification. value: of the number there.
    null: config.json's null stands for None, not for the default.
    """

    default: float | None | Callable[[ModelSpec], float]
    config: str = ""
    metadata: str = ""
    value: Callable[[float], float] = float
    null: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture as data.

    model_types: in config.json; multimodal: of models whose text part it is. architectures: in GGUF files;
    none if there are none of its own. defaults: of keys that config.json lacks, where they are not what most
    families have. aliases: keys of config.json that stand for the usual ones.
    layout, gguf_layout: order of query and key rows in safetensors and in GGUF files.
    names: role -> names in GGUF and safetensors, those of a layer without its prefix, which is `layer_prefix`
    in safetensors. Roles with the same name are blocks of rows of one tensor, in this order. Roles that end
    in _bias and those in `optional` may be missing, but for those in `biases`; bias_options: option of
    config.json -> roles it makes necessary. fused: names in GGUF files that have several roles in one tensor,
    as some have.
    norm_of_rows: norms of queries and keys are of all heads together, not of each. rotated_norm: they come
    behind the rotation. norm_offset: what safetensors leave out of the weights of norms.
    windows: None if it has none. local_base: where the base of the rotation of layers with a window comes
    from, which nothing stretches (default None: the other layers' base); None: they rotate like the others.
    temperature: keys of the factor on queries that grows with their position (see `RopeSpec`), in the
    rotation's part of config.json, where it must be, and in GGUF files. sections: tokens of images rotate by
    several positions, which are one position in text. rope_kinds: scalings by other names than usual.
    stretched: the scaling that stretches the base by its `alpha`. still: option that lists which layers
    rotate (0 or 1 each), option that says that the last of so many does not, and its default; None: all do.
    rotates: option of config.json and what it must be, or no layer rotates.
    windows_rotate: in a model with windows only the layers that have one rotate. turning: part of a head that
    rotates where config.json does not say; None: all of it, and a file that says otherwise is refused.
    feed_forward: option of config.json that says how wide the feed-forward network is inside. gates: kinds by
    their names in config.json's `gate_key`; the first is that of GGUF files. rope_base: of the rotation,
    where config.json does not say. yarn_truncated: whether YaRN's ramp ends on whole dimensions where the
    file does not say. options: field of the specification -> where its value comes from. refused: options of
    config.json that must not be true. fixed: options that must have this value, where they are there and not
    null. mixture: None if no layer has experts. varied: None if the layers of a model have the same sizes.
    inputs: keys, of config.json and of GGUF files, of `ModelSpec.input_columns`. value_norm: as there.
    centered, parallel: likewise. guessing: keys, of config.json and of GGUF files, of how many layers behind
    the last one guess further tokens; they are left out.
    """

    model_types: tuple[str, ...]
    architectures: tuple[str, ...] = ()
    multimodal: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    layout: RopeLayout = "half"
    gguf_layout: RopeLayout = "half"
    names: Mapping[str, tuple[str, str]] = field(default_factory=lambda: NAMES)
    fused: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    layer_prefix: str = "model.layers"
    biases: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    bias_options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    norm_of_rows: bool = False
    rotated_norm: bool = False
    norm_offset: float = 0.0
    windows: Windows | None = None
    local_base: Option | None = None
    temperature: tuple[str, str] | None = None
    sections: bool = False
    rope_kinds: Mapping[str, str] = field(default_factory=dict)
    stretched: str = ""
    still: tuple[str, str, int] | None = None
    rotates: tuple[str, str] | None = None
    windows_rotate: bool = False
    turning: float | None = None
    feed_forward: str = "intermediate_size"
    gate_key: str = "hidden_act"
    gates: Mapping[str, Gate] = field(default_factory=lambda: {"silu": "silu", "swish": "silu"})
    rope_base: float = 10000.0
    yarn_truncated: bool = True
    options: Mapping[str, Option] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    fixed: Mapping[str, float | str | None] = field(default_factory=dict)
    mixture: Mixture | None = None
    varied: Varied | None = None
    inputs: tuple[str, str] | None = None
    value_norm: bool = False
    centered: bool = False
    parallel: bool = False
    guessing: tuple[str, str] | None = None
