"""Drafts against none: one engine each, in turns, the same questions; tokens must be equal.

    python benchmarks/speculation.py MODEL.gguf [--rounds 5] [--draft ngram|DRAFT.gguf]

Prints the median over the rounds of decode speed with drafts / without, and of drafts computed and kept.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from typing import NamedTuple

from engine import AsyncEngine, EngineConfig, Finished, Message, SamplingParams

TEXT = (
    "The harbour of the old town lies north of the bay, where the river meets the sea. Fishermen "
    "used it for more than six hundred years. In the morning their boats come back with herring and cod, "
    "and by noon the market on the quay is full of people. The stone tower at the end of the mole was built "
    "in 1483 as a light for ships; today it holds a small museum with maps, ropes and a bell from a wreck. "
    "Behind the market, streets climb the hill to the church of Saint Olaf. Its roof burned down twice, "
    "in 1611 and in 1902, and was rebuilt each time with oak from the forests in the east. Visitors who walk "
    "up to the gallery can see the islands, the lighthouse on the outer reef and, on a clear day, the "
    "mountains on the far side of the water. In winter the bay freezes, and children skate between the boats "
    "until the ice begins to crack in March."
)

CODE = """def average_price(items, currency):
    total = 0.0
    count = 0
    for item in items:
        if item.currency == currency:
            total += item.price * item.amount
            count += item.amount
    if count == 0:
        raise ValueError("no items in " + currency)
    result = total / count
    return round(result, 2)
"""

QUESTIONS = [
    "Why is the sky blue?",
    "Write a short story about a lighthouse keeper.",
    "What should I cook tonight with rice and eggs?",
    "Explain how a bicycle stays upright.",
    "Give me some advice for a job interview.",
    "What is the difference between a comet and an asteroid?",
    "Tell me about the history of paper.",
    "How do I learn to play the guitar?",
    "Describe a walk through a forest in autumn.",
    "What makes a good friend?",
    "How does a refrigerator work?",
    "Write a poem about the sea.",
    "Why do cats purr?",
    "What can I do in Lisbon in two days?",
    "Explain what an interest rate is.",
    "How are mountains formed?",
]


class Task(NamedTuple):
    """Questions asked at the same time. target: of the ratio."""

    name: str
    questions: list[str]
    tokens: int
    temperature: float
    target: float


TASKS = [
    Task("copy a text of 200 tokens", [f"Copy this text word by word:\n\n{TEXT}"], 210, 0, 1.8),
    Task(
        "rename a variable in a function",
        [f"Rename the variable `total` to `price_sum` in this function. Only show the code.\n\n{CODE}"],
        130,
        0,
        1.3,
    ),
    *(Task(f"chat, {count} at once", QUESTIONS[:count], 120, 0.7, 0.98) for count in (1, 4, 16)),
]


async def measure(engine: AsyncEngine, task: Task) -> tuple[float, list[Finished]]:
    """Tokens a second from the first token of all replies on, and the replies."""
    params = [
        SamplingParams(temperature=task.temperature, seed=seed, max_tokens=task.tokens)
        for seed in range(len(task.questions))
    ]
    streams = [
        engine.generate([Message("user", question)], each)
        for question, each in zip(task.questions, params, strict=True)
    ]
    replies = [await stream.result() for stream in streams]
    assert all(reply.error is None for reply in replies)
    seconds = sum((reply.timings.e2e_ms or 0) - (reply.timings.ttft_ms or 0) for reply in replies) / 1e3
    return sum(len(reply.token_ids) - 1 for reply in replies) * len(replies) / seconds, replies


async def compare(path: str, draft: str, rounds: int, tasks: list[Task]) -> None:
    """Print a table."""
    print("| task | tokens/s without | with | with / without | target | drafts kept | tokens a step |")
    print("|---|---|---|---|---|---|---|")
    plain = EngineConfig(model=path, context_length=1024, draft_model="none")
    drafts = EngineConfig(model=path, context_length=1024, draft_model=draft)
    async with AsyncEngine(plain) as without, AsyncEngine(drafts) as guessing:
        for task in tasks:
            _, expected = await measure(without, task)  # not counted: pages and caches get warm
            await measure(guessing, task)
            speeds: list[tuple[float, float]] = []
            counts = [0, 0, 0]
            for number in range(rounds):
                pair = {}
                for engine in (without, guessing) if number % 2 else (guessing, without):
                    pair[engine], replies = await measure(engine, task)
                    assert [r.token_ids for r in replies] == [r.token_ids for r in expected], (
                        "drafts changed it"
                    )
                    for place, name in enumerate(("completion_tokens", "draft_tokens", "accepted_tokens")):
                        counts[place] += sum(getattr(r.usage, name) for r in replies if engine is guessing)
                speeds.append((pair[without], pair[guessing]))
            tokens, drafted, accepted = counts
            kept = f"{accepted} of {drafted}" if drafted else "none"
            print(
                f"| {task.name} | {statistics.median(a for a, _ in speeds):.0f} "
                f"| {statistics.median(b for _, b in speeds):.0f} "
                f"| {statistics.median(b / a for a, b in speeds):.2f} | {task.target} | {kept} "
                f"| {tokens / (tokens - accepted):.2f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--draft", default="ngram", help="ngram, or the file of a draft model")
    parser.add_argument("--only", default="", help="tasks whose names hold this")
    options = parser.parse_args()
    tasks = [task for task in TASKS if options.only in task.name]
    asyncio.run(compare(options.model, options.draft, options.rounds, tasks))


if __name__ == "__main__":
    main()
