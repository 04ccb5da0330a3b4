"""What is drawn and read where the terminal's charset is not UTF-8, or its font has few signs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from termchat.charset import charset, encoded, shows_signs
from termchat.config import Config
from termchat.sanitize import escape_json
from termchat.tui.terminal.input import Input

LOCALES = [
    ({}, "utf-8", True),
    ({"LANG": "de_DE.UTF-8"}, "utf-8", True),
    ({"LANG": "C.utf8"}, "utf-8", True),
    ({"LANG": "en_US"}, "utf-8", True),
    ({"LC_ALL": "", "LANG": "en_US.UTF-8"}, "utf-8", True),
    ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, "utf-8", False),
    ({"LANG": "POSIX"}, "utf-8", False),
    ({"LC_CTYPE": "C", "LANG": "en_US.UTF-8"}, "utf-8", False),
    ({"LC_ALL": "de_DE.ISO-8859-1"}, "iso8859-1", False),
    ({"LANG": "de_DE.ISO-8859-15@euro"}, "iso8859-15", False),
    ({"LANG": "ru_RU.KOI8-R", "LC_CTYPE": "ru_RU.UTF-8"}, "utf-8", True),
    ({"LANG": "zh_CN.GBK"}, "gbk", False),
    ({"LANG": "en_US.US-ASCII"}, "ascii", False),
    ({"LANG": "x.UTF-16"}, "utf-8", True),
    ({"LANG": "x.rot13"}, "utf-8", True),
    ({"LANG": "x.\x1b[2J"}, "utf-8", True),
    ({"LANG": "en_US.UTF-8", "TERM": "linux"}, "utf-8", False),
    ({"LANG": "en_US.UTF-8", "TERM": "vt100"}, "utf-8", False),
    ({"LANG": "en_US.UTF-8", "TERM": "xterm-256color"}, "utf-8", True),
]


@pytest.mark.parametrize(("environ", "codec", "signs"), LOCALES)
def test_locale_says_what_the_terminal_shows(environ: dict[str, str], codec: str, signs: bool) -> None:
    assert charset(environ) == codec
    assert shows_signs(environ) is signs


@pytest.mark.parametrize("name", ["LANG", "LC_ALL"])
@pytest.mark.parametrize(("value", "signs"), [("C", False), ("POSIX", False), ("C.UTF-8", True), ("", True)])
def test_locale_is_the_users_and_not_pythons_own(name: str, value: str, signs: bool) -> None:
    environ = {key: text for key, text in os.environ.items() if key not in ("LANG", "LC_ALL", "LC_CTYPE")}
    code = "from termchat.charset import shows_signs; print(shows_signs())"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**environ, name: value, "TERM": "xterm"},
        capture_output=True,
        text=True,
    )
    assert ran.stdout == f"{signs}\n", ran.stderr


def test_settings_go_over_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    for locale, given, ascii in (("C", "", True), ("C", "false", False), ("C.UTF-8", "true", True)):
        monkeypatch.setenv("LC_ALL", locale)
        file.write_text(f"[ui]\nascii = {given}\n" if given else "")
        assert Config.load(file).ascii is ascii, (locale, given)


def test_charset_lacks_characters_and_keeps_their_cells() -> None:
    assert encoded("é 你 e\u0301 ✓", "iso8859-1") == b"\xe9 ?? e ?"
    assert encoded("Я ё é", "koi8-r") == "Я ё ?".encode("koi8-r")
    assert encoded("é\ud800", "utf-8") == b"\xc3\xa9?"
    assert json.loads(escape_json('"é 你 \U0001f31f \x1b"', "ascii")) == "é 你 \U0001f31f \x1b"
    assert escape_json('"é"', "iso8859-1").isascii()


@pytest.mark.parametrize(
    ("codec", "text"), [("iso8859-1", "caf\xe9 \xfc"), ("koi8-r", "привет"), ("gbk", "你好")]
)
def test_charset_is_that_of_what_is_typed_and_pasted(codec: str, text: str) -> None:
    data, typed = text.encode(codec), Input(codec)
    tokens = [token for byte in data for token in typed.feed(bytes([byte]), 0.0)]
    assert "".join(token.text for token in tokens) == text
    (pasted,) = (typed.feed(b"\x1b[200~" + data + b"\x1b[201~", 1.0) + typed.tick(2.0))[-1:]
    assert pasted == ("paste", text)


def test_locale_C_draws_a_plan_in_ascii(default_model: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "LC_ALL": "C"}
    command = [sys.executable, "-m", "termchat", "plan", "--params", "1B", "--gpu", "H100"]
    ran = subprocess.run(command, env=environ, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.isascii(), re.sub(rb"[\x00-\x7f]", b"", ran.stdout)
