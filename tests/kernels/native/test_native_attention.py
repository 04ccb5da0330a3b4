import dataclasses
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from kernels.arithmetic import LOG2_E
from kernels.reference import quantized
from kernels.reference.quantized import exp2_32, fma
from kernels.reference.quantized_backend import QuantizedBackend
from kernels.weights import Plain

HEAD = 16


def layer(backend, helpers, table, heads, kv_heads, window, head_dim=HEAD, scale=None, cap=None, sinks=None):
    """A forward that takes q, k and v of a token from the table and attends."""
    placed = backend.place_matrix(Plain(table, "f32"))
    sinks = None if sinks is None else backend.place_vector(sinks)
    columns = (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim)

    def forward(ops, inputs):
        q, k, v = ops.split(ops.embedding(placed, inputs.tokens), columns)
        ops.kv_write(0, k, v, inputs.slots)
        options = {"scale": scale or head_dim**-0.5, "window": window, "cap": cap, "sinks": sinks}
        mixed = ops.paged_attention(0, q, inputs, **options)
        return ops.sample(ops.gather(mixed, inputs.sample_rows), inputs.sampling)

    return forward


def run(
    backend,
    helpers,
    table,
    steps,
    *,
    heads,
    kv_heads,
    window=None,
    block_size=32,
    dtype="float16",
    head_dim=HEAD,
    scale=None,
    cap=None,
    sinks=None,
):
    backend.allocate_cache(
        helpers.cache(block_size=block_size, kv_heads=kv_heads, head_dim=head_dim, dtype=dtype, blocks=160)
    )
    limits = dataclasses.replace(helpers.LIMITS, rows=2048, samples=2048, blocks_per_sequence=128)
    program = backend.capture(
        layer(backend, helpers, table, heads, kv_heads, window, head_dim, scale, cap, sinks), limits
    )
    outputs = []
    for parts in steps:
        logits = program.launch(helpers.batch(parts, block_size), logits=True).result().logits
        outputs.append(logits.copy())
    return outputs


def random_table(rng, rows, heads, kv_heads, head_dim=HEAD):
    return rng.standard_normal((rows, (heads + 2 * kv_heads) * head_dim)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "int8"])
@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (10, 1)])
def test_attention_equals_the_twin(native, isas, helpers, heads, kv_heads, block_size, dtype):
    rng = np.random.default_rng(heads)
    table = random_table(rng, 200, heads, kv_heads)
    first = list(rng.permutation(100)[: 96 // block_size + 2] + 1)
    steps = [
        [(list(range(70)), 0, first), (list(range(70, 75)), 0, [150])],
        [(list(range(75, 85)), 70, first), ([85], 5, [150])],
    ]
    options = {"heads": heads, "kv_heads": kv_heads, "block_size": block_size, "dtype": dtype}
    for window in (None, 1, 20, 33):
        expected = run(QuantizedBackend(), helpers, table, steps, window=window, **options)
        for isa in isas:
            got = run(native(isa), helpers, table, steps, window=window, **options)
            for a, b in zip(got, expected, strict=True):
                assert helpers.same_bits(a, b), (isa, window)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("head_dim", [8, 40, 64])
def test_other_head_sizes(native, isas, helpers, head_dim, dtype):
    rng = np.random.default_rng(head_dim)
    table = random_table(rng, 50, 4, 2, head_dim)
    steps = [[(list(range(40)), 0, [3, 1])], [([44], 40, [3, 1])]]
    options = {"heads": 4, "kv_heads": 2, "head_dim": head_dim, "dtype": dtype}
    expected = run(QuantizedBackend(), helpers, table, steps, **options)
    for isa in isas:
        got = run(native(isa), helpers, table, steps, **options)
        assert all(helpers.same_bits(a, b) for a, b in zip(got, expected, strict=True)), isa


def exact_fma(a, b, c):
    """By rational numbers: the float32 next to a * b + c; of two as near the one with an even fraction."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = np.float32(float(exact))  # rounded twice: right or one step off
    steps = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min(steps, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


def near_ties(rng, count):
    """a, b, c with a * b + c so near the middle of two float32 numbers that a float64 sum lands on it."""
    c = (1 + rng.integers(0, 2**22, count) * 2.0**-23).astype(np.float32)
    odd = rng.integers(1, 200, count)
    a = (2.0**-12 * (1 + odd * 2.0**-23)).astype(np.float32)
    b = (2.0**-12 * (1 - odd * 2.0**-23)).astype(np.float32)  # a * b is just below 2^-24
    return a, b * rng.choice(np.array([1, -1], np.float32), count), c


def test_the_twins_fma_rounds_once():
    rng = np.random.default_rng(8)
    a, b, c = near_ties(rng, 300)
    wide = (np.float32(2) ** rng.integers(-60, 60, (3, 300)) * rng.standard_normal((3, 300))).astype(
        np.float32
    )
    low = (rng.standard_normal((3, 300)) * np.array([[1], [2.0**-140], [2.0**-141]])).astype(np.float32)
    a, b, c = np.concatenate([np.stack([a, b, c]), wide, low], axis=1)
    expected = np.array([exact_fma(*x) for x in zip(a, b, c, strict=True)], np.float32)
    assert np.array_equal(fma(a, b, c), expected)
    twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (twice != expected)[:300].any(), "these are cases where it matters"


@pytest.mark.parametrize("isa", ["avx512", "avx2", "portable"])
def test_fused_sums_round_once(native, isas, helpers, isa, monkeypatch):
    """Scores and values whose sums are near ties or subnormal: float64 sums would give other bits."""
    if isa not in isas:
        pytest.skip("not on this machine")
    rng = np.random.default_rng(9)
    scale = next(x for x in np.float32(0.6931472) + np.arange(-4, 5) * 2.0**-24 if unscaled(x))
    a, b, c = near_ties(rng, 64)
    table = np.zeros((64, 3, 8), np.float32)
    table[:, 0, :2] = np.stack([np.ones(64), a], 1)  # q k = c + a b: the same b for one query's keys only
    table[:, 1, :2] = np.stack([c, b], 1)
    table[:, 2] = rng.standard_normal((64, 8)) * np.array(
        [1, 1, 1, 1, 2.0**-128, 2.0**-135, 2.0**-140, 2.0**-149]
    )
    options = {"heads": 1, "kv_heads": 1, "head_dim": 8, "dtype": "float32", "scale": float(scale)}
    steps = [[(list(range(64)), 0, [3, 1])]]
    (expected,) = run(QuantizedBackend(), helpers, table.reshape(64, 24), steps, **options)
    (got,) = run(native(isa), helpers, table.reshape(64, 24), steps, **options)
    assert helpers.same_bits(got, expected)
    monkeypatch.setattr(
        quantized, "fma", lambda a, b, c: np.asarray(a.astype(np.float64) * b + c).astype(np.float32)
    )
    (twice,) = run(QuantizedBackend(), helpers, table.reshape(64, 24), steps, **options)
    assert not helpers.same_bits(twice, expected), "these are cases where it matters"


def unscaled(scale):
    """Whether attention with this scale multiplies the queries by exactly 1."""
    return np.float32(scale) * np.float32(LOG2_E) == 1


def test_weights_are_powers_of_two():
    x = np.concatenate([-np.logspace(-8, 2, 5000), [0, -1, -126, -126.4, -127, -1e4, -np.inf]]).astype(
        np.float32
    )
    exact = np.exp2(x.astype(np.float64))
    got = exp2_32(x).astype(np.float64)
    normal = x >= -126
    assert np.abs(got[normal] / exact[normal] - 1).max() < 1.3 * 2.0**-23
    assert (got[x < -126.5] == 0).all()
    assert exp2_32(np.float32([0]))[0] == 1
    assert np.isnan(exp2_32(np.float32([np.nan]))[0])


@pytest.mark.parametrize("cap", [0.5, 50.0])
@pytest.mark.parametrize("window", [None, 20])
def test_capped_scores_equal_the_twin(native, isas, helpers, window, cap):
    rng = np.random.default_rng(7)
    table = random_table(rng, 300, 4, 2)
    steps = [[(list(range(270)), 0, list(range(1, 11))), ([3, 4], 0, [20])], [([9], 270, list(range(1, 11)))]]
    options = {"heads": 4, "kv_heads": 2, "window": window, "dtype": "float32"}
    expected = run(QuantizedBackend(), helpers, table, steps, cap=cap, **options)
    for isa in isas:
        for threads in (1, 2):
            got = run(native(isa, threads), helpers, table, steps, cap=cap, **options)
            assert all(helpers.same_bits(a, b) for a, b in zip(got, expected, strict=True)), (isa, threads)
    q, k, v = np.split(table.astype(np.float64)[:270], [64, 96], axis=1)
    seen = slice(0 if window is None else 250, 270)
    for head in range(4):
        part = slice(head // 2 * 16, head // 2 * 16 + 16)
        score = cap * np.tanh(k[seen, part] @ q[269, 16 * head : 16 * head + 16] / 4 / cap)
        weight = np.exp(score - score.max())
        want = weight @ v[seen, part] / weight.sum()
        assert np.allclose(expected[0][269, 16 * head : 16 * head + 16], want, rtol=1e-4, atol=1e-5)


def test_sinks_equal_the_twin(native, isas, helpers):
    """One span and several, as one task and as many; a sink above all scores, below them, and none at all."""
    rng = np.random.default_rng(12)
    table = random_table(rng, 262, 4, 1, 8)
    table[:, -8::3] *= -0.0  # a result of -0 keeps its sign
    sinks = np.float32([-3, 0.5, 40, -np.inf])
    blocks = list(range(1, 11))
    steps = [[(list(range(258)), 0, blocks), ([3, 4], 0, [20])], [([9], 258, blocks)]]
    options = {"heads": 4, "kv_heads": 1, "head_dim": 8}
    expected = run(QuantizedBackend(), helpers, table, steps, sinks=sinks, **options)
    for isa in isas:
        for threads in (1, 3):
            got = run(native(isa, threads), helpers, table, steps, sinks=sinks, **options)
            assert all(helpers.same_bits(a, b) for a, b in zip(got, expected, strict=True)), (isa, threads)
    plain = run(native(), helpers, table, steps, **options)
    for with_sinks, without in zip(expected, plain, strict=True):
        heads, others = (x.reshape(len(x), 4, 8) for x in (with_sinks, without))
        assert helpers.same_bits(heads[:, 3].copy(), others[:, 3].copy())
        assert (np.abs(heads[:, :3]) <= np.abs(others[:, :3])).all()
        assert np.abs(heads[:, 2]).max() < 1e-6


def test_sinks_of_capped_scores_are_not_capped(native, isas, helpers):
    table = random_table(np.random.default_rng(13), 20, 4, 2)
    options = {"heads": 4, "kv_heads": 2, "dtype": "float32", "window": 7}
    options |= {"cap": 2.0, "sinks": np.float32([-1, 0, 3, 5])}
    steps = [[(list(range(20)), 0, [1])]]
    (expected,) = run(QuantizedBackend(), helpers, table, steps, **options)
    for isa in isas:
        (got,) = run(native(isa), helpers, table, steps, **options)
        assert helpers.same_bits(got, expected), isa
    q, k, v = np.split(table.astype(np.float64), [64, 96], axis=1)
    scores = 2 * np.tanh(k[13:, 16:] @ q[19, 48:] / 4 / 2)
    weights = np.exp(scores) / (np.exp(scores).sum() + np.exp(5))
    assert np.allclose(expected[19, 48:], weights @ v[13:, 16:], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("window", "dtype"), [(None, "float16"), (200, "float16"), (None, "int8")])
def test_spans_are_joined_as_in_the_twin(native, isas, helpers, window, dtype):
    rng = np.random.default_rng(10)
    table = random_table(rng, 262, 2, 1, 8)
    blocks = list(range(9))
    steps = [[(list(range(250)), 0, blocks)], [(list(range(250, 262)), 250, blocks)]]
    options = {"heads": 2, "kv_heads": 1, "head_dim": 8, "window": window, "dtype": dtype}
    expected = run(QuantizedBackend(), helpers, table, steps, **options)
    for isa in isas:
        got = run(native(isa), helpers, table, steps, **options)
        assert all(helpers.same_bits(a, b) for a, b in zip(got, expected, strict=True)), isa


def test_the_softmax_is_right(native, helpers):
    """Against a plain float64 softmax, so that twin and kernel can't be wrong together."""
    rng = np.random.default_rng(3)
    table = random_table(rng, 700, 6, 2)
    (got,) = run(
        native(),
        helpers,
        table,
        [[(list(range(700)), 0, list(range(22)))]],
        heads=6,
        kv_heads=2,
        dtype="float32",
    )
    wide = table.astype(np.float64)
    q, k, v = np.split(wide, [6 * HEAD, 8 * HEAD], axis=1)
    for row in (0, 1, 31, 32, 255, 256, 511, 512, 699):
        for head in range(6):
            keys, values = (x[: row + 1].reshape(-1, 2, HEAD)[:, head // 3] for x in (k, v))
            scores = keys @ q[row].reshape(6, HEAD)[head] / 4
            weights = np.exp(scores - scores.max())
            exact = weights / weights.sum() @ values
            assert np.allclose(got[row].reshape(6, HEAD)[head], exact, rtol=1e-5, atol=1e-6), (row, head)


@pytest.mark.slow
def test_chunks_threads_and_neighbours_change_no_bit(native, isas, helpers):
    """Long enough for several spans, with and without a window; one thread, two, and spans as tasks."""
    rng = np.random.default_rng(4)
    length = 1200
    table = random_table(rng, length, 6, 2)
    blocks = list(rng.permutation(100)[:40])
    other = list(range(120, 130))
    tokens = list(range(length))
    for window, dtype in ((None, "float16"), (600, "float16"), (600, "int8")):
        options = {"heads": 6, "kv_heads": 2, "window": window, "dtype": dtype}
        (whole,) = run(native(isas[0], 1), helpers, table, [[(tokens, 0, blocks)]], **options)
        for isa in isas:
            chunks = [*range(0, 1150, 97), 1150, *range(1151, length), length]
            steps = []
            for start, end in pairwise(chunks):
                part = (tokens[start:end], start, blocks)
                steps.append([(tokens[:3], 0, other), part] if start % 2 else [part])
            outputs = run(native(isa, 2 if isa == isas[0] else 3), helpers, table, steps, **options)
            for (start, end), got in zip(pairwise(chunks), outputs, strict=True):
                assert helpers.same_bits(got[-(end - start) :], whole[start:end]), (isa, window, dtype, start)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_hidden_keys_do_not_matter_even_if_broken(native, isas, helpers, dtype):
    rng = np.random.default_rng(5)
    table = random_table(rng, 60, 2, 2)
    broken = np.concatenate([table, np.full((40, table.shape[1]), np.nan, np.float32)])
    options = {"heads": 2, "kv_heads": 2, "dtype": dtype}
    fill = [(list(range(60, 100)), 0, [7, 9])]
    part = [(list(range(20)), 0, [7, 9])]
    for isa in isas:
        (clean,) = run(native(isa), helpers, broken, [part], **options)
        outputs = run(native(isa), helpers, broken, [fill, part], **options)
        assert np.isnan(outputs[0]).all()
        assert helpers.same_bits(outputs[1], clean), isa


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_blocks_are_copied_in_all_layers(native, helpers, dtype):
    rng = np.random.default_rng(6)
    table = random_table(rng, 40, 2, 2)
    options = {"heads": 2, "kv_heads": 2, "dtype": dtype}
    steps = [[(list(range(35)), 0, [4, 5])], [([36], 35, [4, 5])]]
    expected = run(native(), helpers, table, steps, **options)
    backend = native()
    backend.allocate_cache(helpers.cache(dtype=dtype))
    program = backend.capture(layer(backend, helpers, table, 2, 2, None), helpers.LIMITS)
    program.launch(helpers.batch(steps[0])).result()
    # A cycle: every source is read before a target is written.
    backend.copy_blocks(np.array([4, 5], np.int32), np.array([5, 4], np.int32))
    got = program.launch(helpers.batch([([36], 35, [5, 4])]), logits=True).result().logits
    assert helpers.same_bits(got.copy(), expected[1])


def test_int8_keys_and_values_of_every_kind_equal_the_twin(native, isas, helpers):
    """Nothing but zeros, next to nothing, huge, ties between two integers, one column far above others."""
    rng = np.random.default_rng(14)
    table = random_table(rng, 40, 4, 2, 24)
    kv = table[:, 4 * 24 :].reshape(40, 4, 24)
    kv[3] = 0
    kv[4] *= np.float32(2.0**-101)
    kv[5] *= np.float32(2.0**-96)
    kv[6] *= np.float32(2.0**100)
    kv[7] = np.arange(24) - 11.5
    kv[7, :, 0] = 127
    kv[8, :, 5] = 1e4
    kv[9, 3] = -0.0
    options = {"heads": 4, "kv_heads": 2, "head_dim": 24, "dtype": "int8"}
    steps = [[(list(range(37)), 0, [3, 1])], [([38], 37, [3, 1])]]
    expected = run(QuantizedBackend(), helpers, table, steps, **options)
    assert np.isfinite(expected[1]).all()
    for isa in isas:
        got = run(native(isa), helpers, table, steps, **options)
        assert all(helpers.same_bits(a, b) for a, b in zip(got, expected, strict=True)), isa


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("of_value", [False, True])
def test_a_broken_int8_head_reaches_the_rows_that_see_it_and_no_other(native, isas, helpers, value, of_value):
    table = random_table(np.random.default_rng(15), 30, 4, 2)
    steps = [[(list(range(30)), 0, [1])]]
    options = {"heads": 4, "kv_heads": 2, "dtype": "int8"}
    (clean,) = run(native(), helpers, table, steps, **options)
    table[20, (4 + 2 * of_value) * HEAD + 3] = value  # of the first key head, which heads 0 and 1 read
    for isa in isas:
        (got,) = run(native(isa), helpers, table, steps, **options)
        assert helpers.same_bits(got[:20], clean[:20])
        assert helpers.same_bits(got[:, 2 * HEAD :].copy(), clean[:, 2 * HEAD :].copy())
        assert np.isnan(got[20:, : 2 * HEAD]).all()
