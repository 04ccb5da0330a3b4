"""A reply on standard output while it comes: as plain text, one JSON object, or JSON events, one a line."""

from __future__ import annotations

from typing import Any

from engine import TextDelta

from .console import Console, to_json
from .errors import Failure
from .result import Result, logprobs_entry


class Presenter:
    """Shows a reply while it comes; this one nothing of it."""

    def __init__(self, console: Console, *, stream: bool = True) -> None:
        self._console = console
        self._stream = stream

    async def start(self, id: str, conversation: str | None, model: str, seed: int) -> None:
        """The request is about to be made."""

    async def delta(self, answer: str, thinking: str, new: TextDelta | None) -> None:
        """New text. new: what the engine sent; None for what was held back, at the end."""

    async def end(self, result: Result) -> None:
        """The reply is complete, or was stopped."""

    def failed(self, failure: Failure) -> None:
        """There will be no more; the message goes to standard error elsewhere."""


class PlainPresenter(Presenter):
    """The answer and one newline. Thinking goes to standard error.

    What the text has of controls is the streams' affair (see `output`).
    """

    def __init__(self, console: Console, *, stream: bool = True) -> None:
        super().__init__(console, stream=stream)
        self._held: list[str] = []
        self._begun = False
        self._thinking = False

    async def delta(self, answer: str, thinking: str, new: TextDelta | None) -> None:
        """Show what is new, or keep it until the end."""
        if thinking:
            await self._think(thinking)
        if answer:
            await self._close_thinking()
            if self._stream:
                await self._show(answer)
            else:
                self._held.append(answer)

    async def end(self, result: Result) -> None:
        """The rest, and the newline."""
        await self._close_thinking()
        self._begun = True
        await self._console.output.send("".join(self._held) + "\n")

    def failed(self, failure: Failure) -> None:
        """End the line that was begun."""
        if self._thinking:
            self._console.messages.text("\n", begin=self._bright)
        if self._begun:
            self._console.output.write("\n")

    async def _show(self, text: str) -> None:
        if text:
            self._begun = True
            await self._console.output.send(text)

    async def _think(self, text: str) -> None:
        messages = self._console.messages
        dim = "\x1b[2m" if messages.colour and not self._thinking else ""
        self._thinking = True
        await messages.send(text, begin=dim)

    async def _close_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            await self._console.messages.send("\n", begin=self._bright)

    @property
    def _bright(self) -> str:
        """What ends the dim text of thinking."""
        return "\x1b[0m" if self._console.messages.colour else ""


class JsonPresenter(Presenter):
    """One object when all is known; nothing on standard output after an error."""

    async def end(self, result: Result) -> None:
        """The object."""
        await self._console.output.send(to_json(result.as_dict()) + "\n", json=True)


class JsonLinesPresenter(Presenter):
    """Events, one a line: start, delta any number of times, then end (an error is written by `main`)."""

    async def start(self, id: str, conversation: str | None, model: str, seed: int) -> None:
        """The start event."""
        await self._send(
            {"event": "start", "id": id, "conversation": conversation, "model": model, "seed": seed}
        )

    async def delta(self, answer: str, thinking: str, new: TextDelta | None) -> None:
        """A delta event; `thinking` is in it only where the model thinks."""
        if self._stream:
            more = {"thinking": thinking} if thinking else {}
            tokens = {"token_ids": new.token_ids if new is not None else ()}
            logprobs = logprobs_entry(new.logprobs) if new is not None else {}
            await self._send({"event": "delta", "text": answer, **more, **tokens, **logprobs})

    async def end(self, result: Result) -> None:
        """The end event, with the object of `--json`."""
        await self._send({"event": "end", **result.as_dict()})

    async def _send(self, event: dict[str, Any]) -> None:
        await self._console.output.send(to_json(event) + "\n", json=True)
