"""Paged attention in Triton's interpreter: right against float64, and the same bits in any company."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from kernels.cache_format import CacheShape
from kernels.step import Step
from kernels.triton import work as dividing
from kernels.triton.attention import attend
from kernels.triton.batch import Batch
from kernels.triton.cache import Cache, kv_write

CPU = torch.device("cpu")

ERROR = {"float32": 3e-6, "float16": 1e-3, "bfloat16": 3e-6, "int8": 1e-3}
"""Parts of the largest value: of float16 and int8, queries and weights are rounded to float16; of bfloat16
they are not, as the interpreter has none.
"""


def normal(draw: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(draw.standard_normal(shape, np.float32))


def stored(heads: torch.Tensor, format: str) -> torch.Tensor:
    """Keys or values of heads [..., head_dim] as this format of a cache holds them, in float64."""
    if format != "int8":
        return heads.to(getattr(torch, format)).double()
    scales = heads.abs().amax(-1, keepdim=True) / 127
    return (heads / scales).round().double() * scales.double()


@dataclass
class Case:
    """Sequences with keys and values in scattered blocks of a cache whose other blocks are poisoned."""

    cache: Cache
    heads: int
    tables: np.ndarray
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    queries: list[torch.Tensor]

    def run(self, runs: list[tuple[int, int, int]], window=None, cap=None, sinks=None) -> torch.Tensor:
        """One step of these (sequence, first position, rows), each sequence once, in this order."""
        step = Step.of(
            positions=np.concatenate([np.arange(first, first + rows) for _, first, rows in runs]),
            sequences=np.repeat(np.arange(len(runs)), [rows for *_, rows in runs]),
            block_tables=self.tables[[sequence for sequence, *_ in runs]],
        )
        q = torch.cat([self.queries[s][first : first + rows] for s, first, rows in runs])
        scale = self.cache.shape.layers[0].head_dim ** -0.5
        return attend(q, self.cache, 0, Batch.of(step, CPU), scale, window, cap, sinks)

    def dense(self, sequence: int, position: int, window=None, cap=None, sinks=None) -> torch.Tensor:
        """What the row at this position must come to, in float64."""
        kv_heads, dim = self.cache.shape.layers[0]
        seen = slice(0 if window is None else max(0, position - window + 1), position + 1)
        k, v = (
            stored(kv[sequence][seen].view(-1, kv_heads, dim), self.cache.shape.format)
            for kv in (self.keys, self.values)
        )
        q = self.queries[sequence][position].double().view(kv_heads, -1, dim)
        scores = torch.einsum("ghd,kgd->ghk", q, k) * dim**-0.5
        scores = scores if cap is None else torch.tanh(scores / cap) * cap
        if sinks is not None:
            scores = torch.cat([scores, sinks.double().view(kv_heads, -1, 1)], 2)
        weights = torch.softmax(scores, 2)[..., : len(k)]
        return torch.einsum("ghk,kgd->ghd", weights, v).flatten()

    def store(self, sequence: int) -> None:
        """Write a sequence's keys and values to its blocks."""
        position, size = np.arange(len(self.keys[sequence])), self.cache.shape.block_size
        slots = self.tables[sequence, position // size] * size + position % size
        where = torch.from_numpy(slots.astype(np.int32))
        for start in range(0, len(where), 64):
            part = slice(start, start + 64)
            plain_write(self.cache, self.keys[sequence][part], self.values[sequence][part], where[part])


def plain_write(cache: Cache, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
    cache.write(0, k, v, cache.lines(slots, cache.shape.layers[0].kv_heads))


def make_case(
    lengths: list[int], sharing: int, kv_heads: int, dim: int, block_size: int, format: str, seed: int
) -> Case:
    draw = np.random.default_rng(seed)
    need = [-(-length // block_size) for length in lengths]
    blocks = sum(need) + 3
    cache = Cache(CacheShape.alike(1, blocks, block_size, kv_heads, dim, format), CPU)
    for values in (*cache.values(0), *(cache.scales(0) or ())):
        values.fill_(torch.nan if values.is_floating_point() else 111)
    ids = draw.permutation(blocks).astype(np.int32)
    tables = np.full((len(lengths), max(need)), ids[-1], np.int32)  # poisoned, too
    case = Case(cache, sharing * kv_heads, tables, [], [], [])
    for sequence, length in enumerate(lengths):
        tables[sequence, : need[sequence]] = ids[sum(need[:sequence]) :][: need[sequence]]
        case.keys.append(normal(draw, length, kv_heads * dim))
        case.values.append(normal(draw, length, kv_heads * dim))
        case.queries.append(normal(draw, length, sharing * kv_heads * dim))
        case.store(sequence)
    return case


def assert_same_bits(found: torch.Tensor, want: torch.Tensor, about: str = "") -> None:
    assert torch.equal(found.view(torch.int32), want.view(torch.int32)), about


GRID = [
    # sharing, kv_heads, dim, block, format, lengths, window, cap, sinks
    (1, 2, 64, 16, "float16", [1, 65, 530], None, None, False),
    (3, 2, 80, 32, "int8", [3, 600], 100, None, True),
    (8, 1, 128, 16, "float16", [3000, 17], None, None, False),
    (71, 1, 64, 32, "int8", [1, 1030], None, 5.0, False),
    (2, 1, 256, 16, "float32", [40, 520], 5, None, True),
    (5, 3, 96, 32, "float32", [31, 33], None, 2.0, False),
    (4, 2, 24, 16, "float16", [513], 2**31 - 1, None, False),
    (4, 2, 64, 32, "bfloat16", [1, 65, 530], None, None, False),
]


@pytest.mark.parametrize("row", range(len(GRID)))
def test_attention_is_that_of_the_dense_formulation_and_a_reply_has_the_bits_of_its_prompt(row):
    sharing, kv_heads, dim, block_size, format, lengths, window, cap, with_sinks = GRID[row]
    print(f"seed={row}")
    case = make_case(lengths, sharing, kv_heads, dim, block_size, format, seed=row)
    sinks = torch.linspace(-5, 9, sharing * kv_heads) if with_sinks else None
    rest = window, cap, sinks
    prompt = [min(n, 65 if sharing < 8 else 9 if sharing < 70 else 2) for n in lengths]
    chunk = case.run(
        [(s, n - rows, rows) for s, (n, rows) in enumerate(zip(lengths, prompt, strict=True))], *rest
    )
    reply = case.run([(s, n - 1, 1) for s, n in reversed(list(enumerate(lengths)))], *rest)
    end = 0
    for sequence, (length, rows) in enumerate(zip(lengths, prompt, strict=True)):
        end += rows
        for back in {0, rows - 1}:
            want = case.dense(sequence, length - 1 - back, *rest)
            worst = (chunk[end - 1 - back].double() - want).abs().max() / want.abs().max()
            assert worst < ERROR[format], (sequence, back)
        assert_same_bits(reply[len(lengths) - 1 - sequence], chunk[end - 1], f"{sequence=}")


@pytest.mark.parametrize(("format", "window"), [("float16", None), ("int8", 300)])
def test_bits_depend_neither_on_company_nor_on_chunks(format, window):
    seed = 40
    print(f"{seed=}")
    draw = np.random.default_rng(seed)
    lengths = [int(n) for n in draw.integers(300, 600, 3)]
    case = make_case(lengths, 3, 1, 32, 16, format, seed)
    whole = [case.run([(s, 0, n)], window) for s, n in enumerate(lengths)]
    for _ in range(5):
        runs = []
        for s in draw.permutation(len(lengths))[: draw.integers(1, 4)]:
            first = int(draw.integers(0, lengths[s]))
            rows = 1 if draw.random() < 0.4 else int(draw.integers(1, min(70, lengths[s] - first) + 1))
            runs.append((int(s), first, rows))
        want = torch.cat([whole[s][first : first + rows] for s, first, rows in runs])
        assert_same_bits(case.run(runs, window), want, f"{runs=}")


def test_bits_do_not_depend_on_how_the_work_is_cut(monkeypatch):
    case = make_case([1600, 1100], 2, 1, 16, 32, "float16", 3)
    runs = [(0, 1580, 20), (1, 1097, 3)]
    want = case.run(runs)
    monkeypatch.setattr(dividing, "FEW_ROWS", 0)
    assert_same_bits(case.run(runs), want, "nothing is cut into splits")
    monkeypatch.setattr(dividing, "FEW_ROWS", 64)
    assert_same_bits(case.run(runs), want, "everything is")
    case.cache.workspace = torch.empty(18 * 10)  # room for one tile of six stacked rows, not for two splits
    assert_same_bits(case.run(runs), want, "there is room for little")


@pytest.mark.parametrize("format", ["float16", "int8"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_broken_key_or_value_reaches_the_rows_that_see_it_and_no_other(format, side):
    case = make_case([60, 20], 2, 1, 16, 16, format, 5)
    runs = [(0, 0, 60), (1, 0, 20)]
    want = case.run(runs)
    (case.keys, case.values)[side][0][30] = torch.nan
    case.store(0)
    found = case.run(runs)
    assert_same_bits(found[:30], want[:30])
    assert_same_bits(found[60:], want[60:])
    assert found[30:60].isnan().all()


def test_keys_turn_on_their_way_into_the_cache_and_other_blocks_stay():
    from kernels.interface import Rotation
    from kernels.triton.rope import Turn, rope

    draw = np.random.default_rng(6)
    k, v = normal(draw, 5, 48), normal(draw, 5, 48)
    angles = normal(draw, 9, 8)
    turn = Turn(torch.arange(4, 9, dtype=torch.int32), Rotation(angles.cos(), angles.sin(), "half"), 24)
    slots = torch.tensor([3, 17, 31, 2, 40], dtype=torch.int32)
    caches = [Cache(CacheShape.alike(1, 4, 16, 2, 24, "int8"), CPU) for _ in range(2)]
    for cache in caches:
        for values in cache.values(0):
            values.fill_(77)
    kv_write(caches[0], 0, k, v, slots, turn)
    kv_write(caches[1], 0, rope(k, *turn), v, slots)
    for one, other in zip(caches[0].values(0), caches[1].values(0), strict=True):
        assert torch.equal(one, other)
        assert (one == 77).all(3).sum() == 2 * (5 * 16 - 5)
    for one, other in zip(caches[0].scales(0), caches[1].scales(0), strict=True):
        assert torch.equal(one, other)


def test_many_rows_share_programs_and_no_rows_need_no_work():
    case = make_case([5], 1, 1, 16, 16, "float16", 7)
    step = Step.of(block_tables=case.tables)
    assert attend(torch.empty(0, 16), case.cache, 0, Batch.of(step, CPU), 1.0).shape == (0, 16)
    long = Step.of(
        positions=[5000, *[3] * 30], sequences=range(31), block_tables=np.zeros((31, 400), np.int32)
    )
    work = dividing.work_of(long, 4, None, 10_000)
    assert len(work.items) == 10 + 30
    assert len(work.merges) == 1
    assert work.items[:, 5].max() == 5001
    windowed = dividing.work_of(long, 4, 64, 10_000)
    assert windowed.items[0, 4] == 5000 - 63
    assert len(windowed.items) == 31
