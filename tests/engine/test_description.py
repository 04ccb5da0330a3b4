"""What a model is, by its headers alone: soon, bounded, and never an exception for what a file holds."""

from __future__ import annotations

import json
import random
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from engine import describe_model
from engine.loading.description import Description

WORDS = [f"word{i}" for i in range(5000)]


def header(path: Path, architecture: str = "llama", **more: str) -> Path:
    """A header with a vocabulary behind what is asked for, and no tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(4096)
    writer.add_file_type(15)
    writer.add_license(more.get("licence", "mit"))
    writer.add_token_list(WORDS)
    writer.add_chat_template("{{ messages }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


def test_the_default_model(default_model: Path) -> None:
    soon = describe_model(default_model)
    assert soon == Description("llama", "Q4_1", 8192, "apache-2.0")
    thorough = describe_model(default_model, thoroughly=True)
    assert thorough == soon._replace(parameters=134_515_008, has_template=True, thinks=False, notes=())


def test_the_vocabulary_is_not_read_for_a_list(tmp_path: Path) -> None:
    whole = header(tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: whole.index(b"word100") + 3])
    assert describe_model(cut) == Description("llama", "Q4_K_M", 4096, "mit")
    assert "cut off or damaged" in describe_model(cut, thoroughly=True).problem


def test_an_architecture_that_is_not_known_is_named(tmp_path: Path) -> None:
    found = describe_model(header(tmp_path / "m.gguf", "falcon"))
    assert (found.architecture, found.quantization) == ("falcon", "Q4_K_M")
    assert "general.architecture 'falcon' is not supported" in found.problem


@pytest.mark.parametrize(
    "data", [b"", b"GGUF", b"no", b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, b"GGUF" + bytes(64)]
)
def test_what_is_no_model(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(data)
    for thoroughly in (False, True):
        found = describe_model(file, thoroughly=thoroughly)
        assert found.problem
        assert "\n" not in found.problem


def test_places_that_are_none(tmp_path: Path) -> None:
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    for place in (tmp_path / "gone", tmp_path, loop, Path("/dev/zero"), Path("x\0y")):
        assert describe_model(place).problem


def test_a_folder_with_safetensors(tmp_path: Path) -> None:
    config = {"model_type": "qwen3", "max_position_embeddings": 1000, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"x": np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    assert describe_model(tmp_path) == Description("qwen3", "bfloat16", 1000, "")
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "quantization_config": {"quant_method": "awq"}})
    )
    assert describe_model(tmp_path).quantization == "awq"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert "model_type 'bert' is not supported" in describe_model(tmp_path).problem


def test_damaged_headers_are_sentences(tmp_path: Path) -> None:
    whole = bytearray(header(tmp_path / "m.gguf").read_bytes()[:4000])
    rng = random.Random(7)
    file = tmp_path / "x.gguf"
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data[: rng.randrange(len(data))])
        found = describe_model(file)
        assert all(len(word) <= 240 for word in (found.architecture, found.quantization, found.licence))
        assert found.problem.isprintable()
