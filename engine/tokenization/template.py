"""A conversation as the text a model was trained on, by its chat template, and as token ids."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..loading.fields import cut, one_line
from ..named_templates import MAX_TEMPLATE, named_template
from ..types import EngineError, Message
from .forms import (
    Form,
    alternate,
    form_that_keeps,
    plain_form,
    spoken,
    stands_in,
    unused_characters,
    without_system,
)
from .tokenizer import Tokenizer
from .vocabulary import THOUGHTS

if TYPE_CHECKING:
    from jinja2 import Template

DEFAULT_TEMPLATE = named_template("chatml")
"""For a model without a template whose vocabulary has <|im_start|> and <|im_end|>."""

NO_TEMPLATE = "the model has no chat template; as it is, it only goes on with raw text"
_MARK = re.compile(r"<[|｜][\w▁]{1,50}[|｜]>|<\w{1,20}_of_turn>")
_MAX_REASON = 200
_MAX_DEPTH = 64


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

    def rendered(form: Form) -> str:
        return _render(template, form, values)

    alternating = alternate(turns)
    current.set(Budget({**values, "messages": plain_form(turns)}, len(turns)))
    first: RaisedError | None = None
    tried: list[list[Message]] = []
    for attempt in (turns, alternating, alternate(without_system(alternating))):
        if attempt in tried:
            continue
        tried.append(attempt)
        try:
            text = rendered(plain_form(attempt))
        except RaisedError as error:
            first = first or error
            continue
        except EngineError:
            form = form_that_keeps(template, attempt, rendered)
            if form is None or form is plain_form:
                raise
            return rendered(form(attempt))
        if all(stands_in(text, turn.content.strip()) for turn in spoken(attempt)):
            return text
        form = form_that_keeps(template, attempt, rendered)
        said = [turn.content.strip() for turn in spoken(attempt) if turn.role == "user"]
        if form is None and all_said and not all(words in text for words in said):
            raise EngineError("template", "the chat template leaves out what the user says")
        return text if form in (None, plain_form) else rendered(form(attempt))
    raise EngineError("template", f"the chat template refuses the conversation: {_one_line(first)}") from None


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
