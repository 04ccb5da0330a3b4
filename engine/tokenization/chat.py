"""A conversation as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..types import Message
from .template import DEFAULT_TEMPLATE, render_chat, unused_characters
from .tokenizer import Tokenizer


def template_of(tokenizer: Tokenizer, template: str | None) -> str | None:
    """The template in use: the one given, else the model's own, else that of ChatML where its tokens are."""
    template = template if template is not None else tokenizer.chat_template
    if template is None and {"<|im_start|>", "<|im_end|>"} <= tokenizer.control.ids.keys():
        return DEFAULT_TEMPLATE
    return template


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
    private-use character; that survives whatever the template does to the message. Raises
    EngineError(template).
    """
    template = template_of(tokenizer, template)
    found: set[str] = set().union(*(tokenizer.control.find(message.content) for message in messages))
    stand_ins: dict[str, str] = {}
    if found:
        texts = [template or "", *(message.content for message in messages)]
        stand_ins = dict(zip(sorted(found), unused_characters(texts, len(found)), strict=True))
        messages = [Message(m.role, tokenizer.control.hide(m.content, stand_ins)) for m in messages]
    values = {**tokenizer.named, **variables}
    text = render_chat(template, messages, continue_final=continue_final, **values)
    return text, {ord(character): text for text, character in stand_ins.items()}
