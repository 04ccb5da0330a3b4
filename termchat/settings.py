"""Which settings there are, and what they may be.

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
        return None if isinstance(value, str) else "must be a text"


OPTIONS: Mapping[str, Option] = {
    "model": Option(None, "the model used when none is asked for: a name or a path"),
    "log_level": Option("warning", "what the log file holds", ("debug", "info", "warning", "error")),
    "ui.theme": Option(None, "the colour theme"),
    "ui.panel": Option("full", "the engine panel", ("full", "mini", "off")),
    "ui.ascii": Option(False, "draw with ASCII characters only"),
    "ui.reduced_motion": Option(False, "no animations"),
}

SAMPLING_KEYS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_tokens",
    "stop",
)
"""Settings, and options of the command line, that become fields of SamplingParams of the same name."""


def engine_keys() -> tuple[str, ...]:
    """The options of `[engine]`."""
    from engine import EngineConfig

    return tuple(name for name in EngineConfig.__dataclass_fields__ if name != "model")


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
