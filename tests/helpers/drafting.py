"""Replies with and without drafts: what has to be the same, and models that are quick enough for it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence as Tokens
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import AsyncEngine, EngineConfig, EngineSnapshot, Finished, SamplingParams, TextDelta
from engine.grammar.grammars import Grammars
from engine.model import LoadedModel
from engine.models.decoder import decoder
from engine.models.placing import place
from engine.models.spec import LayerSpec, ModelSpec
from engine.roofline import Traffic
from engine.runner import ModelRunner
from engine.scheduler import most_samples
from engine.service import Service
from engine.speculative.pairing import Target, draft_beside
from engine.testing import ScriptedModel
from engine.tokenization import load_tokenizer
from kernels.backends import open_backend
from kernels.cache_format import CacheShape
from kernels.interface import BackendSettings
from kernels.program import Limits
from random_weights import RandomTensors
from standing import standing

A, B, END = 65, 66, 257
Request = tuple[list[int], SamplingParams]


def audit_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step leaves the blocks as they have to be, and nothing of drafts."""
    whole = Service.step

    def step(service: Service) -> None:
        whole(service)
        service.audit()
        for sequence in service.scheduler.running:
            assert len(sequence.drafts) == 0
            assert len(sequence.table.blocks) == service.pool.blocks_for(sequence.computed)

    monkeypatch.setattr(Service, "step", step)


class Clock:
    """Time that goes by only where a scripted model takes it: whatever it decides is the same anywhere."""

    def __init__(self) -> None:
        self._now = time.perf_counter()

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def perf_counter(self) -> float:
        return self._now

    monotonic = perf_counter


def simulate_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of scripted models, drafts included, take the seconds that they say, and none in truth."""
    clock = Clock()
    for module in ("testing", "service", "speculative.draft_model"):
        monkeypatch.setattr(f"engine.{module}.time", clock)


async def replies(
    config: EngineConfig, requests: Tokens[Request]
) -> tuple[list[Any], list[Finished], EngineSnapshot]:
    """What every request brings, its final events, and the engine's state after that."""

    async def read(stream: Any) -> tuple[Any, Finished]:
        *deltas, final = [event async for event in stream]
        assert all(isinstance(delta, TextDelta) for delta in deltas)
        assert isinstance(final, Finished)
        assert "".join(delta.text for delta in deltas) == final.text
        assert tuple(token for delta in deltas for token in delta.token_ids) == final.token_ids
        logprobs = [found for delta in deltas for found in delta.logprobs or ()]
        usage = final.usage.prompt_tokens, final.usage.completion_tokens
        return (final.text, final.token_ids, final.reason, final.stop_match, usage, logprobs), final

    async with AsyncEngine(config) as engine:
        async with standing(engine, len(requests)):
            streams = [engine.generate(*request) for request in requests]
        found = await asyncio.gather(*(read(stream) for stream in streams))
        await engine.audit()  # a step with a row too many may have been under way at the end
        return [reply for reply, _ in found], [final for _, final in found], engine.snapshot()


def drafted(finals: Tokens[Finished]) -> tuple[int, int]:
    """Drafts of all these replies that were accepted, and those that were not."""
    accepted = sum(final.usage.accepted_tokens for final in finals)
    return accepted, sum(final.usage.draft_tokens for final in finals) - accepted


def check(rule: str, finals: Tokens[Finished]) -> None:
    accepted, rejected = drafted(finals)
    assert (accepted > 0) == (rule != "wrong")
    assert rejected > 0 or rule == "right"


def every_way_to_end(tokenizer: Path, step_seconds: float = 0.0) -> tuple[EngineConfig, list[Request]]:
    """A scripted model whose replies end in every way there is, in a pool that is too small for them all."""
    rng = random.Random(1)
    text = [rng.choice([A, B, B + 1]) for _ in range(100)]
    scripts = [
        [*text[:30], END, *text[:30]],  # an end token, and the model would go on
        [*text[:21], B + 2, B + 3, B + 4, *text[:9]],  # a stop string across drafts
        text[:50],  # max_tokens
        text[:100],  # the context's end
        text[:40],  # held back for a stop string that does not come
        [*text[:25], END, END, END, A, *text[:9]],  # end tokens that do not end it
        [*text[:19], B + 5, *text[:9]],  # a further end token
        text[:30],
    ]
    stop = "".join(chr(token + 0x21) for token in (B + 2, B + 3))
    params = [
        SamplingParams(),
        SamplingParams(stop=(stop,), logprobs=2, max_tokens=25),  # which a draft reaches, too
        SamplingParams(max_tokens=17),
        SamplingParams(temperature=0),
        SamplingParams(stop=(chr(A + 0x21) + "never",), max_tokens=38),
        SamplingParams(ignore_eos=True, max_tokens=33),
        SamplingParams(stop_token_ids=(B + 5,), logprobs=1),
        SamplingParams(temperature=0.7, repetition_penalty=1.1, min_tokens=9, logprobs=0),
    ]
    requests = [([7 + number] * rng.randrange(3, 20), each) for number, each in enumerate(params)]
    model = ScriptedModel(scripts, tokenizer, [END], context_length=80, step_seconds=step_seconds)
    return EngineConfig(model=model, block_size=16, kv_blocks=10), requests


ENDS = ["stop", "stop", "length", "context", "length", "length", "stop", "stop"]


TINY = ModelSpec("llama", (LayerSpec(),) * 2, 64, 4, 2, 16, 96, 258, 512, 1e-5)


class TinyModel:
    """A small random model on a backend. layers: how many of its two there are; one alone guesses well."""

    def __init__(
        self,
        backend: str,
        tokenizer: Path,
        context_length: int,
        *,
        layers: int = 2,
        seed: int = 5,
        isa: str = "auto",
        vocabulary: int = 258,
        scale: float = 0.4,
    ) -> None:
        self._backend, self._tokenizer, self._context_length = backend, tokenizer, context_length
        self._layers, self._seed, self._isa = layers, seed, isa
        self._whole, self._scale = replace(TINY, vocabulary=vocabulary), scale

    def load(self, config: EngineConfig) -> LoadedModel:
        spec = replace(self._whole, layers=TINY.layers[: self._layers])
        owner = open_backend(self._backend, BackendSettings(device="cpu", cpu_isa=self._isa))
        weights = place(spec, RandomTensors(self._whole, scale=self._scale, spread=0, seed=self._seed), owner)
        assert config.kv_blocks is not None
        shape = CacheShape.alike(self._layers, config.kv_blocks, config.block_size, 2, 16, "float16")
        owner.allocate_cache(shape)
        limits = Limits(config.max_batch_tokens, most_samples(16, 128), 16, config.kv_blocks)
        program = owner.capture(lambda ops, batch: decoder(ops, spec, weights, batch), limits)
        tokenizer = load_tokenizer(self._tokenizer)
        target = Target("tiny", lambda: tokenizer, self._context_length, 0, exact=False)
        drafting = draft_beside(config, target, 0)
        return LoadedModel(
            name="tiny",
            runner=ModelRunner(owner, program, Traffic(1, 1), config.block_size),
            tokenizer=tokenizer,
            vocabulary=spec.vocabulary,
            context_length=self._context_length,
            blocks=config.kv_blocks,
            block_size=config.block_size,
            end_ids=frozenset(),
            chat_template=None,
            grammars=Grammars(tokenizer, spec.vocabulary, {END}),
            defaults={},
            drafter=drafting.drafter("tiny", tokenizer, spec.vocabulary, exact=False),
        )


SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.9, "top_p": 0.9, "seed": 3},
    {"temperature": 0, "repetition_penalty": 1.3, "logprobs": 2},
    {"temperature": 0.7, "frequency_penalty": 0.5, "presence_penalty": 0.3, "seed": 4, "max_tokens": 50},
    {"temperature": 0.6, "min_tokens": 12, "stop_token_ids": range(0, 258, 6), "seed": 7},
    {"temperature": 1.0, "min_p": 0.05, "top_k": 40, "seed": 5, "logit_bias": {84: 3.0, 28: -3.0}},
    {"temperature": 0.5, "seed": 6, "stop": ("a", "e", "5", "x", "!")},
    {"temperature": 0.8, "seed": 6, "max_tokens": 33},
]
