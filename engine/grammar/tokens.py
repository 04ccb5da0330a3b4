"""A model's tokens as llguidance takes them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..types import EngineError

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from ..tokenization import Tokenizer

_BEFORE = "\n"
"""Stands before a text that is encoded, where the tokenizer would put a space before its first word."""


class Tokens:
    """The bytes of each token, and how text is cut into tokens where there is no choice of text.

    The names are those that `LLTokenizer` asks for.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, end_ids: Collection[int]) -> None:
        """vocabulary: number of logits, which may be more than there are tokens, or fewer."""
        self._tokenizer = tokenizer
        known = min(vocabulary, tokenizer.vocab_size)
        self.tokens = [*map(tokenizer.token_bytes, range(known)), *[b""] * (vocabulary - known)]
        control = {token for token in tokenizer.control.ids.values() if token < vocabulary}
        empty = [token for token, text in enumerate(self.tokens) if not text]
        self.special_token_ids = sorted(control.union(end_ids, empty))
        for token in self.special_token_ids:  # a grammar may ask for one by its name; none comes as text
            self.tokens[token] = self._name(token)
        self.eos_token_id = min(end_ids)
        self._ids: dict[bytes, int] = {}

    def __call__(self, text: str | bytes) -> list[int]:
        """The tokens of a text, whose bytes are exactly those of the text: the tokenizer's own, if it can."""
        if isinstance(text, bytes):
            text = text.decode()
        wanted, encode = text.encode(), self._tokenizer.encode
        ids = encode(text, special=False)
        if self._bytes(ids) == wanted:
            return ids
        before, ids = encode(_BEFORE, special=False), encode(_BEFORE + text, special=False)
        if ids[: len(before)] == before and self._bytes(ids[len(before) :]) == wanted:
            return ids[len(before) :]
        return self._greedy(wanted)

    def _name(self, token: int) -> bytes:
        text = self._tokenizer.token_text(token) if token < self._tokenizer.vocab_size else ""
        return (text or f"<|unused {token}|>").encode()

    def text(self, ids: list[int]) -> str:
        """The text of some tokens."""
        return self._bytes(ids).decode("utf-8", "replace")

    def _bytes(self, ids: list[int]) -> bytes:
        if any(token >= len(self.tokens) for token in ids):
            return b""
        return b"".join([self.tokens[token] for token in ids])

    def _greedy(self, text: bytes) -> list[int]:
        """The longest token at each place, for a text that the tokenizer would change; it may end early."""
        if not self._ids:
            special = set(self.special_token_ids)
            self._ids = {each: id for id, each in enumerate(self.tokens) if id not in special}
        longest, place, ids = max(map(len, self._ids), default=0), 0, list[int]()
        while place < len(text):
            ends = range(min(len(text), place + longest), place, -1)
            end = next((end for end in ends if text[place:end] in self._ids), place)
            if end == place:
                break
            ids.append(self._ids[text[place:end]])
            place = end
        return ids


def library_tokenizer(tokens: Tokens, end_ids: Collection[int]) -> LLTokenizer:
    """The library's view of a vocabulary. Raises EngineError(grammar)."""
    from llguidance import LLTokenizer

    try:
        return LLTokenizer(tokens, eos_token=sorted(end_ids), slices=LLTokenizer.json_slices())  # type: ignore[arg-type]
    except ValueError as error:
        raise EngineError("grammar", f"the model's vocabulary can't be used: {error}") from None
