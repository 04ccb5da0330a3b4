"""Tokenizers, incremental detokenizing, stop strings and chat templates."""

from .forms import alternate
from .stop import StopMatcher
from .template import (
    DEFAULT_TEMPLATE,
    NO_TEMPLATE,
    chat_text,
    encode_chat,
    foreign_marks,
    prepare_template,
    render_chat,
    template_of,
)
from .tokenizer import StreamDecoder, Tokenizer, load_tokenizer, tokenizer_of

__all__ = [
    "DEFAULT_TEMPLATE",
    "NO_TEMPLATE",
    "StopMatcher",
    "StreamDecoder",
    "Tokenizer",
    "alternate",
    "chat_text",
    "encode_chat",
    "foreign_marks",
    "load_tokenizer",
    "prepare_template",
    "render_chat",
    "template_of",
    "tokenizer_of",
]
