"""Reasoning models think before they answer, between `<think>` and `</think>`: the two parts, streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from engine import Engine

OPEN = "<think>"
CLOSE = "</think>"


class ThinkingSplitter:
    """Divides a reply that comes in pieces. Only a tag at its very beginning opens the thinking part.

    inside: the prompt ends with the opening tag already, as some chat templates have it. known: the chat
    template knows of thinking; without that a tag that is never closed was a word like others.
    """

    def __init__(self, *, inside: bool = False, known: bool = True) -> None:
        self._held = ""
        self._state = "thinking" if inside else "start"
        self._whole: list[str] | None = None if inside or known else []
        self.mistaken = False
        """After `finish`: what was taken for thinking is text; `finish` has given all of it as the answer."""

    @property
    def unfinished(self) -> bool:
        """Whether the reply, as far as it has come, is inside its thinking part."""
        return self._state == "thinking"

    def push(self, text: str) -> tuple[str, str]:
        """New text of the thinking part and of the answer. A half-read tag is held back."""
        self._held += text
        if self._whole is not None:
            self._whole.append(text)
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
        if self._state in ("gap", "answer"):
            self._whole = None
        return thinking, answer

    def finish(self) -> tuple[str, str]:
        """What was held back, when the reply has ended."""
        held, self._held = self._held, ""
        if self._state != "thinking":
            return "", held
        if self._whole is None:
            return held, ""
        self.mistaken, self._state = True, "answer"
        return "", "".join(self._whole)

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

    def splitter(self) -> ThinkingSplitter:
        """For one reply."""
        return ThinkingSplitter(inside=self.inside, known=self.known)

    def split(self, text: str) -> tuple[str, str]:
        """The thinking part and the answer of a whole reply."""
        return split_thinking(text, inside=self.inside, known=self.known)


def split_thinking(text: str, *, inside: bool = False, known: bool = True) -> tuple[str, str]:
    """The thinking part and the answer of a whole reply."""
    reply = ReplyText(ThinkingSplitter(inside=inside, known=known))
    reply.push(text)
    reply.finish()
    return reply.thinking, reply.text


async def thinking_style(engine: Engine, variables: Mapping[str, Any]) -> ThinkingStyle:
    """What the chat template says of thinking. EngineError(template): there is none, or a broken one.

    A template knows of it if it opens the thinking part, or leaves out the one of an earlier reply.
    """
    from engine import EngineError, Message  # the splitter is used without an engine

    if await starts_thinking(engine, variables):
        return ThinkingStyle(inside=True)
    try:
        with_thought, without = [
            await engine.tokenize(
                [Message("user", "?"), Message("assistant", reply), Message("user", "?")],
                template_vars=variables,
            )
            for reply in (f"{OPEN}?{CLOSE}!", "!")
        ]
    except EngineError:  # a template for one question alone
        return ThinkingStyle(known=False)
    return ThinkingStyle(known=with_thought == without)


async def starts_thinking(engine: Engine, variables: Mapping[str, Any]) -> bool:
    """Whether the chat template opens the thinking part itself, so that a reply begins inside of it.

    EngineError(template): the model has no template, or a broken one.
    """
    from engine import Message

    prompt = await engine.tokenize([Message("user", "?")], template_vars=variables)
    start = len(await engine.tokenize(""))  # a start token, where the tokenizer adds one
    endings = [(await engine.tokenize(text))[start:] for text in (OPEN, OPEN + "\n")]
    return any(prompt[-len(ending) :] == ending for ending in endings)
