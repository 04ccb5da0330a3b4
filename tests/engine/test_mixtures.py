"""Models with experts: what their files may say, what is placed of them, what a step reads."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.numpy
import torch

from converted import write_gguf
from engine import EngineConfig
from engine.loading.checkpoint import open_checkpoint
from engine.memory_plan import plan_memory
from engine.models.placing import place_tensors
from engine.models.spec import ExpertsSpec
from engine.roofline import Traffic
from engine.saving.model import quantize_model
from engine.types import EngineError
from kernels.interface import BackendSettings, Routing
from kernels.native.backend import NativeBackend
from kernels.native.library import kernels as native_kernels
from kernels.reference.quantized_backend import QuantizedBackend
from kernels.stored import mapping_of
from kernels.weights import Packed, Plain, dequantize
from sessions import Session
from tiny_models import make

EXPERT = "model.layers.1.mlp.experts.2.up_proj.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Qwen 3 with 8 experts in each layer, of which a row chooses 3; its GGUF file beside it."""
    made = tmp_path_factory.mktemp("mixture")
    (made / "beside").mkdir()
    write_gguf(made / "beside" / "m.gguf", make("qwen3moe", made), "qwen3moe")
    return made


def changed(folder: Path, to: Path, tensors: dict[str, Any] | None = None, **config: Any) -> Path:
    """A copy with other values in config.json, and other tensors (None: without it)."""
    to.mkdir()
    values = {**json.loads((folder / "config.json").read_text()), **config}
    kept = {key: value for key, value in values.items() if value is not ...}
    (to / "config.json").write_text(json.dumps(kept))
    stored = {**safetensors.numpy.load_file(folder / "model.safetensors"), **(tensors or {})}
    held = {name: value for name, value in stored.items() if value is not None}
    safetensors.numpy.save_file(held, to / "model.safetensors")
    return to


def patched(source: Path, to: Path, **changes: Any) -> Path:
    """A GGUF file with other metadata (None: without it), and without tensors that are named."""
    reader, without = gguf.GGUFReader(source), changes.pop("without", ())
    writer = gguf.GGUFWriter(to, "qwen3moe")
    kept = {
        name.removeprefix("qwen3moe."): field.contents()
        for name, field in reader.fields.items()
        if name.startswith("qwen3moe.")
    }
    for key, value in {**kept, **{key.replace("__", "."): value for key, value in changes.items()}}.items():
        if value is not None:
            kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
            kinds[type(value)](f"qwen3moe.{key}", value)
    for tensor in reader.tensors:
        if tensor.name not in without:
            writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


def refusal(path: Path) -> str:
    with pytest.raises(EngineError) as caught:
        open_checkpoint(path)
    assert caught.value.code == "model_invalid"
    assert "\n" not in caught.value.message
    return caught.value.message


def test_experts_are_what_the_files_say(folder: Path, tmp_path: Path) -> None:
    expected = ExpertsSpec(8, 32, Routing(3))
    for path in (folder, folder / "beside" / "m.gguf"):
        assert {layer.experts for layer in open_checkpoint(path).spec.layers} == {expected}
    whole = open_checkpoint(changed(folder, tmp_path / "whole", norm_topk_prob=False)).spec
    assert whole.layers[0].experts == ExpertsSpec(8, 32, Routing(3, "all"))
    told = patched(folder / "beside" / "m.gguf", tmp_path / "m.gguf", expert_weights_norm=False)
    assert open_checkpoint(told).spec.layers[0].experts == ExpertsSpec(8, 32, Routing(3, "all"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"num_local_experts": 0}, "num_local_experts"),
        ({"num_local_experts": 1 << 20}, "num_local_experts"),
        ({"num_local_experts": ...}, "num_local_experts is missing"),
        ({"num_local_experts": "8"}, "num_local_experts"),
        ({"num_experts": 9}, "num_experts is not num_local_experts (8)"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok"),
        ({"moe_intermediate_size": ...}, "moe_intermediate_size is missing"),
        ({"num_local_experts": 9}, "shape (8, 64); (9, 64) is declared"),
        ({"num_local_experts": 7}, "shape (8, 64); (7, 64) is declared"),
        ({"moe_intermediate_size": 31}, "(31, 64)"),
        ({"mlp_only_layers": ["1"]}, "mlp_only_layers"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step"),
        ({"mlp_only_layers": [1]}, "model.layers.1.mlp.gate_proj.weight"),
        ({"norm_topk_prob": 1}, "norm_topk_prob"),
    ],
)
def test_what_config_json_can_t_mean_is_refused_by_name(
    folder: Path, tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    assert said in refusal(changed(folder, tmp_path / "m", **config))


def test_a_missing_or_misshapen_expert_is_named(folder: Path, tmp_path: Path) -> None:
    assert f"{EXPERT}' is missing" in refusal(changed(folder, tmp_path / "a", {EXPERT: None}))
    short = changed(folder, tmp_path / "b", {EXPERT: np.zeros((32, 63), np.float32)})
    assert f"{EXPERT}' has the shape (32, 63)" in refusal(short)
    file = folder / "beside" / "m.gguf"
    lacking = patched(file, tmp_path / "m.gguf", without=("blk.2.ffn_down_exps.weight",))
    assert "blk.2.ffn_down_exps.weight' is missing" in refusal(lacking)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"expert_count": 0}, "expert_count"),
        ({"expert_count": None}, "expert_count is missing"),
        ({"expert_count": 1 << 30}, "expert_count"),
        ({"expert_used_count": 9}, "expert_used_count"),
        ({"expert_used_count": 0}, "expert_used_count"),
        ({"expert_used_count": None}, "expert_used_count is missing"),
        ({"expert_count": 9}, "(8, 64); (9, 64) is declared"),
        ({"expert_feed_forward_length": 33}, "(8, 33, 64)"),
        ({"expert_gating_func": 2}, "expert_gating_func"),
        ({"expert_group_count": 4}, "expert_group_count"),
        ({"expert_weights_scale": 2.5}, "expert_weights_scale"),
        ({"expert_weights_norm": 1}, "expert_weights_norm"),
    ],
)
def test_what_metadata_can_t_mean_is_refused_by_name(
    folder: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    assert said in refusal(patched(folder / "beside" / "m.gguf", tmp_path / "m.gguf", **changes))


def test_an_expert_is_a_view_of_the_file(folder: Path) -> None:
    for path in (folder, folder / "beside" / "m.gguf"):
        checkpoint = open_checkpoint(path)
        for name in ("0.expert_gate.7", "2.expert_down.0", "1.router"):
            weight = checkpoint.tensors.get(name)
            assert isinstance(weight, Plain)
            assert mapping_of(weight.values) is not None, name


@pytest.mark.parametrize("quantization", ["auto", "int8", "int4"])
def test_a_model_with_experts_has_the_same_bits_on_every_instruction_set(
    folder: Path, quantization: Any
) -> None:
    """Alone and beside others, in one step or in several; a router keeps its bits."""
    checkpoint = open_checkpoint(folder, quantization)
    router = checkpoint.tensors.get("0.router")
    assert router is not None
    assert router.format == "f32"
    texts = [np.random.default_rng(s).integers(0, 160, 20).tolist() for s in range(3)]
    (expected,) = Session(checkpoint, 1, QuantizedBackend(), "float16").step([(0, 0, texts[0])])
    for isa in (isa for isa in ("portable", "avx2", "avx512", "amx") if native_kernels(isa)):
        backend = NativeBackend(BackendSettings(cpu_isa=isa, threads=2))
        session = Session(checkpoint, 3, backend, "float16")
        beside = session.step([(1, 0, texts[1][:9]), (0, 0, texts[0][:13]), (2, 0, texts[2])])
        later = session.step([(1, 9, texts[1][9:11]), (0, 13, texts[0][13:])])
        assert np.concatenate([beside[1], later[1]]).tobytes() == expected.tobytes(), isa
        backend.close()


def test_a_step_counts_the_experts_that_it_read(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    backend = NativeBackend(BackendSettings(threads=1))
    weights = place_tensors(checkpoint.spec, checkpoint.tensors, backend)
    one = 3 * 64 * 32 * 4
    assert weights.expert_bytes == 3 * 8 * one
    assert weights.streamed_bytes + weights.expert_bytes + 160 * 64 * 4 == backend.weight_bytes
    traffic = Traffic.of(checkpoint.spec, weights.streamed_bytes, (40, 30, 30), weights.expert_bytes)
    assert traffic.token_bytes() == weights.streamed_bytes + 3 * 3 * one + 2 * 100
    assert traffic.all_weight_bytes == weights.streamed_bytes + weights.expert_bytes
    backend.close()


def test_the_plan_tells_what_a_token_takes_from_what_there_is(folder: Path) -> None:
    plan = plan_memory(EngineConfig(model=folder, backend="native", quantization="none"))
    experts = 3 * 8 * 3 * 64 * 32 * 4
    assert plan.weight_bytes - plan.active_bytes == experts * 5 // 8


E2M1 = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
"""The magnitudes of OCP's 4-bit floats; the highest of the bits is the sign."""


def mxfp4(rng: np.random.Generator, experts: int, rows: int, columns: int) -> tuple[np.ndarray, ...]:
    """Blocks and scales as gpt-oss has them, and the values [experts, rows, columns] that they stand for."""
    blocks = rng.integers(0, 256, (experts, rows, columns // 32, 16), np.uint8)
    scales = rng.integers(120, 125, blocks.shape[:3], np.uint8)
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    values = E2M1[codes & 7] * np.where(codes & 8, np.float32(-1), np.float32(1))
    whole = np.ldexp(values, scales[..., None].astype(np.int32) - 127).astype(np.float32)
    return blocks, scales, whole.reshape(experts, rows, columns)


def write_mxfp4(folder: Path) -> torch.nn.Module:
    """gpt-oss with experts in MXFP4, and the model of their values."""
    model = make("gptoss", folder)
    stored, rng = safetensors.numpy.load_file(folder / "model.safetensors"), np.random.default_rng(3)
    for name, parameter in model.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, columns, rows = parameter.shape
            blocks, scales, values = mxfp4(rng, experts, rows, columns)
            del stored[name]
            stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            parameter.data.copy_(torch.from_numpy(values).swapaxes(1, 2))
    safetensors.numpy.save_file(stored, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return model


def test_folders_of_gpt_oss_are_read_in_mxfp4(tmp_path: Path) -> None:
    model = write_mxfp4(tmp_path)
    text = np.random.default_rng(4).integers(0, 160, 30).tolist()
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([text]), use_cache=False).logits[0].numpy()
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.tensors.label() == "MXFP4"
    (logits,) = Session(checkpoint).step([(0, 0, text)])
    assert np.abs(logits - expected).max() < 1e-4
    with closing(NativeBackend(BackendSettings(threads=2))) as native:
        sessions = [Session(checkpoint, 1, backend, "float16") for backend in (QuantizedBackend(), native)]
        assert len({session.step([(0, 0, text)])[0].tobytes() for session in sessions}) == 1


@pytest.mark.parametrize(
    ("part", "become", "said"),
    [
        ("scales", None, "_scales is missing"),
        (
            "scales",
            np.zeros((5, 192, 1), np.uint8),
            "_scales has the shape (5, 192, 1); (5, 192, 2) is needed",
        ),
        ("blocks", np.zeros((5, 192, 2, 15), np.uint8), "_blocks has the shape (5, 192, 2, 15)"),
        ("blocks", np.zeros((5, 192, 2, 16), np.int8), "U8 is needed"),
        ("both", np.zeros((5, 190, 2, 16), np.uint8), "(5, 190, 64); (5, 192, 64) is declared"),
        ("plain", np.zeros((5, 64, 192), np.float32), "is stored twice, quantized and as it was"),
    ],
)
def test_broken_mxfp4_is_refused_by_name(tmp_path: Path, part: str, become: Any, said: str) -> None:
    write_mxfp4(tmp_path / "m")
    name = "model.layers.1.mlp.experts.gate_up_proj_"
    changes = {name + part: become}
    if part == "both":
        changes = {f"{name}blocks": become, f"{name}scales": np.zeros(become.shape[:-1], np.uint8)}
    if part == "plain":
        changes = {name.removesuffix("_"): become}
    assert said in refusal(changed(tmp_path / "m", tmp_path / "broken", changes))


def test_experts_are_saved_with_fewer_bits_or_that_is_refused(tmp_path: Path) -> None:
    make("granitemoe-shared-tied", tmp_path / "granite")
    quantize_model(tmp_path / "granite", "int4", tmp_path / "saved")
    saved, loaded = open_checkpoint(tmp_path / "saved"), open_checkpoint(tmp_path / "granite", "int4")
    for name in ("0.expert_gate.0", "1.expert_up.3", "2.expert_down.5"):
        first, second = saved.tensors.get(name), loaded.tensors.get(name)
        assert isinstance(first, Packed)
        assert isinstance(second, Packed)
        assert np.array_equal(dequantize(first), dequantize(second)), name
    make("gptoss", tmp_path / "oss")
    with pytest.raises(EngineError, match="holds columns where others hold rows"):
        quantize_model(tmp_path / "oss", "int4", tmp_path / "refused")


def test_experts_that_were_saved_the_other_way_round_are_read_alike(tmp_path: Path) -> None:
    """Of Qwen3-VL the Hub's files have inputs before outputs; transformers 5 writes them behind."""
    make("qwen3vlmoe", tmp_path / "m")
    stored = safetensors.numpy.load_file(tmp_path / "m" / "model.safetensors")
    turned = {name: value.swapaxes(1, 2).copy() for name, value in stored.items() if ".experts." in name}
    assert turned
    tokens = list(range(40))
    (expected,) = Session(open_checkpoint(tmp_path / "m")).step([(0, 0, tokens)])
    (found,) = Session(open_checkpoint(changed(tmp_path / "m", tmp_path / "t", turned))).step(
        [(0, 0, tokens)]
    )
    assert found.tobytes() == expected.tobytes()


def test_layers_that_guess_further_tokens_are_left_out(tmp_path: Path) -> None:
    model = make("glm4moe", tmp_path / "m")
    stored = safetensors.numpy.load_file(tmp_path / "m" / "model.safetensors")
    last = {name: value for name, value in stored.items() if name.startswith("model.layers.3.")}
    behind = {name.replace("layers.3.", "layers.4."): value for name, value in last.items()}
    behind["model.layers.4.eh_proj.weight"] = np.zeros((64, 128), np.float32)
    plain = open_checkpoint(tmp_path / "m")
    more = open_checkpoint(changed(tmp_path / "m", tmp_path / "more", behind))
    assert more.spec == plain.spec
    assert more.tensors.nbytes() == plain.tensors.nbytes()
    none = changed(tmp_path / "m", tmp_path / "none", behind, num_nextn_predict_layers=0)
    assert "is no part of a glm4_moe model of 4 layers" in refusal(none)
    file = write_gguf(tmp_path / "m.gguf", model, "glm4moe")
    assert len(open_checkpoint(file).spec.layers) == 4
    groups = changed(tmp_path / "m", tmp_path / "groups", n_group=4, topk_group=2)
    assert "n_group 4 is not supported" in refusal(groups)


def test_an_expert_that_all_rows_choose_counts_among_those_that_are_read(tmp_path: Path) -> None:
    """Qwen 2's network for all rows has a router of its own, so it is an expert: each step reads it once."""
    make("qwen2moe", tmp_path / "m")
    checkpoint = open_checkpoint(tmp_path / "m")
    backend = QuantizedBackend()
    weights = place_tensors(checkpoint.spec, checkpoint.tensors, backend)
    matrices = 4 * (3 * 64) * (8 * 32 + 48) * len(checkpoint.spec.layers)
    assert weights.expert_bytes == matrices
    assert weights.streamed_bytes + weights.expert_bytes <= backend.weight_bytes


def test_how_many_are_chosen_may_be_said_for_each_layer(tmp_path: Path) -> None:
    make("hunyuanmoe", tmp_path / "m")
    listed = open_checkpoint(tmp_path / "m").spec
    assert open_checkpoint(changed(tmp_path / "m", tmp_path / "same", moe_topk=2)).spec == listed
    assert "moe_topk must be an integer" in refusal(
        changed(tmp_path / "m", tmp_path / "n", moe_topk=[2, 1, 2])
    )


def test_a_last_layer_with_experts_may_be_behind_those_that_there_are(tmp_path: Path) -> None:
    make("erniemoe", tmp_path / "m")
    plain = open_checkpoint(tmp_path / "m").spec
    layers = len(plain.layers)
    for last in (-1, layers - 1, layers, 2 * layers):
        found = open_checkpoint(changed(tmp_path / "m", tmp_path / f"{last}", moe_layer_end_index=last)).spec
        assert found == plain
