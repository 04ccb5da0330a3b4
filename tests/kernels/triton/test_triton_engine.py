"""Whole models through the engine, on interpreted kernels: the tokens of the reference, in any company."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from engine import AsyncEngine, EngineConfig, SamplingParams
from kernels.triton import backend as backends
from kernels.triton.self_check import Finding
from tiny_models import SIZES, make, write_tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    """The kernels are checked in tests of their own."""
    monkeypatch.setattr(backends.TritonBackend, "_look", lambda self, known: Finding({}))


@pytest.mark.parametrize("kind", ["qwen3", "gemma2"])
async def test_tokens_are_those_of_the_reference_alone_together_in_chunks_and_from_the_cache(kind, tmp_path):
    seed = 11
    print(f"{seed=}")
    make(kind, tmp_path)
    write_tokenizer(tmp_path)
    rng = random.Random(seed)
    prompts = [[rng.randrange(SIZES["vocab_size"]) for _ in range(n)] for n in (2, 17, 3)]
    greedy = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    params = [
        greedy,
        replace(greedy, temperature=0.9, top_p=0.9, seed=3),
        replace(greedy, repetition_penalty=1.2),
    ]

    async def replies(backend: str, *, together: bool, chunk: int) -> list[tuple[int, ...]]:
        config = EngineConfig(
            model=Path(tmp_path), backend=backend, device="cpu", kv_dtype="float32", dtype="float32",
            block_size=16, kv_blocks=24, context_length=64, prefill_chunk=chunk, draft_model="none",
        )  # fmt: skip
        async with AsyncEngine(config) as engine:
            assert engine.snapshot().backend == backend
            assert engine.snapshot().replaced == ()

            async def one(index: int) -> tuple[int, ...]:
                stream = engine.generate(prompts[index], params[index])
                return (await stream.result()).token_ids

            if together:
                return list(await asyncio.gather(*map(one, range(3))))
            return [await one(1)]

    want = await replies("reference", together=True, chunk=512)
    assert all(len(tokens) == 2 for tokens in want)
    assert await replies("triton", together=True, chunk=10) == want
    if kind == "qwen3":
        assert await replies("triton", together=False, chunk=512) == want[1:2]
