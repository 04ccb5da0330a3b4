"""The threads' protocol, with threads that stand still at any of their steps."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SOURCES = Path(__file__).parents[3] / "kernels" / "native" / "cpp"


def test_threads_that_stand_still_anywhere_lose_no_task_and_no_job(tmp_path):
    """A job's last thread once told of its end before it was done with it: the next job lost its tasks then,
    and was waited for in vain.
    """
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    program, seed = tmp_path / "interleavings", random.randrange(1000)
    options = ["-std=c++17", "-O1", "-pthread", f"-I{SOURCES}"]
    subprocess.run([compiler, *options, HERE / "interleavings.cpp", "-o", program], check=True, timeout=300)
    print("seed", seed)
    subprocess.run([program, str(seed), "3000"], check=True, timeout=300)
