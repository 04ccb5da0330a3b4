"""Copied texts arrive, whatever stands between the program and the desktop."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path

import pytest

from termchat.tui.terminal import clipboard
from termchat.tui.terminal.clipboard import MACOS, TMUX, WAYLAND, WINDOWS, X11, Clipboard, keepers, request
from waiting import HANG_SECONDS, wait_for

TEXT = "é 你 👨‍👩‍👧 \x1b[31m\n" * 500


def asked(sequence: str) -> str:
    found = re.fullmatch(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", sequence)
    assert found is not None, sequence[:80]
    return base64.b64decode(found[1]).decode()


@pytest.mark.parametrize("text", [TEXT, "", "a"])
def test_copy_asks_the_terminal(text: str) -> None:
    assert asked(request(text, screen=False)) == text


@pytest.mark.parametrize("text", [TEXT, "", "a"])
def test_copy_passes_screen_in_pieces_that_it_takes(text: str) -> None:
    pieces = re.findall(r"\x1bP(.*?)\x1b\\", request(text, screen=True), re.DOTALL)
    assert max(map(len, pieces)) < 256
    assert request(text, screen=True) == "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    assert asked("".join(pieces)) == text


def test_copy_of_half_a_character_is_no_fault() -> None:
    assert asked(request("a\ud800", screen=False)) == "a?"


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", []),
        ({"TMUX": "x"}, "linux", [TMUX]),
        ({"DISPLAY": ":0"}, "linux", [X11]),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0", "TMUX": "x"}, "linux", [TMUX, WAYLAND]),
        ({"SSH_CONNECTION": "1 2 3 4", "DISPLAY": "localhost:10.0"}, "linux", [X11]),
        ({}, "darwin", [MACOS]),
        ({"SSH_TTY": "/dev/pts/1"}, "darwin", []),
        ({"WSL_DISTRO_NAME": "Debian"}, "linux", [WINDOWS]),
    ],
)
def test_copy_goes_to_the_programs_of_the_desktop(
    environ: dict[str, str], platform: str, expected: list[clipboard.Commands]
) -> None:
    assert list(keepers(environ, platform)) == expected


def test_copy_tries_the_next_program_and_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old tmux knows no -w; a program that hangs or fails holds up nobody."""
    tmux = tmp_path / "tmux"
    tmux.write_text(f'#!/bin/sh\n[ "$2" = -w ] && exit 1\ncat >> {tmp_path}/kept\nexec sleep 0.05\n')
    tmux.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(clipboard, "PROGRAM_SECONDS", HANG_SECONDS)
    copies = Clipboard({"TMUX": "x", "WAYLAND_DISPLAY": "none"})
    for text in ("one ", "zwei é ", "三"):
        copies.keep(text)
    kept = tmp_path / "kept"
    wait_for(lambda: kept.exists() and kept.read_text() == "one zwei é 三")
