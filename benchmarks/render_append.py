"""What drawing costs: one append late in a long reply against early in it, and a long conversation.

    python benchmarks/render_append.py [--width 100] [--appends 200]

Appends: two documents of the same kind (one open block), one with 500 tokens and one with 4,500, are appended
to in turn, so both see the same machine. An append is one coalesced update: 4 tokens (60 tokens/s shown every
66 ms), laid out and turned into strips. The figure that counts is the ratio of the means; 1.0 is ideal, and
an append that renders the block again would show 9.

Conversation: showing one, switching the theme and resizing, with 20 turns and with 200, in a headless app.

All times are of this thread on the processor, so that a busy machine matters little.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator

from rich.style import Style
from textual.app import App, ComposeResult

from termchat.render import Document, Palette
from termchat.themes import variable_defaults
from termchat.tui.widgets.message_rows import MessageRows
from termchat.tui.widgets.transcript import Transcript

EARLY, LATE, PER_APPEND = 500, 4500, 4
PALETTE = Palette({"strong": Style(bold=True), "code": Style(color="cyan")}, Style(color="white"))


def tokens(text: Callable[[int], str]) -> Iterator[str]:
    """An endless text in pieces of about 4 characters, as tokens are."""
    rest = ""
    for index in itertools.count():
        rest += text(index)
        while len(rest) > 4:
            yield rest[:4]
            rest = rest[4:]


KINDS: dict[str, tuple[str, Callable[[int], str]]] = {
    "bullet list": ("", lambda i: f"- item {i} with **bold**, `code` and a few more plain words\n"),
    "nested list": ("- top\n", lambda i: f"  - item {i} with **bold** and a few more plain words\n"),
    "numbered list": ("", lambda i: f"{i + 1}. item with *emphasis* and a few more plain words in it\n"),
    "code fence": ("```python\n", lambda i: f"    value_{i} = compute(x, y={i})  # step {i}\n"),
    "fence in a list": (
        "1. run\n   ```python\n",
        lambda i: f"   value_{i} = compute(x, y={i})  # step {i}\n",
    ),
    "table": ("| n | name | note |\n|---|---|---|\n", lambda i: f"| {i} | name {i} | some **note** here |\n"),
    "quote": ("", lambda i: f"> line {i} of a quotation that goes on and on\n"),
    "prose": (
        "",
        lambda i: f"Sentence {i} of a story with *some* emphasis. " + ("\n\n" if i % 5 == 4 else ""),
    ),
    "one paragraph": ("", lambda i: f"Sentence {i} of a story with *some* emphasis in it. "),
    "one line, no spaces": ("", lambda i: f"word{i}"),
    "one line of code": ("```python\n", lambda i: f"f({i})+"),
    "as typed": ("", lambda i: f"line {i} of something that is not Markdown\n"),
}


def append(document: Document, stream: Iterator[str], width: int) -> float:
    """Seconds of one update: store, lay out, render what changed."""
    piece = "".join(itertools.islice(stream, PER_APPEND))
    start = time.thread_time()
    document.append(piece)
    for y in range(document.layout(width), document.height):
        row = document.row(y)
        assert row is not None
        row.strip(PALETTE, width)
    return time.thread_time() - start


ANSWER = "\n".join(
    [
        "Some *prose* to begin with, a **few** sentences of it, with `code` in them. " * 4,
        "",
        *(f"{i}. item {i} of a list, with **bold** words" for i in range(8)),
        "\n```python",
        *(f"    value_{i} = compute(x, y={i})  # step {i}" for i in range(12)),
        "```\n\n| a | b | c |\n|---|---|---|",
        *(f"| {i} | name {i} | some note |" for i in range(6)),
    ]
)


class ConversationApp(App[None]):
    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield Transcript()


async def conversation(turns: int) -> dict[str, float]:
    """Milliseconds of each step, less those of a pause in which nothing happens."""
    app = ConversationApp()
    async with app.run_test(size=(120, 40)) as pilot:
        transcript = app.query_one(Transcript)
        themes = itertools.cycle(["nord", "gruvbox"])
        widths = itertools.cycle([100, 120])

        def show() -> None:
            pairs = ((f"Question {i}?", ANSWER) for i in range(turns))
            texts = itertools.chain.from_iterable(pairs)
            transcript.show(
                MessageRows(str(i), "assistant" if i % 2 else "user", text) for i, text in enumerate(texts)
            )

        def switch() -> None:
            app.theme = next(themes)

        async def measure(step: Callable[[], None | Awaitable[None]]) -> float:
            start = time.thread_time()
            if (waiting := step()) is not None:
                await waiting
            await pilot.pause()
            await pilot.pause()
            return 1000 * (time.thread_time() - start)

        steps: dict[str, Callable[[], None | Awaitable[None]]] = {
            "show": show,
            "theme": switch,
            "resize": lambda: pilot.resize_terminal(next(widths), 40),
        }
        show()
        idle = statistics.median([await measure(lambda: None) for _ in range(5)])
        return {
            name: statistics.median([await measure(step) for _ in range(5)]) - idle
            for name, step in steps.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--appends", type=int, default=200)
    options = parser.parse_args()
    print(
        f"{'append':22}{'at 500':>10}{'at 4500':>10}{'ratio':>8}{'worst':>10}   (ms for {PER_APPEND} tokens)"
    )
    for kind, (opening, text) in KINDS.items():
        runs = []
        for size in (EARLY, LATE):
            stream = tokens(text)
            document = Document(opening, markdown=kind != "as typed")
            for _ in range(size // PER_APPEND):
                append(document, stream, options.width)
            runs.append((document, stream))
        costs: tuple[list[float], list[float]] = ([], [])
        for _ in range(options.appends):
            for (document, stream), cost in zip(runs, costs, strict=True):
                cost.append(1000 * append(document, stream, options.width))
        early, late = statistics.mean(costs[0]), statistics.mean(costs[1])
        print(f"{kind:22}{early:10.2f}{late:10.2f}{late / early:8.2f}{max(costs[1]):10.2f}")
    short, long = (asyncio.run(conversation(turns)) for turns in (20, 200))
    print(f"\n{'conversation':22}{'20 turns':>10}{'200 turns':>10}{'ratio':>8}   (ms)")
    for step, value in long.items():
        print(f"{step:22}{short[step]:10.1f}{value:10.1f}{value / short[step]:8.2f}")


if __name__ == "__main__":
    main()
