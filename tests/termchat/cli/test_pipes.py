"""The program as it is installed, with the real default model: pipes, signals, crashes, several at once.

Each start costs seconds, so one run checks many things; what needs no real process is tested elsewhere.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest

from anchors import COUNT_TEXT
from termchat.store import Store

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-m", "termchat", "--model", "smollm2-135m"]
QUESTION = "Count from 1 to 10."
ENDLESS = ["-t", "0", "--regex", r"1\. 1\n2\. 2\n3\. 3\n4\. 4\n[a-z ,.]{9000}"]
"""Nothing ends this reply before its program is stopped, however late."""
SECONDS = 120


@pytest.fixture
def environment(home, linked_model):
    """Folders of the test's own; everything that could add noise is on."""
    return {**os.environ, "PYTHONWARNINGS": "always", "PYTHONUNBUFFERED": "1", "HOME": str(home)}


def start(environment, *arguments, **streams):
    return subprocess.Popen([*PROGRAM, *arguments], env=environment, **streams)


def database(home: Path) -> Path:
    return home / "data" / "termchat" / "termchat.db"


def messages(home):
    with Store(database(home)) as store:
        return [
            [(message.role, message.text, message.status) for message in store.path(item.id)]
            for item in store.list_conversations()
        ]


def quiet(text: str) -> bool:
    return "Traceback" not in text and "Exception ignored" not in text


def test_B079_the_reply_alone_is_on_standard_output(environment, home):
    log = home / "config" / "termchat" / "config.toml"
    log.parent.mkdir(parents=True)
    log.write_text('log_level = "debug"\n')
    with open(home / "out", "wb") as out, open(home / "err", "wb") as err:
        process = start(
            environment, "-t", "0", "-n", "51", QUESTION, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        assert process.wait(SECONDS) == 0
    assert (home / "out").read_text() == COUNT_TEXT + "\n"
    assert quiet((home / "err").read_text())
    assert messages(home) == [[("user", QUESTION, "done"), ("assistant", COUNT_TEXT, "done")]]


def test_B013_B075_B077_bad_bytes_through_pipes(environment, home):
    """JSON is valid UTF-8 and strict, the database too, and a prompt is counted as the engine sees it."""
    process = start(
        environment,
        "--json",
        "-t",
        "0",
        "-n",
        "2",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = process.communicate(b"\xef\xbb\xbfcaf\xe9 au\x00 lait\r\n", SECONDS)
    assert process.returncode == 0
    reply = json.loads(out.decode("utf-8"))
    assert reply["finish_reason"] == "length"
    assert reply["metrics"]["bandwidth_peak_gbs"] > 0
    assert "standard input is not valid UTF-8 at byte offset 6" in err.decode()
    assert quiet(err.decode())
    assert messages(home)[0][0] == ("user", "caf\ufffd au\x00 lait", "done")
    db = sqlite3.connect(database(home))
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_B075_head_takes_four_bytes(environment, home):
    script = 'set -o pipefail; "$@" | head -c 4; echo " ${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *PROGRAM, *ENDLESS, QUESTION],
        env=environment,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stdout == b"1. 1 141\n"
    assert done.stderr == b""
    assert messages(home)[0][1][2] == "interrupted"


def test_B075_closed_standard_streams(environment, home):
    for closed, code in ((">&-", 141), (">&- 2>&-", 141), ("2>&- >/dev/full", 1)):
        started = time.monotonic()
        done = subprocess.run(
            [
                "bash",
                "-c",
                f'"$@" models list {closed}; echo $? >"$HOME/code"',
                "bash",
                sys.executable,
                "-m",
                "termchat",
            ],
            env=environment,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.stdout == done.stderr == b"", closed
        assert (home / "code").read_text() == f"{code}\n", closed
        assert time.monotonic() - started < SECONDS
    assert not database(home).exists()


def test_nothing_but_the_message_is_said_of_a_damaged_database(environment, home):
    database(home).parent.mkdir(parents=True)
    database(home).write_bytes(b"no database" * 1000)
    done = subprocess.run(
        [sys.executable, "-m", "termchat", "history", "list"],
        env=environment,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
    assert done.stderr.startswith(b"termchat: ")


def test_B025_a_text_longer_than_the_context_is_exit_4(environment, home):
    process = start(
        environment,
        "--json",
        "What is the code word?",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    text = b"The code word is heliotrope.\n" + b"one two three four five\n" * 2_000
    out, err = process.communicate(text, SECONDS)
    assert process.returncode == 4
    assert out == b""
    assert err.count(b"\n") == 1
    assert b"8192" in err
    assert messages(home) == []


def read_some(process, count):
    data = b""
    while len(data) < count:
        piece = os.read(process.stdout.fileno(), 4096)
        assert piece, "the program ended early"
        data += piece
    return data


def test_a_one_shot_on_the_native_backend_imports_neither_torch_nor_textual(environment, home):
    script = (
        "import gc, sys; from termchat.__main__ import main; code = main();"
        "heavy = {'torch', 'textual', 'rich'} & set(sys.modules);"
        "resting = not gc.isenabled() or not gc.get_freeze_count();"
        "sys.exit(f'imported {heavy}' if heavy else 'the collector still rests' if resting else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--backend", "native", "-n", "2", "--stats", "Hi"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "% of the measured peak of" in done.stderr


def test_an_interrupt_keeps_the_partial_reply(environment, home):
    process = start(
        environment,
        *ENDLESS,
        QUESTION,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    begun = read_some(process, 8)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert err == b""
    text = (begun + rest).decode()
    assert text.startswith("1. 1\n2. ")
    assert text.endswith("\n")
    assert messages(home) == [[("user", QUESTION, "done"), ("assistant", text[:-1], "interrupted")]]


def test_an_interrupt_while_loading_leaves_at_once_and_quietly(environment, home):
    for _ in range(5):  # the moment is a short one, and passes where the machine is busy with something else
        process = start(
            environment,
            *ENDLESS,
            QUESTION,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while not database(home).exists():  # made right before the model is loaded
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, err) == (143, b"")
        if messages(home) == []:
            break
        for file in database(home).parent.iterdir():
            file.unlink()
    assert out == b""
    assert messages(home) == []


def test_B081_several_at_once_with_no_database_yet(environment, home):
    processes = [
        start(
            environment,
            "-t",
            "0",
            "-n",
            "2",
            f"Say {number}",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(4)
    ]
    for process in processes:
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err
        assert err == b""
        assert out.strip()
    found = messages(home)
    assert sorted(conversation[0][1] for conversation in found) == [f"Say {number}" for number in range(4)]
    assert all(len(conversation) == 2 for conversation in found)
    assert sqlite3.connect(database(home)).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_batch_gives_each_line_its_own_reply(environment, home):
    lines = [
        {"id": "count", "prompt": QUESTION, "max_tokens": 51},
        {"prompt": " "},
        {"prompt": "Hi", "max_tokens": 3},
    ]
    (home / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run(
        [sys.executable, "-m", "termchat", "batch", str(home / "in.jsonl"), "-t", "0"],
        env=environment,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr  # one of the lines failed
    found = {record["id"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert found["count"]["text"] == COUNT_TEXT
    assert found["count"]["usage"]["prompt_tokens"] == 39
    assert found[1]["error"]["code"] == "empty_prompt"
    assert found[2]["usage"]["completion_tokens"] == 3


def test_a_chat_on_a_real_terminal(environment, home):
    chat = pexpect.spawn(
        PROGRAM[0],
        [*PROGRAM[1:], "--plain", *ENDLESS],
        env=environment,
        encoding="utf-8",
        timeout=SECONDS,
        dimensions=(24, 80),
    )
    chat.expect("Ctrl-D leaves")
    chat.sendline("Count from 1 to 10.")
    chat.expect("4. 4")
    chat.sendintr()
    chat.expect("> ")
    chat.sendline("/quit")
    chat.expect(pexpect.EOF)
    chat.close()
    assert chat.exitstatus == 0
    question, answer = messages(home)[0]
    assert question == ("user", QUESTION, "done")
    assert answer[1].startswith("1. 1\n2. 2\n3. 3\n4. 4")
    assert answer[2] == "interrupted"


def test_no_code_of_the_current_folder_is_run(environment, tmp_path):
    """Modules that lie there by the names of some that are imported."""
    folder = tmp_path / "untrusted"
    folder.mkdir()
    for name in ("click", "platformdirs", "enum", "signal", "gc", "numpy", "pip"):
        (folder / f"{name}.py").write_text("raise SystemExit('run')\n")
    done = subprocess.run(
        [*PROGRAM, "--no-save", "-n", "1", "Hi"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"run" not in done.stderr
