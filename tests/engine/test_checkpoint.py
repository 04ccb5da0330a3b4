"""Opening a model: kinds of paths, quantization on load, what the files say about generating."""

import json
import math
import os
import random
import resource
import struct
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import gguf
import numpy as np
import pytest
import safetensors.numpy

from engine.config import EngineConfig, KVDtype, Quantization
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.loading.gguf import read_gguf
from engine.loading.stored import StoredTensor
from engine.loading.tensors import ASKED, CheckpointTensors
from engine.model import load_model
from engine.models.families import llama
from engine.models.spec import LayerSpec, ModelSpec
from engine.models.tensor_specs import tensor_specs
from engine.quantization import dequantize, quantize
from engine.types import EngineError
from kernels.cache_format import CACHE_FORMATS
from kernels.formats import FORMATS
from kernels.stored import mapping_of
from kernels.weights import Packed, Plain, Weight
from stored_blocks import random_blocks

SPEC = ModelSpec(
    architecture="llama",
    layers=(LayerSpec(),) * 2,
    width=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    feed_forward=96,
    vocabulary=50,
    context_length=128,
    norm_eps=1e-5,
)
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
BIASES = ("_bias",)


def random_values(spec: ModelSpec, naming: Any, skip: tuple[str, ...] = BIASES) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        entry.stored_name: rng.standard_normal(entry.shape).astype(np.float32)
        for entry in tensor_specs(llama.FAMILY, spec, naming)
        if not entry.role.endswith(skip)
    }


def write_folder(folder: Path, values: dict[str, np.ndarray] | None = None, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    values = random_values(SPEC, "huggingface") if values is None else values
    safetensors.numpy.save_file(values, folder / "model.safetensors")
    return folder


def write_gguf(path: Path, type: str = "F32", skip: tuple[str, ...] = BIASES, **metadata: Any) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in metadata.items():
        kinds = {str: "add_string", int: "add_uint32", float: "add_float32", list: "add_array"}
        kind = kinds[value.__class__]
        getattr(writer, kind)(key, value)
    kind = gguf.GGMLQuantizationType[type]
    for name, values in random_values(SPEC, "gguf", skip).items():
        if values.ndim == 2 and kind != gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def refuse(path: Path, **options: Any) -> str:
    with pytest.raises(EngineError) as caught:
        open_checkpoint(path, **options)
    assert caught.value.code == "model_invalid"
    assert "\n" not in caught.value.message
    return caught.value.message


def get(checkpoint: Checkpoint, name: str) -> Weight:
    weight = checkpoint.tensors.get(name)
    assert weight is not None, name
    return weight


def formats(checkpoint: Checkpoint) -> dict[str, str]:
    """Format of each tensor as it is loaded."""
    weights = {name: get(checkpoint, name) for name in checkpoint.tensors.bound}
    return {name: w.format for name, w in weights.items()}


def test_default_model(default_model: Path) -> None:
    checkpoint = open_checkpoint(default_model)
    assert checkpoint.name == "SmolLM2-135M-Instruct.Q4_1"
    assert checkpoint.tensors.label() == "Q4_1"
    assert checkpoint.tensors.nbytes() == 96_576_768
    assert checkpoint.generation.end_ids == (2,)
    assert checkpoint.generation.bos_ids == (1,)
    assert checkpoint.generation.chat_template is not None
    assert checkpoint.generation.chat_template.startswith("{% for message in messages %}")
    assert checkpoint.tensors.get("head") is None, "tied"
    assert checkpoint.tensors.get("0.q_bias") is None
    assert get(checkpoint, "29.down").shape == (576, 1536)
    norm = get(checkpoint, "29.mlp_norm")
    assert isinstance(norm, Plain)
    assert (norm.format, norm.shape) == ("f32", (576,))


def test_what_can_be_asked_for_is_in_the_tables_of_formats() -> None:
    assert set(get_args(Quantization)) == {"auto", "none", *ASKED}
    assert all(FORMATS[format].packed for format in ASKED.values())
    assert set(get_args(KVDtype)) == {"auto", *CACHE_FORMATS}


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize(
    ("type", "bad"),
    [
        ("Q5_1", np.float16(np.nan).tobytes()),
        ("F16", np.float16(-np.inf).tobytes()),
        ("BF16", b"\xc0\x7f"),
        ("F32", np.float32(np.inf).tobytes()),
    ],
)
def test_values_that_are_not_finite_are_refused_by_file_and_tensor(
    tmp_path: Path, backend: Any, type: str, bad: bytes
) -> None:
    """The backend finds them, since it reads the blocks."""
    path = write_gguf(tmp_path / "broken.gguf", type)
    name = "blk.1.ffn_up.weight"
    tensor = read_gguf(path).tensors[name]
    assert tensor.type == type
    _put(path, tensor, 3 * tensor.data.size // tensor.shape[0], bad)
    with pytest.raises(EngineError) as caught:
        load_model(EngineConfig(model=str(path), backend=backend))
    assert caught.value.code == "model_invalid"
    sentence = f"tensor {name!r}: row 3 holds a value that is not finite"
    assert caught.value.message == f"{path}: {sentence}"


def test_norms_that_are_not_finite_are_refused_by_file_and_tensor(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "broken.gguf")
    name = "blk.1.ffn_norm.weight"
    _put(path, read_gguf(path).tensors[name], 8, np.float32(np.nan).tobytes())
    with pytest.raises(EngineError) as caught:
        load_model(EngineConfig(model=str(path)))
    assert caught.value.message == f"{path}: tensor {name!r} holds a value that is not finite"


def _put(path: Path, tensor: StoredTensor, at: int, value: bytes) -> None:
    """Overwrite some bytes of a tensor in its file."""
    content = bytearray(path.read_bytes())
    first = tensor.data.ctypes.data - np.frombuffer(mapping_of(tensor.data), np.uint8).ctypes.data + at
    content[first : first + len(value)] = value
    path.write_bytes(content)


def test_weight_bytes_are_those_of_the_tensors(default_model: Path, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    for path in (default_model, folder):
        for quantization in ("auto", "int8", "int4"):
            checkpoint = open_checkpoint(path, quantization)
            total = sum(get(checkpoint, name).nbytes for name in checkpoint.tensors.bound)
            assert total == checkpoint.tensors.nbytes()


def test_kinds_of_paths(tmp_path: Path) -> None:
    assert "does not exist" in refuse(tmp_path / "absent")
    assert "holds no model.safetensors" in refuse(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    assert "pickle files are not loaded" in refuse(tmp_path)
    assert "pickle files are not loaded" in refuse(tmp_path / "pytorch_model.bin")
    file = write_gguf(tmp_path / "one.gguf")
    assert open_checkpoint(tmp_path).path == file
    assert open_checkpoint(str(file)).name == "one"
    write_gguf(tmp_path / "two.gguf")
    assert "2 GGUF files; name one of them: one.gguf, two.gguf" in refuse(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "give the folder it lies in" in refuse(tmp_path / "model.safetensors")
    assert "is not a safetensors file" in refuse(tmp_path)
    with pytest.raises(ValueError, match="quantization must be one of auto, none, int8, int4"):
        open_checkpoint(file, "int3")  # type: ignore[arg-type]


def test_a_gguf_link_that_leaves_its_folder_is_refused_but_may_be_named(tmp_path: Path) -> None:
    real = write_gguf(tmp_path / "real.gguf")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "m.gguf").symlink_to(real)
    assert "leads out of the model's folder" in refuse(folder)
    assert len(open_checkpoint(folder / "m.gguf").spec.layers) == 2


def test_folders_need_a_config(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    for text, reason in (("[1]", "must be a JSON object"), ("{", "is not valid JSON"), ("", "0 bytes")):
        (folder / "config.json").write_text(text)
        assert reason in refuse(folder)
    (folder / "config.json").unlink()
    assert "has no config.json" in refuse(folder)


def test_heads_and_tied_embeddings(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    assert open_checkpoint(folder).tensors.get("head") is not None, "nothing declared: used if there"
    write_folder(folder, tie_word_embeddings=True)
    assert open_checkpoint(folder).tensors.get("head") is None, "left out beside tied embeddings"
    values = random_values(SPEC, "huggingface", (*BIASES, "head"))
    write_folder(folder, values)
    assert open_checkpoint(folder).tensors.get("head") is None
    write_folder(folder, values, tie_word_embeddings=False)
    assert "'lm_head.weight' is missing" in refuse(folder)


def test_B091_biases_are_used_or_refused(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_folder(folder, random_values(SPEC, "huggingface", ()))
    assert get(open_checkpoint(folder), "1.q_bias").shape == (64,)
    assert get(open_checkpoint(folder), "1.output_bias").shape == (64,)
    for config in ({"model_type": "qwen2"}, {"attention_bias": True}):
        write_folder(folder, **config)
        assert "'model.layers.0.self_attn.q_proj.bias' is missing" in refuse(folder)
    values = random_values(SPEC, "huggingface")
    biased = values | {"model.layers.1.mlp.up_proj.bias": np.zeros(96, np.float32)}
    assert get(open_checkpoint(write_folder(folder, biased)), "1.up_bias").shape == (96,)
    write_folder(folder, biased, model_type="mistral")
    assert "'model.layers.1.mlp.up_proj.bias' is no part of a mistral model" in refuse(folder)


def test_tensors_that_would_be_dropped_are_refused_by_name(tmp_path: Path) -> None:
    values = random_values(SPEC, "huggingface")
    extra = np.zeros(8, np.float32)
    folder = write_folder(tmp_path / "m", values | {"model.layers.0.self_attn.rotary_emb.inv_freq": extra})
    open_checkpoint(folder)
    write_folder(
        folder, values | {"model.layers.0.self_attn.q_norm.weight": np.ones(16, np.float32), "x": extra}
    )
    assert "'model.layers.0.self_attn.q_norm.weight' and 1 more is no part" in refuse(folder)
    write_folder(folder, values | {"model.layers.2.input_layernorm.weight": np.ones(64, np.float32)})
    assert "of 2 layers" in refuse(folder)


@pytest.mark.parametrize(
    ("type", "format"), [("F32", "f32"), ("F16", "f16"), ("BF16", "bf16"), ("Q8_0", "q8")]
)
def test_quantization_on_load(type: str, format: str, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", type)
    kept = formats(open_checkpoint(file))
    assert kept["0.q"] == kept["embedding"] == kept["head"] == format
    assert kept["0.attention_norm"] == kept["norm"] == "f32"
    none = open_checkpoint(file, "none")
    assert formats(none)["0.q"] == ("f32" if format == "q8" else format)
    int8 = formats(open_checkpoint(file, "int8"))
    assert int8["0.q"] == int8["1.down"] == int8["embedding"] == int8["head"] == "q8"
    int4 = formats(open_checkpoint(file, "int4"))
    assert int4["0.q"] == int4["1.down"] == "q4"
    assert int4["embedding"] == int4["head"] == "q8"
    assert int4["1.mlp_norm"] == "f32"
    values = dequantize(get(none, "1.down"))
    packed = get(open_checkpoint(file, "int4"), "1.down")
    assert isinstance(packed, Packed)
    assert np.array_equal(packed.codes, quantize(values, "q4").codes)


def test_labels(tmp_path: Path) -> None:
    labels = {
        ("BF16", "auto"): "bf16",
        ("BF16", "int8"): "int8",
        ("BF16", "int4"): "int4",
        ("Q8_0", "auto"): "Q8_0",
        ("Q8_0", "int8"): "Q8_0",
        ("Q8_0", "int4"): "int4",
        ("Q8_0", "none"): "f32",
        ("Q5_0", "auto"): "Q5_0",
        ("Q4_0", "int8"): "Q4_0",
    }
    for (type, quantization), label in labels.items():
        file = write_gguf(tmp_path / f"{type}.gguf", type)
        assert open_checkpoint(file, quantization).tensors.label() == label  # type: ignore[arg-type]


@pytest.mark.parametrize(("type", "label"), [("IQ2_S", "IQ2_S as int8"), ("Q2_K", "Q2_K")])
def test_a_type_that_takes_more_memory_than_the_file_is_said(type: str, label: str) -> None:
    spec = next(spec for spec in tensor_specs(llama.FAMILY, SPEC, "gguf") if spec.name == "0.q")
    blocks = random_blocks(np.random.default_rng(8), type, 2000, 1024)
    tensor = StoredTensor("blk.0.attn_q.weight", blocks.shape, type, blocks.data.reshape(-1))
    tensors = CheckpointTensors(Path("m.gguf"), "auto", {"0.q": (spec, tensor)})
    assert tensors.label() == label
    sentence = f"what the file holds as {type} is computed with 8 bits a weight, 2 MB instead of 1"
    assert tensors.notes() == ((sentence,) if type == "IQ2_S" else ())
    assert tensors._replace(quantization="int4").notes() == ()


def test_weights_that_can_not_be_held_name_file_and_tensor(tmp_path: Path) -> None:
    values = random_values(SPEC, "huggingface")
    values["model.layers.1.mlp.up_proj.weight"][7, 3] = np.nan
    folder = write_folder(tmp_path / "m", values)
    checkpoint = open_checkpoint(folder, "int8")
    get(checkpoint, "0.up")
    with pytest.raises(EngineError, match=r"tensor 'model\.layers\.1\.mlp\.up_proj\.weight': row 7 holds"):
        checkpoint.tensors.get("1.up")


def test_memory_while_quantizing_is_the_result_and_little_more(tmp_path: Path) -> None:
    values = random_values(SPEC, "huggingface")
    values["model.embed_tokens.weight"] = np.ones((40_000, 64), np.float32)
    folder = write_folder(tmp_path / "m", values, vocab_size=40_000, tie_word_embeddings=True)
    checkpoint = open_checkpoint(folder, "int8")
    tracemalloc.start()
    weight = get(checkpoint, "embedding")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert weight.nbytes < peak < weight.nbytes + 4_000_000 < 40_000 * 64 * 4


def test_tensors_can_be_read_from_two_threads(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path / "m"), "int4")
    names = list(checkpoint.tensors.bound)
    alone = {name: dequantize(get(checkpoint, name)) for name in names}
    with ThreadPoolExecutor(4) as pool:
        for name, values in pool.map(lambda n: (n, dequantize(get(checkpoint, n))), names * 20):
            assert np.array_equal(values, alone[name])


def test_generation_config(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", eos_token_id=5, bos_token_id=1)
    plain = open_checkpoint(folder)
    assert plain.generation == ({}, (1,), (5,), (), None, (), ())

    def declare(**generation: Any) -> Checkpoint:
        (folder / "generation_config.json").write_text(json.dumps(generation))
        return open_checkpoint(folder)

    checkpoint = declare(
        eos_token_id=[7, 5, 8, 10**6],
        temperature=0.6,
        top_p=0.9,
        top_k=20,
        repetition_penalty=1.05,
        max_length=9,
    )
    inside = checkpoint.generation.within(checkpoint.spec.vocabulary)
    assert inside.end_ids == (7, 5, 8), "in order, once each, inside the vocabulary"
    assert checkpoint.generation.defaults == {
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "repetition_penalty": 1.05,
    }
    assert declare(do_sample=False).generation.defaults == {"temperature": 0.0}
    assert declare(temperature=None, do_sample=True).generation.defaults == {}
    assert declare(do_sample=1).generation.defaults == {}
    assert declare(top_k=40.0).generation.defaults == {"top_k": 40}
    assert [declare(top_k=off).generation.defaults for off in (-1, -1.0)] == [{"top_k": 0}] * 2
    for broken, reason in (
        ({"eos_token_id": "</s>"}, "eos_token_id must hold token ids"),
        ({"eos_token_id": [1, None]}, "eos_token_id must hold token ids"),
    ):
        (folder / "generation_config.json").write_text(json.dumps(broken))
        message = refuse(folder)
        assert "generation_config.json" in message
        assert reason in message


def test_chat_templates(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")

    def declare(value: Any) -> None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))

    declare("T")
    assert open_checkpoint(folder).generation.chat_template == "T"
    declare([{"name": "tool_use", "template": "A"}, {"name": "default", "template": "B"}])
    assert open_checkpoint(folder).generation.chat_template == "B"
    declare([{"name": ["x"], "template": "A"}, {"name": "default", "template": "B"}])
    assert open_checkpoint(folder).generation.chat_template == "B"
    declare({"default": "B", "tool_use": "A"})
    assert open_checkpoint(folder).generation.chat_template == "B"
    declare(5)
    assert "chat_template" in refuse(folder)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "C"}))
    for empty in ("", None, [], [{"name": "tool_use", "template": "A"}]):
        declare(empty)
        assert open_checkpoint(folder).generation.chat_template == "C"
    (folder / "chat_template.json").unlink()
    declare([{"name": "tool_use", "template": "A"}, {"name": "default", "template": ""}])
    assert open_checkpoint(folder).generation.chat_template == "A", "the only one"
    declare({"tool_use": "A", "rag": "B"})
    generation = open_checkpoint(folder).generation
    assert (generation.chat_template, generation.templates) == (None, ("tool_use", "rag"))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "C"}))
    (folder / "chat_template.jinja").write_bytes(b"")
    assert open_checkpoint(folder).generation.chat_template == "C"
    (folder / "chat_template.jinja").write_text("\u00e9")
    assert open_checkpoint(folder).generation.chat_template == "\u00e9"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    assert "chat_template.jinja is not valid UTF-8" in refuse(folder)


def test_a_sampling_value_that_cannot_be_is_ignored_with_a_note(tmp_path: Path) -> None:
    """Of a folder and of a GGUF file: the model loads, other values hold, and one note has file and value."""
    folder = write_folder(tmp_path / "m")
    path = folder / "generation_config.json"
    for name, value, said in (
        ("temperature", -1, "must be in [0, inf), not -1"),
        ("temperature", 10**400, f"must be in [0, inf), not 1{'0' * 36}..."),
        ("temperature", math.nan, "must be in [0, inf), not nan"),
        ("temperature", math.inf, "must be in [0, inf), not inf"),
        ("top_k", 2.5, "must be an integer, not 2.5"),
        ("top_k", True, "must be an integer, not True"),
        ("top_k", -2, f"must be in [0, {2**63 - 1}], not -2"),
        ("top_p", "high", "must be a number, not 'high'"),
        ("top_p", 1.5, "must be in [0, 1], not 1.5"),
        ("min_p", [0.1], "must be a number, not [0.1]"),
        ("repetition_penalty", 0, "must be in [1e-06, 100], not 0"),
    ):
        path.write_text(json.dumps({name: value}))
        checkpoint = open_checkpoint(folder)
        assert checkpoint.generation.defaults == {}
        assert checkpoint.notes == (f"{path}: {name} {said}; this is ignored",)
    path.write_text(json.dumps({"temperature": 0.6, "top_p": 1.5, "top_k": "x", "min_p": 0.1}))
    checkpoint = open_checkpoint(folder)
    assert checkpoint.generation.defaults == {"temperature": 0.6, "min_p": 0.1}
    (note,) = checkpoint.notes
    assert note.endswith(
        "top_k must be an integer, not 'x', and top_p must be in [0, 1], not 1.5; this is ignored"
    )
    prefix = "general.sampling."
    for name, value, said in (
        ("temp", math.nan, "must be in [0, inf), not nan"),
        ("temp", "hot", "must be a number, not 'hot'"),
        ("top_p", 7.0, "must be in [0, 1], not 7.0"),
        ("top_k", [1, 2], "must be an integer, not [1, 2]"),
        ("penalty_repeat", -1.0, "must be in [1e-06, 100], not -1.0"),
    ):
        file = write_gguf(tmp_path / "m.gguf", **{prefix + name: value, f"{prefix}min_p": 0.25})
        checkpoint = open_checkpoint(file)
        assert checkpoint.generation.defaults == {"min_p": 0.25}
        assert checkpoint.notes == (f"{file}: {prefix}{name} {said}; this is ignored",)


def test_gguf_metadata_about_generating(tmp_path: Path) -> None:
    declared = {
        "general.sampling.temp": 0.6,
        "general.sampling.top_k": 30,
        "general.sampling.penalty_repeat": 1.1,
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.eot_token_id": 4,
        "tokenizer.ggml.eom_token_id": 3,
        "tokenizer.ggml.bos_token_id": 9,
        "tokenizer.chat_template": "T",
    }
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", **declared))
    assert checkpoint.generation.defaults == {"temperature": 0.6, "top_k": 30, "repetition_penalty": 1.1}
    assert checkpoint.generation.end_ids == (3, 4)
    assert checkpoint.generation.bos_ids == (9,)
    assert checkpoint.generation.chat_template == "T"
    several = {
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.eos_token_ids": [3, 7],
    }  # so Ollama writes it
    assert open_checkpoint(write_gguf(tmp_path / "m.gguf", **several)).generation.end_ids == (3, 7)
    empty = {"tokenizer.chat_template": ""}
    assert open_checkpoint(write_gguf(tmp_path / "m.gguf", **empty)).generation.chat_template is None
    only = {**empty, "tokenizer.chat_template.rag": "R"}
    assert open_checkpoint(write_gguf(tmp_path / "m.gguf", **only)).generation.chat_template == "R"
    several = {**only, "tokenizer.chat_template.tool_use": "U"}
    generation = open_checkpoint(write_gguf(tmp_path / "m.gguf", **several)).generation
    assert (generation.chat_template, generation.templates) == (None, ("rag", "tool_use"))
    out = {"tokenizer.ggml.eos_token_id": 50, "tokenizer.ggml.bos_token_id": 2**32 - 1}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", **out))
    inside = checkpoint.generation.within(checkpoint.spec.vocabulary)
    assert (inside.end_ids, inside.bos_ids) == ((), ())


@pytest.mark.slow
def test_B019_mutated_models_load_or_are_refused(tmp_path: Path) -> None:
    """The whole way, header, specification and tensors: only EngineError may come out, in little memory."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    declared = {
        "tokenizer.chat_template": "T",
        "tokenizer.ggml.eos_token_id": 3,
        "general.sampling.temp": 0.6,
    }
    whole = write_gguf(tmp_path / "m.gguf", "Q4_0", **declared).read_bytes()
    header = whole.index(b"blk.1.ffn_down.weight") + 60
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = {True: 0, False: 0}
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(header)
            if rng.random() < 0.5:
                data[at] = rng.randrange(256)
            else:
                data[at : at + 8] = struct.pack("<Q", rng.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1)))
        (tmp_path / "m.gguf").write_bytes(data)
        try:
            checkpoint = open_checkpoint(tmp_path / "m.gguf")
            for name in checkpoint.tensors.bound:
                checkpoint.tensors.get(name)
        except EngineError:
            outcomes[False] += 1
        else:
            outcomes[True] += 1
    assert outcomes[False] > 500
    assert outcomes[True] > 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_opening_a_model_imports_no_heavy_library(default_model: Path) -> None:
    code = (
        "import sys; from engine.loading.checkpoint import open_checkpoint; "
        "open_checkpoint(sys.argv[1]).tensors.get('0.q'); "
        "print([name for name in ('torch', 'gguf', 'safetensors', 'transformers') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(default_model)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_nothing_in_a_model_folder_is_executed(tmp_path: Path) -> None:
    """Remote code is what other loaders run on a `trust_remote_code`; here it is a file like any other."""
    folder = write_folder(tmp_path / "m", auto_map={"AutoConfig": "evil.Config"})
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')")
    open_checkpoint(folder)
    assert not os.path.exists(tmp_path / "PWNED")
