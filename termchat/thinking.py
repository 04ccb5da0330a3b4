"""Reasoning models think before they answer, between `<think>` and `</think>`: the two parts, streamed."""

from __future__ import annotations

OPEN = "<think>"
CLOSE = "</think>"


class ThinkingSplitter:
    """Divides a reply that comes in pieces. Only a tag at its very beginning opens the thinking part.

    inside: the prompt ends with the opening tag already, as some chat templates have it.
    """

    def __init__(self, *, inside: bool = False) -> None:
        self._held = ""
        self._state = "thinking" if inside else "start"

    def push(self, text: str) -> tuple[str, str]:
        """New text of the thinking part and of the answer. A half-read tag is held back."""
        self._held += text
        thinking = answer = ""
        if self._state == "start":
            self._start()
        if self._state == "thinking":
            thinking = self._thinking()
        if self._state == "gap":
            self._held = self._held.lstrip()
            if self._held:
                self._state = "answer"
        if self._state == "answer":
            answer, self._held = self._held, ""
        return thinking, answer

    def finish(self) -> tuple[str, str]:
        """What was held back, when the reply has ended."""
        held, self._held = self._held, ""
        return (held, "") if self._state == "thinking" else ("", held)

    def _start(self) -> None:
        begun = self._held.lstrip()
        if begun.startswith(OPEN):
            self._state = "thinking"
            self._held = begun.removeprefix(OPEN)
        elif not OPEN.startswith(begun):
            self._state = "answer"

    def _thinking(self) -> str:
        thinking, tag, rest = self._held.partition(CLOSE)
        if tag:
            self._state, self._held = "gap", rest
            return thinking
        keep = next((n for n in range(len(CLOSE) - 1, 0, -1) if thinking.endswith(CLOSE[:n])), 0)
        self._held = thinking[len(thinking) - keep :]
        return thinking[: len(thinking) - keep]


def split_thinking(text: str, *, inside: bool = False) -> tuple[str, str]:
    """The thinking part and the answer of a whole reply."""
    splitter = ThinkingSplitter(inside=inside)
    pieces = (splitter.push(text), splitter.finish())
    return "".join(thinking for thinking, _ in pieces), "".join(answer for _, answer in pieces)
