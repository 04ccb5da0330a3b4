"""Locales of other charsets than UTF-8: arguments, standard input, names of files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from termchat.cli import stdin

LOCALES = [
    ("de_DE.ISO-8859-1", "latin-1", "café ü"),
    ("zh_CN.GBK", "gbk", "中文字"),
    ("ja_JP.EUC-JP", "euc-jp", "日本語"),
]


@pytest.mark.parametrize(("locale", "codec", "text"), LOCALES)
def test_texts_are_utf8_or_as_the_locale_says(termchat, requests, monkeypatch, locale, codec, text):
    monkeypatch.setenv("LC_ALL", locale)
    for given in (text.encode(), text.encode(codec)):
        argument = os.fsdecode(given)
        outcome = termchat("-s", argument, argument, stdin=given)
        assert (outcome.code, outcome.err) == (0, "")
        assert (requests[-1].text, requests[-1].system) == (f"{text}\n\n{text}", text)


def test_where_the_locale_is_utf8_other_bytes_are_replaced_and_named(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    notes: list[str] = []
    assert stdin.argument_text(os.fsdecode(b"caf\xe9"), "PROMPT", notes.append) == "caf\ufffd"
    assert notes == ["PROMPT is not valid UTF-8 at byte offset 3; such bytes are replaced by U+FFFD"]


def test_names_of_files_and_arguments_are_their_bytes_whatever_the_locale(tmp_path):
    """Without UTF-8 mode Python would take them for texts in the charset of the locale, here ASCII."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    schema = tmp_path / "schéma.json"
    schema.write_text("{", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "termchat", "--schema", os.fsencode(schema), "日本".encode()],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"{schema}: the schema is no JSON" in done.stderr.decode()
