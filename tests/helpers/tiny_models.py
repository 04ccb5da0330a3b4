"""Tiny random models of every family, as transformers saves them: what ours are held to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
import torch
import transformers

import tiny_mixtures
import tiny_relatives
from tiny_settings import (
    GEMMA3_ROPE,
    GROWING_ROPE,
    LINEAR_ROPE,
    LLAMA3_ROPE,
    MHA,
    MQA,
    MROPE,
    OLMO3_ROPE,
    PLAIN_ROPE,
    YARN_ROPE,
)

SIZES = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
ODD = {"hidden_size": 60, "intermediate_size": 92, "num_attention_heads": 3, "num_key_value_heads": 1}
TIED = {"tie_word_embeddings": True}
GEMMA4 = {
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 6,
    "final_logit_softcapping": 20.0,
}
LONG, SHORT = [1.0 + 0.7 * i for i in range(6)], [1.0 + 0.1 * i for i in range(6)]
VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
QWEN_VISION = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64}


def _longrope(original: int) -> dict[str, Any]:
    parameters = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
    return {
        "pad_token_id": 0,
        "rope_parameters": {**parameters, "long_factor": LONG, "short_factor": SHORT},
        "original_max_position_embeddings": original,
    }


def _multimodal(vision: dict[str, Any], tied: bool = False, **text: Any) -> dict[str, Any]:
    return {"text_config": {**SIZES, **text}, "vision_config": vision, "tie_word_embeddings": tied}


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama-mha-tied": ("LlamaConfig", {**MHA, **TIED}),
    "llama-odd": ("LlamaConfig", {**ODD, "head_dim": 22, "rms_norm_eps": 1e-4}),
    "llama-biases": ("LlamaConfig", {"attention_bias": True}),
    "llama-mlp-biases": ("LlamaConfig", {"mlp_bias": True}),
    "llama-head-dim": ("LlamaConfig", {"head_dim": 32}),
    "llama3-rope": ("LlamaConfig", {"rope_parameters": LLAMA3_ROPE}),
    "llama-linear-rope": ("LlamaConfig", {"rope_parameters": LINEAR_ROPE}),
    "llama-yarn-rope": (
        "LlamaConfig",
        {"rope_parameters": {**YARN_ROPE, "truncate": False, "attention_factor": 1.3}},
    ),
    "mistral": ("MistralConfig", {"sliding_window": 5}),
    "mistral-mqa-tied": ("MistralConfig", {**MQA, **TIED, "sliding_window": None, "head_dim": 24}),
    "ministral": (
        "MinistralConfig",
        {
            "sliding_window": 6,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "head_dim": 16,
        },
    ),
    "ministral3": ("Ministral3Config", {"rope_parameters": GROWING_ROPE, "head_dim": 24}),
    "mistral3": (
        "Mistral3Config",
        _multimodal({**VISION, "model_type": "pixtral"}, model_type="mistral", head_dim=16),
    ),
    "mistral3-ministral3": (
        "Mistral3Config",
        _multimodal(
            {**VISION, "model_type": "pixtral"},
            tied=True,
            model_type="ministral3",
            head_dim=16,
            rope_parameters=GROWING_ROPE,
        ),
    ),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-mha-tied": ("Qwen2Config", {**MHA, **TIED}),
    "qwen2-yarn": ("Qwen2Config", {"rope_parameters": YARN_ROPE}),
    "qwen2-some-windows": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "qwen2vl": (
        "Qwen2_5_VLConfig",
        _multimodal({**QWEN_VISION, "fullatt_block_indexes": [0]}, rope_parameters=MROPE),
    ),
    "qwen3": ("Qwen3Config", {"head_dim": 24}),
    "qwen3-mqa-tied": ("Qwen3Config", {**MQA, **TIED, "head_dim": 32, "attention_bias": True}),
    "qwen3vl": (
        "Qwen3VLConfig",
        _multimodal(
            {**QWEN_VISION, "deepstack_visual_indexes": [0], "num_position_embeddings": 16},
            rope_parameters={**MROPE, "mrope_section": [4, 2, 2]},
            head_dim=16,
        ),
    ),
    "qwen3vlmoe": (
        "Qwen3VLMoeConfig",
        _multimodal(
            {**QWEN_VISION, "deepstack_visual_indexes": [0], "num_position_embeddings": 16},
            rope_parameters={**MROPE, "mrope_section": [4, 2, 2]},
            head_dim=16,
            num_experts=8,
            num_experts_per_tok=3,
            moe_intermediate_size=24,
        ),
    ),
    "gemma2": (
        "Gemma2Config",
        {"head_dim": 24, "query_pre_attn_scalar": 24, "sliding_window": 6, "attn_logit_softcapping": 5.0},
    ),
    "gemma2-no-caps": (
        "Gemma2Config",
        {**MQA, "head_dim": 16, "attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "num_hidden_layers": 7,
            "sliding_window": 6,
            "rope_parameters": GEMMA3_ROPE,
        },
    ),
    "gemma3-multimodal": (
        "Gemma3Config",
        _multimodal(
            VISION, tied=True, head_dim=24, query_pre_attn_scalar=24, num_hidden_layers=7, sliding_window=5
        ),
    ),
    "gemma4": (
        "Gemma4TextConfig",
        {
            **GEMMA4,
            "num_hidden_layers": 8,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2
            + ["sliding_attention", "full_attention"],
            "num_kv_shared_layers": 3,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 24,
            "vocab_size_per_layer_input": SIZES["vocab_size"],
        },
    ),
    "gemma4-keys-are-values": (
        "Gemma4TextConfig",
        {
            **GEMMA4,
            "num_hidden_layers": 7,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
        },
    ),
    "gemma4moe": (
        "Gemma4TextConfig",
        {
            **GEMMA4,
            "num_hidden_layers": 4,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
            "num_experts": 8,
            "top_k_experts": 3,
            "moe_intermediate_size": 32,
        },
    ),
    "granite": (
        "GraniteConfig",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.1,
            "residual_multiplier": 0.4,
            "logits_scaling": 0.5,
        },
    ),
    "granite-mha-tied": ("GraniteConfig", {**MHA, **TIED, "attention_bias": True, "mlp_bias": True}),
    "granitemoehybrid": (
        "GraniteMoeHybridConfig",
        {
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "layer_types": ["full_attention"] * 3,
            "shared_intermediate_size": 96,
            "position_embedding_type": "rope",
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.5,
        },
    ),
    "granitemoehybrid-still": (
        "GraniteMoeHybridConfig",
        {
            **MQA,
            **TIED,
            "num_local_experts": 0,
            "layer_types": ["full_attention"] * 3,
            "shared_intermediate_size": 72,
        },
    ),
    "phi3": ("Phi3Config", {"pad_token_id": 0, "sliding_window": 9}),
    "phi3-partial": (
        "Phi3Config",
        {**MQA, **TIED, "pad_token_id": 0, "rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.75}},
    ),
    "phi3-short-factors": ("Phi3Config", _longrope(original=256)),
    "phi3-long-factors": ("Phi3Config", _longrope(original=4)),
    "olmo2": ("Olmo2Config", {}),
    "olmo2-mha": ("Olmo2Config", {**MHA, "rope_parameters": LINEAR_ROPE}),
    "olmo3": (
        "Olmo3Config",
        {"num_hidden_layers": 5, "sliding_window": 6, "rope_parameters": OLMO3_ROPE},
    ),
    "smollm3": ("SmolLM3Config", {"num_hidden_layers": 5, "pad_token_id": 0, "eos_token_id": 1}),
    "smollm3-untied": (
        "SmolLM3Config",
        {
            **MQA,
            "tie_word_embeddings": False,
            "no_rope_layers": [0, 1, 1],
            "pad_token_id": 0,
            "eos_token_id": 1,
        },
    ),
    "glm4": (
        "Glm4Config",
        {
            "head_dim": 16,
            "pad_token_id": 0,
            "eos_token_id": [1],
            "rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.5},
        },
    ),
    "glm4-mha-tied": (
        "Glm4Config",
        {**MHA, **TIED, "head_dim": 24, "pad_token_id": 0, "eos_token_id": [1], "attention_bias": False},
    ),
    **tiny_relatives.RELATIVES,
    **tiny_mixtures.MIXTURES,
}
"""What is made by a name: the class of its configuration and what is special of it. The name begins with that
of the family."""

FAMILIES = tuple(dict.fromkeys(kind.partition("-")[0] for kind in MODELS if kind != "llama3-rope"))


class Converted(NamedTuple):
    """architecture: that llama.cpp's converter gives a model. turned: whether it reorders the rows of queries
    and keys, of halves of a head to pairs."""

    architecture: str
    turned: bool = False


CONVERTED = {
    "llama": Converted("llama", True),
    "llama3": Converted("llama", True),
    "mistral": Converted("llama", True),
    "ministral3": Converted("mistral3", True),
    "mistral3": Converted("mistral3", True),
    "qwen2": Converted("qwen2"),
    "qwen2vl": Converted("qwen2vl"),
    "qwen3": Converted("qwen3"),
    "qwen3vl": Converted("qwen3vl"),
    "qwen3vlmoe": Converted("qwen3vlmoe"),
    "gemma2": Converted("gemma2"),
    "gemma3": Converted("gemma3"),
    "gemma4": Converted("gemma4"),
    "gemma4moe": Converted("gemma4"),
    "granite": Converted("granite", True),
    "phi3": Converted("phi3"),
    "olmo2": Converted("olmo2"),
    "olmo3": Converted("olmo2"),
    "smollm3": Converted("smollm3", True),
    "glm4": Converted("glm4"),
    **{
        name: Converted(*converted)
        for name, converted in {**tiny_relatives.CONVERTED, **tiny_mixtures.CONVERTED}.items()
    },
}
"""By the first word of a model's name: those that have GGUF files."""


NOT_IN_GGUF = {
    **tiny_mixtures.NOT_IN_GGUF,
    **tiny_relatives.NOT_IN_GGUF,
    "mistral": "the converter drops the window",
    "qwen2-some-windows": "the converter drops the windows",
    "smollm3-untied": "which layers rotate is not in the file",
    "gemma2-no-caps": "the converter needs caps",
    "llama-yarn-rope": "that the ramp is not truncated is not in the file",
    "ministral": "the converter does not know it",
    "granitemoehybrid": "the converter looks for its layers by names that transformers 5 does not write",
    "granitemoehybrid-still": "that nothing rotates is not in the file",
}
"""What files lack, and so do not agree with their folders in."""


def make(kind: str, folder: Path, **special: Any) -> torch.nn.Module:
    """A random model with every bias and norm far from its initial value, saved to the folder."""
    name, changes = MODELS[kind]
    changes = {**changes, **special}
    torch.manual_seed(sum(map(ord, kind)))
    if "text_config" in changes:
        config = getattr(transformers, name)(**changes)
        text = config.text_config
        auto = transformers.AutoModelForImageTextToText
    else:
        config = text = getattr(transformers, name)(**{**SIZES, **changes})
        auto = transformers.AutoModelForCausalLM
    text.initializer_range = config.initializer_range = 0.15
    # What the library takes otherwise wants widths of whole 16 bytes.
    mixed = kind in tiny_mixtures.MIXTURES or kind in ("gemma4moe", "qwen3vlmoe")
    experts = {"experts_implementation": "eager"} if mixed else {}
    model = auto.from_config(config, attn_implementation="eager", **experts).float().eval()
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "vision" in key or "visual" in key:
                continue
            if key.endswith("e_score_correction_bias"):
                value.normal_(std=0.1)
            elif key.endswith("bias"):
                value.normal_(std=2.0)
            elif "norm" in key or key.endswith(("router.scale", "per_expert_scale")):
                value.uniform_(0.5, 1.5)
        for key, value in model.named_buffers():
            if key.endswith("layer_scalar"):
                value.uniform_(0.5, 1.5)
            if key.endswith("e_score_correction_bias"):
                value.normal_(std=0.2)
    model.save_pretrained(folder)
    return model


def write_tokenizer(folder: Path) -> None:
    """One token a character: enough for an engine to start."""
    vocabulary = {chr(0x100 + i): i for i in range(SIZES["vocab_size"])}
    pipeline = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    pipeline.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = tokenizers.decoders.ByteLevel()
    pipeline.save(str(folder / "tokenizer.json"))


def text_of(config: Any) -> Any:
    """The part of a configuration that describes the text."""
    return getattr(config, "text_config", config)
