"""How models mark what they think before they answer: one table, a row for each way that is in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

THINKING, ANSWER = "thinking", "answer"


class Marks(NamedTuple):
    """What in a reply begins which of its two parts, and is itself of neither.

    token: the mark that a vocabulary has as one token where its model writes so. first: at the beginning of a
    reply. inside: in its thinking. later: in its answer. certain: `first` is structure wherever it stands,
    as no text can be cut into such a token; the others may as well be words, as long as they are not closed.
    """

    token: str
    first: Mapping[str, str]
    inside: Mapping[str, str]
    later: Mapping[str, str] = {}
    certain: bool = True

    @property
    def opening(self) -> str:
        """What begins the thinking of a reply."""
        return next(mark for mark, part in self.first.items() if part == THINKING)

    @property
    def closing(self) -> str:
        """What ends it."""
        return next(mark for mark, part in self.inside.items() if part == ANSWER)


_CHANNELS = {
    f"<|channel|>{name}<|message|>": part
    for name, part in (("analysis", THINKING), ("final", ANSWER), ("commentary", ANSWER))
}
_MESSAGES = {f"<|start|>assistant{mark}": part for mark, part in _CHANNELS.items()}

THINK = Marks("<think>", {"<think>": THINKING}, {"</think>": ANSWER}, certain=False)
"""DeepSeek R1, Qwen 3, QwQ, SmolLM3, GLM 4.5, Granite and most others."""

MARKS = (
    # OpenAI's harmony format (gpt-oss): a reply is a sequence of messages, each in a channel. What is in the
    # commentary is said before an action, and is for the user, too.
    Marks("<|channel|>", _CHANNELS, _MESSAGES, _MESSAGES),
    # Gemma 4.
    Marks("<|channel>", {"<|channel>thought": THINKING}, {"<channel|>": ANSWER}),
    # Magistral and Ministral 3.
    Marks("[THINK]", {"[THINK]": THINKING}, {"[/THINK]": ANSWER}),
    THINK,
)
"""A reply that begins with one of these is read by it, whatever the model."""
