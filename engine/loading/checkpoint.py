"""A model's files as one thing: specification, weights, and what they say about generating."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, get_args

from ..config import Quantization
from ..models.family import Naming
from ..models.spec import ModelSpec
from ..types import EngineError
from .companions import is_companion
from .declared import Declared
from .fields import cut, invalid, printable
from .files import as_written, read_head
from .folder import Folder
from .generation import Generation, read_generation
from .gguf import GGUFFile, first_part, read_gguf_model
from .gguf_spec import read_metadata
from .no_model import PICKLES, why_no_model
from .other_models import refuse_judges
from .recognized import HEAD, NO_PICKLES, kind_of
from .tensors import CheckpointTensors, Tensor, bind


class Checkpoint(NamedTuple):
    """An opened model. Nothing but headers has been read; the files stay mapped while `tensors` lives.

    source: the files, for whoever else needs something of them; they are not opened again. generation: what
    they say about generating. notes: sentences about what of them is not used, or not as it is.
    """

    source: Folder | GGUFFile
    spec: ModelSpec
    tensors: CheckpointTensors
    generation: Generation
    notes: tuple[str, ...] = ()

    def noting(self, note: str) -> Checkpoint:
        """The same with another note."""
        return self._replace(notes=(*self.notes, note))

    @property
    def path(self) -> Path:
        """The GGUF file, or the folder of a safetensors model."""
        return self.source.path

    @property
    def name(self) -> str:
        """What to call the model."""
        return self.source.name

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


def open_checkpoint(path: str | Path, quantization: Quantization = "auto") -> Checkpoint:
    """Open a GGUF file, a safetensors folder, or a folder with one GGUF file.

    quantization: see `tensors.planned_format`. Raises EngineError(model_invalid) with one sentence that names
    file and field, ValueError for an unknown quantization.
    """
    if quantization not in get_args(Quantization):
        known = ", ".join(get_args(Quantization))
        raise ValueError(f"quantization must be one of {known}, not {quantization!r}")
    path = as_written(path)
    if os.path.isdir(path):
        return _of_folder(Folder(path), quantization)
    suffix = path.suffix.lower()
    if suffix in PICKLES and kind_of(read_head(path, HEAD)) is None:
        raise invalid(path, NO_PICKLES)
    if suffix == ".safetensors" or (suffix == ".json" and Folder(path.parent).has("config.json")):
        raise invalid(path, "is one file of a model; give the folder it lies in", colon=False)
    return _of_gguf(path, quantization)


def _of_gguf(path: Path, quantization: Quantization) -> Checkpoint:
    file = read_gguf_model(path)
    if not file.tensors and "tokenizer.ggml.tokens" in file.metadata:
        raise invalid(path, "holds a vocabulary and no weights; take a file with the model", colon=False)
    return _bound(file, read_metadata(file), file.tensors, "gguf", quantization)


def _of_folder(folder: Folder, quantization: Quantization) -> Checkpoint:
    from .folder_spec import read_config  # a GGUF file starts without
    from .multimodal import text_tensors
    from .quantized import join_quantized
    from .safetensors import INDEX, SINGLE, read_folder

    stored = read_folder(folder)
    if stored is None:
        return _of_gguf(only_gguf(folder, f"{SINGLE}, {INDEX}"), quantization)
    config = folder.fields("config.json", required=True)
    refuse_judges(folder, config)
    declared = read_config(config)
    text, left_out = text_tensors(config, declared.family, join_quantized(config, stored))
    checkpoint = _bound(folder, declared, text, "huggingface", quantization)
    if not left_out:
        return checkpoint
    return checkpoint.noting(
        f"only the text part of {checkpoint.name} is used; left out: {', '.join(left_out)}"
    )


def _bound(
    source: Folder | GGUFFile,
    declared: Declared,
    stored: Mapping[str, Tensor],
    naming: Naming,
    quantization: Quantization,
) -> Checkpoint:
    tensors = CheckpointTensors(source.path, quantization, bind(source.path, declared, stored, naming))
    generation = read_generation(source)
    return Checkpoint(source, declared.spec, tensors, generation, (*tensors.notes(), *generation.notes))


def only_gguf(folder: Folder, others: str) -> Path:
    """The one GGUF file in a folder that has none of the others."""
    try:
        names = sorted(os.listdir(folder.path))
    except OSError as error:
        raise invalid(folder.path, f"can't be read: {error.strerror}", colon=False) from None
    # What is hidden is of the system: macOS puts ._NAME beside a file on disks of other systems.
    files = [name for name in names if name.lower().endswith(".gguf") and not name.startswith(".")]
    files = [name for name in files if not os.path.isdir(folder.path / name)] or files
    # The part of a multimodal model that reads images lies beside the one with the text, say.
    files = [name for name in files if not is_companion(name)] or files
    one = files[0] if len(files) == 1 else first_part(files)
    if one is not None:
        return folder.file(one, "the folder")
    if files:
        listed = ", ".join(cut(printable(name), 100) for name in files[:5]) + (
            ", ..." if len(files) > 5 else ""
        )
        raise invalid(
            folder.path,
            f"holds {len(files)} GGUF files; name one of them: {listed}",
        )
    raise invalid(folder.path, why_no_model(folder.path, names, others), colon=False)
