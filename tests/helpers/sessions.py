"""A placed model, and what it computes of some sequences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from engine.loading.checkpoint import Checkpoint
from engine.models.decoder import decoder
from engine.models.placing import place
from kernels.cache_format import CacheShape
from kernels.interface import Backend, BackendSettings
from kernels.program import Limits
from kernels.reference import ReferenceBackend
from kernels.step import Step

PROMPT, FEW = 37, 6
BLOCK = 16


@dataclass
class Session:
    """A placed model; sequence i owns the i-th run of 8 blocks."""

    checkpoint: Checkpoint
    sequences: int = 1
    backend: Backend = field(default_factory=lambda: ReferenceBackend(BackendSettings("cpu", "float32", 1)))
    kv: Literal["float32", "float16"] = "float32"
    width: int = 8

    def __post_init__(self) -> None:
        spec = self.checkpoint.spec
        weights = place(spec, self.checkpoint.tensors, self.backend)
        blocks = self.sequences * self.width
        self.backend.allocate_cache(CacheShape(spec.cached, blocks, BLOCK, self.kv))
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


def alone(session: Session, text: list[int], prompt: int = PROMPT, new: int = FEW) -> np.ndarray:
    """Logits of a text's beginning, and of some tokens after it one by one, of this sequence alone."""
    steps = [(0, text[:prompt]), *((p, text[p : p + 1]) for p in range(prompt, prompt + new))]
    return np.concatenate([session.step([(0, start, tokens)])[0] for start, tokens in steps])
