"""Forms in which a conversation can be given to a chat template, and which of them says all that was said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..types import Message

Form = list[dict[str, Any]]
"""A conversation as a template gets it: role and content of each turn."""

_SURE = 8  # characters that do not stand in a template's own text by chance


def alternate(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with alternating roles, for templates that insist on it.

    Empty assistant turns, as cancelled replies leave them, are dropped; neighbours of one role become one.
    """
    turns: list[Message] = []
    for message in messages:
        if message.role == "assistant" and not message.content:
            continue
        if turns and turns[-1].role == message.role:
            turns[-1] = Message(message.role, f"{turns[-1].content}\n\n{message.content}")
        else:
            turns.append(message)
    return turns


def without_system(messages: Sequence[Message]) -> list[Message]:
    """System turns put in front of the user turn that follows, for templates that know no system role."""
    turns: list[Message] = []
    pending: list[str] = []
    for message in messages:
        if message.role == "system":
            pending.append(message.content)
        elif message.role == "user" and pending:
            turns.append(Message("user", "\n\n".join([*pending, message.content])))
            pending = []
        else:
            turns.append(message)
    return [*turns, Message("user", "\n\n".join(pending))] if pending else turns


def unused_characters(texts: Iterable[str], count: int) -> list[str]:
    """Private-use characters that occur in none of the texts."""
    used = set().union(*texts)
    free = (chr(code) for code in range(0xF0000, 0x10FFFE) if chr(code) not in used)
    return [character for character, _ in zip(free, range(count), strict=False)]


def plain_form(turns: Sequence[Message]) -> Form:
    """As most templates want it: the content is a text."""
    return [{"role": turn.role, "content": turn.content} for turn in turns]


def _in_parts(turns: Sequence[Message]) -> Form:
    """Contents in parts, as templates want them that were made for pictures besides."""
    return [{"role": turn.role, "content": [{"type": "text", "text": turn.content}]} for turn in turns]


_FORMS: tuple[Callable[[Sequence[Message]], Form], ...] = (
    plain_form,
    lambda turns: plain_form(alternate(without_system(turns))),
    _in_parts,
    lambda turns: _in_parts(alternate(without_system(turns))),
)


def form_that_keeps(
    template: str, turns: Sequence[Message], render: Callable[[Form], str]
) -> Callable[[Sequence[Message]], Form] | None:
    """The first form in which a template leaves out nothing that system and user say; None if there is none.

    Words that are not found as they were said may only have been changed, so marks that no template changes
    are tried in their place. render: the template on a conversation in a form.
    """
    roles = {turn.role for turn in spoken(turns)}
    marks = unused_characters([template], len(roles))
    trial = [Message(role, mark) for role, mark in zip(sorted(roles), marks, strict=True)]  # the system first
    for form in _FORMS:
        with suppress(Exception):  # another form may do
            text = render(form(trial))
            if all(mark in text for mark in marks):
                return form
    return None


def stands_in(text: str, words: str) -> bool:
    """Whether words are surely in a text because they were said: a few characters may be there anyway."""
    return len(words) >= _SURE and words in text


def spoken(turns: Sequence[Message]) -> list[Message]:
    """What has to stand in the text: what the system and the user say, the last of each."""
    return list({turn.role: turn for turn in turns if turn.role in ("system", "user")}.values())
