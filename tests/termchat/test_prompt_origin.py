"""Where the characters of the prompt came from."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.events import Paste

from termchat.themes import variable_defaults
from termchat.tui.conversations.origin import Origins, origin_at
from termchat.tui.widgets.prompt import Prompt

TEXTS = st.text(alphabet="ab@\n", max_size=8)


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["typed", "pasted", "back"])), max_size=8))
def test_each_character_has_a_source(changes: list[tuple[str, Any]]) -> None:
    origins = Origins()
    for text, origin in changes:
        before = origins.codes
        origins.update(text, origin)
        assert len(origins.codes) == len(text)
        assert set(origins.codes) <= set(before) | {ord(origin[0])}


class Host(App[None]):
    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield Prompt()


async def origins(act: Callable[[Prompt, Any], Any]) -> tuple[str, str]:
    async with Host().run_test() as pilot:
        prompt = pilot.app.query_one(Prompt)
        prompt.focus()
        await act(prompt, pilot)
        await pilot.pause()
        assert len(prompt.origins) == len(prompt.value)
        return prompt.value, prompt.origins.decode()


async def test_N018_what_is_pasted_is_told_from_what_is_typed() -> None:
    async def act(prompt: Prompt, pilot: Any) -> None:
        await pilot.press("a", "b", "left")
        prompt.post_message(Paste("@x"))
        await pilot.pause()
        await pilot.press("home", "@")

    assert await origins(act) == ("@a@xb", "ttppt")


async def test_N018_a_folded_paste_stays_a_paste() -> None:
    async def act(prompt: Prompt, pilot: Any) -> None:
        prompt.load("so: ")
        prompt.post_message(Paste("@x\n" * 20))
        await pilot.pause()
        await pilot.press("!")

    assert await origins(act) == ("so: " + "@x\n" * 20 + "!", "bbbb" + "p" * 60 + "t")


@pytest.mark.parametrize("keys", [("ctrl+z",), ("ctrl+z", "ctrl+y")])
async def test_N018_what_an_undo_brings_back_is_not_typed(keys: tuple[str, ...]) -> None:
    async def act(prompt: Prompt, pilot: Any) -> None:
        prompt.paste("@x ")
        prompt.history.checkpoint()
        prompt.action_select_all()
        prompt.action_delete_left()
        await pilot.press(*keys)

    value, found = await origins(act)
    assert (value, found) == (("@x ", "bbb") if len(keys) == 1 else ("", ""))


async def test_going_through_earlier_prompts_keeps_the_sources_of_what_was_typed() -> None:
    async def act(prompt: Prompt, pilot: Any) -> None:
        prompt.earlier = ["older @y"]
        await pilot.press("@", "x", "up")
        await pilot.pause()
        assert (prompt.value, prompt.origins) == ("older @y", b"b" * 8)
        await pilot.press("down")

    assert await origins(act) == ("@x", "tt")
    assert origin_at(b"tpb", 1) == "pasted"
