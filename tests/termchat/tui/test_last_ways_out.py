"""Faults, signals and the shell's keys on a real pseudo-terminal: it is as it was, and nothing is lost."""

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from begun import saved
from termchat.store import Store
from termchat.tui.terminal.paper import has_room
from waiting import HANG_SECONDS, wait_for

# The modes that a terminal must not be left in, by the last that was said of each.
MODES = re.compile(rb"\x1b\[\?(1049|1000|1003|1006|1015|1016|2004|1004|2048|25|7)([hl])")
AS_BEFORE = {b"25": b"h", b"7": b"h"}

BROKEN = """
import asyncio, os, sys
from termchat.tui import app
from termchat.tui.terminal import reports
from termchat.tui.screens import main as screen
kind = sys.argv[1]

def boom(*_):
    secret = "a local value"
    raise RuntimeError("broken on purpose")

if kind == "input":
    typed = reports.Reports.messages
    def messages(self, tokens):
        return boom() if any(token.text == "!" for token in tokens) else typed(self, tokens)
    reports.Reports.messages = messages
elif kind == "handler":
    keep = screen.MainScreen.on_prompt_submitted
    screen.MainScreen.on_prompt_submitted = lambda self, e: boom() if e.text == "now" else keep(self, e)
elif kind == "timer":
    keep = screen.MainScreen.on_prompt_submitted
    def submitted(self, event):
        return self.set_timer(0.01, boom) if event.text == "now" else keep(self, event)
    screen.MainScreen.on_prompt_submitted = submitted
elif kind == "task":
    async def task():
        boom()
    def on(self, e):
        asyncio.create_task(task())
    screen.MainScreen.on_prompt_submitted = on
elif kind == "words":
    screen.MainScreen.on_prompt_submitted = lambda self, e: os.write(2, b"thread panicked\\n")

from termchat.cli.main import run
code = run(sys.argv[2:])
os.write(2, b"standard error is back\\n")
sys.exit(code)
"""


class Shell:
    """A program on a pseudo-terminal, and all it has written."""

    def __init__(self, folder: Path, command: list[str], **environment: str) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if name not in ("VISUAL", "NO_COLOR")}
        kept |= {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "STATE")}
        kept |= {"TERM": "xterm-256color", **environment}
        self.child = pexpect.spawn(command[0], command[1:], env=kept, dimensions=(30, 100), timeout=300)
        self.before = termios.tcgetattr(self.child.child_fd)
        self.written = b""

    def read(self, seconds: float = 0.05) -> None:
        while select.select([self.child.child_fd], [], [], seconds)[0]:
            try:
                data = os.read(self.child.child_fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.written += data

    def shows(self, text: bytes, *, after: int = 0) -> None:
        self.until(lambda: text in self.written[after:], f"{text!r} is not shown")

    def until(
        self, condition: Callable[[], object], what: str = "it did not happen", seconds: float = HANG_SECONDS
    ) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self.read()
            assert time.monotonic() < deadline, f"{what}: {self.written[-3000:]!r}"
            if not self.child.isalive():
                self.read()
                assert condition(), f"{what}, and it ended: {self.written[-3000:]!r}"

    def is_full(self) -> bool:
        """Whether the terminal takes nothing more until somebody reads."""
        name = ctypes.CDLL(None).ptsname
        name.restype = ctypes.c_char_p
        terminal = os.open(name(self.child.child_fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            return not has_room(terminal, 0)
        finally:
            os.close(terminal)

    def end(self) -> int:
        self.until(lambda: not self.child.isalive(), "it does not end")
        self.read()
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus)

    def is_restored(self) -> None:
        left = self.written.rindex(b"\x1b[?1004l") + 8  # the last thing; a shell has modes of its own
        last = dict(MODES.findall(self.written[:left]))
        assert last, "the full screen was there"
        for mode, state in last.items():
            assert state == AS_BEFORE.get(mode, b"l"), (mode, self.written[-500:])
        assert self.written.count(b"\x1b[<u") >= 1
        assert b"\x1b[>29u" in self.written, "the keys' places are asked for"

    def stored(self) -> list[tuple[str, str, str]]:
        with Store(self.folder / "data" / "termchat" / "termchat.db") as store:
            return [
                (message.role, message.status, message.text)
                for conversation in store.list_conversations()
                for message in store.path(conversation.id)
            ]


@pytest.fixture
def shell(default_model: Path, tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    opened: list[Shell] = []

    def start(*command: str, **environment: str) -> Shell:
        opened.append(Shell(tmp_path, list(command), **environment))
        return opened[-1]

    yield start
    for each in opened:
        each.child.close(force=True)


def begin_a_story(screen: Shell) -> None:
    """Wait until a long reply streams."""
    screen.shows(b"Type a message")
    screen.child.send("Tell me a very long story.\r")
    screen.until(lambda: saved(screen.folder).text)


@pytest.mark.parametrize(("kind", "keys"), [("input", "!"), ("handler", "now\r"), ("timer", "now\r")])
def test_a_fault_while_a_reply_streams_is_one_sentence(
    shell: Any, tmp_path: Path, kind: str, keys: str
) -> None:
    screen = shell(sys.executable, "-c", BROKEN, kind, "-t", "0")
    begin_a_story(screen)
    screen.child.send(keys)
    assert screen.end() == 1
    screen.is_restored()
    said = screen.written[screen.written.rindex(b"\x1b[?1004l") :]
    assert said.count(b"termchat: termchat has a fault: RuntimeError: broken on purpose; ") == 1
    assert said.count(b"\n") == 1
    assert b"a local value" not in screen.written
    (question, reply) = screen.stored()
    assert question[:2] == ("user", "done")
    assert reply[:2] == ("assistant", "interrupted")
    assert reply[2]
    log = (tmp_path / "state" / "termchat" / "termchat.log").read_text()
    assert "Traceback" in log
    assert "broken on purpose" in log
    assert "a local value" not in log


def test_a_task_that_nobody_waits_for_is_a_fault_too(shell: Any) -> None:
    screen = shell(sys.executable, "-c", BROKEN, "task", "--no-save")
    screen.shows(b"Type a message")
    screen.child.send("now\r")
    assert screen.end() == 1
    screen.is_restored()
    assert b"termchat has a fault: RuntimeError: broken on purpose" in screen.written


def test_a_terminal_whose_input_ends_at_once_is_left_at_once(shell: Any) -> None:
    """As `script -c termchat /dev/null </dev/null` sends it before the program has begun."""
    screen = shell(sys.executable, "-m", "termchat", "--no-save")
    screen.child.send("\x04")
    assert screen.end() == 0
    assert b"\x1b[" not in screen.written


def test_what_is_not_to_be_saved_is_in_no_file_however_it_ends(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    screen = shell(sys.executable, "-m", "termchat", "--no-save", TMPDIR=str(tmp_path / "tmp"))
    screen.shows(b"Type a message")
    screen.child.send("Say hi.\r")
    screen.shows(b"tokens")
    screen.child.kill(signal.SIGKILL)
    assert screen.end() == -9
    assert list((tmp_path / "tmp").rglob("*")) == []
    assert not list(tmp_path.rglob("*.db"))


def test_what_a_library_says_on_standard_error_is_not_drawn_over(shell: Any) -> None:
    screen = shell(sys.executable, "-c", BROKEN, "words", "--no-save")
    screen.shows(b"is ready")  # a load that goes on ends with the process, at once
    screen.child.send("now\r")
    screen.shows(b"now")
    screen.child.send("\x11")
    assert screen.end() == 0
    screen.is_restored()
    assert b"panicked" not in screen.written
    assert screen.written.endswith(b"standard error is back\r\n")


def test_two_signals_restore_the_terminal(shell: Any) -> None:
    screen = shell(sys.executable, "-m", "termchat", "--no-save")
    screen.shows(b"Type a message")
    for _ in range(20):
        screen.child.kill(signal.SIGTERM)
    assert screen.end() == 143
    screen.is_restored()


def test_a_signal_that_ends_it_as_it_is_restores_the_terminal(shell: Any) -> None:
    screen = shell(sys.executable, "-m", "termchat", "--no-save")
    screen.shows(b"Type a message")
    screen.child.kill(signal.SIGQUIT)
    assert screen.end() == -signal.SIGQUIT
    screen.is_restored()


def test_N006_it_is_drawn_on_the_terminal_when_stderr_is_a_file(shell: Any, tmp_path: Path) -> None:
    """And N003: bytes that are no text, and an old mouse report, on the way."""
    file = tmp_path / "err.log"
    screen = shell("/bin/sh", "-c", f"exec {sys.executable} -m termchat --no-save 2>{file}")
    screen.shows(b"Type a message")
    for data in (b"caf\xe9", b"\x1b[M \x800", b"ok"):
        screen.child.send(data)
    screen.shows(b"ok")
    screen.child.send("\x11")
    assert screen.end() == 0
    screen.is_restored()
    assert file.read_bytes() == b""


def test_ctrl_c_in_the_editor_is_the_editors(shell: Any, tmp_path: Path) -> None:
    editor = tmp_path / "edit"
    editor.write_text(
        f"#!{sys.executable}\nimport os, signal, sys, time\n"
        f"open({str(tmp_path / 'env')!r}, 'w').write(os.environ.get('NO_COLOR', 'none'))\n"
        "print('EDITING', signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)\n"
        "for number in (signal.SIGINT, signal.SIGQUIT):\n"
        "    while True:\n"
        "        try:\n"
        "            signal.signal(signal.SIGQUIT, signal.default_int_handler)\n"
        "            time.sleep(60)\n"
        "        except KeyboardInterrupt:\n"
        "            print('CAUGHT', number, flush=True)\n"
        "            break\n"
        "open(sys.argv[1], 'a').write(' edited')\n"
    )
    editor.chmod(0o755)
    screen = shell(sys.executable, "-m", "termchat", "--no-save", EDITOR=str(editor), NO_COLOR="1")
    screen.shows(b"Type a message")
    screen.child.send("text\x1bOS")  # F4
    screen.shows(b"EDITING True")
    screen.child.send("\x03")
    screen.shows(b"CAUGHT 2")
    screen.child.send("\x1c")
    screen.shows(b"CAUGHT 3")
    at = len(screen.written)
    screen.shows(b"text edited", after=at)
    assert (tmp_path / "env").read_text() == "1"
    screen.child.send("\x11")
    assert screen.end() == 0
    screen.is_restored()


def test_ctrl_z_gives_the_terminal_to_the_shell(shell: Any, tmp_path: Path) -> None:
    screen = shell(
        "/bin/bash", "--norc", "--noprofile", "-i", PS1="SHELL>", HISTFILE=str(tmp_path / "history")
    )
    screen.shows(b"SHELL>")
    screen.child.send(f"{sys.executable} -m termchat --no-save\r")
    screen.shows(b"Type a message")
    screen.child.send("draft")
    screen.shows(b"draft", after=screen.written.rindex(b"Type a message"))
    screen.child.send("\x1a")
    at = len(screen.written)
    screen.shows(b"Stopped", after=at)
    screen.is_restored()
    screen.child.setwinsize(20, 90)
    at = len(screen.written)
    screen.child.send("fg\r")
    screen.shows(b"\x1b[?1049h", after=at)
    screen.shows(b"\x1b[20;", after=at)  # drawn to the last row of the new size
    screen.child.send("\x1f\x15more")
    screen.shows(b"more", after=at)
    screen.child.send("\x11")
    at = len(screen.written)
    screen.shows(b"SHELL>", after=at)
    screen.is_restored()
    screen.child.send("echo CODE $?\r")
    screen.shows(b"CODE 0", after=at)


@pytest.mark.parametrize(
    ("form", "how"), [("", "stopped"), ("", "continued"), ("", "begun"), ("--plain", "begun")]
)
def test_a_job_of_the_background_can_be_ended(shell: Any, form: str, how: str) -> None:
    """It leaves the terminal alone: to set it would stop the program in the middle of ending."""
    screen = shell("/bin/bash", "--norc", "--noprofile", "-i", PS1="SHELL>", HISTFILE="/dev/null")

    def tells(text: bytes, after: int) -> None:
        """The shell tells of a job before its next prompt."""
        screen.until(lambda: screen.child.send("\r") and text in screen.written[after:])

    screen.shows(b"SHELL>")
    screen.child.send(f"{sys.executable} -m termchat --no-save {form} {'&' * (how == 'begun')}\r")
    if how != "begun":
        screen.shows(b"Type a message")
        screen.child.send("\x1a")
        screen.shows(b"Stopped")
    tells(b"Stopped", 0)
    at = len(screen.written)
    if how == "continued":
        screen.child.send("bg\r")
        tells(b"Stopped", at)
    screen.child.send("kill %1\r")
    tells(b"Exit 143", at)
    if how != "begun":
        screen.is_restored()
    screen.child.send("exit\r")
    assert screen.end() == 0


def test_what_a_far_terminal_still_sends_is_not_for_the_shell(shell: Any) -> None:
    """Answers and keys on their way when the program is left come before the answer to its last question."""
    program = "from termchat.tui.terminal import driver; driver.ANSWER_SECONDS = 60.0; "
    program += "from termchat.__main__ import main; raise SystemExit(main())"
    command = f"{sys.executable} -c '{program}' --no-save; echo; echo over; exec cat -v"
    screen = shell("/bin/sh", "-c", command)
    screen.shows(b"Type a message")
    screen.child.send("\x1b[?62;22c\x11")
    screen.until(lambda: screen.written.count(b"\x1b[c") == 2, "it does not wait for what is on its way")
    screen.child.send("\x1b[?2026;2$y\x1b[115;;115u\x1b[<35;5;5M\x1b[?62;22c")
    screen.shows(b"over")
    screen.child.send("typed\r\x04")
    assert screen.end() == 0
    assert screen.written.rpartition(b"over")[2].split() == [b"typed", b"typed"]


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_shows_lines_gets_the_line_chat(shell: Any, term: str | None) -> None:
    command = f"{sys.executable} -m termchat --no-save"
    script = f"unset TERM; exec {command}" if term is None else f"TERM={term} {command}"
    screen = shell("/bin/sh", "-c", script)
    screen.shows(b"line by line, as TERM is")
    screen.child.send("/quit\r")
    assert screen.end() == 0
    assert not MODES.search(screen.written)


def test_a_bad_id_on_a_terminal_is_a_usage_error(shell: Any) -> None:
    screen = shell(sys.executable, "-m", "termchat", "--cid", "a b")
    assert screen.end() == 2
    assert screen.written.count(b"\n") == 1
    assert b"a conversation's id has" in screen.written


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_that_takes_nothing_does_not_hold_up_the_end(shell: Any, number: int) -> None:
    """A connection that hangs, a window that is frozen: nobody reads. Later it may go on, as it was."""
    screen = shell(sys.executable, "-m", "termchat", "-t", "0")
    begin_a_story(screen)
    child, written = screen.child, len(screen.written)
    wait_for(screen.is_full)
    child.kill(number)
    wait_for(lambda: not child.isalive())
    assert screen.end() == 128 + number
    assert len(screen.written) > written
    screen.is_restored()
    question, reply = screen.stored()
    assert question[:2] == ("user", "done")
    assert reply[:2] == ("assistant", "interrupted")


def test_a_slow_terminal_gets_what_there_is_and_not_what_there_was(shell: Any) -> None:
    """Frames that nobody has taken yet do not pile up before the one that shows what a key has done."""
    screen = shell(sys.executable, "-m", "termchat", "-t", "0")
    begin_a_story(screen)
    before = len(screen.written)
    wait_for(screen.is_full)
    length = len(saved(screen.folder).text)
    wait_for(lambda: len(saved(screen.folder).text) > length + 3000)  # many frames
    screen.child.send("\x1b")
    wait_for(lambda: saved(screen.folder).status == "interrupted")
    screen.shows(b"continues this reply", after=before)
    assert len(screen.written) - before < 60_000
    screen.child.send("\x11")
    assert screen.end() == 0
    screen.is_restored()


def test_started_in_the_background_it_waits_for_the_terminal(shell: Any) -> None:
    """`termchat &`: the shell says that it is stopped, and `fg` shows it; `bg` only stops it again."""
    screen = shell("bash", "--norc", "--noprofile", "-i", PS1="ready> ")
    screen.shows(b"ready> ")
    screen.child.send(f"{sys.executable} -m termchat --no-save &\r")

    def is_stopped(after: int) -> bool:
        screen.child.send("jobs\r")
        screen.read(0.3)
        return b"Stopped" in screen.written[after:]

    screen.until(lambda: is_stopped(0))
    before = len(screen.written)
    screen.child.send("bg\r")
    screen.until(lambda: is_stopped(before))
    assert b"\x1b[?1049h" not in screen.written
    screen.child.send("fg\r")
    screen.shows(b"Type a message")
    screen.child.send("\x11")
    screen.until(lambda: b"\x1b[?1049l" in screen.written)
    screen.child.send("echo code=$?\r")
    screen.shows(b"code=0")


@pytest.mark.parametrize("dialog", [b"", b"\x1bOP"], ids=["main", "dialog"])
def test_a_key_draws_the_screen_anew_whatever_was_done_to_it(shell: Any, dialog: bytes) -> None:
    screen = shell(sys.executable, "-m", "termchat", "--no-save")
    screen.shows(b"Type a message")
    screen.child.send(dialog)
    title = b"Keys and commands" if dialog else b"Type a message"
    screen.shows(title)
    there = len(screen.written)
    subprocess.run(  # another program leaves its own modes, and a picture
        ["sh", "-c", "stty icrnl; printf '\\033[?1049l\\033[?1000l\\033[?25h\\033[2Jgarbage'"],
        stdin=screen.child.child_fd,
        check=True,
    )
    screen.child.send(b"\x0c")
    screen.shows(title, after=there)
    screen.until(lambda: not termios.tcgetattr(screen.child.child_fd)[0] & termios.ICRNL)
    again = dict(MODES.findall(screen.written[there:]))
    assert (again[b"1049"], again[b"1000"], again[b"2004"], again[b"25"]) == (b"h", b"h", b"h", b"l")
    assert b"\x1b[2J" in screen.written[there:]
    screen.child.send(b"\x11")
    assert screen.end() == 0
    screen.is_restored()


def test_a_terminal_of_hardware_gets_signs_of_ascii_and_nothing_later(shell: Any) -> None:
    screen = shell(sys.executable, "-m", "termchat", "--no-save", TERM="vt100", LANG="en_US.UTF-8")
    screen.shows(b"Type a message")
    screen.child.send(b"\x11")
    assert screen.end() == 0
    assert screen.written.isascii()
    assert not re.search(
        rb"\x1b\]|\$p|\x1b\[[<>=][0-9;]*u", screen.written[: screen.written.rindex(b"\x1b[?1049l")]
    )


@pytest.mark.parametrize(
    ("answer", "wrapped"), [(b"\x1b[>84;0;0c", False), (b"\x1b[>83;40900;0c", True), (b"", True)]
)
def test_a_copy_through_ssh_is_wrapped_for_screen_and_not_for_tmux(
    shell: Any, answer: bytes, wrapped: bool
) -> None:
    environ = {name: "" for name in ("STY", "TMUX") if name in os.environ}
    screen = shell(
        "env",
        "-u",
        "STY",
        "-u",
        "TMUX",
        sys.executable,
        "-m",
        "termchat",
        "--no-save",
        TERM="screen",
        **environ,
    )
    screen.shows(b"\x1b[>c")
    screen.child.send(answer)
    screen.shows(b"Type a message")
    screen.child.send(b"word\x1b[1;6D")
    screen.shows(b"word")
    screen.child.send(b"\x03")
    screen.shows(b"copied")
    assert (b"\x1bP\x1b]52;c;d29yZA==\x07\x1b\\" in screen.written) is wrapped
    assert b"\x1b]52;c;d29yZA==\x07" in screen.written
    screen.child.send(b"\x11")
    assert screen.end() == 0


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "foot", "COLORTERM": ""}, True)],
)
def test_colours_are_as_the_environment_says(shell: Any, environ: dict[str, str], coloured: bool) -> None:
    environ = {"COLORTERM": "truecolor", **environ}
    screen = shell(
        "env",
        *(f"{name}={value}" for name, value in environ.items()),
        sys.executable,
        "-m",
        "termchat",
        "--no-save",
    )
    screen.shows(b"Type a message")
    screen.child.send(b"\x11")
    assert screen.end() == 0
    colours = re.findall(
        rb"\x1b\[(?:[0-9;]*;)?(?:[34][0-7]|[34]8;[25];[0-9;]*|9[0-7]|10[0-7])(?:;[0-9;]*)?m", screen.written
    )
    assert bool(colours) is coloured
    assert (b"38;2;" in screen.written) is coloured


@pytest.mark.parametrize("mouse", ["true", "false"])
def test_the_mouse_is_left_to_the_terminal_if_asked_for(shell: Any, tmp_path: Path, mouse: str) -> None:
    (tmp_path / "config" / "termchat").mkdir(parents=True)
    (tmp_path / "config" / "termchat" / "config.toml").write_text(f"[ui]\nmouse = {mouse}\n")
    screen = shell(sys.executable, "-m", "termchat", "--no-save")
    screen.shows(b"Type a message")
    screen.child.send(b"\x0c\x11")
    assert screen.end() == 0
    assert (b"\x1b[?1003h" in screen.written) is (mouse == "true")
    wheel = re.findall(rb"\x1b\[\?1007(.)", screen.written)  # its arrows would go through the earlier prompts
    assert wheel == ([] if mouse == "true" else [b"s", b"l", b"l", b"r"])  # ^L sets it anew, too
