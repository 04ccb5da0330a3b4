"""Folders of quantized models with what no program writes: refused in one sentence and in little memory."""

from __future__ import annotations

import importlib
import json
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from engine.config import EngineConfig, Quantization
from engine.loading.checkpoint import open_checkpoint
from engine.model import load_model
from engine.saving.model import SavedAs, quantize_model
from engine.types import EngineError
from kernels.stored import canonical
from kernels.weights import dequantize

ROOT = Path(__file__).resolve().parents[2]
Q = "model.layers.0.self_attn.q_proj"
GATE_UP = "model.layers.0.mlp.experts.gate_up_proj"
STATE = f"{Q}.weight.quant_state.bitsandbytes__nf4"

Tensors = dict[str, Any]


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("fuzz_kinds")


@pytest.fixture
def start(kinds: ModuleType, tmp_path: Path) -> Callable[..., str | None]:
    """Starts a changed model of a kind; gives the refusal, None for none. Nothing may be warned of."""
    models = importlib.import_module("fuzz_models")

    def of(kind: str, change: Callable[[Tensors], None], **quantization: Any) -> str | None:
        files = dict(kinds.folder_kinds()[kind])
        config = json.loads(files["config.json"])
        config.get("quantization_config", {}).update(quantization)
        tensors = safetensors.numpy.load(files["model.safetensors"])
        change(tensors)
        files["config.json"] = json.dumps(config).encode()
        files["model.safetensors"] = safetensors.numpy.save(
            {name: np.ascontiguousarray(values) for name, values in tensors.items()}
        )
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            refusal: str | None = models.start(tmp_path)
        assert refusal is None or "\n" not in refusal
        return refusal

    return of


def one_group(tensors: Tensors) -> None:
    for name, values in tensors.items():
        if name.endswith((".qzeros", ".scales")):
            tensors[name] = values[:1]
        if name.endswith("g_idx"):
            tensors[name] = np.zeros_like(values)


def test_a_group_far_beyond_the_columns_takes_no_memory(start: Callable[..., str | None]) -> None:
    """The values of its filling would be 256 MB for each of these small matrices."""
    tracemalloc.start()
    assert start("gptq", one_group, group_size=1 << 20) is None
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (0, 0)])
def test_gptq_without_weights_is_refused(start: Callable[..., str | None], shape: tuple[int, int]) -> None:
    def change(tensors: Tensors) -> None:
        one_group(tensors)
        tensors |= {name: np.zeros(shape, np.int32) for name in tensors if name.endswith(".qweight")}

    assert f"qweight has the shape {shape}" in str(start("gptq", change, group_size=-1))


def put(name: str, values: Any) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: values})


def declared(**changes: Any) -> Callable[[Tensors], None]:
    """What bitsandbytes says of a matrix, with other values."""

    def change(tensors: Tensors) -> None:
        state = {**json.loads(bytes(tensors[STATE])), **changes}
        tensors[STATE] = np.frombuffer(json.dumps(state).encode(), np.uint8)

    return change


def quantized_bias(tensors: Tensors) -> None:
    bias = tensors.pop(f"{GATE_UP}_bias")
    groups = len(bias), bias.shape[1] // 32
    tensors[f"{GATE_UP}_bias_blocks"] = np.zeros((*groups, 16), np.uint8)
    tensors[f"{GATE_UP}_bias_scales"] = np.full(groups, 120, np.uint8)


def huge_magnitudes(tensors: Tensors) -> None:
    tensors[f"{Q}.weight.nested_quant_map"] = np.full(256, 3e38, np.float32)
    tensors[f"{Q}.weight.nested_absmax"] = np.full(1, 3e38, np.float32)


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("rows", put(f"{Q}.weight", np.zeros((64, 0), np.int8)), f"{Q}' has the shape (64, 0)"),
        ("gptq", put(f"{Q}.scales", np.full((2, 64), 3e38, np.float32)), f"{Q}.weight': row 0 holds a value"),
        ("int8", put(f"{Q}.SCB", np.full(64, 0x7F800001, np.uint32).view("f4")), f"{Q}.weight': row 0 has"),
        ("nf4", declared(nested_offset=10**400), "nested_offset a number of too many digits"),
        ("nf4", declared(nested_offset=1e300), "nested_offset 1e+300, which float32 does not hold"),
        ("nf4", declared(nested_offset=float("nan")), "nested_offset nan"),
        ("nf4", declared(nested_offset=True), "nested_offset True"),
        ("nf4", huge_magnitudes, f"{Q}.weight'.absmax holds a value that is not finite"),
        ("nf4", put(f"{Q}.weight.quant_map", np.float32(0)), f"{Q}.weight'.quant_map is not the table"),
        ("mxfp4", quantized_bias, f"{GATE_UP}_bias' is stored as MXFP4, which only matrices can be"),
        ("saved", put(f"{Q}.weight_scales", np.full((64, 2), np.nan, np.float16)), f"{Q}.weight': row 0"),
        ("saved", put(f"{Q}.weight_minima", np.full((64, 2), np.inf, np.float16)), f"{Q}.weight': row 0"),
    ],
)
def test_what_no_program_writes_is_refused_by_name(
    start: Callable[..., str | None], kind: str, change: Callable[[Tensors], None], said: str
) -> None:
    assert said in str(start(kind, change))


@pytest.mark.parametrize("quantization", ["auto", "none"])
def test_broken_scales_of_saved_models_are_refused_without_a_warning(
    kinds: ModuleType, tmp_path: Path, quantization: Quantization
) -> None:
    model = write(tmp_path / "m", kinds.folder_kinds()["saved"])
    stored = safetensors.numpy.load_file(model / "model.safetensors")
    stored[f"{Q}.weight_scales"][5] = np.inf
    safetensors.numpy.save_file(stored, model / "model.safetensors")
    config = EngineConfig(model=model, backend="native", quantization=quantization)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(EngineError, match=r"q_proj\.weight': row 5 holds a value"):
            load_model(config)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("kind", ["gptq", "awq", "packed", "rows", "int8", "nf4", "mxfp4"])
def test_what_others_have_quantized_is_not_quantized_once_more(
    kinds: ModuleType, tmp_path: Path, kind: str
) -> None:
    model = write(tmp_path / "m", kinds.folder_kinds()[kind])
    with pytest.raises(EngineError, match=r"has been quantized already: tensor '.*' is stored as") as caught:
        quantize_model(model, "int4", tmp_path / "saved")
    assert caught.value.code == "invalid_request"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_what_we_have_quantized_gets_no_fewer_bits(kinds: ModuleType, tmp_path: Path) -> None:
    quantize_model(write(tmp_path / "m", kinds.folder_kinds()["longrope"]), "int8", tmp_path / "int8")
    with pytest.raises(EngineError, match=r"quantized already: .*qkv_proj\.weight' is stored as int8"):
        quantize_model(tmp_path / "int8", "int4", tmp_path / "int4")


def test_the_text_part_of_a_multimodal_model_is_quantized_by_any_names(
    kinds: ModuleType, tmp_path: Path
) -> None:
    model = write(tmp_path / "m", kinds.folder_kinds()["multimodal"])
    stored = safetensors.numpy.load_file(model / "model.safetensors")
    longer = {name if "vision" in name else f"language_model.{name}": stored[name] for name in stored}
    safetensors.numpy.save_file(longer, model / "model.safetensors")
    quantize_model(model, "int4", tmp_path / "saved")
    saved, loaded = (open_checkpoint(tmp_path / name, "int4").tensors for name in ("saved", "m"))
    assert saved.label() == "int4"
    for name, (spec, _) in loaded.bound.items():
        first, second = saved.get(name), loaded.get(name)
        assert first is not None
        assert second is not None
        assert first.format == second.format
        if spec.is_matrix:
            assert np.array_equal(dequantize(canonical(first)), dequantize(canonical(second))), name


@pytest.mark.parametrize("quantization", ["int8", "int4", "nf4"])
def test_values_that_are_not_finite_are_not_saved(
    kinds: ModuleType, tmp_path: Path, quantization: SavedAs
) -> None:
    model = write(tmp_path / "m", kinds.folder_kinds()["longrope"])
    stored = safetensors.numpy.load_file(model / "model.safetensors")
    stored["model.layers.0.mlp.down_proj.weight"][3, 5] = np.nan
    safetensors.numpy.save_file(stored, model / "model.safetensors")
    with pytest.raises(EngineError, match=r"m: tensor '.*down_proj\.weight': row 3 holds a value"):
        quantize_model(model, quantization, tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
