"""The text part of multimodal models: found in every layout, and what is left out is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from converted import write_gguf
from engine import AsyncEngine, EngineConfig, SamplingParams, describe_model
from engine.loading.checkpoint import open_checkpoint
from engine.types import EngineError
from sessions import Session, alone
from tiny_models import make, write_tokenizer

TEXT = list(range(20, 80))  # none of them is an image, padding, or an end


def as_saved(name: str) -> str:
    return name


def as_newer(name: str) -> str:
    """`model.language_model` and `model.vision_tower`, as files of later versions have them."""
    if name.startswith("language_model.lm_head."):
        return name.removeprefix("language_model.")
    return "model." + name.replace("language_model.model.", "language_model.")


def as_text(name: str) -> str:
    """The text's part at the top."""
    return name.replace("language_model.", "")


def rename(folder: Path, new_name: Callable[[str], str]) -> None:
    file = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    safetensors.numpy.save_file({new_name(name): values for name, values in tensors.items()}, file)


def edit(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    config = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


def refuse(folder: Path) -> str:
    with pytest.raises(EngineError) as caught:
        open_checkpoint(folder)
    assert caught.value.code == "model_invalid"
    return caught.value.message


def test_every_layout_of_names_is_the_same_model(tmp_path: Path) -> None:
    make("mistral3", tmp_path)
    expected = alone(Session(open_checkpoint(tmp_path)), TEXT)
    for layout in (as_saved, as_newer, as_text):
        folder = tmp_path / layout.__name__
        folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            (folder / name).write_bytes((tmp_path / name).read_bytes())
        rename(folder, layout)
        checkpoint = open_checkpoint(folder)
        assert np.array_equal(alone(Session(checkpoint), TEXT), expected), layout
        (note,) = checkpoint.notes
        assert note.startswith(f"only the text part of {layout.__name__} is used; left out: ")
        assert "vision_tower" in note
        assert "multi_modal_projector" in note
        assert describe_model(folder, thoroughly=True).notes == (note,)


async def test_the_engine_says_what_is_left_out_and_answers_as_the_library(tmp_path: Path) -> None:
    model = make("mistral3-ministral3", tmp_path)
    write_tokenizer(tmp_path)
    settings = {"device": "cpu", "backend": "reference", "dtype": "float32", "kv_dtype": "float32"}
    async with AsyncEngine(EngineConfig(model=tmp_path, context_length=256, **settings)) as engine:
        assert any("left out: multi_modal_projector, vision_tower" in note for note in engine.info.notes)
        reply = await engine.generate(TEXT, SamplingParams(temperature=0, max_tokens=16)).result()
    expected = model.generate(torch.tensor([TEXT]), max_new_tokens=16, do_sample=False)
    assert list(reply.token_ids) == expected[0, len(TEXT) :].tolist()


def test_a_model_of_text_has_no_note_and_no_other_parts(tmp_path: Path) -> None:
    make("mistral", tmp_path)
    assert open_checkpoint(tmp_path).notes == ()
    tensors = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    tensors["vision_tower.weight"] = np.zeros((4, 4), np.float32)
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    assert "tensor 'vision_tower.weight' is no part of a mistral model" in refuse(tmp_path)


def test_tensors_that_are_no_known_part_are_refused(tmp_path: Path) -> None:
    make("gemma3-multimodal", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    safetensors.numpy.save_file({**tensors, "adapter.weight": np.zeros((4, 4), np.float32)}, file)
    assert "tensor 'adapter.weight' is no part of" in refuse(tmp_path)
    twice = {**tensors, "model.norm.weight": tensors["language_model.model.norm.weight"]}
    safetensors.numpy.save_file(twice, file)
    assert "tensor 'model.norm.weight' is stored twice" in refuse(tmp_path)


def test_what_a_part_leaves_out_is_the_library_s_choice(tmp_path: Path) -> None:
    """As in the files of Gemma 3, which have a few sizes and nothing else."""
    make("gemma3-multimodal", tmp_path)
    whole = open_checkpoint(tmp_path).spec
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    del text["num_attention_heads"]
    edit(tmp_path, text_config=text)
    assert "tensor" in refuse(tmp_path), "8 heads are declared now"
    text |= {"num_attention_heads": 4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    for key in ("rms_norm_eps", "rope_parameters", "layer_types", "max_position_embeddings", "model_type"):
        del text[key]
    edit(tmp_path, text_config=text)
    short = open_checkpoint(tmp_path).spec
    assert (short.context_length, short.norm_eps) == (131072, 1e-6)
    assert [layer.window for layer in short.layers] == [layer.window for layer in whole.layers]
    bases = {(rope.base, rope.scaling, rope.factor) for rope in short.ropes}
    assert bases == {(10000.0, "none", 1.0), (1e6, "linear", 8.0)}


def test_sizes_of_the_text_may_stand_at_the_top(tmp_path: Path) -> None:
    """As in the files of Qwen2.5-VL."""
    make("qwen2vl", tmp_path)
    expected = alone(Session(open_checkpoint(tmp_path)), TEXT)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    scaling = {"type": "mrope", "mrope_section": text.pop("rope_parameters")["mrope_section"]}
    text |= {"model_type": "qwen2_5_vl", "text_config": ..., "rope_scaling": scaling, "rope_theta": 1e5}
    edit(tmp_path, **text)
    assert np.array_equal(alone(Session(open_checkpoint(tmp_path)), TEXT), expected)


def test_end_tokens_of_the_text_part_end_a_turn(tmp_path: Path) -> None:
    make("qwen3vl", tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    edit(tmp_path, text_config={**text, "eos_token_id": [7, 9]}, eos_token_id=8)
    assert open_checkpoint(tmp_path).generation.eos_ids[-3:] == (8, 7, 9)


def test_the_file_with_the_other_part_is_passed_over_beside_a_model(tmp_path: Path) -> None:
    model = make("gemma3-multimodal", tmp_path / "folder")
    (tmp_path / "files").mkdir()
    file = write_gguf(tmp_path / "files" / "model.gguf", model, "gemma3")
    (tmp_path / "files" / "mmproj-model-f16.gguf").write_bytes(b"GGUF")
    assert open_checkpoint(tmp_path / "files").path == file
    file.unlink()
    assert "mmproj-model-f16.gguf" in refuse(tmp_path / "files"), "alone it is the model that was meant"


def test_what_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    make("gemma3-multimodal", tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    edit(tmp_path, text_config={**text, "model_type": "gemma2"})
    assert "text_config.model_type 'gemma2' is not supported in a model of the type 'gemma3'" in refuse(
        tmp_path
    )
    edit(tmp_path, text_config={**text, "model_type": "novel"})
    assert "text_config.model_type 'novel' is not supported" in refuse(tmp_path)
    edit(tmp_path, text_config={**text, "hidden_size": 0})
    assert "text_config.hidden_size must be in" in refuse(tmp_path)
    edit(tmp_path, text_config=[text])
    assert "text_config must be an object" in refuse(tmp_path)
    edit(tmp_path, text_config=text, quantization_config={"quant_method": "novel"})
    assert "quantization_config" in refuse(tmp_path)
    for kind in ("gemma3n", "llava", "mllama", "llama4"):
        edit(tmp_path, model_type=kind)
        assert f"model_type '{kind}' is not supported (" in refuse(tmp_path)
