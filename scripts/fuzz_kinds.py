"""Small models of the kinds that most files are not: experts, quantized folders, parts besides the text."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_models import TEMPLATE, WORDS, Files, tokenizer_json
from numpy.typing import NDArray

from engine.loading.fields import Fields
from engine.loading.folder_spec import read_config
from engine.models.tensor_specs import TensorSpec, tensor_specs
from kernels.formats import BLOCKS
from kernels.nf4 import LEVELS

Array = NDArray[Any]
Tensors = dict[str, Array]

WIDTH = 64
PLAIN = {
    "hidden_size": WIDTH,
    "intermediate_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "eos_token_id": len(WORDS) - 1,
}
LLAMA = {"model_type": "llama", **PLAIN}
QWEN = {
    "model_type": "qwen3_moe",
    **PLAIN,
    "num_hidden_layers": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
OSS = {
    "model_type": "gpt_oss",
    **PLAIN,
    "num_local_experts": 3,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "layer_types": ["sliding_attention"],
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "truncate": False,
    },
}
PHI = {
    "model_type": "phi3",
    **PLAIN,
    "partial_rotary_factor": 0.5,
    "original_max_position_embeddings": 16,
    "rope_scaling": {"type": "longrope", "long_factor": [1.5] * 8, "short_factor": [1.0] * 8},
}
GEMMA = {
    "model_type": "gemma3",
    "text_config": {"model_type": "gemma3_text", **PLAIN, "sliding_window": 8},
    "vision_config": {"hidden_size": 8},
    "eos_token_id": len(WORDS) - 1,
}


def _random(name: str, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(len(name)).standard_normal(shape).astype(np.float16)


def _specs(config: dict[str, Any]) -> Iterator[TensorSpec]:
    """One of each stored tensor that a model of this configuration has."""
    declared = read_config(Fields(Path("config.json"), config))
    found = {spec.stored_name: spec for spec in tensor_specs(declared.family, declared.spec, "huggingface")}
    for spec in found.values():
        needed = not spec.role.endswith("_bias") or spec.role in declared.biases
        if needed and not (spec.role == "head" and declared.tied):
            yield spec


def _folder(
    config: dict[str, Any], encode: Callable[[str, int, int], Tensors] | None = None, method: Any = None
) -> Files:
    """A folder; `encode(name, rows, columns)` stores the matrices of its layers."""
    import safetensors.numpy

    tensors: Tensors = {}
    for spec in _specs(config):
        shape = spec.stored_shape
        if spec.inputs_first:
            shape = (*shape[:-2], shape[-1], shape[-2])
        if encode is not None and spec.is_matrix and spec.role not in ("embedding", "head", "router"):
            tensors |= encode(spec.stored_name.removesuffix(".weight"), *shape)
        else:
            tensors[spec.stored_name] = _random(spec.stored_name, shape)
    if config["model_type"] == "gemma3":
        tensors["vision_tower.x.weight"] = np.zeros((2, 2), np.float16)
    whole = config if method is None else {**config, "quantization_config": method}
    texts = {
        "config.json": whole,
        "tokenizer.json": tokenizer_json(sentencepiece=False),
        "tokenizer_config.json": {"chat_template": TEMPLATE},
    }
    files = {name: json.dumps(value).encode() for name, value in texts.items()}
    held = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    return {**files, "model.safetensors": safetensors.numpy.save(held)}


def _words(*shape: int) -> Array:
    return np.random.default_rng(3).integers(-(2**31), 2**31, shape, np.int64).astype(np.int32)


def _scales(*shape: int, dtype: str = "f2") -> Array:
    return np.random.default_rng(4).uniform(0.01, 0.02, shape).astype(dtype)


def _gptq(name: str, rows: int, columns: int) -> Tensors:
    groups = columns // 32
    return {
        f"{name}.qweight": _words(columns // 8, rows),
        f"{name}.qzeros": _words(groups, rows // 8),
        f"{name}.scales": _scales(groups, rows),
        f"{name}.g_idx": (np.arange(columns) // 32).astype(np.int32),
    }


def _awq(name: str, rows: int, columns: int) -> Tensors:
    groups = columns // 32
    return {
        f"{name}.qweight": _words(columns, rows // 8),
        f"{name}.qzeros": _words(groups, rows // 8),
        f"{name}.scales": _scales(groups, rows),
    }


def _compressed(name: str, rows: int, columns: int) -> Tensors:
    return {
        f"{name}.weight_packed": _words(rows, columns // 8),
        f"{name}.weight_scale": _scales(rows, columns // 32),
        f"{name}.weight_zero_point": _words(rows // 8, columns // 32),
        f"{name}.weight_shape": np.array([rows, columns], np.int64),
    }


def _channels(name: str, rows: int, columns: int) -> Tensors:
    return {f"{name}.weight": _bytes(rows, columns).view(np.int8), f"{name}.weight_scale": _scales(rows, 1)}


def _int8(name: str, rows: int, columns: int) -> Tensors:
    return {
        f"{name}.weight": _bytes(rows, columns).view(np.int8),
        f"{name}.SCB": _scales(rows, dtype="f4"),
        f"{name}.weight_format": np.zeros((), np.uint8),
    }


def _nf4(name: str, rows: int, columns: int) -> Tensors:
    blocks = rows * columns // 64
    state = {
        "shape": [rows, columns],
        "blocksize": 64,
        "dtype": "float16",
        "nested_blocksize": 256,
        "nested_offset": 0.01,
    }
    return {
        f"{name}.weight": _bytes(rows * columns // 2, 1),
        f"{name}.weight.absmax": _bytes(blocks),
        f"{name}.weight.quant_map": LEVELS.astype(np.float32),
        f"{name}.weight.nested_absmax": _scales(-(-blocks // 256), dtype="f4"),
        f"{name}.weight.nested_quant_map": _scales(256, dtype="f4"),
        f"{name}.weight.quant_state.bitsandbytes__nf4": np.frombuffer(json.dumps(state).encode(), np.uint8),
    }


def _mxfp4(name: str, experts: int, inputs: int, outputs: int) -> Tensors:
    return {
        f"{name}_blocks": _bytes(experts, outputs, inputs // 32, 16),
        f"{name}_scales": np.full((experts, outputs, inputs // 32), 120, np.uint8),
    }


def _saved(name: str, rows: int, columns: int) -> Tensors:
    return {
        f"{name}.weight_codes": _bytes(rows, columns // 2),
        f"{name}.weight_scales": _scales(rows, columns // 32),
        f"{name}.weight_minima": _scales(rows, columns // 32),
    }


def _bytes(*shape: int) -> Array:
    return np.random.default_rng(5).integers(0, 256, shape, np.uint8)


def _mxfp4_of(name: str, *shape: int) -> Tensors:
    return _mxfp4(name, *shape) if len(shape) == 3 else {name + ".weight": _random(name, shape)}


_WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}
_CHANNELS = {"num_bits": 8, "type": "int", "strategy": "channel"}


def folder_kinds() -> dict[str, Files]:
    """A folder of each kind, by names of its own."""
    packed = {"format": "pack-quantized", "config_groups": {"group_0": {"weights": _WEIGHTS}}}
    rows = {"format": "int-quantized", "config_groups": {"group_0": {"weights": _CHANNELS}}}
    bnb = {"quant_method": "bitsandbytes"}
    return {
        "experts": _folder(QWEN),
        "sinks": _folder(OSS),
        "longrope": _folder(PHI),
        "multimodal": _folder(GEMMA),
        "gptq": _folder(LLAMA, _gptq, {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}),
        "awq": _folder(LLAMA, _awq, {"quant_method": "awq", "bits": 4, "group_size": 32}),
        "packed": _folder(LLAMA, _compressed, {"quant_method": "compressed-tensors", **packed}),
        "rows": _folder(LLAMA, _channels, {"quant_method": "compressed-tensors", **rows}),
        "int8": _folder(LLAMA, _int8, {**bnb, "load_in_8bit": True}),
        "nf4": _folder(LLAMA, _nf4, {**bnb, "load_in_4bit": True}),
        "mxfp4": _folder(OSS, _mxfp4_of, {"quant_method": "mxfp4"}),
        "saved": _folder(LLAMA, _saved, {"quant_method": "termchat", "version": 1}),
    }


_TYPES = (
    *("Q4_K", "Q5_K", "Q6_K", "Q3_K", "Q2_K", "IQ4_XS", "TQ1_0", "TQ2_0", "Q5_1", "IQ4_NL"),
    *("MXFP4", "NVFP4", "BF16", "F16", "Q8_0", "Q4_1", "Q4_0", "IQ2_S"),
)


def gguf_mixture(first: int, each: int = 0) -> Files:
    """A GGUF file of Qwen 3 with experts, its matrices of all types in turn, from the `first` on; or several
    files of so many tensors each.

    All bytes of blocks are the same, which makes small scales in every type.
    """
    import gguf

    width = 256
    config = {**QWEN, "hidden_size": width, "moe_intermediate_size": width, "num_attention_heads": 2}
    config |= {"head_dim": 128, "num_experts": 3}
    declared = read_config(Fields(Path("config.json"), config))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        writer = gguf.GGUFWriter(path, "qwen3moe", split_max_tensors=each)
        writer.add_context_length(64)
        writer.add_embedding_length(width)
        writer.add_block_count(2)
        writer.add_feed_forward_length(width)
        writer.add_expert_feed_forward_length(width)
        writer.add_expert_count(3)
        writer.add_expert_used_count(2)
        writer.add_head_count(2)
        writer.add_head_count_kv(1)
        writer.add_key_length(128)
        writer.add_value_length(128)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(WORDS)
        writer.add_token_merges(["a b", "e r"])
        writer.add_token_types([*[1] * (len(WORDS) - 2), 3, 3])
        writer.add_chat_template(TEMPLATE)
        writer.add_eos_token_id(len(WORDS) - 1)
        number = first
        for spec in {s.stored_name: s for s in tensor_specs(declared.family, declared.spec, "gguf")}.values():
            if spec.role.endswith("_bias") or spec.role == "head":
                continue
            shape = spec.stored_shape
            if not spec.is_matrix:
                writer.add_tensor(spec.stored_name, np.ones(shape, np.float32))
                continue
            kind = _TYPES[number % len(_TYPES)]
            number += 1
            values, nbytes, *_ = BLOCKS[kind]
            data = np.full((*shape[:-1], shape[-1] // values * nbytes), 0x11, np.uint8)
            writer.add_tensor(spec.stored_name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}
