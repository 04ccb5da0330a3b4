"""One turn: a prompt into the engine, the reply to wherever it is shown and saved."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from engine import EngineError, Finished, Message, SamplingParams, TextDelta, TokenLogprob

from ..messages import outcome_of, prompt_of, said_now
from ..thinking import ReplyText
from .console import Console
from .presenters import Presenter
from .recording import Recording
from .result import Result
from .serving import Serving
from .signals import Interrupted

if TYPE_CHECKING:
    from engine import ResponseStream

REFUSALS = (
    "empty_prompt",
    "prompt_too_long",
    "never_fits",
    "queue_full",
    "template",
    "invalid_request",
    "grammar",
)
"""Errors before the first token that say no to this message, not to the conversation."""

LONG_TEXT = 1 << 18
"""Characters of a message that may well be more than the context holds."""


class Turn(NamedTuple):
    """What goes into the engine. said: the user's words; system: None is the conversation's own.

    raw: without a template, and the reply is taken as it comes. measure: also measure the peak bandwidth, for
    the figures.
    """

    said: str
    params: SamplingParams
    system: str | None = None
    raw: bool = False
    measure: bool = False


async def take_turn(
    console: Console, served: Serving, presenter: Presenter, recording: Recording, turn: Turn
) -> Result:
    """The reply, when it has been shown and saved; stopped by a signal it is the part that was there.

    CliError: the engine refused or failed. ReaderClosed, OutputError, ConversationBusyError. Interrupted: by
    a signal, while nobody reads.
    """
    params = turn.params.seeded()
    assert params.seed is not None
    name, loop = served.choice.model.name, asyncio.get_running_loop()
    reply = ReplyText(None if turn.raw else served.thinking.splitter())
    await _refuse_early(served, turn)
    said = await recording.begin(turn.said, model=served.choice.reference, system=turn.system)
    prompt = turn.said if turn.raw else prompt_of([*said.branch, said_now(turn.said)], said.system)
    stream = served.engine.generate(prompt, params, template_vars=served.template_vars)

    def stop() -> None:
        stream.abort()
        if console.signals.received is not None:
            reason = Interrupted(console.signals.received)
            console.output.give_up(reason)
            console.messages.give_up(reason)

    with ExitStack() as stack:
        stack.enter_context(console.signals.calling(lambda: loop.call_soon_threadsafe(stop)))
        stack.enter_context(console.output.watch(stream.abort))
        stack.callback(console.messages.go_on)
        reply_id = str(recording.message_id) if recording.message_id is not None else secrets.token_hex(6)
        conversation, complete = recording.conversation_id, False
        try:
            await presenter.start(reply_id, conversation, name, params.seed)
            logprobs = await _relay(stream, reply, presenter, recording)
            complete = True
        finally:
            await stream.aclose()
            finished = await stream.result()
            if not complete and finished.error is None:  # the engine may have been done before its reader
                finished = replace(finished, reason="aborted")
            _save(recording, reply, finished)
        if finished.error is not None:
            raise served.choice.failure(finished.error)
        stopped = finished.reason == "aborted"
        peak = await served.bandwidth_peak() if turn.measure and not stopped else None
        snapshot = served.engine.snapshot()
        result = Result(
            id=reply_id,
            conversation=conversation,
            model=name,
            text=reply.text,
            thinking=reply.thinking,
            finished=finished,
            load_ms=served.load_ms,
            peak=peak,
            quiet=served.engine.peak is None or served.engine.peak.quiet,
            exact=snapshot.exact,
            backend=snapshot.backend,
            device=snapshot.device,
            draft=snapshot.draft,
            draft_off=snapshot.draft_off,
            ranks=snapshot.ranks,
            replaced=snapshot.replaced,
            logprobs=logprobs if params.logprobs is not None else None,
            schema=params.schema is not None,
        )
        console.output.check()
        await presenter.end(result)
        if not stopped and (note := _ended_early(result, reply, params)) is not None:
            console.messages.note(note)
    return result


async def _refuse_early(served: Serving, turn: Turn) -> None:
    """Ask the engine before a very long text is stored, and indexed for search. CliError: it says no."""
    if len(turn.said) > LONG_TEXT:
        prompt = turn.said if turn.raw else [Message("user", turn.said)]
        try:
            await served.engine.tokenize(prompt, template_vars=served.template_vars)
        except EngineError as error:
            raise served.choice.failure(error) from error


async def _relay(
    stream: ResponseStream, reply: ReplyText, presenter: Presenter, recording: Recording
) -> list[TokenLogprob]:
    """Show and save a reply while it comes; the log-probabilities of its tokens, if there are any."""
    logprobs: list[TokenLogprob] = []
    async for event in stream:
        if isinstance(event, TextDelta):
            answer, thinking = reply.push(event.text)
            recording.append(answer, thinking)
            logprobs += event.logprobs or ()
            await presenter.delta(answer, thinking, event)
    answer, thinking = reply.finish()
    if reply.mistaken:
        recording.replace(answer, "")
    elif answer or thinking:
        recording.append(answer, thinking)
    if answer or thinking:
        await presenter.delta(answer, thinking, None)
    return logprobs


def _save(recording: Recording, reply: ReplyText, finished: Finished) -> None:
    if finished.error is not None and finished.error.code in REFUSALS and not finished.token_ids:
        recording.take_back()
    else:
        recording.finish(outcome_of(finished, empty=not (reply.text or reply.thinking)))


def _ended_early(result: Result, reply: ReplyText, params: SamplingParams) -> str | None:
    """A sentence on a reply that is not what it was to become; None: nothing kept it from that, but a limit
    of tokens that was asked for.
    """
    ends = {
        "length": f"at the limit of {params.max_tokens} tokens; -n allows more",
        "context": "where the context was full",
        "capacity": "where the KV cache was full; --kv-memory gives it more",
    }
    reason = result.finished.reason
    if reply.only_thought:
        return f"the reply ended inside its thinking, {ends.get(reason, 'where the model ended it')}"
    if result.schema and (problem := result.parsed[1]) is not None:
        return problem + ("; -n allows more" if reason == "length" else "")
    if not result.schema and params.constraint is not None and reason == "length":
        kind = params.constraint[0]
        return f"the reply may lack a part of what its {kind} asks for: it ended {ends[reason]}"
    return f"the reply ended {ends[reason]}" if reason in ("context", "capacity") else None
