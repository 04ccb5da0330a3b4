"""Opening a tokenizer, whatever file it is in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..loading.gguf import read_gguf_model
from .gguf_tokenizer import tokenizer_from_gguf
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from ..loading.checkpoint import Checkpoint


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a GGUF file, of a folder with a tokenizer.json, or of such a file itself.

    Raises EngineError(model_invalid) with one sentence that names the file.
    """
    path = Path(path).expanduser()
    if path.name == "tokenizer.json":
        return _of_folder(path.parent)
    return _of_folder(path) if os.path.isdir(path) else tokenizer_from_gguf(read_gguf_model(path))


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer of an opened model; a GGUF file is not read again."""
    if checkpoint.gguf is not None:
        return tokenizer_from_gguf(checkpoint.gguf)
    return _of_folder(checkpoint.path)


def _of_folder(path: Path) -> Tokenizer:
    from .folder_tokenizer import tokenizer_from_folder  # a GGUF file starts without

    return tokenizer_from_folder(path)
