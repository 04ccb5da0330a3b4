"""No test reads or writes the files of the user who runs it, whatever it sets up."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = "from termchat.paths import Paths; p = Paths.default(); print(p.config, p.data, p.state, sep='\\n')"


def folders(**environment: str) -> list[Path]:
    """Of a program that a test starts."""
    done = subprocess.run(
        [sys.executable, "-c", SHOW], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "environment", [{}, {"XDG_DATA_HOME": "", "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}]
)
def test_what_a_test_forgets_to_set_leads_to_no_users_files(environment: dict[str, str]) -> None:
    user = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert Path.home() != user
    found = folders(**environment)
    assert len(found) == 3
    assert not [folder for folder in found if folder.is_relative_to(user)]
