"""Paged attention against a dense float64 formulation, and its bits in any company."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from kernels.cache_format import CachedLayer, CacheShape
from kernels.reference import work as dividing
from kernels.reference.attention import attend
from kernels.reference.cache import PagedCache
from kernels.reference.work import work_of
from kernels.step import Step

pytestmark = pytest.mark.usefixtures("torch_threads")

CPU = torch.device("cpu")


def normal(draw: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(draw.standard_normal(shape, np.float32))


def stored(heads: torch.Tensor, format: str) -> torch.Tensor:
    """Keys or values of heads [..., head_dim] as this format of a cache holds them, in float64."""
    if format != "int8":
        return heads.to(getattr(torch, format)).double()
    scales = heads.abs().amax(-1, keepdim=True).double() / 127
    return (heads.double() / scales).round() * scales


@dataclass
class Case:
    """Sequences with keys and values in scattered blocks of a cache whose other blocks hold rubbish."""

    cache: PagedCache
    heads: int
    tables: np.ndarray
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    queries: list[torch.Tensor]

    def run(
        self,
        runs: list[tuple[int, int, int]],
        window: int | None = None,
        cap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """One step of these (sequence, first position, rows), each sequence once, in this order."""
        positions = [np.arange(first, first + rows, dtype=np.int32) for _, first, rows in runs]
        where = Step.of(
            positions=np.concatenate(positions),
            sequences=np.repeat(np.arange(len(runs)), [rows for *_, rows in runs]).astype(np.int32),
            block_tables=self.tables[[sequence for sequence, *_ in runs]],
        )
        q = torch.cat([self.queries[s][first : first + rows] for s, first, rows in runs])
        with torch.inference_mode():
            work = work_of(where, self.cache, self.layer, self.heads, window, CPU)
            return attend(self.cache, 0, q, work, self.scale, cap, sinks)

    @property
    def layer(self) -> CachedLayer:
        return self.cache.shape.layers[0]

    @property
    def scale(self) -> float:
        return self.layer.head_dim**-0.5

    def dense(
        self,
        sequence: int,
        position: int,
        window: int | None = None,
        cap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """What the row at this position must come to, in float64."""
        shape = self.cache.shape
        seen = slice(0 if window is None else max(0, position - window + 1), position + 1)
        k, v = (
            stored(kv[sequence][seen].view(-1, *self.layer), shape.format) for kv in (self.keys, self.values)
        )
        q = self.queries[sequence][position].double().view(self.heads, self.layer.head_dim)
        mixed = []
        for head in range(self.heads):
            kv_head = head // (self.heads // self.layer.kv_heads)
            scores = k[:, kv_head] @ q[head] * self.scale
            scores = scores if cap is None else torch.tanh(scores / cap) * cap
            if sinks is not None:
                scores = torch.cat([scores, sinks[head, None].double()])
            weights = torch.softmax(scores, 0)[: len(k)]
            mixed.append(weights @ v[:, kv_head])
        return torch.cat(mixed)


def make_case(
    lengths: list[int],
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    block_size: int = 16,
    dtype: str = "float32",
    seed: int = 0,
) -> Case:
    draw = np.random.default_rng(seed)
    need = [-(-length // block_size) for length in lengths]
    blocks = sum(need) + 3
    cache = PagedCache(CacheShape.alike(1, blocks, block_size, kv_heads, head_dim, dtype), CPU)
    everywhere = cache.lines(torch.arange(blocks * block_size), kv_heads)
    rubbish = [normal(draw, blocks * block_size, kv_heads * head_dim) * 1000 for _ in range(2)]
    cache.write(0, *rubbish, everywhere)
    ids = draw.permutation(blocks).astype(np.int32)
    tables = np.zeros((len(lengths), max(need)), np.int32)
    case = Case(cache, heads, tables, [], [], [])
    for sequence, length in enumerate(lengths):
        tables[sequence, : need[sequence]] = ids[sum(need[:sequence]) :][: need[sequence]]
        k, v = (normal(draw, length, kv_heads * head_dim) for _ in range(2))
        position = np.arange(length)
        slots = tables[sequence, position // block_size] * block_size + position % block_size
        cache.write(0, k, v, cache.lines(torch.from_numpy(slots.astype(np.int32)), kv_heads))
        case.keys.append(k)
        case.values.append(v)
        case.queries.append(normal(draw, length, heads * head_dim))
    return case


def assert_same_bits(found: torch.Tensor, want: torch.Tensor, about: str = "") -> None:
    assert torch.equal(found.view(torch.int32), want.view(torch.int32)), about


@pytest.mark.parametrize(
    ("window", "cap"), [(None, None), (1, None), (5, 2.0), (130, None), (130, 0.5), (2**31 - 1, None)]
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (5, 1), (9, 3)])
def test_attention_is_that_of_the_dense_formulation(heads, kv_heads, dtype, window, cap):
    lengths = [1, 7, 16, 140, 260]
    case = make_case(lengths, heads=heads, kv_heads=kv_heads, dtype=dtype, seed=heads)
    decode = case.run([(s, n - 1, 1) for s, n in enumerate(lengths)], window, cap)
    prefill = case.run([(s, 0, n) for s, n in enumerate(lengths)], window, cap)
    row = 0
    for sequence, length in enumerate(lengths):
        for position in {0, length // 2, length - 1}:
            want = case.dense(sequence, position, window, cap)
            torch.testing.assert_close(prefill[row + position].double(), want, rtol=1e-5, atol=2e-6)
        row += length
        assert_same_bits(decode[sequence], prefill[row - 1])


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (5, 1), (9, 3)])
def test_sinks_have_a_share_and_no_value(heads, kv_heads, window):
    lengths = [1, 40, 260]
    case = make_case(lengths, heads=heads, kv_heads=kv_heads, seed=heads)
    sinks = torch.linspace(-5, 12, heads)  # from next to nothing to nearly everything
    decode = case.run([(s, n - 1, 1) for s, n in enumerate(lengths)], window, sinks=sinks)
    prefill = case.run([(s, 0, n) for s, n in enumerate(lengths)], window, sinks=sinks)
    ends = np.cumsum(lengths) - 1
    for sequence, length in enumerate(lengths):
        want = case.dense(sequence, length - 1, window, sinks=sinks)
        torch.testing.assert_close(decode[sequence].double(), want, rtol=1e-5, atol=2e-6)
        assert_same_bits(decode[sequence], prefill[ends[sequence]])
    without = case.run([(s, 0, n) for s, n in enumerate(lengths)], window)
    none = case.run([(s, 0, n) for s, n in enumerate(lengths)], window, sinks=torch.full((heads,), -1e30))
    assert_same_bits(none, without)


@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize("blocks", [1, 2, 4, 8])
def test_lengths_around_the_edge_of_a_block(blocks, block_size):
    edge = blocks * block_size
    lengths = [edge - 1, edge, edge + 1]
    case = make_case(lengths, block_size=block_size, seed=edge)
    found = case.run([(s, n - 1, 1) for s, n in enumerate(lengths)])
    for sequence, length in enumerate(lengths):
        want = case.dense(sequence, length - 1)
        torch.testing.assert_close(found[sequence].double(), want, rtol=1e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("seed", range(3))
def test_bits_do_not_depend_on_company_chunks_order_or_threads(seed, window, torch_threads):
    print(f"{seed=}")
    draw = np.random.default_rng(100 + seed)
    lengths = [int(n) for n in draw.integers(1, 300, 5)]
    heads, kv_heads = [(6, 2), (4, 4), (7, 1)][seed]
    case = make_case(lengths, heads=heads, kv_heads=kv_heads, dtype=["float16", "int8"][seed % 2], seed=seed)
    whole = [case.run([(s, 0, n)], window) for s, n in enumerate(lengths)]
    for s, n in enumerate(lengths):
        for position in {0, n - 1, *draw.integers(0, n, 8).tolist()}:
            assert_same_bits(case.run([(s, position, 1)], window)[0], whole[s][position], f"{s=} {position=}")
    for threads in (1, 2):
        torch_threads(threads)
        for _ in range(12):
            runs = []
            for s in draw.permutation(len(lengths))[: draw.integers(1, 6)]:
                first = int(draw.integers(0, lengths[s]))
                rows = 1 if draw.random() < 0.4 else int(draw.integers(1, lengths[s] - first + 1))
                runs.append((int(s), first, rows))
            want = torch.cat([whole[s][first : first + rows] for s, first, rows in runs])
            assert_same_bits(case.run(runs, window), want, f"{runs=}, {threads} threads")


def test_bits_do_not_depend_on_how_the_work_is_cut(monkeypatch):
    lengths = [1500, 1490, 33, 5]
    case = make_case(lengths, seed=7)
    runs = [(0, 1400, 100), (1, 1489, 1), (2, 32, 1), (3, 0, 5)]
    want = case.run(runs)
    cuts = (("SEGMENT_ROWS", 7), ("WORK_SCORES", 4096), ("PART_VALUES", 1), ("PART_VALUES", 10**9))
    for name, value in cuts:
        with monkeypatch.context() as patch:
            patch.setattr(dividing, name, value)
            assert_same_bits(case.run(runs), want, f"{name} {value}")


def test_bits_do_not_depend_on_where_blocks_lie_or_on_their_size():
    lengths = [200, 31]
    runs = [(0, 199, 1), (1, 3, 28)]
    case = make_case(lengths, seed=8)
    want = case.run(runs)
    for block_size in (16, 32):
        other = make_case(lengths, block_size=block_size, seed=9)
        moved = replace(other, queries=case.queries)
        for s, n in enumerate(lengths):
            position = np.arange(n)
            slots = moved.tables[s, position // block_size] * block_size + position % block_size
            lines = moved.cache.lines(torch.from_numpy(slots.astype(np.int32)), moved.layer.kv_heads)
            moved.cache.write(0, case.keys[s], case.values[s], lines)
        assert_same_bits(moved.run(runs), want, f"{block_size=}")


def test_many_short_and_one_long_sequence_are_not_padded_to_the_longest():
    case = make_case([2000] + [20] * 30, seed=10)
    where = Step.of(
        positions=np.array([1999] + [19] * 30, np.int32),
        sequences=np.arange(31, dtype=np.int32),
        block_tables=case.tables,
    )
    works = work_of(where, case.cache, case.layer, case.heads, None, CPU)
    pages = sum(work.pages.numel() for work in works)
    assert pages * case.cache.shape.block_size / case.layer.kv_heads < 2 * (2048 + 30 * 128)


def broken_everywhere(case: Case, value: float) -> None:
    """Fill the cache with a value that must not leak, then store the sequences again."""
    shape = case.cache.shape
    every = torch.arange(shape.blocks * shape.block_size)
    rubbish = torch.full((len(every), case.layer.kv_heads * case.layer.head_dim), value)
    case.cache.write(0, rubbish, rubbish, case.cache.lines(every, case.layer.kv_heads))
    for s, k in enumerate(case.keys):
        position = np.arange(len(k))
        slots = case.tables[s, position // shape.block_size] * shape.block_size + position % shape.block_size
        case.cache.write(
            0,
            k,
            case.values[s],
            case.cache.lines(torch.from_numpy(slots.astype(np.int32)), case.layer.kv_heads),
        )


@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_what_other_conversations_left_in_a_block_does_not_leak(dtype, value, window):
    lengths = [150, 3, 40]
    case = make_case(lengths, dtype=dtype, seed=11)
    runs = [(0, 149, 1), (1, 0, 3), (2, 20, 20)]
    want = case.run(runs, window)
    broken_everywhere(case, value)
    assert_same_bits(case.run(runs, window), want)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_broken_key_reaches_the_rows_that_see_it_and_no_other(dtype, value):
    lengths = [60, 60]
    case = make_case(lengths, dtype=dtype, seed=12)
    runs = [(0, 0, 60), (1, 0, 60)]
    want = case.run(runs)
    for side in range(2):
        case.keys[0], case.values[0] = case.keys[0].clone(), case.values[0].clone()
        (case.keys, case.values)[side][0][30] = value
        broken_everywhere(case, 0.0)
        found = case.run(runs)
        assert_same_bits(found[:30], want[:30])
        assert_same_bits(found[60:], want[60:])
        if side == 1 or np.isnan(value) or dtype == "int8":
            assert found[30:60].isnan().all()
        case.keys[0][30], case.values[0][30] = 1.0, 1.0


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_blocks_are_copied_with_all_that_belongs_to_them(dtype):
    case = make_case([70], dtype=dtype, seed=14)
    want = case.run([(0, 60, 10)])
    moved = np.roll(case.tables, 1)
    case.cache.copy_blocks(case.tables[0], moved[0])  # a cycle: all are read before one is written
    case.tables = moved
    assert_same_bits(case.run([(0, 60, 10)]), want)


def test_keys_and_values_of_nothing_but_zeros():
    case = make_case([20], dtype="int8", seed=15)
    case.keys[0], case.values[0] = torch.zeros_like(case.keys[0]), torch.zeros_like(case.values[0])
    broken_everywhere(case, 1.0)
    assert (case.run([(0, 0, 20)]) == 0).all()


def test_a_window_touches_only_the_keys_it_needs():
    case = make_case([1000], seed=13)
    where = Step.of(positions=[999], sequences=[0], block_tables=case.tables)
    (work,) = work_of(where, case.cache, case.layer, case.heads, 64, CPU)
    assert len(work.pages) == 1
    assert len(work_of(where, case.cache, case.layer, case.heads, None, CPU)[0].pages) == 8


def test_no_rows_need_no_work():
    case = make_case([5])
    assert work_of(Step.of(block_tables=case.tables), case.cache, case.layer, case.heads, None, CPU) == []
