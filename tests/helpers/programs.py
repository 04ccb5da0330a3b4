"""Processes beside the tests."""

from __future__ import annotations

import subprocess
import sys

STORE = "import sys, time, pathlib\nfrom termchat.store import *\npath = pathlib.Path(sys.argv[1])\n"


def start(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Run code in a process; the store is imported, and `path` is the first argument."""
    command = [sys.executable, "-c", STORE + code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(process: subprocess.Popen[bytes]) -> bytes:
    """What a process wrote; it ended well."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err.decode()
    return out


def line(process: subprocess.Popen[bytes]) -> bytes:
    """The next line that a process writes."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
