"""`termchat quality` on the default model: against floats, against itself, against a file that is broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.loading.gguf import read_gguf
from termchat.quality.divergence import VERDICTS

pytestmark = pytest.mark.slow


@pytest.fixture
def text(home: Path) -> str:
    file = home / "text.txt"
    file.write_text(
        "The tide had gone out further than anyone could remember, and the old harbour wall stood dry. "
        "Children ran along it with buckets, looking for crabs.\n"
    )
    return str(file)


def test_a_model_against_itself_is_no_distance(termchat, linked_model, text):
    outcome = termchat("quality", linked_model, "--against", linked_model, "--text", text, "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert [found[name] for name in ("kl_mean", "kl_p99", "kl_max", "same_best")] == [0, 0, 0, 1]
    assert found["perplexity"] == found["against_perplexity"] > 1
    assert found["verdict"] == VERDICTS[0][1]
    assert (found["model"], found["against"]) == (linked_model, linked_model)


def test_int8_keys_and_values_cost_little_and_not_nothing(termchat, linked_model, text):
    options = ("--quantize", "none", "--kv-dtype", "int8", "--text", text)
    outcome = termchat("quality", linked_model, *options, "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert 0 < found["kl_mean"] < 0.004, "against float32 ones; the weights are floats on both sides"
    assert (found["quantization"], found["kv_dtype"], found["against"]) == ("none", "int8", None)
    assert found["texts"]["text.txt"]["tokens"] == found["tokens"] > 30


def test_what_is_compared_is_said_and_how_far_apart_it_is(termchat, linked_model, text):
    options = ("--kv-dtype", "int8", "--text", text, "--against", linked_model)
    outcome = termchat("quality", linked_model, *options)
    assert outcome.code == 0, outcome.err
    title, _, names, figures, _, verdict = outcome.out.splitlines()
    assert title == f"{linked_model} (keys and values in int8) against {linked_model}"
    assert names.split()[:2] == ["text", "tokens"]
    assert figures.split()[0] == "text.txt"
    assert verdict in [words for _, words in VERDICTS[1:4]]


def test_a_broken_scale_is_found(termchat, linked_model, default_model, home, text):
    broken = home / "broken.gguf"
    shutil.copyfile(default_model, broken)
    broken.chmod(0o600)
    blocks = np.array(read_gguf(default_model).tensors["blk.12.ffn_down.weight"].data)
    at = broken.read_bytes().find(blocks.tobytes())
    scales = blocks.reshape(-1, 20)[:, :4].copy().view(np.float16)  # of Q4_1: scale and minimum
    blocks.reshape(-1, 20)[:, :4] = (scales * np.float16(3)).view(np.uint8)
    with broken.open("r+b") as file:
        file.seek(at)
        file.write(blocks.tobytes())
    outcome = termchat("quality", str(broken), "--against", linked_model, "--text", text, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["kl_mean"] > 0.05
