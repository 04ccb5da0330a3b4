"""What a model's files say about generating: sampling settings, end tokens, chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..types import SamplingParams
from .fields import Fields
from .files import read_json, read_text
from .gguf import GGUFFile

# Field of SamplingParams -> key in generation_config.json, key in GGUF metadata.
_SETTINGS = {
    "temperature": ("temperature", "general.sampling.temp"),
    "top_k": ("top_k", "general.sampling.top_k"),
    "top_p": ("top_p", "general.sampling.top_p"),
    "min_p": ("min_p", "general.sampling.min_p"),
    "repetition_penalty": ("repetition_penalty", "general.sampling.penalty_repeat"),
}
_GGUF_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")


class Generation(NamedTuple):
    """defaults: fields of SamplingParams with the values declared. end_ids: in the order they are declared.

    bos_id: the start token, if any; whether a prompt begins with it is the tokenizer's business.
    """

    defaults: dict[str, float | int]
    end_ids: tuple[int, ...]
    bos_id: int | None
    chat_template: str | None


def _checked(fields: Fields, declared: dict[str, Any]) -> dict[str, float | int]:
    settings = {name: value for name, value in declared.items() if value is not None}
    top_k = settings.get("top_k")
    if isinstance(top_k, float) and top_k.is_integer():  # written by programs that know one kind of number
        settings["top_k"] = top_k = int(top_k)
    if top_k == -1:  # vLLM's word for off
        settings["top_k"] = 0
    try:
        SamplingParams(**settings)
    except ValueError as error:
        fields.refuse(str(error))
    return settings


def _short(value: Any) -> Any:
    """A float32 of a GGUF file as the shortest decimal that means it: 0.6 instead of 0.6000000238418579."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def read_gguf_generation(file: GGUFFile, vocabulary: int) -> Generation:
    """From GGUF metadata. Raises EngineError(model_invalid) naming the key."""
    fields = Fields(file.path, file.metadata)
    declared = {name: _short(fields.get(key)) for name, (_, key) in _SETTINGS.items()}
    tokenizer = Fields(file.path, file.metadata, "tokenizer.ggml.")
    ends = [i for name in _GGUF_ENDS for i in tokenizer.token_ids(name, vocabulary)]
    starts = tokenizer.token_ids("bos_token_id", vocabulary)
    template = fields.string("tokenizer.chat_template", default=None) or None
    return Generation(
        _checked(fields, declared), tuple(dict.fromkeys(ends)), starts[0] if starts else None, template
    )


def _chat_template(folder: Path) -> str | None:
    """chat_template.jinja, else the entry (or the one named default) in tokenizer_config.json, else that in
    chat_template.json, where it was for a while. An empty one is none.
    """
    if text := read_text(folder, "chat_template.jinja"):
        return text
    return _declared_template(folder, "tokenizer_config.json") or _declared_template(
        folder, "chat_template.json"
    )


def _declared_template(folder: Path, name: str) -> str | None:
    fields = Fields(folder / name, read_json(folder, name) or {})
    declared = fields.get("chat_template")
    if isinstance(declared, list):
        entries = [entry for entry in declared if isinstance(entry, dict) and entry.get("name") == "default"]
        declared = entries[-1].get("template") if entries else None
    if declared is not None and not isinstance(declared, str):
        fields.fail("chat_template", "must be a string, or a list of templates with names")
    return declared or None


def read_folder_generation(folder: Path, config: Fields, vocabulary: int) -> Generation:
    """From a folder's JSON files and its chat template. Raises EngineError(model_invalid)."""
    path = folder / "generation_config.json"
    generation = Fields(path, read_json(folder, path.name) or {})
    declared = {name: generation.get(key) for name, (key, _) in _SETTINGS.items()}
    if generation.boolean("do_sample", default=True) is False:
        declared["temperature"] = 0.0
    both = (generation, config)
    ends = [i for fields in both for i in fields.token_ids("eos_token_id", vocabulary)]
    starts = [i for fields in both for i in fields.token_ids("bos_token_id", vocabulary)]
    return Generation(
        _checked(generation, declared),
        tuple(dict.fromkeys(ends)),
        starts[0] if starts else None,
        _chat_template(folder),
    )
