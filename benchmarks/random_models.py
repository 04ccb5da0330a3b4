"""GGUF files of random weights in the shapes and mixtures of types that people download: for measuring.

The blocks of each type are random bytes with scales that keep the values at about 1 / sqrt(width); the
vocabulary, and with it tokenizer and template, is the default model's. Only rows of plain words have an
embedding that is not zero, so that every token such a model says can be seen at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 24
"""Bytes that are made at a time."""

_WORD = re.compile("[ĠA-Za-z][a-z]{2,}")


@dataclass(frozen=True, slots=True)
class Shape:
    """experts: of them `used` for a token, each `feed_forward` wide; 0: one dense network."""

    name: str
    architecture: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    experts: int = 0
    used: int = 0


SHAPES = {
    "7b": (Shape("llama", "llama", 4096, 32, 32, 8, 128, 14336),),
    "1b": (
        Shape("llama", "llama", 2048, 16, 32, 8, 64, 8192),
        Shape("moe", "qwen3moe", 1024, 16, 16, 4, 64, 512, experts=64, used=8),
    ),
    "small": (
        Shape("llama", "llama", 1024, 8, 16, 4, 64, 2816),
        Shape("moe", "qwen3moe", 512, 4, 8, 2, 64, 256, experts=64, used=8),
    ),
}
"""By size: a dense shape (that of Mistral 7B, of Llama 3.2 1B) and one with 8 of 64 experts."""


class Random(NamedTuple):
    """How random blocks of a type keep sane values: float16 numbers at byte offsets.

    twice: (first, last, from) bytes that repeat others; nibbles: (first, last) bytes whose halves are equal:
    scales and minima go together, so that values are about zero on average. exponent: the only one that
    scales of eight bits take.
    """

    halves: Mapping[int, float]
    twice: tuple[int, int, int] | None = None
    nibbles: tuple[int, int] | None = None
    exponent: int | None = None


_BLOCKS = {
    "Q4_0": Random({0: 5e-3}),
    "Q8_0": Random({0: 3e-4}),
    "Q2_K": Random({80: 2e-3, 82: 3e-3}, nibbles=(0, 16)),
    "Q3_K": Random({108: 5e-4}),
    "Q4_K": Random({0: 1.2e-4, 2: 9e-4}, twice=(8, 12, 4), nibbles=(12, 16)),
    "Q5_K": Random({0: 6e-5, 2: 9.3e-4}, twice=(8, 12, 4), nibbles=(12, 16)),
    "Q6_K": Random({208: 2e-5}),
    "IQ4_XS": Random({0: 1.6e-5}),
    "TQ1_0": Random({52: 2.5e-2}),
    "TQ2_0": Random({64: 2.5e-2}),
    "MXFP4": Random({}, exponent=120),
}
"""Layouts are those of ggml-common.h."""

TYPES = ("Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "IQ4_XS", "MXFP4")
"""Mixtures, by the names of llama.cpp's quantizer."""

MORE_TYPES = ("Q3_K_M", "Q2_K", "TQ1_0", "TQ2_0")


def _type_of(mixture: str, role: str, layer: int, layers: int) -> str:
    """The type of a matrix, by the rules of llama.cpp's quantizer (src/llama-quant.cpp) where there is no
    importance matrix and a key serves four queries. MXFP4 is for the feed-forward network alone."""
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    if role == "embedding":
        return "Q8_0" if mixture in ("Q8_0", "MXFP4") else "Q6_K"
    match mixture, role:
        case (("Q4_K_M" | "Q5_K_M"), ("v" | "down")) if more:
            return "Q6_K"
        case "Q3_K_M", "v":
            return "Q5_K" if layer < 2 else "Q4_K"
        case "Q3_K_M", "down":
            return "Q5_K" if layer < layers // 16 else "Q4_K"
        case "Q3_K_M", "output":
            return "Q4_K"
        case "Q2_K", "v":
            return "Q4_K"
        case "Q2_K", ("output" | "down"):
            return "Q3_K"
        case "IQ4_XS", "v":
            return "Q5_K"
        case "IQ4_XS", "down" if layer < layers // 8:
            return "Q5_K"
        case "MXFP4", ("q" | "k" | "v" | "output"):
            return "Q8_0"
    return mixture.removesuffix("_M")


class _Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]
    type: str


def _tensors(shape: Shape, vocabulary: int, mixture: str) -> Iterator[_Tensor]:
    width, q, kv, ff = (
        shape.width,
        shape.heads * shape.head_dim,
        shape.kv_heads * shape.head_dim,
        shape.feed_forward,
    )
    yield _Tensor("token_embd.weight", (vocabulary, width), _type_of(mixture, "embedding", 0, shape.layers))
    yield _Tensor("output_norm.weight", (width,), "F32")
    experts, suffix = ((shape.experts,), "_exps") if shape.experts else ((), "")
    for i in range(shape.layers):
        yield _Tensor(f"blk.{i}.attn_norm.weight", (width,), "F32")
        yield _Tensor(f"blk.{i}.ffn_norm.weight", (width,), "F32")
        if shape.experts:
            yield _Tensor(f"blk.{i}.attn_q_norm.weight", (shape.head_dim,), "F32")
            yield _Tensor(f"blk.{i}.attn_k_norm.weight", (shape.head_dim,), "F32")
            yield _Tensor(f"blk.{i}.ffn_gate_inp.weight", (shape.experts, width), "F32")
        for role, name, rows in (
            ("q", "attn_q", (q, width)),
            ("k", "attn_k", (kv, width)),
            ("v", "attn_v", (kv, width)),
            ("output", "attn_output", (width, q)),
            ("gate", f"ffn_gate{suffix}", (*experts, ff, width)),
            ("up", f"ffn_up{suffix}", (*experts, ff, width)),
            ("down", f"ffn_down{suffix}", (*experts, width, ff)),
        ):
            yield _Tensor(f"blk.{i}.{name}.weight", rows, _type_of(mixture, role, i, shape.layers))


def _random_blocks(rng: np.random.Generator, type: str, count: int, nbytes: int) -> NDArray[np.uint8]:
    form = _BLOCKS[type]
    blocks = np.frombuffer(rng.bytes(count * nbytes), np.uint8).reshape(count, nbytes).copy()
    for at, number in form.halves.items():
        blocks[:, at : at + 2] = np.array([number], np.float16).view(np.uint8)
    if form.nibbles:
        part = blocks[:, slice(*form.nibbles)]
        part[:] = (part & 15) | (part << 4)
    if form.twice:
        first, last, source = form.twice
        blocks[:, first:last] = blocks[:, source : source + last - first]
    if form.exponent is not None:
        blocks[:, 0] = form.exponent
    return blocks


def _data(rng: np.random.Generator, tensor: _Tensor, words: NDArray[np.bool_]) -> Iterator[NDArray[np.uint8]]:
    """The bytes of a tensor, in pieces of whole rows."""
    if tensor.type == "F32":
        values = np.ones(tensor.shape, np.float32)
        if len(tensor.shape) == 2:  # a router
            values = rng.standard_normal(tensor.shape, np.float32) / np.float32(tensor.shape[1] ** 0.5)
        yield values.reshape(-1).view(np.uint8)
        return
    block, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor.type]]
    rows, blocks = int(np.prod(tensor.shape[:-1])), tensor.shape[-1] // block
    step = max(1, PIECE // (blocks * nbytes))
    for first in range(0, rows, step):
        count = min(step, rows - first)
        made = _random_blocks(rng, tensor.type, count * blocks, nbytes).reshape(count, blocks, nbytes)
        if tensor.name == "token_embd.weight":
            for at in _BLOCKS[tensor.type].halves:
                made[~words[first : first + count], :, at : at + 2] = 0
        yield made.reshape(-1)


def metadata_of(shape: Shape, vocabulary: Mapping[str, Any]) -> dict[str, Any]:
    """What a file of this shape says of itself. vocabulary: metadata of tokenizer.* of another file."""
    own: dict[str, Any] = {
        "context_length": 4096,
        "embedding_length": shape.width,
        "block_count": shape.layers,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape.head_dim,
        "rope.freq_base": 10000.0,
        "vocab_size": len(vocabulary["tokenizer.ggml.tokens"]),
        "feed_forward_length": shape.feed_forward * max(1, shape.used),
    }
    if shape.experts:
        own |= {
            "expert_count": shape.experts,
            "expert_used_count": shape.used,
            "expert_feed_forward_length": shape.feed_forward,
        }
    return {**{f"{shape.architecture}.{key}": value for key, value in own.items()}, **vocabulary}


def add_metadata(writer: gguf.GGUFWriter, metadata: Mapping[str, Any]) -> None:
    """Scalars and arrays by their Python types; the writer has given the architecture itself."""
    for key, value in metadata.items():
        if key.startswith("general."):
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value if isinstance(value, list) else value.tolist())


def plain_tensors(
    shape: Shape, vocabulary: Mapping[str, Any], seed: int
) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
    """Tensors of a small model as float32 values, and its metadata."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for tensor in _tensors(shape, len(vocabulary["tokenizer.ggml.tokens"]), "Q8_0"):
        values = np.ones(tensor.shape, np.float32)
        if len(tensor.shape) > 1:
            values = rng.standard_normal(tensor.shape, np.float32) / np.float32(tensor.shape[-1] ** 0.5)
        tensors[tensor.name] = values
    return tensors, metadata_of(shape, vocabulary)


def write_model(path: Path, shape: Shape, mixture: str, vocabulary: Mapping[str, Any], seed: int) -> None:
    """Write a model whole or not at all. vocabulary: metadata of tokenizer.* of another file."""
    tokens = vocabulary["tokenizer.ggml.tokens"]
    words = np.array([_WORD.fullmatch(token) is not None for token in tokens])
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(None, shape.architecture)
    add_metadata(writer, metadata_of(shape, vocabulary))
    tensors = list(_tensors(shape, len(tokens), mixture))
    for tensor in tensors:
        kind = gguf.GGMLQuantizationType[tensor.type]
        block, nbytes = gguf.GGML_QUANT_SIZES[kind]
        size = int(np.prod(tensor.shape)) // block * nbytes
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), size, raw_dtype=kind)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    writer.write_header_to_file(partial)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    [file] = writer.fout
    file.write(bytes(-file.tell() % writer.data_alignment))
    for tensor in tensors:
        for piece in _data(rng, tensor, words):
            file.write(piece.data)
        file.write(bytes(-file.tell() % writer.data_alignment))
    writer.close()
    partial.replace(path)
