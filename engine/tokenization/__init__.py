"""Tokenizers, incremental detokenizing, stop strings and chat templates."""

from .chat import encode_chat
from .load import load_tokenizer, tokenizer_of
from .stop import StopMatcher
from .stream import StreamDecoder
from .template import DEFAULT_TEMPLATE, alternate, render_chat
from .tokenizer import Tokenizer

__all__ = [
    "DEFAULT_TEMPLATE",
    "StopMatcher",
    "StreamDecoder",
    "Tokenizer",
    "alternate",
    "encode_chat",
    "load_tokenizer",
    "render_chat",
    "tokenizer_of",
]
