"""A family of models is one file of data: found by itself, and no other place knows it by name."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.numpy

import engine
import kernels
from converted import write_gguf as write_model
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.loading.declared import folder_family, gguf_family
from engine.loading.fields import Fields
from engine.models import families
from engine.models.decoder import decoder
from engine.models.family import ATTENTION_BIASES, HEAD_NORMS, MLP_BIASES, NAMES, Family, Option, Windows
from engine.models.placing import place
from engine.models.spec import LayerSpec, RopeSpec
from engine.models.tensor_specs import tensor_specs
from engine.types import EngineError
from kernels.cache_format import CacheShape
from kernels.interface import Backend, BackendSettings
from kernels.native.library import kernels as native_kernels
from kernels.program import Limits
from kernels.reference import ReferenceBackend
from kernels.reference.quantized_backend import QuantizedBackend
from steps import step
from tiny_models import make

ISAS = ("portable", "avx2", "avx512", "amx")
POST_NORMS = {
    "attention_norm": ("attn_norm.weight", "pre_attention.weight"),
    "attention_post_norm": ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    "mlp_norm": ("ffn_norm.weight", "pre_mlp.weight"),
    "mlp_post_norm": ("post_ffw_norm.weight", "post_mlp.weight"),
}
FUSED = {
    **dict.fromkeys("qkv", ("attn_qkv.weight", "self_attn.qkv_proj.weight")),
    **dict.fromkeys(("q_bias", "k_bias", "v_bias"), ("attn_qkv.bias", "self_attn.qkv_proj.bias")),
    **dict.fromkeys(("gate", "up"), ("ffn_up.weight", "mlp.gate_up_proj.weight")),
    **dict.fromkeys(("gate_bias", "up_bias"), ("ffn_up.bias", "mlp.gate_up_proj.bias")),
}
EVERYTHING = Family(
    model_types=("everything",),
    architectures=("everything",),
    layout="interleaved",
    gguf_layout="interleaved",
    names={**NAMES, **HEAD_NORMS, **MLP_BIASES, **POST_NORMS, **FUSED},
    biases=("q_bias", "k_bias", "v_bias", "output_bias", *MLP_BIASES),
    norm_offset=1.0,
    windows=Windows(default=9, every=("window_every", 2)),
    local_base=Option(100.0, "local_base", "rope.local_base"),
    still=("rotating_layers", "still_every", 3),
    turning=0.75,
    gate_key="gate_kind",
    gates={"smooth": "gelu_tanh", "smoother": "gelu", "clamped": "clamped"},
    options={
        "attention_scale": Option(None, "query_scale", "attention.scale", value=lambda x: x**-0.5),
        "score_cap": Option(4.0, "score_cap", "attn_logit_softcapping", null=True),
        "logit_cap": Option(3.0, "logit_cap", "final_logit_softcapping", null=True),
        "embedding_scale": Option(lambda spec: spec.width**0.5),
        "residual_scale": Option(1.0, "residual_multiplier", "residual_scale"),
        "head_scale": Option(1.0, "logits_scaling", "logit_scale", value=lambda x: 1 / x),
    },
)
CONFIG: dict[str, Any] = {
    "model_type": "everything",
    "hidden_size": 72,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 130,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "query_scale": 20.0,
    "residual_multiplier": 0.4,
    "logits_scaling": 4.0,
    "gate_kind": "smooth",
}
METADATA = {
    "context_length": 128,
    "embedding_length": 72,
    "block_count": 6,
    "feed_forward_length": 96,
    "attention.head_count": 6,
    "attention.head_count_kv": 2,
    "attention.key_length": 16,
    "attention.sliding_window": 9,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 1000.0,
    "rope.dimension_count": 12,
    "attention.scale": 20.0,
    "residual_scale": 0.4,
    "logit_scale": 4.0,
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    real = families.discover
    monkeypatch.setattr(families, "discover", lambda first="": iter((EVERYTHING, *real(first))))


def write_folder(folder: Path, **changes: Any) -> Path:
    """A folder with random tensors of the names and shapes that the family says, fused ones whole."""
    folder.mkdir()
    config = {**CONFIG, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(3)
    values: dict[str, np.ndarray] = {}
    spec = declared_spec(folder)
    for entry in tensor_specs(EVERYTHING, spec, "huggingface"):
        shape = entry.stored_shape
        spread = 0.3 if entry.is_matrix or entry.role.endswith("bias") else 0.5
        values[entry.stored_name] = (spread * rng.standard_normal(shape)).astype(np.float32)
    safetensors.numpy.save_file(values, folder / "model.safetensors")
    return folder


def declared_spec(folder: Path) -> Any:
    from engine.loading.folder_spec import read_config

    path = folder / "config.json"
    return read_config(Fields(path, json.loads(path.read_text()))).spec


def write_gguf(path: Path, folder: Path) -> Path:
    """The same model as a GGUF file, whose norms have the offset in them."""
    stored = safetensors.numpy.load_file(folder / "model.safetensors")
    spec = declared_spec(folder)
    writer = gguf.GGUFWriter(path, "everything")
    for key, value in METADATA.items():
        add = writer.add_uint32 if isinstance(value, int) else writer.add_float32
        add(f"everything.{key}", value)
    names = [tensor_specs(EVERYTHING, spec, naming) for naming in ("gguf", "huggingface")]
    pairs = {there.stored_name: here for there, here in zip(*names, strict=True)}
    for name, entry in pairs.items():
        writer.add_tensor(name, stored[entry.stored_name] + np.float32(entry.offset))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def logits_of(backend: Backend, checkpoint: Checkpoint, kv: Any = "float16") -> np.ndarray:
    """Of a prompt in two steps, beside another one."""
    spec = checkpoint.spec
    weights = place(spec, checkpoint.tensors, backend)
    backend.allocate_cache(CacheShape(spec.cached, 16, 32, kv))
    limits = Limits(rows=64, samples=64, sequences=2, blocks_per_sequence=4)
    program = backend.capture(lambda ops, inputs: decoder(ops, spec, weights, inputs), limits)
    tokens = np.random.default_rng(4).integers(0, spec.vocabulary, 60).tolist()
    parts = [
        [(tokens[:40], 0, [5, 9]), (tokens[:3], 0, [11])],
        [(tokens[40:], 40, [5, 9]), (tokens[3:4], 3, [11])],
    ]
    launched = (program.launch(step(part), logits=True) for part in parts)
    return np.concatenate([np.array(one.result().logits) for one in launched])


def native(isa: str, threads: int = 2) -> Backend:
    from kernels.native.backend import NativeBackend

    return NativeBackend(BackendSettings(cpu_isa=isa, threads=threads))


def test_what_a_family_says_is_what_the_specification_has(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path / "m"))
    spec = checkpoint.spec
    full = RopeSpec(base=1000.0, layout="interleaved", columns=12)
    local = RopeSpec(base=100.0, layout="interleaved", columns=12)
    seen, near = LayerSpec(None, full), LayerSpec(9, local)
    assert spec.layers == (near, seen, LayerSpec(9, None), seen, near, LayerSpec(None, None))
    assert spec.ropes == (local, full)
    assert (spec.gate, spec.score_cap, spec.logit_cap) == ("gelu_tanh", 4.0, 3.0)
    assert (spec.attention_scale, spec.embedding_scale) == (20.0**-0.5, 72.0**0.5)
    assert (spec.residual_scale, spec.head_scale) == (0.4, 0.25)
    again = open_checkpoint(write_gguf(tmp_path / "m.gguf", tmp_path / "m"))
    numbers = ("attention_scale", "residual_scale", "norm_eps")
    for name in ("layers", "gate", "score_cap", "logit_cap", "embedding_scale", "head_scale"):
        assert getattr(again.spec, name) == getattr(spec, name), name
    for name in numbers:
        assert getattr(again.spec, name) == pytest.approx(getattr(spec, name), rel=1e-6), name
    off = open_checkpoint(write_folder(tmp_path / "off", score_cap=None, logit_cap=None)).spec
    assert (off.score_cap, off.logit_cap) == (None, None)
    given = {"rotating_layers": [1, 1, 0, 0, 1, 1], "window_every": 3, "partial_rotary_factor": 1.0}
    listed = open_checkpoint(write_folder(tmp_path / "listed", **given)).spec
    assert [layer.window for layer in listed.layers] == [9, 9, None, 9, 9, None]
    assert [layer.rope is None for layer in listed.layers] == [False, False, True, True, False, False]
    assert listed.ropes[0].columns is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("gate_kind", "rough"), ("rotating_layers", [1] * 5), ("rotating_layers", [2] * 6), ("window_every", 0),
     ("partial_rotary_factor", 0.2), ("query_scale", -1.0), ("local_base", "x")],
)  # fmt: skip
def test_a_family_s_options_are_checked_by_name(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(EngineError, match=key) as caught:
        write_folder(tmp_path / "m", **{key: value})
    assert caught.value.code == "model_invalid"


def test_fused_tensors_are_rows_of_what_is_stored(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    stored = safetensors.numpy.load_file(folder / "model.safetensors")
    tensors = open_checkpoint(folder).tensors

    def values(name: str) -> np.ndarray:
        weight = tensors.get(name)
        assert weight is not None
        return np.asarray(getattr(weight, "values", None))

    for names, whole in (
        (("q", "k", "v"), "self_attn.qkv_proj.weight"),
        (("q_bias", "k_bias", "v_bias"), "self_attn.qkv_proj.bias"),
        (("gate", "up"), "mlp.gate_up_proj.weight"),
    ):
        joined = np.concatenate([values(f"1.{name}") for name in names])
        assert np.array_equal(joined, stored[f"model.layers.1.{whole}"])
    norm = stored["model.layers.1.pre_mlp.weight"]
    assert np.array_equal(values("1.mlp_norm"), norm + np.float32(1))
    short = {**stored, "model.layers.0.self_attn.qkv_proj.weight": np.zeros((159, 72), np.float32)}
    safetensors.numpy.save_file(short, folder / "model.safetensors")
    with pytest.raises(EngineError, match=r"shape \(159, 72\); \(160, 72\) is declared"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("kind", "quantization"),
    [("smooth", "auto"), ("smooth", "int4"), ("smooth", "int8"), ("smoother", "int8"), ("clamped", "int8")],
)
def test_all_that_a_family_can_be_is_computed_alike(tmp_path: Path, kind: str, quantization: Any) -> None:
    """The native backend and its twin to the bit, on every instruction set, and close to the float reference;
    a folder and a GGUF file alike."""
    folder = write_folder(tmp_path / "m", gate_kind=kind)
    checkpoint = open_checkpoint(folder, quantization)
    expected = logits_of(QuantizedBackend(), checkpoint)
    assert np.isfinite(expected).all()
    assert 1 < np.abs(expected).max() < 2.99, "capped, and not all of them at the cap"
    for isa in (isa for isa in ISAS if native_kernels(isa)):
        backend = native(isa)
        assert logits_of(backend, checkpoint).tobytes() == expected.tobytes(), isa
        backend.close()
    if quantization == "auto":
        exact = logits_of(ReferenceBackend(BackendSettings("cpu", "float32", 1)), checkpoint, "float32")
        assert np.abs(logits_of(QuantizedBackend(), checkpoint, "float32") - exact).max() < 1e-4
        file = open_checkpoint(write_gguf(tmp_path / "m.gguf", folder))
        assert np.abs(logits_of(QuantizedBackend(), file) - expected).max() < 1e-5


@pytest.mark.parametrize(
    "without",
    [{"score_cap": None}, {"logit_cap": None}, {"query_scale": 1.0}, {"residual_multiplier": 1.0},
     {"logits_scaling": 1.0}, {"local_base": 1000.0}, {"rotating_layers": [1] * 6}, {"window_every": 1},
     {"partial_rotary_factor": 1.0}, {"gate_kind": "smoother"}],
)  # fmt: skip
def test_each_part_of_it_matters(tmp_path: Path, without: dict[str, Any]) -> None:
    folder = write_folder(tmp_path / "m")
    expected = logits_of(
        ReferenceBackend(BackendSettings("cpu", "float32", 1)), open_checkpoint(folder), "float32"
    )
    (folder / "config.json").write_text(json.dumps({**CONFIG, **without}))
    changed = logits_of(
        ReferenceBackend(BackendSettings("cpu", "float32", 1)), open_checkpoint(folder), "float32"
    )
    assert np.abs(changed - expected).max() > 1e-5


def test_a_new_file_in_the_folder_is_a_new_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "novel.py").write_text(
        "from engine.models.family import Family\nFAMILY = Family(('novel',), ('novel-file',))\n"
    )
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    novel = folder_family(Fields(tmp_path, {"model_type": "novel"}))
    assert novel is gguf_family(Fields(tmp_path, {"general.architecture": "novel-file"}))
    assert novel in families.discover()


def test_only_the_file_of_a_model_s_own_family_is_imported() -> None:
    script = (
        "import sys; from engine.loading import declared, fields;"
        "declared.folder_family(fields.Fields('', {'model_type': 'llama'}));"
        "print([name for name in sys.modules if name.startswith('engine.models.families.')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['engine.models.families.llama']"


def test_every_family_is_well_formed() -> None:
    claimed: list[str] = []
    for family in families.discover():
        claimed += (*family.model_types, *(f"{name} in GGUF" for name in family.architectures))
        assert NAMES.keys() - family.names.keys() <= {"attention_norm", "mlp_norm", *ATTENTION_BIASES}
        of_experts = family.mixture.names if family.mixture else {}
        may_lack = {role for role in (*family.names, *of_experts) if role.endswith("_bias")}
        assert may_lack.union(family.optional) >= {
            *family.biases,
            *(role for roles in family.bias_options.values() for role in roles),
        }
    assert len(claimed) == len(set(claimed))


def test_no_other_place_knows_a_family_by_its_name() -> None:
    """What is said about a family is said in its file: elsewhere nothing is compared with its names."""
    names = {name for family in families.discover() for name in (*family.model_types, *family.architectures)}
    assert {"llama", "mistral", "qwen2", "qwen3"} <= names
    found = []
    for package in (engine, kernels):
        root = Path(package.__file__ or "").parent
        for file in root.rglob("*.py"):
            inside = file.relative_to(root).parts
            if inside[:2] == ("models", "families") or inside[0] == "tokenization":  # names of vocabularies
                continue
            tree = ast.parse(file.read_text(encoding="utf-8"))
            found += [
                f"{file}:{node.lineno}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and node.value in names
            ]
    assert not found


def test_the_table_of_families_in_the_documentation_has_all_of_them() -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.endswith("| yes | yes |")]
    folders, files = ({name for row in rows for name in re.findall("`(.+?)`", row[i])} for i in (1, 2))
    known = [family for family in families.discover() if family is not EVERYTHING]
    assert folders == {name for each in known for name in (*each.model_types, *each.multimodal)}
    assert files == {name for each in known for name in each.architectures}


def test_queries_keys_and_values_may_be_one_tensor(tmp_path: Path) -> None:
    """GGUF files of GLM-4 were made of two forms of it."""
    folder = tmp_path / "m"
    model = make("glm", folder)
    apart = write_model(tmp_path / "apart.gguf", model, "glm")
    reader, writer = gguf.GGUFReader(apart), gguf.GGUFWriter(tmp_path / "one.gguf", "chatglm")
    for name, entry in reader.fields.items():
        if name.startswith("chatglm."):
            value = entry.contents()
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(name, value)
    parts = {tensor.name: tensor.data for tensor in reader.tensors}
    for i in range(len(open_checkpoint(apart).spec.layers)):
        for kind in ("weight", "bias"):
            rows = [parts.pop(f"blk.{i}.attn_{role}.{kind}") for role in "qkv"]
            parts[f"blk.{i}.attn_qkv.{kind}"] = np.concatenate(rows)
    for name, values in parts.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    whole, expected = open_checkpoint(tmp_path / "one.gguf").tensors, open_checkpoint(apart).tensors
    for name in (f"{i}.{role}{kind}" for i in range(3) for role in "qkv" for kind in ("", "_bias")):
        found, wanted = whole.get(name), expected.get(name)
        assert np.array_equal(getattr(found, "values", None), getattr(wanted, "values", 1)), name
