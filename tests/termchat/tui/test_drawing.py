"""What the terminal has after all the partial updates is what drawing everything at once would give."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pyte
import pytest
from textual._compositor import CompositorUpdate
from textual.app import App, ComposeResult
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from termchat.tui.widgets.kept_rows import RowView
from termchat.tui.widgets.lines import Lines
from termchat.tui.widgets.message_rows import MessageRows
from termchat.tui.widgets.transcript import Transcript

SAID = (
    "# Title\n\nSome **bold** prose that wraps.\n\n- one\n- two\n\n```python\nx = 1\n```\n\n"
    "| a | b |\n|-|-|\n| 1 | 2 |\n\n"
)


class Terminal:
    """Takes in what the application writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.screen = pyte.Screen(1, 1)
        self._stream = pyte.Stream(self.screen)
        display = App._display

        def write(app: Any, screen: Any, update: Any) -> None:
            if isinstance(update, CompositorUpdate):
                self._resize(*app.size)
                self._stream.feed(update.render_segments(app.console))
            display(app, screen, update)

        monkeypatch.setattr(App, "_display", write)

    def _resize(self, width: int, height: int) -> None:
        if (self.screen.columns, self.screen.lines) != (width, height):
            self.screen.resize(height, width)

    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.screen.display]


async def drawn(driver: Any, terminal: Terminal) -> None:
    """Wait until what is marked as changed is drawn; what is not marked never would be."""
    await driver.until(lambda: terminal.rows() == driver.screen.split("\n"))


async def test_the_terminal_has_what_a_full_drawing_gives(
    open_app: Callable[..., Any], script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(monkeypatch)
    async with open_app(script(SAID * 8, SAID * 3, step=0.002), size=(120, 24)) as driver:
        await driver.say("first", wait=False)
        for _ in range(6):
            await asyncio.sleep(0.1)
            await driver.pilot.pause(0)
            driver.main.view.transcript.move_cursor(-1)
            await driver.pilot.pause(0.05)
            await drawn(driver, terminal)
        await driver.press("ctrl+n")
        await driver.say("second", wait=False)
        await driver.press("pageup")
        await driver.settle()
        await drawn(driver, terminal)
        transcript = driver.main.view.transcript
        transcript.follow()
        transcript.add(MessageRows("x", "assistant", complete=False))
        for piece in ("a", " b", " c\n\n", "d"):  # changes of a row, with nothing scrolling
            transcript.messages[-1].append(piece)
            transcript.flush()
            await driver.pilot.pause(0)
            await drawn(driver, terminal)
        for width, height in ((70, 30), (130, 20)):
            await driver.pilot.resize_terminal(width, height)
            await driver.pilot.pause(0.1)
            await drawn(driver, terminal)


async def test_kept_rows_are_those_that_textual_would_draw(
    open_app: Callable[..., Any], script: Callable[..., Any]
) -> None:
    def cells(strips: list[Any]) -> list[list[tuple[str, Any]]]:
        # Of a space only the background is seen.
        return [
            [(cell, style.bgcolor if cell == " " else style) for text, style, _ in strip for cell in text]
            for strip in strips
        ]

    rng = random.Random(5)
    async with open_app(script(SAID * 8, step=0.002), size=(120, 24)) as driver:
        await driver.say("first", wait=False)
        transcript = driver.main.view.transcript
        for moment in range(12):
            await asyncio.sleep(0.05)
            match rng.randrange(4):
                case 0:
                    transcript.move_cursor(-1)
                case 1:
                    transcript.scroll_to(y=rng.randint(0, 60), animate=False)
                case 2:
                    driver.app.theme = rng.choice(["dusk", "paper"])
                case 3:
                    transcript.follow()
            await driver.pilot.pause(0.05)
            whole = transcript.region.size.region
            kept = RowView.render_lines(transcript, whole)
            transcript._styles_cache.clear()
            assert cells(kept) == cells(ScrollView.render_lines(transcript, whole)), f"moment {moment}"
        assert isinstance(transcript, Transcript)
        await driver.settle()


async def test_a_scroll_bar_is_there_only_if_there_is_something_to_scroll(
    open_app: Callable[..., Any], script: Callable[..., Any]
) -> None:
    async with open_app(script(SAID * 8, "Short."), size=(120, 24)) as driver:
        await driver.say("first")
        transcript = driver.main.view.transcript
        await driver.until(lambda: transcript.show_vertical_scrollbar)
        await driver.press("ctrl+n")
        await driver.say("second")
        await driver.until(lambda: not transcript.show_vertical_scrollbar)
        driver.conversation.error = "something to say below it"
        driver.main.conversation_changed(driver.conversation)
        await driver.shows("something to say")
        await driver.pilot.pause(0.1)
        assert not transcript.show_vertical_scrollbar


class Counted(Lines):
    """Notes which of its rows are drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[int] = []

    def render_line(self, y: int) -> Strip:
        self.drawn.append(y)
        return super().render_line(y)


class OneBlock(App[None]):
    CSS = "Counted { width: 30; height: 8; padding: 1 2; }"

    def compose(self) -> ComposeResult:
        yield Counted()


async def test_only_the_lines_that_changed_are_drawn() -> None:
    """And all rows are then what drawing all of them gives."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    app = OneBlock()
    async with app.run_test():
        while not app.query(Counted) or app.query_one(Counted).size != Size(26, 6):
            await asyncio.sleep(0.01)
        block = app.query_one(Counted)
        whole = Region(0, 0, 30, 8)
        lines: list[str] = []
        for _ in range(50):
            before, count = lines, rng.randrange(7)
            lines = [*lines, *[""] * 6][:count]
            lines = [rng.choice((line, line, rng.choice("abc") * rng.randrange(40))) for line in lines]
            block.render_lines(whole)
            block.drawn.clear()
            block.show_lines([Content.styled(line, "bold") for line in lines])
            rows = block.render_lines(whole)
            changed = {y for y in range(6) if lines[y : y + 1] != before[y : y + 1]}
            assert set(block.drawn) == changed
            assert len(rows) == 8
            assert rows == block.draw_lines(whole)
