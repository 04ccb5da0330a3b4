"""Stop strings in streamed text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class StopMatcher:
    """Finds the first place where any stop string is complete; if several end there, the longest counts.

    That rule does not depend on how the text is cut into pieces. Text is held back only while it can still
    become a stop string. Takes time linear in the text, whatever the stop strings (Aho and Corasick 1975).
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._next: list[dict[str, int]] = [{}]  # state -> character -> state; state 0 is the beginning
        self._depth = [0]  # characters of the stop string a state has seen
        self._of = [""]  # a stop string that begins with what a state has seen
        self._match: list[str | None] = [None]  # the longest stop string that ends in a state
        for stop in stops:
            self._insert(stop)
        self._link()
        self._state = 0
        self._matched: str | None = None

    def _insert(self, stop: str) -> None:
        if not stop:
            raise ValueError("a stop string must not be empty")
        state = 0
        for depth, character in enumerate(stop, 1):
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._depth.append(depth)
                self._of.append(stop)
                self._match.append(None)
            state = self._next[state][character]
        self._match[state] = stop

    def _link(self) -> None:
        """For each state: the state of its longest proper ending that also begins a stop string."""
        self._fallback = [0] * len(self._next)
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            fallback = self._fallback[state]
            self._match[state] = self._match[state] or self._match[fallback]
            for character, child in self._next[state].items():
                self._fallback[child] = self._step(fallback, character)
                queue.append(child)

    def _step(self, state: int, character: str) -> int:
        while state and character not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(character, 0)

    def push(self, text: str) -> tuple[str, str | None]:
        """Text that may be shown now, and the stop string that is complete, if any: it ends the text."""
        if self._matched is not None:
            return "", self._matched
        if not self._next[0]:  # no stop strings: nothing to look for
            return text, None
        state = before = self._state
        for index, character in enumerate(text):
            state = self._step(state, character)
            self._matched = self._match[state]
            if self._matched is not None:
                self._state = 0
                return self._released(before, text, index + 1, len(self._matched)), self._matched
        self._state = state
        return self._released(before, text, len(text), self._depth[state]), None

    def _released(self, before: int, text: str, taken: int, held: int) -> str:
        """All but the last `held` of the characters held in state `before` and the first `taken` of the text.

        The held characters need no buffer: they begin a known stop string.
        """
        count = self._depth[before] + taken - held
        if count <= self._depth[before]:
            return self._of[before][:count]
        return self._of[before][: self._depth[before]] + text[: taken - held]

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        held = self._of[self._state][: self._depth[self._state]]
        self._state = 0
        return held
