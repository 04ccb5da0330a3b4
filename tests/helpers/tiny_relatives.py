"""Tiny random models of families whose build is Llama's but for little, and what their GGUF files say."""

from __future__ import annotations

from typing import Any

from tiny_settings import DYNAMIC_ROPE, LLAMA3_ROPE, MQA, YARN_ROPE

_GLM = {"head_dim": 16, "pad_token_id": 0, "eos_token_id": [1], "rms_norm_eps": 1e-5, "seq_length": 256}
"""seq_length: what llama.cpp's converter takes for the context; and norms have this number there."""
_COHERE = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1, "logit_scale": 1.5}

RELATIVES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma": ("GemmaConfig", {"head_dim": 24, "num_hidden_layers": 2}),
    "gemma-mqa": ("GemmaConfig", {**MQA, "head_dim": 32, "num_hidden_layers": 2}),
    "exaone": ("ExaoneConfig", {"rope_parameters": LLAMA3_ROPE, "eos_token_id": 1}),
    "exaone-tied": ("ExaoneConfig", {**MQA, "tie_word_embeddings": True, "eos_token_id": 1}),
    "exaone4": (
        "Exaone4Config",
        {"num_hidden_layers": 5, "sliding_window": 6, "rope_parameters": LLAMA3_ROPE},
    ),
    "exaone4-all-see-all": (
        "Exaone4Config",
        {"sliding_window": None, "layer_types": ["full_attention"] * 3, "tie_word_embeddings": True},
    ),
    "internlm3": ("InternLM3Config", {"head_dim": 24, "rope_parameters": DYNAMIC_ROPE}),
    "internlm3-biases": (
        "InternLM3Config",
        {**MQA, "head_dim": 16, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "hunyuan": ("HunYuanDenseV1Config", {"head_dim": 24}),
    "hunyuan-alpha": (
        "HunYuanDenseV1Config",
        {"head_dim": 16, "rope_parameters": {**DYNAMIC_ROPE, "alpha": 9.0}},
    ),
    "hunyuan-mqa-tied": (
        "HunYuanDenseV1Config",
        {**MQA, "head_dim": 16, "tie_word_embeddings": True, "attention_bias": True},
    ),
    "ernie": ("Ernie4_5Config", {"head_dim": 24}),
    "ernie-biases-untied": (
        "Ernie4_5Config",
        {**MQA, "head_dim": 16, "use_bias": True, "tie_word_embeddings": False},
    ),
    "seedoss": ("SeedOssConfig", {"head_dim": 24}),
    "seedoss-all-biases-tied": (
        "SeedOssConfig",
        {
            **MQA,
            "head_dim": 16,
            "attention_out_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": YARN_ROPE,
        },
    ),
    "cohere": ("CohereConfig", _COHERE),
    "cohere-mqa": ("CohereConfig", {**_COHERE, **MQA, "logit_scale": 0.5}),
    "cohere2": (
        "Cohere2Config",
        {**_COHERE, "num_hidden_layers": 5, "sliding_window": 6, "rotary_pct": 1.0},  # which files have
    ),
    "glm": ("GlmConfig", _GLM),
    "glm-mha-tied": (
        "GlmConfig",
        {**_GLM, "num_key_value_heads": 4, "attention_bias": False, "tie_word_embeddings": True},
    ),
}
"""As `tiny_models.MODELS`."""

CONVERTED = {
    "gemma": ("gemma", False),
    "exaone": ("exaone", False),
    "exaone4": ("exaone4", False),
    "internlm3": ("llama", True),
    "hunyuan": ("hunyuan-dense", False),
    "ernie": ("ernie4_5", False),
    "seedoss": ("seed_oss", False),
    "glm": ("chatglm", False),
    "cohere": ("command-r", False),
    "cohere2": ("cohere2", False),
}
"""As `tiny_models.CONVERTED`."""

NOT_IN_GGUF = {"hunyuan-alpha": "the converter wants the sizes of the models that there are"}


def metadata(config: Any) -> dict[str, Any]:
    """By key below the architecture, what is said besides; empty for another family."""
    rope = config.rope_parameters
    if config.model_type in ("cohere", "cohere2"):
        said = {"attention.layer_norm_epsilon": config.layer_norm_eps, "logit_scale": config.logit_scale}
        return {**said, "attention.sliding_window": getattr(config, "sliding_window", 0) or 0}
    if config.model_type == "exaone4" and config.sliding_window is not None:
        return {
            "attention.sliding_window": config.sliding_window,
            "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config.layer_types],
        }
    if config.model_type == "glm":
        return {"rope.dimension_count": int(config.head_dim * rope["partial_rotary_factor"])}
    return {}
