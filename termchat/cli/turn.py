"""One turn: a prompt into the engine, the reply to wherever it is shown and saved."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine import Finished, Message, SamplingParams, TextDelta, as_dict

from ..session import seeded
from ..thinking import ThinkingSplitter
from .console import Console
from .errors import engine_failure
from .output import ReaderClosed
from .recording import Recording, Status
from .reply import Presenter, Reply
from .serving import Serving

if TYPE_CHECKING:
    from engine import ResponseStream

REFUSALS = ("empty_prompt", "prompt_too_long", "never_fits", "queue_full", "template", "invalid_request")
"""Errors before the first token that say no to this message, not to the conversation."""


class Turn(NamedTuple):
    """What goes into the engine. said: the user's words, to be saved; raw: the reply is taken as it comes.

    measure: also measure the peak bandwidth, for the figures.
    """

    said: str
    prompt: str | Sequence[Message]
    params: SamplingParams
    system: str = ""
    raw: bool = False
    measure: bool = False


class _Parts:
    """Collects what was shown: the answer and the thinking part."""

    def __init__(self, turn: Turn, served: Serving) -> None:
        self._splitter = None if turn.raw else ThinkingSplitter(inside=served.thinks_at_once)
        self._answer: list[str] = []
        self._thinking: list[str] = []

    @property
    def answer(self) -> str:
        """All of the answer so far."""
        return "".join(self._answer)

    @property
    def thinking(self) -> str:
        """All of the thinking part so far."""
        return "".join(self._thinking)

    def push(self, text: str) -> tuple[str, str]:
        """New answer and new thinking."""
        thinking, answer = self._splitter.push(text) if self._splitter is not None else ("", text)
        return self._add(answer, thinking)

    def finish(self) -> tuple[str, str]:
        """What was held back."""
        thinking, answer = self._splitter.finish() if self._splitter is not None else ("", "")
        return self._add(answer, thinking)

    def _add(self, answer: str, thinking: str) -> tuple[str, str]:
        self._answer.append(answer)
        self._thinking.append(thinking)
        return answer, thinking


async def take_turn(
    console: Console, served: Serving, presenter: Presenter, recording: Recording, turn: Turn
) -> Reply:
    """The reply, when it has been shown and saved; stopped by a signal it is the part that was there.

    CliError: the engine refused or failed. ReaderClosed, OutputError.
    """
    params = seeded(turn.params)
    assert params.seed is not None
    name, loop, parts = served.choice.model.name, asyncio.get_running_loop(), _Parts(turn, served)
    recording.begin(turn.said, model=served.choice.reference, system=turn.system)
    stream = served.engine.generate(turn.prompt, params, template_vars=served.template_vars)
    with (
        console.signals.calling(lambda: loop.call_soon_threadsafe(stream.abort)),
        console.output.watch(stream.abort),
    ):
        reply_id = str(recording.message_id) if recording.message_id is not None else secrets.token_hex(6)
        conversation = recording.conversation_id
        try:
            await presenter.start(reply_id, conversation, name, params.seed)
            await _relay(stream, parts, presenter, recording)
        finally:
            await stream.aclose()
            finished = await stream.result()
            _save(recording, finished)
        if finished.error is not None:
            raise engine_failure(finished.error, name)
        stopped = finished.reason == "aborted"
        snapshot = served.engine.snapshot()
        reply = Reply(
            id=reply_id,
            conversation=conversation,
            model=name,
            text=parts.answer,
            thinking=parts.thinking,
            finished=finished,
            load_ms=served.load_ms,
            peak=await served.engine.bandwidth_peak() if turn.measure and not stopped else None,
            exact=snapshot.exact,
            backend=snapshot.backend,
        )
        if console.output.closed:
            raise ReaderClosed
        await presenter.end(reply)
    return reply


async def _relay(stream: ResponseStream, parts: _Parts, presenter: Presenter, recording: Recording) -> None:
    async for event in stream:
        if isinstance(event, TextDelta):
            answer, thinking = parts.push(event.text)
            recording.append(answer, thinking)
            await presenter.delta(answer, thinking, event.token_ids)
    answer, thinking = parts.finish()
    if answer or thinking:
        recording.append(answer, thinking)
        await presenter.delta(answer, thinking, ())


def _save(recording: Recording, finished: Finished) -> None:
    if finished.error is not None and finished.error.code in REFUSALS and not finished.token_ids:
        recording.take_back()
        return
    status: Status = "done"
    if finished.reason in ("error", "aborted"):
        status = "error" if finished.reason == "error" else "interrupted"
    metrics = {**as_dict(finished.usage), **as_dict(finished.timings)}
    recording.finish(status, finished.reason, metrics)
