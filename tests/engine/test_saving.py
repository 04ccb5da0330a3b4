"""Models quantized and saved: what is loaded again, what stays, and what is left after an interruption."""

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import safetensors.numpy

from engine.loading.checkpoint import open_checkpoint
from engine.loading.gguf import read_gguf
from engine.saving import model as saving
from engine.saving.model import quantize_model
from engine.types import EngineError
from kernels.stored import canonical
from kernels.weights import Packed, dequantize

WIDTH, FEED_FORWARD, VOCABULARY = 64, 128, 40
CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
}
RNG = np.random.default_rng(60)


def values() -> dict[str, np.ndarray]:
    shapes = {
        "model.embed_tokens": (VOCABULARY, WIDTH),
        "lm_head": (VOCABULARY, WIDTH),
        "model.norm": (WIDTH,),
    }
    for i in range(2):
        names = {"input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,)}
        names |= {f"self_attn.{role}_proj": (WIDTH, WIDTH) for role in "qkvo"}
        names |= {"mlp.gate_proj": (FEED_FORWARD, WIDTH), "mlp.up_proj": (FEED_FORWARD, WIDTH)}
        names |= {"mlp.down_proj": (WIDTH, FEED_FORWARD)}
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in names.items()}
    return {f"{name}.weight": RNG.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}


def write_folder(path: Path, **changes: np.ndarray) -> Path:
    path.mkdir()
    safetensors.numpy.save_file(values() | changes, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "tokenizer.json").write_text('{"version": "1.0"}')
    (path / "LICENSE").write_text("free")
    return path


def write_gguf(path: Path) -> Path:
    names = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
    roles = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attn_output",
    }
    roles |= {f"self_attn.{role}_proj": f"attn_{role}" for role in "qkv"}
    roles |= {f"mlp.{role}_proj": f"ffn_{role}" for role in ("gate", "up", "down")}
    names |= {
        f"model.layers.{i}.{long}": f"blk.{i}.{short}" for i in range(2) for long, short in roles.items()
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(32)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_block_count(2)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_token_list([f"<{i}> é" for i in range(VOCABULARY)])
    writer.add_chat_template("{{ messages }}")
    for name, array in values().items():
        array = array if array.ndim == 2 else array.astype(np.float32)
        writer.add_tensor(f"{names[name.removesuffix('.weight')]}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def all_values(path: Path, quantization: str = "auto") -> dict[str, np.ndarray]:
    tensors = open_checkpoint(path, quantization).tensors
    return {name: dequantize(canonical(tensors.get(name))) for name in tensors.bound}


def check_same(saved: Path, source: Path, quantization: str) -> None:
    want, got = all_values(source, quantization), all_values(saved)
    assert want.keys() == got.keys()
    for name in want:
        assert np.array_equal(want[name], got[name]), name


@pytest.mark.parametrize("quantization", ["int8", "int4", "nf4"])
def test_a_folder_becomes_a_folder_that_loads_as_quantized(tmp_path: Path, quantization: str) -> None:
    source, target = write_folder(tmp_path / "m"), tmp_path / "q"
    saved = quantize_model(source, quantization, target)
    assert saved.path == target
    assert saved.kept == ()
    check_same(target, source, quantization)
    tensors = open_checkpoint(target).tensors
    assert tensors.label() == quantization
    weight = tensors.get("0.down")
    assert isinstance(weight, Packed)
    assert not weight.codes.flags.owndata, "a view of the mapped file"
    assert not weight.scales.flags.owndata
    assert (target / "LICENSE").read_text() == "free"
    assert (target / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    config = json.loads((target / "config.json").read_text())
    assert config.pop("quantization_config")["quant_method"] == "termchat"
    assert config == CONFIG
    assert sorted(os.listdir(tmp_path)) == ["m", "q"]


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_a_gguf_file_becomes_one_of_standard_types(tmp_path: Path, quantization: str) -> None:
    source, target = write_gguf(tmp_path / "m.gguf"), tmp_path / "q.gguf"
    quantize_model(source, quantization, target)
    check_same(target, source, quantization)
    before, after = read_gguf(source), read_gguf(target)
    changed = {"general.file_type", "general.quantization_version"}
    for key in before.metadata.keys() - changed:
        assert np.array_equal(before.metadata[key], after.metadata[key]), key
    assert after.metadata["general.file_type"] == {"int8": 7, "int4": 3}[quantization]
    assert after.metadata["general.quantization_version"] == 2
    assert after.tensors["blk.0.ffn_up.weight"].type == {"int8": "Q8_0", "int4": "Q4_1"}[quantization]
    assert after.tensors["token_embd.weight"].type == "Q8_0"
    assert after.tensors["blk.0.attn_norm.weight"].type == "F32"
    assert list(after.tensors) == list(before.tensors)
    # As the library of other programs reads it.
    reader = gguf.GGUFReader(target)
    want = all_values(target)
    (found,) = (tensor for tensor in reader.tensors if tensor.name == "blk.1.ffn_down.weight")
    assert np.array_equal(gguf.dequantize(found.data, found.tensor_type), want["1.down"])


def test_what_cannot_be_held_stays_as_it_was(tmp_path: Path) -> None:
    tiny = values()["model.layers.0.mlp.up_proj.weight"].copy()
    tiny[3] *= np.float16(1e-7)
    source = write_folder(tmp_path / "m", **{"model.layers.0.mlp.up_proj.weight": tiny})
    saved = quantize_model(source, "int4", tmp_path / "q")
    assert saved.kept == ("model.layers.0.mlp.up_proj.weight",)
    assert np.array_equal(all_values(tmp_path / "q")["0.up"], tiny.astype(np.float32))


def test_what_stands_in_the_way_is_refused(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "m")
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("mine")
    for target, replace, reason in (
        (tmp_path / "m", True, "is the model that is read"),
        (tmp_path / "other", False, "exists already; --force replaces it"),
        (tmp_path / "other", True, "holds no model, and is not replaced"),
        (tmp_path / "file", True, "is a file; name a folder"),
        (tmp_path / "no" / "q", False, "does not exist"),
    ):
        with pytest.raises(EngineError, match=reason) as caught:
            quantize_model(source, "int8", target, replace=replace)
        assert caught.value.code == "invalid_request"
    quantize_model(source, "int8", tmp_path / "q")
    quantize_model(source, "int4", tmp_path / "q", replace=True)
    check_same(tmp_path / "q", source, "int4")
    with pytest.raises(EngineError, match="stored as int4, which has no more bits than int8"):
        quantize_model(tmp_path / "q", "int8", tmp_path / "r")
    assert sorted(os.listdir(tmp_path)) == ["file", "m", "other", "q"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_an_interruption_leaves_nothing_behind(tmp_path: Path, stop, kind: str) -> None:
    source = write_folder(tmp_path / "m") if kind == "folder" else write_gguf(tmp_path / "m.gguf")
    told = []

    def watch(done: int, total: int) -> None:
        told.append((done, total))
        if len(told) == 5:
            raise stop

    with pytest.raises(type(stop) if isinstance(stop, OSError) else stop):
        quantize_model(source, "int4", tmp_path / "q", watch=watch)
    assert os.listdir(tmp_path) == [source.name]
    assert told[0][0] > 0
    assert told == sorted(told)
    assert told[-1][0] < told[-1][1]


def test_nf4_is_no_type_of_gguf_files(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="GGUF files have no type for nf4"):
        quantize_model(write_gguf(tmp_path / "m.gguf"), "nf4", tmp_path / "q.gguf")


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    name = f"{'é' * 125}.gguf"  # 255 bytes
    assert quantize_model(write_gguf(tmp_path / "m.gguf"), "int8", tmp_path / name).path == tmp_path / name
    assert sorted(os.listdir(tmp_path)) == ["m.gguf", name]


def test_too_small_a_disk_is_seen_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_folder(tmp_path / "m")
    monkeypatch.setattr(saving.shutil, "disk_usage", lambda path: SimpleNamespace(free=1))
    with pytest.raises(OSError, match=r"some \d+ MB are needed and 0 MB are free on its disk"):
        quantize_model(source, "int4", tmp_path / "q")
    assert os.listdir(tmp_path) == ["m"]
