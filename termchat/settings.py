"""Which settings there are, what they are for, and what they may be.

`[sampling]` and `[engine]` hold fields of the engine's SamplingParams and EngineConfig and are checked by
those, so that ranges stand in one place; the engine is imported only when such a setting is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Check = Callable[[Mapping[str, Any]], None]
"""ValueError, with a sentence that names field, value and range, if the values are not allowed together."""


class Option(NamedTuple):
    """A setting of its own: its default (None: left to who uses it), the values allowed if they are few."""

    default: str | bool | None
    help: str
    allowed: tuple[str, ...] = ()

    def problem(self, value: object) -> str | None:
        """What is wrong with the value, None if nothing is."""
        if isinstance(self.default, bool):
            return None if isinstance(value, bool) else "must be true or false"
        if self.allowed:
            return None if value in self.allowed else f"must be one of {', '.join(self.allowed)}"
        if not isinstance(value, str):
            return "must be a text"
        return None if value.strip() else "must be a text that is not empty"


OPTIONS: Mapping[str, Option] = {
    "model": Option(None, "the model used when none is asked for: a name or a path"),
    "log_level": Option("warning", "what the log file holds", ("debug", "info", "warning", "error")),
    "ui.theme": Option(None, "the colour theme, by its name"),
    "ui.panel": Option("full", "the engine panel", ("full", "mini", "off")),
    "ui.ascii": Option(
        False,
        "draw with ASCII characters only; so it is by default on the Linux console and terminals like "
        "a VT100, and where the locale is not one of UTF-8",
    ),
    "ui.mouse": Option(True, "the mouse selects, scrolls and clicks here; false leaves it to the terminal"),
    "ui.reduced_motion": Option(False, "no animations, and a cursor that does not blink"),
}

SAMPLING: Mapping[str, str] = {
    "temperature": "0 takes the likeliest token, always, without the model's own defaults; higher is freer",
    "top_k": "only the k likeliest tokens; 0 is off",
    "top_p": "only the likeliest tokens that together have this probability",
    "min_p": "only tokens with this share of the likeliest one's probability",
    "repetition_penalty": "above 1: tokens that stand in the conversation become less likely, once each",
    "presence_penalty": "taken from a token that stands in the reply, once",
    "frequency_penalty": "taken from a token that stands in the reply, for each time it does",
    "seed": "the same seed, prompt and settings give the same reply",
    "max_tokens": "the longest reply, in tokens",
    "stop": "texts that end the reply and are not part of it",
}
"""`[sampling]`, and options of the command line: they become fields of SamplingParams of the same name."""

ENGINE: Mapping[str, str] = {
    "device": "where to compute: auto, cpu, cuda, cuda:N or mps",
    "backend": "how to compute: auto, native (C++, for the CPU), triton (CUDA GPUs) or reference (torch)",
    "dtype": "arithmetic of the reference backend",
    "quantization": "weights in memory: auto (as stored, fewer if memory is short), none, int8, int4 or nf4",
    "kv_dtype": "how keys and values are kept: auto is float16; int8 takes half its memory and traffic, "
    "bfloat16 holds values of any size",
    "block_size": "tokens of a block of the KV cache",
    "kv_memory": "bytes for the KV cache (options: 512MB, 2GiB); by default a quarter of the free memory, "
    "or most of a GPU's",
    "kv_blocks": "blocks of the KV cache, instead of its bytes",
    "max_batch_tokens": "tokens computed in a step",
    "prefill_chunk": "tokens of prompts in a step while others are answered; auto follows the measured time",
    "prefix_cache": "whether equal beginnings of conversations share their blocks",
    "exact": "whether replies are the same in any batch; false: a CUDA GPU's vendor computes the products "
    "with plain weights (bf16, f16, f32), which may be faster",
    "max_sequences": "conversations answered at once; by default 64",
    "max_waiting": "requests that may wait",
    "template": "chat template instead of the model's own: a name, or a file with a Jinja template",
    "context_length": "tokens of a conversation, reply included; at most what the model was made for",
    "threads": "CPU threads; by default as many as the processors that may be used",
    "cpu_isa": "instruction set of the native backend, auto the best of this CPU; the tokens are the same",
    "draft_model": "guess how replies go on, for several tokens a step: a small model of the same family, "
    "ngram (by what was said), none, auto",
    "draft_tokens": "guesses a step for a conversation; auto: as many as pay; replies are the same",
    "tensor_parallel": "processes that share each layer of a model, each on a GPU of its own if there is one",
    "pipeline_parallel": "stages of layers, each of as many processes as tensor_parallel says",
}
"""`[engine]`, and options of the command line: they become fields of EngineConfig of the same name."""


def help_of(key: str) -> str:
    """What a setting is for; "" for those of [keys], whose names are commands."""
    if key in OPTIONS:
        return OPTIONS[key].help
    table, _, name = key.partition(".")
    return {"sampling": SAMPLING, "engine": ENGINE}.get(table, {}).get(name, "")


def allowed(table: str, name: str) -> str:
    """What a field of [sampling] or [engine] must be, in the words of what checks it."""
    check, words = {"sampling": check_sampling, "engine": check_engine}[table], list[str]()
    for wrong in (object(), -(10**30)):  # of no type at all, and out of every range
        try:
            check({name: wrong})
        except ValueError as error:
            said = str(error).removeprefix(f"{name} must be ").rpartition(", not ")[0]
            words += [said] if said not in words else []
    return " ".join(words)


def check_sampling(values: Mapping[str, Any]) -> None:
    """ValueError if SamplingParams does not take these."""
    from engine import SamplingParams

    try:
        SamplingParams(**values)
    except TypeError as error:
        raise ValueError(f"{', '.join(values)}: {error}") from error


def check_engine(values: Mapping[str, Any]) -> None:
    """ValueError if EngineConfig does not take these."""
    from engine import EngineConfig

    try:
        EngineConfig.from_mapping({"model": "", **values})
    except TypeError as error:
        raise ValueError(f"{', '.join(values)}: {error}") from error


def accepted(values: Mapping[str, Any], check: Check) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that hold together, and what is wrong with each of the others.

    One may be allowed only because of another (max_sequences, max_batch_tokens), so those that fail are
    tried again once more of the others are in.
    """
    good: dict[str, Any] = {}
    waiting, problems = dict(values), dict[str, str]()
    while waiting:
        problems = {}
        for key, value in waiting.items():
            try:
                check({**good, key: value})
            except ValueError as error:
                problems[key] = str(error)
            else:
                good[key] = value
        if len(problems) == len(waiting):
            break
        waiting = {key: waiting[key] for key in problems}
    return good, problems
