"""Sizes that follow the memory and the cache, not what a file claims."""

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from engine import AsyncEngine, EngineConfig, Message, SamplingParams
from engine.memory_plan import MOST_BLOCKS, plan_memory, size_kv_cache
from engine.model import load_model
from engine.models.rope import RotationTables, rotation_tables
from engine.models.spec import LayerSpec, ModelSpec, RopeSpec
from engine.roofline import Traffic
from engine.selection import select_backend
from engine.types import EngineError

SPEC = ModelSpec("llama", (LayerSpec(),) * 2, 64, 4, 2, 16, 96, 100, 1 << 24, 1e-5)


def test_the_cache_takes_a_quarter_of_the_memory_that_is_free():
    config = EngineConfig(model="x")
    one = (
        size_kv_cache(config, SPEC.cached, 4096, 1 << 40).nbytes
        // size_kv_cache(config, SPEC.cached, 4096, 1 << 40).blocks
    )
    assert size_kv_cache(config, SPEC.cached, 4096, 400 * one).blocks == 100
    assert size_kv_cache(config, SPEC.cached, 4096, 1 << 40).blocks == 64 * 4096 // 32
    assert size_kv_cache(config, SPEC.cached, 1 << 24, 1 << 50).blocks == MOST_BLOCKS
    with pytest.raises(EngineError, match="needs at least"):
        size_kv_cache(config, SPEC.cached, 4096, 100)


def test_int8_keys_and_values_take_half_the_bytes_and_a_scale_a_head():
    spec = replace(SPEC, head_dim=64)
    half, int8 = (
        size_kv_cache(EngineConfig(model="x", kv_dtype=kv, kv_memory=1 << 20), spec.cached, 1 << 20, 1 << 40)
        for kv in ("float16", "int8")
    )
    assert half.bytes_per_token == 2 * 2 * 2 * 64 * 2
    assert int8.bytes_per_token == 2 * 2 * 2 * (64 + 4)
    assert int8.blocks == (1 << 20) // (32 * int8.bytes_per_token) > 1.85 * half.blocks


def test_C4_tables_are_as_long_as_the_cache_and_made_as_far_as_positions_come():
    rope = RopeSpec(base=10000.0)
    whole = rotation_tables(rope, 16, 5000)
    rng = random.Random(1)
    tables = RotationTables(rope, 16, 5000)
    for reached in (1, 200, 1025, 1024, 3000 + rng.randrange(100), 5000):
        tables.reach(reached)
        for part, all_of_it in zip((tables.cos, tables.sin), whole, strict=True):
            assert part[:reached].tobytes() == all_of_it[:reached].tobytes()


def test_C4_a_file_that_declares_a_huge_context_takes_no_memory_for_it(default_model, monkeypatch):
    declared = 1 << 24
    monkeypatch.setattr(
        "engine.loading.checkpoint.Checkpoint.context_length", lambda checkpoint, wanted: declared
    )
    before = resident()
    model = load_model(EngineConfig(model=default_model, kv_blocks=2, max_sequences=1))
    (tables,) = model.runner._rotations.tables.values()
    model.runner.close()
    assert len(tables.cos) == 64, "two blocks hold no later position"
    assert resident() - before < 400 << 20
    before = resident()
    long = RotationTables(RopeSpec(base=10000.0), 64, 1 << 22)  # 1 GB, had anybody written to it
    long.reach(5000)
    assert resident() - before < 100 << 20


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_C4_streamed_weights_are_those_of_the_file(default_model):
    """Rotation tables are read in parts, so they count neither as weights nor as traffic."""
    model = load_model(EngineConfig(model=default_model, kv_blocks=2))
    try:
        assert model.runner.traffic.weight_bytes == 96_576_768
    finally:
        model.runner.close()


def test_C4_a_window_bounds_the_keys_that_are_read():
    full = Traffic.of(SPEC, 1000, (32, 32))
    windowed = Traffic.of(replace(SPEC, layers=(LayerSpec(), LayerSpec(window=100))), 1000, (32, 32))
    assert full.token_bytes(500) == 1000 + 64 * 502
    assert windowed.token_bytes(500) == 1000 + 32 * 502 + 32 * (99 + 2)
    assert windowed.token_bytes(50) == full.token_bytes(50)
    plan = SimpleNamespace(runs=[SimpleNamespace(start=500, count=1), SimpleNamespace(start=0, count=7)])
    assert full.step_bytes(plan) == 1000 + 64 * (502 + 14)
    assert windowed.step_bytes(plan) == 1000 + 32 * (502 + 14) + 32 * (101 + 14)


def test_C3_the_cache_is_sized_from_the_backend_s_own_memory(default_model, monkeypatch):
    weights = plan_memory(EngineConfig(model=default_model)).weight_bytes
    free = weights + (40 << 20)  # what the weights leave is the cache's
    monkeypatch.setattr("kernels.native.backend.free_memory", lambda: free)
    monkeypatch.setattr("kernels.backends.free_memory", lambda: free)
    model = load_model(EngineConfig(model=default_model))
    model.runner.close()
    plan = plan_memory(EngineConfig(model=default_model))
    assert model.blocks == plan.blocks == (10 << 20) // (32 * plan.kv_bytes_per_token)
    assert plan.free_bytes == free


def test_more_threads_than_processors_are_said_and_not_started(monkeypatch):
    monkeypatch.setattr("engine.selection.most_cpus", lambda: 2)
    chosen = select_backend(EngineConfig(model="x", backend="native", threads=128))
    assert chosen.settings.threads == 2
    assert chosen.notes == ("threads 128 is more than this process can use: 2 on 2 processors compute",)
    for threads in (None, 1, 2):
        chosen = select_backend(EngineConfig(model="x", backend="native", threads=threads))
        assert (chosen.settings.threads, chosen.notes) == (threads, ())


async def test_the_engine_tells_what_is_not_as_asked(default_model, monkeypatch):
    monkeypatch.setattr("engine.selection.most_cpus", lambda: 1)
    async with AsyncEngine(EngineConfig(model=default_model, threads=128, kv_blocks=8)) as engine:
        assert engine.info.notes == (
            "threads 128 is more than this process can use: 1 on 1 processor compute",
        )
        params = SamplingParams(temperature=0, max_tokens=2)
        assert np.all((await engine.generate([Message("user", "Hi")], params).result()).token_ids)


def test_a_model_loads_where_no_further_thread_is_to_be_had(default_model, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    model = load_model(EngineConfig(model=default_model, kv_blocks=2))
    model.runner.close()
    assert model.tokenizer.vocab_size > 0


def test_where_no_block_fits_it_is_said_what_left_no_room():
    """Not that a setting is too small, if there is none."""
    with pytest.raises(EngineError, match=r"but 1,000 bytes of memory are free; close other programs"):
        size_kv_cache(EngineConfig(model="m"), SPEC.cached, 64, 1000)
    with pytest.raises(EngineError, match=r"but kv_memory is 7 bytes$"):
        size_kv_cache(EngineConfig(model="m", kv_memory=7), SPEC.cached, 64, 1 << 40)
