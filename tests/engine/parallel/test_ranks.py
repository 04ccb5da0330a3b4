"""What ranks compute together, here on threads: the logits of one process, and the same bits always."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.models.decoder import decoder
from engine.models.placing import place
from engine.parallel.pieces import pieces
from engine.parallel.shares import Split
from kernels import sampling as rules
from kernels.cache_format import CacheShape
from kernels.interface import BackendSettings
from kernels.program import Limits
from kernels.reference import ReferenceBackend
from kernels.step import Step
from steps import changed, packed_mask, ragged, step
from thread_ranks import ThreadRanks
from tiny_models import make

BLOCKS, BLOCK, WIDTH = 24, 16, 12
LIMITS = Limits(400, 400, 3, WIDTH)

KINDS = (
    "llama-odd",
    "llama-mlp-biases",
    "mistral-mqa-tied",
    "gemma4",
    "gptoss",
    "olmo2",
    "phi3-long-factors",
    "qwen3moe-odd",
    "granitemoe-shared-tied",
    "qwen2moe",
    "glm4moe",
)
"""One of each way in which the weights of models differ: sizes that nothing divides, biases, one key head,
windows, shared keys and inputs by layer, experts, some of them for all rows or preferred, sinks, norms of
whole rows, fused tensors."""


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Checkpoint]:
    folder = tmp_path_factory.mktemp(request.param)
    make(request.param, folder)
    return request.param, open_checkpoint(folder)


def texts(checkpoint: Checkpoint, *lengths: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, checkpoint.spec.vocabulary, n).tolist() for n in lengths]


def tables(count: int) -> list[list[int]]:
    return [list(range(i * WIDTH, (i + 1) * WIDTH)) for i in range(count)]


def whole_step(parts: list[list[int]]) -> Step:
    return step([(text, 0, table) for text, table in zip(parts, tables(2), strict=True)], BLOCK)


def single(checkpoint: Checkpoint, work: Step) -> np.ndarray:
    """The logits of one process."""
    backend, spec = ReferenceBackend(BackendSettings("cpu", "float32", 1)), checkpoint.spec
    weights = place(spec, checkpoint.tensors, backend)
    backend.allocate_cache(CacheShape(spec.cached, BLOCKS, BLOCK, "float32"))
    program = backend.capture(lambda ops, batch: decoder(ops, spec, weights, batch), LIMITS)
    logits = program.launch(work, logits=True).logits
    assert logits is not None
    return logits


def ranks_of(checkpoint: Checkpoint, split: Split, **how: str) -> ThreadRanks:
    limits = [LIMITS.rows, LIMITS.samples, LIMITS.sequences, LIMITS.blocks_per_sequence]
    context = checkpoint.spec.context_length
    return ThreadRanks(checkpoint.path, split, BLOCKS, BLOCK, limits, context=context, **how)


@pytest.mark.slow
def test_logits_are_those_of_one_process_and_the_same_in_any_chunks_and_company(
    model: tuple[str, Checkpoint],
) -> None:
    kind, checkpoint = model
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    long, short = texts(checkpoint, 110, 40, seed=seed)
    wanted = single(checkpoint, whole_step([long, short]))
    sizes = (3,) if kind == "llama-odd" else (2, 4)
    for split in (*map(Split, sizes), Split(1, 2), Split(sizes[0], 2)):
        ranks = ranks_of(checkpoint, split)
        tokens, logits = ranks.step(whole_step([long, short]))
        assert float(np.abs(logits - wanted).max()) < 1e-4, split
        best = np.sort(wanted, axis=1)
        sure = best[:, -1] - best[:, -2] > 1e-3
        assert sure.mean() > 0.9
        assert np.array_equal(tokens[sure], wanted.argmax(1)[sure])
        if split.tensor == 1:
            assert np.array_equal(logits, wanted), "stages add nothing up"
        at, found = 0, []
        while at < len(long):
            end = min(len(long), at + rng.choice([1, 7, 16, 70]))
            parts = [(long[at:end], at, tables(2)[0])]
            if rng.random() < 0.5:  # beside another sequence, before or behind it
                parts.insert(rng.randint(0, 1), (short[:9], 0, tables(2)[1]))
            rows = ranks.step(step(parts, BLOCK))[1]
            first = 9 if parts[0][0] == short[:9] else 0
            found.append(rows[first : first + end - at])
            at = end
        assert np.array_equal(np.concatenate(found), logits[: len(long)]), (split, seed)
        ranks.close()


def test_sampling_follows_all_rules_also_where_a_step_is_in_pieces(tmp_path: Path) -> None:
    make("llama", tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    rng = np.random.default_rng(7)
    work = whole_step(texts(checkpoint, 150, 110))
    n, vocabulary = work.counts.samples, checkpoint.spec.vocabulary
    pairs = [{int(t): 1.0 for t in rng.choice(vocabulary, i % 4, replace=False)} for i in range(n)]
    seen_offsets, seen_ids, _ = ragged(pairs, np.int32)
    bias_offsets, bias_ids, bias_values = ragged(pairs[::-1], np.float32)
    allowed = rng.random((n, vocabulary)) < 0.5
    work = changed(
        work,
        temperature=rng.choice([0, 0.7, 1.3], n).astype(np.float32),
        top_k=rng.choice([0, 3, 40], n),
        top_p=rng.choice([1, 0.8], n).astype(np.float32),
        repetition=rng.choice([1, 1.4], n).astype(np.float32),
        seeds=rng.integers(0, 2**63, n),
        draw_positions=np.arange(n),
        seen_offsets=seen_offsets,
        seen_ids=seen_ids,
        seen_counts=np.ones(len(seen_ids)),
        bias_offsets=bias_offsets,
        bias_ids=bias_ids,
        bias_values=bias_values,
        mask=packed_mask(allowed),
    )
    assert len(pieces(work, 2)) == 4
    for split in (Split(2), Split(1, 2), Split(2, 2)):
        ranks = ranks_of(checkpoint, split)
        tokens, logits = ranks.step(work)
        later, _ = ranks.step(work, late=True)
        ranks.close()
        assert np.array_equal(later, tokens), "the mask may come behind the step"
        assert np.array_equal(tokens, rules.sample(logits, work))
        assert allowed[np.arange(n), tokens].all()


def test_the_pieces_of_a_step_are_its_rows_in_order() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(30):
        parts = [
            (
                [rng.randrange(99) for _ in range(rng.choice([1, 3, 90]))],
                rng.randrange(20),
                [i, 40 + i, 80 + i],
            )
            for i in range(rng.randint(1, 40))
        ]
        work = step(parts, 64, rng.choice(["all", "last"]))
        stages = rng.randint(1, 4)
        found = pieces(work, stages)
        assert len(found) == max(1, min(4 * stages, work.counts.rows // 64)) or stages == 1
        for name in ("tokens", "positions", "slots"):
            assert np.array_equal(np.concatenate([getattr(p.step, name) for p in found]), getattr(work, name))
        blocks = np.concatenate([p.step.block_tables[p.step.sequences] for p in found])
        assert np.array_equal(blocks, work.block_tables[work.sequences])
        drawn = np.concatenate([p.step.tokens[p.step.sample_rows] for p in found])
        assert np.array_equal(drawn, work.tokens[work.sample_rows])
        assert np.array_equal(np.concatenate([p.samples for p in found]), np.arange(work.counts.samples))
        assert all(p.step.counts.rows >= 48 for p in found) or len(found) == 1
