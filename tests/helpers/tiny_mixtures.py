"""Tiny random models with experts, and their tensors and metadata as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tiny_settings import YARN_ROPE

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
_OSS = {
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "head_dim": 16,
    "sliding_window": 6,
    "rope_parameters": {**YARN_ROPE, "truncate": False},
}

_QWEN2 = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}
_GLM = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "head_dim": 16,
    "routed_scaling_factor": 1.7,
    "num_hidden_layers": 4,
}
_ERNIE = {"moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 24, "head_dim": 16}
_HUNYUAN = {
    "num_experts": 6,
    "head_dim": 16,
    # For each layer, as the files say it; llama.cpp's converter wants all of it.
    "moe_topk": [2, 2, 2],
    "moe_intermediate_size": [96, 96, 96],
    "num_shared_expert": [1, 1, 1],
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
    "qwen2moe": ("Qwen2MoeConfig", {**_QWEN2, "num_key_value_heads": 4}),
    "qwen2moe-normalised-some-dense": (
        "Qwen2MoeConfig",
        {
            **_QWEN2,
            "num_experts_per_tok": 1,
            "norm_topk_prob": True,
            "num_hidden_layers": 4,
            "mlp_only_layers": [1],
            "tie_word_embeddings": True,
        },
    ),
    "hunyuanmoe": ("HunYuanMoEV1Config", _HUNYUAN),
    "glm4moe": ("Glm4MoeConfig", {**_GLM, "use_qk_norm": True, "attention_bias": True}),
    "glm4moe-bare-mqa": (
        "Glm4MoeConfig",
        {
            **_GLM,
            "num_key_value_heads": 1,
            "norm_topk_prob": False,
            "n_shared_experts": 2,
            "first_k_dense_replace": 2,
            "num_mtp_layers": 0,
            "tie_word_embeddings": True,
        },
    ),
    "dots1": (
        "Dots1Config",
        {
            **_GLM,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "norm_topk_prob": True,
            "sliding_window": None,
        },
    ),
    "erniemoe": ("Ernie4_5_MoeConfig", _ERNIE),
    "erniemoe-few-untied": (
        "Ernie4_5_MoeConfig",
        {
            **_ERNIE,
            "num_hidden_layers": 5,
            "moe_layer_start_index": 2,
            "moe_layer_end_index": 3,
            "moe_num_shared_experts": 0,
            "tie_word_embeddings": False,
        },
    ),
}
"""As `tiny_models.MODELS`."""

CONVERTED = {
    "mixtral": ("llama", True),
    "qwen3moe": ("qwen3moe", False),
    "olmoe": ("olmoe", False),
    "granitemoe": ("granitemoe", True),
    "gptoss": ("gpt-oss", False),
    "qwen2moe": ("qwen2moe", False),
    "hunyuanmoe": ("hunyuan-moe", False),
    "glm4moe": ("glm4moe", False),
    "dots1": ("dots1", False),
    "erniemoe": ("ernie4_5-moe", False),
}
"""As `tiny_models.CONVERTED`."""

NOT_IN_GGUF = {
    "mixtral-top1-mqa-tied": "the converter drops the window",
    "qwen3moe-some-dense": "the converter takes all layers to have experts",
    "olmoe-normalised-gqa": "the converter does not say that weights are normalised",
    "qwen2moe-normalised-some-dense": "the converter takes all layers to have experts",
    "erniemoe-few-untied": "behind which layer there are none is not in the file",
    "gptoss-all-see-all": "the converter takes the layers to alternate",
}


def metadata(config: Any) -> dict[str, Any]:
    """By key below the architecture; empty for a model without experts."""

    def said(*names: str) -> Any:
        value = next((value for name in names if (value := getattr(config, name, None)) is not None), None)
        return value[0] if isinstance(value, list) else value

    count = said("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    if count is None:
        return {}
    found = {
        "expert_count": count,
        "expert_used_count": said("top_k_experts", "moe_topk", "moe_k", "num_experts_per_tok"),
        "expert_feed_forward_length": said("moe_intermediate_size"),
        "expert_shared_feed_forward_length": said(
            "shared_intermediate_size", "shared_expert_intermediate_size"
        ),
        "expert_shared_count": said("n_shared_experts", "moe_num_shared_experts"),
        "leading_dense_block_count": said("first_k_dense_replace", "moe_layer_start_index"),
        "expert_weights_scale": said("routed_scaling_factor"),
    }
    found = {key: value for key, value in found.items() if value}
    if config.model_type in ("glm4_moe", "dots1"):
        found |= {"expert_gating_func": 2, "expert_weights_norm": config.norm_topk_prob}
    if config.model_type == "glm4_moe":  # the converter counts layers that are not in every folder
        guessing = config.num_mtp_layers
        found |= {"nextn_predict_layers": guessing, "block_count": config.num_hidden_layers + guessing}
    if config.model_type == "hunyuan_v1_moe":
        found["expert_shared_feed_forward_length"] = config.intermediate_size
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
    if name == "e_score_correction_bias":
        place = place.replace(".gate.moe_statics", ".moe_statics")
        yield f"{place}.e_score_correction.bias", values.reshape(-1)
    elif name == "layer_scalar" or (place.endswith("experts") and config.model_type == "gemma4_text"):
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
