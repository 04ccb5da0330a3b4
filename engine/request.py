"""One request on its way through the engine thread: its text, its stop rules, its clock readings."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from kernels.arrays import Float32

from . import metrics
from .commands import Answer, Outcome, Submit
from .faults import of_request
from .grammar.constraint import Constraint
from .logprobs import Scores, token_logprob
from .model import LoadedModel
from .sampler import SamplerState
from .sequence import Sequence
from .step_plan import Run
from .tokenization import StopMatcher, StreamDecoder
from .types import EngineError, Finished, FinishReason, TextDelta, TokenLogprob, TopLogprob, Usage

log = logging.getLogger(__name__)


class Request:
    """What belongs to one request alone; the engine thread makes it, and nobody else touches it.

    emit: takes the request's events in order, the last one a Finished (an Answer with the scores, if those
    are wanted). sequence: there is one from `start` on.

    What comes is taken in step by step, and told later: which tokens a reply has, and whether they end it,
    decides what is computed next; their text does not, but for a stop string. done: why the tokens end it.
    """

    def __init__(self, submit: Submit, model: LoadedModel, emit: Callable[[Outcome], None]) -> None:
        self.id = submit.id
        self.params = submit.params
        self.seed = submit.seed
        self.submitted = submit.submitted
        self.score = submit.score
        self.emit = emit
        self.sequence: Sequence | None = None
        self.scheduled: float | None = None
        self.token_times: list[float] = []
        self.decode_mark = (0, 0.0)  # engine's decode traffic and seconds when the first token came
        self.done: FinishReason | None = None
        self._scores: Scores | None = None
        self._untold: deque[tuple[int, Float32 | None]] = deque()
        self._told = 0
        self._text: list[str] = []
        self._decoded = 0  # characters of all tokens so far
        self._new_text: list[str] = []
        self._new_tokens: list[int] = []
        self._new_logprobs: list[TokenLogprob] = []
        self._stop_match: str | int | None = None
        self._model = model
        self._decoder = StreamDecoder(model.tokenizer)
        self._matcher = StopMatcher(submit.params.stop)

    def start(self, prompt: list[int], constraint: Constraint | None = None) -> None:
        """Take in the prompt and what the reply keeps to: from now on there is something to compute."""
        if self.score is not None:
            self._scores = Scores(prompt, self._model.vocabulary, self.score)
        model_ends = frozenset() if self.params.ignore_eos else self._model.end_ids
        ends = model_ends.union(self.params.stop_token_ids)
        sampler = SamplerState(self.params, self.seed, prompt, ends)
        self.sequence = Sequence(
            self.id, prompt, sampler, ends=ends, score=self.score is not None, constraint=constraint
        )

    @property
    def live(self) -> Sequence:
        """The sequence of a started request."""
        assert self.sequence is not None, "the request was started"
        return self.sequence

    @property
    def wants_logits(self) -> bool:
        """Whether the tokens are not enough."""
        return self.score is not None or self.params.logprobs is not None

    @property
    def room(self) -> int:
        """Tokens the reply can still get: until the context is full, or max_tokens are out."""
        most = self._model.context_length - self.live.prompt_length
        if self.params.max_tokens is not None:
            most = min(most, self.params.max_tokens)
        return most - len(self.token_times)

    def take(self, run: Run, tokens: list[int], logits: Float32 | None, now: float) -> None:
        """Take in what a committed step brought.

        logits: a row for each of the run's sample rows, needed for scores and logprobs only. Raises
        EngineError, MemoryError or anything else that ends this request alone.
        """
        if self._scores is not None:
            assert logits is not None, "a scored row asks for logits"
            self._scores.add(run.start, logits)
            self.done = "stop" if self.live.remaining == 0 else None
            return
        if run.samples and not tokens:
            raise self._stuck()
        complete = self.live.constraint is not None and bool(tokens) and self.live.constraint.complete
        for index, token in enumerate(tokens):
            self.token_times.append(now)
            self._untold.append((token, None if logits is None else logits[index]))
            if token in self.live.ends:
                self.done = "stop"
            elif self.room <= 0:
                self.done = "length" if len(self.token_times) == self.params.max_tokens else "context"
            if self.done is not None:
                break
        if complete:
            self.done = "stop"

    def follow(self, tokens: list[int]) -> None:
        """Tell what the reply keeps to which tokens came; add those that have to follow: that takes no step.

        Unless logits are wanted, which are those of each token.
        """
        sequence = self.live
        assert sequence.constraint is not None, "only a reply that keeps to something is asked"
        if not tokens:
            return
        sequence.constraint.advance(tokens)
        if self.wants_logits:
            return
        for token in sequence.constraint.forced(self.room - len(tokens)):
            sequence.append(token)
            tokens.append(token)

    def tell(self) -> FinishReason | None:
        """Make text of what was taken in, and emit it; returns why the request is done, if it is.

        Tokens behind a stop string are not told. The logits that came with them have to hold still. Raises
        what ends this request alone.
        """
        try:
            reason = self._tell()
        except BaseException:
            self._untold.clear()
            raise
        if reason is None:
            self._emit_delta()
        return reason

    def _stuck(self) -> EngineError:
        """Why no token could be drawn."""
        constraint = self.live.constraint
        if constraint is not None and constraint.failure:
            place = f"after {len(self.token_times)} tokens of the reply"
            return EngineError(
                "grammar", f"the grammar can't be followed further {place}: {constraint.failure}"
            )
        message = "the model produced NaN, or every token is forbidden by the sampling settings"
        return EngineError("bad_logits", message)

    def _tell(self) -> FinishReason | None:
        while self._untold:
            token, logits = self._untold.popleft()
            if self.params.logprobs is not None:
                assert logits is not None, "a row with log-probabilities asks for logits"
                self._new_logprobs.append(self._logprob(logits, token, self.params.logprobs))
            self._told += 1
            self._new_tokens.append(token)
            if token in self.live.ends:
                self._stop_match = token
                break
            text = self._decoder.push([token])
            self._decoded += len(text)
            self._show(text)
            if self._stop_match is not None:
                self._untold.clear()
        return self.done if self._stop_match is None else "stop"

    def _logprob(self, logits: Float32, token: int, alternatives: int) -> TokenLogprob:
        text = self._model.tokenizer.token_text
        logprob, best = token_logprob(logits, token, alternatives)
        top = tuple(TopLogprob(id, value, text(id)) for id, value in best)
        return TokenLogprob(token, logprob, top, text(token), self._decoded)

    def _show(self, text: str) -> None:
        shown, matched = self._matcher.push(text)
        self._add(shown)
        if matched is not None:
            self._stop_match = matched

    def _add(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._new_text.append(text)

    def _emit_delta(self, *, everything: bool = False) -> None:
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
        if self.score is not None:
            self.emit(self._scored(reason, error))
            return
        sequence = self.sequence
        if sequence is None:
            timings = metrics.from_times(self.submitted, self.scheduled, [])
            self.emit(Finished(reason, "", (), Usage(), timings, error, self.seed))
            return
        try:
            told = self._tell()
            if told is not None and reason != "error":
                reason = told
            self._release()
        except Exception as fault:  # then it stays held back; the end comes all the same
            log.exception("the end of a reply could not be decoded")
            reason, error = "error", error or of_request(fault)
        self._emit_delta(everything=True)
        output = tuple(sequence.tokens[sequence.prompt_length :][: self._told])
        tried = sequence.drafts_tried.counts()
        usage = Usage(
            sequence.prompt_length,
            sequence.cached,
            len(output),
            sequence.drafted,
            sequence.accepted,
            tried,
            sequence.drafts_kept.counts(len(tried)),
        )
        traffic, seconds = decode_total[0] - self.decode_mark[0], decode_total[1] - self.decode_mark[1]
        bandwidth = traffic / seconds / 1e9 if len(output) > 1 and seconds > 0 else None
        timings = metrics.from_times(
            self.submitted, self.scheduled, self.token_times[: self._told], bandwidth_gbs=bandwidth
        )
        self.emit(
            Finished(reason, "".join(self._text), output, usage, timings, error, self.seed, self._stop_match)
        )

    def _release(self) -> None:
        """Text held back because a stop string or a character might have been completed is complete now."""
        if isinstance(self._stop_match, str):
            return
        self._show(self._decoder.finish())
        if not isinstance(self._stop_match, str):
            self._add(self._matcher.finish())

    def _scored(self, reason: FinishReason, error: EngineError | None) -> Answer:
        if reason == "stop" and self._scores is not None:
            return Answer(self._scores.values)
        closed = EngineError("engine_failed", "the engine was closed before the text was scored")
        return Answer(None, error or closed)
