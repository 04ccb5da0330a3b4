"""Loading and decoding against transformers: tiny random models, all in float32, on every backend."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import tiny_mixtures
from converted import write_gguf
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.models.decoder import decoder
from engine.models.weights import place
from kernels.interface import Backend, BackendSettings, CacheShape, Limits
from kernels.native.backend import NativeBackend
from kernels.reference import ReferenceBackend
from kernels.reference.quantized_backend import QuantizedBackend
from kernels.step import Step
from tiny_models import CONVERTED, FAMILIES, MODELS, SIZES, make

PROMPTS = (37, 1, 16, 5)
NEW_TOKENS = 64
FEW = 6
BLOCK = 16


@dataclass
class Session:
    """A placed model; sequence i owns the i-th run of 8 blocks."""

    checkpoint: Checkpoint
    sequences: int = len(PROMPTS)
    backend: Backend = field(default_factory=lambda: ReferenceBackend(BackendSettings("cpu", "float32", 1)))
    kv: Literal["float32", "float16"] = "float32"
    width: int = 8

    def __post_init__(self) -> None:
        spec = self.checkpoint.spec
        weights = place(spec, self.checkpoint.tensors, self.backend)
        blocks = self.sequences * self.width
        self.backend.allocate_cache(
            CacheShape(len(spec.layers), blocks, BLOCK, spec.kv_heads, spec.head_dim, self.kv)
        )
        limits = Limits(256, 256, self.sequences, self.width)
        self.program = self.backend.capture(lambda ops, batch: decoder(ops, spec, weights, batch), limits)
        self.tables = np.arange(blocks, dtype=np.int32).reshape(self.sequences, self.width)

    def step(self, parts: list[tuple[int, int, list[int]]]) -> list[np.ndarray]:
        """Run (sequence, first position, tokens) together; float32 logits of every row, a matrix a part."""
        sequences = np.concatenate([np.full(len(tokens), s, np.int32) for s, _, tokens in parts])
        positions = np.concatenate([np.arange(p, p + len(t), dtype=np.int32) for _, p, t in parts])
        tokens = np.concatenate([np.asarray(t, np.int32) for _, _, t in parts])
        slots = self.tables[sequences, positions // BLOCK] * BLOCK + positions % BLOCK
        step = Step.of(
            tokens=tokens,
            positions=positions,
            slots=slots,
            sequences=sequences,
            block_tables=self.tables,
            sample_rows=np.arange(len(tokens)),
        )
        output = self.program.launch(step, logits=True).result()
        assert output.logits is not None
        logits = np.array(output.logits, np.float32)
        return np.split(logits, np.cumsum([len(t) for _, _, t in parts])[:-1])


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
    together = Session(checkpoint)
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
    check_close(alone(Session(checkpoint, 1), texts[0]), wanted[0][: PROMPTS[0] + FEW], "alone")
    return texts[0], wanted[0]


def alone(session: Session, text: list[int], prompt: int = PROMPTS[0], new: int = FEW) -> np.ndarray:
    """Logits of a text's beginning, some tokens of it one by one, of this sequence alone."""
    steps = [(0, text[:prompt]), *((p, text[p : p + 1]) for p in range(prompt, prompt + new))]
    return np.concatenate([session.step([(0, start, tokens)])[0] for start, tokens in steps])


NOT_IN_GGUF = {
    **tiny_mixtures.NOT_IN_GGUF,
    "mistral": "the converter drops the window",
    "qwen2-some-windows": "the converter drops the windows",
    "smollm3-untied": "which layers rotate is not in the file",
    "gemma2-no-caps": "the converter needs caps",
    "llama-yarn-rope": "that the ramp is not truncated is not in the file",
    "ministral": "the converter does not know it",
}


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
        turned = CONVERTED[kind.partition("-")[0]].turned or kind.startswith("glm4")
        assert converted.spec.ropes[0].layout == ("interleaved" if turned else "half")
        check_close(alone(Session(converted, 1), text), wanted, "from GGUF")
    if kind in FAMILIES:
        prompt, new = 12, 2
        twin = alone(Session(checkpoint, 1, QuantizedBackend()), text, prompt, new)
        check_close(twin, wanted[: prompt + new], "with the native backend's arithmetic")
        backends = (QuantizedBackend(), NativeBackend(BackendSettings(threads=2)))
        sessions = [Session(checkpoint, 1, backend, "float16") for backend in backends]
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
