"""The operations without a cache, against float64, and row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.reference.operations import ReferenceOperations, Rotation
from kernels.step import Step
from steps import sampling

pytestmark = pytest.mark.usefixtures("torch_threads")

SEED = 30


def normal(*shape: int, seed: int = SEED) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


@pytest.fixture
def ops() -> ReferenceOperations:
    step = Step.of(tokens=[0], block_tables=[[0]], sample_rows=[0])
    return ReferenceOperations(step, None, torch.device("cpu"))


def rotation(positions: int, head_dim: int, layout: str) -> Rotation:
    angles = np.outer(np.arange(positions), 1000.0 ** (-np.arange(head_dim // 2) / (head_dim / 2)))
    cos, sin = (torch.from_numpy(table.astype(np.float32)) for table in (np.cos(angles), np.sin(angles)))
    return Rotation(cos, sin, layout)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", [64, 80, 576])
def test_rms_norm(ops, width, heads):
    x, weight = normal(7, heads * width) * 3, normal(width, seed=1)
    runs = x.double().view(7, heads, width)
    exact = runs / (runs.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-5).double(), exact.flatten(1), rtol=1e-6, atol=1e-7)


def test_rms_norm_of_zeros_and_of_a_split_view(ops):
    weight = normal(8, seed=1)
    assert not ops.rms_norm(torch.zeros(2, 8), weight, 1e-6).any()
    x = normal(4, 40)
    part = ops.split(x, (8, 16, 16))[1]
    assert torch.equal(ops.rms_norm(part, weight, 1e-6), ops.rms_norm(part.clone(), weight, 1e-6))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rope_turns_each_pair_by_its_angle(ops, layout):
    rows, heads, head_dim = 5, 3, 16
    x, table = normal(rows, heads * head_dim), rotation(100, head_dim, layout)
    positions = torch.tensor([0, 1, 7, 99, 7], dtype=torch.int32)
    found = ops.rope(x, positions, table).view(rows, heads, head_dim)
    given = x.view(rows, heads, head_dim).double()
    for row, position in enumerate(positions.tolist()):
        for pair in range(head_dim // 2):
            a, b = (pair, pair + head_dim // 2) if layout == "half" else (2 * pair, 2 * pair + 1)
            turn = complex(table.cos[position, pair], table.sin[position, pair])
            for head in range(heads):
                want = complex(given[row, head, a], given[row, head, b]) * turn
                assert found[row, head, a] == pytest.approx(want.real, abs=1e-6)
                assert found[row, head, b] == pytest.approx(want.imag, abs=1e-6)
    assert torch.equal(found[0], x.view(rows, heads, head_dim)[0]), "position 0 turns by nothing"


def test_gated(ops):
    x = torch.cat([torch.linspace(-120, 120, 96).view(2, 48), normal(2, 48)], 1)
    gate, up = x.double().chunk(2, 1)
    exact = gate / (1 + torch.exp(-gate)) * up
    torch.testing.assert_close(ops.gated(x).double(), exact, rtol=1e-6, atol=1e-30)


def test_embedding_widens_rows_of_any_dtype(ops):
    table = normal(10, 6).to(torch.bfloat16)
    tokens = torch.tensor([9, 0, 9], dtype=torch.int32)
    found = ops.embedding(table, tokens)
    assert found.dtype == torch.float32
    assert torch.equal(found, table.float()[[9, 0, 9]])


def test_small_operations(ops):
    a, b = normal(4, 6), normal(4, 6, seed=1)
    before = a.clone()
    assert torch.equal(ops.add(a, b), a + b)
    assert torch.equal(ops.gather(a, torch.tensor([3, 0], dtype=torch.int32)), a[[3, 0]])
    assert ops.gather(a, torch.zeros(0, dtype=torch.int32)).shape == (0, 6)
    q, k = ops.split(a, (4, 2))
    assert torch.equal(q, a[:, :4])
    assert torch.equal(k, a[:, 4:])
    weight, bias = normal(5, 6, seed=2), normal(5, seed=3)
    assert torch.equal(ops.linear(a, weight, bias), ops.linear(a, weight) + bias)
    assert torch.equal(ops.linear(a, weight, planes=2), ops.linear(a, weight))
    assert torch.equal(a, before), "arguments are left alone"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bits_among_any_others(ops, threads, torch_threads):
    torch_threads(threads)
    x, norm, table = normal(200, 384), normal(384, seed=1), rotation(512, 64, "half")
    head_norm = normal(64, seed=2)
    positions = torch.from_numpy(np.random.default_rng(SEED).integers(0, 512, 200).astype(np.int32))
    operations = {
        "rms_norm": lambda rows: ops.rms_norm(x[rows], norm, 1e-5),
        "head norm": lambda rows: ops.rms_norm(x[rows], head_norm, 1e-5),
        "center": lambda rows: ops.center(x[rows]),
        "rope": lambda rows: ops.rope(x[rows], positions[rows], table),
        "gated": lambda rows: ops.gated(x[rows]),
    }
    draw = np.random.default_rng(SEED)
    for name, operation in operations.items():
        whole = operation(torch.arange(200))
        for count in (*range(1, 41), 150):
            rows = torch.from_numpy(draw.permutation(200)[:count])
            found, want = operation(rows).view(torch.int32), whole[rows].view(torch.int32)
            assert torch.equal(found, want), f"{name}, {count} rows, {SEED=}"


def test_sample_keeps_the_logits_and_finds_the_best(ops):
    logits = normal(3, 50)
    logits[2] = torch.nan
    result = ops.sample(logits, sampling(3, temperature=0))
    assert result.tokens.tolist() == [*logits[:2].argmax(1).tolist(), -1]
    np.testing.assert_array_equal(result.logits, logits.numpy())
    assert result.tokens.dtype == np.int32


def test_sample_of_no_rows(ops):
    assert ops.sample(torch.zeros(0, 50), sampling(0)).tokens.shape == (0,)
