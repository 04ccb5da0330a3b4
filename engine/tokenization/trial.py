"""Parts of a tokenizer.json that are not known are tried out in a process of their own, which may hang.

It gets texts made to be hard for them. Ordinary files have known parts only, and need no trial.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

_RUN = 1 << 14
"""Characters of a trial text; one that takes more than _SECONDS takes more than time in proportion to it."""

_SECONDS = 0.1  # of the processor
_MEMORY = 1 << 31
_PATIENCE = 45.0
_MAX_LETTERS = 32
_MAX_PARTS = 4096  # characters
_SAMPLES = "aA1 \n\t!_'é漢ا\u0301\u3000\U0001f642"

_CODE = f"""
import json, resource, signal, sys, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY}, {_MEMORY}))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
import tokenizers
job = json.load(sys.stdin)
pipeline = tokenizers.Tokenizer.from_str(job["pipeline"])
for text in job["texts"]:
    signal.setitimer(signal.ITIMER_PROF, {6 * _SECONDS})  # ends the process
    started = time.process_time()
    normalized = pipeline.normalizer.normalize_str(text) if pipeline.normalizer else text
    if len(normalized) > job["growth"] * len(text) + 1000:
        sys.exit("it makes a text of %d characters %d characters long" % (len(text), len(normalized)))
    pipeline.encode(text)
    if time.process_time() - started > {_SECONDS}:
        sys.exit("it takes too long for a text of %d characters" % len(text))
print("passed")
"""


def _looked_for(part: Any) -> str:
    """All texts that are settings of a part: what it looks for, and what it puts in."""
    if isinstance(part, str):
        return part
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    return "".join(map(_looked_for, parts))


def _texts(parts: str) -> list[str]:
    """Long runs of what the parts look for, some with an end that doesn't fit, and all characters."""
    letters = "".join(dict.fromkeys(character for character in parts if not character.isspace()))
    pairs = [parts[at : at + 2] for at in range(len(parts) - 1) if parts[at : at + 2].isalpha()]
    units = dict.fromkeys([*_SAMPLES, *letters[:_MAX_LETTERS], *pairs[:_MAX_LETTERS]])
    runs = [unit * (_RUN // len(unit)) for unit in units]
    plane = "".join(map(chr, [*range(1, 0xD800), *range(0xE000, 0x10000)]))
    starts = range(0, len(plane), _RUN)
    end = f"\x01{letters}{_SAMPLES}"  # an end that doesn't fit, then whatever the expression may ask for
    return [*runs, *(run + end for run in runs), *(plane[start : start + _RUN] for start in starts)]


def failure(normalizer: Any, pre_tokenizer: Any, growth: int) -> str | None:
    """What goes wrong with these parts (as plain values), None if they are fine."""
    pipeline = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    parts = _looked_for([normalizer, pre_tokenizer])[:_MAX_PARTS]
    job = {"pipeline": json.dumps(pipeline), "texts": _texts(parts), "growth": growth}
    if not sys.executable:
        return "it can't be tried out here"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _CODE],
            input=json.dumps(job).encode(),
            capture_output=True,
            timeout=_PATIENCE,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return "it could not be tried out in time"
    if done.returncode == 0 and done.stdout.strip() == b"passed":
        return None
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return last if last.startswith("it ") else "it fails, or needs too much time or memory, for a trial text"
