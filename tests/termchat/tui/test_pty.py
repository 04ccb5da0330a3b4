"""The real program on a real pseudo-terminal with the default model."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest

from termchat.store import Store

ROWS, COLUMNS = 36, 120


class Terminal:
    """termchat in a pseudo-terminal, and what it has drawn."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_STATE_HOME": str(folder / "state"),
            "TERM": "xterm-256color",
        }
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "termchat", *arguments],
            env=environment,
            dimensions=(ROWS, COLUMNS),
            timeout=60,
        )
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.child.child_fd, 65536)
            except OSError:
                return
            if not data:
                return
            self._stream.feed(data.replace(b"\x1b[>", b"\x1b[?"))  # pyte does not know the private form

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    def wait(self, condition: Callable[[str], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition(self.text):
            assert time.monotonic() < deadline, f"it did not happen:\n{self.text}"
            assert self.child.isalive() or condition(self.text), f"it ended:\n{self.text}"
            time.sleep(0.05)

    def shows(self, *texts: str) -> None:
        self.wait(lambda screen: all(text in screen for text in texts))

    def end(self) -> int:
        deadline = time.monotonic() + 30
        while self.child.isalive():
            assert time.monotonic() < deadline, "it does not end"
            time.sleep(0.05)
        self.child.close()
        code = self.child.exitstatus
        assert code is not None, f"ended by signal {self.child.signalstatus}"
        return int(code)


@pytest.fixture
def terminal(default_model: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(tmp_path, *arguments))
        return opened[-1]

    yield start
    for each in opened:
        each.child.close(force=True)


def history(tmp_path: Path) -> dict[str, list[tuple[str, str, str]]]:
    with Store(tmp_path / "data" / "termchat" / "termchat.db") as store:
        return {
            conversation.title: [
                (message.role, message.status, message.text) for message in store.path(conversation.id)
            ]
            for conversation in store.list_conversations()
        }


def test_two_conversations_stop_and_quit(terminal: Any, tmp_path: Path) -> None:
    screen = terminal("-t", "0")
    screen.shows("Type a message")
    screen.child.send("Count from 1 to 10.\r")  # also before the model is loaded
    screen.shows("Count from 1 to 10.", "2. 2")
    screen.child.send("\x0e")  # ^N
    screen.shows("New chat")
    screen.child.send("Tell me a very long story about the sea.\r")
    screen.wait(lambda text: "◆" in text and "Tell me a very long story" in text and "2. 2" not in text)
    screen.wait(lambda text: len(text.split("◆")[-1].split()) > 6)
    screen.child.send("\x1b")
    screen.shows("continues this reply")
    screen.child.send("\x1b[6;5~")  # ^PageDown
    screen.shows("3. 3")
    screen.child.send("\x11")  # ^Q
    assert screen.end() == 0
    kept = history(tmp_path)
    count, story = kept["Count from 1 to 10."], kept["Tell me a very long story about the sea."]
    assert count[1][:2] in (("assistant", "done"), ("assistant", "interrupted"))  # quitting stops it
    assert count[1][2].startswith("1. 1\n2. 2\n3. 3")
    assert story[1][:2] == ("assistant", "interrupted")
    assert story[1][2]

    again = terminal("-c")
    # Whichever of the two ended last is opened; the other one is a key away.
    again.wait(lambda text: "Tell me a very" in text and ("3. 3" in text or "F9 continues" in text))
    counts = "3. 3" in again.text
    again.child.send("\x1b[6;5~")
    again.wait(lambda text: ("3. 3" in text) != counts and ("F9 continues" in text or not counts))
    again.child.kill(signal.SIGTERM)
    assert again.end() == 128 + signal.SIGTERM


def test_B069_a_paste_of_lines_is_one_draft(terminal: Any, tmp_path: Path) -> None:
    screen = terminal("--no-save")
    screen.shows("Type a message")
    screen.child.send("\x1b[200~one\rtwo\rthree\x1b[201~")
    screen.shows("one", "two", "three")
    screen.child.send("\x03")  # ^C with nothing selected: nothing is lost
    screen.shows("quits", "three")
    screen.child.send("\x11")
    assert screen.end() == 0
    assert not (tmp_path / "data" / "termchat" / "termchat.db").exists()


def test_B069_200_kb_through_the_terminal_are_stored_whole(terminal: Any, tmp_path: Path) -> None:
    text = "".join(f"{number} of many lines, 日本語\n" for number in range(6800))
    assert len(text.encode()) > 200_000
    screen = terminal()
    screen.shows("Type a message")
    screen.child.send("see: \x1b[200~" + text.replace("\n", "\r") + "\x1b[201~ ok")
    screen.shows("see: [Pasted #1 +6801 lines] ok")
    screen.child.send("\r")
    screen.shows("tokens")  # it is longer than the context, which is said with the numbers
    screen.child.send("\x11")
    assert screen.end() == 0
    (messages,) = history(tmp_path).values()
    assert messages == [("user", "done", f"see: {text} ok")]


def test_a_closed_window_ends_the_program_and_keeps_the_reply(terminal: Any, tmp_path: Path) -> None:
    screen = terminal("-t", "0")
    screen.shows("Type a message")
    screen.child.send("Tell me a very long story about the sea.\r")
    screen.wait(lambda text: "◆" in text and "queue" in text)
    time.sleep(1)
    screen.child.ptyproc.fileobj.close()
    assert screen.end() == 128 + signal.SIGHUP
    ((question, reply),) = history(tmp_path).values()
    assert question[1] == "done"
    assert reply[:2] == ("assistant", "interrupted")
