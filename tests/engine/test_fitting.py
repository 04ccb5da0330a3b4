"""How many bits weights get in the memory that is free, and what is said and refused about it."""

import json

import numpy as np
import pytest
import safetensors.numpy

from engine import EngineConfig
from engine.loading.checkpoint import open_checkpoint
from engine.memory_plan import plan_memory
from engine.model import load_model
from engine.types import EngineError

CONFIG = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
KV = 512 * 2 * 3 * 256 * 2
"""Bytes of keys and values of a whole context."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(50)
    shapes = {"model.embed_tokens": (1000, 256), "model.norm": (256,)}
    for i in range(3):
        names = {"input_layernorm": (256,), "post_attention_layernorm": (256,)}
        names |= {f"self_attn.{role}_proj": (256, 256) for role in "qkvo"}
        names |= {"mlp.gate_proj": (512, 256), "mlp.up_proj": (512, 256), "mlp.down_proj": (256, 512)}
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in names.items()}
    path = tmp_path_factory.mktemp("m")
    tensors = {
        f"{name}.weight": rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()
    }
    safetensors.numpy.save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def planned(folder, free, monkeypatch, quantization="auto"):
    monkeypatch.setattr("kernels.backends.free_memory", lambda: free)
    return plan_memory(EngineConfig(model=folder, quantization=quantization, backend="native"))


def nbytes(folder, quantization):
    return open_checkpoint(folder, quantization).tensors.nbytes()


def test_auto_takes_the_most_bits_that_fit_with_a_useful_cache(folder, monkeypatch):
    stored, int8, int4 = (nbytes(folder, quantization) for quantization in ("auto", "int8", "int4"))
    assert stored > int8 > int4
    for free, label, weights in (
        (1 << 40, "f16", stored),
        (stored + 4 * KV, "f16", stored),
        (stored, "int8", int8),
        (int8, "int4", int4),
        (int4 - 1, "int4", int4),
    ):
        plan = planned(folder, free, monkeypatch)
        assert (plan.quantization, plan.weight_bytes) == (label, weights), free
        if label == "f16":
            assert plan.notes == ()
        else:
            (note,) = plan.notes
            assert f"quantized to {label}: as stored (f16) they take" in note
            assert f"--quantize {label}" in note


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_what_is_asked_for_is_never_ignored(folder, monkeypatch, quantization):
    plan = planned(folder, 1 << 20, monkeypatch, quantization)
    assert plan.weight_bytes == nbytes(folder, quantization)
    assert plan.notes == ()


def test_weights_that_do_not_fit_are_refused_before_any_is_read(folder, monkeypatch):
    for quantization, free, advice in (
        ("none", nbytes(folder, "int4"), "--quantize int4 fits"),
        ("auto", nbytes(folder, "int4") - 1, "close other programs"),
    ):
        monkeypatch.setattr("kernels.native.backend.free_memory", lambda free=free: free)
        monkeypatch.setattr("engine.reserve._reserved", 0)
        monkeypatch.setattr("engine.loading.tensors.CheckpointTensors.get", None)
        with pytest.raises(EngineError, match=advice) as caught:
            load_model(EngineConfig(model=folder, quantization=quantization, backend="native"))
        assert caught.value.code == "out_of_memory"
        assert "MB of memory are free" in caught.value.message


def test_what_has_no_more_bits_stays_and_it_is_said(default_model, monkeypatch):
    for quantization in ("int8", "int4"):
        plan = plan_memory(EngineConfig(model=default_model, quantization=quantization, backend="native"))
        assert len(plan.notes) == 1
        assert f"stays as it is stored, as Q4_1: that has no more bits than {quantization}" in plan.notes[0]


def test_loading_tells_how_far_it_is_and_can_be_ended(folder):
    shares = []

    class EndedError(Exception):
        pass

    def watch(share):
        shares.append(share)
        if len(shares) == 9:
            raise EndedError

    with pytest.raises(EndedError):
        load_model(EngineConfig(model=folder, quantization="int4", backend="native"), watch=watch)
    assert len(shares) == 9
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1
