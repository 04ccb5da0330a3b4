"""Mixtures of experts: the library, its twin and the float reference, over shapes, formats and batches."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.formats import FORMATS
from kernels.interface import BackendSettings, Experts, Routing
from kernels.reference import ReferenceBackend
from kernels.reference.quantized import route
from kernels.reference.quantized_backend import QuantizedBackend
from kernels.weights import Plain

FORMS = tuple(FORMATS)


class Case:
    """Random experts with formats by turns; rows hold the inputs, and behind them the router logits."""

    def __init__(
        self, helpers, rng, forms, count, width, hidden, routing, gate="silu", biases=False, preferred=False
    ):
        self.width, self.routing, self.gate = width, routing, gate
        draw = iter(forms * (3 * count))
        shapes = ((hidden, width), (hidden, width), (width, hidden))
        experts = [[helpers.weight(rng, next(draw), *shape) for shape in shapes] for _ in range(count)]
        self.gates, self.ups, self.downs = zip(*experts, strict=True)
        self.biases = [
            rng.standard_normal((count, n)).astype(np.float32) if biases else None
            for n in (2 * hidden, width)
        ]
        self.preference = np.round(rng.standard_normal(count) * 4) / 8 if preferred else None

    def __call__(self, backend):
        biases = (None if bias is None else backend.place_vector(bias) for bias in self.biases)
        experts = Experts(
            tuple(backend.place_matrix(*pair) for pair in zip(self.gates, self.ups, strict=True)),
            tuple(backend.place_matrix(down) for down in self.downs),
            *biases,
            preference=None
            if self.preference is None
            else backend.place_vector(self.preference.astype(np.float32)),
        )

        def forward(ops, x, inputs):
            values, logits = ops.split(x, (self.width, len(self.gates)))
            return ops.experts(values, logits, experts, self.routing, self.gate)

        return forward


def inputs_of(rng, rows, width, experts):
    """Logits in steps, so that some are equal."""
    logits = np.round(rng.standard_normal((rows, experts)) * 3) / 2
    return np.concatenate([rng.standard_normal((rows, width)), logits], axis=1).astype(np.float32)


CASES = [
    (["q4"], 4, 64, 32, Routing(2), "silu", False),
    (["q8"], 8, 96, 64, Routing(3, "all"), "gelu_tanh", True),
    (["f32"], 5, 20, 7, Routing(2), "clamped", True),
    (["bf16", "bf16", "q8"], 3, 33, 45, Routing(3, "all"), "silu", True),
    (["q4", "q4", "f16"], 17, 64, 64, Routing(1), "silu", False),
    (["q4", "q4", "q4", "q4", "q8", "q4", "f32"], 6, 40, 32, Routing(1, "all"), "silu", True),
    (["q8"], 40, 32, 32, Routing(19), "silu", False),
    (["q8"], 1, 32, 32, Routing(1, "all", "sigmoid"), "silu", False),
    (["f32"], 19, 20, 16, Routing(3, "chosen", "sigmoid"), "silu", False, True),
    (["q4"], 40, 32, 32, Routing(17, "all", "sigmoid"), "silu", False, True),
    (["bf16", "f32", "f32"], 33, 20, 16, Routing(4), "silu", False, True),
    (["q8"], 5, 32, 32, Routing(2, "all"), "silu", True, True),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_experts_equal_the_twin_bit_for_bit_on_every_instruction_set(native, isas, helpers, case):
    forms, count, width, *settings = CASES[case]
    rng = np.random.default_rng(case)
    make = Case(helpers, rng, forms, count, width, *settings)
    x = inputs_of(rng, 60, width, count)
    twin = QuantizedBackend()
    expected = helpers.compute(twin, x, make(twin))
    assert np.isfinite(expected).all()
    for isa in isas:
        for threads in (1, 2):
            backend = native(isa, threads)
            assert helpers.same_bits(helpers.compute(backend, x, make(backend)), expected), (isa, threads)
    exact = ReferenceBackend(BackendSettings("cpu", "float32", 1))
    if all(not FORMATS[form].packed for form in forms):
        close = helpers.compute(exact, x, make(exact))
        assert np.allclose(close, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", [0, 1, 3, 5, 8, 10])
def test_a_row_s_result_does_not_depend_on_the_rows_beside_it(native, isas, helpers, case):
    forms, count, width, *settings = CASES[case]
    rng = np.random.default_rng(20 + case)
    make = Case(helpers, rng, forms, count, width, *settings)
    x = inputs_of(rng, 40, width, count)
    for backend in [
        native(isas[0]),
        native("portable"),
        ReferenceBackend(BackendSettings("cpu", "float32", 1)),
    ]:
        forward = make(backend)
        whole = helpers.compute(backend, x, forward)
        for first, last in ((0, 1), (39, 40), (3, 20), (20, 37), (0, 33)):
            assert helpers.same_bits(helpers.compute(backend, x[first:last], forward), whole[first:last])
        order = rng.permutation(40)
        assert helpers.same_bits(helpers.compute(backend, x[order], forward), whole[order])


def test_all_rows_may_choose_one_expert(native, isas, helpers):
    """More rows than a task takes, and experts without any."""
    rng = np.random.default_rng(5)
    make = Case(helpers, rng, ["q4"], 4, 64, 96, Routing(2))
    x = inputs_of(rng, 64, 64, 4)
    x[:, 64:] = [0, 9, -9, 9]
    twin = QuantizedBackend()
    expected = helpers.compute(twin, x, make(twin))
    for isa in isas:
        backend = native(isa)
        assert helpers.same_bits(helpers.compute(backend, x, make(backend)), expected), isa


def test_the_largest_logits_are_chosen_and_of_equal_ones_the_first():
    logits = np.float32([[1, 3, 3, 2], [0, 0, 0, 0], [-np.inf, -1, np.nan, 5], [0, -0.0, -1, -1]])
    chosen, weights = route(logits, Routing(2))
    assert chosen.tolist() == [[1, 2], [0, 1], [2, 3], [0, 1]]
    assert np.isnan(weights[2]).all()
    assert weights[[0, 1, 3]].tolist() == [[0.5, 0.5]] * 3
    chosen, weights = route(logits[:1], Routing(3, "all"))
    assert chosen.tolist() == [[1, 2, 3]]
    e = np.exp([0, 0, -1, -2])
    assert np.allclose(weights[0], (e / e.sum())[:3], rtol=1e-6)


def test_a_preference_decides_who_is_chosen_and_no_weight():
    logits = np.float32([[1, 3, 3, 2], [np.nan, 0, 0, 0], [2, 1, 0, -1]])
    preference = np.float32([2, 0, 0, 2])
    chosen, weights = route(logits, Routing(2, "all", "sigmoid"), preference)
    assert chosen.tolist() == [[3, 0], [0, 3], [0, 3]]
    assert np.allclose(weights[0], 1 / (1 + np.exp([-2.0, -1.0])), rtol=1e-6)
    assert np.isnan(weights[1, 0])
    e = np.exp([1.0, 3.0, 3.0, 2.0])
    chosen, weights = route(logits[:1], Routing(2, "all"), preference)
    assert chosen.tolist() == [[3, 0]]
    assert np.allclose(weights[0], (e / e.sum())[[3, 0]], rtol=1e-6)
    chosen, weights = route(logits[:1], Routing(2), preference)
    assert np.allclose(weights[0], e[[3, 0]] / (e[3] + e[0]), rtol=1e-6)


@pytest.mark.parametrize(
    "routing", [Routing(2), Routing(2, "all"), Routing(2, "chosen", "sigmoid"), Routing(2, "all", "sigmoid")]
)
def test_a_row_that_is_not_a_number_stays_one_and_alone(native, isas, helpers, routing):
    rng = np.random.default_rng(6)
    make = Case(helpers, rng, ["q8"], 4, 32, 32, routing)
    x = inputs_of(rng, 9, 32, 4)
    broken = x.copy()
    broken[2, 32:] = np.nan
    broken[5, 33] = np.nan if routing.scores == "sigmoid" else np.inf  # the sigmoid of infinity is 1
    broken[7, :32] = np.nan
    for backend in [*(native(isa) for isa in isas), QuantizedBackend()]:
        forward = make(backend)
        good, bad = (helpers.compute(backend, rows, forward) for rows in (x, broken))
        assert np.isnan(bad[[2, 5, 7]]).all()
        kept = [0, 1, 3, 4, 6, 8]
        assert helpers.same_bits(bad[kept], good[kept])


def test_the_bytes_of_the_experts_that_were_read_are_counted(native, helpers):
    """Each expert once, however many rows chose it."""
    rng = np.random.default_rng(8)
    values = rng.standard_normal((4, 3, 32, 32)).astype(np.float32)
    gates, ups, downs = ([Plain(values[e, i], "f32") for e in range(4)] for i in range(3))
    x = inputs_of(rng, 6, 32, 4)
    for chosen, touched in (([[9, 8, 0, 0]] * 6, 2), ([[9, 8, 0, 0], [0, 8, 9, 0]] * 3, 3)):
        x[:, 32:] = chosen
        for backend in (native(), QuantizedBackend(), ReferenceBackend(BackendSettings("cpu", "float32", 1))):
            experts = Experts(
                tuple(backend.place_matrix(g, u) for g, u in zip(gates, ups, strict=True)),
                tuple(backend.place_matrix(d) for d in downs),
            )

            table = backend.place_matrix(Plain(x, "f32"))

            def forward(ops, inputs, table=table, experts=experts):
                values, logits = ops.split(ops.embedding(table, inputs.tokens), (32, 4))
                mixed = ops.experts(values, logits, experts, Routing(2))
                return ops.sample(ops.gather(mixed, inputs.sample_rows), inputs.sampling)

            program = backend.capture(forward, helpers.LIMITS)
            for _ in range(2):
                output = program.launch(helpers.batch([(list(range(6)), 0, [0])])).result()
                assert output.expert_bytes == touched * 3 * 32 * 32 * 4, (backend.name, chosen)
