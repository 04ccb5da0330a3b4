"""What crosses the engine's edge: plain values both ways, so that a client may sit in another process.

Commands go to the engine thread; what comes back are events, each with the number the command carried. Every
number gets exactly one last event: a `Finished` for a reply, an `Answer` for anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from .bandwidth import Peak
from .grammar.constraint import Constraint
from .sampling_params import SamplingParams
from .types import EngineError, Event, Message

ScoreKind = Literal["all", "chosen"]


class Source(NamedTuple):
    """A prompt before it is tokenized: raw text, token ids, or messages for the chat template.

    variables: for the template. continue_final: go on with the last message.
    """

    content: str | list[int] | tuple[Message, ...]
    continue_final: bool
    variables: Mapping[str, Any]


class Submit(NamedTuple):
    """Start a reply; with `score`, give the log-probabilities of the prompt instead.

    submitted: clock reading in seconds.
    """

    id: int
    source: Source
    params: SamplingParams
    seed: int
    submitted: float
    score: ScoreKind | None = None

    @property
    def needs_preparing(self) -> bool:
        """Whether the prompt threads have something to do for it."""
        return not isinstance(self.source.content, list) or self.params.constraint is not None


class Tokenize(NamedTuple):
    """Answer with the token ids that a reply to this prompt would begin from.

    params: make ready what it keeps to, too.
    """

    id: int
    source: Source
    params: SamplingParams | None = None


class Prepared(NamedTuple):
    """A submitted prompt's token ids and what the reply keeps to, or why there are none."""

    id: int
    ids: list[int]
    error: EngineError | None
    constraint: Constraint | None = None


class Abort(NamedTuple):
    """End a request at the next step boundary; nothing happens if it has ended."""

    id: int


class Focus(NamedTuple):
    """Let this request, or none, win ties for prefill and admission."""

    id: int | None


class MeasurePeak(NamedTuple):
    """Answer with the best peak known, measured anew if nothing runs, or None where there is none."""

    id: int


class TellPeak(NamedTuple):
    """A peak that was measured earlier."""

    peak: Peak


class Audit(NamedTuple):
    """Check every invariant of the KV cache's bookkeeping, and answer with nothing."""

    id: int


class Stop(NamedTuple):
    """End every request and the thread."""


Command = Submit | Tokenize | Prepared | Abort | Focus | MeasurePeak | TellPeak | Audit | Stop


@dataclass(frozen=True, slots=True)
class Answer:
    """The one event of what is no reply: a value, or why there is none."""

    value: Any = None
    error: EngineError | None = None


Outcome = Event | Answer
"""Whatever the engine sends."""
