"""Byte-pair encoding for a vocabulary that comes without a tokenizer.json."""

from __future__ import annotations

from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from .vocabulary import SPACE, Kind, Vocabulary

_CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"


class Split(NamedTuple):
    """How text is cut into words before merging.

    pattern: what a word is; None for GPT-2's. single_digits: cut between digits first. nfc: normalize first.
    whole_words: a word that is in the vocabulary is one token, whatever the merges say. add_bos: prompts
    begin with the start token unless the file says otherwise.
    """

    pattern: str | None = None
    single_digits: bool = False
    nfc: bool = False
    whole_words: bool = False
    add_bos: bool = False


_LLAMA3 = Split(_WORDS + r"\p{N}{1,3}" + _TAIL, whole_words=True, add_bos=True)

SPLITS = {
    "gpt-2": Split(),
    "smollm": Split(single_digits=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": Split(_WORDS + r"\p{N}" + _TAIL, nfc=True),
    "deepseek-r1-qwen": Split(_WORDS + r"\p{N}" + _TAIL),
    "tekken": Split(
        _CASED + r"*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|" + _CASED + r"+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        whole_words=True,
        add_bos=True,
    ),
}
"""By GGUF's `tokenizer.ggml.pre`. Each is what the tokenizer.json of the model family of that name says."""


def _add_user_defined(tokenizer: Tokenizer, vocabulary: Vocabulary) -> Tokenizer:
    texts = vocabulary.ids(Kind.USER_DEFINED)
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
    if split.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(split.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split.pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return _add_user_defined(tokenizer, vocabulary)


def sentencepiece(vocabulary: Vocabulary, scores: list[float], space_prefix: bool) -> Tokenizer:
    """SentencePiece BPE: neighbours that make the piece of the highest score are merged first, left to right.

    `tokenizers` ranks pairs instead of pieces, so the pairs that make a piece are listed in the order of its
    score; that is the same as long as no two pieces have one score, as in every vocabulary trained by
    SentencePiece. What no piece covers becomes byte tokens, or else the unknown token.
    """
    pieces = vocabulary.ids(Kind.NORMAL)
    ranked = []
    for text, token in pieces.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in pieces and right in pieces:
                ranked.append((-scores[token], token, cut, left, right))
    ranked.sort()
    model = _model(
        vocabulary.ids(Kind.NORMAL, Kind.USER_DEFINED, Kind.BYTE, Kind.UNKNOWN),
        [(left, right) for *_, left, right in ranked],
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
        return models.BPE(vocab=pieces, merges=merges, **options)
    except Exception as error:  # tokenizers raises plain Exception
        raise ValueError(f"the merges do not fit the tokens: {error}") from None
