"""What a model is, by its headers alone: soon, for a list of many; or thoroughly, as it would be loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from ..types import EngineError
from .declared import CONTEXT, gguf_family
from .fields import Fields, printable
from .folder import Folder
from .gguf import open_header, read_keys
from .multimodal import text_config

_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
    26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16",
    36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
}  # fmt: skip
"""general.file_type: the llama_ftype of llama.h."""

_GUESSED = 1024
_FIRST_KEYS = 500
_THINKING = ("<think>", "enable_thinking", "reasoning_content", "<|channel|>analysis", "[THINK]")


class Description(NamedTuple):
    """What a model's files declare. problem: why it cannot be loaded, one sentence; "" for nothing known.

    architecture: the family by the file's own word. quantization: of most weights. parameters: weights in
    all; has_template, thinks: what its chat template is for; these three are None unless it was read
    thoroughly, and so are notes: sentences on what of it is not used, or not as it is.
    """

    architecture: str
    quantization: str
    context_length: int | None
    licence: str
    problem: str = ""
    parameters: int | None = None
    has_template: bool | None = None
    thinks: bool | None = None
    notes: tuple[str, ...] | None = None


def describe_model(path: str | Path, *, thoroughly: bool = False) -> Description:
    """A GGUF file, or a folder with safetensors or one GGUF file. Never raises for what a file holds.

    Else than thoroughly it stops before the vocabulary, after some kilobytes of the file, and knows no more
    than the architecture: a tensor of an unsupported type shows only when it is loaded.
    """
    path = Path(path)
    try:
        declared = _of_folder(Folder(path)) if os.path.isdir(path) else _of_gguf(path)
    except EngineError as error:
        return Description("", "", None, "", error.message)
    except OSError as error:
        return Description("", "", None, "", f"{path}: {error.strerror or error}")
    return _thorough(path, declared) if thoroughly else declared


def _of_gguf(path: Path) -> Description:
    cursor, _, _, count = open_header(path)
    metadata: dict[str, Any] = {}

    def enough(key: str) -> bool:
        return key.startswith("tokenizer.") and "general.architecture" in metadata

    for key, value in read_keys(cursor, min(count, _FIRST_KEYS), enough):
        metadata.setdefault(key, value)
    general = Fields(path, metadata, "general.")
    architecture = general.string("architecture", "")
    number = general.integer("file_type", 0, 1 << 20, default=None)
    return _declared(
        Fields(path, metadata),
        architecture,
        _FILE_TYPES.get(number % _GUESSED, "") if number is not None else "",
        f"{architecture}.context_length",
        general.string("license", ""),
    )


def _of_folder(folder: Folder) -> Description:
    names = os.listdir(folder.path)
    if not any(name.endswith(".safetensors") for name in names):
        from .checkpoint import only_gguf

        return _of_gguf(only_gguf(folder, "model.safetensors"))
    config = folder.fields("config.json", required=True)
    packed = config.mapping("quantization_config")
    kind = packed.string("quant_method", "") if packed is not None else ""
    kind = kind or config.string("dtype", "") or config.string("torch_dtype", "")
    return _declared(config, config.string("model_type", ""), kind, "max_position_embeddings", "")


def _declared(
    fields: Fields, architecture: str, quantization: str, context: str, licence: str
) -> Description:
    """What is declared, and whether its architecture is a known one."""
    problem, length = "", None
    try:
        if fields.path.name == "config.json":
            _, fields = text_config(fields)
        else:
            gguf_family(fields)
        length = fields.integer(context, *CONTEXT, default=None)
    except EngineError as error:
        problem = error.message
    architecture, quantization, licence = (
        printable(word[:60]) for word in (architecture, quantization, licence)
    )
    return Description(architecture, quantization, length, licence, problem)


def _thorough(path: Path, declared: Description) -> Description:
    """The same as it would be loaded: all tensors are there, of known types."""
    from .checkpoint import open_checkpoint

    try:
        checkpoint = open_checkpoint(path)
    except EngineError as error:
        return declared._replace(problem=error.message)
    template = checkpoint.generation.chat_template
    return declared._replace(
        quantization=declared.quantization or checkpoint.tensors.label(),
        context_length=checkpoint.spec.context_length,
        problem="",
        parameters=checkpoint.tensors.parameters(),
        has_template=template is not None,
        thinks=template is not None and any(word in template for word in _THINKING),
        notes=checkpoint.notes,
    )
