from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

START = """
import logging, os, pathlib, sys, warnings
os.umask(0o022)
from termchat.files import PathError
from termchat.logs import start_logging
file = pathlib.Path(sys.argv[1])
"""


def run(file: Path, code: str, *options: str) -> str:
    """Run code with the log in `file`; nothing may reach the terminal but what it prints to stdout."""
    done = subprocess.run(
        [sys.executable, *options, "-c", START + code, str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_B079_records_and_warnings_go_to_the_file_and_nowhere_else(tmp_path: Path) -> None:
    file = tmp_path / "state" / "termchat.log"
    code = """
start_logging(file)
logging.getLogger("some.library").warning("a warning \\ud800")
logging.getLogger("some.library").info("too much detail")
warnings.warn("deprecated thing", DeprecationWarning)
"""
    assert run(file, code, "-W", "always") == ""
    text = file.read_text(encoding="utf-8")
    assert "WARNING some.library: a warning \\ud800" in text
    assert "deprecated thing" in text
    assert "too much" not in text


def test_the_level_is_an_option(tmp_path: Path) -> None:
    file = tmp_path / "termchat.log"
    run(file, "start_logging(file, 'debug'); logging.debug('detail')")
    assert "detail" in file.read_text()


def test_B099_the_log_is_private_and_so_are_the_older_ones(tmp_path: Path) -> None:
    file = tmp_path / "state" / "termchat.log"
    code = """
import termchat.logs
termchat.logs._LARGEST = 1000
start_logging(file)
for n in range(100): logging.error("line %d %s", n, "x" * 50)
"""
    run(file, code)
    names = sorted(path.name for path in file.parent.iterdir())
    assert names == ["termchat.log", "termchat.log.1", "termchat.log.2", "termchat.log.3"]
    assert {path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {0o600}
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_size < 1200 for path in file.parent.iterdir())


def test_B099_a_log_linked_to_dev_null_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "termchat.log"
    file.symlink_to("/dev/null")
    before = Path("/dev/null").stat().st_mode
    code = "import termchat.logs; termchat.logs._LARGEST = 10\n"
    run(file, code + "start_logging(file)\nfor n in range(9): logging.error('x' * 99)")
    assert file.is_symlink()
    assert Path("/dev/null").stat().st_mode == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_log_that_cannot_be_written_is_an_error_and_keeps_the_terminal_clean(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = """
try: start_logging(file)
except PathError as error: print(error)
logging.error("lost"); warnings.warn("lost too")
"""
    assert "cannot create the folder" in run(tmp_path / "file" / "termchat.log", code, "-W", "always")
    (tmp_path / "folder").mkdir()
    assert "cannot write the log" in run(tmp_path / "folder", code, "-W", "always")
    os.mkfifo(tmp_path / "pipe")  # nobody reads it: opening it would not come back
    assert "cannot write the log" in run(tmp_path / "pipe", code, "-W", "always")


def test_a_full_disk_prints_nothing(tmp_path: Path) -> None:
    code = "start_logging(file)\nfor n in range(3): logging.error('lost')"
    file = tmp_path / "termchat.log"
    file.symlink_to("/dev/full")
    assert run(file, f"{code}\nprint('went on')", "-W", "always") == "went on\n"
    assert file.is_symlink(), "and it is not put aside as too large"


def test_records_hold_no_raw_escapes(tmp_path: Path) -> None:
    file = tmp_path / "termchat.log"
    code = """
start_logging(file)
try: raise ValueError("template \\x1b]0;x\\x07 \\u202e \\x9b2J")
except ValueError: logging.exception("a\\x1b[2J")
warnings.warn("b\\x1b[2J")
"""
    run(file, code, "-W", "always")
    text = file.read_text()
    assert "a\\x1b[2J\n" in text
    assert "template \\x1b]0;x\\x07 \\u202e \\x9b2J" in text
    assert "b\\x1b[2J" in text
    assert text.replace("\n", "").replace("\t", "").isprintable()
