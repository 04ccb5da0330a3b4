"""Byte-pair encoding for a vocabulary that comes without a tokenizer.json."""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from .control import check_total
from .pipeline import guarded
from .splits import Split
from .vocabulary import SPACE, Kind, Vocabulary

_MAX_WORK = 1 << 27
"""Characters looked at to make merges of pieces: 30 times what a vocabulary of 256,000 pieces needs."""

_MAX_MERGES = 1 << 25
"""Characters of all merges made: ten times what such a vocabulary has."""


def _add_user_defined(tokenizer: Tokenizer, vocabulary: Vocabulary) -> Tokenizer:
    texts = vocabulary.ids(Kind.USER_DEFINED)
    check_total(texts)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in texts])
    return tokenizer


def byte_level(vocabulary: Vocabulary, merges: list[tuple[str, str]], split: Split) -> Tokenizer:
    """Byte-level BPE as in GPT-2: words, then bytes, then merges in the order of the list.

    Control tokens are left out: they never come from text. Raises ValueError for a merge of unknown tokens.
    """
    pieces = vocabulary.ids(Kind.NORMAL, Kind.USER_DEFINED)
    tokenizer = Tokenizer(_model(pieces, merges, ignore_merges=split.whole_words))
    if split.nfc:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = []
    if split.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    steps += [pre_tokenizers.Split(Regex(each), behavior="isolated") for each in split.patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split.gpt2))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return _add_user_defined(tokenizer, vocabulary)


def scored_merges(vocabulary: Vocabulary, scores: list[float]) -> list[tuple[str, str]]:
    """The merges of SentencePiece BPE: neighbours that make the piece of the highest score, left to right.

    `tokenizers` ranks pairs instead of pieces, so the pairs that make a piece are listed in the order of its
    score; that is the same as long as no two pieces have one score, as in every vocabulary trained by
    SentencePiece.

    Raises ValueError for pieces that are so long, or made of each other in so many ways, that listing the
    pairs would take long.
    """
    pieces = vocabulary.ids(Kind.NORMAL)
    if sum(len(text) ** 2 for text in pieces) > _MAX_WORK:
        raise ValueError("its pieces are too long")
    merges: list[tuple[str, str]] = []
    room = _MAX_MERGES
    for text in sorted(pieces, key=lambda text: (-scores[pieces[text]], pieces[text])):
        made = [
            (left, right)
            for cut in range(1, len(text))
            if (left := text[:cut]) in pieces and (right := text[cut:]) in pieces
        ]
        merges += made
        room -= len(text) * len(made)
        if room < 0:
            raise ValueError("its pieces are made of each other in too many ways")
    return merges


def with_byte_fallback(
    vocabulary: Vocabulary, merges: list[tuple[str, str]], space_prefix: bool
) -> Tokenizer:
    """BPE on characters, spaces written as SentencePiece does, merges in the order of the list.

    What no piece covers becomes byte tokens, or else the unknown token. space_prefix: a text begins with a
    space more. Raises ValueError for a merge of unknown tokens.
    """
    model = _model(
        vocabulary.ids(Kind.NORMAL, Kind.USER_DEFINED, Kind.BYTE, Kind.UNKNOWN),
        merges,
        unk_token=next(iter(vocabulary.ids(Kind.UNKNOWN)), None),
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    steps = [normalizers.Prepend(SPACE)] if space_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    return _add_user_defined(tokenizer, vocabulary)


def _model(pieces: dict[str, int], merges: list[tuple[str, str]], **options: object) -> models.BPE:
    try:
        return guarded(lambda: models.BPE(vocab=pieces, merges=merges, **options))
    except ValueError as error:
        raise ValueError(f"the merges do not fit the tokens: {error}") from None
