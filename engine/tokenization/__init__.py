"""Tokenizers, incremental detokenizing, stop strings and chat templates."""

from .chat import chat_text, encode_chat, template_of
from .load import load_tokenizer, tokenizer_of
from .stop import StopMatcher
from .stream import StreamDecoder
from .template import DEFAULT_TEMPLATE, alternate, prepare_template, render_chat
from .tokenizer import Tokenizer

__all__ = [
    "DEFAULT_TEMPLATE",
    "StopMatcher",
    "StreamDecoder",
    "Tokenizer",
    "alternate",
    "chat_text",
    "encode_chat",
    "load_tokenizer",
    "prepare_template",
    "render_chat",
    "template_of",
    "tokenizer_of",
]
