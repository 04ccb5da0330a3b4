"""Terminals that draw characters of ambiguous width two cells wide: each character has its place."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyte
import pytest
import rich.cells
from rich.console import Console
from rich.segment import Segment
from textual import events
from textual.drivers.linux_driver import LinuxDriver
from textual.strip import Strip

from termchat.ambiguous import STAND_INS, is_ambiguous
from termchat.cells import cell_len, count_ambiguous, fit, split_graphemes
from termchat.store import Store
from termchat.tui.terminal.driver import TerminalDriver
from termchat.tui.terminal.found import HOW_WIDE, WHAT_ARE_YOU
from termchat.tui.terminal.frame import Frame
from termchat.tui.terminal.input import Input
from termchat.tui.terminal.reports import Reports

ANSWER = events.CursorPosition(2, 1)
SAID = "Вопрос ①②③ ※ α β"
REPLY = """Привет, это текст на русском языке, который достаточно длинный, чтобы переноситься.

① ② ※ → ← … “quotes” — α β γ é ë ü 卡尔·马克思……

| a | бв | c |
|---|---|---|
| ① | ※※ | x |

- пункт

> цитата

```
├── src
│   └── main.py
╔═══╗
║ x ║ ☎\ufe0f ①
╚═══╝
```
"""


@pytest.fixture(autouse=True)
def narrow_again() -> Iterator[None]:
    yield
    count_ambiguous(1)


def terminal_cells(character: str) -> int:
    if unicodedata.category(character)[0] == "M":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WFA" else 1


class WideTerminal(pyte.Screen):
    """A terminal set to the widths of East Asian fonts. What is written over half a character removes it."""

    def draw(self, data: str) -> None:
        for character in data:
            row, x = self.buffer[self.cursor.y], self.cursor.x
            if not (cells := terminal_cells(character)):
                continue
            for at in range(x, min(self.columns, x + cells)):
                if row[at].data == "" and at and at - 1 not in range(x, x + cells):
                    row[at - 1] = row[at - 1]._replace(data=" ")
                if at + 1 < self.columns and row[at + 1].data == "":
                    row[at + 1] = row[at + 1]._replace(data=" ")
                row[at] = self.cursor.attrs._replace(data=character if at == x else "")
            self.cursor.x = min(self.columns, x + cells)


def drawn(app: Any) -> WideTerminal:
    screen = WideTerminal(*app.size)
    written = Frame(app.screen._compositor.render_full_update(), app.screen._compositor).render_segments(
        Console(force_terminal=True, color_system="truecolor")
    )
    pyte.Stream(screen).feed(written)
    return screen


def misplaced(app: Any) -> list[str]:
    """Rows in which a character is not drawn where it was laid out."""
    screen, wrong = drawn(app), []
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        x = 0
        for start, end, cells in split_graphemes(strip.text)[0]:
            character = strip.text[start:end].translate(STAND_INS)
            if screen.buffer[y][x].data != character[0]:
                wrong.append(f"{y}: {strip.text!r} at {x}: {screen.buffer[y][x].data!r} for {character!r}")
                break
            x += cells
        if x != app.size.width:
            wrong.append(f"{y}: {strip.text!r} takes {x} cells")
    return wrong


@pytest.mark.parametrize("late", [False, True])
async def test_every_character_stands_where_it_belongs(
    late: bool, open_app: Any, script: Any, tmp_path: Path
) -> None:
    with Store(tmp_path / "data" / "termchat.db") as store:
        store.create_conversation("one", model="")
        asked = store.add_message("one", "user", SAID)
        store.add_message("one", "assistant", REPLY, asked.id)
    async with open_app(script(), size=(130, 50), early=not late, conversation="one") as d:
        if not late:
            d.app.post_message(ANSWER)
        await d.shows("пункт")
        if late:
            d.app.post_message(ANSWER)
        await d.until(lambda: cell_len("①") == 2)
        await d.shows("пункт")
        await d.press(*"abc", "①", "б", "…")
        await d.settle()
        await d.until(lambda: not misplaced(d.app))
        await d.press("f1")
        await d.until(lambda: len(d.app.screen_stack) > 2)
        await d.pilot.pause()
        assert not misplaced(d.app)


async def test_the_answer_for_most_terminals_changes_nothing(open_app: Any, script: Any) -> None:
    async with open_app(script()) as d:
        for answer in (events.CursorPosition(1, 1), events.CursorPosition(2, 0), events.CursorPosition(5, 1)):
            d.app.post_message(answer)
        await d.pilot.pause()
        assert cell_len("①─…") == 3


def test_no_key_is_taken_for_the_answer_and_the_answer_for_no_key() -> None:
    for came, place in ((b"\x1b[2;3R", (2, 1)), (b"\x1b[1;3R", (2, 0))):
        (report,) = Reports().messages(Input().feed(came, 0.0))
        assert isinstance(report, events.CursorPosition)
        assert (report.x, report.y) == place


@pytest.mark.parametrize("bare", [False, True])
def test_a_terminal_that_may_not_understand_is_not_asked(bare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = TerminalDriver.__new__(TerminalDriver)
    written: list[str] = []
    for name in ("_hush", "_keep"):
        monkeypatch.setattr(driver, name, lambda: None, raising=False)
    monkeypatch.setattr("termchat.tui.terminal.driver.wait_for_foreground", lambda *_: None)
    monkeypatch.setattr("termchat.tui.terminal.driver.modes_of", lambda fileno: None)
    monkeypatch.setattr(LinuxDriver, "start_application_mode", lambda self: None)
    monkeypatch.setattr(driver, "write", written.append, raising=False)
    driver.fileno, driver._writer_thread, driver._reports = 0, cast(Any, True), Reports()
    driver._bare, driver._wheel_kept = bare, False
    driver.start_application_mode()
    assert (HOW_WIDE in written) is not bare
    assert written[-1] == WHAT_ARE_YOU, "its answer is behind all others"


def test_texts_are_measured_cut_and_filled_as_they_are_drawn() -> None:
    count_ambiguous(2)
    rng = random.Random(7)
    pool = "ab ①②αбé…“”—→é\u0301☎\ufe0f한漢─│●"
    for _ in range(300):
        text = "".join(rng.choices(pool, k=rng.randint(1, 20)))
        cells = cell_len(text)
        assert (
            cells
            == rich.cells.cell_len(text)
            == Segment(text).cell_length
            == Strip([Segment(text)]).cell_length
        )
        assert cells == sum(1 if ord(char) in STAND_INS else terminal_cells(char) for char in text)
        for width in range(1, cells + 3):
            assert cell_len(fit(text, width)) == width
            assert cell_len(rich.cells.set_cell_size(text, width)) == width
            if width <= cells:
                assert cell_len(rich.cells.split_text(text, width)[0]) == width
    assert cell_len("☎\ufe0f") == 2, "it is not wider still"
    assert not any(map(is_ambiguous, "─│█●·"))
