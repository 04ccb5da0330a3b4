"""The settings of a request: how tokens are chosen, what a reply keeps to, and when it ends."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .types import shown

ConstraintKind = Literal["schema", "regex", "grammar"]

CONSTRAINTS: tuple[ConstraintKind, ...] = ("schema", "regex", "grammar")
"""Fields of `SamplingParams` that say what a reply keeps to."""


def random_seed() -> int:
    """A seed of 53 bits from the system: every reader of JSON, whatever its language, keeps it."""
    return int.from_bytes(os.urandom(7), "little") >> 3


def _number(name: str, value: object, low: float, high: float) -> None:
    """Reject a value outside [low, high] with the field, the value and the range."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, not {shown(value)}")
    largest = min(high, sys.float_info.max)  # an integer may be larger than any float
    if not low <= value <= largest:
        closing = ")" if high == math.inf else "]"
        raise ValueError(f"{name} must be in [{low:g}, {high:g}{closing}, not {shown(value)}")


def _integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, not {shown(value)}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be in [{low}, {high}], not {shown(value)}")


def _unicode(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} holds half of a surrogate pair at position {error.start}") from None


def _json(value: object) -> str:
    """A JSON Schema as JSON: text is taken for that, and looked at when the request is made."""
    if isinstance(value, str):
        return value
    if not isinstance(value, (Mapping, bool)):
        raise ValueError(f"schema must be a JSON Schema (an object, or JSON as text), not {shown(value)}")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"schema can't be written as JSON: {error}") from None


def _tuple(name: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list, not {shown(value)}")
    return tuple(value)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen and when to stop.

    temperature: 0 is greedy (argmax, the lowest id wins ties).
    top_k: keep the k best tokens; 0 is off. top_p: keep the smallest set with at least this probability mass.
    min_p: keep tokens with at least this share of the best token's probability.
    repetition_penalty: > 1 makes tokens of the prompt and the reply less likely, once each (CTRL, arXiv
    1909.05858).
    presence_penalty, frequency_penalty: subtracted once, and once per occurrence, for tokens of the reply.
    logit_bias: added to a token's logit, by id. seed: any integer of 64 bits; None draws one and reports it.
    max_tokens: None is no limit but the context. min_tokens: no end token before this many.
    stop: strings that end the reply and are not part of it. stop_token_ids: further end tokens.
    ignore_eos: go on after the model's own end tokens. logprobs: report the log-probability of each token and
    of so many most likely ones, 0 to 20.
    schema, regex, grammar: what the reply keeps to, one of them: a JSON Schema (kept as JSON text), a regular
    expression for the whole reply, a grammar in Lark's notation. The reply ends where nothing may follow.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    schema: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        _number("temperature", self.temperature, 0, math.inf)
        _integer("top_k", self.top_k, 0, 2**63 - 1)
        _number("top_p", self.top_p, 0, 1)
        _number("min_p", self.min_p, 0, 1)
        _number("repetition_penalty", self.repetition_penalty, 1e-6, 100)
        _number("presence_penalty", self.presence_penalty, -100, 100)
        _number("frequency_penalty", self.frequency_penalty, -100, 100)
        if self.seed is not None:
            _integer("seed", self.seed, -(2**63), 2**64 - 1)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1, 2**31 - 1)
        _integer("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})")
        if self.logprobs is not None:
            _integer("logprobs", self.logprobs, 0, 20)
        if not isinstance(self.ignore_eos, bool):
            raise ValueError(f"ignore_eos must be true or false, not {shown(self.ignore_eos)}")
        stops = (self.stop,) if isinstance(self.stop, str) else _tuple("stop", self.stop)
        for stop in stops:
            if not isinstance(stop, str) or not stop:
                raise ValueError(f"stop must hold non-empty strings, not {shown(stop)}")
        object.__setattr__(self, "stop", stops)
        object.__setattr__(self, "stop_token_ids", _tuple("stop_token_ids", self.stop_token_ids))
        for token in self.stop_token_ids:
            _integer("stop_token_ids", token, 0, 2**31 - 1)
        if not isinstance(self.logit_bias, Mapping):
            raise ValueError(f"logit_bias must map token ids to numbers, not {shown(self.logit_bias)}")
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))
        for token, bias in self.logit_bias.items():
            _integer("logit_bias token", token, 0, 2**31 - 1)
            _number(f"logit_bias[{token}]", bias, -math.inf, 1e9)
        self._check_constraint()

    def _check_constraint(self) -> None:
        if self.schema is not None:
            object.__setattr__(self, "schema", _json(self.schema))
        given = [name for name in CONSTRAINTS if getattr(self, name) is not None]
        for name in given:
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a text, not {shown(getattr(self, name))}")
            _unicode(name, getattr(self, name))
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other: a reply keeps to one of them")
        if given and self.ignore_eos:
            raise ValueError(f"ignore_eos excludes {given[0]}, which says where the reply ends")

    def seeded(self) -> SamplingParams:
        """The settings with a seed, drawn if they have none."""
        return self if self.seed is not None else replace(self, seed=random_seed())

    @property
    def constraint(self) -> tuple[ConstraintKind, str] | None:
        """What the reply keeps to: which of the three, and its text."""
        for name in CONSTRAINTS:
            if (text := getattr(self, name)) is not None:
                return name, text
        return None
