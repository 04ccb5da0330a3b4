"""benchmarks/gpu_check.py runs by PYTHONPATH alone, without what a GPU machine may lack, and tells all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LACKING = (
    *(
        "gguf",
        "textual",
        "platformdirs",
        "bitsandbytes",
        "llguidance",
        "rich",
        "click",
        "tomlkit",
        "pygments",
    ),
    *("markdown_it", "httpx", "huggingface_hub", "safetensors", "starlette", "pynvml", "psutil"),
)
LACK = f"""
import sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LACKING}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Lacking())
"""


@pytest.mark.slow
def test_the_check_of_a_gpu_runs_without_an_installation(tmp_path):
    """Files alone: neither the compiled library nor the packages that an installation brings."""
    for package in ("engine", "kernels", "benchmarks"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    (tmp_path / "sitecustomize.py").write_text(LACK)
    script, out = tmp_path / "benchmarks" / "gpu_check.py", tmp_path / "out.json"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"} | {
        "PYTHONPATH": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    run = subprocess.run(
        [sys.executable, str(script), "--tiny", "--out", str(out)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    lines = {(line["section"], line["name"]): line for line in json.loads(out.read_text())["lines"]}
    assert lines["kernels", "rms_norm"]["value"] == "ok"
    assert lines["exactness", "q4 batched: tokens as alone"]["value"] is True
    assert lines["tiny q8", "decode, 2 streams"]["value"] > 0
    assert lines["tiny q8", "prefill of 20"]["value"] > 0
    assert len(run.stdout.splitlines()) == len(lines), "the table has the lines of the file"
