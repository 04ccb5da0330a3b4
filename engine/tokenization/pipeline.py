"""A tokenizer.json is a program for the `tokenizers` library: which of them are run.

The library takes parts of any kind and number, and what they do to a text can take for ever, need any amount
of memory, or end in a panic. So parts are compared with a list, what they may add to a text is bounded, and
regular expressions must be known, or of a simple structure; those are tried out in a process of their own
(`trial`) before the first text of a user.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import tokenizers

from ..loading.fields import one_line
from .splits import PATTERNS
from .vocabulary import MAX_PIECE

T = TypeVar("T")
Refuse = Callable[[str], NoReturn]

MAX_GROWTH = 32
"""How many times longer normalizing may make a text."""

_MAX_PARTS = 32
_MAX_TEXT = 64  # characters that a part puts in or looks for
_MAX_PATTERN = 2048
_MAX_REPEATS = 4  # without a bound, in one branch

# fmt: off
_NORMALIZERS = frozenset([
    "BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend",
    "Replace", "Sequence", "Strip", "StripAccents",
])
_PRE_TOKENIZERS = frozenset([
    "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "FixedLength", "Metaspace",
    "Punctuation", "Sequence", "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit",
])
# fmt: on


def settings(part: Any) -> Any:
    """A loaded part of a pipeline as plain values."""
    return None if part is None else json.loads(part.__getstate__())


def types(value: Any) -> set[str]:
    """The types of a part and of the parts it is made of."""
    if isinstance(value, list):
        return set().union(*map(types, value))
    if not isinstance(value, dict):
        return set()
    return {str(value.get("type"))}.union(*map(types, value.values()))


def steps(part: Any, inner: str) -> Iterator[dict[str, Any]]:
    """The parts a text goes through one after the other."""
    if isinstance(part, dict) and part.get("type") == "Sequence" and isinstance(part.get(inner), list):
        for each in part[inner]:
            yield from steps(each, inner)
    elif part is not None:
        yield part if isinstance(part, dict) else {}


def _kind(step: dict[str, Any]) -> str:
    kind = step.get("type")
    return kind if isinstance(kind, str) else type(kind).__name__


def _text(refuse: Refuse, step: dict[str, Any], key: str, least: int = 0) -> str:
    value = step.get(key)
    if not isinstance(value, str) or not least <= len(value) <= _MAX_TEXT:
        refuse(f"{key} of a {step.get('type')} must have {least} to {_MAX_TEXT} characters")
    return value


def _pattern(refuse: Refuse, step: dict[str, Any]) -> tuple[str, str]:
    """The kind of a pattern, Regex or String, and the pattern."""
    pattern = step.get("pattern")
    kind, text = next(iter(pattern.items()), (None, None)) if isinstance(pattern, dict) else (None, None)
    if kind not in ("Regex", "String") or not isinstance(text, str):
        refuse(f"the pattern of a {step['type']} must be a String or a Regex")
    if not text or len(text) > _MAX_PATTERN:
        refuse(f"the pattern of a {step['type']} must have 1 to {_MAX_PATTERN} characters")
    return kind, text


def _check_expression(refuse: Refuse, pattern: str) -> None:
    """Refuse an expression whose search may take time out of proportion: repetitions in repetitions.

    A rough look is enough, as what passes is tried out too.
    """
    shown = f"the expression {pattern[:60]!r}"
    # Escaped characters and classes are one character each, whatever they hold.
    plain = re.sub(r"\\[pP]\{[^}]*\}|\\.", "c", pattern, flags=re.DOTALL)
    plain = re.sub(r"\[\^?\]?(?:\[:\w+:\]|[^\[\]])*\]", "c", plain)
    if re.search(r"\\\d|\(\?[<P(&]|\\[kg]", pattern):
        refuse(f"{shown} looks behind or refers to itself, which is not supported")
    open_groups = [[0, 0]]  # of each group: repetitions without bound, branches
    position, most = 0, 0
    while position < len(plain):
        character, rest = plain[position], plain[position + 1 :]
        repeat = re.match(r"[*+]|\{\d*,\}", rest)
        if character == "(":
            open_groups.append([0, 0])
        elif character == "|":
            most = max(most, open_groups[-1][0])
            open_groups[-1] = [0, open_groups[-1][1] + 1]
        elif character == ")" and len(open_groups) > 1:
            repeats, branches = open_groups.pop()
            if repeat and (repeats or branches):
                refuse(f"{shown} repeats a group that holds repetitions or alternatives")
            open_groups[-1][0] += repeats + bool(repeat)
        elif character not in "*+?{}" and repeat:
            open_groups[-1][0] += 1
        position += 1
    if max(most, open_groups[-1][0]) > _MAX_REPEATS:
        refuse(f"{shown} holds more than {_MAX_REPEATS} repetitions in one branch")


def _check_regex(refuse: Refuse, pattern: str) -> bool:
    """Whether an expression is to be tried out."""
    if pattern in PATTERNS:
        return False
    _check_expression(refuse, pattern)
    return True


def _check_normalizer(refuse: Refuse, part: Any) -> bool:
    growth, trial = 1.0, False
    for step in steps(part, "normalizers"):
        kind = _kind(step)
        if kind not in _NORMALIZERS:
            refuse(f"normalizers of type {kind[:60]!r} are not supported")
        if kind == "Prepend":
            _text(refuse, step, "prepend")
        elif kind == "Precompiled":
            trial = True
        elif kind == "Replace":
            which, text = _pattern(refuse, step)
            content = _text(refuse, step, "content")
            growth *= max(1.0, len(content) / (len(text) if which == "String" else 1))
            trial |= which == "Regex" and _check_regex(refuse, text)
    if growth > MAX_GROWTH:
        refuse(f"its normalizer may make a text {growth:.3g} times longer; at most {MAX_GROWTH} are allowed")
    return trial


def _check_pre_tokenizer(refuse: Refuse, part: Any) -> bool:
    trial = False
    for step in steps(part, "pretokenizers"):
        kind = _kind(step)
        if kind not in _PRE_TOKENIZERS:
            refuse(f"pre-tokenizers of type {kind[:60]!r} are not supported")
        if kind == "FixedLength":
            length = step.get("length")
            if type(length) is not int or length < 1:
                refuse("length of a FixedLength must be 1 or more")
        elif kind == "Split":
            which, text = _pattern(refuse, step)
            trial |= which == "Regex" and _check_regex(refuse, text)
    return trial


def check_parts(refuse: Refuse, normalizer: Any, pre_tokenizer: Any) -> bool:
    """Refuse a pipeline with parts that are not known to be harmless; True: it is to be tried out as well."""
    for part, inner in ((normalizer, "normalizers"), (pre_tokenizer, "pretokenizers")):
        count = sum(1 for _ in steps(part, inner))
        if count > _MAX_PARTS:
            refuse(f"it has {count} {inner}; at most {_MAX_PARTS} are allowed")
    trials = [_check_normalizer(refuse, normalizer), _check_pre_tokenizer(refuse, pre_tokenizer)]
    return any(trials)


def check_model(refuse: Refuse, model: Any) -> dict[str, int]:
    """The vocabulary of a tokenizer.json's model, a BPE; others are refused by their type."""
    kind = model.get("type", "BPE" if "merges" in model else None) if isinstance(model, dict) else None
    if kind != "BPE":
        refuse(f"tokenizers of type {str(kind)[:60]} are not supported (BPE are)")
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not all(type(token) is int for token in vocabulary.values()):
        refuse("this is not a valid tokenizer: its vocabulary must be texts with their token ids")
    if max(map(len, vocabulary), default=0) > MAX_PIECE:
        refuse(f"its vocabulary holds a token of more than {MAX_PIECE} characters")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            refuse(f"a {key} is not supported")
    unknown = model.get("unk_token")
    complete = model.get("byte_fallback") and all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))
    if unknown is not None and not isinstance(unknown, str):
        refuse("its unk_token must be a text")
    if unknown is not None and unknown not in vocabulary and not complete:
        refuse(f"its unk_token {str(unknown)[:60]!r} is not in its vocabulary")
    return vocabulary


def check_merges(refuse: Refuse, merges: Any, vocabulary: dict[str, int]) -> None:
    """Refuse merges that make more bytes than any token has: the library would panic, and write of it."""
    made: set[str] = set()
    for merge in merges if isinstance(merges, list) else []:
        if isinstance(merge, list) and all(isinstance(part, str) for part in merge):
            made.add("".join(merge))
        elif isinstance(merge, str):
            made.add(merge.replace(" ", "", 1))
    longest = max(made, key=_bytes, default="")
    if longest and longest not in vocabulary:
        refuse(f"its merges make a token that is not in its vocabulary: {longest[:60]!r}")


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def guarded(make: Callable[[], T]) -> T:
    """What the library makes. ValueError: it fails, by an error or by a panic, which is no Exception."""
    try:
        return make()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise ValueError(one_line(error)) from None


def load(data: bytes) -> tokenizers.Tokenizer:
    """The library's own tokenizer. ValueError: it can't read it."""
    return guarded(lambda: tokenizers.Tokenizer.from_buffer(data))
