"""Reasoning models think before they answer: the two parts of a reply, streamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .thinking_marks import ANSWER, MARKS, THINK, THINKING, Marks

if TYPE_CHECKING:
    from engine import Engine

_BREAK = "\n\n"
"""Between messages of a reply that are of one part."""


def _found(text: str, marks: Iterable[str]) -> tuple[int, str]:
    """Where the first of these marks begins in a text, and the mark; "" if there is none."""
    places = [(text.find(mark), mark) for mark in marks]
    return min((place for place in places if place[0] >= 0), default=(len(text), ""))


def _begun(text: str, marks: Iterable[str]) -> int:
    """How many characters at the end of a text may be the beginning of one of these marks."""
    longest = max(map(len, marks), default=1) - 1
    tails = range(min(longest, len(text)), 0, -1)
    return next((n for n in tails if any(mark.startswith(text[-n:]) for mark in marks)), 0)


class ThinkingSplitter:
    """Divides a reply that comes in pieces. Only a mark at its very beginning opens the thinking part.

    inside: the prompt ends with the opening mark of `marks` already, as some chat templates have it. known:
    the chat template knows of thinking; without that a mark that is never closed was a word like others.
    """

    def __init__(self, *, inside: bool = False, known: bool = True, marks: Marks = THINK) -> None:
        self._held = ""
        self._marks: Marks | None = marks if inside else None
        self._state = THINKING if inside else "start"
        self._fresh = {THINKING, ANSWER}
        self._gap = False
        self._whole: list[str] | None = None if inside or known else []
        self.mistaken = False
        """After `finish`: what was taken for thinking is text; `finish` has given all of it as the answer."""

    @property
    def unfinished(self) -> bool:
        """Whether the reply, as far as it has come, is inside its thinking part."""
        return self._state == THINKING

    def push(self, text: str) -> tuple[str, str]:
        """New text of the thinking part and of the answer. A half-read mark is held back."""
        self._held += text
        if self._whole is not None:
            self._whole.append(text)
        parts: dict[str, list[str]] = {THINKING: [], ANSWER: []}
        if self._state == "start":
            self._start()
        while self._state != "start" and self._held:
            marks = self._to_come()
            place, mark = _found(self._held, marks)
            kept = 0 if mark else _begun(self._held, marks)
            self._add(parts[self._state], self._held[: place - kept])
            self._held = self._held[place - kept + len(mark) :]
            if not mark:
                break
            self._enter(marks[mark])
        return "".join(parts[THINKING]), "".join(parts[ANSWER])

    def finish(self) -> tuple[str, str]:
        """What was held back, when the reply has ended."""
        held, self._held = self._held, ""
        if self._state != THINKING:
            return "", held
        if self._whole is None:
            return held, ""
        self.mistaken, self._state = True, ANSWER
        return "", "".join(self._whole)

    def _to_come(self) -> Mapping[str, str]:
        """The marks that may be met in the part that is being read."""
        if self._marks is None:
            return {}
        return self._marks.inside if self._state == THINKING else self._marks.later

    def _start(self) -> None:
        """Find out how the reply begins, as soon as that can be told."""
        begun = self._held.lstrip()
        for marks in MARKS:
            for mark, part in marks.first.items():
                if begun.startswith(mark):
                    self._marks, self._state = marks, part
                    self._gap = part == ANSWER
                    self._held = begun.removeprefix(mark)
                    if marks.certain or part == ANSWER:
                        self._whole = None
                    return
        if not any(mark.startswith(begun) for marks in MARKS for mark in marks.first):
            self._state, self._whole = ANSWER, None

    def _enter(self, part: str) -> None:
        self._state, self._gap = part, True
        if part == ANSWER:
            self._whole = None

    def _add(self, part: list[str], text: str) -> None:
        """Text of the part that is being read; after a mark, without the white space in front of it."""
        if self._gap:
            text = text.lstrip()
            if text and self._state not in self._fresh:
                part.append(_BREAK)
        if text:
            self._gap = False
            self._fresh.discard(self._state)
            part.append(text)


class ReplyText:
    """The two parts of a reply as it comes. splitter: None if all of it is the answer."""

    def __init__(self, splitter: ThinkingSplitter | None, text: str = "", thinking: str = "") -> None:
        """text, thinking: what was there before."""
        self._splitter = splitter
        self._text, self._thinking = [text], [thinking]

    @property
    def text(self) -> str:
        """The answer so far."""
        self._text = ["".join(self._text)]
        return self._text[0]

    @property
    def thinking(self) -> str:
        """The thinking so far."""
        self._thinking = ["".join(self._thinking)]
        return self._thinking[0]

    @property
    def mistaken(self) -> bool:
        """After `finish`: what was taken for thinking is text, all of it."""
        return self._splitter is not None and self._splitter.mistaken

    @property
    def only_thought(self) -> bool:
        """Whether the reply, as far as it has come, ends before its answer begins."""
        return self._splitter is not None and self._splitter.unfinished and bool(self.thinking)

    def push(self, text: str) -> tuple[str, str]:
        """Take in new text; what is new of the answer and of the thinking."""
        return self._add(*(self._splitter.push(text) if self._splitter is not None else ("", text)))

    def finish(self) -> tuple[str, str]:
        """What was held back, at the end."""
        thinking, answer = self._splitter.finish() if self._splitter is not None else ("", "")
        if self.mistaken:
            self._thinking.clear()
        return self._add(thinking, answer)

    def _add(self, thinking: str, answer: str) -> tuple[str, str]:
        if answer:
            self._text.append(answer)
        if thinking:
            self._thinking.append(thinking)
        return answer, thinking


class ThinkingStyle(NamedTuple):
    """How a model with its chat template thinks: as for `ThinkingSplitter`."""

    inside: bool = False
    known: bool = True
    marks: Marks = THINK

    def splitter(self) -> ThinkingSplitter:
        """For one reply."""
        return ThinkingSplitter(inside=self.inside, known=self.known, marks=self.marks)

    def split(self, text: str) -> tuple[str, str]:
        """The thinking part and the answer of a whole reply."""
        return split_thinking(text, inside=self.inside, known=self.known, marks=self.marks)


def split_thinking(
    text: str, *, inside: bool = False, known: bool = True, marks: Marks = THINK
) -> tuple[str, str]:
    """The thinking part and the answer of a whole reply."""
    reply = ReplyText(ThinkingSplitter(inside=inside, known=known, marks=marks))
    reply.push(text)
    reply.finish()
    return reply.thinking, reply.text


async def thinking_style(engine: Engine, variables: Mapping[str, Any]) -> ThinkingStyle:
    """What vocabulary and chat template say of thinking.

    A template knows of it if it opens the thinking part, or leaves out the one of an earlier reply.
    EngineError(template): the model has no template, or a broken one.
    """
    import asyncio  # whoever only splits a reply does without these

    from engine import EngineError, Message

    question = Message("user", "?")
    certain = [marks for marks in MARKS if marks.certain]
    raw = ["a", "b", *(marks.token for marks in certain)]
    prompt, first, second, *found = await asyncio.gather(
        engine.tokenize([question], template_vars=variables), *map(engine.tokenize, raw)
    )
    start = first[:1] if first[:1] == second[:1] else []  # a start token, where the tokenizer adds one
    sizes = [len(tokens) - len(start) for tokens in found]
    marks = next((marks for marks, size in zip(certain, sizes, strict=True) if size == 1), THINK)
    opened = await asyncio.gather(*(engine.tokenize(marks.opening + more) for more in ("", "\n")))
    endings = [tokens[len(start) :] for tokens in opened]
    if any(prompt[-len(ending) :] == ending for ending in endings):
        return ThinkingStyle(inside=True, marks=marks)
    if marks.certain:
        return ThinkingStyle(marks=marks)
    thought = f"{marks.opening}?{marks.closing}!"
    try:
        with_thought, without = [
            await engine.tokenize([question, Message("assistant", reply), question], template_vars=variables)
            for reply in (thought, "!")
        ]
    except EngineError:  # a template for one question alone
        return ThinkingStyle(known=False)
    return ThinkingStyle(known=with_thought == without)
