"""GGUF files of tiny models with the names and the metadata that llama.cpp's converter writes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

import tiny_mixtures
import tiny_relatives
from engine.models.rope import frequencies
from engine.models.spec import RopeSpec
from tiny_models import CONVERTED, text_of

Values = dict[str, Any]


def write_gguf(path: Path, model: torch.nn.Module, kind: str) -> Path:
    """The text part of a model as a GGUF file in float32."""
    config = text_of(model.config)
    architecture, turned = CONVERTED[kind.partition("-")[0]]
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata(config, architecture, model.config).items():
        if isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
        else:
            kinds = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add = {**kinds, bool: writer.add_bool}[type(value)]
            add(f"{architecture}.{key}", value)
    for name, values in factors(config).items():
        writer.add_tensor(name, values.astype(np.float32))
    for name, values in tensors(model, config, architecture, turned):
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def head_size(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def rope_of(config: Any) -> Values:
    """Of layers that see all keys."""
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def metadata(config: Any, architecture: str, whole: Any) -> Values:
    """By key below the architecture."""
    rope = rope_of(config)
    if config.model_type == "gemma4_text":  # what differs between layers is not told otherwise
        config.allow_global_per_layer_attribute_access = True
    found: Values = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": getattr(config, "rms_norm_eps", 0.0),
        "rope.freq_base": rope["rope_theta"],
    }
    if getattr(config, "head_dim", None) is not None:
        found |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    if "sliding_attention" in config.rope_parameters:
        found["rope.freq_base_swa"] = float(config.rope_parameters["sliding_attention"]["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        found |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if rope["rope_type"] == "yarn":
        found["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        if "attention_factor" in rope:
            found["rope.scaling.yarn_attn_factor"] = rope["attention_factor"]
    if "mrope_section" in rope:
        found["rope.dimension_sections"] = [*rope["mrope_section"], 0]
    turning = head_size(config) * rope.get("partial_rotary_factor", 1.0)
    of_architecture = {
        "llama": lambda: {"vocab_size": config.vocab_size, "rope.dimension_count": head_size(config)},
        "mistral3": lambda: _mistral3(config, rope),
        "gemma2": lambda: _gemma2(config),
        "gemma4": lambda: _gemma4(config),
        "gemma3": lambda: {"attention.sliding_window": config.sliding_window},
        "granite": lambda: _granite(config),
        "granitemoe": lambda: _granite(config),
        "phi3": lambda: _phi3(config, rope, int(turning)),
        "olmo2": lambda: _olmo(config),
        "glm4": lambda: {"rope.dimension_count": int(turning)},
        "glm4moe": lambda: {"rope.dimension_count": int(turning)},
        "qwen3vl": lambda: {"n_deepstack_layers": len(whole.vision_config.deepstack_visual_indexes)},
        "qwen3vlmoe": lambda: {"n_deepstack_layers": len(whole.vision_config.deepstack_visual_indexes)},
    }
    found |= of_architecture.get(architecture, dict)()
    return found | tiny_relatives.metadata(config) | tiny_mixtures.metadata(config)


def _mistral3(config: Any, rope: Values) -> Values:
    if "llama_4_scaling_beta" not in rope:
        return {}
    return {
        "rope.dimension_count": head_size(config),
        "rope.scaling.yarn_log_multiplier": rope["mscale_all_dim"],
        "attention.temperature_scale": rope["llama_4_scaling_beta"],
    }


def _gemma2(config: Any) -> Values:
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    return {"attention.sliding_window": config.sliding_window, **{cap: getattr(config, cap) for cap in caps}}


def _gemma4(config: Any) -> Values:
    windowed = [kind == "sliding_attention" for kind in config.layer_types]
    own = [config.per_layer_config[i] for i in range(config.num_hidden_layers)]
    head = own[windowed.index(False)].head_dim
    found = {
        "attention.sliding_window": config.sliding_window,
        "attention.sliding_window_pattern": windowed,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.key_length_swa": config.head_dim,
        "attention.value_length_swa": config.head_dim,
        "attention.head_count_kv": [each.num_key_value_heads for each in own],
        "attention.shared_kv_layers": config.num_kv_shared_layers,
        "embedding_length_per_layer_input": config.hidden_size_per_layer_input,
        "final_logit_softcapping": config.final_logit_softcapping,
        "rope.dimension_count": head,
        "rope.dimension_count_swa": config.head_dim,
    }
    if config.use_double_wide_mlp:
        first = config.num_hidden_layers - config.num_kv_shared_layers
        width = config.intermediate_size
        found["feed_forward_length"] = [
            width if i < first else 2 * width for i in range(config.num_hidden_layers)
        ]
    return found


def _granite(config: Any) -> Values:
    return {
        "attention.scale": config.attention_multiplier,
        "embedding_scale": config.embedding_multiplier,
        "residual_scale": config.residual_multiplier,
        "logit_scale": config.logits_scaling,
    }


def _phi3(config: Any, rope: Values, turning: int) -> Values:
    original, context = config.original_max_position_embeddings, config.max_position_embeddings
    found = {
        "rope.scaling.original_context_length": original,
        "rope.dimension_count": turning,
        "attention.sliding_window": config.sliding_window or 0,
    }
    if rope["rope_type"] == "longrope":
        factor = math.sqrt(1 + math.log(context / original) / math.log(original))
        found["rope.scaling.attn_factor"] = factor
    return found


def _olmo(config: Any) -> Values:
    if not hasattr(config, "sliding_window"):
        return {}
    pattern = [kind == "sliding_attention" for kind in config.layer_types]
    return {
        "attention.sliding_window": config.sliding_window,
        "attention.sliding_window_pattern": pattern,
    }


def factors(config: Any) -> dict[str, np.ndarray]:
    """Tensors that say how frequencies are stretched."""
    rope = rope_of(config)
    if rope["rope_type"] == "longrope":
        return {
            f"rope_factors_{length}.weight": np.array(rope[f"{length}_factor"])
            for length in ("long", "short")
        }
    if rope["rope_type"] == "proportional":
        own = config.per_layer_config[config.layer_types.index("full_attention")]
        pairs = own.head_dim // 2
        turning = int(rope["partial_rotary_factor"] * pairs)
        return {"rope_freqs.weight": np.array([1.0] * turning + [1e30] * (pairs - turning))}
    if rope["rope_type"] != "llama3":
        return {}
    spec = RopeSpec(
        base=rope["rope_theta"],
        scaling="llama3",
        factor=rope["factor"],
        original_context=rope["original_max_position_embeddings"],
        low_factor=rope["low_freq_factor"],
        high_factor=rope["high_freq_factor"],
    )
    size = head_size(config)
    plain = frequencies(RopeSpec(base=spec.base), size)
    return {"rope_freqs.weight": plain / frequencies(spec, size)}


def tensors(
    model: torch.nn.Module, config: Any, architecture: str, turned: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """By their names in the file."""
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(known[architecture], config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    for key, value in model.state_dict().items():
        key, values = key.replace("language_model.", ""), value.numpy()
        if "vision" in key or "visual" in key or "projector" in key or (key == "lm_head.weight" and tied):
            continue
        for projection, count in heads.items():
            if turned and projection in key:
                values = interleaved(values, count)
        if architecture in ("gemma", "gemma2", "gemma3") and key.endswith("norm.weight"):
            values = values + np.float32(1)
        if (scale := tiny_mixtures.scale_name(key)) is not None:
            yield scale, values
            continue
        for part, rows in tiny_mixtures.tensors(key, values, config):
            yield names.get_name(part, try_suffixes=(".weight", ".bias")), rows


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of query or key heads in the order of Llama's GGUF files: halves of a head become pairs."""
    size = len(rows) // heads
    return rows.reshape(heads, 2, size // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
