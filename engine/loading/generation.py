"""What a model's files say about generating: sampling settings, end tokens, chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..sampling_params import SamplingParams
from .fields import Fields, printable
from .folder import Folder
from .gguf import GGUFFile

# Field of SamplingParams -> key in generation_config.json, key in GGUF metadata.
_SETTINGS = {
    "temperature": ("temperature", "general.sampling.temp"),
    "top_k": ("top_k", "general.sampling.top_k"),
    "top_p": ("top_p", "general.sampling.top_p"),
    "min_p": ("min_p", "general.sampling.min_p"),
    "repetition_penalty": ("repetition_penalty", "general.sampling.penalty_repeat"),
}


_GGUF_TEMPLATE = "tokenizer.chat_template"

_Defaults = dict[str, float | int]


class Generation(NamedTuple):
    """defaults: fields of SamplingParams with the values declared.

    bos_ids, eos_ids, turn_ids: start tokens, end tokens, and others that end a turn, in the order they are
    declared, whether or not the vocabulary has them. chat_template: the model's own, if any. templates: the
    names of several, of which none is the default: then there is no chat_template. notes: a sentence about
    settings that no reply can have, if there are any; they count as not declared.
    """

    defaults: _Defaults
    bos_ids: tuple[int, ...]
    eos_ids: tuple[int, ...]
    turn_ids: tuple[int, ...]
    chat_template: str | None
    templates: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def end_ids(self) -> tuple[int, ...]:
        """All tokens that are declared to end a turn, once each."""
        return tuple(dict.fromkeys((*self.eos_ids, *self.turn_ids)))

    def within(self, vocabulary: int) -> Generation:
        """The same without token ids that a vocabulary of this size does not have: they can never come up."""
        ids = (self.bos_ids, self.eos_ids, self.turn_ids)
        bos, eos, turn = (tuple(token for token in each if token < vocabulary) for each in ids)
        return self._replace(bos_ids=bos, eos_ids=eos, turn_ids=turn)


def _settings(fields: Fields, declared: Mapping[str, tuple[str, Any]]) -> tuple[_Defaults, tuple[str, ...]]:
    """What of the declared (by name, with the key in the file) can be used, and a note on what can't."""
    settings: _Defaults = {}
    problems = []
    for name, (key, value) in declared.items():
        if name == "top_k":
            value = _count(value)
        try:
            if value is not None:
                SamplingParams(**{name: value})
                settings[name] = value
        except ValueError as error:
            problems.append(f"{key}{str(error).removeprefix(name)}")
    if not problems:
        return settings, ()
    return settings, (f"{printable(str(fields.path))}: {', and '.join(problems)}; this is ignored",)


def _count(value: Any) -> Any:
    """A top_k in the forms that others write: vLLM has -1 for off, and some know one kind of number."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return 0 if type(value) is int and value == -1 else value


def _short(value: Any) -> Any:
    """A float32 of a GGUF file as the shortest decimal that means it: 0.6 instead of 0.6000000238418579."""
    if isinstance(value, float):
        return float(str(np.float32(value)))
    return value.tolist() if isinstance(value, np.ndarray) else value


def _of_gguf(file: GGUFFile) -> Generation:
    fields, tokenizer = file.fields(), file.fields("tokenizer.ggml.")
    declared = {name: (key, _short(fields.get(key))) for name, (_, key) in _SETTINGS.items()}
    defaults, notes = _settings(fields, declared)
    template, templates = _chosen(_gguf_templates(fields))
    return Generation(
        eos_ids=tokenizer.token_ids("eos_token_id") + tokenizer.token_ids("eos_token_ids"),  # Ollama's
        turn_ids=tokenizer.token_ids("eot_token_id") + tokenizer.token_ids("eom_token_id"),
        bos_ids=tokenizer.token_ids("bos_token_id"),
        chat_template=template,
        templates=templates,
        defaults=defaults,
        notes=notes,
    )


def _gguf_templates(fields: Fields) -> dict[str, str]:
    """The default one; where there is none, those that have names."""
    if template := fields.string(_GGUF_TEMPLATE, default=None):
        return {"default": template}
    prefix = f"{_GGUF_TEMPLATE}."
    return {key.removeprefix(prefix): fields.string(key) for key in fields.values if key.startswith(prefix)}


def _of_folder(folder: Folder) -> Generation:
    generation, config = folder.fields("generation_config.json"), folder.fields("config.json")
    declared = {name: (key, generation.get(key)) for name, (key, _) in _SETTINGS.items()}
    if not generation.get("do_sample", True):
        declared["temperature"] = ("do_sample", 0.0)
    defaults, notes = _settings(generation, declared)
    template, templates = _templates(folder)
    return Generation(
        eos_ids=generation.token_ids("eos_token_id") + _of_config(config, "eos_token_id"),
        turn_ids=(),
        bos_ids=generation.token_ids("bos_token_id") + _of_config(config, "bos_token_id"),
        defaults=defaults,
        chat_template=template,
        templates=templates,
        notes=notes,
    )


def _of_config(config: Fields, name: str) -> tuple[int, ...]:
    """Token ids in config.json, and in its part about text, where a model has others as well."""
    text = config.mapping("text_config")
    return config.token_ids(name) + (text.token_ids(name) if text is not None else ())


def _templates(folder: Folder) -> tuple[str | None, tuple[str, ...]]:
    """As `_chosen`, of chat_template.jinja, else of tokenizer_config.json, else of chat_template.json, where
    they were for a while.
    """
    if text := folder.text("chat_template.jinja"):
        return text, ()
    declared = _declared_templates(folder.fields("tokenizer_config.json"))
    if "default" not in declared:
        declared = {**_declared_templates(folder.fields("chat_template.json")), **declared}
    return _chosen(declared)


def _declared_templates(fields: Fields) -> dict[str, str]:
    """Those that are not empty by their names; one without a name is the default."""
    declared = fields.get("chat_template")
    if isinstance(declared, dict):
        declared = [{"name": name, "template": template} for name, template in declared.items()]
    if isinstance(declared, list):
        entries = [entry for entry in declared if isinstance(entry, dict)]
        named = {name: entry.get("template") for entry in entries if type(name := entry.get("name")) is str}
    else:
        named = {"default": declared}
    if not all(template is None or isinstance(template, str) for template in named.values()):
        fields.fail("chat_template", "must be a string, or a list of templates with names")
    return {name: template for name, template in named.items() if template}


def _chosen(declared: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    """The template that is the default, or the only one; if there are others only, their names."""
    named = {name: template for name, template in declared.items() if template}
    if len(named) == 1 or "default" in named:
        return named.get("default", next(iter(named.values()))), ()
    return None, tuple(named)


def read_generation(source: Folder | GGUFFile) -> Generation:
    """What an opened model says about generating. Raises EngineError(model_invalid) naming the field."""
    return _of_folder(source) if isinstance(source, Folder) else _of_gguf(source)
