"""Nothing is cut, covered or drawn with signs that the terminal may not have."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.widgets import OptionList, Static

from termchat.download import Progress
from termchat.model_entry import HuggingFaceSource, ModelEntry
from termchat.registry import Registry
from termchat.render.wrap import rows_of
from termchat.tui.commands import COMMANDS
from termchat.tui.engines.fetching import Fetching
from termchat.tui.engines.stats import Timeline
from termchat.tui.screens.layout import Wanted, layout
from termchat.tui.screens.picker import Picker
from termchat.tui.screens.stats import Plot
from termchat.tui.terminal.ascii import Ascii
from termchat.tui.widgets import notices
from termchat.tui.widgets.engine_panel import EnginePanel
from termchat.tui.widgets.notices import Notices
from termchat.tui.widgets.title_line import TitleLine
from termchat.units import milliseconds_each, percent

LONG = " ".join(map(str, range(300)))


def test_parts_are_shown_whole_or_not_at_all() -> None:
    parts = ["esc back", "y copy", "e edit", "日本語"]
    assert rows_of(parts, "   ", 80) == ["esc back   y copy   e edit   日本語"]
    assert rows_of(parts, "   ", 17) == ["esc back   y copy", "e edit   日本語"]
    assert rows_of(parts, "   ", 14) == ["esc back", "y copy", "e edit", "日本語"]
    assert rows_of(parts, "   ", 3)[0] == "esc back"


def test_times_share_a_unit() -> None:
    assert milliseconds_each((7.14, 84.2), " + ") == "7.1 + 84 ms"
    assert milliseconds_each((7.14, 1084.2), " + ") == "0.01 + 1.08 s"


def test_only_all_of_it_is_100_percent() -> None:
    shares = (0.0, 0.29, 0.57, 0.999, 1.0, None)
    assert [percent(share) for share in shares] == ["0 %", "29 %", "57 %", "99 %", "100 %", "–"]


def test_plain_signs_take_the_same_room() -> None:
    text = "╭─╮ │ ╰╯ ┏━┓ ┃ ┗┛ ▸ ▾ • ● ✓ ⇣ ✗ ‖ ↑↓←→ ‹2/3› – … · ━ ▌ █▇▁"
    (segment,) = Ascii().apply([Segment(text)], Color(0, 0, 0))
    assert segment.text.isascii()
    assert cell_len(segment.text) == cell_len(text)


def test_a_title_with_no_room_goes_before_the_models_name() -> None:
    chat: Any = SimpleNamespace(title="What a long question", sampling={}, system="", tokens_used=39)

    def line(width: int) -> str:
        return TitleLine().line(chat, "SmolLM2-135M-Instruct", 2048, width).plain

    assert line(55) == "What a long question    SmolLM2-135M…  ━━━━━━━━ 39/2.0k"
    chat.sampling = {"temperature": 0.5}
    assert line(55) == "What a long question     own settings  ━━━━━━━━ 39/2.0k"
    assert line(
        90
    ) == "What a long question" + "SmolLM2-135M-Instruct · own settings  ━━━━━━━━ 39/2.0k".rjust(70)


async def test_ascii_is_all_there_is_on_any_screen(open_app: Any, script: Any) -> None:
    async with open_app(script("One – two…"), size=(120, 60), config="ascii = true\n") as d:
        await d.say("said – so…")
        await d.shows("said – so…", "One – two…")  # what people and models write stays as it is
        d.main.notify_user("there is no command", error=True)
        await d.shows("x there is no command")

        def others() -> set[str]:
            return {
                char
                for char in d.screen.replace("said – so…", "").replace("One – two…", "")
                if ord(char) > 126
            }

        assert not others()
        for id, text in (
            ("stats.detail", "KV blocks in use"),
            ("help", "Keys and commands"),
            ("model.choose", "Models"),
            ("chat.settings", "temperature"),
            ("chat.title", "Rename"),
            ("palette", "Search for commands"),
        ):
            d.main.commands.run(next(command for command in COMMANDS if command.id == id))
            await d.shows(text)
            if id == "palette":
                await d.shows("/stop [all]")
            assert not others(), id
            await d.press("escape")
            await d.until(lambda: len(d.app.screen_stack) == 2)


async def test_notices_cover_nothing_and_do_not_pile_up(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), size=(120, 36)) as d:
        await d.say("hello")
        for number in range(9):
            d.main.notify_user(f"notice {number} [b]literal[/b]", error=number == 8)
            d.main.notify_user("the same again")
        await d.shows("✗ notice 8 [b]literal[/b]", "› the same again", "› notice 7")
        await d.shows("scripted, exact")
        assert "notice 6" not in d.screen
        assert d.screen.count("the same again") == 1
        rows = d.screen.split("\n")
        assert "hello" in rows[1]  # the title
        assert rows[1].endswith("scripted, exact")  # and the panel
        await d.shows("One.", "Type a message", "enter send")


async def test_notices_go_when_they_were_seen(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "SECONDS", 0.05)
    monkeypatch.setattr(notices, "READING", 1e9)
    async with open_app(script("One."), size=(80, 24)) as d:
        shown = d.main.query_one(Notices)
        d.main.notify_user("in sight")
        await d.until(lambda: not shown.display)
        d.app.open_stats()
        await d.shows("tokens a second")
        d.main.notify_user("below another screen")
        await d.pilot.pause(0.3)
        assert shown.display
        await d.press("escape")
        await d.until(lambda: not shown.display)


@pytest.fixture
def absent(tmp_path: Path) -> Registry:
    entry = ModelEntry("small", (HuggingFaceSource("a/b", "m.gguf"),), "a model", "MIT", 98_362_432)
    return Registry({"small": entry}, "small", tmp_path / "models")


async def test_an_empty_panel_has_nothing_to_scroll(open_app: Any, absent: Registry) -> None:
    async with open_app(None, size=(120, 36), registry=absent) as d:
        await d.shows("no model yet")
        await d.pilot.pause(0.1)
        assert not d.main.query_one(EnginePanel).show_vertical_scrollbar


async def test_a_download_says_the_same_everywhere_in_whole_parts(open_app: Any, absent: Registry) -> None:
    async with open_app(None, size=(100, 30), registry=absent) as d:
        slot = d.app.engines.default
        slot.state = "downloading"
        slot.fetching = Fetching(d.app.loader.registry, slot.entry)
        slot.fetching.progress = Progress("download", done=41_000_000, total=98_362_432, rate=3_200_000.0)
        d.main.poll()
        await d.shows("41.0 MB of 98.4 MB", "3.2 MB/s", "18 s left")
        await d.until(lambda: d.screen.count("41 %") == 2)


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (60, 20)], ids=lambda size: f"{size[0]}")
async def test_all_plots_have_their_place(open_app: Any, script: Any, size: tuple[int, int]) -> None:
    async with open_app(script(LONG), size=size) as d:
        await d.say("go")
        await d.press("f3")
        await d.shows("tokens a second")
        await d.until(lambda: len(d.app.screen.query(Plot)) == 5)

        def has_its_place(plot: Plot) -> bool:
            title = plot.query_one(Static)
            whole = 0 < cell_len(str(title.content)) <= title.region.width
            # A narrow screen has the plots above the figures, to scroll.
            return whole and (
                size[0] < 80 or (plot.region in d.app.screen.region and plot.region.height >= 3)
            )

        await d.until(lambda: all(map(has_its_place, d.app.screen.query(Plot))))

        def last_is_shown() -> bool:  # where they do not fit beside the plots, the figures are below
            for part in ("#all", "#figures"):
                d.app.screen.query_one(part).scroll_end(animate=False)
            return "prefix tokens saved" in d.screen

        await d.until(last_is_shown)


def test_the_longest_wait_of_each_reading_is_kept() -> None:
    timeline = Timeline()

    def read(count: int, *recent: float) -> None:
        snapshot = SimpleNamespace(
            itl_count=count,
            itl_recent_ms=recent,
            tokens_per_second=None,
            bandwidth_gbs=None,
            blocks_used=0,
            running=1,
            tokens_total=count,
            time=float(count),
            decode_bytes=0,
            decode_seconds=0.0,
        )
        timeline.add(SimpleNamespace(snapshot=snapshot, idle=False), count)  # type: ignore[arg-type]

    read(0)
    read(3, 5.0, 90.0, 6.0)
    read(4, 5.0, 90.0, 6.0, 7.0)
    read(4, 5.0, 90.0, 6.0, 7.0)
    read(900, 1.0, 2.0)
    read(1, 8.0)  # another engine
    assert list(timeline.waits) == [0.0, 90.0, 7.0, 0.0, 2.0, 0.0]


async def test_a_list_to_choose_from_keeps_its_size(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), size=(100, 30)) as d:
        await d.say("hello")
        await d.press("ctrl+o")
        await d.until(
            lambda: isinstance(d.app.screen, Picker) and d.app.screen.query_one(OptionList).option_count
        )
        await d.shows("enter choose", "hello")
        before = d.app.screen.query_one(".dialog").region
        await d.press(*"zzz")
        await d.shows("nothing found")
        assert d.app.screen.query_one(".dialog").region == before
        await d.press("enter")  # chooses nothing
        assert isinstance(d.app.screen, Picker)
        await d.press("escape")


@pytest.mark.parametrize("size", [(120, 36), (80, 24)], ids=lambda size: f"{size[0]}")
async def test_the_settings_fit_the_screen(open_app: Any, script: Any, size: tuple[int, int]) -> None:
    async with open_app(script("One."), size=size) as d:
        await d.press("f2")
        await d.shows("Settings of: New chat", "System prompt", "temperature", "stop", "^S save")
        d.app.screen.query_one("#seed").value = "x"
        await d.press("ctrl+s")
        await d.shows("seed must be a whole number, not 'x'", "Settings of: New chat", "^S save")
        rows = d.screen.split("\n")
        hint = next(index for index, row in enumerate(rows) if "^S save" in row)
        assert "╰" in rows[hint + 1] or "╰" in rows[hint + 2]  # no empty rows below it
        await d.press("escape")


async def test_what_the_settings_are_for_is_whole_at_80_columns(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), size=(80, 24)) as d:
        await d.press("f2")
        await d.shows("texts that end it: a|b, \\n a new line", "at least this share of the best one's")
        assert "…" not in "\n".join(row for row in d.screen.splitlines() if "penalty" in row or "top" in row)


def test_the_list_takes_its_part_of_the_width() -> None:
    widths = [layout(width, 24, Wanted()).side for width in (70, 100, 120, 160, 400)]
    assert widths == [22, 22, 26, 34, 36]


async def test_a_theme_is_chosen_beside_what_it_colours(open_app: Any, script: Any) -> None:
    async with open_app(script("The fox is red."), size=(120, 36)) as d:
        await d.say("fox")
        await d.say("/theme", wait=False)
        await d.shows("dusk  now", " is red.", "KV cache")
        before = d.app.screen.styles.background
        assert before.a == 0


async def test_the_keys_that_matter_most_fit(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), size=(80, 24)) as d:
        await d.say("hello")
        await d.press("alt+up")
        await d.shows("esc back   ← → versions   y copy   e edit")
        await d.press("e")
        await d.shows("editing: enter sends a new version   esc leaves it")
        await d.until(lambda: d.main.view.transcript.cursor == 0)  # the message that is edited
        await d.press("escape")
        await d.until(lambda: d.main.view.transcript.cursor is None)
        await d.press("alt+up")
        await d.until(lambda: d.main.view.transcript.cursor == 1)
        await d.press("escape")
        await d.until(lambda: d.main.view.transcript.cursor is None)


async def test_a_file_that_cannot_be_imported_is_said_in_words(
    open_app: Any, script: Any, tmp_path: Path
) -> None:
    async with open_app(script("One.")) as d:
        d.app.folder = tmp_path
        (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
        for name, words in (("none.json", "No such file"), ("bytes.json", "is not a text file")):
            d.main.prompt.load(f"/import {name}")
            await d.press("enter")
            await d.shows(words)
        assert "Errno" not in d.screen


async def test_the_users_themes(open_app: Any, script: Any, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "themes"
    folder.mkdir(parents=True)
    colors = 'primary = "#ff8800"\nforeground = "#eeeeee"\nbackground = "#102030"\n'
    (folder / "mine.toml").write_text(f'name = "mine"\ndark = true\n[colors]\n{colors}', encoding="utf-8")
    (folder / "broken.toml").write_text('name = "broken"\ndark = 3\n', encoding="utf-8")
    async with open_app(script("One."), size=(120, 36), config='theme = "mine"\n') as d:
        said = d.main.query_one(Notices)
        await d.until(lambda: "broken.toml: dark must be true or false" in str(said.content))
        assert d.app.theme == "mine"
        assert d.app.get_css_variables()["background"].lower() == "#102030"
        await d.say("hello")
        await d.shows("One.")
        d.main.prompt.load("/theme broken")
        await d.press("enter")
        await d.shows("there is no theme 'broken'")


async def test_a_long_name_of_a_model_leaves_the_title_its_place(open_app: Any, script: Any) -> None:
    async with open_app(script("Yes."), size=(80, 24)) as d:
        await d.say("Is this title to be read?")
        assert "Is this title" in d.screen.splitlines()[1]


@pytest.mark.parametrize("size", [(40, 12), (60, 24), (120, 36)])
async def test_the_engine_in_detail_says_that_it_is_not_loaded_at_any_size(
    open_app: Any, script: Any, size: tuple[int, int]
) -> None:
    async with open_app(script("One."), size=size) as d:
        d.app.open_stats()
        await d.shows("tokens a second")
        d.app.monitor._read_one = lambda *_: None  # there are figures, in truth
        await d.shows("the engine is not loaded yet")


async def test_a_theme_of_the_settings_that_is_not_there_names_its_place(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), size=(160, 36), config='theme = "papr"\n') as d:
        said = d.main.query_one(Notices)
        await d.until(lambda: "there is no theme 'papr'" in str(said.content))
        text = " ".join(str(said.content).split())
        assert "config.toml: ui.theme:" in text
        assert "dusk is used; did you mean 'paper'?" in text
        assert d.app.theme == "dusk"


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (40, 9), (200, 60)])
async def test_the_prompt_is_seen_whatever_is_said_above_it(
    open_app: Any, script: Any, size: tuple[int, int]
) -> None:
    async with open_app(script(), size=size) as d:
        await d.press(*"/d", "enter")
        await d.shows("there is no command /d", "│ /d ")
        await d.press("ctrl+c", *("x", "ctrl+j") * 12, *"last")
        await d.shows("│ last ", *(["new line"] if size[1] > 10 else []))
        await d.press("ctrl+j", "@")
        await d.shows("│ @ ")


async def test_five_rows_show_something_of_the_conversation(open_app: Any, script: Any) -> None:
    async with open_app(script("One. Two. Three."), size=(20, 5)) as d:
        await d.say("Hello")
        await d.until(lambda: not d.conversation.live)
        await d.shows("tokens")


async def test_figures_keep_their_width_when_the_panel_gets_a_scroll_bar(open_app: Any, script: Any) -> None:
    async with open_app(script(), size=(120, 40)) as d:
        panel = d.main.query_one("EnginePanel")
        await d.until(lambda: not panel.show_vertical_scrollbar)
        width = panel.scrollable_content_region.width
        await d.pilot.resize_terminal(120, 14)
        await d.until(lambda: panel.show_vertical_scrollbar)
        assert panel.scrollable_content_region.width == width
