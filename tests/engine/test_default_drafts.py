"""The default model with drafts (docs/cases.md, kinds g and i)."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anchors import COUNT_IDS, COUNT_REPLY, COUNT_TEXT
from drafters import DraftedModel
from engine import AsyncEngine, EngineConfig, Finished, SamplingParams
from engine.sequence import Sequence
from engine.speculative.drafter import Proposal


class Fixed:
    """Drafts for a place in a reply, by the number of its request: tokens of a list, so many at a time."""

    name = "fixed"

    def __init__(self, lists: list[tuple[list[int], int]]) -> None:
        self._lists = lists

    def propose(self, sequences: list[Sequence], most: int) -> list[Proposal]:
        found = []
        for sequence in sequences:
            tokens, window = self._lists[sequence.id - 1]
            found.append(Proposal(tokens[sequence.output_length :][:window]))
        return found


async def replies(config: EngineConfig, prompt: list[int], *params: SamplingParams) -> list[Finished]:
    async with AsyncEngine(config) as engine:
        streams = [engine.generate(prompt, each) for each in params]
        return [await stream.result() for stream in streams]


@pytest.mark.slow
async def test_B039_B043_whatever_is_drafted_the_reply_is_the_models_own(default_model: Path) -> None:
    rng = random.Random(1)
    right = [*COUNT_REPLY, 2]
    drafts = {
        "33": ([33] * 80, 1),
        "0": ([0] * 80, 4),
        "random": ([rng.randrange(49152) for _ in range(80)], 8),
        "two of three": ([token if place % 3 else token + 1 for place, token in enumerate(right)], 8),
        "right, and on": (right + [33] * 9, 6),  # what is behind the end token is not taken
    }
    model = DraftedModel(default_model, Fixed(list(drafts.values())))  # type: ignore[arg-type]
    config = EngineConfig(model=model, context_length=128, max_sequences=8, draft_tokens=8)
    finals = await replies(config, COUNT_IDS, *[SamplingParams(temperature=0, max_tokens=60)] * len(drafts))
    kept = {}
    for name, final in zip(drafts, finals, strict=True):
        assert (final.text, final.reason) == (COUNT_TEXT, "stop"), name
        assert list(final.token_ids) == right, name
        kept[name] = final.usage.accepted_tokens
    assert kept["0"] == 0
    assert 0 < kept["33"] < kept["two of three"] < kept["right, and on"]


@pytest.mark.slow
@pytest.mark.parametrize("window", [4, "auto"])
async def test_B045_B053_B057_every_setting_gives_the_same_with_drafts(
    default_model: Path, window: Any
) -> None:
    settings: list[dict[str, Any]] = [
        {},
        {"repetition_penalty": 1.3},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
        {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5},
        {"temperature": 1e-6, "seed": 3},
        {"temperature": 0.4, "top_p": 0.9, "seed": 3},
        {"temperature": 0.4, "top_k": 5, "min_p": 0.1, "seed": 4},
    ]
    params = [SamplingParams(**{"temperature": 0, "max_tokens": 30, **each}) for each in settings]
    plain = EngineConfig(model=default_model, context_length=160, max_sequences=8, draft_model="none")
    prompt = [
        *COUNT_IDS,
        *COUNT_REPLY,
        198,
        *COUNT_REPLY[:20],
    ]  # a second time, so that there is what repeats
    expected = await replies(plain, prompt, *params)
    found = await replies(replace(plain, draft_model="ngram", draft_tokens=window), prompt, *params)
    assert [final.token_ids for final in found] == [final.token_ids for final in expected]
    assert [final.reason for final in found] == [final.reason for final in expected]
    assert len({final.token_ids for final in found[:5]}) > 1
    if window != "auto":
        accepted = sum(final.usage.accepted_tokens for final in found)
        assert 0 < accepted < sum(final.usage.draft_tokens for final in found)
