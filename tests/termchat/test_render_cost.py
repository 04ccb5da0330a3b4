"""What one append makes anew does not grow with the text: counted, not timed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from termchat.render import Document, fence, inline, strips

pytestmark = pytest.mark.slow

Kind = tuple[str, Callable[[int], str]]

KINDS: dict[str, Kind] = {
    "bullets": ("", lambda i: f"- item {i} with **bold**, `code` and a few more plain words\n"),
    "nested bullets": ("- top\n", lambda i: f"  - item {i} with **bold** and a few more plain words\n"),
    "numbers": ("", lambda i: f"{i + 1}. item with *emphasis* and a few more plain words in it\n"),
    "fence": ("```python\n", lambda i: f"    value_{i} = compute(x, y={i})  # step {i}\n"),
    "fence in a list": (
        "1. run\n   ```python\n",
        lambda i: f"   value_{i} = compute(x, y={i})  # step {i}\n",
    ),
    "indented code": ("", lambda i: f"    value_{i} = compute(x, y={i})  # step {i}\n"),
    "table": ("| n | name | note |\n|---|---|---|\n", lambda i: f"| {i} | name {i} | some **note** here |\n"),
    "quote": ("", lambda i: f"> line {i} of a quotation that goes on and on\n"),
    "list in a quote": ("", lambda i: f"> - item {i} of a quotation that goes on and on\n"),
    "prose": ("", lambda i: f"Sentence {i} of a story with *some* words. " + ("\n\n" if i % 5 == 4 else "")),
    "one paragraph": ("", lambda i: f"Sentence {i} of a story with *some* emphasis in it. "),
    "one paragraph of lines": ("", lambda i: f"Line {i} of a paragraph with *some* emphasis in it.\n"),
    "one heading": ("# ", lambda i: f"Words {i} of a heading without an end. "),
    "open emphasis": ("**", lambda i: f"Sentence {i} that is all bold. "),
    "one word": ("", lambda i: f"word{i}"),
    "CJK": ("", lambda i: f"第{i}句是一个没有空格的长句子。"),
    "one line of code": ("```python\n", lambda i: f"f({i})+"),
    "as typed": ("", lambda i: f"line {i} of something that is not Markdown\n"),
    "as typed in one line": ("", lambda i: f"part {i} of something that is not Markdown "),
}


def pieces(text: Callable[[int], str]) -> Iterator[str]:
    rest = ""
    for index in itertools.count():
        rest += text(index)
        while len(rest) > 16:
            yield rest[:16]
            rest = rest[16:]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A counter of what costs time: rows made, characters of Markdown parsed, characters highlighted."""
    done = [0]
    row, tokens, highlight = strips.Row.__init__, inline._tokens, fence._highlight

    def counting_row(self: strips.Row, *arguments: object, **more: object) -> None:
        done[0] += 50
        row(self, *arguments, **more)  # type: ignore[arg-type]

    def counting_tokens(text: str) -> object:
        done[0] += len(text)
        return tokens(text)

    def counting_highlight(lines: list[str], language: str) -> object:
        done[0] += sum(map(len, lines))
        return highlight(lines, language)

    monkeypatch.setattr(strips.Row, "__init__", counting_row)
    monkeypatch.setattr(inline, "_tokens", counting_tokens)
    monkeypatch.setattr(fence, "_highlight", counting_highlight)
    inline._complete.cache_clear()
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_B073_an_append_costs_the_same_at_4500_tokens_as_at_500(kind: str, work: list[int]) -> None:
    opening, text = KINDS[kind]
    document = Document(opening, markdown=not kind.startswith("as typed"))
    stream = pieces(text)

    def append(count: int) -> int:
        before = work[0]
        for piece in itertools.islice(stream, count):
            document.append(piece)
            document.layout(100)
        return work[0] - before

    append(125)  # 500 tokens of 4 characters
    early = append(80)
    for _ in range(88):  # ten appends shown at once
        document.append("".join(itertools.islice(stream, 10)))
        document.layout(100)
    late = append(80)
    assert late <= 1.5 * early, f"{late} against {early}"
    assert late <= 80 * 9000, "an append makes too much anew"
