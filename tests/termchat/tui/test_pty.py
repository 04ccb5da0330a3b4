"""The real program on a real pseudo-terminal with the default model."""

import base64
import json
import os
import re
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest

from termchat.store import Store
from termchat.units import rate
from waiting import wait_for

ROWS, COLUMNS = 36, 120
STORY = "Tell me a very long story about the sea."
CLIPBOARD = re.compile(rb"\x1b\]52;c;([A-Za-z0-9+/=]+)\x07")


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
            timeout=300,
        )
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""  # all of it
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
            self.written += data
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
        wait_for(lambda: not self.child.isalive(), about="at the end")
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


def reply_to(tmp_path: Path, question: str) -> str:
    """What is stored of the reply to a first message, so far."""
    return "".join(text for role, _, text in history(tmp_path).get(question, []) if role == "assistant")


def test_two_conversations_stop_and_quit(terminal: Any, tmp_path: Path) -> None:
    screen = terminal("-t", "0")
    screen.shows("Type a message")
    screen.child.send("Count from 1 to 10.\r")  # also before the model is loaded
    screen.shows("Count from 1 to 10.", "2. 2")
    screen.child.send("\x0e")  # ^N
    screen.shows("New chat")
    screen.child.send(f"{STORY}\r")
    screen.wait(lambda _: reply_to(tmp_path, STORY))
    screen.child.send("\x1b")
    screen.shows("continues this reply")
    screen.child.send("\x1b2")  # alt+2
    screen.shows("3. 3")
    screen.child.send("\x11")  # ^Q
    assert screen.end() == 0
    kept = history(tmp_path)
    count, story = kept["Count from 1 to 10."], kept[STORY]
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


def test_what_is_typed_before_the_first_frame_is_in_the_prompt(terminal: Any) -> None:
    screen = terminal("--no-save")
    screen.child.send("typed early")
    screen.shows("│ typed early", "enter send")
    screen.child.send(" and late\x1b\rbelow")  # alt+enter
    screen.shows("│ typed early and late", "│ below")
    screen.child.send("\x11")
    assert screen.end() == 0


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
    screen.shows("the prompt has", "esc twice")  # longer than the context, which is said with the numbers
    screen.child.send("/copy\r")
    screen.wait(lambda _: CLIPBOARD.search(screen.written))
    assert [base64.b64decode(found).decode() for found in CLIPBOARD.findall(screen.written)] == [
        f"see: {text} ok"
    ]
    screen.child.send("\x11")
    assert screen.end() == 0
    (messages,) = history(tmp_path).values()
    assert messages == [("user", "done", f"see: {text} ok")]


def test_a_closed_window_ends_the_program_and_keeps_the_reply(terminal: Any, tmp_path: Path) -> None:
    screen = terminal("-t", "0")
    screen.shows("Type a message")
    screen.child.send(f"{STORY}\r")
    screen.wait(lambda _: reply_to(tmp_path, STORY))
    screen.child.ptyproc.fileobj.close()
    assert screen.end() == 128 + signal.SIGHUP
    ((question, reply),) = history(tmp_path).values()
    assert question[1] == "done"
    assert reply[:2] == ("assistant", "interrupted")


KV_BYTES = 2 * 30 * 3 * 64 * 2
"""Keys and values of one token of the default model: layers, heads, values, float16."""

STYLES = re.compile(rb"\x1b\[[\d;]*m")


def figures(screen: Terminal) -> dict[str, Any]:
    """What `/stats` copies."""
    before = len(CLIPBOARD.findall(screen.written))
    screen.child.send("/stats\r")
    screen.wait(lambda _: len(CLIPBOARD.findall(screen.written)) > before)
    copied: dict[str, Any] = json.loads(base64.b64decode(CLIPBOARD.findall(screen.written)[before]))
    return copied


def drawn(screen: Terminal, label: str) -> set[str]:
    """All figures that stood behind a label of the panel."""
    found = re.findall(label.encode() + rb" +([\d.]+)", STYLES.sub(b"", screen.written))
    return {figure.decode() for figure in found}


def tokens_at(readings: list[dict[str, Any]], moment: float) -> float | None:
    """Tokens there were then, between two readings that are not far apart."""
    for one, other in pairwise(readings):
        span = other["time"] - one["time"]
        if one["time"] <= moment <= other["time"] and span < 2:
            share = (moment - one["time"]) / span
            return float(one["tokens_total"] + share * (other["tokens_total"] - one["tokens_total"]))
    return None


def agree(ratios: list[float]) -> bool:
    """Whether the last five are about 1."""
    return len(ratios) >= 5 and statistics.median(ratios[-5:]) == pytest.approx(1, abs=0.1)


def test_the_panel_tells_the_truth(terminal: Any, tmp_path: Path) -> None:
    """Its rates against the tokens that came and the time that passed, in the same 2 seconds each.

    Without drafts, a token is a step, and what a step reads follows from the tokens.
    """
    began = time.perf_counter()
    screen = terminal("-t", "0", "--draft", "none")
    screen.shows("Type a message")
    screen.child.send(f"{STORY}\r")
    screen.shows("1 running")
    readings: list[dict[str, Any]] = []
    speeds: list[float] = []
    traffics: list[float] = []
    deadline = time.monotonic() + 240
    # Rates that are wrong never agree; right ones may take a while to, beside other work.
    while not (agree(speeds) and agree(traffics)):
        assert time.monotonic() < deadline, f"{len(readings)} readings, {speeds}, {traffics}"
        time.sleep(0.2)
        reading = figures(screen)
        assert began < reading["time"] < time.perf_counter(), "its clock is ours"
        if readings and reading["time"] == readings[-1]["time"]:
            continue
        readings.append(reading)
        before = tokens_at(readings, reading["time"] - 2)
        if before is not None and before > 20:
            speed = (reading["tokens_total"] - before) / 2
            context = reading["conversations"][0]["tokens"] - speed
            traffic = speed * (reading["bytes_per_token"] + context * KV_BYTES) / 1e9
            speeds.append(reading["tokens_per_second"] / speed)
            traffics.append(reading["bandwidth_gbs"] / traffic)
    screen.child.send("\x1b")
    screen.shows("continues this reply")
    last = figures(screen)
    screen.child.send("\x11")
    assert screen.end() == 0
    # The panel draws what it copies.
    assert drawn(screen, "all conversations") & {rate(reading["tokens_per_second"]) for reading in readings}
    assert drawn(screen, "achieved") & {f"{reading['bandwidth_gbs']:.1f}" for reading in readings}
    # It counts the tokens that are stored.
    with Store(tmp_path / "data" / "termchat" / "termchat.db") as store:
        (conversation,) = store.list_conversations()
        reply = store.path(conversation.id)[-1]
    assert reply.metrics["completion_tokens"] == last["tokens_total"] >= readings[-1]["tokens_total"]
