"""Two engines read the same tokens, window by window, so that no table of log-probabilities gets large."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from .divergence import Positions, joined
from .texts import Text, TextError

if TYPE_CHECKING:
    from engine import Engine, Message

WINDOW = 256
"""Most tokens that are scored at once, each of them with those of its window before it."""

TABLE_BYTES = 1 << 27
"""Most bytes of the log-probabilities of a window; a vocabulary of 262,144 gets windows of 128 tokens."""


class Window(NamedTuple):
    """Some tokens of a text."""

    text: str
    ids: list[int]


def window_tokens(vocabulary: int, context_length: int) -> int:
    """Tokens of a window."""
    return max(2, min(WINDOW, TABLE_BYTES // (4 * vocabulary), context_length - 1))


async def windows(texts: Iterable[Text], engine: Engine, other: Engine) -> list[Window]:
    """The texts in the tokens of the first engine, cut into windows.

    TextError: the other's vocabulary is another one, or there are too few tokens. EngineError.
    """
    size = min(window_tokens(each.info.vocabulary, each.info.context_length) for each in (engine, other))
    found: list[Window] = []
    for text in texts:
        for piece in text.pieces:
            prompt: str | tuple[Message, ...] = piece
            if not isinstance(piece, str) and not engine.info.has_chat_template:
                prompt = "\n\n".join(message.content for message in piece)
            ids = await engine.tokenize(prompt)
            if isinstance(prompt, str):  # templates may differ
                _check_same_vocabulary(engine, other, ids, await other.tokenize(prompt))
            found += [Window(text.name, ids[start : start + size]) for start in range(0, len(ids), size)]
    if max((len(window.ids) for window in found), default=0) < 2:
        raise TextError("the text has fewer than two tokens: there is nothing to predict")
    return found


def _check_same_vocabulary(one: Engine, other: Engine, ids: list[int], others: list[int]) -> None:
    # One of them may begin every text with a mark of its own.
    least = min(len(ids), len(others))
    same = ids[len(ids) - least :] == others[len(others) - least :] and abs(len(ids) - len(others)) <= 1
    if not same or one.info.vocabulary != other.info.vocabulary:
        raise TextError(
            f"{one.info.name} and {other.info.name} have different vocabularies: "
            "only models that share one can be compared"
        )


async def measure(
    found: list[Window], engine: Engine, other: Engine, progress: Callable[[int], None] = lambda done: None
) -> dict[str, Positions]:
    """Positions of each text. progress: told how many windows are done. EngineError."""
    parts: dict[str, list[Positions]] = {}
    for done, window in enumerate(found):
        progress(done)
        measured, against = await engine.score(window.ids), await other.score(window.ids)
        parts.setdefault(window.text, []).append(Positions.of(window.ids, measured, against))
    return {text: joined(windows) for text, windows in parts.items()}
