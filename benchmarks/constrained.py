"""Replies that keep to a schema against free ones: the same engine, in turns, the same questions.

    python benchmarks/constrained.py MODEL.gguf [--rounds 5] [--streams 8]

Prints the median over the rounds of decode speed with a schema / without, and of what the first token takes
longer (each round has a schema that was never compiled before); the steps of a reply that leaves no choice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from typing import Any

from speculation import QUESTIONS

from engine import AsyncEngine, EngineConfig, Finished, Message, SamplingParams

TOKENS = 96

WORDS = {"type": "array", "items": {"type": "string", "minLength": 20}, "minItems": 1000}
"""Almost all tokens of it are the model's choice, and each needs a mask of nearly the whole vocabulary."""

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "mail": {"type": "string", "format": "email"},
        "traits": {"type": "array", "items": {"enum": ["kind", "loud", "quiet", "quick"]}, "maxItems": 4},
    },
    "required": ["name", "age", "mail", "traits"],
    "additionalProperties": False,
}
PEOPLE = {"type": "array", "items": PERSON, "minItems": 1000}
"""Much of it leaves no choice."""


async def measure(
    engine: AsyncEngine, streams: int, schema: dict[str, Any] | None
) -> tuple[float, float, list[Finished]]:
    """Tokens a second from the first token on, the median time of the first token in ms, and the replies."""
    params = [
        SamplingParams(
            temperature=0.7, seed=seed, max_tokens=TOKENS, schema=schema, ignore_eos=schema is None
        )
        for seed in range(streams)
    ]
    running = [
        engine.generate([Message("user", question)], each)
        for question, each in zip(QUESTIONS, params, strict=False)
    ]
    replies = [await stream.result() for stream in running]
    assert all(reply.error is None and len(reply.token_ids) == TOKENS for reply in replies), replies
    seconds = sum((reply.timings.e2e_ms or 0) - (reply.timings.ttft_ms or 0) for reply in replies) / 1e3
    first = statistics.median(reply.timings.ttft_ms or 0 for reply in replies)
    return sum(len(reply.token_ids) - 1 for reply in replies) * len(replies) / seconds, first, replies


async def compare(path: str, rounds: int, streams: int) -> None:
    """Print a table."""
    config = EngineConfig(model=path, context_length=1024, draft_model="none", prefix_cache=False)
    async with AsyncEngine(config, constrained=True) as engine:
        print("| schema | streams | tokens/s free | with it | ratio | target | first token later | target |")
        print("|---|---|---|---|---|---|---|---|")
        for name, schema in (("words", WORDS), ("people", PEOPLE)):
            for count in (1, streams):
                await measure(engine, count, None)  # not counted: pages and caches get warm
                await measure(engine, count, schema)
                free: list[tuple[float, float]] = []
                kept: list[tuple[float, float]] = []
                for number in range(rounds):
                    for turn in (0, 1) if number % 2 else (1, 0):
                        new = {**schema, "description": f"{name} {count} {number}"}
                        speed, first, _ = await measure(engine, count, new if turn else None)
                        (kept if turn else free).append((speed, first))
                plain, held = (statistics.median(speed for speed, _ in each) for each in (free, kept))
                later = statistics.median(
                    with_[1] - without[1] for with_, without in zip(kept, free, strict=True)
                )
                print(
                    f"| {name} | {count} | {plain:.1f} | {held:.1f} | {held / plain:.3f} | 0.9 "
                    f"| {later:+.1f} ms | 20 ms |"
                )
        before = engine.snapshot().steps
        value = {"text": "one text, all of which is known before the model has seen a token of it. " * 4}
        params = SamplingParams(schema={"const": value})
        reply = await engine.generate([Message("user", QUESTIONS[0])], params).result()
        assert json.loads(reply.text) == value
        print(f"\n{len(reply.token_ids)} tokens without a choice: {engine.snapshot().steps - before} step(s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=8)
    arguments = parser.parse_args()
    asyncio.run(compare(arguments.model, arguments.rounds, arguments.streams))


if __name__ == "__main__":
    main()
