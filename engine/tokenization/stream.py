"""Token ids to text as they come."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tokenizer import Tokenizer


class StreamDecoder:
    """Incremental detokenizer: the pieces of a stream joined are `tokenizer.decode` of all its ids.

    Only the first bytes of an unfinished character are held back, three at most; bytes that can't become one
    are shown as U+FFFD at once.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """The text that is certain now."""
        return self._decoder.decode(b"".join(map(self._token_bytes, ids)))

    def finish(self) -> str:
        """What is left: U+FFFD if the stream ended inside a character."""
        return self._decoder.decode(b"", final=True)
