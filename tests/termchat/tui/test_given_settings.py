"""Options of the command line hold in the full screen for a conversation that goes on, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from termchat.cli.fullscreen import screen
from termchat.cli.request import Request
from termchat.errors import UserError


async def test_settings_hold_for_a_stored_conversation(open_app: Any, script: Any, tmp_path: Path) -> None:
    from termchat.store import Store

    database = tmp_path / "data" / "termchat.db"

    with Store(database) as store:
        store.create_conversation("mine", system="Be long.", params={"temperature": 0.9, "top_k": 5})
    given = {"temperature": 0.0, "max_tokens": 2}
    options = {"conversation": "mine", "sampling": given, "system": "Be brief."}
    async with open_app(script("One two three four.", "One two three four."), **options) as d:
        await d.until(lambda: d.conversation.id == "mine")
        assert d.conversation.sampling == {"temperature": 0.0, "top_k": 5, "max_tokens": 2}
        await d.until(lambda: d.conversation.system == "Be brief.")
        await d.say("Hi")
        assert d.conversation.messages[-1].finish_reason == "length"
        await d.app.conversations.set_params(d.conversation, {"max_tokens": 3})
        assert d.conversation.sampling == {"max_tokens": 3}, "what is set later is not overridden"
    with Store(database) as store:
        assert store.conversation("mine").system == "Be brief."


@pytest.mark.parametrize("name", ["a b", "", "-x", "x" * 101, "a\nb"])
def test_a_bad_id_is_refused_before_anything_is_drawn(name: str) -> None:
    with pytest.raises(UserError, match="a conversation's id has 1 to 100 characters"):
        screen(None, Request("", conversation=name))  # type: ignore[arg-type]


def test_the_current_folder_can_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from termchat.tui.app import _current_folder

    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert _current_folder() == Path(os.sep)


async def test_N023_a_tag_that_is_never_closed_is_text(stage: Any, script: Any) -> None:
    """Of a model whose template knows of no thinking; shown and stored alike."""
    text = "<think> is a tag of HTML"
    async with stage(script(text, "<think>why</think>Because.", step=0.02)) as s:
        chat = s.conversations.new()
        for said in ("Hi", "And now?"):
            s.turns.submit(chat, said)
            await s.until(lambda: not chat.busy)
        rows = await s.store.call(lambda store: store.path(chat.id))
        assert [(row.text, row.thinking, row.status) for row in rows[1::2]] == [
            (text, "", "done"),
            ("Because.", "why", "done"),
        ]
        assert rows == chat.messages
