"""A model's files as one thing: specification, weights, and what they say about generating."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, get_args

from ..models.spec import ModelSpec
from ..types import EngineError
from .declared import Declared
from .fields import Fields, cut, invalid, printable
from .files import file_inside, read_json
from .generation import Generation, read_folder_generation, read_gguf_generation
from .gguf import GGUFFile, first_part, read_gguf_model, whole_name
from .gguf_spec import read_metadata
from .hub import model_name
from .tensors import CheckpointTensors, Quantization, bind

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_NO_PICKLES = "pickle files are not loaded, they can run code; convert the model to safetensors or GGUF"


class Checkpoint(NamedTuple):
    """An opened model. Nothing but headers has been read; the files stay mapped while `tensors` lives.

    path: the GGUF file, or the folder of a safetensors model. name, quantization: for people; the latter is
    the format of most layer weights. weight_bytes: all weights in the formats they are loaded in. defaults:
    sampling settings the files ask for (fields of SamplingParams). end_ids, bos_id: token ids the files
    declare. gguf: the parsed header, where the model is a GGUF file.
    """

    path: Path
    name: str
    spec: ModelSpec
    tensors: CheckpointTensors
    quantization: str
    weight_bytes: int
    chat_template: str | None
    defaults: Mapping[str, float | int]
    end_ids: tuple[int, ...]
    bos_id: int | None
    gguf: GGUFFile | None

    def context_length(self, wanted: int | None) -> int:
        """Tokens a conversation may have: so many, or all the model was made for.

        EngineError(model_invalid): more than that.
        """
        if wanted is not None and wanted > self.spec.context_length:
            raise EngineError(
                "model_invalid",
                f"context_length {wanted} is more than the {self.spec.context_length} tokens "
                f"{self.name} was made for",
            )
        return wanted or self.spec.context_length


def _checkpoint(
    path: Path,
    name: str,
    declared: Declared,
    tensors: CheckpointTensors,
    generation: Generation,
    gguf: GGUFFile | None = None,
) -> Checkpoint:
    return Checkpoint(
        path=path,
        name=name,
        spec=declared.spec,
        tensors=tensors,
        quantization=tensors.label(),
        weight_bytes=tensors.nbytes(),
        chat_template=generation.chat_template,
        defaults=generation.defaults,
        end_ids=generation.end_ids,
        bos_id=generation.bos_id,
        gguf=gguf,
    )


def _open_gguf(path: Path, quantization: Quantization) -> Checkpoint:
    file = read_gguf_model(path)
    declared = read_metadata(file)
    tensors = CheckpointTensors(path, quantization, bind(path, declared, file.tensors, "gguf"))
    generation = read_gguf_generation(file, declared.spec.vocabulary)
    return _checkpoint(path, whole_name(path.name).removesuffix(".gguf"), declared, tensors, generation, file)


def _open_folder(folder: Path, quantization: Quantization) -> Checkpoint:
    from .hf_config import read_config  # a GGUF file starts without
    from .safetensors import INDEX, SINGLE, read_folder

    stored = read_folder(folder)
    if stored is None:
        return _open_gguf(_only_gguf(folder, f"{SINGLE}, {INDEX}"), quantization)
    config = read_json(folder, "config.json")
    if config is None:
        raise invalid(folder, "has no config.json", colon=False)
    fields = Fields(folder / "config.json", config)
    declared = read_config(fields)
    tensors = CheckpointTensors(folder, quantization, bind(folder, declared, stored, "huggingface"))
    generation = read_folder_generation(folder, fields, declared.spec.vocabulary)
    return _checkpoint(folder, model_name(folder), declared, tensors, generation)


def _only_gguf(folder: Path, others: str) -> Path:
    """The one GGUF file in a folder that has none of the others."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise invalid(folder, f"can't be read: {error.strerror}", colon=False) from None
    files = [name for name in names if name.lower().endswith(".gguf")]
    one = files[0] if len(files) == 1 else first_part(files)
    if one is not None:
        return file_inside(folder, one, "the folder")
    if files:
        listed = ", ".join(cut(printable(name), 100) for name in files[:5]) + (
            ", ..." if len(files) > 5 else ""
        )
        raise invalid(
            folder,
            f"holds {len(files)} GGUF files; name one of them: {listed}",
        )
    if any(name.lower().endswith(_PICKLES) for name in names):
        raise invalid(folder, _NO_PICKLES)
    raise invalid(folder, f"holds no {others} or GGUF file{_inside(folder)}", colon=False)


def _inside(folder: Path) -> str:
    """Where the model is, for the folder of a repository in the hub's cache."""
    snapshots = folder / "snapshots"
    try:
        revisions = sorted(os.listdir(snapshots))
    except OSError:
        return ""
    return f"; name its snapshot: {printable(str(snapshots / revisions[0]))}" if revisions else ""


def open_checkpoint(path: str | Path, quantization: Quantization = "auto") -> Checkpoint:
    """Open a GGUF file, a safetensors folder, or a folder with one GGUF file.

    quantization: see `tensors.planned_format`. Raises EngineError(model_invalid) with one sentence that names
    file and field, ValueError for an unknown quantization.
    """
    if quantization not in get_args(Quantization):
        known = ", ".join(get_args(Quantization))
        raise ValueError(f"quantization must be one of {known}, not {quantization!r}")
    path = Path(path).expanduser()
    if os.path.isdir(path):
        return _open_folder(path, quantization)
    suffix = path.suffix.lower()
    if suffix in _PICKLES:
        raise invalid(path, _NO_PICKLES)
    if suffix == ".safetensors":
        raise invalid(path, "is one file of a model; give the folder it lies in", colon=False)
    return _open_gguf(path, quantization)
