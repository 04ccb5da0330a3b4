"""Replies with drafts of every kind against those without, for as long as you like.

    PYTHONPATH=tests/helpers python scripts/draft_equality.py [--minutes 5] [--seed S]

Each round draws a backend and an instruction set, a drafter (a draft model that is the model itself, half of
it, another one; the text), a window, a batch of 1 to 16 requests with mixed settings, and a pool that holds
them all or does not. Tokens, texts, lengths and finish reasons have to be equal; the blocks are audited after
every step.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from drafting import SETTINGS, TinyModel, audit_steps, drafted, replies
from engine import EngineConfig, SamplingParams
from kernels.native.library import kernels
from tiny_vocabulary import write_tiny_tokenizer

ISAS = [isa for isa in ("amx", "avx512", "avx2", "portable") if kernels(isa)]


async def round_of(seed: int, tokenizer: Path, counts: Counter[str]) -> None:
    """One comparison; AssertionError says what differs."""
    rng = random.Random(seed)
    backend = rng.choice(["native"] * 9 + ["reference"])
    count = rng.randint(1, 16) if backend == "native" else rng.randint(1, 3)
    requests = [
        (
            [rng.randrange(256) for _ in range(rng.randrange(1, 30))],
            SamplingParams(**{"max_tokens": 45, **rng.choice(SETTINGS)}),
        )
        for _ in range(count)
    ]
    plain = EngineConfig(
        model=TinyModel(backend, tokenizer, 80, isa=rng.choice(ISAS)),
        max_sequences=16,
        max_batch_tokens=rng.choice([32, 192]),
        block_size=rng.choice([16, 32]),
        kv_blocks=rng.choice([6, 2 * count + 5, 100]),
        prefix_cache=rng.random() < 0.8,
        draft_model="none",
    )
    drafts: dict[str, Any] = {
        "ngram": "ngram",
        "itself": TinyModel(backend, tokenizer, 80),
        "half": TinyModel(backend, tokenizer, 80, layers=1),
        "another": TinyModel(backend, tokenizer, 80, seed=6),
    }
    kind, window = rng.choice([*drafts]), rng.choice([*range(1, 9), "auto"])
    expected, _, before = await replies(plain, requests)
    found, finals, after = await replies(
        replace(plain, draft_model=drafts[kind], draft_tokens=window), requests
    )
    assert found == expected, f"seed {seed}: {backend}, {kind}, window {window}, {count} requests"
    accepted, rejected = drafted(finals)
    counts.update({"rounds": 1, f"accepted, {kind}": accepted, f"rejected, {kind}": rejected})
    counts["preemptions"] += before.preemptions + after.preemptions


def main() -> None:
    """Rounds until the time is up, and what there was in them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=None, help="one round, that of this seed")
    options = parser.parse_args()
    first = random.randrange(10**9) if options.seed is None else options.seed
    print("seeds from", first)
    counts: Counter[str] = Counter()
    end = time.monotonic() + options.minutes * 60
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        audit_steps(patch)
        tokenizer = write_tiny_tokenizer(Path(folder))
        seed = first
        while True:
            asyncio.run(round_of(seed, tokenizer, counts))
            seed += 1
            if options.seed is not None or time.monotonic() >= end:
                break
    for name, number in sorted(counts.items()):
        print(f"{number:9,} {name}")


if __name__ == "__main__":
    main()
