"""What to do when the context is full: go on in a new conversation. The old one stays as it is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import UserError
from ...messages import StoredConversation, StoredMessage, prompt_of
from ...store import Store
from ...store.values import TITLE_LENGTH
from ..engines.model_slot import ModelSlot
from .collection import Conversations
from .conversation import Conversation

if TYPE_CHECKING:
    from engine import Engine

NEARLY_FULL = 0.8
"""Share of the context above which the user is told."""

KEPT_SHARE = 0.75
"""Share of the context that the newest messages may take in the new conversation."""

SUMMARY_TOKENS = 400
"""Longest summary; a quarter of a small context."""

QUESTION_TOKENS = 100
"""More than the question takes."""

HEADING = "Summary of the conversation so far:"
QUESTION = (
    "Summarise our conversation so far: what was asked, what was found or decided, and what is still open. "
    "Write short sentences and keep names, numbers and code that matter."
)


class NothingToDropError(UserError):
    """The newest message alone is too long, or nothing was said."""


class StoppedError(UserError):
    """The user wants no summary."""


def warning(conversation: Conversation, context: int | None) -> str:
    """What to say before the context is full; "" while there is room. context: the model's most tokens."""
    used = conversation.tokens_used
    if context is None or used is None or used < NEARLY_FULL * context:
        return ""
    return (
        f"{used} of {context} tokens of the context are used in {conversation.title!r}; /compact makes room "
        "in a new conversation. Nothing is cut by itself."
    )


async def newest_that_fit(
    engine: Engine, system: str, messages: Sequence[StoredMessage], most: int
) -> list[StoredMessage]:
    """The longest end of the messages that begins with the user's and has at most `most` tokens."""
    starts = [index for index, message in enumerate(messages) if message.role == "user"]
    low, high = 0, len(starts)
    while low < high:  # the more is left out, the shorter it is
        middle = (low + high) // 2
        ids = await engine.tokenize(prompt_of(messages[starts[middle] :], system))
        low, high = (low, middle) if len(ids) <= most else (middle + 1, high)
    return list(messages[starts[low] :]) if low < len(starts) else []


async def drop_oldest(
    conversations: Conversations, slot: ModelSlot, conversation: Conversation
) -> Conversation:
    """A new conversation with the newest messages only. slot: ready. NothingToDropError."""
    engine = slot.engine
    assert engine is not None, "it is ready"
    most = int(engine.info.context_length * KEPT_SHARE)
    kept = await newest_that_fit(engine, conversation.system, conversation.messages, most)
    if not kept:
        raise NothingToDropError(
            f"the last message alone takes more than {most} of the context's "
            f"{engine.info.context_length} tokens; shorten it"
        )
    return await _go_on(conversations, conversation, conversation.system, kept)


async def summarise(
    conversations: Conversations, slot: ModelSlot, conversation: Conversation, stopped: asyncio.Future[None]
) -> tuple[Conversation, str]:
    """A new conversation whose system prompt holds the model's summary of the old one.

    Also the message at its end that has no answer yet, to be sent there. slot: ready. stopped: done when
    the user wants no summary any more. NothingToDropError, UserError.
    """
    from engine import Message, SamplingParams

    from ...thinking import thinking_style

    engine = slot.engine
    assert engine is not None, "it is ready"
    messages = conversation.messages
    last = messages.pop().text if conversation.ending == "unanswered" else ""
    length = min(SUMMARY_TOKENS, engine.info.context_length // 4)
    most = engine.info.context_length - length - QUESTION_TOKENS
    said = await newest_that_fit(engine, conversation.system, messages, most)
    if not said:
        raise NothingToDropError(
            "there is nothing before the last message to be summarised"
            if not messages
            else f"the last turn alone takes more than {most} of the context's "
            f"{engine.info.context_length} tokens, so it cannot be summarised"
        )
    prompt = [*prompt_of(said, conversation.system), Message("user", QUESTION)]
    if prompt[-2].role == "user":
        prompt[-2:] = [Message("user", f"{prompt[-2].content}\n\n{QUESTION}")]
    params = SamplingParams(temperature=0, max_tokens=length)
    # Thinking would take all of the room, where the model can do without.
    variables = {**slot.template_vars(), "enable_thinking": False}
    async with engine.generate(prompt, params, template_vars=variables) as stream:
        result = asyncio.ensure_future(stream.result())
        await asyncio.wait((result, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            result.cancel()
            raise StoppedError("the summary was stopped; the conversation goes on as it was")
        finished = result.result()
    if finished.error is not None:
        raise UserError(f"the conversation cannot be summarised: {finished.error.message}")
    _, summary = (await thinking_style(engine, variables)).split(finished.text)
    if not summary.strip():
        raise UserError("the conversation cannot be summarised: the model has answered nothing")
    system = f"{conversation.system}\n\n{HEADING}\n{summary.strip()}".strip()
    return await _go_on(conversations, conversation, system, []), last


def summary_in(system: str) -> str:
    """The summary that a system prompt holds; "" if none."""
    return system.partition(f"{HEADING}\n")[2]


def next_title(title: str) -> str:
    """What to call the conversation that goes on: `... (2)`, `... (3)`."""
    found = re.fullmatch(r"(.*) \((\d{1,6})\)", title)
    name, number = (found[1], int(found[2])) if found else (title, 1)
    ending = f" ({number + 1})"
    return f"{name[: TITLE_LENGTH - len(ending)].rstrip()}{ending}"


async def _go_on(
    conversations: Conversations, conversation: Conversation, system: str, messages: list[StoredMessage]
) -> Conversation:
    def make(store: Store) -> StoredConversation:
        with store.database.write():
            new = store.create_conversation(
                title=next_title(conversation.title),
                model=conversation.model,
                system=system,
                params=conversation.row.params,
                forked_from=conversation.id,
            )
            parent: int | None = None
            for message in messages:
                parent = store.add_copy(new.id, message, parent)
            return store.conversation(new.id)

    return await conversations.add(make)
