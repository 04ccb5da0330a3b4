"""Whatever bytes a terminal sends, in whatever pieces: nothing is sent, and the interface goes on."""

import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from textual import events

from termchat.tui.terminal.input import Input
from termchat.tui.terminal.reports import Reports

BEGIN, END = b"\x1b[200~", b"\x1b[201~"

KEYS = (
    b"\x7f", b"\x15", b"\x17", b"\x0b", b"\x01", b"\x05", b"\x09", b"\x0a", b"\x14", b"\x03", b"\x18",
    b"\x16", b"\x13", b"\x1f", b"\x1b", b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D", b"\x1b[H", b"\x1b[F",
    b"\x1b[5~", b"\x1b[6~", b"\x1b[3~", b"\x1b[Z", b"\x1b[1;5D", b"\x1b[1;3A", b"\x1b[1;2F", b"\x1b[13~",
    b"\x1b[15~", b"\x1b[20~", b"\x1b1", b"\x1b[97;;97u", b"\x1b[1089::99;5u", b"\x1b[97:65:97;2:2;65u",
    b"\x1b[99;5:3u", b"\x1b[57441;2u", b"\x1b[27u", b"\x1b[127;5u", b"\x1b[;;128104:8205:128105u",
)  # fmt: skip
OPENING = (
    b"\x0e", b"\x0f", b"\x02", b"\x07", b"\x10", b"\x12", b"\x0c", b"\x1bOP", b"\x1b[12~", b"\x1b[13~",
    b"\x1b[27;5;110~", b"\x1b[1090::110;5:1u",
)  # fmt: skip
ANSWERS = (
    b"\x1b[12;40R", b"\x1b[?62;22c", b"\x1b[>41;354;0c", b"\x1bP!|7E565445\x1b\\",
    b"\x1bP>|tmux 3.3a\x1b\\", b"\x1b[?2026;2$y", b"\x1b[?2048;2$y", b"\x1b]11;rgb:1e1e/1e1e/2e2e\x07",
    b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\", b"\x1b[?29u", b"\x1b[I", b"\x1b[O", b"\x1b[48;36;120;720;1200t",
    b"\x1b[48;0;9999;0;0t", b"\x1b[?997;1n",
)  # fmt: skip
TEXTS = (
    "hello ",
    "/help",
    "/new x",
    "@~nosuch",
    "日本語",
    "\U0001f468\u200d\U0001f469",
    "می\u200cخ",
    "[x](y)",
    "e\u0301",
)


def _number(rng: random.Random) -> int:
    return rng.choice((0, 1, 5, 12, 36, 99, 255, 1089, 57441, 65535, 99999999999999999999))


def _mouse(rng: random.Random) -> bytes:
    button, x, y = rng.randrange(100), rng.randrange(140), rng.randrange(50)
    if rng.random() < 0.5:
        return f"\x1b[<{button};{x};{y}{rng.choice('Mm')}".encode()
    return b"\x1b[M" + bytes(min(255, 32 + number) for number in (button, x, y))


def _any(rng: random.Random) -> bytes:
    """A control sequence that may mean anything."""
    numbers = rng.choice(";:").join(str(_number(rng)) for _ in range(rng.randrange(5)))
    return f"\x1b[{rng.choice(['', '?', '<', '>', '='])}{numbers}{chr(rng.randrange(0x40, 0x7F))}".encode()


def _mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 3)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _paste(rng: random.Random) -> bytes:
    lines = [
        rng.choice(TEXTS).encode()
        + rng.choice((b"\r", b"\n", b"\r\n", b"\x1b[31m", b"\x1b", b"\x1b[201", b""))
    ]
    content = b"".join(lines * rng.randrange(1, 5)) + rng.randbytes(rng.randrange(8)).replace(END, b"")
    return (b"" if rng.random() < 0.1 else BEGIN) + content + (b"" if rng.random() < 0.1 else END)


def stream(rng: random.Random, parts: int = 4) -> bytes:
    """Without a line end outside of pastes, so that nothing in it is the key Enter but by a report."""
    data = b""
    for _ in range(parts):
        kind = rng.random()
        if kind < 0.25:
            part = rng.choice(TEXTS).encode()
        elif kind < 0.45:
            part = rng.choice(KEYS if kind < 0.43 else OPENING)
        elif kind < 0.6:
            part = rng.choice(ANSWERS)
        elif kind < 0.7:
            part = _mouse(rng)
        elif kind < 0.78:
            part = _any(rng)
        elif kind < 0.88:
            data += _paste(rng) if rng.random() < 0.9 else BEGIN
            continue
        else:
            part = rng.randbytes(rng.randrange(1, 10))
        if rng.random() < 0.15:
            part = _mutated(rng, part)
        if rng.random() < 0.15:
            part = part[: rng.randrange(len(part) + 1)]
        data += part.replace(b"\r", b"").replace(b"\x11", b"").replace(b"\x1a", b"")
    return data


def reads(rng: random.Random, data: bytes) -> Iterator[bytes]:
    """It in pieces."""
    at = 0
    while at < len(data):
        size = rng.choice((1, 2, 3, 7, 20, 1000))
        yield data[at : at + size]
        at += size


STREAMS = 160
"""So many in the suite, at some 25 ms each; after changes to the input 2,000 are tried by hand."""
UNBOUND = '[keys]\nquit = ""\nsuspend = ""\n"prompt.editor" = ""\n"chat.delete" = ""\n'


class Feed:
    """The input of a terminal for an application without one. Its clock is its own."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._input, self._reports, self._now = Input(), Reports(), 0.0

    def read(self, data: bytes, after: float) -> None:
        self._now += after
        tokens = self._input.feed(data, self._now)
        self._give(self._reports.messages(tokens))

    def pause(self, seconds: float) -> None:
        self._now += seconds
        while (deadline := self._input.deadline) is not None and deadline <= self._now:
            self._give(self._reports.messages(self._input.tick(deadline)))

    def _give(self, messages: Any) -> None:
        for message in messages:
            # What a stream means by accident, as a report of that key, is not what this is about.
            if not (isinstance(message, events.Key) and message.key in ("enter", "ctrl+m")):
                self._app._driver.process_message(message)


async def test_random_streams_send_nothing_and_end_nothing(open_app: Any, script: Any) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    async with open_app(script("One."), config=UNBOUND) as d:
        feed = Feed(d.app)
        for number in range(STREAMS):
            for data in reads(rng, stream(rng)):
                feed.read(data, rng.choice((1e-4, 1e-4, 0.02, 0.3, 0.8)))
            feed.pause(3.0)
            if number % 20 == 19:
                with nullcontext() if number % 80 == 79 else d.app.batch_update():  # drawing takes the time
                    await d.typed()
                assert d.app.fault is None, number
                d.main.prompt.load("")
        assert not any(chat.messages or chat.queue for chat in d.app.conversations.all)
        feed.pause(20.0)
        for _ in range(5):
            feed.read(b"\x1b", 0.5)
            feed.pause(0.5)
            await d.typed()
        d.main.prompt.load("")
        feed.read(b"ok", 1.0)
        await d.until(lambda: d.main.prompt.text == "ok")
