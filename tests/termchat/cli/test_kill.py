"""kill -9 in the middle of a reply: what was said is in the database, and the conversation goes on."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from termchat.store import Store

pytestmark = pytest.mark.slow

TOKENS = 250
OPTIONS = ["-t", "0.8", "--seed", "5", "-n", str(TOKENS)]
QUESTION = "Tell me a long story about a lighthouse."
FLUSH_SECONDS = 0.5


def command(model: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "termchat", "--model", model, *arguments]


KILLS = 6


def kill_after(model: str, cid: str, seconds: float) -> list[tuple[float, int]]:
    """Start a reply, kill it that long after its first bytes; returns (time, bytes so far) for each read."""
    arrived: list[tuple[float, int]] = []
    with subprocess.Popen(
        command(model, *OPTIONS, "--cid", cid, QUESTION),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        total, end = 0, None
        while end is None or time.monotonic() < end:
            data = process.stdout.read()
            if data:
                total += len(data)
                arrived.append((time.monotonic(), total))
                end = end or time.monotonic() + seconds
            elif data == b"":
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    return arrived


def test_B083_kill_9_at_random_moments_loses_at_most_half_a_second(linked_model: str, home: Path) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    whole = subprocess.run(
        command(linked_model, *OPTIONS, "--no-save", QUESTION), capture_output=True, text=True, check=True
    ).stdout
    database = home / "data" / "termchat" / "termchat.db"
    lengths = []
    for number in range(KILLS):
        cid = f"story-{number}"
        arrived = kill_after(linked_model, cid, rng.random() * 0.8)
        killed = time.monotonic()
        with Store(database) as store:
            store.recover()
            question, *replies = store.path(store.conversation(cid).id)
        assert question.text == QUESTION
        text = replies[0].text if replies else ""
        assert whole.startswith(text), f"{number}: not a prefix of the whole reply"
        due = max((count for at, count in arrived if at < killed - FLUSH_SECONDS - 0.1), default=0)
        assert len(text.encode()) >= due - 1, f"{number}: {len(text)} of {due} characters were kept"
        if replies and text != whole.rstrip("\n"):
            assert replies[0].status == "interrupted"
        lengths.append(len(text))
    check = sqlite3.connect(database).execute("PRAGMA integrity_check").fetchone()
    assert check == ("ok",)
    assert len(set(lengths)) > 3, lengths
    goes_on = subprocess.run(
        command(linked_model, "-c", "-n", "8", "-t", "0", "Go on."),
        capture_output=True,
        text=True,
        check=False,
    )
    assert goes_on.returncode == 0, goes_on.stderr
    assert goes_on.stdout.strip()
    with Store(database) as store:
        assert len(store.path(store.conversation(f"story-{KILLS - 1}").id)) >= 3
