"""Names of quantizations, as people write them and as the names of GGUF files hold them."""

from __future__ import annotations

import re

from .split import stem_of

ORDER = (
    "Q4_K_M",
    "Q5_K_M",
    "Q4_K_S",
    "Q5_K_S",
    "Q4_K_XL",
    "Q4_K_L",
    "Q4_K",
    "Q4_1",
    "Q4_0",
    "IQ4_XS",
    "IQ4_NL",
    "MXFP4",
    "MXFP4_MOE",
    "Q6_K",
    "Q8_0",
    "Q5_1",
    "Q5_0",
    "Q3_K_L",
    "Q3_K_M",
    "IQ3_M",
    "Q3_K_S",
    "IQ3_XXS",
    "Q2_K",
    "BF16",
    "F16",
    "F32",
)
"""What is taken where nobody says, the first that fits: Q4_K_M is what most people run, the next ones are
slower and closer to the original, those behind Q8_0 lose visibly or are much larger than they need be."""

_LABEL = re.compile(
    r"(?<![A-Z0-9])(?:UD[-_])?"
    r"(?:I?Q[1-9](?:[-_](?:K|S|M|L|P|XS|XXS|XL|XXL|NL|[0-9]))*|TQ[12]_0|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4)"
    r"(?![A-Z0-9])",
    re.IGNORECASE,
)
_WORD = re.compile(
    r"(UD)?(I?Q[1-9](K|S|M|L|P|XS|XXS|XL|XXL|NL|[0-9])*|TQ[12]0|BF16|FP?16|FP?32|MXFP4(MOE)?|NVFP4)"
)


def _folded(name: str) -> str:
    """A name without what people write differently: case, separators, FP16 for F16."""
    plain = re.sub(r"[^A-Z0-9]", "", name.upper())
    return plain.replace("FP16", "F16").replace("FP32", "F32") if "MXFP" not in plain else plain


def is_quantization(word: str) -> bool:
    """Whether a word can only be the name of a quantization."""
    return _WORD.fullmatch(re.sub(r"[-_. ]", "", word.upper())) is not None


def label_of(file: str) -> str:
    """The quantization that the name of a GGUF file holds, in the usual way of writing; "" for none."""
    found = _LABEL.findall(stem_of(file))
    if not found:
        return ""
    label = str(found[-1]).upper().replace("-", "_").replace("FP16", "F16").replace("FP32", "F32")
    return re.sub(r"^UD_", "UD-", label)


def answers(label: str, wish: str) -> bool:
    """Whether a label is the one that is wished for."""
    return bool(label) and _folded(label) == _folded(wish)


def rank(label: str) -> int:
    """The place of a label in the order; the last one for what stands nowhere in it."""
    plain = label.removeprefix("UD-")
    return ORDER.index(plain) * 2 + (plain != label) if plain in ORDER else 2 * len(ORDER)
