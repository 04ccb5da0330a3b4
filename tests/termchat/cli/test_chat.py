"""The plain chat: turns with memory, commands, interrupts. The terminal is real, the model a script."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import termios
import threading
import time

import pexpect
import pytest

from termchat.cli.console import Console
from termchat.cli.main import run
from termchat.cli.output import Messages, Output
from termchat.store import Store
from waiting import wait_for

PROMPT = "\n> "


class Terminal:
    """A person at a terminal: waits until words are shown, then types a line or sends a signal."""

    def __init__(self, *script):
        self.main, self.side = pty.openpty()
        self.shown = ""
        self._script = script
        self._thread = threading.Thread(target=self._play)

    def _read(self):
        """More of what is shown; False at the end."""
        try:
            self.shown += os.read(self.main, 4096).decode("utf-8", "replace").replace("\r\n", "\n")
        except OSError:
            return False
        return True

    def _play(self):
        position, deadline = 0, time.monotonic() + 60
        for expected, action in self._script:
            while (found := self.shown.find(expected, position)) < 0:
                if time.monotonic() > deadline:
                    os.kill(os.getpid(), signal.SIGTERM)
                if select.select([self.main], [], [], 1)[0] and not self._read():
                    return
            position = found + len(expected)
            if isinstance(action, int):  # to this thread: it interrupts no call that waits for a key
                signal.pthread_kill(threading.get_ident(), action)
            else:
                os.write(self.main, action)
        while self._read():
            pass

    def run(self, monkeypatch, *arguments):
        """Run the program here; its exit code."""
        with open(self.side, closefd=False) as keyboard, open(self.side, "w", closefd=False) as screen:
            self._thread.start()
            monkeypatch.setattr(sys, "stdin", keyboard)
            monkeypatch.setattr(sys, "__stdout__", screen)
            console = Console(Output(self.side), Messages(self.side), stdin=self.side)
            code = run(("--plain", *arguments), console)
        os.close(self.side)
        self._thread.join()
        os.close(self.main)
        return code


def stored(home):
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        return [
            [(message.role, message.text, message.status) for message in store.path(item.id)]
            for item in store.list_conversations()
        ]


@pytest.fixture
def prompts(monkeypatch):
    """Catch what the engine is asked."""
    from engine import AsyncEngine

    seen = []
    generate = AsyncEngine.generate

    def spy(self, prompt, params, **more):
        if not isinstance(prompt, str):
            seen.append([(message.role, message.content) for message in prompt])
        return generate(self, prompt, params, **more)

    monkeypatch.setattr(AsyncEngine, "generate", spy)
    return seen


def test_turns_have_memory_and_commands_work(scripted, home, monkeypatch, prompts):
    scripted("Hello.", "Fine.", "New.", "Hosts.", "Why.")
    terminal = Terminal(
        ("Ctrl-D leaves", b"Hi\n"),
        ("Hello.", b"/system Be brief.\n"),
        ("system prompt: Be brief.", b"//slash\n"),
        ("Fine.", b"/nonsense\n"),
        ("no command /nonsense", b"/help\n"),
        ("/quit  ", b"/new\n"),
        ("a new conversation", b"Anew\n"),
        ("New.", b"/etc/hosts says what?\n"),
        ("Hosts.", b"// why\n"),
        ("Why.", b"/quit\n"),
    )
    assert terminal.run(monkeypatch) == 0
    assert [said for *_, (_, said) in prompts[-2:]] == ["/etc/hosts says what?", "// why"]
    assert prompts[:-2] == [
        [("user", "Hi")],
        [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello."), ("user", "/slash")],
        [("system", "Be brief."), ("user", "Anew")],
    ]
    assert [[text for _, text, _ in messages] for messages in stored(home)] == [
        ["Anew", "New.", "/etc/hosts says what?", "Hosts.", "// why", "Why."],
        ["Hi", "Hello.", "/slash", "Fine."],
    ]
    assert "Traceback" not in terminal.shown


def test_N028_a_byte_that_is_not_utf8_ends_nothing(scripted, home, monkeypatch, prompts):
    scripted("First.", "Second.")
    terminal = Terminal(
        ("Ctrl-D leaves", b"caf\xe9 \xff\xfe!\n"),
        ("First.", b"Hi\n"),
        ("Second.", b"/quit\n"),
    )
    assert terminal.run(monkeypatch) == 0
    assert prompts[-1][-1] == ("user", "Hi")
    assert prompts[0][0][1].startswith("caf")
    assert "Traceback" not in terminal.shown


@pytest.mark.slow
def test_B067_ctrl_c_stops_the_answer_and_the_chat_goes_on(scripted, home, monkeypatch, prompts):
    scripted("one two three four five six seven eight nine ten " * 200, "Yes.", step_seconds=0.02)
    terminal = Terminal(
        ("Ctrl-D leaves", b"Count\n"),
        ("four", signal.SIGINT),
        (PROMPT, signal.SIGINT),
        ("(Ctrl-D leaves)", b"Still there?\n"),
        ("Yes.", b"\x04"),
    )
    assert terminal.run(monkeypatch) == 0
    (first, partial, second, last), *others = stored(home)
    assert others == []
    assert first == ("user", "Count", "done")
    assert partial[2] == "interrupted"
    assert partial[1].startswith("one two three four")
    assert partial[1] in terminal.shown
    assert second == ("user", "Still there?", "done")
    assert last == ("assistant", "Yes.", "done")
    assert prompts[-1][1] == ("assistant", partial[1])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["answer", "prompt"])
def test_other_signals_end_the_chat(scripted, home, monkeypatch, number, moment):
    scripted("one two three four five " * 500, step_seconds=0.02)
    script = [("Ctrl-D leaves", b"Count\n"), ("four", number)] if moment == "answer" else [(PROMPT, number)]
    assert Terminal(*script).run(monkeypatch) == 128 + number
    if moment == "answer":
        assert stored(home)[0][1][2] == "interrupted"


def test_the_conversation_goes_on_with_what_was_stored(scripted, home, monkeypatch, prompts):
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        store.create_conversation("mine", system="Be brief.")
        store.add_message("mine", "user", "Hi")
        reply = store.begin_reply("mine")
        reply.append("Hello.")
        reply.finish()
    scripted("Fine.")
    assert (
        Terminal(("Ctrl-D leaves", b"And you?\n"), ("Fine.", b"\x04")).run(monkeypatch, "-c", "--stats") == 0
    )
    assert prompts == [
        [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello."), ("user", "And you?")]
    ]
    assert len(stored(home)[0]) == 4


def test_a_refused_message_does_not_end_the_chat(scripted, home, monkeypatch):
    scripted("never", "Fine.", context=60)
    terminal = Terminal(
        ("Ctrl-D leaves", b"word " * 100 + b"\n"),
        ("but the context", b"Hi\n"),
        ("Fine.", b"\x04"),
    )
    assert terminal.run(monkeypatch) == 0
    assert [text for _, text, _ in stored(home)[0]] == ["Hi", "Fine."]


@pytest.mark.parametrize("option", ["--json", "--jsonl", "--no-stream", "--raw"])
def test_options_of_a_prompt_need_one(scripted, monkeypatch, option):
    terminal = Terminal()
    assert terminal.run(monkeypatch, option) == 2
    assert f"{option} needs a prompt" in terminal.shown


def test_a_chat_without_a_model_says_so(home, monkeypatch):
    terminal = Terminal(("Download it?", b"n\n"))
    assert terminal.run(monkeypatch) == 3
    assert re.search(r"smollm2-135m is not downloaded", terminal.shown)


@pytest.fixture
def spawned(linked_model, home):
    """The real program, which has line editing, on a terminal."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "termchat", "--plain", "-t", "0", "-n", "8"],
        env={**os.environ, "INPUTRC": os.devnull},
        timeout=60,
        encoding="utf-8",
    )
    yield child
    child.close(force=True)


@pytest.mark.slow
def test_an_end_before_the_program_has_begun_is_one(spawned):
    """As `script -c "termchat --plain" /dev/null </dev/null` sends it at once."""
    spawned.send("\x04")
    spawned.expect(pexpect.EOF)
    spawned.close()
    assert spawned.exitstatus == 0


@pytest.mark.slow
def test_keys_wait_while_the_model_loads_and_answers(spawned, home):
    """A Ctrl-D too: a terminal that makes lines of what is typed would take it for itself."""
    wait_for(lambda: not termios.tcgetattr(spawned.child_fd)[3] & termios.ICANON)
    spawned.send("Say hi\r\x04")
    spawned.expect(pexpect.EOF)
    spawned.close()
    assert spawned.exitstatus == 0
    assert spawned.before.index("> Say hi") > spawned.before.index("Ctrl-D leaves")
    assert stored(home)[0][0][1] == "Say hi"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["load", "prompt"])
def test_the_terminal_is_as_it_was_after_a_signal(spawned, moment):
    wait_for(lambda: not termios.tcgetattr(spawned.child_fd)[3] & termios.ICANON)
    if moment == "prompt":
        spawned.expect("\n> ")
    spawned.kill(signal.SIGTERM)
    spawned.expect(pexpect.EOF)
    mode = termios.tcgetattr(spawned.child_fd)[3]
    assert mode & termios.ICANON
    assert mode & termios.ECHO
    spawned.close()
    assert spawned.exitstatus == 143
