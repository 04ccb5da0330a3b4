"""Model files with one small layer, GGUF and safetensors, and how they are refused."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import safetensors.numpy

from engine.loading.checkpoint import open_checkpoint
from engine.types import EngineError

WIDTH, VOCABULARY = 32, 20
CONFIG = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
VECTORS = ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"]
MATRICES = [f"blk.0.{name}" for name in ("attn_q", "attn_k", "attn_v", "attn_output")]
MATRICES += [f"blk.0.ffn_{name}" for name in ("gate", "up", "down")]


def tensors() -> dict[str, np.ndarray]:
    shapes = {"token_embd": (VOCABULARY, WIDTH)} | dict.fromkeys(MATRICES, (WIDTH, WIDTH))
    shapes |= dict.fromkeys(VECTORS, (WIDTH,))
    rng = np.random.default_rng(3)
    return {f"{name}.weight": rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(path: Path, values: dict[str, np.ndarray], whole: bool = True, **metadata: int) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    if whole:
        writer.add_context_length(64)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(1)
        writer.add_feed_forward_length(WIDTH)
        writer.add_head_count(2)
        writer.add_layer_norm_rms_eps(1e-5)
    for key, value in metadata.items():
        writer.add_uint16(key if "." in key else key.replace("_", "."), value)
    for name, tensor in values.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    names = {
        "model.embed_tokens": (VOCABULARY, WIDTH),
        "model.norm": (WIDTH,),
        "model.layers.0.input_layernorm": (WIDTH,),
        "model.layers.0.post_attention_layernorm": (WIDTH,),
    }
    attention = [f"model.layers.0.self_attn.{n}_proj" for n in "qkvo"]
    mlp = [f"model.layers.0.mlp.{n}_proj" for n in ("gate", "up", "down")]
    names |= dict.fromkeys(attention + mlp, (WIDTH, WIDTH))
    values = {f"{name}.weight": np.ones(shape, np.float32) for name, shape in names.items()}
    safetensors.numpy.save_file(values, folder / "model.safetensors")
    return folder


def refuse(path: Path) -> str:
    with pytest.raises(EngineError) as caught:
        open_checkpoint(path)
    assert caught.value.code == "model_invalid"
    assert caught.value.message.isprintable()
    return caught.value.message
