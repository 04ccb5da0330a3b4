"""The application as a user meets it: keys in, screen out. The engine is real, the model is a script."""

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from engine import EngineConfig
from engine.model import LoadedModel
from engine.runner import Flight
from engine.step_plan import StepPlan
from engine.testing import ScriptedModel
from termchat.model_entry import HuggingFaceSource, ModelEntry
from termchat.registry import Registry
from termchat.tui.commands import COMMANDS
from termchat.tui.screens.stats import StatsScreen
from termchat.tui.widgets.spark import Spark
from termchat.units import milliseconds

LONG = " ".join(str(number) for number in range(400))
MARKUP = ["[/INST] done", "[bold", "[/]", "[red]x[/red] [link=a]b", "[@click=app.bell]x[/]"]


async def test_a_turn_on_the_screen(open_app: Any, script: Any) -> None:
    async with open_app(script("Hello, **you**.")) as d:
        await d.shows("is ready", "Type a message")
        await d.say("Hi there")
        await d.shows("❯ you", "Hi there", "Hello, you.", "tok/s", "first token")
        assert d.main.prompt.text == ""
        assert d.conversation.title in d.screen


async def test_B065_markup_is_shown_character_for_character(open_app: Any, script: Any) -> None:
    replies = [" ".join(MARKUP)] * 2
    async with open_app(script(*replies, step=0.002), size=(160, 44)) as d:
        await d.say(MARKUP[3])
        await d.app.conversations.set_system(d.conversation, MARKUP[0])
        await d.app.conversations.rename(d.conversation, MARKUP[1])
        for text in MARKUP:
            d.main.notify_user(text)
        await d.say(MARKUP[2])
        await d.shows(MARKUP[0], MARKUP[1], MARKUP[2], MARKUP[3], MARKUP[4])
        d.conversation.error = "[/] " + MARKUP[1]
        d.main.conversation_changed(d.conversation)
        await d.shows("✗ [/] [bold")
        await d.main.switch_to(d.app.conversations.new())
        await d.main.switch_to(d.app.conversations.all[-1])
        await d.shows(MARKUP[3])


async def test_B067_stop_keeps_the_text_and_the_app(open_app: Any, script: Any) -> None:
    for key in ("escape", "ctrl+c"):
        async with open_app(script(LONG, "Next.", step=0.01)) as d:
            await d.say("count", wait=False)
            await d.shows("0 1 2 3")
            await d.press(key)
            await d.settle()
            assert d.conversation.messages[-1].status == "interrupted"
            await d.shows("stopped", "continues this reply")
            d.main.prompt.load("typed, not sent")
            await d.press("ctrl+c", "escape")
            assert d.main.prompt.text == "typed, not sent"
            await d.say("more")
            await d.shows("Next.")


async def test_B067_ctrl_c_copies_a_selection(open_app: Any, script: Any) -> None:
    async with open_app(script("Hello.")) as d:
        d.main.prompt.load("some words")
        d.main.prompt.select_all()
        await d.press("ctrl+c")
        await d.until(lambda: d.app.clipboard == "some words")
        assert d.main.prompt.text == "some words"


async def test_enter_while_busy_queues_and_esc_hands_back(open_app: Any, script: Any) -> None:
    async with open_app(script(LONG, step=0.01)) as d:
        await d.say("count", wait=False)
        await d.shows("0 1 2 3")
        await d.say("and [then]", wait=False)
        await d.shows("queued  and [then]")
        await d.press("escape")
        await d.settle()
        assert d.main.prompt.text == "and [then]"
        assert "queued  and" not in d.screen


async def test_switching_loses_no_text(open_app: Any, script: Any) -> None:
    async with open_app(script(LONG[:300], "Other.", step=0.01)) as d:
        await d.say("count", wait=False)
        await d.shows("0 1 2 3")
        first = d.conversation
        d.main.prompt.load("half a thought")
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation is not first)
        assert d.main.prompt.text == ""
        await d.say("two")
        await d.press("ctrl+pagedown")
        await d.until(lambda: d.conversation is first)
        assert d.main.prompt.text == "half a thought"
        assert not first.unread
        assert first.messages[-1].text == LONG[:300]
        await d.shows(LONG[:40])


async def test_several_versions_and_going_through_them(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "Two.", "Three.", step=0.005)) as d:
        await d.say("say")
        await d.say("/regen 2")
        await d.shows("‹2/3›", "Two.")
        await d.press("alt+right")
        await d.shows("‹3/3›", "Three.")
        await d.press("alt+up")
        await d.until(lambda: d.main.view.focused is not None)
        await d.press("left")
        await d.shows("‹2/3›", "Two.")
        await d.until(lambda: d.main.view.focused is not None)
        await d.press("left")
        await d.shows("‹1/3›", "One.")


async def test_alt_and_an_arrow_go_by_a_word_in_a_text(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "Two.")) as d:
        await d.say("say")
        await d.say("/regen 2")
        await d.shows("‹2/3›")
        d.main.prompt.load("two words")
        await d.press("alt+left")
        assert d.main.prompt.cursor_location == (0, 4)
        await d.press("alt+right")
        assert d.main.prompt.cursor_location == (0, 9)
        await d.shows("‹2/3›")
        d.main.prompt.load("")
        await d.press("alt+left")
        await d.shows("‹1/3›")


@pytest.mark.parametrize(
    ("typed", "meant"), [("bye", "quit"), ("exit", "quit"), ("clear", "new"), ("?", "help")]
)
async def test_commands_of_other_programs_are_told_ours(
    open_app: Any, script: Any, typed: str, meant: str
) -> None:
    async with open_app(script("One.")) as d:
        d.main.prompt.load(f"/{typed}")
        await d.press("enter")
        await d.shows(f"there is no command /{typed}", f"did you mean /{meant}?")
        assert d.conversation.messages == []


async def test_a_word_that_leaves_other_programs_is_sent_and_the_key_is_told(
    open_app: Any, script: Any
) -> None:
    async with open_app(script("One.")) as d:
        await d.say("exit")
        await d.shows("exit is sent to the model; ^Q leaves")
        assert d.conversation.messages[0].text == "exit"


async def test_the_cursor_rests_while_text_streams(open_app: Any, script: Any) -> None:
    model = script("word " * 400, step=0.02)
    async with open_app(model, config="reduced_motion = false\n") as driver:
        assert driver.main.prompt.cursor_blink
        await driver.say("go on", wait=False)
        await driver.until(lambda: not driver.main.prompt.cursor_blink)
        await driver.press("escape")
        await driver.settle()
        await driver.until(lambda: driver.main.prompt.cursor_blink)


async def test_editing_makes_a_version(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "Two.")) as d:
        await d.say("frist")
        await d.press("alt+up", "alt+up", "e")
        await d.until(lambda: d.conversation.editing is not None)
        assert d.main.prompt.text == "frist"
        await d.say("first")
        await d.shows("‹2/2›", "first", "Two.")


async def test_keys_of_messages(open_app: Any, script: Any) -> None:
    async with open_app(script("Look:\n\n```python\nx = 1\n```\n\nand\n\n```\ny\n```\n")) as d:
        await d.say("code")
        await d.press("alt+up", "c")
        await d.until(lambda: d.app.clipboard == "y")
        await d.press("c")
        await d.until(lambda: d.app.clipboard == "x = 1")
        await d.press("y")
        await d.until(lambda: d.app.clipboard.startswith("Look:"))
        await d.press("b")
        await d.until(lambda: len(d.app.conversations.all) == 2)
        await d.until(lambda: d.app.conversations.all[0] is d.conversation)
        d.main.prompt.focus()
        await d.press("c", "y")
        assert d.main.prompt.text == "cy"


async def test_commands_that_are_typed(open_app: Any, script: Any, tmp_path: Any) -> None:
    async with open_app(script("One.", "Two.")) as d:
        await d.say("hello")
        await d.say("/title A [b]title[/b]")
        await d.shows("A [b]title[/b]")
        await d.say("/set temperature 0.5")
        await d.until(lambda: d.conversation.sampling == {"temperature": 0.5})
        d.main.prompt.load("/set temperature -3")
        await d.press("enter")
        await d.shows("temperature must be in")
        d.main.prompt.load("/tittle x")
        await d.press("enter")
        await d.shows("did you mean /title?")
        assert d.main.prompt.text == "/tittle x"
        await d.say(f"/export json {tmp_path}/out.json")
        await d.until(lambda: (tmp_path / "out.json").exists())
        await d.say("//not a command")
        assert d.conversation.messages[-2].text == "/not a command"
        await d.say("/delete")
        await d.until(lambda: not any(chat.id for chat in d.app.conversations.all))
        await d.say("/undelete")
        await d.until(lambda: any(chat.id for chat in d.app.conversations.all))
        await d.say(f"/import {tmp_path}/out.json")
        await d.until(lambda: sum(bool(chat.id) for chat in d.app.conversations.all) == 2)


async def test_a_file_goes_with_a_message(open_app: Any, script: Any, tmp_path: Any) -> None:
    (tmp_path / "note.txt").write_text("its ``` content", encoding="utf-8")
    async with open_app(script("One.")) as d:
        d.app.folder = tmp_path
        d.main.prompt.insert("what is in @note.txt and @nothing")
        await d.press("enter")
        await d.until(lambda: d.conversation.messages)
        await d.settle()
        text = d.conversation.messages[0].text
        assert text == "what is in @note.txt and @nothing\n\n````note.txt\nits ``` content\n````"


async def test_searching_all_conversations(open_app: Any, script: Any) -> None:
    async with open_app(script("The fox is red.", "The sea is blue.")) as d:
        await d.say("fox")
        fox = d.conversation
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation is not fox)
        await d.say("sea")
        await d.press("ctrl+o")
        await d.shows("Conversations")
        await d.press(*"red")
        await d.shows("The fox is red.")
        await d.press("enter")
        await d.until(lambda: d.conversation.title == "fox")


async def test_settings_of_a_conversation(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        await d.press("f2")
        await d.shows("System prompt", "temperature")
        d.app.screen.query_one("TextArea").text = "Be [short]."
        d.app.screen.query_one("#top_k").value = "five"
        await d.press("ctrl+s")
        await d.shows("top_k must be a whole number")
        d.app.screen.query_one("#top_k").value = "5"
        await d.press("ctrl+s")
        await d.until(
            lambda: d.conversation.sampling == {"top_k": 5} and d.conversation.system == "Be [short]."
        )


async def test_themes_are_previewed_and_kept(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        before = d.app.theme
        assert before == "dusk"
        await d.say("/theme")
        await d.shows("Themes")
        await d.press("down")
        await d.until(lambda: d.app.theme != before)
        await d.press("escape")
        await d.until(lambda: d.app.theme == before)
        await d.say("/theme paper")
        await d.until(lambda: d.app.config.file.read_text().count('theme = "paper"') == 1)


async def test_help_and_palette_know_every_command(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), size=(120, 90)) as d:
        await d.press("f1")
        await d.shows("Keys and commands", "/export [md|json|text] [FILE]")
        await d.press("escape", "ctrl+p")
        await d.shows("Use another model")
        await d.press(*"rename", "enter")
        await d.shows("no message yet")  # it was carried out: there is nothing to rename yet


async def test_keys_can_be_changed(open_app: Any, script: Any) -> None:
    config = '[keys]\n"chat.new" = "ctrl+f"\n"nonsense" = "x"\n'
    async with open_app(script("One."), config=config) as d:
        await d.shows("there is no such action")
        await d.say("hello")
        first = d.conversation
        await d.press("ctrl+f")
        await d.until(lambda: d.conversation is not first)


async def test_the_panel_and_its_copy_as_json(open_app: Any, script: Any) -> None:
    async with open_app(script(LONG, LONG, step=0.01)) as d:
        await d.say("one", wait=False)
        one = d.conversation
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation is not one)
        await d.say("two", wait=False)
        await d.shows("2 running", "KV cache", "between tokens", "bandwidth")
        await d.say("/stats", wait=False)
        await d.until(lambda: '"running": 2' in d.app.clipboard)
        await d.press("f3")
        await d.shows("tokens a second", "KV blocks in use")
        await d.press("escape")


async def test_copied_figures_are_those_of_now(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago the panel has looked."""
    monkeypatch.setattr("termchat.tui.screens.main.TICKS_A_POLL", 1 << 30)
    async with open_app(script("One.")) as d:
        await d.say("one")
        reply = d.conversation.messages[-1]
        await d.say("/stats", wait=False)
        await d.until(lambda: "tokens_total" in d.app.clipboard)
        assert json.loads(d.app.clipboard)["tokens_total"] == reply.metrics["completion_tokens"]


async def test_plain_characters_if_asked_for(open_app: Any, script: Any) -> None:
    async with open_app(script("- one\n\n> two\n\n---\n"), size=(160, 44), config="ascii = true\n") as d:
        await d.say("hello")
        await d.shows("# SmolLM2", "* one", "| two", "---", "KV cache")
        drawn = d.main.view.transcript
        rows = "".join(drawn.render_line(y).text for y in range(drawn.size.height - 4))
        assert rows.replace("·", "").isascii()


async def test_folding_the_thinking_keeps_the_place(open_app: Any, script: Any) -> None:
    replies = ["<think>" + "hm\n\n" * 30 + "</think>Yes.", "\n\n".join(f"line {n}" for n in range(40))]
    async with open_app(script(*replies)) as d:
        await d.say("first")
        await d.say("second")
        transcript = d.main.view.transcript
        transcript.reveal(3)
        await d.shows("line 1", "line 10")
        before = [transcript.render_line(y).text for y in range(10)]
        thought = d.conversation.messages[1]
        height = transcript.virtual_size.height
        d.main.view.fold_thinking(thought.id)
        await d.until(lambda: transcript.virtual_size.height > height + 20)
        await d.until(lambda: [transcript.render_line(y).text for y in range(10)] == before)


class Stalling(ScriptedModel):
    """Whose step number `at` takes long."""

    at = 40
    seconds = 0.5

    def load(self, config: EngineConfig) -> LoadedModel:
        model = super().load(config)
        launch, steps = model.runner.launch, itertools.count(1)

        def stalled(plan: StepPlan, **how: bool) -> Flight:
            if next(steps) == self.at:
                time.sleep(self.seconds)
            return launch(plan, **how)

        model.runner.launch = stalled
        return model


async def test_a_stall_of_the_engine_is_seen(open_app: Any, tokenizer: Any, default_model: Path) -> None:
    model = Stalling([tokenizer.encode(LONG)[:120]] * 2, default_model, step_seconds=0.005)
    async with open_app(model, size=(160, 50)) as d:
        spark = d.main.query_one(Spark)
        await d.say("one")
        await d.until(lambda: len(spark.values) >= 118)
        longest = max(spark.values)
        assert longest >= 1e3 * model.seconds
        assert "█" in spark.render_line(0).text
        await d.shows(f"/ {milliseconds(longest)}")
        await d.press("f3")
        await d.until(lambda: isinstance(d.app.screen, StatsScreen))
        await d.shows("between tokens", f"max {milliseconds(longest)}")
        await d.press("escape")
        await d.until(lambda: d.app.screen is d.main)
        # It is one spike: the next reply, after a pause, does not bring it again.
        await d.say("two")
        await d.until(lambda: len(spark.values) >= 236)
        assert spark.values.count(longest) == 1


@pytest.mark.parametrize(
    ("size", "panel", "side"),
    [((160, 50), True, True), ((120, 36), True, True), ((80, 24), False, True), ((60, 20), False, False)],
)
async def test_what_does_not_fit_folds(
    open_app: Any, script: Any, size: tuple[int, int], panel: bool, side: bool
) -> None:
    async with open_app(script("One."), size=size) as d:
        await d.say("hello")
        assert d.main.query_one("EnginePanel").display is panel
        assert d.main.query_one("EngineLine").display is not panel
        assert d.main.query_one("#side").display is side
        await d.shows("hello", "One.", "tok/s")
        if not side:
            await d.press("ctrl+b")
            await d.until(lambda: d.main.query_one("#side").display)
            await d.press("enter")
            await d.until(lambda: not d.main.query_one("#side").display)


async def test_B071_any_size_while_text_streams(open_app: Any, script: Any) -> None:
    import random

    seed = random.randrange(1 << 30)
    print("seed", seed)
    source = random.Random(seed)
    sizes = [(200, 60), (20, 5), (6, 3), (1, 1), (1, 0), (0, 0)]
    sizes += [(source.randrange(1, 200), source.randrange(1, 60)) for _ in range(20)]
    async with open_app(script(LONG[:500], step=0.005)) as d:
        await d.say("count", wait=False)
        d.main.prompt.load("half typed")
        for width, height in sizes:
            await d.pilot.resize_terminal(width, height)
            await asyncio.sleep(0.01)
        await d.pilot.resize_terminal(80, 24)
        await d.settle()
        assert d.conversation.messages[-1].text == LONG[:500]
        assert d.main.prompt.text == "half typed"
        await d.shows(LONG[:500].split()[-1], "half typed")


async def test_first_run_offers_the_model_and_takes_prompts(
    open_app: Any, script: Any, tmp_path: Any, default_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ModelEntry("small", (HuggingFaceSource("a/b", "m.gguf"),), "a [model]", "Apache-2.0", 98_362_432)
    registry = Registry({"small": entry}, "small", tmp_path / "models")
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ensure(registry: Registry, name: str, progress: Any) -> Any:
        from termchat.download import Progress

        progress(Progress("download", 40_000_000, 98_362_432, 5e6))
        asyncio.run_coroutine_threadsafe(arrived.wait(), loop).result()
        target = registry.target(registry.entry(name))
        target.parent.mkdir(parents=True)
        target.symlink_to(default_model)
        return target

    monkeypatch.setattr("termchat.download.ensure", ensure)
    model = script("Here I am.")
    async with open_app(None, registry=registry) as d:
        d.models.models = model
        await d.shows("small", "98.4 MB, Apache-2.0", "a [model]", "download")
        await d.say("are you there?", wait=False)
        await d.shows("fetching small", "40.0 MB of 98.4 MB", "sent as soon as")
        arrived.set()
        await d.settle()
        await d.shows("Here I am.")


async def test_context_is_said_to_fill_and_a_new_conversation_goes_on(open_app: Any, script: Any) -> None:
    async with open_app(script("One. " * 30, LONG[:300], "x", context=480), size=(140, 40)) as d:
        await d.say("first")
        await d.say("second")
        await d.shows("tokens of the context are used")
        old = d.conversation
        kept = [message.text for message in old.messages]
        d.main.prompt.load("/compact")
        await d.press("enter")
        await d.shows("without the oldest messages")
        await d.press("enter")
        await d.until(lambda: d.conversation is not old and d.conversation.messages)
        assert [message.text for message in old.messages] == kept
        assert d.conversation.row.forked_from == old.id
        assert [message.text for message in d.conversation.messages] == kept[2:]


def test_every_command_has_a_name_of_its_own() -> None:
    for values in (
        [command.id for command in COMMANDS],
        [command.slash for command in COMMANDS if command.slash],
        [key for command in COMMANDS for key in command.key.split(",") if key],
    ):
        assert len(values) == len(set(values))


def test_the_first_frame_needs_no_engine() -> None:
    import subprocess
    import sys

    code = (
        "import sys; import termchat.tui.app; "
        "print([n for n in ('engine', 'numpy', 'torch', 'tokenizers') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_the_plots_close_and_all_replies_stop(open_app: Any, script: Any) -> None:
    async with open_app(script(LONG, LONG, step=0.01)) as d:
        await d.say("one", wait=False)
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation.id is None)
        await d.say("two", wait=False)
        await d.until(lambda: sum(bool(chat.live) for chat in d.app.conversations.all) == 2)
        await d.press("f3")
        await d.shows("tokens a second")
        await d.press("escape")
        await d.shows("Type a message")
        await d.say("/stop all")
        for chat in d.app.conversations.all:
            assert all(each.status != "done" for each in chat.messages if each.role == "assistant")


async def test_the_plots_take_readings_while_they_are_composed(open_app: Any, script: Any) -> None:
    async with open_app(script("Hello.")) as d:
        await d.say("hi")
        readings: list[Any] = []
        d.app.show_stats = lambda: readings.append((d.app.monitor.stats, d.app.monitor.timeline))
        await d.until(lambda: readings and readings[-1][0] is not None)
        screen = StatsScreen(d.app.glyphs)
        d.app.push_screen(screen)
        while not screen.is_mounted:
            screen.update(*readings[-1])
            await asyncio.sleep(0)
        screen.update(*readings[-1])
        assert "tokens" in str(screen.query_one("#figures Static").render())


async def test_enter_before_the_store_is_open(open_app: Any, script: Any) -> None:
    async with open_app(script("Hello.")) as d:
        await d.say("an older one")
    async with open_app(None, early=True) as d:
        d.models.models = script("Hi.")
        assert d.app.store._store is None
        d.main.prompt.load("early")
        await d.press("enter", "f3")
        await d.until(lambda: len(d.app.conversations.all) == 2)
        await d.press("escape")
        await d.settle()
        await d.shows("early", "Hi.")
        assert [chat.title for chat in d.app.conversations.all] == ["early", "an older one"]


async def test_an_edit_keeps_what_was_typed_before_and_itself(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "Two.", "Three.")) as d:
        await d.say("frist")
        d.main.prompt.insert("a draft")
        await d.press("alt+up", "alt+up", "e", *" more")
        assert d.main.prompt.text == "frist more"
        assert "a draft" in d.conversation.unsent, "a crash loses neither"
        await d.press("escape")
        assert (d.main.prompt.text, d.conversation.editing) == ("a draft", None)
        await d.press("up")
        assert d.main.prompt.text == "frist more"
        await d.press("down", "alt+up", "alt+up", "e", *" more", "alt+up", "alt+up", "e")
        assert d.main.prompt.text == "frist", "it is edited anew"
        await d.press("backspace", "enter")
        await d.settle()
        await d.shows("‹2/2›", "fris", "Two.")
        assert d.main.prompt.text == "a draft"


async def test_esc_after_a_click_into_the_conversation_stops_its_reply(open_app: Any, script: Any) -> None:
    async with open_app(script("word " * 300, step=0.01)) as d:
        await d.say("tell", wait=False)
        await d.shows("word word")
        d.main.view.transcript.focus()
        await d.press("escape")
        await d.until(lambda: not d.conversation.busy)
        assert d.main.prompt.has_focus


async def test_a_copy_from_the_prompt_ends_its_selection(open_app: Any, script: Any) -> None:
    """So that the same key stops a reply or empties the prompt the next time."""
    async with open_app(script("One.")) as d:
        d.main.prompt.insert("some words")
        await d.press(*["ctrl+shift+left"], "ctrl+c")
        assert (d.app.clipboard, d.main.prompt.selected_text) == ("words", "")
        await d.press("ctrl+c")
        assert (d.main.prompt.text, d.main.prompt.emptied) == ("", "some words")


async def test_the_copy_key_of_terminals_copies_and_does_nothing_else(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        d.main.prompt.insert("some words")
        await d.press("ctrl+shift+left", "ctrl+shift+c")
        assert d.app.clipboard == "words"
        await d.press("ctrl+shift+c")
        assert d.main.prompt.text == "some words"
        await d.shows("nothing is selected")


@pytest.mark.parametrize("text", [" \n ", "\u200b", "\u2060\ufeff", "\u3164\u2800", "\u00a0\u3000"])
async def test_a_message_of_nothing_to_see_is_not_sent(open_app: Any, script: Any, text: str) -> None:
    async with open_app(script("One.")) as d:
        d.main.prompt.insert(text)
        await d.press("enter")
        assert (d.conversation.messages, d.main.prompt.text) == ([], text)


@pytest.mark.parametrize(
    "text", ["/etc/passwd: what is it?", "/* why */", "/home/a b", "//stop", "// stop", "//stop\nx = 1"]
)
async def test_a_path_at_the_beginning_is_no_command(open_app: Any, script: Any, text: str) -> None:
    async with open_app(script("One.")) as d:
        await d.say(text)
        assert d.conversation.messages[0].text == (text[1:] if text == "//stop" else text)


async def test_a_word_that_is_no_command_stays_and_says_how_it_is_sent(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        d.main.prompt.insert("/tmp is full")
        await d.press("enter")
        await d.shows("there is no command /tmp", "// begins a message")
        assert d.main.prompt.text == "/tmp is full"


async def test_the_palette_fits_any_height(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), size=(60, 30)) as d:
        for height in (6, 10, 16, 19, 20, 30):
            await d.pilot.resize_terminal(60, height)
            await d.press("ctrl+p")
            await d.shows("Search for commands")
            shown = d.app.screen.query_one("CommandList")
            await d.until(lambda: shown.region.height > 0)  # noqa: B023
            assert shown.region.bottom <= height
            await d.press("escape")
            await d.until(lambda: d.app.screen is d.main)


async def test_with_reduced_motion_no_cursor_blinks(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        await d.say("hi")
        assert not d.main.prompt.cursor_blink
        for key, kind in (("f6", "Input"), ("ctrl+p", "Input"), ("f2", "TextArea")):
            await d.press(key)
            await d.until(lambda: d.app.screen is not d.main and d.app.focused is not None)
            assert kind in d.app.focused.css_path_nodes[-1]._css_type_names
            assert not d.app.focused.cursor_blink
            await d.press("escape")
            await d.until(lambda: d.app.screen is d.main)


@pytest.mark.parametrize(("opened", "field"), [("f2", "TextArea"), ("f2 tab", "Input"), ("f6", "Input")])
async def test_a_paste_into_a_field_of_a_dialog_is_in_no_other(
    open_app: Any, script: Any, opened: str, field: str
) -> None:
    from textual.events import Paste

    async with open_app(script("One.")) as d:
        await d.say("hi")
        await d.press(opened.split()[0])
        await d.until(lambda: d.app.screen is not d.main and d.app.focused is not None)
        await d.press(*opened.split()[1:])
        d.app.post_message(Paste("a secret"))
        await d.typed()
        focused = d.app.focused
        assert field in focused.css_path_nodes[-1]._css_type_names
        assert "a secret" in (focused.text if field == "TextArea" else focused.value)
        assert d.main.prompt.text == ""


async def test_esc_does_not_throw_a_written_system_prompt_away(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        await d.say("hi")
        for _ in range(2):
            await d.press("f2")
            await d.until(lambda: d.app.screen is not d.main)
            await d.press("escape")
            await d.until(lambda: d.app.screen is d.main)  # nothing was written
            await d.press("f2")
            await d.until(lambda: d.app.screen is not d.main)
            await d.press(*"You", "escape")
            await d.shows("not saved", "You")
            await d.press(*" are", "escape")
            await d.shows("You are")
            assert d.app.screen is not d.main, "there is more than what it warned of"
            await d.press("escape")
            await d.until(lambda: d.app.screen is d.main)
        assert d.conversation.system == ""
