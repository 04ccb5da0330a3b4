"""What is selected with the mouse is what lies between the two ends, and nothing of other parts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from termchat.render.strips import Row
from termchat.tui.terminal.input import Input
from termchat.tui.terminal.reports import Reports
from termchat.words import word_at

REPLY = "First words that wrap.\n\n- see /etc/hosts_1, 你好 wide\n\nlast line"
LEFT, DRAG = 0, 32


class Mouse:
    """Of a terminal that reports it."""

    def __init__(self, d: Any) -> None:
        self._d = d

    def _report(self, button: int, at: tuple[int, int], end: str = "M") -> None:
        data = f"\x1b[<{button};{at[0] + 1};{at[1] + 1}{end}".encode()
        for message in Reports().messages(Input().feed(data, 0.0)):
            self._d.app.post_message(message)

    def find(self, text: str, after: int = 0) -> tuple[int, int]:
        """Column and row of the cell where a text begins on the screen; there is nothing wide before it."""
        for y, row in enumerate(self._d.screen.split("\n")):
            if text in row:
                return row.index(text) + after, y
        raise AssertionError(f"{text} is not on the screen:\n{self._d.screen}")

    async def drag(self, start: tuple[int, int], *ends: tuple[int, int]) -> str:
        """The selection of a pointer that went this way."""
        self._report(LEFT, start)
        for end in ends:
            self._report(DRAG, end)
        self._report(LEFT, ends[-1], "m")
        return await self._selected()

    async def click(self, at: tuple[int, int], times: int) -> str:
        for _ in range(times):
            self._report(LEFT, at)
            self._report(LEFT, at, "m")
        return await self._selected()

    async def _selected(self) -> str:
        await self._d.typed()
        await self._d.settle()
        return self._d.main.get_selected_text() or ""


async def test_mouse_selection_ends_where_the_pointer_is(open_app: Any, script: Any) -> None:
    async with open_app(script(REPLY), size=(120, 30)) as d:
        await d.say("question")
        await d.shows("last line")
        mouse = Mouse(d)
        first, last = mouse.find("First"), mouse.find("last line")
        assert await mouse.drag(first, (first[0] + 4, first[1])) == "First"
        assert await mouse.drag((first[0] + 4, first[1]), first) == "First"
        blank = (first[0] + 8, first[1] + 1)
        assert await mouse.drag(first, blank) == "First words that wrap."
        assert await mouse.drag(blank, mouse.find("see", 2)) == "see"
        beside = (118, first[1])  # the panel
        assert await mouse.drag(first, beside) == "First words that wrap."
        assert await mouse.drag((first[0] + 6, first[1]), (2, first[1])) == "First w"  # the list
        below = (first[0], 29)
        assert await mouse.drag(last, below) == "last line"
        label = mouse.find("❯ you")  # no part of the text: it begins below
        assert await mouse.drag(label, (first[0] + 4, first[1])) == "question\n\nFirst"
        wide = mouse.find("你")
        assert await mouse.drag(wide, (wide[0] + 2, wide[1])) == "你好"
        assert await mouse.drag(first, beside, (first[0], first[1])) == "F"
        assert await mouse.click(last, 1) == ""


async def test_mouse_selection_takes_words_and_paragraphs(open_app: Any, script: Any) -> None:
    async with open_app(
        script("one.  two three " + "word " * 40 + "end.\n\n`x-y` next"), size=(100, 30)
    ) as d:
        await d.say("question")
        await d.shows("end.")
        mouse = Mouse(d)
        assert await mouse.click(mouse.find("two", 1), 2) == "two"
        assert await mouse.click(mouse.find("one"), 2) == "one"
        assert await mouse.click(mouse.find("x-y"), 2) == "x-y"
        assert await mouse.click(mouse.find("two", 2), 3) == d.conversation.messages[-1].text.split("\n")[0]
        d.main.prompt.load("say hello_world again")
        await d.shows("hello_world")
        await mouse.click(mouse.find("hello_world", 3), 2)
        assert d.main.prompt.selected_text == "hello_world"
        await mouse.click(mouse.find("hello_world", 3), 3)
        assert d.main.prompt.selected_text == "say hello_world again"


async def test_mouse_selection_takes_a_word_that_is_wrapped_whole(open_app: Any, script: Any) -> None:
    address = "https://example.org/" + "/".join(f"part{i}" for i in range(30))
    async with open_app(script(f"see {address} and"), size=(100, 30)) as d:
        await d.say("question")
        await d.shows(" and")
        mouse = Mouse(d)
        x, y = mouse.find("see", 1)
        assert await mouse.click((x, y), 2) == "see"
        for row in (y + 1, y + 2):
            assert await mouse.click((x + 7, row), 2) == address
        assert await mouse.click((x, y + 1), 3) == f"see {address} and"


async def test_a_copied_selection_ends_so_that_the_same_key_stops_a_reply(open_app: Any, script: Any) -> None:
    async with open_app(script("one two"), size=(100, 30)) as d:
        await d.say("question")
        await d.shows("one two")
        mouse = Mouse(d)
        assert await mouse.click(mouse.find("two"), 2) == "two"
        await d.press("ctrl+c")
        await d.shows("copied")
        assert d.app.clipboard == "two"
        assert not d.main.get_selected_text()
        d.main.prompt.load("text")
        await d.press("ctrl+c")
        await d.shows("emptied")


async def test_mouse_selection_scrolls_on_outside(open_app: Any, script: Any) -> None:
    async with open_app(script("\n".join(f"- item {n}" for n in range(100))), size=(100, 20)) as d:
        await d.say("question")
        await d.shows("item 99")
        mouse, transcript = Mouse(d), d.main.view.transcript
        mouse._report(LEFT, mouse.find("item 99"))
        mouse._report(DRAG, (40, 0))
        await d.until(lambda: transcript.scroll_offset.y == 0)
        mouse._report(LEFT, (40, 0), "m")
        await d.settle()
        assert "item 0\n" in d.main.get_selected_text()
        assert not transcript.following
        top = transcript.scroll_offset.y
        mouse._report(LEFT | DRAG, (40, 19))  # let go before: nothing is selected on
        await d.settle()
        assert transcript.scroll_offset.y == top


@pytest.mark.parametrize("seed", range(20))
def test_mouse_selection_finds_each_character_of_a_row(seed: int) -> None:
    random_ = random.Random(seed)
    parts = ["a", "é", "你", "e\u0301", "👨\u200d👩\u200d👧", "❤\ufe0f", " ", "\u200d", "ක්\u200dෂ"]
    content = "".join(random_.choices(parts, k=12))
    row = Row([("• ", "marker"), (content, "")], line=3, offset=7, lead=1)
    assert row.characters_at(0) == row.characters_at(1) == (7, 7)
    ends = (7 + len(content),) * 2
    found = [row.characters_at(cell) for cell in range(2, 80)]
    assert found[-1] == ends
    assert sorted(set(found)) == list(dict.fromkeys(found)), (seed, content)
    for start, end in dict.fromkeys(found):
        cells = row.cells(start, end)
        assert cells is None or row.characters_at(cells[0]) == (start, end), (seed, content)


@pytest.mark.parametrize(
    ("text", "at", "word"),
    [
        ("see /etc/hosts_1, now", 6, "/etc/hosts_1"),
        ("(/etc/hosts)", 4, "/etc/hosts"),
        ("(/etc/hosts)", 0, "("),
        ("in ~/.bashrc.", 3, "~/.bashrc"),
        ("run ../a/b-c ./d", 5, "../a/b-c"),
        ("1 / 2", 2, "/"),
        ("/", 0, "/"),
        ("and/or", 3, "and/or"),
        ("go https://a.b/c?x=1&y=2.", 10, "https://a.b/c?x=1&y=2"),
        ("it's", 0, "it"),
        ("a  b", 1, "  "),
        ("x == y", 2, "=="),
        ("ab", 2, ""),
        ("", 0, ""),
        ("naïve-é", 3, "naïve-é"),
    ],
)
def test_words_under_the_pointer(text: str, at: int, word: str) -> None:
    start, end = word_at(text, at)
    assert text[start:end] == word


async def test_mouse_selection_stands_still_while_text_comes(open_app: Any, script: Any) -> None:
    """A pointer that is moved down by two rows selects two rows, not what has come below since."""
    reply = "".join(f"line {i}\n\n" for i in range(900))
    async with open_app(script(reply, step=0.004, context=8192), size=(100, 24)) as d:
        await d.say("tell", wait=False)
        await d.shows("line 12")
        mouse = Mouse(d)
        column, start = mouse.find("line ")
        mouse._report(LEFT, (column, start))
        await d.typed()
        held = d.screen.split("\n")[start : start + 6]  # the row may have moved before it was held
        mouse._report(DRAG, (column, start))
        await d.until(lambda: d.main.view.unseen)
        rows = d.screen.split("\n")
        assert [row[:90] for row in rows[start : start + 6]] == [row[:90] for row in held]
        top = start if "line" in rows[start] else start + 1
        mouse._report(DRAG, (column + 1, top + 2))
        mouse._report(LEFT, (column + 1, top + 2), "m")
        await d.typed()
        assert d.main.get_selected_text() == f"{rows[top][column:90].strip()}\n\nli"
        await d.press("ctrl+c")
        await d.until(lambda: d.main.view.transcript.following)
        assert d.conversation.busy
        await d.press("ctrl+c")
        await d.settle()
