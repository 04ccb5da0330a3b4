"""`termchat models quantize`: what it says, and how it ends."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy

from engine.loading.checkpoint import open_checkpoint
from termchat.cli import serving
from waiting import until

SHAPES = {
    "model.embed_tokens": (20, 32),
    "model.norm": (32,),
    "model.layers.0.input_layernorm": (32,),
    "model.layers.0.post_attention_layernorm": (32,),
    **{f"model.layers.0.self_attn.{role}_proj": (32, 32) for role in "qkvo"},
    **{f"model.layers.0.mlp.{role}_proj": (32, 32) for role in ("gate", "up", "down")},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    rng = np.random.default_rng(70)
    tensors = {
        f"{name}.weight": rng.standard_normal(shape).astype(np.float16) for name, shape in SHAPES.items()
    }
    safetensors.numpy.save_file(tensors, path / "model.safetensors")
    config = {"model_type": "llama", "vocab_size": 20, "hidden_size": 32, "intermediate_size": 32}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 64}
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    return path


def test_a_model_is_saved_with_fewer_bits(termchat, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "small"
    done = termchat("models", "quantize", str(folder), "--to", "int4", "-o", str(target))
    assert done.code == 0
    assert done.out.startswith(f"{target}: ")
    assert open_checkpoint(target).tensors.label() == "int4"
    again = termchat("models", "quantize", str(folder), "--to", "int8", "-o", str(target))
    assert again.code == 2
    assert "exists already; --force replaces it" in again.err
    forced = termchat(
        "models", "quantize", str(folder), "--to", "int8", "-o", str(target), "--force", "--json"
    )
    assert forced.code == 0
    assert json.loads(forced.out) == {
        "path": str(target),
        "bytes": sum(file.stat().st_size for file in target.iterdir()),
        "kept": [],
    }


def test_what_it_cannot_do_is_one_sentence(termchat, folder: Path, tmp_path: Path) -> None:
    for arguments, code, reason in (
        (("--to", "int5", "-o", "x"), 2, "'int5'"),
        (("--to", "int4"), 2, "--output"),
        (("--to", "int4", "-o", str(tmp_path / "no" / "x")), 2, "does not exist"),
    ):
        done = termchat("models", "quantize", str(folder), *arguments)
        assert done.code == code
        assert reason in done.err
    (folder / "model.safetensors").write_bytes(b"{}")
    done = termchat("models", "quantize", str(folder), "--to", "int4", "-o", str(tmp_path / "x"))
    assert done.code == 1
    assert "is not a safetensors file" in done.err
    assert not (tmp_path / "x").exists()


async def test_a_long_load_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PATIENCE_SECONDS", 0.0)
    check = "checking the GPU's kernels, once for each driver: add, 2 of 9"
    for terminal, loading, lines in (
        (True, "", ["loading m: 43%", ""]),
        (True, check, [f"loading m: {check}", ""]),
        (False, "", []),
        (False, check, [check]),
    ):
        said: list[str] = []
        messages = SimpleNamespace(draws=terminal, progress=said.append, note=said.append)
        picture = SimpleNamespace(loaded=0.43, loading=loading)
        engine = SimpleNamespace(snapshot=lambda picture=picture: picture)
        async with serving._showing_progress(SimpleNamespace(messages=messages), engine, "m"):  # type: ignore[arg-type]
            await until(lambda said=said, lines=lines: said or not lines)
        assert [*dict.fromkeys(said)] == lines, "shown once, or again after a while"
    said.clear()
    monkeypatch.setattr(serving, "PATIENCE_SECONDS", 60.0)
    async with serving._showing_progress(SimpleNamespace(messages=messages), engine, "m"):  # type: ignore[arg-type]
        await asyncio.sleep(0.02)
    assert said == []
