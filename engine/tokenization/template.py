"""A conversation as the text a model was trained on, by its chat template, and as token ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..loading.fields import cut, one_line
from ..named_templates import MAX_TEMPLATE, named_template
from ..types import EngineError, Message
from .tokenizer import Tokenizer
from .vocabulary import THOUGHTS

if TYPE_CHECKING:
    from jinja2 import Template

DEFAULT_TEMPLATE = named_template("chatml")
"""For a model without a template whose vocabulary has <|im_start|> and <|im_end|>."""

NO_TEMPLATE = "the model has no chat template; as it is, it only goes on with raw text"
Form = list[dict[str, Any]]
"""A conversation as a template gets it: role and content of each turn."""

_MARK = re.compile(r"<[|｜][\w▁]{1,50}[|｜]>|<\w{1,20}_of_turn>")
_MAX_REASON = 200
_MAX_DEPTH = 64
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


def render_chat(
    template: str | None,
    messages: Sequence[Message | Mapping[str, str]],
    *,
    add_generation_prompt: bool = True,
    continue_final: bool = False,
    all_said: bool = False,
    **variables: Any,
) -> str:
    """Render messages with a Jinja chat template, as Hugging Face's `apply_chat_template` does.

    add_generation_prompt: end with the beginning of the assistant's next turn. continue_final: end with the
    content of the last message, an assistant's, instead. all_said: refuse a template that leaves out what the
    user says. variables: plain values the template may read, such as bos_token or enable_thinking.

    A template that refuses the messages (by `raise_exception`), or leaves out what the system or the user
    says, gets them again in other forms: with alternating roles, without system turns, with their contents in
    parts. Its first refusal is raised if none helps. The messages are never changed. Raises
    EngineError(template): there is no template, or it is not allowed, fails, refuses, or is too costly.
    """
    if template is None:
        raise EngineError("template", NO_TEMPLATE)
    if len(template) > MAX_TEMPLATE:
        length = f"{len(template)} characters; at most {MAX_TEMPLATE} are allowed"
        raise EngineError("template", f"the chat template has {length}")
    turns = [turn if isinstance(turn, Message) else Message(**dict[str, Any](turn)) for turn in messages]
    mark = ""
    if continue_final:
        turns, mark = _with_mark(template, turns)
    unset = {"tools": None, "documents": None}
    values = {**unset, **_plain(variables), "add_generation_prompt": add_generation_prompt and not mark}
    text = copy_context().run(_render_somehow, template, turns, values, all_said)
    if not mark:
        return text
    end = text.rfind(mark)
    if end < 0:
        raise EngineError("template", "the chat template leaves out the message to be continued")
    return text[:end].replace(mark, "")


def template_of(tokenizer: Tokenizer, template: str | None) -> str | None:
    """The template in use: the one given, else the model's own, else that of ChatML where its tokens are."""
    template = template if template is not None else tokenizer.chat_template
    if template is None and {"<|im_start|>", "<|im_end|>"} <= tokenizer.control.ids.keys():
        return DEFAULT_TEMPLATE
    return template


def foreign_marks(tokenizer: Tokenizer, template: str) -> list[str]:
    """The markers in a template, such as <|user|>, for which the model has no token: they are words to it."""
    marks = sorted(set(_MARK.findall(template)) - tokenizer.control.ids.keys())
    return [mark for mark in marks if len(tokenizer.encode(mark, special=False)) > 1]


def encode_chat(
    tokenizer: Tokenizer,
    template: str | None,
    messages: Sequence[Message],
    *,
    continue_final: bool = False,
    **variables: Any,
) -> list[int]:
    """Token ids of a conversation up to where the assistant speaks next, or goes on: see `chat_text`."""
    text, stand_ins = chat_text(tokenizer, template, messages, continue_final=continue_final, **variables)
    return tokenizer.encode(text, stand_ins=stand_ins)


def chat_text(
    tokenizer: Tokenizer,
    template: str | None,
    messages: Sequence[Message],
    *,
    continue_final: bool = False,
    **variables: Any,
) -> tuple[str, dict[int, str]]:
    """A conversation as text up to where the assistant speaks next, or goes on (`continue_final`), and what
    its stand-ins (see `Tokenizer.encode`) stand for.

    template: None for the model's own. A model without one gets DEFAULT_TEMPLATE if its vocabulary has the
    tokens of ChatML. variables: see `render_chat`.

    What a message says is never structure: a control token in its text reaches the model as plain text, so
    nobody can write an end of turn into a message. While the template runs, such a text is replaced by a
    private-use character; that survives whatever the template does to the message.

    A message to be continued that ends inside its thinking (see `THOUGHTS`) is put where the assistant
    speaks: templates leave the thinking of earlier messages out, or refuse it. Raises EngineError(template).
    """
    template = template_of(tokenizer, template)
    opening = ""
    if continue_final and messages and messages[-1].role == "assistant":
        opening, said = _open_thought(messages[-1].content)
        messages = [*messages[:-1], Message("assistant", said)]
    found: set[str] = set().union(*(tokenizer.control.find(message.content) for message in messages))
    stand_ins: dict[str, str] = {}
    if found:
        texts = [template or "", *(message.content for message in messages)]
        stand_ins = dict(zip(sorted(found), unused_characters(texts, len(found)), strict=True))
        messages = [Message(m.role, tokenizer.control.hide(m.content, stand_ins)) for m in messages]
    values = {**tokenizer.named, **variables}
    if opening:
        text = render_chat(template, messages[:-1], all_said=True, **values)
        text += messages[-1].content if text.rstrip().endswith(opening) else opening + messages[-1].content
    else:
        text = render_chat(template, messages, continue_final=continue_final, all_said=True, **values)
    return text, {ord(character): text for text, character in stand_ins.items()}


def _open_thought(text: str) -> tuple[str, str]:
    """The mark by which a reply begins to think, if it has not ended that yet, and the rest of the text."""
    for opening, closing in THOUGHTS.items():
        if text.startswith(opening) and closing not in text:
            return opening, text.removeprefix(opening)
    return "", text


def prepare_template(template: str | None) -> None:
    """Compile a template ahead of its first use. What is wrong with it, `render_chat` will say."""
    if template is not None and len(template) <= MAX_TEMPLATE:
        with suppress(Exception):
            _compiled(template)


def _with_mark(template: str, turns: list[Message]) -> tuple[list[Message], str]:
    """The turns with a mark where the last one ends, and the mark."""
    if not turns or turns[-1].role != "assistant":
        raise EngineError("template", "only an assistant's message can be continued; the last one is none")
    (mark,) = unused_characters([template, *(turn.content for turn in turns)], 1)
    return [*turns[:-1], Message("assistant", turns[-1].content + mark)], mark


def _plain(value: Any, depth: int = 0) -> Any:
    """A copy made of nothing but plain values, so that a template can't reach anything else."""
    if depth > _MAX_DEPTH:
        raise EngineError("template", f"a template variable is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry, depth + 1) for entry in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    raise EngineError("template", f"a template variable holds a {type(value).__name__}, no plain value")


def _render_somehow(template: str, turns: list[Message], values: dict[str, Any], all_said: bool) -> str:
    """Render the turns, or else what can be made of them, all within one budget, which this context gets."""
    from .budget import Budget, current
    from .sandbox import RaisedError

    alternating = alternate(turns)
    current.set(Budget({**values, "messages": _plain_form(turns)}, len(turns)))
    first: RaisedError | None = None
    tried: list[list[Message]] = []
    for attempt in (turns, alternating, alternate(without_system(alternating))):
        if attempt in tried:
            continue
        tried.append(attempt)
        try:
            text = _render(template, _plain_form(attempt), values)
        except RaisedError as error:
            first = first or error
            continue
        except EngineError:
            form = _form_that_keeps(template, attempt, values)
            if form is None or form is _plain_form:
                raise
            return _render(template, form(attempt), values)
        if all(_stands_in(text, turn.content.strip()) for turn in _spoken(attempt)):
            return text
        form = _form_that_keeps(template, attempt, values)
        said = [turn.content.strip() for turn in _spoken(attempt) if turn.role == "user"]
        if form is None and all_said and not all(words in text for words in said):
            raise EngineError("template", "the chat template leaves out what the user says")
        return text if form in (None, _plain_form) else _render(template, form(attempt), values)
    raise EngineError("template", f"the chat template refuses the conversation: {_one_line(first)}") from None


def _plain_form(turns: Sequence[Message]) -> Form:
    return [{"role": turn.role, "content": turn.content} for turn in turns]


def _in_parts(turns: Sequence[Message]) -> Form:
    """Contents in parts, as templates want them that were made for pictures besides."""
    return [{"role": turn.role, "content": [{"type": "text", "text": turn.content}]} for turn in turns]


_FORMS: tuple[Callable[[Sequence[Message]], Form], ...] = (
    _plain_form,
    lambda turns: _plain_form(alternate(without_system(turns))),
    _in_parts,
    lambda turns: _in_parts(alternate(without_system(turns))),
)


def _form_that_keeps(
    template: str, turns: Sequence[Message], values: dict[str, Any]
) -> Callable[[Sequence[Message]], Form] | None:
    """The first form in which a template leaves out nothing that system and user say; None if there is none.

    Words that are not found as they were said may only have been changed, so marks that no template changes
    are tried in their place.
    """
    roles = {turn.role for turn in _spoken(turns)}
    marks = unused_characters([template], len(roles))
    trial = [Message(role, mark) for role, mark in zip(sorted(roles), marks, strict=True)]  # the system first
    for form in _FORMS:
        with suppress(Exception):  # another form may do
            text = _render(template, form(trial), values)
            if all(mark in text for mark in marks):
                return form
    return None


def _stands_in(text: str, words: str) -> bool:
    """Whether words are surely in a text because they were said: a few characters may be there anyway."""
    return len(words) >= _SURE and words in text


def _spoken(turns: Sequence[Message]) -> list[Message]:
    """What has to stand in the text: what the system and the user say, the last of each."""
    return list({turn.role: turn for turn in turns if turn.role in ("system", "user")}.values())


def _render(template: str, messages: Form, values: dict[str, Any]) -> str:
    from jinja2.exceptions import SecurityError, TemplateError

    from .budget import LimitError
    from .sandbox import RaisedError

    try:
        return _compiled(template).render(values, messages=messages)
    except RaisedError:
        raise
    except (SecurityError, LimitError) as error:
        reason = f"is not allowed: {_one_line(error)}"
    except TemplateError as error:
        reason = f"failed: {_one_line(error)}"
    except Exception as error:  # a template can make any operation on values fail
        reason = f"failed: {type(error).__name__}: {_one_line(error)}"
    raise EngineError("template", f"the chat template {reason}")


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    from .sandbox import Sandbox

    sandbox = Sandbox()
    return sandbox.from_string(sandbox.prepare(template))


def _one_line(error: Exception | None) -> str:
    return cut(one_line(error), _MAX_REASON)
