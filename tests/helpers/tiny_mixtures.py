"""Tiny random models with experts, and their tensors and metadata as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_GRANITE = {
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.1,
    "residual_multiplier": 0.4,
    "logits_scaling": 0.5,
}
_QWEN = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "head_dim": 24}
_OLMOE = {"num_experts": 8, "num_experts_per_tok": 3, "pad_token_id": 0, "eos_token_id": 1}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "truncate": False,
}
_OSS = {
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "head_dim": 16,
    "sliding_window": 6,
    "rope_parameters": _YARN,
}

MIXTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "mixtral-top1-mqa-tied": (
        "MixtralConfig",
        {
            "num_local_experts": 7,
            "num_experts_per_tok": 1,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
            "sliding_window": 5,
        },
    ),
    "qwen3moe": ("Qwen3MoeConfig", {**_QWEN, "norm_topk_prob": True}),
    "qwen3moe-odd": (
        "Qwen3MoeConfig",
        {**_QWEN, "hidden_size": 60, "moe_intermediate_size": 22, "norm_topk_prob": True},
    ),
    "qwen3moe-some-dense": (
        "Qwen3MoeConfig",
        {**_QWEN, "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    ),
    "olmoe": ("OlmoeConfig", {**_OLMOE, "num_key_value_heads": 4}),
    "olmoe-normalised-gqa": ("OlmoeConfig", {**_OLMOE, "norm_topk_prob": True}),
    "granitemoe": ("GraniteMoeConfig", _GRANITE),
    "granitemoe-shared-tied": (
        "GraniteMoeSharedConfig",
        {**_GRANITE, "shared_intermediate_size": 48, "tie_word_embeddings": True},
    ),
    "gptoss": ("GptOssConfig", _OSS),
    "gptoss-all-see-all": (
        "GptOssConfig",
        {**_OSS, "layer_types": ["full_attention"] * 4, "num_key_value_heads": 1, "hidden_size": 96},
    ),
}
"""As `tiny_models.MODELS`."""

CONVERTED = {
    "mixtral": ("llama", True),
    "qwen3moe": ("qwen3moe", False),
    "olmoe": ("olmoe", False),
    "granitemoe": ("granitemoe", True),
    "gptoss": ("gpt-oss", False),
}
"""As `tiny_models.CONVERTED`."""

NOT_IN_GGUF = {
    "mixtral-top1-mqa-tied": "the converter drops the window",
    "qwen3moe-some-dense": "the converter takes all layers to have experts",
    "olmoe-normalised-gqa": "the converter does not say that weights are normalised",
    "gptoss-all-see-all": "the converter takes the layers to alternate",
}


def metadata(config: Any) -> dict[str, Any]:
    """By key below the architecture; empty for a model without experts."""
    count = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if count is None:
        return {}
    used = getattr(config, "top_k_experts", None) or config.num_experts_per_tok
    found = {"expert_count": count, "expert_used_count": used}
    if (hidden := getattr(config, "moe_intermediate_size", None)) is not None:
        found["expert_feed_forward_length"] = hidden
    if shared := getattr(config, "shared_intermediate_size", 0):
        found["expert_shared_feed_forward_length"] = shared
    if config.model_type == "gpt_oss":
        found["expert_feed_forward_length"] = config.intermediate_size
        found["attention.sliding_window"] = config.sliding_window
    return found


def scale_name(key: str) -> str | None:
    """In a file, of a scale that the converter's table does not know."""
    place, _, name = key.rpartition(".router.")
    stored = {"scale": "ffn_gate_inp", "per_expert_scale": "ffn_down_exps"}.get(name)
    return None if stored is None else f"blk.{place.rpartition('.')[2]}.{stored}.scale"


def tensors(key: str, values: np.ndarray, config: Any) -> Iterator[tuple[str, np.ndarray]]:
    """A tensor of a model, or the parts it becomes, by names that the converter's table knows."""
    place, _, name = key.replace("block_sparse_moe.experts.", "mlp.experts.").rpartition(".")
    if name == "layer_scalar" or (place.endswith("experts") and config.model_type == "gemma4_text"):
        yield f"{key}.weight", values
    elif place.endswith("block_sparse_moe.router"):
        yield f"{place}.layer.weight", values
    elif name == "sinks":
        yield f"{key}.weight", values
    elif key.endswith("shared_mlp.input_linear.weight"):
        place = place.removesuffix("shared_mlp.input_linear")
        for half, part in zip(("gate", "up"), np.split(values, 2), strict=True):
            yield f"{place}mlp.shared_expert.{half}_proj.weight", part
    elif not place.endswith("mlp.experts"):
        yield key, values
    else:
        kind = "bias" if name.endswith("_bias") else "weight"
        alternating = config.model_type == "gpt_oss"
        rows = values.swapaxes(1, 2) if alternating and kind == "weight" else values
        if name.startswith("down"):
            yield f"{place}.down_proj.{kind}", rows
            return
        halves = (rows[:, ::2], rows[:, 1::2]) if alternating else np.split(rows, 2, axis=1)
        for half, part in zip(("gate", "up"), halves, strict=True):
            yield f"{place}.{half}_proj.{kind}", part
