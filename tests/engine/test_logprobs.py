"""Log-probabilities of the tokens of replies: right to 1e-4, and aligned with tokens and text."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import AsyncEngine, EngineConfig, SamplingParams, TextDelta, TokenLogprob
from engine.logprobs import log_softmax, token_logprob
from tiny_models import make, write_tokenizer

INF = float("inf")


def exact(logits: np.ndarray) -> np.ndarray:
    """log(softmax) of a row in float64."""
    row = logits.astype(np.float64)
    shifted = row - row.max()
    return shifted - np.log(np.exp(shifted).sum())


@pytest.mark.parametrize("seed", range(4))
def test_those_of_a_row_are_those_of_float64_and_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    print("seed", seed)
    for size in (1, 2, 19, 20, 64, 65, 1279, 1280, 1281, 5000, 49152):
        for scale in (0.0, 0.1, 3.0, 40.0) if size <= 5000 else (3.0,):
            row = (rng.normal(size=size) * scale).astype(np.float32)
            if seed % 2:
                row = np.round(row)  # ties
            want = exact(row)
            np.testing.assert_allclose(np.exp(log_softmax(row[None]).astype(np.float64)).sum(), 1, atol=1e-5)
            for count in (0, 1, 5, 20):
                token = int(rng.integers(size))
                logprob, top = token_logprob(row, token, count)
                assert abs(logprob - want[token]) < 1e-4
                order = sorted(range(size), key=lambda id: (-row[id], id))[:count]
                assert [id for id, _ in top] == order, "best first, of equal ones the lowest id"
                np.testing.assert_allclose([value for _, value in top], want[order], atol=1e-4)
                if count >= size:
                    assert abs(sum(np.exp(value) for _, value in top) - 1) < 1e-6


def test_logits_without_a_number_give_none() -> None:
    row = np.array([-INF, 1, -INF, 0], np.float32)
    logprob, top = token_logprob(row, 1, 4)
    assert [id for id, _ in top] == [1, 3, 0, 2]
    assert [value for _, value in top][2:] == [-INF, -INF]
    assert abs(np.exp(logprob) + np.exp(top[1][1]) - 1) < 1e-6


async def of(
    engine: AsyncEngine, prompt: list[int], params: SamplingParams
) -> tuple[list[TokenLogprob], str]:
    """The entries of a reply, which are checked to be those of its tokens, delta by delta."""
    entries: list[TokenLogprob] = []
    async with engine.generate(prompt, params) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                assert event.logprobs is not None
                assert [entry.token_id for entry in event.logprobs] == list(event.token_ids)
                entries += event.logprobs
        final = await stream.result()
    assert final.error is None
    assert [entry.token_id for entry in entries] == list(final.token_ids)
    return entries, final.text


@pytest.mark.asyncio
@pytest.mark.parametrize("backend", ["reference", "native"])
async def test_they_are_of_the_models_own_distribution(tmp_path: Path, backend: str) -> None:
    """Settings of all kinds beside each other: what is reported is what `score` says of the same tokens."""
    rng = random.Random(5)
    model = make("llama", tmp_path)
    write_tokenizer(tmp_path)
    exactly = {"dtype": "float32", "kv_dtype": "float32"} if backend == "reference" else {}
    config = EngineConfig(model=tmp_path, backend=backend, kv_blocks=64, **exactly)
    async with AsyncEngine(config) as engine:
        size = engine.info.vocabulary
        settings = [
            SamplingParams(temperature=0, max_tokens=20, logprobs=0),
            SamplingParams(temperature=1.5, top_k=9, seed=3, max_tokens=20, logprobs=20),
            SamplingParams(repetition_penalty=1.4, presence_penalty=2, seed=4, max_tokens=20, logprobs=5),
            SamplingParams(logit_bias={7: 9.0, 9: -INF}, seed=5, min_tokens=9, max_tokens=20, logprobs=3),
        ]
        plain = SamplingParams(temperature=1, seed=9, max_tokens=20)
        prompts = [[rng.randrange(size) for _ in range(rng.randrange(3, 40))] for _ in settings]
        others = [engine.generate(prompt, plain) for prompt in prompts]
        found = await asyncio.gather(*map(of, [engine] * len(settings), prompts, settings))
        for other in others:
            async for event in other:
                assert not isinstance(event, TextDelta) or event.logprobs is None
        for (entries, _), prompt, params in zip(found, prompts, settings, strict=True):
            ids = prompt + [entry.token_id for entry in entries]
            scores = await engine.score(ids)
            if backend == "reference":  # its logits are those of transformers: here is all of it in float64
                with torch.no_grad():
                    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()
                np.testing.assert_allclose(scores, [exact(row) for row in logits], atol=1e-4)
            np.testing.assert_allclose(np.exp(scores.astype(np.float64)).sum(axis=1), 1, atol=1e-5)
            for place, entry in enumerate(entries, len(prompt) - 1):
                assert abs(entry.logprob - float(scores[place, entry.token_id])) < 1e-4
                assert len(entry.top) == params.logprobs
                for id, value, _ in entry.top:
                    assert abs(value - float(scores[place, id])) < 1e-4
                assert [top.logprob for top in entry.top] == sorted(
                    (t.logprob for t in entry.top), reverse=True
                )
