"""A reply on standard output: as plain text, as one JSON object, or as JSON events, one a line."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

from engine import Finished, as_dict

from .console import Console, to_json
from .errors import Failure

USAGE_FIELDS = ("prompt_tokens", "cached_tokens", "completion_tokens", "draft_tokens", "accepted_tokens")
TIMING_FIELDS = (
    "queue_ms",
    "ttft_ms",
    "itl_ms",
    "itl_p95_ms",
    "e2e_ms",
    "tokens_per_second",
    "bandwidth_gbs",
)


class Reply(NamedTuple):
    """A finished reply and what is known of it.

    peak: measured bandwidth in GB/s, None if not asked for; quiet: not only while other programs ran.
    backend, exact: see EngineSnapshot.
    """

    id: str
    conversation: str | None
    model: str
    text: str
    thinking: str
    finished: Finished
    load_ms: float
    peak: float | None = None
    quiet: bool = True
    exact: bool = True
    backend: str = ""

    @property
    def bandwidth_peak(self) -> float | None:
        """The peak in GB/s, never below what the reply achieved."""
        return None if self.peak is None else max(self.peak, self.finished.timings.bandwidth_gbs or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`; undefined is None."""
        usage, timings = as_dict(self.finished.usage), as_dict(self.finished.timings)
        metrics = {"load_ms": self.load_ms, **{name: timings[name] for name in TIMING_FIELDS}}
        metrics["bandwidth_peak_gbs"] = self.bandwidth_peak
        return {
            "id": self.id,
            "conversation": self.conversation,
            "model": self.model,
            "text": self.text,
            "thinking": self.thinking or None,
            "finish_reason": self.finished.reason,
            "seed": self.finished.seed,
            "usage": {name: usage[name] for name in USAGE_FIELDS},
            "metrics": {name: finite(value) for name, value in metrics.items()},
        }

    def stats(self) -> str:
        """The figures in plain words, in a few lines."""
        usage, times = self.finished.usage, self.finished.timings
        exact = "exact" if self.exact else "not exact: tokens can depend on what else is in the batch"
        slow = " (not the fastest one: `termchat doctor` says why)" if self.backend == "reference" else ""
        lines = [
            f"prompt {usage.prompt_tokens} tokens, {usage.cached_tokens} of them cached; "
            f"reply {usage.completion_tokens} tokens ({self.finished.reason})",
            f"first token after {_ms(times.ttft_ms)} (queue {_ms(times.queue_ms)}, "
            f"prefill {_ms(times.prefill_ms)}); "
            f"then {_ms(times.itl_ms)} a token (95 % within {_ms(times.itl_p95_ms)}), "
            f"{_number(times.tokens_per_second)} tokens/s",
            f"memory traffic {_number(times.bandwidth_gbs)} GB/s, {self._share()}; "
            f"{self.backend} backend{slow}, {exact}; "
            f"model loaded in {_ms(self.load_ms)}; seed {self.finished.seed}",
        ]
        return "".join(f"{line}\n" for line in lines)

    def _share(self) -> str:
        achieved, peak = self.finished.timings.bandwidth_gbs, self.bandwidth_peak
        if peak is None:
            return "peak not measured"
        share = f"{100 * achieved / peak:.0f}" if achieved is not None else "?"
        busy = "" if self.quiet else ", measured while the machine was busy"
        return f"{share} % of the measured peak of {peak:.1f} GB/s{busy}"


class Presenter(Protocol):
    """Shows a reply while it comes."""

    async def start(self, id: str, conversation: str | None, model: str, seed: int) -> None:
        """The request is about to be made."""

    async def delta(self, answer: str, thinking: str, token_ids: tuple[int, ...]) -> None:
        """New text."""

    async def end(self, reply: Reply) -> None:
        """The reply is complete, or was stopped."""

    def failed(self, failure: Failure) -> None:
        """There will be no more; the message goes to standard error elsewhere."""


class PlainPresenter:
    """The answer and one newline. Thinking goes to standard error.

    What the text has of controls is the streams' affair (see `output`).
    """

    def __init__(self, console: Console, *, stream: bool = True) -> None:
        self._console = console
        self._stream = stream
        self._held: list[str] = []
        self._begun = False
        self._thinking = False

    async def start(self, id: str, conversation: str | None, model: str, seed: int) -> None:
        """Nothing is shown yet."""

    async def delta(self, answer: str, thinking: str, token_ids: tuple[int, ...]) -> None:
        """Show what is new, or keep it until the end."""
        if thinking:
            await self._think(thinking)
        if answer:
            await self._close_thinking()
            if self._stream:
                await self._show(answer)
            else:
                self._held.append(answer)

    async def end(self, reply: Reply) -> None:
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


class JsonPresenter:
    """One object when all is known; nothing on standard output after an error."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def start(self, id: str, conversation: str | None, model: str, seed: int) -> None:
        """Nothing yet."""

    async def delta(self, answer: str, thinking: str, token_ids: tuple[int, ...]) -> None:
        """Nothing yet."""

    async def end(self, reply: Reply) -> None:
        """The object."""
        await self._console.output.send(to_json(reply.as_dict()) + "\n", json=True)

    def failed(self, failure: Failure) -> None:
        """Nothing: an object on standard output is a reply."""


class JsonLinesPresenter:
    """Events, one a line: start, delta any number of times, then end or error."""

    def __init__(self, console: Console, *, stream: bool = True) -> None:
        self._console = console
        self._stream = stream

    async def start(self, id: str, conversation: str | None, model: str, seed: int) -> None:
        """The start event."""
        await self._send(
            {"event": "start", "id": id, "conversation": conversation, "model": model, "seed": seed}
        )

    async def delta(self, answer: str, thinking: str, token_ids: tuple[int, ...]) -> None:
        """A delta event; `thinking` is in it only where the model thinks."""
        if self._stream:
            more = {"thinking": thinking} if thinking else {}
            await self._send({"event": "delta", "text": answer, **more, "token_ids": token_ids})

    async def end(self, reply: Reply) -> None:
        """The end event, with the object of `--json`."""
        await self._send({"event": "end", **reply.as_dict()})

    def failed(self, failure: Failure) -> None:
        """Nothing: the program's last event, whatever it failed in, is written at its end."""

    async def _send(self, event: dict[str, Any]) -> None:
        await self._console.output.send(to_json(event) + "\n", json=True)


def finite(value: float | None) -> float | None:
    """The number, or None if it is none that JSON has."""
    return value if value is not None and math.isfinite(value) else None


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"


def _ms(value: float | None) -> str:
    return "?" if value is None else f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.1f} ms"
