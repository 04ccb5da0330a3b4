"""Ranks on Triton kernels, interpreted, over gloo: the logits of one process, and the same bits each time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import AsyncEngine, EngineConfig, SamplingParams
from engine.selection import select_backend
from kernels.triton.self_check import Finding, Record
from tiny_models import make, write_tokenizer

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
GREEDY = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a first start has found out here: that `add_norm` is not to be used."""
    folder = tmp_path_factory.mktemp("findings")
    Record(folder, CPU).write(Finding({"add_norm": "found so"}, exact=True))
    return folder


def config_of(folder: Path, **fields: Any) -> EngineConfig:
    return EngineConfig(
        model=folder, device="cpu", dtype="float32", kv_dtype="float32", block_size=16, kv_blocks=12,
        context_length=64, draft_model="none", **fields,
    )  # fmt: skip


async def replies(config: EngineConfig, prompts: list[list[int]]) -> tuple[Any, list[tuple[int, ...]], Any]:
    """Scores of the first prompt, what is said to all of them at once, and the engine's state."""
    async with AsyncEngine(config) as engine:
        scores = await engine.score(prompts[0])
        streams = [engine.generate(prompt, GREEDY) for prompt in prompts]
        finals = await asyncio.gather(*(stream.result() for stream in streams))
        return scores, [final.token_ids for final in finals], engine.snapshot()


@pytest.mark.parametrize(("kind", "split"), [("olmo2", (2, 1)), ("qwen3moe-odd", (1, 2))])
async def test_ranks_on_kernels_are_as_one_process(
    kind: str, split: tuple[int, int], tmp_path: Path, findings: Path
) -> None:
    """Norms of whole rows, tables in parts; experts behind a send."""
    make(kind, tmp_path)
    write_tokenizer(tmp_path)
    rng = np.random.default_rng(3)
    vocabulary = json.loads((tmp_path / "config.json").read_text())["vocab_size"]
    prompts = [rng.integers(0, vocabulary, n).tolist() for n in (5, 2)]
    wanted, tokens, _ = await replies(config_of(tmp_path, backend="reference"), prompts)
    tensor, pipeline = split
    config = config_of(
        tmp_path, backend="triton", findings=findings, tensor_parallel=tensor, pipeline_parallel=pipeline
    )
    found, said, state = await replies(config, prompts)
    assert float(np.abs(found - wanted).max()) < 1e-4
    assert said == tokens
    assert (state.backend, state.exact, state.replaced) == ("triton", True, ("add_norm",))
    assert state.device == f"cpu x {tensor * pipeline}"
    if tensor > 1:
        again, _, _ = await replies(config, prompts[:1])
        assert np.array_equal(again, found)


def test_several_processes_take_the_backend_that_one_would() -> None:
    config = EngineConfig(model="m.gguf", device="cpu", backend="triton")
    for each in (config, replace(config, tensor_parallel=2)):
        selection = select_backend(each)
        assert selection.name == "triton"
        assert not any("several processes" in note for note in selection.notes)
