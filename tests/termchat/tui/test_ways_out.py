"""What leads outside and back: the user's editor, a download, a new conversation when the context is full."""

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.drivers.headless_driver import HeadlessDriver

from termchat.model_entry import HuggingFaceSource, LocalSource, ModelEntry
from termchat.registry import Registry

LONG = " ".join(str(number) for number in range(60))


@pytest.fixture
def edit_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a script the user's editor."""

    def make(script: str, *, mode: int = 0o755) -> Path:
        path = tmp_path / "an editor"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(mode)
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", f"'{path}' --wait")
        monkeypatch.setattr(HeadlessDriver, "can_suspend", True)
        return path

    return make


async def test_the_prompt_is_written_in_the_editor_while_a_reply_goes_on(
    open_app: Any, script: Any, edit_with: Any, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    edit_with(f'cp "$2" "{tmp_path}/seen"; while [ ! -e "{go}" ]; do sleep 0.05; done; echo "more" >> "$2"')
    async with open_app(script(LONG, step=0.005)) as d:
        await d.say("count", wait=False)
        d.main.prompt.load("日本語 [b]first[/b]\n")
        await d.press("f4")
        await d.until(lambda: d.conversation.messages and d.conversation.messages[-1].text == LONG)
        assert (tmp_path / "seen").read_text(encoding="utf-8") == "日本語 [b]first[/b]\n"
        go.touch()
        await d.until(lambda: d.main.prompt.text == "日本語 [b]first[/b]\nmore")
        await d.shows("first[/b]", "more", LONG[-8:])


async def test_an_editor_that_ends_lines_as_windows_does(open_app: Any, script: Any, edit_with: Any) -> None:
    edit_with(r"""printf 'one\r\ntwo\r\n' > "$2" """)
    async with open_app(script("One.")) as d:
        d.main.prompt.load("zero")
        await d.press("f4")
        await d.until(lambda: d.main.prompt.text != "zero")
        assert d.main.prompt.text == "one\ntwo"


@pytest.mark.parametrize(
    ("editor", "said"),
    [
        ("exit 3", "the editor ended with code 3"),
        (None, "cannot be run"),
        ("'unclosed", "cannot be understood"),
    ],
)
async def test_an_editor_that_fails_changes_nothing(
    open_app: Any, script: Any, edit_with: Any, monkeypatch: pytest.MonkeyPatch, editor: str | None, said: str
) -> None:
    edit_with(editor or "", mode=0o755 if editor else 0o644)
    if editor == "'unclosed":
        monkeypatch.setenv("EDITOR", editor)
    async with open_app(script("One.")) as d:
        d.main.prompt.load("half a thought")
        await d.press("f4")
        await d.shows(said)
        assert d.main.prompt.text == "half a thought"


async def test_a_terminal_without_suspension_has_no_editor(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        await d.press("f4")
        await d.shows("an editor cannot be opened on this terminal")


class Site(http.server.SimpleHTTPRequestHandler):
    """A hub: files of a folder, found at /owner/repo/resolve/main/."""

    def translate_path(self, path: str) -> str:
        return super().translate_path("/" + path.rpartition("/")[2])

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "hub"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Site, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    yield folder
    server.shutdown()
    server.server_close()


async def test_a_model_chosen_in_the_list_is_fetched_loaded_and_answers(
    open_app: Any, script: Any, hub: Path, tmp_path: Path, default_model: Path
) -> None:
    data = bytes(range(256)) * 400
    remote = ModelEntry(
        "far-away",
        (HuggingFaceSource("owner/repo", "m.gguf"),),
        "a [small] model",
        "MIT",
        len(data),
        hashlib.sha256(data).hexdigest(),
    )
    near = ModelEntry("near", (LocalSource(default_model),))
    registry = Registry({"near": near, "far-away": remote}, "near", tmp_path / "models")
    models = {"near": script("Near.", "Near again."), "far-away": script("From afar.")}
    async with open_app(models, registry=registry) as d:
        await d.say("first")
        first = d.conversation
        await d.press("f6")
        await d.shows("⇣ far-away", "102.4 kB  MIT", "a [small] model", "● near")
        await d.press(*"far")
        await d.until(lambda: "● near" not in d.screen)
        await d.press("enter")
        await d.until(lambda: d.conversation.model == "far-away")
        await d.until(lambda: d.main.slot.state == "absent" and d.main.slot.remedy)  # 404: it is not there
        await d.say("second", wait=False)
        await d.shows("far-away is not on this machine", "102.4 kB, MIT", "download it", "go on with near")
        (hub / "m.gguf").write_bytes(data)
        await d.press("enter")
        await d.settle()
        assert [message.text for message in d.conversation.messages] == [
            "first",
            "Near.",
            "second",
            "From afar.",
        ]
        assert (tmp_path / "models" / "far-away" / "m.gguf").read_bytes() == data
        assert d.conversation is first
        assert [slot.title for slot in d.app.engines.loaded] == ["near", "far-away"]


async def test_a_full_context_is_summarised_into_a_new_conversation(open_app: Any, script: Any) -> None:
    replies = ("A. " * 40, LONG, "They counted [a lot].", "And on.")
    async with open_app(script(*replies, context=480), size=(140, 40)) as d:
        await d.say("first")
        await d.say("/system Be kind.")
        await d.say("second")
        old = d.conversation
        kept = list(old.messages)
        await d.say("/compact", wait=False)
        await d.shows("with a summary of what was said")
        await d.press("down", "enter")
        await d.until(lambda: d.conversation is not old)
        await d.settle()
        new = d.conversation
        assert new.system == "Be kind.\n\nSummary of the conversation so far:\nThey counted [a lot]."
        assert new.row.forked_from == old.id
        assert (new.title, new.messages) == (f"{old.title} (2)", [])
        assert old.messages == kept
        await d.say("go on")
        assert [message.text for message in new.messages] == ["go on", "And on."]


async def test_nothing_to_drop_is_said(open_app: Any, script: Any) -> None:
    async with open_app(script("x", context=480), size=(140, 40)) as d:
        text = "word " * 470
        d.main.prompt.load(text)
        await d.press("enter")
        await d.until(lambda: d.conversation.refused)
        await d.say(text)  # who insists is told by the engine
        await d.shows("esc twice edits it")
        await d.say("/compact", wait=False)
        await d.shows("without the oldest messages")
        await d.press("enter")
        await d.shows("the last message alone takes more than 360")
