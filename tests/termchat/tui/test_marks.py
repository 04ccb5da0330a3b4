"""What is marked is seen: the cursor's row of a list and selected text, in every theme, with any colours."""

from __future__ import annotations

from typing import Any

import pytest
from rich.style import Style
from textual.color import Color
from textual.content import Content
from textual.selection import Selection
from textual.strip import Strip
from textual.widgets import Input, OptionList

from termchat.themes import contrast
from termchat.tui.app import TermchatApp
from termchat.tui.screens.picker import Item, Picker

REPLY = "plain **bold** `code` [link](http://example.org)\n\n# Heading\n\n```python\nx = 1  # comment\n```"
FEW = ("dusk", "terminal")
OTHERS = ("nord", "textual-light")  # Textual's, the hardest of them


def letters(strip: Strip) -> list[tuple[str, Style]]:
    """The letters of a row that are content, with their styles."""
    found = [(char, style) for text, style, _ in strip if style for char in text if char.strip()]
    content = [(char, style) for char, style in found if "offset" in style.meta]
    return [(char, style) for char, style in content or found if char not in "▏|"]


def check(where: str, plain: Strip, marked: Strip) -> None:
    """Each marked letter can be read, and looks other than before, not by its ink alone."""
    before, after = letters(plain), letters(marked)
    assert [char for char, _ in before] == [char for char, _ in after]
    assert after
    for (char, one), (_, other) in zip(before, after, strict=True):
        if other.reverse:
            assert not one.reverse, (where, char)
            continue
        if other.color is None and other.bgcolor is None:  # none are wanted, and the terminal's are used
            assert (other.bold, other.underline) == (True, True), (where, char)
            assert not one.underline, (where, char)
            continue
        assert other.color is not None, (where, char)
        assert other.bgcolor is not None, (where, char)
        ink, ground, old = (
            Color.from_rich_color(colour) for colour in (other.color, other.bgcolor, one.bgcolor)
        )
        if ground.ansi is not None:
            assert ground.ansi not in (old.ansi, ink.ansi), (where, char)
            continue
        assert contrast(ink, ground) >= 2.5, (where, char, ink, ground)
        assert contrast(ground, old) >= 1.1, (where, char, ground, old)


@pytest.fixture(params=["", "NO_COLOR", "ascii"])
def surroundings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    return str(request.param)


def themes(app: Any, surroundings: str) -> list[str]:
    """Those to try: with fewer colours or signs fewer."""
    return list(FEW) if surroundings else [*app._themes, *OTHERS]


async def test_B2_selected_text_can_be_read_in_every_theme(
    surroundings: str, open_app: Any, script: Any
) -> None:
    async with open_app(script(REPLY), config=f"ascii = {str(surroundings == 'ascii').lower()}\n") as d:
        await d.say("show me")
        transcript = d.main.view.transcript
        for name in themes(d.app, surroundings):
            d.app.theme = name
            await d.pilot.pause()
            plain = [transcript.render_line(y) for y in range(12)]
            d.app.screen.selections = {transcript: Selection(None, None)}
            marked = [transcript.render_line(y) for y in range(12)]
            d.app.screen.selections = {}
            rows = [y for y in range(12) if any(w in plain[y].text for w in ("plain", "Head", "x = 1"))]
            assert len(rows) == 3
            for y in rows:
                check(f"{name}, row {y}", plain[y], marked[y])


async def test_B7_every_list_shows_its_cursor_in_every_theme(
    surroundings: str, open_app: Any, script: Any
) -> None:
    async def search(query: str) -> list[Item]:
        return [Item(Content("item"), n, Content("detail").stylize("$chat-muted")) for n in range(4)]

    async with open_app(script(), config=f"ascii = {str(surroundings == 'ascii').lower()}\n") as d:
        picker = Picker("Choose", search)
        d.app.push_screen(picker)
        await d.until(lambda: picker.is_mounted and picker.query(OptionList))
        options = picker.query_one(OptionList)
        await d.until(lambda: options.option_count == 4)
        for name in themes(d.app, surroundings):
            d.app.theme = name
            for focused in (Input, OptionList):  # a list is walked from the line above it, too
                picker.query_one(focused).focus()
                await d.pilot.pause()
                for y in (0, 1):
                    row, other = options.render_line(y), options.render_line(y + 2)
                    check(f"{name}, {focused.__name__}, row {y}", other, row)


async def test_the_conversation_on_screen_is_marked_by_a_sign(open_app: Any, script: Any) -> None:
    async with open_app(script("one", "two")) as d:
        await d.say("first")
        await d.press("ctrl+n")
        await d.say("second")
        listed = [row[:26] for row in d.screen.splitlines()]
        assert any(row.startswith("▌") and "second" in row for row in listed)
        assert any(row.startswith(" ") and "first" in row for row in listed)


async def test_B18_a_terminal_with_16_colours_gets_its_own_colours(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TermchatApp, "_few_colours", True)
    async with open_app(script()) as d:
        assert d.app.theme == "terminal"
    async with open_app(script(), config="theme = 'paper'\n") as d:
        assert d.app.theme == "paper", "what the user asks for is used"
        variables = d.app.theme_variables
        assert variables["block-cursor-blurred-background"] == variables["primary"], "no shade to rely on"
        assert variables["selection-text-style"] == "reverse"
