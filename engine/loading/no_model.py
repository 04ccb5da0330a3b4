"""Why a folder holds no model that can be loaded, by the names of what lies in it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from .fields import cut, printable
from .recognized import NO_PICKLES

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Endings of weights that are pickles."""

_SHARD = re.compile(r".*-\d{5}-of-\d{5}\.safetensors")
_UNFINISHED = (".incomplete", ".part", ".partial", ".crdownload", ".download", ".aria2", ".tmp")
_ELSEWHERE = {
    ".onnx": "ONNX",
    ".h5": "Keras",
    ".msgpack": "Flax",
    ".tflite": "LiteRT",
    ".nemo": "NeMo",
    ".mlmodel": "Core ML",
    ".engine": "TensorRT",
}


def why_no_model(folder: Path, names: Sequence[str], wanted: str) -> str:
    """A sentence after the folder's path. names: what it holds; wanted: the files that make a model."""
    found = _found(sorted(names))
    if found:
        return f"holds no model: {found}"
    if any(name.lower().endswith(PICKLES) for name in names):
        return f"holds no model: {NO_PICKLES}"
    return f"holds no {wanted} or GGUF file{_snapshot(folder)}"


def _found(names: Sequence[str]) -> str:
    """What is there instead, and what to do; "" if that says nothing."""
    weights = [name for name in names if name.endswith(".safetensors")]
    if any(name.startswith("adapter_") for name in names):
        return "it is a LoRA adapter; merge it into its model first (merge_and_unload of peft does)"
    if "model_index.json" in names or any(name.startswith("diffusion_") for name in weights):
        return "it makes pictures or videos (diffusers), and writes no text"
    if shards := [name for name in weights if _SHARD.fullmatch(name)]:
        index = re.sub(r"-\d{5}-of-\d{5}(\.safetensors)$", r"\1.index.json", shards[0])
        return (
            f"{_named(shards[0])} is there without {_named(index)}, which says what is where; get that, too"
        )
    if weights and all(name.startswith("consolidated") for name in weights):
        return "its weights are in Mistral's own form; take those named model*.safetensors, or a GGUF file"
    if len(weights) == 1:
        return f"{_named(weights[0])} would have to be called model.safetensors"
    if unfinished := [name for name in names if name.lower().endswith(_UNFINISHED)]:
        return f"the download of {_named(unfinished[0])} has not ended; download it again"
    if "openvino_model.xml" in names:
        return "it is for OpenVINO; take the model's safetensors or GGUF files"
    for name in names:
        if other := _ELSEWHERE.get(os.path.splitext(name)[1].lower()):
            return f"{_named(name)} is for {other}; take the model's safetensors or GGUF files"
    return ""


def _named(name: str) -> str:
    return printable(cut(name, 100))


def _snapshot(folder: Path) -> str:
    """Where the model is, for the folder of a repository in the hub's cache."""
    snapshots = folder / "snapshots"
    try:
        revisions = sorted(os.listdir(snapshots))
    except OSError:
        return ""
    return f"; name its snapshot: {printable(str(snapshots / revisions[0]))}" if revisions else ""
