"""What one append costs late in a long reply against early in it, for replies that are one open block.

    python benchmarks/render_append.py [--width 100] [--appends 200]

Two documents of the same kind, one with 500 tokens and one with 4,500, are appended to in turn, so both see the
same machine. An append is one coalesced update: 4 tokens (60 tokens/s shown every 66 ms), laid out and turned
into strips. The figure that counts is the ratio of the means; 1.0 is ideal, and an append that renders the
block again would show 9.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator

from rich.style import Style

from termchat.render import Document, Palette

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
    """Seconds for one update: store, lay out, render what changed."""
    piece = "".join(itertools.islice(stream, PER_APPEND))
    start = time.perf_counter()
    document.append(piece)
    for y in range(document.layout(width), document.height):
        row = document.row(y)
        assert row is not None
        row.strip(PALETTE, width)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--appends", type=int, default=200)
    options = parser.parse_args()
    print(
        f"{'':22}{'at 500':>10}{'at 4500':>10}{'ratio':>8}{'worst':>10}   (ms an append of {PER_APPEND} tokens)"
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


if __name__ == "__main__":
    main()
