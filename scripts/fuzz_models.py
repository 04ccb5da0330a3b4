"""Small models of every kind as bytes, and what is done with a mutated one: all that a start does."""

from __future__ import annotations

import json
import math
import random
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from engine import EngineConfig, EngineError, Message, SamplingParams
from engine.blocks import BlockPool
from engine.chunking import ChunkBudget
from engine.config import KVDtype, Quantization
from engine.loading.checkpoint import open_checkpoint
from engine.model import LoadedModel, load_model
from engine.sampler import SamplerState
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.speculative.acceptance import accept
from engine.tokenization import encode_chat, tokenizer_of
from engine.tokenization.vocabulary import BYTE_ALPHABET

Files = dict[str, bytes]
"""A model's files by name; one GGUF file, or those of a folder."""

TEXT = "Hello, <|im_end|> wörld 123 漢字 </s>\n\t it's  ab"
TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WIDTH = 32
MARKS = ["<|im_start|>", "<|im_end|>"]
WORDS = [*BYTE_ALPHABET, "ab", "er", *MARKS]
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcde", "▁a", "ab", *MARKS]
NUMBERS: list[Any] = [0, 1, -1, 2**24, 2**31, 2**63, 1e308, 1e-308, float("inf"), float("nan"), 1e6]
VALUES: list[Any] = [*NUMBERS, None, True, False, "", "x", "a" * 5000, [], {}, [[]], [None], {"a": {}}]


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    square = ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, WIDTH),
        "output_norm.weight": (WIDTH,),
    }
    shapes |= {f"blk.0.{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
    shapes |= {f"blk.0.{name}.weight": (WIDTH // 2, WIDTH) for name in ("attn_k", "attn_v")}
    return shapes | {f"blk.0.{name}.weight": (WIDTH, WIDTH) for name in square}


def gguf_model(*, sentencepiece: bool) -> Files:
    """A complete GGUF file of a tiny llama, its matrices of several types."""
    import gguf

    tokens = PIECES if sentencepiece else WORDS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_context_length(64)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(1)
        writer.add_feed_forward_length(WIDTH)
        writer.add_head_count(2)
        writer.add_head_count_kv(1)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10000.0)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(2.0)
        writer.add_rope_scaling_orig_ctx_len(64)
        writer.add_tokenizer_model("llama" if sentencepiece else "gpt2")
        writer.add_token_list(tokens)
        writer.add_chat_template(TEMPLATE)
        if sentencepiece:
            writer.add_token_scores([-float(i) for i in range(len(tokens))])
            writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 261), 3, 3])
            writer.add_bos_token_id(1)
        else:
            writer.add_tokenizer_pre("qwen2")
            writer.add_token_merges(["a b", "e r"])
            writer.add_token_types([*[1] * (len(tokens) - 2), 3, 3])
        writer.add_eos_token_id(len(tokens) - 1)
        kinds = ["Q8_0", "Q4_1", "F16", "Q4_0", "Q5_0"]
        for index, (name, shape) in enumerate(_shapes(len(tokens)).items()):
            values = np.random.default_rng(index).standard_normal(shape).astype(np.float32)
            kind = gguf.GGMLQuantizationType[kinds[index % len(kinds)] if len(shape) == 2 else "F32"]
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return {"model.gguf": path.read_bytes()}


def _added(id: int, text: str) -> dict[str, Any]:
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    return {"id": id, "content": text, "special": True, **flags}


def tokenizer_json(*, sentencepiece: bool) -> dict[str, Any]:
    """A tokenizer.json that says the same as the GGUF files do."""
    bytes_too = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    words = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    if sentencepiece:
        steps = [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]
        parts = {
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        }
        model = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
        model |= {"vocab": {piece: i for i, piece in enumerate(PIECES)}, "merges": [["▁", "a"], ["a", "b"]]}
        added = [_added(i, PIECES[i]) for i in (0, 1, 2, len(PIECES) - 2, len(PIECES) - 1)]
    else:
        parts = {
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [words, bytes_too]},
            "decoder": bytes_too,
        }
        model = {"unk_token": None, "fuse_unk": False, "byte_fallback": False}
        model |= {"vocab": {word: i for i, word in enumerate(WORDS[:-2])}, "merges": ["a b", "e r"]}
        added = [_added(len(WORDS) - 2 + i, mark) for i, mark in enumerate(MARKS)]
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    return {**head, **parts, "post_processor": None, "model": {"type": "BPE", **model}}


def folder_model(*, sentencepiece: bool) -> Files:
    """A folder of a tiny Llama with all the files that are read."""
    import safetensors.numpy

    from engine.loading.fields import Fields
    from engine.loading.folder_spec import read_config
    from engine.models.tensor_specs import tensor_specs

    tokens = PIECES if sentencepiece else WORDS
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": len(tokens),
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        "eos_token_id": [len(tokens) - 1],
        "tie_word_embeddings": True,
    }
    declared = read_config(Fields(Path("config.json"), config))
    tensors = {
        entry.stored_name: np.random.default_rng(i).standard_normal(entry.shape).astype(np.float16)
        for i, entry in enumerate(tensor_specs(declared.family, declared.spec, "huggingface"))
        if entry.role != "head" and not entry.role.endswith("_bias")
    }
    settings = {
        "bos_token": "<s>",
        "eos_token": {"content": MARKS[1]},
        "chat_template": TEMPLATE,
        "additional_special_tokens": MARKS,
    }
    generation = {"temperature": 0.7, "top_p": 0.9, "eos_token_id": len(tokens) - 1}
    texts = {
        "config.json": config,
        "tokenizer.json": tokenizer_json(sentencepiece=sentencepiece),
        "tokenizer_config.json": settings,
        "generation_config.json": generation,
    }
    files = {name: json.dumps(value).encode() for name, value in texts.items()}
    return {**files, "model.safetensors": safetensors.numpy.save(tensors)}


def _leaves(value: Any) -> list[tuple[Any, Any]]:
    """Every place in plain values: the container and the key or index."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    places = [(value, key) for key in keys]
    return places + [place for key in keys for place in _leaves(value[key])]


def mutate_values(rng: random.Random, data: bytes) -> bytes:
    """A JSON text with a few of its values changed, taken out, doubled, or exchanged with others."""
    whole = json.loads(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        places = _leaves(whole)
        if not places:
            break
        short = [place for place in places if not (isinstance(place[1], str) and len(place[0]) > 50)]
        container, key = rng.choice(short if short and rng.randrange(8) else places)
        kind = rng.randrange(5)
        if kind == 0:
            del container[key]
        elif kind == 1:
            other, where = rng.choice(places)
            container[key] = deepcopy(other[where])
        elif kind == 2 and isinstance(container, list):
            container.extend(deepcopy(container[-1:]) * rng.choice([1, 40]))
        else:
            container[key] = deepcopy(rng.choice(VALUES))
    return json.dumps(whole).encode()


_WIDTHS = {"U8": 1, "I8": 1, "F8_E4M3": 1, "BOOL": 1, "I16": 2, "F16": 2, "BF16": 2}
_WIDTHS |= {"I32": 4, "F32": 4, "U32": 4, "I64": 8, "F64": 8}
PATTERNS = [b"\0", b"\xff", b"\x7f", b"\x80", b"\x00\x7c", b"\x00\xfc", b"\x01\x00", b"\x00\x00\xc0\x7f"]
PATTERNS += [b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f", b"\xff\x7b"]
"""Bytes that make no numbers, infinities, the largest and the smallest ones in some type."""


def mutate_tensors(rng: random.Random, data: bytes) -> bytes:
    """A safetensors file with some of its tensors renamed, left out, doubled, of another type, shape or other
    values; what its header says of their places is right.
    """
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors = {
        name: (entry["dtype"], entry["shape"], data[8 + size + entry["data_offsets"][0] :][: _length(entry)])
        for name, entry in header.items()
        if name != "__metadata__"
    }
    for _ in range(rng.choice([1, 1, 2, 4])):
        name = rng.choice(list(tensors))
        other = rng.choice(list(tensors))
        dtype, shape, values = tensors[name]
        kind = rng.randrange(7)
        if kind == 0 and len(tensors) > 1:
            del tensors[name]
        elif kind == 1:
            tensors[name] = tensors[other]
        elif kind == 2:
            tensors[name.rpartition(".")[0] + "." + other.rpartition(".")[2]] = tensors[name]
        elif kind == 3:
            same = [each for each, width in _WIDTHS.items() if width == _WIDTHS[dtype]]
            tensors[name] = (rng.choice(same), shape, values)
        elif kind == 4:
            shape = rng.choice([shape[::-1], [*shape, 1], [1, *shape], [], [0], [0, *shape]])
            tensors[name] = (dtype, shape, (values * 2)[: math.prod(shape) * _WIDTHS[dtype]])
        else:
            pattern = rng.choice(PATTERNS)
            start = rng.randrange(max(1, len(values)))
            filled = (pattern * len(values))[: rng.choice([4, 64, len(values)])]
            tensors[name] = (dtype, shape, (values[:start] + filled + values[start:])[: len(values)])
    lines, content = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        offsets = [len(content), len(content) + len(values)]
        lines[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        content += values
    text = json.dumps(lines).encode()
    return len(text).to_bytes(8, "little") + text + content


def _length(entry: dict[str, Any]) -> int:
    first, last = entry["data_offsets"]
    return int(last - first)


def start(path: Path, quantization: Quantization = "auto", kv_dtype: KVDtype = "auto") -> str | None:
    """The refusal of a model; None where it starts, computes some tokens, and gives texts back."""
    try:
        checkpoint = open_checkpoint(path)
        tokenizer = tokenizer_of(checkpoint.source, checkpoint.generation)
        for text in (TEXT, "a" * 3000, " " * 3000):
            tokenizer.decode(tokenizer.encode(text))
        config = EngineConfig(
            model=path,
            backend="native",
            threads=1,
            kv_blocks=4,
            max_batch_tokens=32,
            max_sequences=2,
            quantization=quantization,
            kv_dtype=kv_dtype,
        )
        loaded = load_model(config)
        try:
            _answer(loaded)
        finally:
            loaded.runner.close()
        try:
            encode_chat(loaded.tokenizer, None, [Message("user", TEXT)])
        except EngineError as error:
            if error.code != "template":
                raise
    except EngineError as error:
        return error.message
    return None


def _answer(loaded: LoadedModel) -> None:
    """Run a prompt and up to three tokens."""
    pool = BlockPool(loaded.blocks, loaded.block_size)
    scheduler = Scheduler(pool, ChunkBudget(None, 32), max_batch_tokens=32, max_sequences=2)
    prompt = [token % loaded.vocabulary for token in range(min(20, loaded.context_length - 1))]
    scheduler.add(Sequence(1, prompt, SamplerState(SamplingParams(temperature=0), 1, prompt)))
    for _ in range(min(3, loaded.context_length - len(prompt))):
        plan = scheduler.plan()
        if plan.runs:
            scheduler.commit(plan, accept(plan, loaded.runner.launch(plan, logits=False).result().tokens))
