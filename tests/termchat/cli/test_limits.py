"""The program under the limits that a system sets: it says which one it met, and never dies of it."""

import random
import resource
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_too_few_addresses_are_a_sentence_wherever_they_run_out(home, default_model, seed):
    """Libraries that end the process where they get no memory are not called then."""
    limit = random.Random(seed).randint(450, 750) << 20
    command = [sys.executable, "-m", "termchat", "-m", default_model, "-t", "0", "-n", "2", "--no-save", "Hi"]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert ran.returncode in (0, 1), (limit, ran.returncode, ran.stderr)
    if ran.returncode:
        assert (ran.stdout, ran.stderr.count("\n")) == ("", 1), (limit, ran.stderr)
        assert "Traceback" not in ran.stderr
