"""Doubtful tokens of a reply: where they are in the answer, and where that is drawn."""

from __future__ import annotations

import math
import random

import pytest

from engine import TextDelta, TokenLogprob
from engine.tokenization import StreamDecoder, Tokenizer, load_tokenizer
from termchat.render import Document, Marks
from termchat.thinking import ReplyText, ThinkingSplitter
from termchat.tui.conversations.doubts import Doubts

TEXT = """# On 🫠 faces

Some **bold words** and `code`, a [link](http://example.org/a/b), naïve *and* 中文字.

- one item
  - another item, which is long enough to wrap around at a width of some twenty cells
1. numbered

| left | right |
|------|-------|
| cell | other cell |

```python
x = 1  # comment
```

> quoted text

Last words."""


@pytest.fixture(scope="module")
def tokenizer(default_model) -> Tokenizer:
    return load_tokenizer(default_model)


def entries_of(tokenizer: Tokenizer, ids: list[int], rng: random.Random) -> list[tuple[str, TokenLogprob]]:
    """Each token with the text that it brings, and what the engine says of it."""
    decoder, decoded, found = StreamDecoder(tokenizer), 0, []
    for token in ids:
        text = decoder.push([token])
        chance = rng.choice([0.9, 0.9, 0.9, 0.3, 0.1])
        found.append((text, TokenLogprob(token, math.log(chance), (), tokenizer.token_text(token), decoded)))
        decoded += len(text)
    return found


@pytest.mark.parametrize("thinks", [False, True])
def test_doubtful_tokens_are_found_however_the_text_comes(tokenizer: Tokenizer, thinks: bool) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        print("seed", seed)
        whole = f"<think>Hm, {TEXT[:30]}</think>\n\n{TEXT}" if thinks else TEXT
        entries = entries_of(tokenizer, tokenizer.encode(whole), rng)
        reply, doubts, at = ReplyText(ThinkingSplitter()), Doubts(), 0
        while at < len(entries):
            some = entries[at : at + rng.randrange(1, 6)]
            at += len(some)
            delta = TextDelta("".join(t for t, _ in some), (), tuple(e for _, e in some))
            new, _ = reply.push(delta.text)
            doubts.push(delta, new, reply.text)
        assert reply.text == TEXT
        skipped = len(whole) - len(TEXT)
        ends = [entry.offset for _, entry in entries[1:]] + [len(whole)]
        wanted, least = [], 0.0
        for (_, entry), end in zip(entries, ends, strict=True):
            least = min(least, entry.logprob)
            if end > entry.offset:
                start, stop = entry.offset - skipped, end - skipped
                if start >= 0 and math.exp(least) < 0.5 and (word := TEXT[start:stop].strip()):
                    level = "unlikely" if math.exp(least) < 0.2 else "doubtful"
                    start = TEXT.index(word, start)
                    wanted.append((start, start + len(word), level))
                least = 0.0
        assert doubts.spans == wanted
        assert doubts.spans


def test_what_stands_elsewhere_than_the_engine_says_is_not_marked() -> None:
    """A model that thinks twice: of its second answer the place is not known."""
    doubts = Doubts()
    entry = TokenLogprob(1, math.log(0.1), (), " word", 0)
    doubts.push(TextDelta(" word", (1,), (entry,)), "word", "word")
    assert doubts.spans == []
    doubts.push(TextDelta(" word", (1,), (entry,)), " word", "word word")
    assert doubts.spans == []


def marked(document: Document, marks: Marks) -> list[tuple[int, str, str]]:
    """The line, text and style of each mark, from the rows that are drawn."""
    found: dict[tuple[int, int, int, str], str] = {}
    for y in range(document.height):
        row = document.row(y)
        assert row is not None
        for mark in marks.of(row):
            part = row.content[max(0, mark.start - row.offset) : max(0, mark.end - row.offset)]
            key = row.line, mark.start, mark.end, mark.style
            found[key] = found.get(key, "") + part
    return [(line, text, style) for (line, _, _, style), text in sorted(found.items())]


WORDS = ["faces", "bold", "words", "code", "link", "and", "中文", "item", "another", "wrap", "cells"]
WORDS += ["numbered", "comment", "quoted", "Last"]


@pytest.mark.parametrize("width", [20, 80])
def test_marks_are_where_the_words_are_drawn(width: int) -> None:
    spans, at = [], 0
    for word in WORDS:
        at = TEXT.index(word, at)
        spans.append((at, at + len(word), "doubtful"))
        at += len(word)
    document = Document(TEXT, complete=True, first_line=1 << 31)
    document.layout(width)
    marks = Marks(document)
    marks.update(spans)
    found = marked(document, marks)
    assert [text for _, text, _ in found] == WORDS
    for seed in range(20):  # the same while it streams, with widths that change
        rng = random.Random(seed)
        print("seed", seed)
        growing, at = Document(first_line=1 << 31), 0
        live = Marks(growing)
        while at < len(TEXT):
            piece = TEXT[at : at + rng.randrange(1, 60)]
            growing.append(piece)
            at += len(piece)
            growing.layout(rng.choice([20, 50, 80]))
            live.update([span for span in spans if span[1] <= at])
        growing.finish()
        growing.layout(width)
        live.update(spans)
        assert marked(growing, live) == found


def test_a_closing_mark_and_a_text_of_marks_only_do_no_harm() -> None:
    for text in ("**", "***a***", "`", "", "\n\n\n", "a\\*b", "&amp; x", "$\\alpha$ y", "| a |\n|---|"):
        document = Document(text, complete=True)
        document.layout(10)
        marks = Marks(document)
        marks.update([(i, i + 1, "unlikely") for i in range(len(text))])
        marked(document, marks)
