"""The plain values that cross the engine's edge: messages, events, metrics, errors.

Everything here is frozen and validated on creation, so nothing invalid can reach the engine thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

FinishReason = Literal["stop", "length", "context", "capacity", "aborted", "error"]

Role = Literal["system", "user", "assistant", "tool"]

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
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    except ValueError:  # Python writes no integer of thousands of digits
        return "a number of too many digits"


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

    loaded: how much of the model's files has been loaded, 0 to 1; loading: what takes long before that.
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
    device: where the model is computed, for people: "cpu", or a GPU with its name.
    ranks: how several processes share the model ("tensor 2 x pipeline 2"); "": one computes it.
    """

    state: Literal["loading", "ready", "failed", "closed"]
    backend: str
    exact: bool
    model: str
    replaced: tuple[str, ...] = ()
    loaded: float = 0.0
    loading: str = ""
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
    device: str = ""
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
