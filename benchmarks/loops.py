"""How many long replies of a model end in a loop, for sampling settings given as JSON objects.

    python benchmarks/loops.py MODEL '{"temperature": 0.2}' '{"temperature": 0.2, "repetition_penalty": 1.1}'

Forty questions that ask for a long text, each answered once (seeds 0 to 39). A reply loops if its end is one
piece three times or more, over at least 24 tokens. `repeated` is the share of 8-grams that stood before;
`logprob` is what the model without penalties gives a token of the reply: the lower, the further the settings
lead away from it.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence

from engine import AsyncEngine, EngineConfig, Message, SamplingParams

QUESTIONS = """
Write a long story about a lighthouse keeper.
Tell me a story about a boy and his dog.
Write an essay about the history of the printing press.
Explain how photosynthesis works in detail.
Write a detailed guide to growing tomatoes.
Describe the city of Paris for a visitor.
Explain the causes of the First World War.
Write a fairy tale about a fox and a crow.
What is machine learning? Explain in depth.
List twenty ideas for a birthday party.
Write a dialogue between a teacher and a student about gravity.
Describe a day in the life of a medieval farmer.
Explain how a computer processor works.
Write a poem about the sea with many verses.
Give me a weekly meal plan with recipes.
Explain the water cycle to a child, at length.
Write a short biography of Marie Curie.
How do I learn to play the guitar? Be thorough.
Write a science fiction story set on Mars.
Explain the rules of chess.
Describe the solar system planet by planet.
Write a letter to a friend about a holiday in the mountains.
What are the advantages and disadvantages of electric cars?
Write a Python program that manages a to-do list, and explain it.
Explain what inflation is and what causes it.
Tell me everything you know about elephants.
Write a detective story with a surprising end.
How does the human heart work?
Write a speech about protecting the environment.
Summarize the plot of Romeo and Juliet.
Explain the difference between weather and climate in detail.
Write a travel diary of a trip through Japan.
How do airplanes fly?
Give advice to someone starting a small business.
Write a long text about the ocean and its animals.
Explain how vaccines work.
Describe your perfect day.
Write a children's story about a lost teddy bear.
What should I know before buying a house?
Explain the French Revolution.
""".strip().splitlines()

LONGEST_PERIOD = 200
SHORTEST_LOOP = 24


def loops(tokens: Sequence[int]) -> bool:
    """Whether the end of a reply is one piece, three times or more."""
    for period in range(1, min(LONGEST_PERIOD, len(tokens) // 3) + 1):
        length = period
        while length < len(tokens) and tokens[-1 - length] == tokens[-1 - length + period]:
            length += 1
        if length >= max(3 * period, SHORTEST_LOOP):
            return True
    return False


def repeated(tokens: Sequence[int]) -> float:
    """The share of 8-grams that stood before."""
    grams = [tuple(tokens[start : start + 8]) for start in range(len(tokens) - 7)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


async def measure(engine: AsyncEngine, settings: dict[str, float], length: int) -> dict[str, float]:
    """Answers all questions, together."""
    prompts = [[Message("user", question)] for question in QUESTIONS]
    streams = [
        engine.generate(prompt, SamplingParams(**settings, seed=seed, max_tokens=length))
        for seed, prompt in enumerate(prompts)
    ]
    replies = [list((await stream.result()).token_ids) for stream in streams]
    scores = []
    for prompt, reply in zip(prompts, replies, strict=True):
        ids = await engine.tokenize(prompt)
        scores.append(float((await engine.score([*ids, *reply], chosen=True))[len(ids) :].mean()))
    return {
        "loops": sum(map(loops, replies)),
        "repeated": round(sum(map(repeated, replies)) / len(replies), 3),
        "cut at the limit": sum(len(reply) == length for reply in replies),
        "tokens": round(sum(map(len, replies)) / len(replies)),
        "logprob": round(sum(scores) / len(scores), 2),
    }


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("settings", nargs="+", type=json.loads)
    parser.add_argument("--max-tokens", type=int, default=1500)
    options = parser.parse_args()
    async with AsyncEngine(EngineConfig(model=options.model, max_sequences=len(QUESTIONS))) as engine:
        for settings in options.settings:
            print(
                json.dumps(settings),
                json.dumps(await measure(engine, settings, options.max_tokens)),
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main())
