"""How text is cut into words before merging: what the model families with byte-level vocabularies do.

By the names GGUF files give (`tokenizer.ggml.pre`), as llama.cpp understands them. The expressions are facts
of the trained models; each model's tokenizer.json says the same, or nearly.
"""

from __future__ import annotations

from typing import NamedTuple

_REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _REST
_SLASHED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _REST
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_THREE = _WORDS + r"\p{N}{1,3}" + _TAIL
_ONE = _WORDS + r"\p{N}" + _TAIL
_MARKED = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _REST
_TEKKEN = rf"{_CASED}*{_SMALL}+|{_CASED}+{_SMALL}*|\p{{N}}" + _SLASHED_TAIL
_O200K = rf"{_CASED}*{_SMALL}+{_ENDINGS}?|{_CASED}+{_SMALL}*{_ENDINGS}?|\p{{N}}{{1,3}}" + _SLASHED_TAIL
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*" + _REST
)
_SEED = _WORDS + r"\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + _REST
_HALVING = "".join(rf"|\s{{{1 << power}}}(?!\S)" for power in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s"
_JAIS2 = _WORDS + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+" + _HALVING
_SPARK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
)
_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+"
    "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_IDEOGRAPHS = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)


class Split(NamedTuple):
    """How text is cut into words before merging.

    patterns: each cuts what those before it left whole; a match is a word, and so is what is between two.
    gpt2: GPT-2's words at the end. single_digits: cut between digits first. nfc: normalize first.
    whole_words: a word that is in the vocabulary is one token, whatever the merges say. add_bos: prompts
    begin with the start token unless the file says otherwise.
    """

    patterns: tuple[str, ...] = ()
    gpt2: bool = False
    single_digits: bool = False
    nfc: bool = False
    whole_words: bool = False
    add_bos: bool = False


_GPT2 = Split(gpt2=True)
_DIGITS = Split(gpt2=True, single_digits=True)
_LLAMA3 = Split((_THREE,), whole_words=True, add_bos=True)
_CL100K = Split((_THREE,))
_QWEN = Split((_ONE,))
_DEEPSEEK = Split((r"\p{N}{1,3}", _CJK, _DEEPSEEK3))
_GPT4O = Split((_O200K,))

SPLITS = {
    "default": Split((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(["gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "modern-bert"], _GPT2),
    **dict.fromkeys(["mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"], _GPT2),
    **dict.fromkeys(["smollm", "starcoder", "refact", "command-r", "codeshell"], _DIGITS),
    **dict.fromkeys(["exaone", "minerva-7b", "mellum2"], _DIGITS),
    **dict.fromkeys(["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1"], _LLAMA3),
    **dict.fromkeys(["pixtral", "midm-2.0", "lfm2"], _LLAMA3),
    # Llama 3's vocabulary has words that its merges do not reach, whatever name a converter gives it.
    "smaug-bpe": Split((_THREE,), whole_words=True),
    **dict.fromkeys(["dbrx", "chatglm-bpe"], _CL100K),
    **dict.fromkeys(["glm4", "glm5"], _CL100K._replace(whole_words=True)),
    "qwen2": _QWEN._replace(nfc=True),
    "qwen35": Split((_MARKED,), nfc=True),
    **dict.fromkeys(["deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "megrez"], _QWEN),
    **dict.fromkeys(["kormo", "f2llmv2", "grok-2"], _QWEN),
    "tekken": Split((_TEKKEN,), whole_words=True, add_bos=True),
    "deepseek-coder": Split(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _IDEOGRAPHS, r"\p{N}")),
    **dict.fromkeys(["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], _DEEPSEEK),
    **dict.fromkeys(["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], _GPT4O),
    "falcon": Split((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")),
    "seed-coder": Split((_SEED,)),
    **dict.fromkeys(["bloom", "poro-chat", "gpt3-finnish"], Split((_BLOOM,))),
    "viking": Split((_BLOOM, r"\p{N}")),
    "jais-2": Split((_JAIS2,)),
    "spark2_5": Split((r"\p{N}{1,3}", _CJK, _SPARK, r"\p{N}")),
    "youtu": Split((_SCRIPTS, _O200K.replace("{1,3}", "")), whole_words=True),
    "ufakzeka": Split((_ONE.removeprefix(f"{_ENDINGS}|"),)),
    "laguna": Split((r"[^\n]+|[\n]+", _ONE)),
    **dict.fromkeys(
        ["bailingmoe", "bailingmoe2", "llada-moe"], Split((_BAILING.replace("DIGITS", r"\p{N}"),))
    ),
    "minicpm5": Split((r"\p{N}{1,3}", _WORDS + r"\p{N}+" + _TAIL), whole_words=True),
}
"""By GGUF's `tokenizer.ggml.pre`."""

FASTER = {r"\s+$": r"(?<!\s)\s+$"}
"""Expressions of models' files that take time out of proportion to a text, and their equals that do not."""

PATTERNS = frozenset(pattern for split in SPLITS.values() for pattern in split.patterns) | {
    GPT2,
    *FASTER.values(),
    r"\s+",
    r"\s",
    r"\d",
    r"\n",
    r"\p{N}",
    r"\p{Nd}",
    r"[\r\n]+",
    r"[^\n]+|[\n]+",
    *(_BAILING.replace("DIGITS", digits) for digits in (r"\p{N}", r"\p{N}{1,3}")),
}
"""Expressions known to take time in proportion to the text: what tokenizer.json files of models contain."""
