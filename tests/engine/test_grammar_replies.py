"""Replies that keep to a grammar are the same whatever else is computed, and however."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beside import Beside
from drafters import ScriptedDrafter
from engine import AsyncEngine, EngineConfig, EngineError, Finished, Message, SamplingParams
from engine.grammar import grammars, masks
from engine.grammar.constraint import Constraint
from engine.grammar.grammars import Grammars
from engine.model import LoadedModel
from engine.models.decoder import decoder
from engine.models.placing import place
from engine.models.spec import LayerSpec, ModelSpec
from engine.roofline import Traffic
from engine.runner import ModelRunner
from engine.scheduler import most_samples
from engine.speculative.ngram import NgramDrafter
from engine.speculative.pairing import load_draft
from engine.testing import ScriptedModel
from engine.tokenization import load_tokenizer
from kernels.backends import open_backend
from kernels.cache_format import CacheShape
from kernels.interface import BackendSettings
from kernels.program import Limits
from random_weights import RandomTensors

END = 257
TINY = ModelSpec("llama", (LayerSpec(),) * 2, 64, 4, 2, 16, 96, 258, 512, 1e-5)


class TinyModel:
    """A small random model whose replies can keep to grammars; drafter: guesses at them."""

    def __init__(self, backend: str, tokenizer: Path, drafter: Any = None) -> None:
        self._backend, self._tokenizer, self._drafter = backend, tokenizer, drafter

    def load(self, config: EngineConfig) -> LoadedModel:
        owner = open_backend(self._backend, BackendSettings(device="cpu"))
        weights = place(TINY, RandomTensors(TINY, scale=0.4, spread=0, seed=5), owner)
        blocks = config.kv_blocks or 64
        owner.allocate_cache(CacheShape.alike(2, blocks, config.block_size, 2, 16, "float16"))
        limits = Limits(config.max_batch_tokens, most_samples(24, 256), 24, blocks)
        program = owner.capture(lambda ops, batch: decoder(ops, TINY, weights, batch), limits)
        tokenizer, ends = load_tokenizer(self._tokenizer), frozenset([END])
        drafter = self._drafter
        if isinstance(config.draft_model, TinyModel):
            drafter = load_draft(config.draft_model, config, "tiny", tokenizer)
        elif config.draft_model == "ngram":
            drafter = NgramDrafter()
        return LoadedModel(
            name="tiny",
            runner=ModelRunner(owner, program, Traffic(1, 1), config.block_size),
            tokenizer=tokenizer,
            vocabulary=258,
            context_length=512,
            blocks=blocks,
            block_size=config.block_size,
            end_ids=ends,
            chat_template=None,
            defaults={},
            drafter=drafter,
            grammars=Grammars(tokenizer, 258, ends),
        )


SHORT = {"type": "string", "maxLength": 8}
DOG = {
    "type": "object",
    "properties": {
        "name": SHORT,
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["small", "smaller", "old"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
WHAT: list[dict[str, Any]] = [
    {"schema": DOG},
    {"regex": "(yes|no|perhaps so), [a-z]{3,12}\\."},
    {"grammar": 'start: "<" word ("," word)* ">"\nword: /[a-z]{2,4}/'},
    {"schema": {"const": {"no": ["choice", 1, None]}}},
    {},
    {"schema": {"type": "array", "items": SHORT, "minItems": 2, "maxItems": 6}},
]
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.9, "top_p": 0.9, "seed": 3},
    {"seed": 11, "repetition_penalty": 1.3, "min_tokens": 8},
    {"seed": 5, "frequency_penalty": 0.4, "stop": ("ol", "zz")},
    {"seed": 7, "logit_bias": {101: 3.0, 34: -2.0}, "top_k": 40},
    {"seed": 9, "min_p": 0.02, "presence_penalty": 0.4},
]


def requests(count: int = 18, most: int = 90, seed: int = 1) -> list[tuple[list[int], SamplingParams]]:
    """Prompts some of which begin alike, with every kind of grammar and setting."""
    rng = random.Random(seed)
    common = [rng.randrange(256) for _ in range(40)]
    made = []
    for index in range(count):
        prompt = common[: rng.choice([0, 20, 40])] + [rng.randrange(256) for _ in range(rng.randint(1, 30))]
        what, settings = WHAT[index % len(WHAT)], SETTINGS[(index // len(WHAT) + index) % len(SETTINGS)]
        made.append((prompt, SamplingParams(max_tokens=rng.choice([9, most]), **settings, **what)))
    return made


async def answers(
    model: Any, wanted: list[tuple[list[int], SamplingParams]], *, at_once: bool = True, **config: Any
) -> tuple[list[Any], Any]:
    """What comes of the requests, and the engine's figures at the end."""
    async with AsyncEngine(EngineConfig(model=model, **config)) as engine:

        async def one(prompt: list[int], params: SamplingParams) -> Any:
            final = await engine.generate(prompt, params).result()
            return final.reason, final.token_ids, final.text, final.error and final.error.message

        if at_once:
            found = await asyncio.gather(*(one(*each) for each in wanted))
        else:
            found = [await one(*each) for each in wanted]
        await engine.audit()
        return found, engine.snapshot()


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "count", "most"), [("native", 18, 90), ("reference", 4, 30)])
async def test_alone_batched_preempted_in_chunks_and_drafted(
    backend: str, count: int, most: int, tiny_tokenizer: Path
) -> None:
    wanted = requests(count, most)
    model = TinyModel(backend, tiny_tokenizer)
    alone, _ = await answers(model, wanted, at_once=False, draft_model="none")
    assert {reason for reason, *_ in alone} == {"stop", "length"}
    whole = 0
    for (_, params), (reason, _, text, _) in zip(wanted, alone, strict=True):
        if params.schema is not None and reason == "stop" and not params.stop:
            json.loads(text)
            whole += 1
    assert whole or backend == "reference"
    assert (await answers(model, wanted, draft_model="none", prefix_cache=False, prefill_chunk=5))[0] == alone
    assert (await answers(model, wanted, draft_model="none", kv_blocks=12, block_size=16))[0] == alone
    replies = {number: ids for number, (_, ids, _, _) in enumerate(alone, 1)}
    for rule, window in (("mixed", 3), ("right", 8), ("odd", 5), ("mixed", 1), ("wrong", 4))[: most // 18]:
        drafted = TinyModel(backend, tiny_tokenizer, ScriptedDrafter(replies, rule, window))
        found, figures = await answers(drafted, wanted, draft_tokens=window)
        assert found == alone, (rule, window)
        assert figures.accepted_tokens > 0 or rule == "wrong"
        assert figures.draft_tokens > figures.accepted_tokens or rule == "right"
    assert (await answers(model, wanted, draft_model="ngram"))[0] == alone


@pytest.mark.parametrize("window", [1, 3, 8])
async def test_a_draft_model_guesses_by_the_same_masks(tiny_tokenizer: Path, window: int) -> None:
    """The model itself as draft: behind each of its guesses it needs the mask of that place."""
    wanted = [each for each in requests(seed=window) if each[1].constraint is not None]
    model = TinyModel("native", tiny_tokenizer)
    alone, before = await answers(model, wanted, draft_model="none")
    assert sum(len(ids) for _, ids, _, _ in alone) > 200
    drafted, after = await answers(model, wanted, draft_model=model, draft_tokens=window)
    assert drafted == alone
    assert after.steps < before.steps
    # All are right but some behind which the reply is over: there the model says so itself.
    assert 0 <= after.draft_tokens - after.accepted_tokens <= len(wanted)
    assert after.accepted_tokens > 50


async def test_a_preempted_reply_goes_on_where_its_grammar_was(tiny_tokenizer: Path) -> None:
    texts = {"type": "array", "items": {"type": "string", "minLength": 20, "maxLength": 40}, "minItems": 3}
    wanted = [([index] * 9, SamplingParams(seed=index, max_tokens=90, schema=texts)) for index in range(6)]
    model = TinyModel("native", tiny_tokenizer)
    alone, _ = await answers(model, wanted, at_once=False)
    tight, figures = await answers(model, wanted, kv_blocks=14, block_size=16)
    assert tight == alone
    assert figures.preemptions > 0


async def test_logprobs_are_those_of_each_token_and_change_nothing(tiny_tokenizer: Path) -> None:
    wanted = [each for each in requests() if each[1].constraint is not None]
    model = TinyModel("native", tiny_tokenizer)
    plain, _ = await answers(model, wanted)
    async with AsyncEngine(EngineConfig(model=model)) as engine:
        for (prompt, params), expected in zip(wanted, plain, strict=True):
            stream = engine.generate(prompt, replace(params, logprobs=2))
            logprobs = [entry async for event in stream for entry in getattr(event, "logprobs", None) or ()]
            final = await stream.result()
            assert (final.reason, final.token_ids) == expected[:2]
            assert [entry.token_id for entry in logprobs] == [*final.token_ids]


async def test_what_leaves_no_choice_beside_a_reply_with_logprobs(tiny_tokenizer: Path) -> None:
    """A step that computes logits for one reply has rows for all of them, but none for what is forced."""
    what = SamplingParams(schema={"const": {"no": ["choice", 1, None]}})
    wanted = [([7], SamplingParams(logprobs=1, max_tokens=30)), ([5, 6], what), ([5], what)]
    model = TinyModel("native", tiny_tokenizer)
    found, _ = await answers(model, wanted)
    assert [text for _, _, text, _ in found[1:]] == ['{"no": ["choice", 1, null]}'] * 2
    assert [error for *_, error in found] == [None] * 3


async def finished(
    model: Any, prompt: Any, *, continue_final: bool = False, **settings: Any
) -> tuple[Finished, int]:
    """A reply, and how many steps it took."""
    params = SamplingParams(**settings)
    async with AsyncEngine(EngineConfig(model=model)) as engine:
        final = await engine.generate(prompt, params, continue_final=continue_final).result()
        await engine.audit()
        return final, engine.snapshot().steps


async def test_what_leaves_no_choice_takes_no_steps(tiny_tokenizer: Path) -> None:
    value = {"text": "characters that are all known before the model has seen a single one of them. " * 2}
    model = ScriptedModel([[]], tiny_tokenizer, [END])
    final, steps = await finished(model, [5, 6], schema={"const": value})
    assert json.loads(final.text) == value
    assert (final.reason, steps) == ("stop", 1)
    assert final.usage.completion_tokens == len(final.token_ids) > 100
    final, steps = await finished(model, [5, 6], schema={"const": value}, max_tokens=30)
    assert (final.reason, len(final.token_ids), steps) == ("length", 30, 1)


async def test_what_replies_are_to_keep_to_is_made_ready_before_the_first(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    compiled = grammars._compiled

    def counted(*arguments: Any) -> Any:
        made.append(arguments[2])
        return compiled(*arguments)

    monkeypatch.setattr(grammars, "_compiled", counted)
    params = SamplingParams(regex="abcdefghij")
    async with AsyncEngine(EngineConfig(model=ScriptedModel([[]], tiny_tokenizer))) as engine:
        await engine.prepare(SamplingParams())
        assert not made
        await engine.prepare(params)
        assert (made, engine.snapshot().steps) == (["abcdefghij"], 0)
        assert (await engine.generate([5], params).result()).text == "abcdefghij"
        assert len(made) == 1
        with pytest.raises(EngineError) as caught:
            await engine.prepare(SamplingParams(regex="("))
        assert caught.value.code == "grammar"


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_a_limit_holds_inside_what_leaves_no_choice(tiny_tokenizer: Path, limit: int) -> None:
    final, _ = await finished(ScriptedModel([[]], tiny_tokenizer), [5], regex="abcdefghij", max_tokens=limit)
    assert (final.text, final.reason) == ("abcdefghij"[:limit], "length")
    final, _ = await finished(ScriptedModel([[]], tiny_tokenizer), [5], regex="abcdefghij", stop=("fg",))
    assert (final.text, final.reason, final.stop_match) == ("abcde", "stop", "fg")


@pytest.mark.parametrize(
    ("regex", "least", "match", "count"),
    [("[a-f]{3,9}", 0, END, 4), ("[a-f]{3,9}", 6, END, 7), ("[a-f]{3}", 6, None, 3)],
)
async def test_an_end_token_comes_only_where_the_grammar_may_end(
    tiny_tokenizer: Path, regex: str, least: int, match: int | None, count: int
) -> None:
    """The script wants to end at once; the least that is allowed comes before."""
    model = ScriptedModel([[]], tiny_tokenizer, [END])
    final, _ = await finished(model, [5], regex=regex, min_tokens=least)
    assert (final.reason, final.stop_match, len(final.token_ids)) == ("stop", match, count)


async def test_a_continued_reply_keeps_to_the_grammar_as_a_whole(tiny_tokenizer: Path) -> None:
    said = [Message("user", "x"), Message("assistant", '{"n')]
    what = {
        "type": "object",
        "properties": {"name": {"const": "Rex"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    model = ScriptedModel([[]], tiny_tokenizer)
    final, _ = await finished(model, said, continue_final=True, schema=what)
    assert final.text == 'ame": "Rex"}'
    said[1] = Message("assistant", '{"age')
    final, _ = await finished(model, said, continue_final=True, schema=what)
    assert final.error is not None
    assert final.error.code == "grammar"
    assert "to be continued does not keep to the schema: it fits up to '{\"'" in final.error.message


async def test_a_bias_against_all_that_may_come_is_an_error(tiny_tokenizer: Path) -> None:
    letters = load_tokenizer(tiny_tokenizer).encode("ab", special=False)
    bias = dict.fromkeys(letters, float("-inf"))
    final, _ = await finished(ScriptedModel([[]], tiny_tokenizer), [5], regex="[ab]+", logit_bias=bias)
    assert final.error is not None
    assert final.error.code == "bad_logits"
    assert "forbidden by the sampling settings" in final.error.message


@pytest.mark.parametrize("beside", [False, True])
async def test_a_mask_that_can_not_be_made_ends_the_replies_that_need_it_alone(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """It is made in the middle of a step that others are in."""
    whole, left = masks.write_masks, 5

    def write(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise MemoryError("no room for a mask")
        whole(*arguments)

    monkeypatch.setattr(masks, "write_masks", write)
    model: Any = TinyModel("native", tiny_tokenizer)
    wanted = [
        ([7], SamplingParams(max_tokens=30, seed=n, **what)) for n, what in enumerate([{}, WHAT[1], {}])
    ]
    want, _ = await answers(model, [wanted[0], wanted[2]])
    found, _ = await answers(Beside(model) if beside else model, wanted)
    assert [found[0], found[2]] == want
    _, tokens, text, error = found[1]
    assert error == (
        f"the grammar can't be followed further after {len(tokens)} tokens of the reply: "
        "MemoryError: no room for a mask"
    )
    assert len(text) == len(tokens) > 0


async def test_a_grammar_that_fails_behind_a_step_ends_its_reply_alone(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each token is told to the grammar when the step that drew it is done, which others were in."""
    whole, left = Constraint.forced, 5

    def forced(constraint: Constraint, most: int) -> list[int]:
        nonlocal left
        left -= 1
        if left == 0:
            raise MemoryError("no room for a token")
        return whole(constraint, most)

    model: Any = TinyModel("native", tiny_tokenizer)
    wanted = [
        ([7], SamplingParams(max_tokens=30, seed=n, **what)) for n, what in enumerate([{}, WHAT[1], {}])
    ]
    want, _ = await answers(model, wanted)
    monkeypatch.setattr(Constraint, "forced", forced)
    found, _ = await answers(model, wanted)
    assert [found[0], found[2]] == [want[0], want[2]]
    reason, tokens, _, error = found[1]
    assert (reason, error) == ("error", "this request does not fit into memory: no room for a token")
    assert 0 < len(tokens) < len(want[1][1]), "what came before is kept"
    assert tokens == want[1][1][: len(tokens)]


def test_settings_that_contradict_a_grammar_are_refused() -> None:
    with pytest.raises(ValueError, match="schema and regex exclude each other"):
        SamplingParams(schema={}, regex="a")
    with pytest.raises(ValueError, match="ignore_eos excludes regex"):
        SamplingParams(regex="a", ignore_eos=True)
    with pytest.raises(ValueError, match="regex must be a text"):
        SamplingParams(regex=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="schema must be a JSON Schema"):
        SamplingParams(schema=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="schema can't be written as JSON"):
        SamplingParams(schema={"const": {1, 2}})
    assert SamplingParams(schema=True).schema == "true"
