"""One request on its way through the engine thread: its text, its stop rules, its clock readings."""

from __future__ import annotations

from collections.abc import Callable

from kernels.interface import Float32

from . import metrics
from .logprobs import Scores, token_logprob
from .sequence import Sequence
from .tokenization import StopMatcher, StreamDecoder, Tokenizer
from .types import (
    EngineError,
    Event,
    Finished,
    FinishReason,
    SamplingParams,
    TextDelta,
    TokenLogprob,
    Usage,
)


class Request:
    """Made by the client; from its submit on, the engine thread alone touches it (but for `cancelled`).

    emit: takes the request's events in order, the last one a Finished. submitted: clock reading in seconds.
    """

    def __init__(
        self,
        id: int,
        params: SamplingParams,
        seed: int,
        submitted: float,
        emit: Callable[[Event], None],
        scores: Scores | None = None,
    ) -> None:
        self.id = id
        self.params = params
        self.seed = seed
        self.submitted = submitted
        self.emit = emit
        self.scores = scores
        self.cancelled = False  # set by the client before it posts the abort
        self.sequence: Sequence | None = None
        self.scheduled: float | None = None
        self.token_times: list[float] = []
        self.decode_mark = (0, 0.0)  # engine's decode traffic and seconds when the first token came
        self._text: list[str] = []
        self._new_text: list[str] = []
        self._new_tokens: list[int] = []
        self._new_logprobs: list[TokenLogprob] = []
        self._stop_match: str | int | None = None

    def start(
        self, sequence: Sequence, tokenizer: Tokenizer, end_ids: frozenset[int], context_length: int
    ) -> None:
        """Prepare the stop rules: end tokens, stop strings, token limit and context."""
        self.sequence = sequence
        self._decoder = StreamDecoder(tokenizer)
        self._matcher = StopMatcher(self.params.stop)
        own_ends = frozenset() if self.params.ignore_eos else end_ids
        self._end_ids = own_ends | frozenset(self.params.stop_token_ids)
        self._context_length = context_length

    @property
    def live(self) -> Sequence:
        """The sequence of a started request."""
        assert self.sequence is not None, "the request was started"
        return self.sequence

    def accept(self, token: int, now: float, logits: Float32 | None) -> FinishReason | None:
        """Take in a sampled token; returns why the request is done, if it is.

        logits: the row it was drawn from, needed for logprobs only.
        """
        sequence = self.live
        sequence.append(token)
        self.token_times.append(now)
        self._new_tokens.append(token)
        if self.params.logprobs is not None and logits is not None:
            self._new_logprobs.append(token_logprob(logits, token, self.params.logprobs))
        if token in self._end_ids:
            self._stop_match = token
            return "stop"
        self._show(self._decoder.push([token]))
        if self._stop_match is not None:
            return "stop"
        if sequence.output_length == self.params.max_tokens:
            return "length"
        return "context" if len(sequence.tokens) >= self._context_length else None

    def _show(self, text: str) -> None:
        shown, matched = self._matcher.push(text)
        self._add(shown)
        if matched is not None:
            self._stop_match = matched

    def _add(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._new_text.append(text)

    def emit_delta(self, *, everything: bool = False) -> None:
        """Emit what is new, if there is text (everything: or tokens without text, at the end)."""
        if self._new_text or (everything and self._new_tokens):
            logprobs = tuple(self._new_logprobs) if self.params.logprobs is not None else None
            self.emit(TextDelta("".join(self._new_text), tuple(self._new_tokens), logprobs))
            self._new_text, self._new_tokens, self._new_logprobs = [], [], []

    def finish(
        self,
        reason: FinishReason,
        error: EngineError | None = None,
        decode_total: tuple[int, float] = (0, 0.0),
    ) -> None:
        """Emit the rest of the text and the final event.

        decode_total: the engine's decode traffic in bytes and seconds so far, for the request's bandwidth.
        """
        sequence = self.sequence
        if sequence is None:
            timings = metrics.from_times(self.submitted, self.scheduled, [])
            self.emit(Finished(reason, "", (), Usage(), timings, error, self.seed))
            return
        if self._stop_match is None or isinstance(self._stop_match, int):
            # Text held back because a stop string or a character might have been completed is complete now.
            self._show(self._decoder.finish())
            if not isinstance(self._stop_match, str):
                self._add(self._matcher.finish())
        self.emit_delta(everything=True)
        output = tuple(sequence.tokens[sequence.prompt_length :])
        usage = Usage(sequence.prompt_length, sequence.cached, len(output))
        traffic, seconds = decode_total[0] - self.decode_mark[0], decode_total[1] - self.decode_mark[1]
        bandwidth = traffic / seconds / 1e9 if len(output) > 1 and seconds > 0 else None
        timings = metrics.from_times(
            self.submitted, self.scheduled, self.token_times, bandwidth_gbs=bandwidth
        )
        self.emit(
            Finished(reason, "".join(self._text), output, usage, timings, error, self.seed, self._stop_match)
        )
