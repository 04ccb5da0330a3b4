"""A terminal gets text made safe and JSON that is still JSON; a pipe or a file gets the bytes as they are."""

from __future__ import annotations

import json
import os
import pty
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from termchat.cells import cell_len
from termchat.cli.console import Console
from termchat.cli.main import run
from termchat.cli.output import Messages, Output
from termchat.sanitize import visible
from termchat.store import Store

NASTY = "a\x1b]0;owned\x07b\x1b[2Jc\x9b31md\u202ee\u2066f\U000e0041g"


@pytest.fixture
def on_terminal() -> Callable[..., str]:
    """Run the program on a terminal: all that it wrote there, both streams, with plain line ends."""

    def call(*arguments: str) -> str:
        main, side = pty.openpty()
        written: list[bytes] = []

        def read() -> None:
            while True:
                try:
                    data = os.read(main, 65536)
                except OSError:
                    return
                written.append(data)

        reader = threading.Thread(target=read)
        reader.start()
        null = os.open(os.devnull, os.O_RDONLY)
        run(arguments, Console(Output(side), Messages(side), stdin=null))
        os.close(side)  # the reader gets an error at the end
        reader.join(60)
        os.close(main)
        os.close(null)
        return b"".join(written).decode().replace("\r\n", "\n")

    return call


@pytest.fixture
def chat(home: Path) -> str:
    """A stored conversation whose every text is hostile."""
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        store.create_conversation("nasty", model=f"m{NASTY}", system=NASTY)
        store.add_message("nasty", "user", NASTY)
        reply = store.begin_reply("nasty", model=f"m{NASTY}")
        reply.append(f"reply {NASTY}")
        reply.finish()
        store.rename("nasty", f"title {NASTY}")
    return "nasty"


def harmless(text: str) -> None:
    own = text.replace("\x1b[2m", "").replace("\x1b[0m", "").replace("\r\x1b[K", "")
    assert visible(own) == own
    assert "owned" in text, "it is there, but inert"


@pytest.mark.parametrize(
    "arguments",
    [
        ("history", "list"),
        ("history", "show", "nasty"),
        ("history", "search", "reply"),
        ("history", "export", "nasty", "-f", "md"),
        ("history", "export", "nasty", "-f", "text"),
    ],
)
def test_stored_text_is_harmless_on_a_terminal_and_as_it_was_in_a_pipe(
    arguments: tuple[str, ...], chat: str, on_terminal: Any, termchat: Any
) -> None:
    harmless(on_terminal(*arguments))
    if arguments[1] in ("show", "export"):
        assert NASTY in termchat(*arguments).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("history", "list", "--json"),
        ("history", "show", "nasty", "--json"),
        ("history", "search", "reply", "--json"),
        ("history", "export", "nasty"),
    ],
)
def test_json_of_stored_text_has_the_same_value_on_a_terminal(
    arguments: tuple[str, ...], chat: str, on_terminal: Any, termchat: Any
) -> None:
    shown = on_terminal(*arguments)
    harmless(shown)
    assert json.loads(shown) == json.loads(termchat(*arguments).out)
    if arguments[1] in ("show", "export"):
        assert NASTY.replace("\x1b", "\\u001b").replace("\x07", "\\u0007") in termchat(*arguments).out


@pytest.mark.parametrize("form", [(), ("--json",), ("--jsonl",), ("--no-stream",), ("--stats",)])
def test_replies_are_harmless_on_a_terminal(form: tuple[str, ...], on_terminal: Any, scripted: Any) -> None:
    scripted(f"<think>hm {NASTY}</think>{NASTY} \u200cمی\u200cخواهم")
    shown = on_terminal("hi", *form)
    harmless(shown)
    assert "می\u200cخواهم" in shown
    if form[:1] in (("--json",), ("--jsonl",)):
        line = next(line for line in reversed(shown.splitlines()) if line.startswith("{"))
        assert NASTY in json.loads(line)["text"]


def test_names_of_models_settings_themes_and_options_are_harmless(
    home: Path, on_terminal: Any, termchat: Any
) -> None:
    config = home / "config" / "termchat"
    (config / "themes").mkdir(parents=True)
    (config / "themes" / "owned\x1b[2J.toml").write_text("name = 3")
    (config / "models.toml").write_text(
        f"[models.mine]\npath = {json.dumps('/' + NASTY)}\nlicence = {json.dumps(NASTY)}\n"
    )
    (config / "config.toml").write_text(f"model = {json.dumps('x' + NASTY)}\n")
    for arguments in (
        ("models", "list"),
        ("models", "show", "mine"),
        ("models", "show", "mine", "--json"),
        ("models", "show", NASTY),
        ("themes", "list"),
        ("config", "show"),
        ("config", "show", "--json"),
        ("plan", f"/{NASTY}.gguf"),
        ("doctor",),
        ("-m", f"/{NASTY}.gguf", "hi"),
        (f"--{NASTY}",),
        ("-t", NASTY, "hi"),
        ("batch", f"/{NASTY}", "-o", "x"),
        ("history", "show", NASTY),
    ):
        shown = on_terminal(*arguments)
        own = shown.replace("\x1b[2m", "").replace("\x1b[0m", "").replace("\r\x1b[K", "")
        assert visible(own) == own, arguments


def test_N026_lists_print_the_characters_in_aligned_columns(home: Path, termchat: Any) -> None:
    titles = ("می\u200cخواهم", "ශ්\u200dරී", "👨\u200d👩\u200d👧\u200d👦", "עב\u200fרית", "漢字", "plain")
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        for number, title in enumerate(titles):
            store.create_conversation(f"c{number}", model=title)
            store.add_message(f"c{number}", "user", f"{title} |")
    listed = termchat("history", "list").out.splitlines()[1:]
    for title in titles:
        (line,) = (line for line in listed if line.endswith(f"{title} |"))
        assert line.count(title) == 2
    assert (
        len(
            {
                cell_len(line[: line.rindex(" |")].removesuffix(title))
                for line, title in zip(sorted(listed, key=lambda line: line[:2]), titles, strict=True)
            }
        )
        == 1
    )
    assert titles[0] in termchat("history", "search", titles[0]).out
    shown = json.loads(termchat("history", "show", "c0", "--json").out)
    assert shown["messages"][0]["text"] == f"{titles[0]} |"


def test_carriage_returns_of_a_stream_are_line_ends_on_a_terminal() -> None:
    read, write = os.pipe()
    output = Output(write)
    output.is_terminal = True
    for piece in ("a\r", "\nb\r", "c", "\n"):
        output.write(piece)
    os.close(write)
    assert os.read(read, 100) == b"a\nb\nc\n"
    os.close(read)
