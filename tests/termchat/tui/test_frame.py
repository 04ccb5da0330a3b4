"""The bytes that go to the terminal: nothing in a text can do anything there, and no width does damage."""

from __future__ import annotations

import os
import re
import termios
from pathlib import Path
from typing import Any

import pyte
import pytest
from rich.console import Console
from textual.content import Content
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.widgets import OptionList

from termchat.model_entry import LocalSource, ModelEntry
from termchat.registry import Registry
from termchat.sanitize import visible
from termchat.store import Store
from termchat.tui.screens.dialogs import AskLine, AskText, Choose
from termchat.tui.screens.picker import Item, Picker
from termchat.tui.terminal.driver import TerminalDriver
from termchat.tui.terminal.found import CLEAR
from termchat.tui.terminal.frame import Frame

NASTY = "a\x1b]0;owned\x07b\x1b[2Jc\x9b31md\u202ee\u2066f\U000e0041g\x08h"
OURS = re.compile(r"\x1b\[[\d;]*[mHG]")
FAMILY = "👨\u200d👩\u200d👧\u200d👦"


def frame(app: Any, *regions: Region) -> str:
    """What would be written now: all, or these regions of the screen."""
    compositor = app.screen._compositor
    if regions:
        compositor._dirty_regions.update(regions)
        update = compositor.render_partial_update()
    else:
        update = compositor.render_full_update()
    written = Frame(update, compositor).render_segments(
        Console(force_terminal=True, color_system="truecolor")
    )
    assert isinstance(written, str)
    return written


def harmless(app: Any) -> str:
    """The text of the screen, all of which can do nothing."""
    text = OURS.sub("", frame(app))
    assert visible(text) == text, re.findall(r".{0,20}[^\x20-\U000fffff].{0,20}", text)
    assert text.isprintable() or not set(text) & set(NASTY[1:2] + "\x07\x9b\u202e\n\t\r")
    return text


async def test_no_text_on_the_main_screen_can_do_anything(open_app: Any, script: Any) -> None:
    async with open_app(script(f"reply {NASTY} `{NASTY}`\n\n```\n{NASTY}\n```"), size=(140, 60)) as d:
        await d.say(f"said {NASTY}")
        chat = d.conversation
        await d.app.conversations.rename(chat, f"title {NASTY}")
        d.main.notify_user(f"notice {NASTY}", error=True)
        chat.error = f"error {NASTY}"
        chat.queue.append(f"queued {NASTY}")
        d.main.prompt.load("draft א\u2067ב\u2069")
        d.main.conversation_changed(chat)
        await d.shows("notice a", "error a", "queued  queued a", "title a", "draft")
        assert "owned" in harmless(d.app)
        d.app.theme = "terminal"
        await d.pilot.pause()
        assert "owned" in harmless(d.app)


async def test_no_model_can_do_anything_on_the_first_screen(open_app: Any, tmp_path: Path) -> None:
    for path, words in ((f"/{NASTY}.gguf", "no model"), ("", "answers")):
        entry = ModelEntry(f"m{NASTY}", (LocalSource(Path(f"/{NASTY}")),), f"described {NASTY}", NASTY, 10)
        registry = Registry({entry.name: entry}, entry.name, tmp_path)
        async with open_app(None, registry=registry, model=path or None) as d:
            await d.until(lambda: d.app.engines.default.state in ("absent", "failed"))
            await d.settle()
            assert harmless(d.app), words
            slot = d.app.engines.default
            slot.error = f"the chat template: {NASTY}"
            slot.state = "failed"
            d.main.poll()
            await d.shows("the chat template")
            assert "owned" in harmless(d.app)
            await d.press("f6")
            await d.until(lambda: len(d.app.screen_stack) > 2)
            await d.settle()
            harmless(d.app)


@pytest.mark.parametrize("kind", ["choose", "line", "text", "picker"])
async def test_no_dialog_can_do_anything(kind: str, open_app: Any, script: Any) -> None:
    async def search(query: str) -> list[Item]:
        return [Item(Content(f"item {NASTY}"), 0, Content(f"detail {NASTY}"))]

    dialog = {
        "choose": lambda: Choose(f"title {NASTY}", f"text {NASTY}", [f"answer {NASTY}", "b\tc"]),
        "line": lambda: AskLine(f"title {NASTY}", f"text {NASTY}", f"value {NASTY}"),
        "text": lambda: AskText(f"title {NASTY}", f"text {NASTY}", f"value {NASTY}\tx\nline"),
        "picker": lambda: Picker(f"title {NASTY}", search, hint=f"hint {NASTY}"),
    }[kind]()
    async with open_app(script()) as d:
        d.app.push_screen(dialog)
        await d.until(lambda: dialog.is_mounted)
        if kind == "picker":
            await d.until(lambda: dialog.query_one(OptionList).option_count == 1)
        await d.until(lambda: "owned" in harmless(d.app))


class Terminal:
    """A terminal that draws each emoji of a joined one, in two cells each."""

    def __init__(self, columns: int, rows: int) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.screen.reset_mode(pyte.modes.DECAWM)
        self.stream = pyte.Stream(self.screen)

    def feed(self, written: str) -> None:
        self.stream.feed(written)

    def columns(self, first: int, last: int) -> list[str]:
        return [
            "".join(self.screen.buffer[y][x].data for x in range(first, last))
            for y in range(self.screen.lines)
        ]


REPLY = "\n".join(
    [
        f"| {FAMILY} | x |",
        "|---|---|",
        f"| {FAMILY} | {FAMILY} |",
        "",
        f"{FAMILY} " * 60,
        "",
        "क्षि प्रश्न हिन्दी " * 30,
        "",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 🇩🇪 ❤\ufe0f 👍🏽 ☺ " * 20,
        "",
        "한국어 漢字 ﾊﾝｶｸ שלום مرحبا " * 8,
    ]
)


async def test_B14_no_width_damages_what_stands_beside(open_app: Any, script: Any, tmp_path: Path) -> None:
    with Store(tmp_path / "data" / "termchat.db") as store:
        store.create_conversation("one", model="")
        asked = store.add_message("one", "user", f"{FAMILY} question")
        store.add_message("one", "assistant", REPLY, asked.id)
        store.create_conversation("two", model="")
        store.add_message("two", "user", f"{FAMILY} title")
    async with open_app(script(), conversation="one") as d:
        compositor = d.app.screen._compositor
        await d.until(lambda: any("idle" in strip.text for strip in compositor.render_strips()))
        await d.settle()
        d.main.poll = lambda: None  # what the panel shows does not change any more
        await d.pilot.pause()
        width, height = d.app.size
        terminal = Terminal(width, height)
        terminal.feed(frame(d.app))
        panel = d.main.query_one("EnginePanel").region
        transcript = d.main.view.transcript
        beside = terminal.columns(panel.x, panel.right)
        assert any("engine" in row for row in beside)
        assert not any(char in row for row in beside for char in "👨👩👧👦क्षि🏴")
        for top in (3, 0, 9, 2):  # rows change, and only they are written
            transcript.scroll_to(y=top, animate=False, force=True)
            await d.until(lambda top=top: transcript.scroll_offset.y == min(top, transcript.max_scroll_y))
            await d.pilot.pause()
            terminal.feed(frame(d.app, transcript.region))
            assert terminal.columns(panel.x, panel.right) == beside
            for y in range(transcript.region.y, transcript.region.bottom):  # no cell is left from before
                first, last = transcript.region.x, transcript.region.right - 1  # without the scroll bar
                if not compositor.render_strips()[y].crop(first, last).text.strip():
                    assert not terminal.columns(first, last)[y].strip()


async def test_a_letter_joined_to_the_next_is_written_with_its_joiner(
    open_app: Any, script: Any, tmp_path: Path
) -> None:
    text = "ශ්\u200dරී ලංකා می\u200cخواهم"
    with Store(tmp_path / "data" / "termchat.db") as store:
        store.create_conversation("one", model="")
        store.add_message("one", "user", text)
    async with open_app(script(), conversation="one") as d:
        await d.shows("ලංකා")
        assert text in OURS.sub("", frame(d.app))


@pytest.mark.parametrize("width", [1, 2, 3, 7, 20])
async def test_narrow_terminals_take_any_text(width: int, open_app: Any, script: Any, tmp_path: Path) -> None:
    with Store(tmp_path / "data" / "termchat.db") as store:
        store.create_conversation("one", model="")
        asked = store.add_message("one", "user", f"{FAMILY}\t漢字\x00 $x_1$")
        store.add_message("one", "assistant", REPLY, asked.id)
    async with open_app(script(), size=(width, 12), conversation="one") as d:
        await d.until(lambda: d.main.view.transcript.messages)
        await d.settle()
        harmless(d.app)


def test_B20_our_screen_is_cleared_before_it_is_left_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    driver = TerminalDriver.__new__(TerminalDriver)
    monkeypatch.setattr(LinuxDriver, "stop_application_mode", lambda self: written.append("left"))
    monkeypatch.setattr(driver, "write", written.append, raising=False)
    monkeypatch.setattr(driver, "_hear_out", lambda: written.append("heard"), raising=False)
    driver._active, driver._errors, driver._wheel_kept = True, None, False
    driver.stop_application_mode()
    assert written == ["heard", CLEAR, "left"]
    driver.stop_application_mode()  # the shell's screen is shown
    assert written == ["heard", CLEAR, "left", "left"]


def test_the_size_is_the_terminals_own_whatever_columns_and_lines_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    monkeypatch.setenv("LINES", "3")
    main, terminal = os.openpty()
    driver = TerminalDriver.__new__(TerminalDriver)
    driver._drawn = terminal
    assert driver._get_terminal_size() == (5, 3), "it does not know its size"
    termios.tcsetwinsize(terminal, (30, 100))
    assert driver._get_terminal_size() == (100, 30)
    os.close(main)
    os.close(terminal)
