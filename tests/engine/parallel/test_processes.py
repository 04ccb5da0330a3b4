"""Ranks as processes: the bits of ranks on threads, and an end for everyone, whoever is killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import AsyncEngine, EngineConfig, EngineError, SamplingParams, plan_memory
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.parallel import team
from engine.parallel.channel import ERROR, JSON, Channel, json_frame
from engine.parallel.model import load_parallel
from engine.parallel.program import ParallelProgram
from engine.parallel.shares import Split
from engine.parallel.team import Team
from kernels.step import Step
from standing import standing
from steps import changed, packed_mask, step
from thread_ranks import ThreadRanks
from tiny_models import make, write_tokenizer
from waiting import until, wait_for

pytestmark = pytest.mark.slow

BLOCKS, BLOCK, CONTEXT = 24, 16, 192
SECONDS = 60.0
"""What a failure may take until everyone knows."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Experts with biases, sinks and windows."""
    path = tmp_path_factory.mktemp("gptoss")
    make("gptoss", path)
    write_tokenizer(path)
    return path


def config_of(folder: Path, split: Split, **fields: Any) -> EngineConfig:
    return EngineConfig(
        model=folder,
        device="cpu",
        kv_dtype="float32",
        kv_blocks=BLOCKS,
        block_size=BLOCK,
        context_length=CONTEXT,
        tensor_parallel=split.tensor,
        pipeline_parallel=split.pipeline,
        **fields,
    )


def random_steps(checkpoint: Checkpoint, rng: random.Random) -> Iterator[Step]:
    """Prompts in chunks, decode rows with drafts behind them, and masks, over two sequences."""
    vocabulary, ends = checkpoint.spec.vocabulary, [0, 0]
    for number in range(8):  # each leaves a row for those after it
        parts = []
        for sequence in rng.choice([[0], [1], [0, 1], [1, 0]]):
            count = min(rng.choice([1, 1, 4, 20, 75]), CONTEXT - ends[sequence] - 8 + number)
            tokens = [rng.randrange(vocabulary) for _ in range(count)]
            parts.append((tokens, ends[sequence], list(range(12 * sequence, 12 * sequence + 12))))
            ends[sequence] += count
        work = step(parts, BLOCK)
        if rng.random() < 0.5:
            n = work.counts.samples
            allowed = np.random.default_rng(rng.randrange(99)).random((n, vocabulary)) < 0.6
            temperature = np.full(n, 0.8, np.float32)
            work = changed(work, mask=packed_mask(allowed), temperature=temperature, seeds=np.arange(n))
        yield work


@pytest.mark.parametrize("split", [Split(2), Split(4), Split(1, 2), Split(2, 2)], ids=str)
def test_processes_compute_the_bits_that_threads_do(split: Split, folder: Path) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    checkpoint = open_checkpoint(folder)
    loaded = load_parallel(config_of(folder, split), checkpoint, CONTEXT)
    model = loaded.runner._program  # type: ignore[attr-defined]
    assert isinstance(model, ParallelProgram)
    threads = ThreadRanks(folder, split, BLOCKS, BLOCK, [512, 512, 2, 12], context=CONTEXT)
    try:
        assert loaded.ranks
        plan = plan_memory(config_of(folder, split))
        assert plan.ranks == loaded.ranks
        assert 0.9 < plan.weight_bytes / model.weight_bytes <= 1, "norms are small, and in each rank"
        assert plan.kv_bytes_per_token == loaded.runner.traffic.kv_bytes_per_token + sum(
            nbytes for _, nbytes in loaded.runner.traffic.windows
        )
        assert model.weight_bytes == sum(rank["weight_bytes"] for rank in threads.placed)
        for number, work in enumerate(random_steps(checkpoint, random.Random(seed))):
            if number == 5:  # what the first sequence has computed so far is the second's as well
                pairs = np.arange(12, dtype=np.int32), np.arange(12, 24, dtype=np.int32)
                model.copy_blocks(*pairs)
                for rank in threads.ranks:
                    rank.copy(bytearray(np.stack(pairs).tobytes()))
            late = changed(work)
            late.mask[:] = 0  # which allows nothing, before it is written
            write = partial(np.copyto, late.mask, work.mask) if work.counts.mask_words else None
            output = model.launch(late, logits=True, write_mask=write).result()
            tokens, logits = threads.step(work)
            assert np.array_equal(output.tokens, tokens), (seed, number)
            assert output.logits is not None
            assert np.array_equal(output.logits, logits), (seed, number)
            assert output.expert_bytes > 0
        with pytest.raises(ValueError, match="more than the"):
            model.launch(step([([1] * 600, 0, list(range(40)))], BLOCK))
        work = step([([1] * 6, 0, [0])], BLOCK)
        assert model.launch(work).result().logits is None
        model.copy_blocks(np.array([10**6], np.int32), np.array([0], np.int32))
        for _ in range(2):  # the ranks are gone, and stay so
            with pytest.raises(EngineError, match=r"a process of the model failed: \w*Error: ") as caught:
                model.launch(work).result()
            assert caught.value.code == "engine_failed"
        wait_for(lambda: not alive(model._team._pids))
    finally:
        threads.close()
        loaded.close()


def team_program(engine: AsyncEngine) -> ParallelProgram:
    model = engine._core._model
    assert model is not None
    program = model.runner._program  # type: ignore[attr-defined]
    assert isinstance(program, ParallelProgram)
    return program


def team_of(engine: AsyncEngine) -> Team:
    return team_program(engine)._team


def alive(pids: list[int]) -> list[int]:
    """Those that are there, and no mere entries for a parent to read."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        found += [pid] if state not in "ZX" else []
    return found


PROMPTS = [[5, 6, 7, 8] * 6, list(range(40, 90)), [11, 12] * 20]
PARAMS = SamplingParams(temperature=0.7, seed=3, max_tokens=12, ignore_eos=True)
ENDLESS = SamplingParams(temperature=0, ignore_eos=True)
STEPS = 12
"""By then a reply has begun, and none has filled its context."""


async def replies(engine: AsyncEngine, together: bool) -> list[tuple[int, ...]]:
    found = []
    streams = []
    for prompt in PROMPTS:
        streams.append(engine.generate(prompt, PARAMS))
        if not together:
            found.append(await streams.pop().result())
    found += [await stream.result() for stream in streams]
    assert all(final.error is None for final in found), [final.error for final in found]
    return [tuple(final.token_ids) for final in found]


async def killed(engine: AsyncEngine, rank: int, number: signal.Signals) -> None:
    """Three replies are under way: each ends with engine_failed, and no process stays."""
    team = team_of(engine)
    pids, program = list(team._pids), team_program(engine)
    assert len(alive(pids)) == len(pids)
    launch, steps = program.launch, itertools.count(1)

    def killing(work: Step, **how: Any) -> Any:
        if next(steps) == STEPS:
            os.kill(pids[rank], number)
        return launch(work, **how)

    program.launch = killing  # type: ignore[method-assign]
    async with standing(engine, len(PROMPTS)):
        streams = [engine.generate(prompt[:20], ENDLESS) for prompt in PROMPTS]
    async with asyncio.timeout(SECONDS):
        finals = [await stream.result() for stream in streams]
    assert [final.error.code if final.error else final.reason for final in finals] == ["engine_failed"] * 3
    assert all(final.token_ids for final in finals), "they were under way"
    wait_for(lambda: not alive(pids))
    late = await engine.generate([1, 2]).result()
    assert late.error is not None
    assert late.error.code == "engine_failed"
    assert "nothing can be computed; restart termchat" in late.error.message, "with no word of the others"


async def test_N043_replies_are_the_same_in_any_company_and_end_when_a_rank_is_killed(folder: Path) -> None:
    async with AsyncEngine(config_of(folder, Split(2), draft_model="none")) as engine:
        assert engine.snapshot().exact
        assert engine.snapshot().ranks == "tensor 2"
        wanted = await replies(engine, together=False)
        assert await replies(engine, together=True) == wanted
        pids = team_of(engine)._pids
        assert {os.getsid(pid) for pid in pids} != {os.getsid(0)}, "a terminal's signals don't reach them"
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pids[1], ignored)
        assert (await engine.bandwidth_peak() or 0) > 0
        await killed(engine, 1, signal.SIGKILL)
    # The next start works at once, and drafts (of a draft model beside the ranks) change no token.
    async with AsyncEngine(config_of(folder, Split(2), draft_model=folder, draft_tokens=4)) as engine:
        assert await replies(engine, together=True) == wanted
        assert engine.snapshot().accepted_tokens > 0
        await killed(engine, 0, signal.SIGKILL)


async def test_N043_a_rank_that_hangs_ends_the_engine(folder: Path) -> None:
    async with AsyncEngine(config_of(folder, Split(1, 2))) as engine:
        await killed(engine, 1, signal.SIGSTOP)


PROGRAM = """
import asyncio, json, sys
from engine import AsyncEngine, EngineConfig, SamplingParams
async def main():
    config = EngineConfig(model=sys.argv[1], device="cpu", tensor_parallel=2, kv_blocks=24, block_size=16)
    async with AsyncEngine(config) as engine:
        team = engine._core._model.runner._program._team
        print(json.dumps(team._pids), flush=True)
        params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
        print(json.dumps((await engine.generate([5, 6, 7], params).result()).token_ids), flush=True)
        sys.stdin.readline()
        while True:
            await engine.generate([5, 6, 7], params).result()
asyncio.run(main())
"""


def test_N043_two_programs_do_not_meet_and_ranks_end_with_their_parent(folder: Path, tmp_path: Path) -> None:
    # What a user's folder and environment hold is no matter to the ranks.
    (tmp_path / "torch.py").write_text("raise RuntimeError('not this one')")
    environment = {
        **os.environ,
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1",
        "RANK": "7",
        "WORLD_SIZE": "9",
        "GLOO_SOCKET_IFNAME": "nothing0",
        "GLOO_DEVICE_TRANSPORT": "TLS",
        "http_proxy": "http://127.0.0.1:1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-P", "-c", PROGRAM, str(folder)]
    programs = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=tmp_path, text=True
        )
        for _ in range(2)
    ]
    try:
        pids = [json.loads(program.stdout.readline()) for program in programs if program.stdout]
        tokens = [json.loads(program.stdout.readline()) for program in programs if program.stdout]
        assert len({*pids[0], *pids[1]}) == 4
        assert tokens[0] == tokens[1]
        first, second = programs
        assert first.stdin is not None
        first.stdin.write("\n")
        first.stdin.flush()  # in the middle of a step, most likely
        os.kill(pids[1][1], signal.SIGSTOP)  # one that can't notice anything
        first.kill()
        second.kill()
        wait_for(lambda: not alive([*pids[0], *pids[1]]), SECONDS)
    finally:
        for program in programs:
            program.kill()
            program.communicate()


async def test_a_model_that_cannot_be_cut_or_started_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split, said in (
        (Split(3), "4 query heads and 2 key heads of a layer can't be shared by 3 processes"),
        (Split(1, 5), "the 4 layers of the model can be at most 4 stages; pipeline_parallel 5 is more"),
    ):
        with pytest.raises(EngineError, match=said) as caught:
            await AsyncEngine(config_of(folder, split)).__aenter__()
        assert caught.value.code == "model_invalid"
    with pytest.raises(EngineError, match="the KV cache does not fit") as caught:
        await AsyncEngine(replace(config_of(folder, Split(2)), kv_blocks=1 << 26)).__aenter__()
    assert caught.value.code == "out_of_memory"
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    (folder / "torch.py").write_text("raise RuntimeError('a torch of somebody else')")
    try:
        with pytest.raises(EngineError, match=r"RuntimeError: a torch of somebody else") as caught:
            await AsyncEngine(config_of(folder, Split(2))).__aenter__()
        assert caught.value.code == "engine_failed"
    finally:
        (folder / "torch.py").unlink()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(EngineError, match="can't be started"):
        await AsyncEngine(config_of(folder, Split(2))).__aenter__()


def test_ranks_end_where_nobody_can_listen_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start, begin = team._start, threading.Thread.start

    def remember(connections: list[socket.socket]) -> subprocess.Popen[bytes]:
        started.append(start(connections))
        return started[0]

    def refused(thread: threading.Thread) -> None:
        if thread.name == "ranks":
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(team, "_start", remember)
    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(EngineError, match="can't be started: can't start new thread") as caught:
        Team(Split(2))
    assert caught.value.code == "engine_failed"
    assert started[0].poll() is not None


async def test_closing_while_it_loads_ends_the_ranks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teams: list[Team] = []
    made, go = Team.__init__, threading.Event()

    def remember(self: Team, *arguments: Any) -> None:
        teams.append(self)
        made(self, *arguments)
        assert go.wait(SECONDS)

    monkeypatch.setattr(Team, "__init__", remember)
    engine = AsyncEngine(config_of(folder, Split(2)))
    opening = asyncio.create_task(engine.__aenter__())
    await until(lambda: teams and hasattr(teams[0], "_pids"))
    opening.cancel()
    asyncio.get_running_loop().call_soon(go.set)  # behind the cancellation
    with pytest.raises(asyncio.CancelledError):
        await opening
    await until(lambda: not alive(list(teams[0]._pids)))


def test_why_the_ranks_ended_is_told_whichever_of_them_is_seen_to_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs: list[socket.socket] = []

    def start(connections: list[socket.socket]) -> subprocess.Popen[bytes]:
        theirs.extend(each.dup() for each in connections)
        for each in theirs:
            Channel(each).send(json_frame(JSON, {"pid": os.getpid()}))
        return subprocess.Popen(["sleep", "300"], stdout=subprocess.PIPE)

    monkeypatch.setattr(team, "_start", start)
    ranks = Team(Split(2))
    Channel(theirs[1]).send(json_frame(ERROR, {"code": "out_of_memory", "message": "no room"}))
    for each in theirs:
        each.close()
    with pytest.raises(EngineError, match=r"^no room$"):
        ranks.ask("begin")
    ranks.close()
