"""Loading and decoding against transformers: tiny random models, all in float32, on every backend."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from converted import write_gguf
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from kernels.interface import BackendSettings
from kernels.native.backend import NativeBackend
from kernels.reference.quantized_backend import QuantizedBackend
from sessions import FEW, PROMPT, Session, alone
from tiny_models import CONVERTED, FAMILIES, MODELS, NOT_IN_GGUF, SIZES, make

PROMPTS = (PROMPT, 1, 16, 5)
NEW_TOKENS = 64


def expected_logits(model: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def check_close(actual: np.ndarray, expected: np.ndarray, what: str) -> None:
    worst = float(np.abs(actual - expected).max())
    assert worst < 1e-4, f"{what}: {worst}"


def prompts(kind: str) -> list[list[int]]:
    generator = np.random.default_rng(len(kind))
    return [generator.integers(0, SIZES["vocab_size"], n).tolist() for n in PROMPTS]


def check_against(model: torch.nn.Module, checkpoint: Checkpoint, kind: str) -> tuple[list[int], np.ndarray]:
    """Prefill and greedy decode, alone and together, equal the library's logits at every position.

    A text and these logits of it.
    """
    texts = prompts(kind)
    together = Session(checkpoint, len(PROMPTS))
    rows = [[logits] for logits in together.step([(s, 0, text) for s, text in enumerate(texts)])]
    for _ in range(NEW_TOKENS if kind in FAMILIES else FEW):
        for text, found in zip(texts, rows, strict=True):
            text.append(int(found[-1][-1].argmax()))
        step = together.step([(s, len(text) - 1, text[-1:]) for s, text in enumerate(texts)])
        for found, logits in zip(rows, step, strict=True):
            found.append(logits)
    wanted = [expected_logits(model, text) for text in texts]
    assert max(float(np.abs(w).max()) for w in wanted) > 0.5, "logits too small to show a difference"
    for s, (text, found, expected) in enumerate(zip(texts, rows, wanted, strict=True)):
        check_close(np.concatenate(found), expected, f"sequence {s} in a batch")
        greedy = expected[PROMPTS[s] - 1 : -1].argmax(-1).tolist()
        assert greedy == text[PROMPTS[s] :], f"greedy tokens of sequence {s}"
    check_close(alone(Session(checkpoint), texts[0]), wanted[0][: PROMPTS[0] + FEW], "alone")
    return texts[0], wanted[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_B089_logits_and_greedy_tokens_equal_transformers(kind: str, tmp_path: Path) -> None:
    """A folder, and the GGUF file of the same model where there is such; of each family on every backend."""
    model = make(kind, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    text, wanted = check_against(model, checkpoint, kind)
    wanted = wanted[: PROMPTS[0] + FEW]
    if kind not in NOT_IN_GGUF:
        converted = open_checkpoint(write_gguf(tmp_path / "m.gguf", model, kind))
        turned = CONVERTED[kind.partition("-")[0]].turned or checkpoint.spec.ropes[0].layout == "interleaved"
        assert converted.spec.ropes[0].layout == ("interleaved" if turned else "half")
        check_close(alone(Session(converted), text), wanted, "from GGUF")
    if kind in FAMILIES:
        prompt, new = 12, 2
        twin = alone(Session(checkpoint, 1, QuantizedBackend()), text, prompt, new)
        check_close(twin, wanted[: prompt + new], "with the native backend's arithmetic")
        with closing(NativeBackend(BackendSettings(threads=2))) as native:
            sessions = [
                Session(checkpoint, 1, backend, "float16") for backend in (QuantizedBackend(), native)
            ]
            bits = {alone(session, text, prompt, new).tobytes() for session in sessions}
        assert len(bits) == 1, "the native backend and its twin"


def test_B091_qwen2_biases_change_the_logits(tmp_path: Path) -> None:
    model = make("qwen2", tmp_path)
    assert "attention_bias" not in json.loads((tmp_path / "config.json").read_text())
    tokens = prompts("qwen2")[0]
    (biased,) = Session(open_checkpoint(tmp_path)).step([(0, 0, tokens)])
    with torch.no_grad():
        for key, value in model.named_parameters():
            if key.endswith("bias"):
                value.zero_()
    assert np.abs(biased - expected_logits(model, tokens)).max() > 0.1


def test_B091_biases_of_a_plain_llama_are_used(tmp_path: Path) -> None:
    model = make("llama-biases", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["attention_bias"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    check_against(model, open_checkpoint(tmp_path), "llama-biases")
