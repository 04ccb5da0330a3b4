"""The transcript on a (headless) terminal."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import SELECT_ALL, Selection
from textual.strip import Strip

from termchat.themes import load_themes, variable_defaults
from termchat.tui.widgets.message_rows import LINES, MessageRows
from termchat.tui.widgets.transcript import Transcript

THEMES = Path(__file__).parents[2] / "themes"
LONG = "\n\n".join(
    f"Paragraph {i} with **bold** text that is long enough to wrap on a narrow screen." for i in range(8)
)
CODE = "Here:\n\n```python\ndef f():\n\treturn 1\n```\n\nand a table\n\n| a | b |\n|---|---|\n| 1 | 2 |"


class TranscriptApp(App[None]):
    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        themes, problems = load_themes([THEMES])
        assert not problems
        for theme in themes.values():
            self.register_theme(theme)
        self.theme = "dusk"


@asynccontextmanager
async def screen(width: int = 80, height: int = 24) -> AsyncIterator[tuple[Pilot[None], Transcript]]:
    app = TranscriptApp()
    async with app.run_test(size=(width, height)) as pilot:
        yield pilot, app.query_one(Transcript)


def text_of(transcript: Transcript) -> list[str]:
    return [transcript.render_line(y).text.rstrip() for y in range(transcript.size.height)]


def everything(transcript: Transcript) -> str:
    return "\n".join(text_of(transcript))


def turns(count: int, text: str = LONG) -> list[MessageRows]:
    found = []
    for index in range(count):
        found.append(MessageRows(f"q{index}", "user", f"Question {index}?"))
        found.append(MessageRows(f"a{index}", "assistant", f"Answer {index}.\n\n{text}", label="model"))
    return found


@pytest.mark.parametrize(
    "text", ["[/INST] done", "[bold", "[/]", "[red]x[/red] [link=a]b", "[@click=app.quit]x[/]", "[$primary]x"]
)
async def test_B065_markup_is_shown_as_it_is(text: str) -> None:
    async with screen() as (pilot, transcript):
        reply = MessageRows("r", "assistant", complete=False, label=text)
        transcript.show([MessageRows("u", "user", text, label=text), reply])
        for character in text:
            reply.append(character)
            transcript.flush()
            await pilot.pause(0)
        reply.finish()
        reply.note = (text,)
        transcript.flush()
        transcript.add(MessageRows("e", "system", text))
        await pilot.pause()
        lines = [line.strip() for line in text_of(transcript)]
        assert lines.count(text) == 4
        assert f"◆ {text}" in lines
        assert f"❯ {text}" in lines


async def test_the_cursor_can_move_before_anything_is_laid_out() -> None:
    async with screen() as (pilot, transcript):
        transcript.display = False
        await pilot.pause()
        transcript.show(turns(1))
        transcript.move_cursor(-1)
        assert transcript.cursor == 1
        transcript.display = True
        await pilot.pause()
        transcript.flush()
        assert "◆ model" in everything(transcript)


SEQUENCES = re.compile(r"\x1b\[[\d;]*m|\x1b\]8;(?:id=[0-9a-f]+;https?://[!-~]+)?;?\x1b\\")


async def test_only_colours_reach_the_terminal() -> None:
    hostile = "\x1b]0;t\x07 \x1b[2J \x9b1m \x1b]52;c;eA==\x1b\\ \u202ex \x1bP+q\x1b\\ "
    hostile += "[x](http://a.b/\x1b[31m) &#x202e;"
    async with screen() as (pilot, transcript):
        transcript.show(
            [
                MessageRows("u", "user", hostile, label=hostile, note=(hostile,)),
                MessageRows("a", "assistant", hostile + "\n```\n" + hostile + "\n```", thinking=hostile),
                MessageRows("e", "system", hostile),
            ]
        )
        await pilot.pause()
        console = Console(color_system="truecolor", force_terminal=True, width=80)
        for y in range(transcript.size.height):
            plain = SEQUENCES.sub("", transcript.render_line(y).render(console))
            assert plain.isprintable() or not plain.strip(), repr(plain)


async def test_text_streams_in_and_stays_at_the_bottom() -> None:
    async with screen(40, 10) as (pilot, transcript):
        reply = MessageRows("a", "assistant", complete=False)
        transcript.show([MessageRows("q", "user", "Tell me."), reply])
        for index in range(40):
            reply.append(f"- item {index}\n")
            transcript.flush()
        await pilot.pause()
        assert "item 39" in everything(transcript)
        assert transcript.scroll_y == transcript.max_scroll_y > 20


async def test_appending_alone_renders_nothing() -> None:
    async with screen() as (pilot, transcript):
        reply = MessageRows("a", "assistant", complete=False)
        transcript.show([reply])
        await pilot.pause()
        reply.append("hidden until flush")
        await pilot.pause()
        assert "hidden" not in everything(transcript)
        transcript.flush()
        assert "hidden until flush" in everything(transcript)


async def test_scrolled_up_the_view_stays_while_text_comes() -> None:
    async with screen(60, 12) as (pilot, transcript):
        reply = MessageRows("a", "assistant", complete=False)
        transcript.show([*turns(5), reply])
        await pilot.pause()
        transcript.action_page_up()
        await pilot.pause()
        before = text_of(transcript)
        for index in range(30):
            reply.append(f"line {index}\n\n")
            transcript.flush()
        await pilot.pause()
        assert text_of(transcript) == before
        transcript.action_scroll_end()
        await pilot.pause()
        assert "line 29" in everything(transcript)
        reply.append("more\n\nand the last\n")
        transcript.flush()
        await pilot.pause()
        assert "and the last" in everything(transcript)


@pytest.mark.slow
async def test_scrolling_up_by_pages_shows_every_row_once() -> None:
    async with screen(50, 11) as (pilot, transcript):
        transcript.show(turns(12))
        await pilot.pause()
        whole: list[str] = []
        while True:
            top = transcript.scroll_offset.y
            page = text_of(transcript)
            before = transcript.max_scroll_y
            transcript.action_page_up()
            await pilot.pause()
            # Estimates above may have been put right: what was seen is counted from the end.
            step = top - transcript.scroll_offset.y + (transcript.max_scroll_y - before)
            whole = (page if not step else page[:step] if whole else page) + whole if whole else page
            if transcript.scroll_offset.y == 0:
                whole = text_of(transcript)[:step] + whole
                break
        text = "\n".join(whole)
        for index in range(12):
            assert text.count(f"Question {index}?") == 1
            assert text.count(f"Answer {index}.") == 1


@pytest.mark.slow
async def test_only_messages_near_the_screen_are_laid_out() -> None:
    async with screen(80, 24) as (pilot, transcript):
        transcript.show(turns(200))
        await pilot.pause()
        width = transcript.scrollable_content_region.width - 3
        laid_out = [message for message in transcript.messages if message.width == width]
        assert 2 <= len(laid_out) <= 12
        await pilot.resize_terminal(60, 24)
        await pilot.pause()
        width = transcript.scrollable_content_region.width - 3
        assert 2 <= len([message for message in transcript.messages if message.width == width]) <= 16


async def test_a_theme_switch_recolours_what_is_on_screen() -> None:
    async with screen() as (pilot, transcript):
        transcript.show(turns(20))
        await pilot.pause()
        colours = [segment.style for segment in transcript.render_line(5)]
        text = text_of(transcript)
        pilot.app.theme = "paper"
        await pilot.pause()
        assert [segment.style for segment in transcript.render_line(5)] != colours
        assert text_of(transcript) == text


@pytest.mark.slow
async def test_B071_any_size_while_text_comes() -> None:
    rng = random.Random(71)
    async with screen(80, 24) as (pilot, transcript):
        reply = MessageRows("a", "assistant", thinking="hm", complete=False)
        transcript.show([*turns(3, CODE), reply])
        parts = []
        sizes = [(200, 60), (20, 5), (6, 3), (1, 1), (3, 1), (1, 30)]
        sizes += [(rng.randint(1, 120), rng.randint(1, 40)) for _ in range(25)]
        for number, (width, height) in enumerate(sizes):
            part = f"Row {number} of *it* 漢字\n\n"
            parts.append(part)
            reply.append(part)
            transcript.flush()
            await pilot.resize_terminal(width, height)
            await pilot.pause(0)
        reply.finish()
        transcript.flush()
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert reply.text == "".join(parts)
        transcript.follow()
        await pilot.pause()
        assert f"Row {len(sizes) - 1} of it 漢字" in everything(transcript)
        fresh = MessageRows("a", "assistant", "".join(parts), thinking="hm")
        fresh.layout(transcript.scrollable_content_region.width - 2)
        reply.layout(transcript.scrollable_content_region.width - 2)
        assert [reply.row(y)[1].text for y in range(reply.height)] == [
            fresh.row(y)[1].text for y in range(fresh.height)
        ]


async def test_resizing_keeps_the_place() -> None:
    async with screen(80, 20) as (pilot, transcript):
        transcript.show(turns(30))
        await pilot.pause()
        transcript.reveal(20)
        await pilot.pause()
        assert "Question 10?" in text_of(transcript)[1]
        for width in (40, 100, 80):
            await pilot.resize_terminal(width, 20)
            await pilot.pause()
            assert "Question 10?" in everything(transcript)


async def test_thinking_is_open_while_it_goes_on_and_folds_with_the_answer() -> None:
    async with screen(60, 20) as (pilot, transcript):
        reply = MessageRows("a", "assistant", complete=False)
        transcript.show([reply])
        for index in range(20):
            reply.append(thinking=f"thought {index}\n\n")
            transcript.flush()
        await pilot.pause()
        assert "▾ thinking" in everything(transcript)
        assert "thought 19" in everything(transcript)
        assert "thought 2\n" not in everything(transcript), "only the newest rows"
        reply.append("The answer.")
        transcript.flush()
        await pilot.pause()
        assert "▸ thought, 40 words" in everything(transcript)
        assert "thought 19" not in everything(transcript)
        assert "The answer." in everything(transcript)
        await pilot.click(Transcript, offset=(5, 1))
        await pilot.pause()
        assert "▾ thought" in everything(transcript)
        reply.finish()
        transcript.flush()
        assert reply.text == "The answer."


async def test_the_cursor_walks_the_messages() -> None:
    async with screen(60, 10) as (pilot, transcript):
        transcript.show(turns(4))
        await pilot.pause()
        assert transcript.current is None
        transcript.move_cursor(-1)
        assert transcript.current is transcript.messages[-1]
        for _ in range(20):
            transcript.move_cursor(-1)
        await pilot.pause()
        assert transcript.cursor == 0
        assert transcript.scroll_y == 0
        assert text_of(transcript)[0].startswith("▌")


async def test_a_selection_by_mouse_copies_without_wrapping() -> None:
    async with screen(40, 12) as (pilot, transcript):
        transcript.show(
            [MessageRows("a", "assistant", "one two **three** four five six seven eight nine ten eleven")]
        )
        await pilot.pause()
        assert text_of(transcript)[2].strip().startswith("eight")
        await pilot.mouse_down(Transcript, offset=(2 + len("one "), 1))
        end = 1 + len("eight nine"), 2
        await pilot._post_mouse_events([events.MouseMove], Transcript, offset=end, button=1)
        await pilot.mouse_up(Transcript, offset=end)
        await pilot.pause()
        copied = transcript.screen.get_selected_text()
        assert copied == "two three four five six seven eight nine"
        plain = [segment for segment in transcript.render_line(1) if segment.text.startswith("one")]
        marked = [segment for segment in transcript.render_line(1) if segment.text.startswith("two")]
        assert plain[0].style != marked[0].style


async def test_selections_over_messages_copy_source() -> None:
    async with screen(60, 40) as (pilot, transcript):
        transcript.show(
            [
                MessageRows("q", "user", "what?"),
                MessageRows("a", "assistant", CODE, thinking="not this"),
                MessageRows("z", "user", "thanks *a lot*"),
            ]
        )
        await pilot.pause()
        body, last = LINES + LINES // 2, 2 * LINES + LINES // 2
        found = transcript.get_selection(SELECT_ALL)
        assert found is not None
        assert found[0] == f"what?\n\n{CODE}\n\nthanks *a lot*"
        found = transcript.get_selection(Selection(Offset(2, LINES // 2), Offset(6, last)))
        assert found is not None
        assert found[0] == f"at?\n\n{CODE}\n\nthanks"
        found = transcript.get_selection(Selection(Offset(0, body), Offset(3, body)))
        assert found is not None
        assert found[0] == "Her"


async def test_code_blocks_of_a_message() -> None:
    assert MessageRows("a", "assistant", CODE).code_blocks() == ["def f():\n\treturn 1"]
    assert MessageRows("u", "user", CODE).code_blocks() == []


async def test_every_row_fills_the_width() -> None:
    async with screen(50, 30) as (pilot, transcript):
        transcript.show(turns(3, CODE))
        await pilot.pause()
        for y in range(30):
            strip = transcript.render_line(y)
            assert isinstance(strip, Strip)
            assert strip.cell_length == transcript.scrollable_content_region.width


async def test_an_empty_transcript() -> None:
    async with screen() as (pilot, transcript):
        transcript.show([])
        transcript.move_cursor(-1)
        transcript.flush()
        await pilot.click(Transcript, offset=(3, 3))
        await pilot.pause()
        assert everything(transcript).strip() == ""
        assert transcript.get_selection(SELECT_ALL) == ("", "\n")


async def test_plain_characters() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(50, 40)) as pilot:
        transcript = Transcript(ascii=True)
        await app.query_one(Transcript).remove()
        await app.mount(transcript)
        text = "- a • b\n  1. c\n\n> d\n\n---\n\n```\ne │\n```\n\n| f |\n|---|\n| g |"
        transcript.show([MessageRows("a", "assistant", text, thinking="h"), MessageRows("u", "user", "i ◆")])
        transcript.cursor = 0
        await pilot.pause()
        shown = everything(transcript)
        assert "# assistant" in shown
        assert "> thought, 1 word\n" in shown
        assert "* a • b" in shown, "what was written stays"
        assert "e │" in shown
        assert "i ◆" in shown
        assert set(shown) - set("•│◆") <= set(map(chr, range(128)))
