"""Steps on the device: filled up, sent, launched, replayed; with graphs that only pretend to be ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kernels.cache_format import CacheShape
from kernels.program import DeviceFault, Limits
from kernels.step import ARRAYS, Step
from kernels.triton import program as programs
from kernels.triton.batch import MOST_KINDS, Kind, Padding, Staging
from kernels.triton.cache import Cache
from kernels.triton.functions import Functions
from kernels.triton.graphs import Graphs, padded_rows
from kernels.triton.operations import TritonOperations
from kernels.triton.program import TritonProgram
from kernels.triton.table import KERNELS
from kernels.triton.work import work_of
from steps import changed, packed_mask
from steps import step as step_of

CPU = torch.device("cpu")
LIMITS = Limits(rows=40, samples=40, sequences=8, blocks_per_sequence=4)
VOCABULARY = 50


class Replayed:
    """A graph that computes anew, into the memory of the first time, as a graph does."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.compute = compute
        self.result = compute()
        self.replays = 0
        for tensor in self.result:
            tensor.zero_()  # nothing is computed while a graph is recorded

    def replay(self) -> None:
        self.replays += 1
        for mine, new in zip(self.result, self.compute(), strict=True):
            mine.copy_(new)


class Recorder:
    """What records graphs here; the graphs by the order of their recording."""

    def __init__(self) -> None:
        self.graphs: list[Replayed] = []

    def __call__(self, compute: Callable[[], Any]) -> tuple[Replayed, Any]:
        self.graphs.append(Replayed(compute))
        return self.graphs[-1], self.graphs[-1].result


TABLE = torch.randn(VOCABULARY, 8, generator=torch.Generator().manual_seed(1))


class Table:
    """A placed matrix, as far as these programs look at it."""

    shape = TABLE.shape


def forward(ops: Any, batch: Any) -> Any:
    """Something that depends on all rows' tokens, and on their sequences' keys."""
    x = TABLE.index_select(0, batch.tokens)
    x = torch.cat([x, x], 1)
    ops.kv_write(0, x, x, batch.slots)
    x = ops.add(x, ops.paged_attention(0, x, batch, scale=0.25))
    x = ops.gather(ops.rms_norm(x, torch.ones(16), 1e-5), batch.sample_rows)
    return ops.sample((x[:, None, :8] * TABLE).sum(2) * 3, batch.sampling)


def make(record: Recorder | None = None, functions: Functions | None = None) -> tuple[TritonProgram, Cache]:
    cache = Cache(CacheShape.alike(1, 12, 16, 1, 16, "float32"), CPU)
    for values in cache.values(0):
        values.fill_(torch.nan)
    use = Functions(KERNELS, {}) if functions is None else functions
    graphs: Graphs[Any] = Graphs(record, used=lambda: 1000 * len(getattr(record, "graphs", ())))
    return TritonProgram(
        use, lambda: cache, CPU, forward, LIMITS, graphs, lambda said: f"failed: {said}"
    ), cache


def replies(draw: np.random.Generator, n: int, length: int, **sampling: Any) -> Step:
    """A step of n replies, each with a row at position `length`."""
    parts = [([int(draw.integers(VOCABULARY))], length, list(range(2 * i, 2 * i + 2))) for i in range(n)]
    step = step_of(parts, block_size=16)
    settings = {"temperature": np.full(n, 0.9, np.float32), "seeds": np.arange(n, dtype=np.uint64)}
    settings |= {"draw_positions": np.full(n, length)} | sampling
    return changed(step, **settings)


def prompts(draw: np.random.Generator, n: int, length: int) -> Step:
    parts = [(draw.integers(0, VOCABULARY, length).tolist(), 0, [2 * i, 2 * i + 1]) for i in range(n)]
    return step_of(parts, block_size=16, samples="last")


def test_replayed_steps_have_the_tokens_and_logits_of_computed_ones():
    seed = 3
    print(f"{seed=}")
    recorder = Recorder()
    (graphed, _), (plain, _) = make(recorder), make()
    draw = np.random.default_rng(seed)
    steps = [prompts(draw, 5, 6)]
    steps += [replies(draw, n, length) for length, n in enumerate([5, 5, 3, 4, 5, 3], 6)]
    top = np.full(2, 0.8, np.float32)
    steps += [replies(draw, 2, length, top_p=top) for length in (12, 13)]
    for step in steps:
        a, b = (program.launch(step, logits=True).result() for program in (graphed, plain))
        assert a.tokens.tolist() == b.tokens.tolist()
        np.testing.assert_array_equal(a.logits, b.logits)
        assert len(a.tokens) == step.counts.samples
    assert len(recorder.graphs) == 3, "five rows, three or four, and two with top_p"
    assert [graph.replays for graph in recorder.graphs] == [2, 2, 1]
    assert graphed.graphs.nbytes > 0
    assert plain.launch(steps[-1]).result().logits is None


def test_a_mask_is_worked_out_while_all_before_the_sampling_is_under_way(monkeypatch):
    """With graphs, too: then one of the forward, and one of the sampling, which waits for the mask."""
    seed = 11
    print(f"{seed=}")
    recorder, draw = Recorder(), np.random.default_rng(seed)
    (graphed, _), (computed, _), (plain, _) = make(recorder), make(), make()
    events: list[str] = []
    for name in ("paged_attention", "sample"):
        whole = getattr(TritonOperations, name)

        def noted(self: Any, *args: Any, name: str = name, whole: Any = whole, **more: Any) -> Any:
            events.append(name)
            return whole(self, *args, **more)

        monkeypatch.setattr(TritonOperations, name, noted)
    begun = prompts(draw, 3, 4)
    for program in (graphed, computed, plain):
        program.launch(begun).result()
    for length in range(4, 9):
        n = 3 if length < 8 else 2
        allowed = draw.random((n, VOCABULARY)) < 0.2
        step = replies(draw, n, length, mask=packed_mask(allowed))
        want = plain.launch(step, logits=True).result()
        for program in (graphed, computed):
            late = changed(step)
            late.mask[:] = 0  # allows nothing
            del events[:]

            def write(late: Step = late, step: Step = step) -> None:
                assert events == ["paged_attention", "sample"] * (len(events) // 2) != []
                del events[:]
                late.mask[:] = step.mask

            found = program.launch(late, logits=True, write_mask=write).result()
            assert not events, "nothing but the sampling is left to do"
            assert found.tokens.tolist() == want.tokens.tolist()
            np.testing.assert_array_equal(found.logits, want.logits)
            assert allowed[np.arange(n), found.tokens].all()
    assert [graph.replays for graph in recorder.graphs] == [3, 3]
    unmasked = replies(draw, 3, 8)
    found, want = (program.launch(unmasked).result() for program in (graphed, plain))
    assert found.tokens.tolist() == want.tokens.tolist()


def test_steps_get_the_next_larger_size_if_most_rows_are_sampled():
    assert [padded_rows(n, n) for n in (1, 2, 3, 5, 200, 256)] == [1, 2, 4, 8, 256, 256]
    assert padded_rows(20, 10) == 24
    assert padded_rows(20, 9) is None, "a prompt"
    assert padded_rows(257, 257) is None
    assert padded_rows(0, 0) is None


def test_what_is_filled_up_is_of_no_sequence_and_writes_to_the_spare_block():
    draw = np.random.default_rng(4)
    step = replies(draw, 3, 20)
    batch = Staging(CPU, 10).write(step, Padding(8, 8, 12), 16, [])
    sent = batch.step
    assert sent.counts == (8, 8, 4, 2, 0, 0, 0)
    for place in ARRAYS:
        if place.shape[0] in ("rows", "samples"):
            np.testing.assert_array_equal(getattr(sent, place.name)[:3], getattr(step, place.name))
    assert sent.slots[3:].tolist() == [192] * 5
    assert sent.sequences[3:].tolist() == [3] * 5
    assert sent.block_tables[3].tolist() == [12, 12]
    assert sent.temperature[3:].tolist() == [0] * 5
    assert Step.read(batch.memory.numpy().view(np.uint8)[256:]).tokens.tolist() == sent.tokens.tolist()


def test_the_work_is_where_the_head_says_also_in_a_buffer_that_had_to_grow():
    step = replies(np.random.default_rng(5), 8, 20)
    kinds = [Kind(4, None, 1000), Kind(2, 5, 1000)]
    staging = Staging(CPU, 100)
    for _ in range(2):
        batch = staging.write(step, None, 16, kinds)
        for kind in kinds:
            memory, place = batch.work(kind)
            begin, count = memory[place : place + 2].tolist()
            items = memory[begin : begin + 8 * count].view(count, 8).numpy()
            np.testing.assert_array_equal(items, work_of(step, *kind).items)
        assert not batch.missing
        assert batch.array("tokens").tolist() == step.tokens.tolist()
    assert staging.generation > 1
    memory, place = batch.work(Kind(1, None, 10))
    assert list(batch.missing) == [Kind(1, None, 10)]
    assert memory[place + 1] == 8


def test_graphs_are_recorded_anew_when_what_they_read_has_moved():
    recorder = Recorder()
    program, _ = make(recorder)
    draw = np.random.default_rng(6)
    for length in range(3):
        program.launch(replies(draw, 2, length)).result()
    assert len(recorder.graphs) == 1
    wide = replies(draw, 2, 3, seen_ids=np.zeros(20_000), seen_counts=np.zeros(20_000))
    program.launch(wide).result()
    program.launch(replies(draw, 2, 4)).result()
    assert len(recorder.graphs) == 2


def test_a_graph_that_can_not_be_recorded_is_done_without():
    def fail(compute: Callable[[], Any]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nsecond line")

    program, _ = make(fail)  # type: ignore[arg-type]
    other, _ = make()
    draw = np.random.default_rng(7)
    for length in range(3):
        step = replies(draw, 2, length)
        assert program.launch(step).result().tokens.tolist() == other.launch(step).result().tokens.tolist()
    assert not program.graphs.on
    assert program.graphs.reason == "operation not permitted when stream is capturing"


def test_where_a_kernel_is_replaced_there_are_no_graphs():
    recorder = Recorder()
    program, _ = make(recorder, Functions(KERNELS, {"attention": "off"}))
    other, _ = make()
    draw = np.random.default_rng(8)
    for length in range(3):
        step = replies(draw, 2, length)
        found, want = (p.launch(step, logits=True).result().logits for p in (program, other))
        np.testing.assert_allclose(found, want, atol=1e-5)
    assert not recorder.graphs


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("slots", 12 * 16, "slot .* from 0 to 191"),
        ("block_tables", 12, "block .* from 0 to 11"),
        ("sequences", 2, "sequence .* from 0 to 1"),
        ("sample_rows", -1, "sample row"),
        ("positions", 32, "position .* from 0 to 31"),
        ("tokens", -1, "token"),
    ],
)
def test_a_step_that_points_outside_is_refused_before_anything_is_computed(name, value, said):
    program, _ = make()
    step = replies(np.random.default_rng(9), 2, 3)
    getattr(step, name).reshape(-1)[-1] = value
    with pytest.raises(ValueError, match=said):
        program.launch(step)


@pytest.mark.parametrize("kind", ["seen", "bias"])
@pytest.mark.parametrize("token", [-1, VOCABULARY])
def test_a_sampler_s_token_outside_of_the_vocabulary_is_refused(kind, token):
    program, _ = make()
    beside = {"seen": {"seen_counts": [1]}, "bias": {"bias_values": np.ones(1, np.float32)}}[kind]
    listed = {f"{kind}_offsets": [0, 0, 1], f"{kind}_ids": [token], **beside}
    with pytest.raises(ValueError, match=r"a (seen|biased) token of the step is not from 0"):
        program.launch(replies(np.random.default_rng(9), 2, 3, **listed))


def test_a_step_beyond_the_limits_is_refused():
    program, _ = make()
    with pytest.raises(ValueError, match="9 sequences, more than the 8"):
        program.launch(step_of([([1], 0, [i]) for i in range(9)], block_size=16))


def test_what_a_failing_device_says_becomes_a_sentence():
    class Event:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def synchronize(self) -> None:
            raise self.error

    def launched(error: Exception) -> programs.Launched:
        event: Any = Event(error)
        return programs.Launched(
            torch.zeros(3, dtype=torch.int32), None, 1, event, lambda said: f"so: {said}"
        )

    with pytest.raises(DeviceFault, match="so: CUDA error: an illegal memory access"):
        launched(RuntimeError("CUDA error: an illegal memory access")).result()


def test_more_kinds_of_attention_than_there_are_places_for_are_sent_each_time():
    recorder = Recorder()
    program, _ = make(recorder)

    def many(ops: Any, batch: Any) -> Any:
        x = TABLE.index_select(0, batch.tokens)
        x = torch.cat([x, x], 1)
        ops.kv_write(0, x, x, batch.slots)
        for window in range(1, MOST_KINDS + 3):
            x = ops.paged_attention(0, x, batch, scale=0.25, window=window)
        return ops.sample(ops.gather(x, batch.sample_rows), batch.sampling)

    program._forward = many
    step = replies(np.random.default_rng(10), 1, 0)
    tokens = [program.launch(step).result().tokens.tolist() for _ in range(3)]
    assert tokens[0] == tokens[1] == tokens[2]
    assert not recorder.graphs
    assert "kinds of attention" in program.graphs.reason
