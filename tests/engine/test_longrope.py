"""LongRoPE in the engine: which factors hold follows from the context, and never from how texts come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import AsyncEngine, EngineConfig, SamplingParams
from tiny_models import SIZES, make, write_tokenizer

ORIGINAL = 64


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("phi")
    made = make("phi3-long-factors", folder, original_max_position_embeddings=ORIGINAL)
    write_tokenizer(folder)
    return folder, made


def config(folder: Path, **changes: Any) -> EngineConfig:
    settings = {"device": "cpu", "backend": "reference", "dtype": "float32", "kv_dtype": "float32"}
    return EngineConfig(model=folder, **{**settings, **changes})


def log_probabilities(model: Any, ids: list[int]) -> np.ndarray:
    """Of transformers, by the factors for texts of this length."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1).numpy()


@pytest.mark.parametrize(("context", "length"), [(ORIGINAL, 60), (ORIGINAL + 1, 65), (200, 150)])
async def test_B093_the_context_says_which_factors_hold(
    model: tuple[Path, Any], context: int, length: int
) -> None:
    folder, made = model
    ids = np.random.default_rng(5).integers(0, SIZES["vocab_size"], length).tolist()
    expected = log_probabilities(made, ids)
    async with AsyncEngine(config(folder, context_length=context)) as engine:
        scores = await engine.score(ids)
    assert np.abs(np.asarray(scores) - expected).max() < 1e-4


async def test_B093_a_text_that_crosses_the_original_context_is_the_same_in_any_pieces(
    model: tuple[Path, Any],
) -> None:
    folder, _ = model
    ids = np.random.default_rng(6).integers(0, SIZES["vocab_size"], 50).tolist()
    greedy = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    found = []
    for changes in ({}, {"prefill_chunk": 16, "prefix_cache": False}, {"prefill_chunk": 48}):
        async with AsyncEngine(config(folder, context_length=128, **changes)) as engine:
            first = await engine.generate(ids, greedy).result()
            again = await engine.generate([*ids, *first.token_ids[:30]], greedy).result()
            found.append((first.token_ids, again.token_ids[:10]))
    assert found[0] == found[1] == found[2]
    assert found[0][0][30:] == found[0][1]
