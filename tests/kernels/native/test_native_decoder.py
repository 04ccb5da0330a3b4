import numpy as np
import pytest

from anchors import COUNT_IDS, COUNT_REPLY, FACES_IDS
from engine.loading.checkpoint import open_checkpoint
from engine.models.decoder import decoder
from engine.models.placing import place
from engine.models.spec import LayerSpec, ModelSpec, RopeSpec
from kernels.cache_format import CacheShape
from kernels.interface import BackendSettings
from kernels.program import Limits
from kernels.reference import ReferenceBackend
from kernels.reference.quantized_backend import QuantizedBackend
from random_weights import RandomTensors


def tiny(**changes):
    values = {
        "architecture": "llama",
        "layers": (LayerSpec(),) * 2,
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
    "q8": (tiny(layers=(LayerSpec(rope=RopeSpec(layout="interleaved")),) * 2), ("q8",), False, False),
    "mixed": (
        tiny(kv_heads=6, layers=(LayerSpec(), LayerSpec(window=24))),
        ("q4", "bf16", "q8", "f16", "f32"),
        True,
        True,
    ),
    "plain": (tiny(kv_heads=1), ("f32",), False, False),
}


class Model:
    """A program of a decoder, and the blocks of its sequences."""

    def __init__(self, backend, spec, tensors, helpers, block_size=32, dtype="float16", width=8):
        weights = place(spec, tensors, backend)
        backend.allocate_cache(CacheShape(spec.cached, 64, block_size, dtype))
        limits = Limits(rows=256, samples=256, sequences=8, blocks_per_sequence=width)
        self.program = backend.capture(lambda ops, inputs: decoder(ops, spec, weights, inputs), limits)
        self.helpers, self.block_size = helpers, block_size

    def logits(self, parts, samples="all"):
        output = self.program.launch(
            self.helpers.batch(parts, self.block_size, samples), logits=True
        ).result()
        assert np.array_equal(output.tokens, output.logits.argmax(axis=1))
        return output.logits.copy()


def divergence(p_logits, q_logits):
    def log_softmax(x):
        x = x.astype(np.float64)
        x = x - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return (np.exp(p) * (p - q)).sum(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_a_whole_decoder_equals_its_twin(native, isas, helpers, name):
    spec, forms, tied, biases = VARIANTS[name]
    tensors = RandomTensors(spec, forms, tied=tied, biases=biases)
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
    tensors = RandomTensors(spec, forms, tied=tied, biases=biases)
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
    tensors = RandomTensors(spec, forms, tied=tied, biases=biases)
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


@pytest.mark.slow
def test_B089_the_default_model_counts_to_ten(native, isas, helpers, default_tensors):
    checkpoint = default_tensors
    for isa in isas:
        model = Model(native(isa), checkpoint.spec, checkpoint.tensors, helpers)
        count = 51 if isa == isas[0] else 6
        assert greedy_reply(model, COUNT_IDS, [1, 2, 3], count) == COUNT_REPLY[:count], isa


def test_B001_the_default_model_repeats_the_melting_face(native, helpers, default_tensors):
    model = Model(native(), default_tensors.spec, default_tensors.tensors, helpers)
    assert greedy_reply(model, FACES_IDS, [1, 2, 3], 24) == FACES_IDS
