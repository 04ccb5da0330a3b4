"""A device with too little memory: the cache gets smaller, steps get smaller, and in the end a request gets a
sentence. No reply changes by it, and the engine goes on.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil

import numpy as np
import pytest
import safetensors.numpy

from engine import AsyncEngine, EngineConfig, EngineError, SamplingParams
from engine.model import load_model
from kernels.reference.backend import ReferenceBackend, ReferenceProgram

CONTEXT, ROWS, BLOCK = 256, 64, 16
CONFIG = {
    "model_type": "llama",
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer):
    rng = np.random.default_rng(7)
    shapes = {"model.embed_tokens": (258, 32), "model.norm": (32,)}
    for i in range(2):
        names = {"input_layernorm": (32,), "post_attention_layernorm": (32,)}
        names |= {f"self_attn.{role}_proj": (32, 32) for role in "qkvo"}
        names |= {"mlp.gate_proj": (48, 32), "mlp.up_proj": (48, 32), "mlp.down_proj": (32, 48)}
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in names.items()}
    path = tmp_path_factory.mktemp("short") / "m"
    shutil.copytree(tiny_tokenizer, path)
    tensors = {f"{name}.weight": rng.standard_normal(shape, np.float32) / 4 for name, shape in shapes.items()}
    safetensors.numpy.save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


class Card:
    """A device with memory of its own, where the reference backend computes: bytes for the cache and steps.

    row: bytes that a row of a step takes. rows: of the steps so far, refused ones negative. copies: how many
    copies of blocks failed; unsure: whether the next ones do, some of them after all is copied.
    """

    def __init__(self, monkeypatch):
        self.room, self.cache, self.row, self.rows = 1 << 60, 0, 1000, []
        self.copies, self.unsure = 0, iter(())
        copy = ReferenceBackend.copy_blocks
        allocate, launch, init = (
            ReferenceBackend.allocate_cache,
            ReferenceProgram.launch,
            ReferenceBackend.__init__,
        )

        def placed(backend, settings):
            init(backend, settings)
            backend.shares_arrays = False

        def allocated(backend, shape):
            if shape.nbytes > self.room:
                raise MemoryError(f"a cache of {shape.nbytes} bytes")
            self.cache = shape.nbytes
            allocate(backend, shape)

        def launched(program, step, **how):
            rows = step.counts.rows
            fits = self.cache + rows * self.row <= self.room
            self.rows.append(rows if fits else -rows)
            if not fits:
                raise MemoryError(f"device card has no room for a step of {rows} tokens")
            return launch(program, step, **how)

        def copied(backend, sources, targets):
            kind = next(self.unsure, "whole")
            if kind != "none":
                copy(backend, sources, targets)
            if kind != "whole":
                self.copies += 1
                raise MemoryError("device card has no room for a copy")

        monkeypatch.setattr(ReferenceBackend, "copy_blocks", copied)
        monkeypatch.setattr(ReferenceBackend, "__init__", placed)
        monkeypatch.setattr(ReferenceBackend, "allocate_cache", allocated)
        monkeypatch.setattr(ReferenceProgram, "launch", launched)

    def leave(self, rows):
        """From now on steps of so many rows fit."""
        self.room = self.cache + rows * self.row


@pytest.fixture
def card(monkeypatch):
    return Card(monkeypatch)


def config(folder, **options):
    cpu = {"backend": "reference", "device": "cpu", "threads": 1, "block_size": BLOCK}
    return EngineConfig(model=folder, max_batch_tokens=ROWS, **{**cpu, **options})


def test_the_cache_gets_smaller_until_the_largest_step_fits_beside_it(folder, card):
    whole = load_model(config(folder))
    assert card.rows == [ROWS], "the largest step was tried"
    assert whole.notes == ()
    card.room, card.row = card.cache, card.cache // 3 // ROWS
    model = load_model(config(folder))
    assert whole.blocks / 2 < model.blocks < whole.blocks * 3 / 4
    assert card.cache + ROWS * card.row <= card.room
    [note] = model.notes
    assert note.startswith(f"the KV cache holds {model.blocks * BLOCK} tokens instead of ")
    card.room = card.cache // 10
    for options in ({}, {"kv_blocks": 500}):
        with pytest.raises(EngineError, match=r"^m does not fit: ") as caught:
            load_model(config(folder, **options))
        assert caught.value.code == "out_of_memory"


def test_a_cache_gets_smaller_where_that_of_a_draft_model_has_no_room_beside_it(folder, card, monkeypatch):
    caches, programs = {}, []
    allocate, capture = ReferenceBackend.allocate_cache, ReferenceBackend.capture

    def allocated(backend, shape):
        caches.pop(backend, None)
        if sum(caches.values()) + shape.nbytes > room:
            raise MemoryError(f"a cache of {shape.nbytes} bytes")
        caches[backend] = shape.nbytes
        allocate(backend, shape)

    def captured(backend, *arguments):
        programs.append(backend)
        return capture(backend, *arguments)

    monkeypatch.setattr(ReferenceBackend, "allocate_cache", allocated)
    monkeypatch.setattr(ReferenceBackend, "capture", captured)
    room = 1 << 60
    load_model(config(folder, draft_model=folder)).close()
    room = sum(caches.values()) - 1
    caches.clear()
    programs.clear()
    model = load_model(config(folder, draft_model=folder))
    assert model.notes[0].startswith(f"the KV cache holds {model.blocks * BLOCK} tokens instead of ")
    assert len(programs) == len(set(programs)) == 2, "none is kept for a cache that did not fit"
    own, drafts = caches.values()
    assert own == drafts <= room // 2


def test_a_draft_model_that_nobody_asked_for_and_that_has_no_room_is_left_out(folder, monkeypatch):
    placed = ReferenceBackend.place_matrix
    backends = []

    def place(backend, *arguments):
        backends.append(backend)
        if backends[0] is backend:  # the draft model comes first
            raise MemoryError("no room for a matrix")
        return placed(backend, *arguments)

    monkeypatch.setattr(ReferenceBackend, "place_matrix", place)
    model = load_model(config(folder, paired_draft=folder))
    assert model.drafter.name == "ngram"
    assert model.notes == ("the draft model of m is not used: m does not fit: no room for a matrix",)
    backends.clear()
    with pytest.raises(EngineError, match="the draft model can't be used: m does not fit: no room") as caught:
        load_model(config(folder, draft_model=folder))
    assert caught.value.code == "out_of_memory"


async def replies(engine, prompts, disturb=lambda: None):
    params = SamplingParams(temperature=1.0, seed=5, max_tokens=12, ignore_eos=True)

    async def one(prompt):
        async with engine.generate(prompt, params) as stream:
            events = [event async for event in stream if disturb() is None]
        return events[-1]

    return await asyncio.gather(*map(one, prompts))


@pytest.mark.parametrize("seed", range(2))
async def test_steps_get_smaller_and_no_reply_changes(folder, card, seed, request):
    rng = random.Random(seed)
    beginning = [rng.randrange(256) for _ in range(3 * BLOCK)]
    prompts = [
        [*beginning[: rng.choice((0, BLOCK, 3 * BLOCK))], *rng.choices(range(256), k=rng.randint(1, 60))]
        for _ in range(7)
    ]
    prompts += [beginning[: 2 * BLOCK]] * 3  # all in the cache: its last block is copied
    async with AsyncEngine(config(folder, kv_blocks=60, draft_model="ngram")) as engine:
        expected = [final.token_ids for final in await replies(engine, prompts)]
    async with AsyncEngine(config(folder, kv_blocks=60, draft_model="ngram")) as engine:
        card.rows.clear()
        card.unsure = iter(["none", "late", *rng.choices(("whole", "none", "late"), k=1000)])
        found = await replies(engine, prompts, lambda: card.leave(rng.choice((1, 2, 5, 20, ROWS))))
        assert [final.reason for final in found] == ["length"] * 10, seed
        assert [final.token_ids for final in found] == expected, seed
        refused = [-rows for rows in card.rows if rows < 0]
        assert len(refused) > 3, (seed, card.rows)
        assert card.copies > 0, seed
        card.unsure = iter(())
        await engine.audit()
        card.leave(ROWS)
        card.rows.clear()
        for _ in range(3):
            await replies(engine, [[rng.randrange(256) for _ in range(200)]])
        assert max(card.rows) == ROWS, "steps grow again once there is room"


async def test_a_request_that_gets_no_step_at_all_ends_with_a_sentence_and_the_next_one_works(folder, card):
    async with AsyncEngine(config(folder)) as engine:
        expected = (await replies(engine, [[1, 2, 3]]))[0].token_ids
        card.leave(0)
        for final in await replies(engine, [[*range(40)], [1, 2]]):
            assert final.reason == "error"
            assert final.error.code == "out_of_memory"
            assert "no room for a step of 1 tokens; close other programs" in final.error.message
        card.leave(ROWS)
        assert (await replies(engine, [[1, 2, 3]]))[0].token_ids == expected
        assert engine.snapshot().state == "ready"
