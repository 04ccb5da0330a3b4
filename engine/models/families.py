"""The architectures that can be loaded: their variants, and the names and shapes of their tensors."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kernels.interface import RopeLayout

from .spec import ModelSpec

Naming = Literal["gguf", "huggingface"]


class Family(NamedTuple):
    """What all models of one architecture share.

    gguf_layout: order of query and key rows in GGUF files (half in safetensors); None: no such GGUF
    architecture. qk_norm: a norm on each query and key head. biases: roles of biases every checkpoint must
    have. bias_option: config.json's attention_bias says whether q, k, v and output have biases.
    """

    gguf_layout: RopeLayout | None
    qk_norm: bool = False
    biases: tuple[str, ...] = ()
    bias_option: bool = False


FAMILIES: dict[str, Family] = {
    "llama": Family(gguf_layout="interleaved", bias_option=True),
    "mistral": Family(gguf_layout=None),
    "qwen2": Family(gguf_layout="half", biases=("q_bias", "k_bias", "v_bias")),
    "qwen3": Family(gguf_layout="half", qk_norm=True, bias_option=True),
}
"""By config.json's model_type, which is also GGUF's general.architecture (Mistral's GGUF files say llama)."""

# Canonical name -> name in a GGUF file, name in safetensors.
_GLOBAL = {
    "embedding": ("token_embd.weight", "model.embed_tokens.weight"),
    "norm": ("output_norm.weight", "model.norm.weight"),
    "head": ("output.weight", "lm_head.weight"),
}
_LAYER = {
    "attention_norm": ("attn_norm.weight", "input_layernorm.weight"),
    "q": ("attn_q.weight", "self_attn.q_proj.weight"),
    "k": ("attn_k.weight", "self_attn.k_proj.weight"),
    "v": ("attn_v.weight", "self_attn.v_proj.weight"),
    "q_bias": ("attn_q.bias", "self_attn.q_proj.bias"),
    "k_bias": ("attn_k.bias", "self_attn.k_proj.bias"),
    "v_bias": ("attn_v.bias", "self_attn.v_proj.bias"),
    "q_norm": ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    "k_norm": ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    "output": ("attn_output.weight", "self_attn.o_proj.weight"),
    "output_bias": ("attn_output.bias", "self_attn.o_proj.bias"),
    "mlp_norm": ("ffn_norm.weight", "post_attention_layernorm.weight"),
    "gate": ("ffn_gate.weight", "mlp.gate_proj.weight"),
    "up": ("ffn_up.weight", "mlp.up_proj.weight"),
    "down": ("ffn_down.weight", "mlp.down_proj.weight"),
}
_LAYER_PREFIX = ("blk", "model.layers")


class TensorSpec(NamedTuple):
    """A tensor a decoder takes: its canonical name and role, its name in a file, its shape."""

    name: str
    role: str
    stored_name: str
    shape: tuple[int, ...]

    @property
    def is_matrix(self) -> bool:
        """Whether it may be quantized; norms and biases never are."""
        return len(self.shape) == 2


def tensor_specs(spec: ModelSpec, naming: Naming) -> list[TensorSpec]:
    """Every tensor a checkpoint of this model may have; biases and head are not in all of them."""
    column = 0 if naming == "gguf" else 1
    width, q, kv, head, ff = spec.width, spec.q_columns, spec.kv_columns, spec.head_dim, spec.feed_forward
    top = {"embedding": (spec.vocabulary, width), "norm": (width,), "head": (spec.vocabulary, width)}
    layer: dict[str, tuple[int, ...]] = {
        "attention_norm": (width,),
        "q": (q, width),
        "k": (kv, width),
        "v": (kv, width),
        "q_bias": (q,),
        "k_bias": (kv,),
        "v_bias": (kv,),
        "output": (width, q),
        "output_bias": (width,),
        "mlp_norm": (width,),
        "gate": (ff, width),
        "up": (ff, width),
        "down": (width, ff),
    }
    if spec.qk_norm:
        layer |= {"q_norm": (head,), "k_norm": (head,)}
    specs = [TensorSpec(role, role, _GLOBAL[role][column], shape) for role, shape in top.items()]
    for i in range(spec.layers):
        prefix = f"{_LAYER_PREFIX[column]}.{i}."
        specs += [
            TensorSpec(f"{i}.{role}", role, prefix + _LAYER[role][column], shape)
            for role, shape in layer.items()
        ]
    return specs
