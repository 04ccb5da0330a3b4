"""kill -9 in the middle of a reply: what was said is in the database, and the conversation goes on."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from termchat.store import Store
from termchat.store.reply_writer import FLUSH_SECONDS

pytestmark = pytest.mark.slow

LONG = ["-t", "0.8", "--seed", "5", "-n", "1000", "--regex", "[a-z ,.]{9000}"]
"""Nothing ends this reply before it is killed."""
QUESTION = "Tell me a long story about a lighthouse."
SAVES = range(1, 6)


def command(model: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "termchat", "--model", model, *arguments]


class Killed(NamedTuple):
    """printed: all that came out of the process. saved: what was last seen in the database."""

    printed: bytes
    saved: bytes


def kill_after(saves: int, pause: float, model: str, cid: str, database: Path) -> Killed:
    """Start a reply, and kill it some seconds after it was seen to be saved so many times.

    A save that comes after a look has all that was printed before that look: it is saved, then printed. So
    what is lost was made since the last save but one, and no clock is asked.
    """
    printed, before, saved = b"", b"", b""
    with subprocess.Popen(
        command(model, *LONG, "--cid", cid, QUESTION),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        while saves and process.poll() is None:
            time.sleep(0.002)
            printed += process.stdout.read() or b""
            now = saved_text(database, cid)
            if now is not None and now != saved:
                assert now.startswith(before), "what was printed before the last save is not in it"
                saves, saved = saves - 1, now
            before = printed
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        printed += process.stdout.read() or b""
    assert process.returncode == -signal.SIGKILL, "it was to be killed in the middle of its reply"
    return Killed(printed, saved)


def saved_text(database: Path, cid: str) -> bytes | None:
    """What there is of the reply; None before there is one, or if it can't be looked at now."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            query = "SELECT text FROM message WHERE conversation_id = ? AND role = 'assistant'"
            rows = db.execute(query, (cid,)).fetchall()
    except sqlite3.OperationalError:
        return None
    return rows[0][0].encode() if rows else None


def test_B083_kill_9_at_any_moment_loses_no_more_than_came_since_the_last_saves(
    linked_model: str, home: Path
) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    database = home / "data" / "termchat" / "termchat.db"
    texts = []
    for saves in SAVES:
        cid = f"story-{saves}"
        killed = kill_after(saves, rng.random() * FLUSH_SECONDS, linked_model, cid, database)
        with Store(database) as store:
            store.recover()
            question, reply = store.path(store.conversation(cid).id)
        assert (question.text, reply.status) == (QUESTION, "interrupted")
        kept = reply.text.encode()
        assert kept
        assert kept.startswith(killed.saved), "what was saved is there"
        texts += [kept, killed.printed]
    whole = max(texts, key=len)
    assert all(whole.startswith(text) for text in texts), "each is the beginning of the same reply"
    check = sqlite3.connect(database).execute("PRAGMA integrity_check").fetchone()
    assert check == ("ok",)
    goes_on = subprocess.run(
        command(linked_model, "-c", "-n", "8", "-t", "0", "Go on."),
        capture_output=True,
        text=True,
        check=False,
    )
    assert goes_on.returncode == 0, goes_on.stderr
    assert goes_on.stdout.strip()
    with Store(database) as store:
        assert len(store.path(store.conversation(cid).id)) == 4
