"""Whole steps of a small decoder: right against float64, and the same bits however they are batched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.models.decoder import decoder
from engine.models.families import llama, qwen3
from engine.models.placing import place
from engine.models.spec import LayerSpec, ModelSpec, RopeSpec
from kernels.backends import open_backend
from kernels.cache_format import CacheShape
from kernels.interface import Backend, BackendSettings
from kernels.program import Limits, Program
from kernels.step import Step
from kernels.weights import Packed, Plain
from random_weights import RandomTensors
from steps import unsampled

pytestmark = pytest.mark.usefixtures("torch_threads")

SPEC = ModelSpec(
    architecture="llama",
    layers=(LayerSpec(),) * 2,
    width=48,
    heads=4,
    kv_heads=2,
    head_dim=16,
    feed_forward=80,
    vocabulary=97,
    context_length=400,
    norm_eps=1e-5,
)
QWEN = replace(
    SPEC, heads=6, kv_heads=1, head_dim=8,
    layers=tuple(LayerSpec(window, RopeSpec(layout="interleaved")) for window in (None, 20)),
)  # fmt: skip
LIMITS = Limits(rows=300, samples=16, sequences=16, blocks_per_sequence=25)
BLOCKS = 60


class Machine:
    """A backend with a captured decoder, and sequences that hold blocks of its cache."""

    def __init__(
        self, spec: ModelSpec, kv_dtype: str = "float16", block_size: int = 16, dtype: str = "auto"
    ) -> None:
        self.spec, self.block_size = spec, block_size
        self.tensors = RandomTensors(
            spec,
            family=(qwen3 if spec is QWEN else llama).FAMILY,
            biases=spec is QWEN,
            scale=0.3,
            spread=1.0,
            seed=1,
        )
        self.backend: Backend = open_backend("reference", BackendSettings(dtype=dtype, threads=1))
        weights = place(spec, self.tensors, self.backend)
        shape = CacheShape(spec.cached, BLOCKS, block_size, kv_dtype)
        self.backend.allocate_cache(shape)
        self.program: Program = self.backend.capture(
            lambda ops, batch: decoder(ops, spec, weights, batch), LIMITS
        )

    def step(self, runs: list[tuple[np.ndarray, np.ndarray, int, int]], samples: list[int] | None = None):
        """Compute each (tokens, blocks, first row, rows); every row is a sample unless some are named."""
        tables = np.zeros((len(runs), max(len(blocks) for _, blocks, *_ in runs)), np.int32)
        for line, (_, blocks, *_) in enumerate(runs):
            tables[line, : len(blocks)] = blocks
        position = np.concatenate([np.arange(first, first + rows) for *_, first, rows in runs]).astype(
            np.int32
        )
        sequence = np.repeat(np.arange(len(runs)), [rows for *_, rows in runs]).astype(np.int32)
        rows = np.arange(len(position), dtype=np.int32) if samples is None else np.array(samples, np.int32)
        step = Step.of(
            tokens=np.concatenate([tokens[first : first + n] for tokens, _, first, n in runs]).astype(
                np.int32
            ),
            positions=position,
            slots=tables[sequence, position // self.block_size] * self.block_size
            + position % self.block_size,
            sequences=sequence,
            block_tables=tables,
            sample_rows=rows,
        )
        return self.program.launch(step, logits=True).result()


def exact_logits(spec: ModelSpec, tensors: RandomTensors, tokens: np.ndarray) -> np.ndarray:
    """The whole model in float64, one token after another, written out on its own."""

    def w(name: str) -> np.ndarray:
        return tensors[name].values.astype(np.float64)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + spec.norm_eps) * w(name)

    def turn(x: np.ndarray, rope: RopeSpec) -> np.ndarray:
        half = spec.head_dim // 2
        angle = np.outer(np.arange(len(x)), rope.base ** (-np.arange(half) / half))[:, None]
        first, second = (
            (slice(half), slice(half, None))
            if rope.layout == "half"
            else (slice(0, None, 2), slice(1, None, 2))
        )
        out = np.empty_like(x)
        out[..., first] = x[..., first] * np.cos(angle) - x[..., second] * np.sin(angle)
        out[..., second] = x[..., second] * np.cos(angle) + x[..., first] * np.sin(angle)
        return out

    x = w("embedding")[tokens]
    for i in range(len(spec.layers)):
        h = norm(x, f"{i}.attention_norm")
        q, k, v = (h @ w(f"{i}.{name}").T + (w(f"{i}.{name}_bias") if spec is QWEN else 0) for name in "qkv")
        q, k, v = (y.reshape(len(x), -1, spec.head_dim) for y in (q, k, v))
        if spec is QWEN:
            q, k = norm(q, f"{i}.q_norm"), norm(k, f"{i}.k_norm")
        q, k = turn(q, spec.layers[i].rope), turn(k, spec.layers[i].rope)
        mixed = np.empty_like(q)
        window = spec.layers[i].window or len(x)
        for p in range(len(x)):
            for head in range(spec.heads):
                seen, kv_head = slice(max(0, p - window + 1), p + 1), head * spec.kv_heads // spec.heads
                score = k[seen, kv_head] @ q[p, head] / np.sqrt(spec.head_dim)
                weight = np.exp(score - score.max())
                mixed[p, head] = weight @ v[seen, kv_head] / weight.sum()
        x = (
            x
            + mixed.reshape(len(x), -1) @ w(f"{i}.output").T
            + (w(f"{i}.output_bias") if spec is QWEN else 0)
        )
        h = norm(x, f"{i}.mlp_norm")
        gate, up = h @ w(f"{i}.gate").T, h @ w(f"{i}.up").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w(f"{i}.down").T
    return norm(x, "norm") @ w("embedding").T


def prompts(lengths: list[int], seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tokens and scattered blocks (of 16 tokens) of some sequences."""
    draw = np.random.default_rng(seed)
    free = draw.permutation(BLOCKS).tolist()
    return [
        (draw.integers(0, SPEC.vocabulary, n), np.array([free.pop() for _ in range(-(-n // 16))]))
        for n in lengths
    ]


def same_bits(found: np.ndarray, want: np.ndarray, about: str = "") -> None:
    np.testing.assert_array_equal(found.view(np.int32), want.view(np.int32), err_msg=about)


@pytest.mark.parametrize("spec", [SPEC, QWEN], ids=["llama", "qwen"])
def test_logits_are_those_of_the_model_in_float64(spec):
    machine = Machine(spec, "float32")
    assert machine.backend.exact
    ((tokens, blocks),) = prompts([70], 1)
    output = machine.step([(tokens, blocks, 0, 70)], samples=list(range(50, 66)))
    exact = exact_logits(spec, machine.tensors, tokens)[50:66]
    assert np.abs(output.logits - exact).max() < 1e-4 * np.abs(exact).max()
    assert output.tokens.tolist() == exact.argmax(1).tolist()


@pytest.mark.parametrize(("dtype", "digits"), [("bfloat16", 0.06), ("float16", 0.008)])
def test_short_formats_come_close(dtype, digits):
    machine = Machine(SPEC, dtype=dtype)
    ((tokens, blocks),) = prompts([40], 1)
    output = machine.step([(tokens, blocks, 0, 40)], samples=list(range(30, 40)))
    exact = exact_logits(SPEC, machine.tensors, tokens)[30:]
    error = np.abs(output.logits - exact).max() / np.abs(exact).max()
    assert 1e-5 < error < digits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "spec", "dtype"),
    [(1, SPEC, "float32"), (2, QWEN, "float32"), (3, SPEC, "bfloat16")],
    ids=["llama", "qwen", "bfloat16"],
)
def test_B031_logits_have_the_same_bits_alone_batched_and_in_any_chunks(seed, spec, dtype, torch_threads):
    print(f"{seed=}")
    draw = np.random.default_rng(seed)
    lengths = [int(n) for n in draw.integers(1, 140, 3)]
    sequences = prompts(lengths, seed)
    machine = Machine(spec, dtype=dtype)
    want = []
    for tokens, blocks in sequences:  # token by token
        rows = [machine.step([(tokens, blocks, p, 1)]).logits[0].copy() for p in range(len(tokens))]
        want.append(np.stack(rows))
    for threads in (1, 2):
        torch_threads(threads)
        machine.backend.allocate_cache(machine.backend.cache.shape)
        done = [0] * len(sequences)
        while done != lengths:
            runs, rows = [], []
            for i in draw.permutation(len(sequences)):
                left = lengths[i] - done[i]
                if left and draw.random() < 0.8:
                    n = int(draw.integers(1, min(left, 70) + 1))
                    runs.append((*sequences[i], done[i], n))
                    rows.append((i, done[i], n))
            if not runs:
                continue
            last = np.cumsum([n for *_, n in rows]) - 1
            output = machine.step(runs, samples=last.tolist())
            for line, (i, first, n) in enumerate(rows):
                same_bits(output.logits[line], want[i][first + n - 1], f"{seed=} {threads=} {rows=}")
                done[i] += n


def test_a_copied_block_serves_another_sequence():
    machine = Machine(SPEC)
    ((tokens, blocks),) = prompts([45], 3)
    want = machine.step([(tokens, blocks, 0, 45)], samples=[44]).logits.copy()
    free = [b for b in range(BLOCKS) if b not in blocks][:3]
    machine.backend.copy_blocks(blocks.astype(np.int32), np.array(free, np.int32))
    other = (tokens, np.array(free), 44, 1)
    machine.step([(tokens, blocks, 0, 20)], samples=[])
    same_bits(machine.step([other]).logits, want)
    # Swapping two blocks reads both before it writes one.
    a, b = free[:2]
    machine.backend.copy_blocks(np.array([a, b], np.int32), np.array([b, a], np.int32))
    same_bits(machine.step([(tokens, np.array([b, a, free[2]]), 44, 1)]).logits, want)


def test_tied_embedding_and_head_share_memory_and_packed_parts_are_joined():
    draw = np.random.default_rng(5)
    backend = open_backend("reference", BackendSettings())
    q4 = Packed(
        "q4", (3, 40),
        draw.integers(0, 256, (3, 2, 16), np.uint8),
        draw.random((3, 2)).astype(np.float16),
        draw.random((3, 2)).astype(np.float16),
    )  # fmt: skip
    plain = Plain(draw.standard_normal((600, 40), np.float32), "f32")
    handle = backend.place_matrix(q4, plain)
    assert handle.shape == (603, 40)
    assert backend.weight_bytes == handle.nbytes == 603 * 40 * 4
    np.testing.assert_array_equal(handle[3:].numpy(), plain.values)
    half = open_backend("reference", BackendSettings(dtype="float16"))
    assert half.place_matrix(plain).dtype == torch.float16
    assert half.weight_bytes == 600 * 40 * 2
    machine = Machine(SPEC)
    layer = SPEC.width * (
        2 * SPEC.sizes(0).q_columns + 2 * SPEC.sizes(0).kv_columns + 3 * SPEC.feed_forward + 2
    )
    values = SPEC.vocabulary * SPEC.width + 2 * layer + SPEC.width  # no rotation: it is never read whole
    assert machine.backend.weight_bytes == 4 * values, "one embedding, not two"


def test_logits_are_given_only_when_asked_for_and_broken_ones_are_told():
    machine = Machine(SPEC)
    ((tokens, blocks),) = prompts([5], 6)
    step = Step.of(
        tokens=tokens.astype(np.int32),
        positions=np.arange(5, dtype=np.int32),
        slots=(blocks[0] * 16 + np.arange(5)).astype(np.int32),
        sequences=np.zeros(5, np.int32),
        block_tables=blocks[None].astype(np.int32),
        sample_rows=np.array([4], np.int32),
    )
    output = machine.program.launch(step).result()
    assert output.logits is None
    assert output.tokens.dtype == np.int32
    nothing = unsampled(step)
    assert machine.program.launch(nothing, logits=True).result().logits.shape == (0, SPEC.vocabulary)
    machine.tensors["embedding"].values[tokens[4]] = np.nan
    spoilt = place(SPEC, machine.tensors, machine.backend)
    program = machine.backend.capture(lambda ops, inputs: decoder(ops, SPEC, spoilt, inputs), LIMITS)
    assert program.launch(step).result().tokens.tolist() == [-1]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (replace(LIMITS, rows=29), "30 rows, more than the 29"),
        (replace(LIMITS, samples=1), "2 sample rows, more than the 1"),
        (replace(LIMITS, sequences=1), "2 sequences, more than the 1"),
        (replace(LIMITS, blocks_per_sequence=1), "2 blocks of a sequence, more than the 1"),
    ],
)
def test_a_step_beyond_the_limits_is_refused(limits, message):
    machine = Machine(SPEC)
    machine.program = machine.backend.capture(lambda ops, batch: pytest.fail("must not run"), limits)
    (a, b) = prompts([20, 10], 7)
    with pytest.raises(ValueError, match=message):
        machine.step([(*a, 0, 20), (*b, 0, 10)], samples=[19, 29])
