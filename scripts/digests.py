"""Digests of what the native library computes from the same inputs, to compare instruction sets and machines.

    python scripts/digests.py              # a line "sha256  case" for every case
    python scripts/digests.py EXPECTED     # compared with such lines, from another machine

Every case is computed with each instruction set of this machine, by one thread and by two; exits with 1 and
the name of the first that differs. Needs numpy alone. Inputs come from integers, and from operations that
round the same way everywhere: no function of libm takes part.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_int, c_uint32, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine.models.decoder import decoder
from engine.models.placing import place
from engine.models.rope import rotation_tables
from engine.models.spec import LayerSpec, ModelSpec, RopeSpec
from engine.quantization import quantize
from kernels import sampling as rules
from kernels.cache_format import CacheShape
from kernels.formats import group_count
from kernels.interface import BackendSettings
from kernels.native.backend import NativeBackend
from kernels.native.library import kernels
from kernels.noise import gumbel, hash32, token_words
from kernels.program import Limits
from kernels.step import Step
from kernels.weights import Packed, Plain, Weight

Open = Callable[[], Any]
"""Opens a backend with the instruction set and the threads in question, for a `with` block."""
Arrays = Iterator[np.ndarray]

BLOCK, BLOCKS = 16, 40  # positions of a block, blocks of a sequence
NOISY_IDS = 1_000_000


def digest(arrays: Arrays) -> str:
    """sha256 of types, shapes and bits. Which of the many NaNs a value is has no meaning, and differs."""
    result = hashlib.sha256()
    for array in arrays:
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        result.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return result.hexdigest()


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """float32 that look normally distributed: sums of four uniform integers, scaled."""
    return (rng.integers(-(2**20), 2**20, (4, *shape)).sum(axis=0) * 2.0**-20).astype(np.float32)


def matrix(rng: np.random.Generator, form: str, rows: int, columns: int) -> Weight:
    """A weight in one of the canonical forms."""
    if form in ("q4", "q8"):
        groups = group_count(columns)
        units = rng.integers(0, 1024, (rows, groups))
        scales = (units * 2.0 ** (-16 if form == "q4" else -19)).astype(np.float16)
        if form == "q8":
            codes = rng.integers(-128, 128, (rows, groups, 32)).astype(np.int8)
            return Packed("q8", (rows, columns), codes, scales)
        nibbles = rng.integers(0, 256, (rows, groups, 16)).astype(np.uint8)
        return Packed("q4", (rows, columns), nibbles, scales, scales * np.float16(-7))
    values = numbers(rng, rows, columns) * np.float32(0.125)
    if form == "bf16":
        return Plain((values.view(np.uint32) >> 16).astype(np.uint16), "bf16")
    return Plain(values.astype(np.float16), "f16") if form == "f16" else Plain(values, "f32")


class RandomTensors(dict[str, Weight]):
    """Weights of a model by canonical name; the matrices have the given forms by turns."""

    def __init__(self, spec: ModelSpec, forms: list[str], tied: bool, biases: bool) -> None:
        rng = np.random.default_rng(1)
        q, kv, ff, width = spec.sizes(0).q_columns, spec.sizes(0).kv_columns, spec.feed_forward, spec.width
        matrices = {"q": (q, width), "k": (kv, width), "v": (kv, width), "output": (width, q)}
        matrices |= {"gate": (ff, width), "up": (ff, width), "down": (width, ff)}
        vectors = {"attention_norm": width, "mlp_norm": width}
        if spec is SHARED:
            vectors |= {"q_norm": spec.head_dim, "k_norm": spec.head_dim}
        if biases:
            vectors |= {"q_bias": q, "v_bias": kv, "output_bias": width}
        shapes = {"embedding": (spec.vocabulary, width)} | (
            {} if tied else {"head": (spec.vocabulary, width)}
        )
        layers = range(len(spec.layers))
        shapes |= {f"{i}.{name}": shape for i in layers for name, shape in matrices.items()}
        lengths = {"norm": width}
        lengths |= {f"{i}.{name}": length for i in layers for name, length in vectors.items()}
        for i, (name, shape) in enumerate(shapes.items()):
            self[name] = matrix(rng, forms[i % len(forms)], *shape)
        for name, length in lengths.items():
            values = np.float32(0.125) * numbers(rng, length)
            self[name] = Plain(values if name.endswith("bias") else 1 + values, "f32")

    has = dict.__contains__


def sampling(rng: np.random.Generator, samples: int, vocabulary: int) -> dict[str, np.ndarray]:
    """Settings of every kind: a third of the rows have penalties, as many a bias."""

    def pick(*values: float) -> np.ndarray:
        return rng.choice(np.array(values, np.float32), samples)

    def lists() -> tuple[np.ndarray, np.ndarray]:
        counts = np.where(rng.integers(0, 3, samples) == 0, rng.integers(0, min(vocabulary, 200), samples), 0)
        ids = [rng.permutation(vocabulary)[:count] for count in counts]
        return np.cumsum([0, *counts]).astype(np.int32), np.concatenate([*ids, []]).astype(np.int32)

    (seen_offsets, seen_ids), (bias_offsets, bias_ids) = lists(), lists()
    bias = numbers(rng, bias_ids.size)
    bias[rng.integers(0, 5, bias.size) == 0] = -np.inf
    return {
        "temperature": pick(0, 1e-6, 0.1, 0.7, 1, 1, 1, 1.5, 5),
        "top_k": rng.choice(np.array([0, 0, 0, 1, 2, 40, 65, 300, 10**9], np.int32), samples),
        "top_p": pick(1, 1, 1, 0, 0.5, 0.9, 0.95, 0.999),
        "min_p": pick(0, 0, 0, 0.02, 0.1, 1, 1e-9),
        "repetition": pick(1, 1.1, 2, 0.5),
        "presence": pick(0, 0.5, -1),
        "frequency": pick(0, 0.1, -0.3),
        "seeds": rng.integers(0, 2**64, samples, np.uint64),
        "draw_positions": rng.integers(0, 10000, samples),
        "seen_offsets": seen_offsets,
        "seen_ids": seen_ids,
        "seen_counts": rng.integers(0, 4, seen_ids.size).astype(np.int32),
        "bias_offsets": bias_offsets,
        "bias_ids": bias_ids,
        "bias_values": bias,
    }


def tiny(**changes: Any) -> ModelSpec:
    """A model with the parts of a large one: grouped queries, and sizes that fill no tile."""
    sizes = {
        "layers": (LayerSpec(),) * 2,
        "width": 72,
        "heads": 6,
        "kv_heads": 2,
        "head_dim": 16,
        "feed_forward": 100,
    }
    sizes |= {"vocabulary": 130, "context_length": 640}
    return ModelSpec(**{"architecture": "llama", "norm_eps": 1e-5, **sizes, **changes})


def serve(
    spec: ModelSpec, forms: str, start: Open, kv: Any = "float16", tied: bool = False, biases: bool = False
) -> Arrays:
    """Five conversations, one longer than two spans of attention: prompts in chunks, then sampled tokens."""
    rng, tensors = np.random.default_rng(3), RandomTensors(spec, forms.split(), tied, biases)
    histories = [rng.integers(0, spec.vocabulary, n).tolist() for n in (1, 31, 33, 70, 560)]
    blocks = (1 + rng.permutation(5 * BLOCKS)).reshape(5, BLOCKS).astype(np.int32)
    done = [0] * 5
    with start() as backend:
        weights = place(spec, tensors, backend)
        shape = CacheShape(spec.cached, 5 * BLOCKS + 1, BLOCK, kv)
        backend.allocate_cache(shape)
        limits = Limits(256, 256, 5, BLOCKS)
        program = backend.capture(lambda ops, inputs: decoder(ops, spec, weights, inputs), limits)
        for _ in range(40):
            counts = [min(int(rng.integers(0, 51)), len(h) - n) for h, n in zip(histories, done, strict=True)]
            places = [(i, done[i] + j) for i, count in enumerate(counts) for j in range(count)]
            step = Step.of(
                tokens=np.array([histories[i][p] for i, p in places], np.int32),
                positions=np.array([p for _, p in places], np.int32),
                slots=np.array([blocks[i, p // BLOCK] * BLOCK + p % BLOCK for i, p in places], np.int32),
                sequences=np.array([i for i, _ in places], np.int32),
                block_tables=blocks,
                sample_rows=np.arange(len(places), dtype=np.int32),
                **sampling(rng, len(places), spec.vocabulary),
            )
            output = program.launch(step, logits=True).result()
            yield output.logits
            yield output.tokens
            done = [n + count for n, count in zip(done, counts, strict=True)]
            for (i, p), token in zip(places, output.tokens.tolist(), strict=True):
                if p + 1 == len(histories[i]) < 600:
                    histories[i].append(max(0, token))


def counting(rows: int, settings: dict[str, np.ndarray]) -> Step:
    """A step of the tokens 0, 1, 2 and so on."""
    return Step.of(tokens=np.arange(rows), block_tables=[[0]], sample_rows=np.arange(rows), **settings)


def table(start: Open, weight: Plain, step: Step) -> tuple[np.ndarray, np.ndarray]:
    """Tokens sampled with the rows of a weight as logits, and these logits as they are given out."""
    rows = weight.shape[0]
    with start() as backend:
        placed = backend.place_matrix(weight)

        def forward(ops: Any, inputs: Any) -> Any:
            logits = ops.gather(ops.embedding(placed, inputs.tokens), inputs.sample_rows)
            return ops.sample(logits, inputs.sampling)

        output = backend.capture(forward, Limits(rows, rows, 1, 1)).launch(step, logits=True).result()
        return output.tokens, output.logits.copy()


def draws(vocabulary: int, start: Open) -> Arrays:
    """Tokens drawn under all kinds of settings from flat, peaked, tied, forbidden and broken rows."""
    rng, samples = np.random.default_rng(4), 40
    for _ in range(10 if vocabulary <= 1000 else 2):
        logits = numbers(rng, samples, vocabulary)
        logits *= rng.choice(np.array([0.125, 1, 4, 16], np.float32), (samples, 1))
        logits[::3] = np.rint(logits[::3])
        logits[rng.integers(0, 20, logits.shape) == 0] = -np.inf
        logits[1, -1], logits[2, -1], logits[3] = np.nan, np.inf, -np.inf
        step = counting(samples, sampling(rng, samples, vocabulary))
        tokens, _ = table(start, Plain(logits, "f32"), step)
        if not np.array_equal(tokens, rules.sample(logits, step)):
            raise ValueError("not the tokens of kernels/sampling.py")
        yield tokens


def widened(form: Any, start: Open) -> Arrays:
    """All 65,536 values of a 16-bit format as float32."""
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    weight = Plain(bits.view(np.float16) if form == "f16" else bits, form)
    yield from table(start, weight, counting(256, sampling(np.random.default_rng(5), 256, 256)))


def noise(start: Open) -> Arrays:
    """The noise of a million tokens in one draw. It never leaves the library, so its function is called."""
    low, high = 0x243F6A88, 0x85A308D3
    ids, zeros = np.arange(NOISY_IDS, dtype=np.int32), np.zeros(NOISY_IDS, np.float32)
    result = np.empty_like(zeros)
    with start() as backend:
        functions = (c_void_p * 2).from_address(kernels(backend.cpu_isa))  # Kernels of kernels.hpp
        add_noise = CFUNCTYPE(None, c_void_p, c_void_p, c_int, c_uint32, c_uint32, c_void_p)(functions[-1])
        add_noise(zeros.ctypes.data, ids.ctypes.data, NOISY_IDS, low, high, result.ctypes.data)
    if not np.array_equal(result, gumbel(hash32(np.array([low, high], np.uint32), token_words(NOISY_IDS)))):
        raise ValueError("not the noise of kernels/noise.py")
    yield result


def rotations(_: Open) -> Arrays:
    """The engine's tables for kinds of models that people use."""
    scaled = {"llama3": RopeSpec(base=5e5, scaling="llama3", factor=8.0, original_context=8192)}
    scaled["yarn"] = RopeSpec(base=1e6, scaling="yarn", factor=4.0, original_context=32768)
    for rope in (*(RopeSpec(base=base) for base in (1e4, 1e5, 5e5, 1e6)), *scaled.values()):
        for head_dim in (64, 80, 128):
            yield from rotation_tables(rope, head_dim, 8192)


def quantized(_: Open) -> Arrays:
    """Weights as the engine quantizes them."""
    values = numbers(np.random.default_rng(6), 200, 300)
    q8, q4 = quantize(values, "q8"), quantize(values, "q4")
    yield from (q8.codes, q8.scales, q4.codes, q4.scales, q4.minima)


SWAPPED = tiny(layers=(LayerSpec(rope=RopeSpec(layout="interleaved")),) * 2)
WINDOW = tiny(kv_heads=6, layers=(LayerSpec(), LayerSpec(window=24)))
ODD = tiny(width=99, heads=3, kv_heads=3, head_dim=26, feed_forward=64)
SHARED = tiny(kv_heads=1)  # with norms on its heads
CASES: dict[str, Callable[[Open], Arrays]] = {
    "rotation tables": rotations,
    "quantizing": quantized,
    "float16 values": partial(widened, "f16"),
    "bfloat16 values": partial(widened, "bf16"),
    "noise": noise,
    **{f"draws from {n} tokens": partial(draws, n) for n in (7, 1000, 49152)},
    "decoder of q4": partial(serve, tiny(feed_forward=96), "q4", tied=True),
    "decoder of q8, float32 cache": partial(serve, SWAPPED, "q8", kv="float32"),
    "decoder of all formats, window": partial(serve, WINDOW, "q4 bf16 q8 f16 f32", tied=True, biases=True),
    "decoder of float32, one key head": partial(serve, SHARED, "f32", kv="float32"),
    "decoder of q8 and q4, odd sizes": partial(serve, ODD, "q8 q4 q4", biases=True),
    "decoder of q4, int8 cache": partial(serve, tiny(), "q4", kv="int8"),
}


@contextmanager
def opened(isa: str, threads: int) -> Iterator[NativeBackend]:
    """A backend, closed at the end."""
    backend = NativeBackend(BackendSettings(cpu_isa=isa, threads=threads))
    try:
        yield backend
    finally:
        backend.close()


def main() -> None:
    """Compute every case in every way there is here."""
    expected: dict[str, str] = {}
    if sys.argv[1:]:
        lines = Path(sys.argv[1]).read_text().splitlines()
        expected = {case: bits for bits, case in (line.split("  ", 1) for line in lines)}
        if expected.keys() != CASES.keys():
            sys.exit(f"{sys.argv[1]} has not the cases of this script")
    isas = [isa for isa in ("portable", "avx2", "avx512", "amx") if kernels(isa)]
    for case, compute in CASES.items():
        for isa, threads in ((isa, threads) for isa in isas for threads in (1, 2)):
            try:
                bits = digest(compute(partial(opened, isa, threads)))
                if expected.setdefault(case, bits) != bits:
                    raise ValueError("other bits")
            except ValueError as error:
                sys.exit(f"{case}, {isa}, {threads} thread{'s' * (threads > 1)}: {error}")
        print(f"{expected[case]}  {case}", flush=True)
    print(f"{len(CASES)} cases agree: {', '.join(isas)}, 1 and 2 threads", file=sys.stderr)


if __name__ == "__main__":
    main()
