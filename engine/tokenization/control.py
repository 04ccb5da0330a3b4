"""Control tokens: which of a vocabulary's tokens are structure, and where a text holds them.

Converters lose what a token is for: turn markers become ordinary tokens, which no text is ever cut into, or
words become control tokens. What the chat template writes, what the file declares as the end or the start of
a text, and what the merges make of letters, says what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from os.path import commonprefix

from .vocabulary import MESSAGE_END, TURN_ENDS, VISIBLE, Kind, Vocabulary

MAX_TOKENS = 1 << 14
MAX_LENGTH = 1 << 10
MAX_TOTAL = 1 << 20
"""Characters of all tokens that are looked for in a text; the tables for it take 80 bytes for each."""

_MARKER = re.compile(r"<[^<>\s]{1,100}>|\[/?[A-Z][A-Z_]{1,50}\]")
_PIPED = re.compile(r"<[|｜].{1,100}[|｜]>|<\|[^<>|\s]{1,100}>|<[^<>|\s]{1,100}\|>")
_ENDS = frozenset([*TURN_ENDS, MESSAGE_END])
_COMPOSED = re.compile(r"<[|｜]['\"]")
"""A template that writes '<|' + role + '|>'."""


def _pattern(texts: list[str]) -> str:
    """A regular expression for the longest of these texts (sorted), common beginnings written once.

    Its speed depends on how the texts branch, not on how many there are.
    """
    branches = []
    for _, group in groupby(texts, key=lambda text: text[0]):
        alike = list(group)
        start = commonprefix(alike)
        rest = [text[len(start) :] for text in alike if text != start]
        tail = f"(?:{_pattern(rest)})" if rest else ""
        optional = "?" if rest and len(rest) < len(alike) else ""
        branches.append(re.escape(start) + tail + optional)
    return "|".join(branches)


def check_total(texts: Iterable[str]) -> None:
    """ValueError: looking for these texts would take too much memory."""
    if sum(map(len, texts)) > MAX_TOTAL:
        raise ValueError(f"the tokens to be found in a text have more than {MAX_TOTAL} characters in all")


class ControlTokens:
    """The control tokens of a vocabulary, by text.

    before, after: ids of the tokens that swallow the white space before or after them.
    Raises ValueError if there are too many, or too long ones.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        before: frozenset[int] = frozenset(),
        after: frozenset[int] = frozenset(),
    ) -> None:
        if len(ids) > MAX_TOKENS or any(len(text) > MAX_LENGTH for text in ids):
            raise ValueError(f"at most {MAX_TOKENS} control tokens of {MAX_LENGTH} characters are allowed")
        check_total(ids)
        self.ids = dict(ids)
        self._before = before
        self._after = after
        try:
            # A pattern that never matches stands for no tokens at all.
            self._search = re.compile(_pattern(sorted(ids)) or r"(?!)")
        except RecursionError:
            raise ValueError("the control tokens are too deeply nested") from None

    def find(self, text: str) -> set[str]:
        """The control tokens a text holds, found from the left, the longest at each place."""
        return set(self._search.findall(text))

    def hide(self, text: str, stand_ins: Mapping[str, str]) -> str:
        """The text with each of its control tokens replaced."""
        return self._search.sub(lambda match: stand_ins[match[0]], text)

    def split(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Pieces of plain text, each with the control token that follows it; None after the last piece."""
        position, swallow = 0, False
        for match in self._search.finditer(text):
            token = self.ids[match[0]]
            piece = text[position : match.start()]
            piece = piece.lstrip() if swallow else piece
            yield piece.rstrip() if token in self._before else piece, token
            position, swallow = match.end(), token in self._after
        yield text[position:].lstrip() if swallow else text[position:], None


def is_marker(text: str) -> bool:
    """Whether a text has the shape of structure: <s>, <|user|>, [INST]."""
    return _MARKER.fullmatch(text) is not None


def _is_tag(text: str, known: Callable[[str], bool]) -> bool:
    """One of a pair such as <tool_call> and </tool_call>: text to be read, in the shape of a marker."""
    if not text.startswith("<") or _PIPED.fullmatch(text):
        return False
    return known(f"<{text[2:]}" if text.startswith("</") else f"</{text[1:]}")


def with_marks(
    vocabulary: Vocabulary,
    template: str | None,
    declared: Iterable[int],
    is_made: Callable[[str], bool] = lambda text: False,
) -> Vocabulary:
    """The vocabulary with its markers as control tokens.

    template: the model's own. declared: the ids of start and end tokens. is_made: whether the merges make a
    token of this text, so that it is an ordinary one whatever else is said of it.
    """
    tokens, kinds = vocabulary.tokens, bytearray(vocabulary.kinds)
    template = template or ""
    ends = {tokens[token] for token in declared if is_marker(tokens[token])}
    candidates = ends | _ENDS | VISIBLE | set(_MARKER.findall(template))
    if _COMPOSED.search(template) or Kind.CONTROL not in kinds:
        candidates |= {text for text in tokens if text[-1:] == ">" and _PIPED.fullmatch(text)}
    found = candidates.intersection(tokens) - vocabulary.ids(Kind.CONTROL, Kind.UNKNOWN).keys()
    if not found:
        return vocabulary
    first = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
    for text in sorted(found):
        token = first[text]
        always = text in ends or text in _ENDS
        if kinds[token] == Kind.USER_DEFINED:
            if always or _PIPED.fullmatch(text):
                kinds[token] = Kind.CONTROL
        elif kinds[token] in (Kind.NORMAL, Kind.UNUSED) and not is_made(text):
            is_text = not always and _is_tag(text, first.__contains__)
            kinds[token] = Kind.USER_DEFINED if is_text else Kind.CONTROL
    return (
        vocabulary if kinds == vocabulary.kinds else Vocabulary(tokens, bytes(kinds), vocabulary.byte_level)
    )


def without_marks(vocabulary: Vocabulary, texts: Iterable[str]) -> Vocabulary:
    """The vocabulary with these texts, which are made by merges, as ordinary tokens."""
    ordinary, kinds = set(texts), bytearray(vocabulary.kinds)
    for token, kind in enumerate(kinds):
        if kind in (Kind.CONTROL, Kind.UNUSED) and vocabulary.tokens[token] in ordinary:
            kinds[token] = Kind.NORMAL
    return Vocabulary(vocabulary.tokens, bytes(kinds), vocabulary.byte_level)
