import numpy as np
import pytest

from engine.loading.checkpoint import open_checkpoint
from engine.models.decoder import decoder
from engine.models.spec import ModelSpec, RopeSpec
from engine.models.weights import place
from kernels.interface import BackendSettings, CacheShape, Limits
from kernels.reference import ReferenceBackend
from kernels.reference.quantized_backend import QuantizedBackend
from kernels.weights import Plain

A1 = [
    *(
        1,
        9690,
        198,
        2683,
        359,
        253,
        5356,
        5646,
        11173,
        3365,
        3511,
        308,
        34519,
        28,
        7018,
        411,
        407,
        19712,
        8182,
    ),
    *(2, 198, 1, 4093, 198, 9825, 429, 216, 33, 288, 216, 33, 32, 30, 2, 198, 1, 520, 9531, 198),
]
A1_REPLY = [
    *(
        33,
        30,
        216,
        33,
        198,
        34,
        30,
        216,
        34,
        198,
        35,
        30,
        216,
        35,
        198,
        36,
        30,
        216,
        36,
        198,
        37,
        30,
        216,
        37,
        198,
    ),
    *(
        38,
        30,
        216,
        38,
        198,
        39,
        30,
        216,
        39,
        198,
        40,
        30,
        216,
        40,
        198,
        41,
        30,
        216,
        41,
        198,
        33,
        32,
        30,
        216,
        33,
        32,
    ),
]
A2 = [10813, 121, 250] * 8


class RandomTensors:
    """Weights of a random model by canonical name; matrices in the given formats by turns."""

    def __init__(self, spec, helpers, forms, *, tied, biases, seed=0):
        rng = np.random.default_rng(seed)
        self.tensors = {}

        def vector(name, n):
            self.tensors[name] = Plain((1 + 0.1 * rng.standard_normal(n)).astype(np.float32), "f32")

        def matrix(name, rows, columns):
            form = forms[len(self.tensors) % len(forms)]
            self.tensors[name] = helpers.weight(rng, form, rows, columns)

        matrix("embedding", spec.vocabulary, spec.width)
        vector("norm", spec.width)
        if not tied:
            matrix("head", spec.vocabulary, spec.width)
        for i in range(spec.layers):
            vector(f"{i}.attention_norm", spec.width)
            vector(f"{i}.mlp_norm", spec.width)
            matrix(f"{i}.q", spec.q_columns, spec.width)
            matrix(f"{i}.k", spec.kv_columns, spec.width)
            matrix(f"{i}.v", spec.kv_columns, spec.width)
            matrix(f"{i}.output", spec.width, spec.q_columns)
            matrix(f"{i}.gate", spec.feed_forward, spec.width)
            matrix(f"{i}.up", spec.feed_forward, spec.width)
            matrix(f"{i}.down", spec.width, spec.feed_forward)
            if spec.qk_norm:
                vector(f"{i}.q_norm", spec.head_dim)
                vector(f"{i}.k_norm", spec.head_dim)
            if biases:
                vector(f"{i}.q_bias", spec.q_columns)
                vector(f"{i}.v_bias", spec.kv_columns)
                vector(f"{i}.output_bias", spec.width)

    def has(self, name):
        return name in self.tensors

    def get(self, name):
        return self.tensors.get(name)


def tiny(**changes):
    values = {
        "architecture": "llama",
        "layers": 2,
        "width": 72,
        "heads": 6,
        "kv_heads": 2,
        "head_dim": 16,
        "feed_forward": 100,
        "vocabulary": 130,
        "context_length": 256,
        "norm_eps": 1e-5,
    }
    return ModelSpec(**{**values, **changes})


VARIANTS = {
    "q4": (tiny(feed_forward=96), ("q4",), True, False),
    "q8": (tiny(rope=RopeSpec(layout="interleaved")), ("q8",), False, False),
    "mixed": (
        tiny(kv_heads=6, window=24, window_layers=frozenset({1})),
        ("q4", "bf16", "q8", "f16", "f32"),
        True,
        True,
    ),
    "plain": (tiny(qk_norm=True, kv_heads=1), ("f32",), False, False),
}


class Model:
    """A program of a decoder, and the blocks of its sequences."""

    def __init__(self, backend, spec, tensors, helpers, block_size=32, dtype="float16", width=8):
        weights = place(spec, tensors, backend)
        backend.allocate_cache(CacheShape(spec.layers, 64, block_size, spec.kv_heads, spec.head_dim, dtype))
        limits = Limits(rows=256, samples=256, sequences=8, blocks_per_sequence=width)
        self.program = backend.capture(lambda ops, inputs: decoder(ops, spec, weights, inputs), limits)
        self.helpers, self.block_size = helpers, block_size

    def logits(self, parts, samples="all"):
        output = self.program.run(self.helpers.batch(parts, self.block_size, samples), logits=True)
        assert np.array_equal(output.tokens, output.logits.argmax(axis=1))
        return output.logits.copy()


def divergence(p_logits, q_logits):
    def log_softmax(x):
        x = x.astype(np.float64)
        x = x - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return (np.exp(p) * (p - q)).sum(axis=1)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_whole_decoder_equals_its_twin(native, isas, helpers, name):
    spec, forms, tied, biases = VARIANTS[name]
    tensors = RandomTensors(spec, helpers, forms, tied=tied, biases=biases)
    tokens = np.random.default_rng(1).integers(0, spec.vocabulary, 60).tolist()
    steps = [
        [(tokens[:40], 0, [5, 9]), (tokens[:3], 0, [11])],
        [(tokens[40:], 40, [5, 9]), (tokens[3:4], 3, [11])],
    ]
    twin = Model(QuantizedBackend(), spec, tensors, helpers)
    expected = [twin.logits(step) for step in steps]
    for isa in isas:
        model = Model(native(isa), spec, tensors, helpers)
        for step, logits in zip(steps, expected, strict=True):
            assert helpers.same_bits(model.logits(step), logits), isa


@pytest.mark.parametrize("name", VARIANTS)
def test_close_to_the_float_reference(native, helpers, name):
    spec, forms, tied, biases = VARIANTS[name]
    tensors = RandomTensors(spec, helpers, forms, tied=tied, biases=biases)
    tokens = np.random.default_rng(2).integers(0, spec.vocabulary, 50).tolist()
    part = [(tokens, 0, [3, 4])]
    expected = Model(
        ReferenceBackend(BackendSettings(device="cpu")), spec, tensors, helpers, dtype="float32"
    ).logits(part)
    got = Model(native(), spec, tensors, helpers, dtype="float32").logits(part)
    plain = set(forms) <= {"f32", "f16", "bf16"}
    scale = np.abs(expected).max()
    assert np.abs(got - expected).max() < scale * (1e-4 if plain else 0.05)
    assert divergence(expected, got).mean() < (1e-8 if plain else 0.02)


def test_B031_alone_batched_chunked_and_on_any_threads_the_bits_are_the_same(native, isas, helpers):
    spec, forms, tied, biases = VARIANTS["mixed"]
    tensors = RandomTensors(spec, helpers, forms, tied=tied, biases=biases)
    rng = np.random.default_rng(3)
    prompts = [rng.integers(0, spec.vocabulary, n).tolist() for n in (1, 31, 32, 33, 70)]
    blocks = [[10 * i + j for j in range(1, 4)] for i in range(5)]
    alone = []
    for prompt, own in zip(prompts, blocks, strict=True):
        alone.append(Model(native(isas[0], 1), spec, tensors, helpers).logits([(prompt, 0, own)]))
    for isa in isas:  # 17 threads: more than there are CPUs, and than most stages have tasks
        together = Model(native(isa, 2), spec, tensors, helpers)
        got = together.logits([(prompt, 0, own) for prompt, own in zip(prompts, blocks, strict=True)])
        assert helpers.same_bits(got, np.concatenate(alone)), isa
        chunked = Model(native(isa, 3 if isa != isas[0] else 17), spec, tensors, helpers, block_size=16)
        done = [0] * 5
        while any(n < len(p) for n, p in zip(done, prompts, strict=True)):
            take = [int(rng.integers(0, 12)) if n < len(p) else 0 for n, p in zip(done, prompts, strict=True)]
            take = [min(t, len(p) - n) for t, n, p in zip(take, done, prompts, strict=True)]
            chosen = [i for i in rng.permutation(5) if take[i]]
            if not chosen:
                continue
            parts = [
                (prompts[i][done[i] : done[i] + take[i]], done[i], [12 * i + j for j in range(5)])
                for i in chosen
            ]
            rows = iter(chunked.logits(parts))
            for i in chosen:
                for position in range(done[i], done[i] + take[i]):
                    assert helpers.same_bits(next(rows), alone[i][position]), (isa, i, position)
                done[i] += take[i]


@pytest.fixture(scope="module")
def default_tensors(default_model):
    return open_checkpoint(default_model)


def greedy_reply(model, prompt, blocks, count):
    tokens = [int(model.logits([(prompt, 0, blocks)], "last").argmax())]
    while len(tokens) < count:
        tokens.append(
            int(model.logits([(tokens[-1:], len(prompt) + len(tokens) - 1, blocks)], "last").argmax())
        )
    return tokens


def test_B089_the_default_model_counts_to_ten(native, isas, helpers, default_tensors):
    checkpoint = default_tensors
    for isa in isas:
        model = Model(native(isa), checkpoint.spec, checkpoint.tensors, helpers)
        count = 51 if isa == isas[0] else 6
        assert greedy_reply(model, A1, [1, 2, 3], count) == A1_REPLY[:count], isa


def test_B001_the_default_model_repeats_the_melting_face(native, helpers, default_tensors):
    model = Model(native(), default_tensors.spec, default_tensors.tensors, helpers)
    assert greedy_reply(model, A2, [1, 2, 3], 24) == A2
