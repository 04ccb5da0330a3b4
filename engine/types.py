"""The plain values that cross the engine's edge: parameters, messages, events, metrics, errors.

Everything here is frozen and validated on creation, so nothing invalid can reach the engine thread.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

FinishReason = Literal["stop", "length", "context", "capacity", "aborted", "error"]

Role = Literal["system", "user", "assistant", "tool"]

ConstraintKind = Literal["schema", "regex", "grammar"]

CONSTRAINTS: tuple[ConstraintKind, ...] = ("schema", "regex", "grammar")
"""Fields of `SamplingParams` that say what a reply keeps to."""

ErrorCode = Literal[
    "empty_prompt",  # the prompt has no tokens
    "prompt_too_long",  # the prompt leaves no room for one token in the model's context
    "never_fits",  # the whole KV pool is smaller than the prompt
    "queue_full",  # max_waiting requests are waiting already
    "template",  # the chat template is missing, not allowed, or failed
    "invalid_request",  # a token id or sampling setting does not fit the model
    "grammar",  # what a reply was to keep to can't be honoured, or it came to where nothing may follow
    "bad_logits",  # the model produced NaN, or every token is forbidden
    "request_failed",  # this request failed by itself; all others go on
    "engine_failed",  # the engine thread stopped with an error, or could not begin
    "model_invalid",  # the model's files are broken, incomplete or not supported
    "out_of_memory",  # weights or KV cache do not fit
]


class EngineError(Exception):
    """An error the user can act on: `code` is stable, `message` one plain sentence with the numbers."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)  # what pickle makes it again from
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"EngineError({self.code!r}, {self.message!r})"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str

    def __post_init__(self) -> None:
        if self.role not in ("system", "user", "assistant", "tool"):
            raise ValueError(f"role must be system, user, assistant or tool, not {shown(self.role)}")
        if not isinstance(self.content, str):
            raise TypeError(f"content must be a string, not {type(self.content).__name__}")


def shown(value: object) -> str:
    """A value for a message, not at full length."""
    try:
        return f"{value!r:.40}"
    except ValueError:  # Python writes no integer of thousands of digits
        return "a number of too many digits"


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
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other: a reply keeps to one of them")
        if given and self.ignore_eos:
            raise ValueError(f"ignore_eos excludes {given[0]}, which says where the reply ends")

    @property
    def constraint(self) -> tuple[ConstraintKind, str] | None:
        """What the reply keeps to: which of the three, and its text."""
        for name in CONSTRAINTS:
            if (text := getattr(self, name)) is not None:
                return name, text
        return None


class TopLogprob(NamedTuple):
    """A token that might have come, with its natural log-probability; text: what it adds, or its name."""

    token_id: int
    logprob: float
    text: str


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The natural log-probability of a token of a reply, and of the most likely ones in its place.

    Of the model's own distribution: before temperature, penalties, biases and masks; so the token need not be
    among `top`, the best first. text: as in TopLogprob. offset: characters of the reply's text that the
    tokens before it have given.
    """

    token_id: int
    logprob: float
    top: tuple[TopLogprob, ...]
    text: str = ""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. drafts_tried, drafts_kept: drafts by their place in a step, the first one
    first, and those that were right; they sum to draft_tokens and accepted_tokens.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    drafts_tried: tuple[int, ...] = ()
    drafts_kept: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Timings:
    """Latencies of one request in milliseconds, rates per second; None where undefined (design 12)."""

    queue_ms: float | None = None
    prefill_ms: float | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    itl_p95_ms: float | None = None
    e2e_ms: float | None = None
    tokens_per_second: float | None = None
    bandwidth_gbs: float | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of a reply and the tokens sampled since the last delta (text may lag behind the tokens).

    logprobs: one for each of the tokens; None unless asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The one final event of every request.

    text: the whole reply, without end tokens and the matched stop string. token_ids: every sampled token.
    seed: the seed in use, also when the caller gave none. stop_match: the stop string or end token id that
    matched.
    """

    reason: FinishReason
    text: str
    token_ids: tuple[int, ...]
    usage: Usage
    timings: Timings
    error: EngineError | None = None
    seed: int | None = None
    stop_match: str | int | None = None


Event = TextDelta | Finished


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """One live request in a snapshot.

    state: waiting, prefill or decode. tokens: prompt and reply so far. tokens_per_second: over the
    same 2 s as the engine's.
    """

    id: int
    state: Literal["waiting", "prefill", "decode"]
    tokens: int
    tokens_per_second: float | None
    ttft_ms: float | None
    blocks: int
    shared_blocks: int


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """What the engine is doing now: immutable, published once a step, readable from any thread.

    loaded: how much of the model's files has been loaded, 0 to 1.
    time: when it was taken, in seconds of `time.perf_counter`. The rates are those of the 2 s before.
    exact: tokens do not depend on batch, chunking, prefix hits or preemption on this backend (design 8).
    replaced: GPU kernels that fail on this machine, so plain torch computes in their place.
    kv_utilisation: token slots in use / slots allocated, 0 to 1; None with nothing allocated.
    last_step_rows: conversations in the last step; 0 when idle. prefix_tokens_saved: prompt tokens found in
    the cache.
    draft_tokens: guesses that were computed; accepted_tokens: those that were right. draft: what they come
    from, "" nothing; draft_off: why the latest step had none, "" if it had. draft_memory_bytes: weights of
    the draft model, part of memory_bytes. drafts_tried, drafts_kept:
    computed and right by their place in a step.
    ttft_ms, queue_ms, prefill_ms: of the latest first token; ttft_p50_ms: median of recent ones.
    itl_ms, itl_p95_ms: of recent steps; itl_recent_ms: the steps themselves, oldest first, the last of
    itl_count.
    bandwidth_gbs: achieved memory traffic of recent decode steps in GB/s; bandwidth_peak_gbs: the measured
    peak, never below it; bandwidth_peak_quiet: not only measured while other programs used the machine.
    decode_bytes, decode_seconds: traffic and time of all decode steps there were.
    crowding: threads of all programs that wanted to run beyond the processors there are, lately on average.
    memory_bytes: weights, and keys and values in use or cached; free blocks take none on a CPU. On a GPU
    also the buffers and graphs of steps.
    bytes_per_token: weights plus KV one token reads at batch 1, in bytes; peak / bytes_per_token is the
    ceiling.
    ranks: how several processes share the model ("tensor 2 x pipeline 2"); "": one computes it.
    """

    state: Literal["loading", "ready", "failed", "closed"]
    backend: str
    exact: bool
    model: str
    replaced: tuple[str, ...] = ()
    loaded: float = 0.0
    time: float = 0.0
    running: int = 0
    waiting: int = 0
    blocks_total: int = 0
    blocks_free: int = 0
    blocks_cached: int = 0
    blocks_used: int = 0
    block_size: int = 0
    kv_utilisation: float | None = None
    preemptions: int = 0
    steps: int = 0
    last_step_rows: int = 0
    tokens_total: int = 0
    prefix_tokens_saved: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    draft: str = ""
    draft_off: str = ""
    draft_memory_bytes: int = 0
    drafts_tried: tuple[int, ...] = ()
    drafts_kept: tuple[int, ...] = ()
    ttft_ms: float | None = None
    ttft_p50_ms: float | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None
    itl_ms: float | None = None
    itl_p95_ms: float | None = None
    itl_recent_ms: tuple[float, ...] = ()
    itl_count: int = 0
    tokens_per_second: float | None = None
    crowding: float = 0.0
    decode_bytes: int = 0
    decode_seconds: float = 0.0
    bandwidth_gbs: float | None = None
    bandwidth_peak_gbs: float | None = None
    bandwidth_peak_quiet: bool = True
    bytes_per_token: int | None = None
    memory_bytes: int | None = None
    ranks: str = ""
    conversations: tuple[ConversationRow, ...] = ()


def as_dict(value: Any) -> Any:
    """A dataclass of this module as plain JSON values, nested ones included."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_dict(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, EngineError):
        return {"code": value.code, "message": value.message}
    if isinstance(value, (tuple, list)):
        return [as_dict(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): as_dict(item) for key, item in value.items()}
    return value
