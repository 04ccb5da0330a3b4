"""Tokens that are structure, found although the file marks them as something else.

Converters lose what a token is for: turn markers become ordinary tokens, which no text is ever cut into, or
words become control tokens. What the chat template writes, what the file declares as the end or the start of
a text, and what the merges make of letters, says what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from .vocabulary import TURN_ENDS, Kind, Vocabulary

_MARKER = re.compile(r"<[^<>\s]{1,100}>|\[/?[A-Z][A-Z_]{1,50}\]")
_PIPED = re.compile(r"<[|｜].{1,100}[|｜]>")
_COMPOSED = re.compile(r"<[|｜]['\"]")
"""A template that writes '<|' + role + '|>'."""


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
    candidates = ends | set(TURN_ENDS) | set(_MARKER.findall(template))
    if _COMPOSED.search(template) or Kind.CONTROL not in kinds:
        candidates |= {text for text in tokens if text[-1:] == ">" and _PIPED.fullmatch(text)}
    found = candidates.intersection(tokens) - vocabulary.ids(Kind.CONTROL, Kind.UNKNOWN).keys()
    if not found:
        return vocabulary
    first = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
    for text in sorted(found):
        token = first[text]
        always = text in ends or text in TURN_ENDS
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
