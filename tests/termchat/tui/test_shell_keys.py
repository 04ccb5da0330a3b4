"""Keys that people know from their shells, and keypads."""

from __future__ import annotations

from typing import Any

import pytest

from termchat.tui.terminal.input import Input
from termchat.tui.terminal.reports import Reports


def pressed(data: bytes) -> list[str]:
    typed = Input()
    return [event.key for event in Reports().messages(typed.feed(data, 0.0) + typed.tick(9.0))]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["ctrl+a", "alt+d"], " two three"),
        (["ctrl+w", "ctrl+y", "ctrl+y"], "one two threethree"),
        (["ctrl+u", "x", "ctrl+y"], "xone two three"),
        (["ctrl+a", "ctrl+k", "ctrl+y"], "one two three"),
        (["ctrl+a", "alt+d", "ctrl+e", "ctrl+y"], " two threeone"),
        (["ctrl+y"], "one two three"),
        (["backspace", "ctrl+y"], "one two thre"),  # a character is not kept
        (["ctrl+w", "ctrl+underscore", "ctrl+y"], "one two "),  # what was undone is done again
        (["ctrl+w", "ctrl+underscore", "ctrl+y", "ctrl+y"], "one two three"),
    ],
)
async def test_shell_keys_delete_and_put_back(open_app: Any, script: Any, keys: list[str], text: str) -> None:
    async with open_app(script("r")) as d:
        d.main.prompt.insert("one two three")
        await d.press(*keys)
        assert d.main.prompt.text == text


async def test_ctrl_d_deletes_and_leaves_where_there_is_nothing(open_app: Any, script: Any) -> None:
    """A terminal whose input ends later, that of `script` say, sends it."""
    async with open_app(script("r")) as d:
        d.main.prompt.insert("ab")
        await d.press("ctrl+a", "ctrl+d")
        assert d.main.prompt.text == "b"
        await d.press("ctrl+d")
        assert (d.main.prompt.text, d.app.is_running) == ("", True)
        await d.press("ctrl+d")
        await d.until(lambda: d.app._exit)


async def test_shell_keys_do_not_turn_a_paste_into_typed_text(open_app: Any, script: Any) -> None:
    """What is put back attaches no file unasked, as it may have been pasted (N018)."""
    async with open_app(script("r")) as d:
        d.main.prompt.paste("see @pasted.txt")
        await d.press("ctrl+u", "ctrl+y")
        assert d.main.prompt.text == "see @pasted.txt"
        typed = d.main.prompt.origins
        d.main.prompt.load("")
        await d.press(*"x")
        assert d.main.prompt.origins[0] not in typed


def test_keypad_in_application_mode_types() -> None:
    assert pressed(b"\x1bOp\x1bOq\x1bOy\x1bOM") == ["0", "1", "9", "enter"]
    assert pressed(b"\x1bOj\x1bOk\x1bOm\x1bOn\x1bOo") == ["asterisk", "plus", "minus", "full_stop", "slash"]


@pytest.mark.parametrize("sent", [b"\x1b\x7f", b"\x1b\x08"])
async def test_alt_and_backspace_in_both_forms(open_app: Any, script: Any, sent: bytes) -> None:
    async with open_app(script("r")) as d:
        d.main.prompt.insert("one two three")
        await d.press(*pressed(sent))
        assert d.main.prompt.text == "one two "


@pytest.mark.parametrize("typed", ["", "a text"])
async def test_keys_go_to_both_ends_of_a_conversation_while_typing(
    open_app: Any, script: Any, typed: str
) -> None:
    async with open_app(script("\n".join(f"- item {n}" for n in range(100))), size=(100, 20)) as d:
        await d.say("question")
        transcript = d.main.view.transcript
        await d.until(lambda: transcript.scroll_offset.y == transcript.max_scroll_y > 50)
        d.main.prompt.insert(typed)
        await d.press("ctrl+home")
        await d.until(lambda: transcript.scroll_offset.y == 0)
        await d.press("ctrl+end")
        await d.until(lambda: transcript.scroll_offset.y == transcript.max_scroll_y)
        assert transcript.following
        await d.press("ctrl+home", "end")  # the end of the line, if there is one
        await d.settle()
        assert (transcript.scroll_offset.y == 0) is bool(typed)
