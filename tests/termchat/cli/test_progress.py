"""The line that says how far something is."""

import fcntl
import os
import pty
import select
import struct
import termios

import pytest

from termchat.cells import cell_len
from termchat.cli import progress
from termchat.cli.output import Messages
from termchat.cli.progress import ProgressLine


@pytest.fixture
def terminal():
    """terminal(columns): messages on a terminal that is so wide, and what it has been sent."""
    master, slave = pty.openpty()

    def make(columns):
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        return Messages(slave), lambda: b"".join(pieces()).decode()

    def pieces():
        while select.select([master], [], [], 0.05)[0]:
            yield os.read(master, 1 << 16)

    yield make
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize("columns", [0, 1, 2, 20, 79, 80])
@pytest.mark.parametrize(
    "text", ["loading smollm2: 33%", "loading " + "模型" * 50, "a\nb\x1b[2Jc" + "e\u0301" * 90]
)
def test_it_never_wraps(terminal, columns, text):
    messages, sent = terminal(columns)
    with ProgressLine(messages) as line:
        line.show(text, at_once=True)
        head, _, shown = sent().partition("\r\x1b[K")
        assert head == ""
        assert cell_len(shown) < (columns or 80)
        assert shown.isprintable()
    assert sent() == "\r\x1b[K", "the line is gone"


def test_what_was_not_shown_is_not_taken_away_and_what_comes_too_often_not_shown(terminal, monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    messages, sent = terminal(40)
    with ProgressLine(messages) as line:
        line.show("too soon")
    with ProgressLine(messages) as line:
        for now in (0.05, 0.11, 0.15, 0.3):
            line.show(f"{now}")
    assert sent() == "\r\x1b[K0.11\r\x1b[K0.3\r\x1b[K"


def test_a_terminal_without_control_sequences_gets_lines(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    messages, sent = terminal(80)
    with ProgressLine(messages) as line:
        line.show("half", at_once=True)
    assert sent() == "termchat: half\r\n"


@pytest.mark.parametrize(("every", "said"), [(5.0, "termchat: 5.5\ntermchat: 11.0\n"), (None, "")])
def test_where_there_is_no_terminal_it_is_a_note_now_and_then(tmp_path, monkeypatch, every, said):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with (tmp_path / "err").open("wb") as file, ProgressLine(Messages(file.fileno()), every) as line:
        for now in (1.0, 5.5, 7.0, 11.0):
            line.show(str(now))
    assert (tmp_path / "err").read_text() == said
