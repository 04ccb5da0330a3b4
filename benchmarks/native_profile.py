"""Where the time of a native step goes: bytes and operations of the model, its parts one by one, Python.

    python benchmarks/native_profile.py MODEL.gguf [--threads N] [--context TOKENS]

Of each part the fastest run counts, of the engine's steps the time that a fifth of them stay below: on a
machine with other work, medians say more about that.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from engine import AsyncEngine, EngineConfig, Message, SamplingParams
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.models.decoder import decoder
from engine.models.placing import place
from engine.models.weights import Weights
from kernels.cache_format import CacheShape
from kernels.interface import BackendSettings, Forward, Inputs, Operations, Value
from kernels.native.backend import NativeBackend
from kernels.native.library import load
from kernels.program import Limits, Program
from kernels.step import Step

BLOCK = 32
REPEATS = 40
REPLY = 80
GREEDY = SamplingParams(temperature=0, max_tokens=REPLY, ignore_eos=True)
SAMPLERS = {
    "greedy": GREEDY,
    "top-k 64": replace(GREEDY, temperature=1.0, top_k=64),
    "top-k 40, top-p 0.95": replace(GREEDY, temperature=1.0, top_k=40, top_p=0.95),
    "top-p 0.95": replace(GREEDY, temperature=1.0, top_p=0.95),
    "full vocabulary": replace(GREEDY, temperature=1.0),
}


def fifth(seconds: list[float]) -> float:
    """The 20th percentile in ms."""
    return float(np.quantile(seconds, 0.2)) * 1e3


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Markdown."""
    print("|", " | ".join(header), "|")
    print("|---" * len(header) + "|")
    for row in rows:
        print("|", " | ".join(row), "|")
    print()


def groups(checkpoint: Checkpoint) -> dict[str, list[str]]:
    """Tensor names of the matrices by the products they take part in."""
    layers = range(len(checkpoint.spec.layers))
    head = "head" if checkpoint.tensors.has("head") else "embedding"
    return {
        "q, k, v": [f"{i}.{name}" for i in layers for name in "qkv"],
        "attention output": [f"{i}.output" for i in layers],
        "gate, up": [f"{i}.{name}" for i in layers for name in ("gate", "up")],
        "down": [f"{i}.down" for i in layers],
        "head": [head],
    }


def print_costs(checkpoint: Checkpoint, peak: float, measured: dict[str, float]) -> None:
    """Bytes and operations of the products, counted from the file; their floor at the peak; ms measured."""
    rows, all_bytes, all_values = [], 0, 0

    def row(name: str, kinds: str, values: int, nbytes: int, ms: float) -> list[str]:
        floor = nbytes / peak * 1e3
        cells = [f"{values / 1e6:.2f}", f"{nbytes / 1e6:.2f}", f"{floor:.2f}", f"{ms:.2f}"]
        return [name, kinds, *cells, f"{nbytes / ms / 1e6:.1f}", f"{floor / ms:.0%}"]

    for name, tensors in groups(checkpoint).items():
        weights = [checkpoint.tensors.get(tensor) for tensor in tensors]
        kinds = {getattr(weight, "format", getattr(weight, "dtype", "")) for weight in weights}
        nbytes = sum(weight.nbytes for weight in weights if weight is not None)
        values = sum(int(np.prod(weight.shape)) for weight in weights if weight is not None)
        rows.append(row(name, ", ".join(sorted(kinds)), values, nbytes, measured[name]))
        all_bytes, all_values = all_bytes + nbytes, all_values + values
    rows.append(row("all", "", all_values, all_bytes, sum(measured[name] for name in groups(checkpoint))))
    rows.append(row("whole step", "", all_values, all_bytes, measured["whole step"]))
    header = [
        "matrices",
        "format",
        "million MACs a row",
        "MB",
        "floor, ms",
        "1 row, ms",
        "GB/s",
        "of the peak",
    ]
    print_table(header, rows)
    spec = checkpoint.spec
    shape = CacheShape(spec.cached, 1, BLOCK, "float16")
    attention = 2 * len(spec.layers) * spec.heads * spec.head_dim
    print(
        f"KV cache: {shape.bytes_per_token:,} bytes a token; attention: {attention:,} MACs for each earlier "
        f"token.\nPeak: plain reads of a buffer of the weights' size, {peak / 1e9:.1f} GB/s.\n"
    )


def step_batch(rows: int, context: int, vocabulary: int, *, prefill: bool) -> Step:
    """Rows of one prompt from its beginning, or one row each of sequences with `context` tokens."""
    sequences, length = (1, rows) if prefill else (rows, context + 1)
    width = -(-length // BLOCK)
    tables = np.arange(sequences * width, dtype=np.int32).reshape(sequences, width)
    positions = np.arange(rows, dtype=np.int32) if prefill else np.full(rows, context, np.int32)
    owners = np.zeros(rows, np.int32) if prefill else np.arange(rows, dtype=np.int32)
    samples = [rows - 1] if prefill else list(range(rows))
    return Step.of(
        tokens=np.random.default_rng(0).integers(0, vocabulary, rows).astype(np.int32),
        positions=positions,
        slots=(tables[owners, positions // BLOCK] * BLOCK + positions % BLOCK).astype(np.int32),
        sequences=owners,
        block_tables=tables,
        sample_rows=np.array(samples, np.int32),
        draw_positions=np.full(len(samples), length),
    )


def write_cache(program: Program, sequences: int, context: int, vocabulary: int) -> None:
    """Compute the tokens that the sequences of `step_batch` have: pages that nobody has written would all be
    read from one page of zeros.
    """
    width = -(-(context + 1) // BLOCK)
    for sequence in range(sequences):
        batch = step_batch(context, 0, vocabulary, prefill=True)
        first = sequence * width
        batch.slots += first * BLOCK
        batch.block_tables[:] = np.arange(first, first + batch.counts.table_width)
        program.launch(batch).result()


def parts(checkpoint: Checkpoint, weights: Weights) -> dict[str, Forward]:
    """Forwards that do one thing as often as the model does it, between a small beginning and a small end."""
    spec, layers = checkpoint.spec, weights.layers

    def forward(work: Callable[[Operations, Value, Inputs], object]) -> Forward:
        def run(ops: Operations, batch: Inputs) -> Value:
            x = ops.embedding(weights.embedding, batch.tokens)
            result = work(ops, x, batch)
            if result is None:  # the row itself is as good as logits here
                result = ops.gather(x, batch.sample_rows)
            return ops.sample(result, batch.sampling)

        return run

    def q_columns(ops: Operations, x: Value) -> Value:
        columns = (spec.sizes(0).q_columns, spec.sizes(0).kv_columns, spec.sizes(0).kv_columns)
        return ops.split(ops.linear(x, layers[0].qkv.matrix, planes=2), columns)

    def qkv(ops: Operations, x: Value, batch: Inputs) -> None:
        for layer in layers:
            ops.linear(x, layer.qkv.matrix, planes=2)

    def output(ops: Operations, x: Value, batch: Inputs) -> None:
        q = q_columns(ops, x)[0]
        for layer in layers:
            ops.linear(q, layer.output.matrix)

    def gate_up(ops: Operations, x: Value, batch: Inputs) -> None:
        for layer in layers:
            ops.linear(x, layer.network.gate_up.matrix)

    def down(ops: Operations, x: Value, batch: Inputs) -> None:
        gated = ops.gated(ops.linear(x, layers[0].network.gate_up.matrix))
        for layer in layers:
            ops.linear(gated, layer.network.down.matrix)

    def attention(ops: Operations, x: Value, batch: Inputs) -> None:
        q, k, v = q_columns(ops, x)
        (rotation,) = weights.rotations.values()
        q, k = (ops.rope(part, batch.positions, rotation) for part in (q, k))
        for layer in layers:
            ops.kv_write(layer.index, k, v, batch.slots)
            ops.paged_attention(layer.index, q, batch, scale=spec.head_dim**-0.5)

    def norms(ops: Operations, x: Value, batch: Inputs) -> None:
        wide = ops.linear(x, layers[0].network.gate_up.matrix)
        for layer in layers:
            ops.rms_norm(x, layer.attention_norm, spec.norm_eps)
            ops.rms_norm(x, layer.mlp_norm, spec.norm_eps)
            ops.gated(wide)

    def head(ops: Operations, x: Value, batch: Inputs) -> Value:
        return ops.linear(ops.gather(x, batch.sample_rows), weights.head)

    return {
        "whole step": lambda ops, batch: decoder(ops, spec, weights, batch),
        "empty": forward(lambda ops, x, batch: None),
        "q, k, v": forward(qkv),
        "attention output": forward(output),
        "gate, up": forward(gate_up),
        "down": forward(down),
        "head": forward(head),
        "KV write, attention": forward(attention),
        "norms, gates": forward(norms),
    }


def print_parts(checkpoint: Checkpoint, threads: int | None, context: int) -> None:
    """Times of the parts of steps of several sizes, measured in turns."""
    backend = NativeBackend(BackendSettings(threads=threads))
    spec = checkpoint.spec
    weights = place(spec, checkpoint.tensors, backend)
    width = -(-max(context + 1, 512) // BLOCK)
    backend.allocate_cache(CacheShape(spec.cached, 16 * width, BLOCK, "float16"))
    limits = Limits(rows=max(512, context), samples=16, sequences=16, blocks_per_sequence=width)
    programs = {
        name: backend.capture(forward, limits) for name, forward in parts(checkpoint, weights).items()
    }
    write_cache(programs["whole step"], 16, context, spec.vocabulary)
    sizes = {f"{rows} x decode": (rows, False) for rows in (1, 4, 8, 16)} | {"prefill of 512": (512, True)}
    columns: dict[str, dict[str, float]] = {}
    peaks = [backend.read_bandwidth(checkpoint.tensors.nbytes())]
    for size, (rows, prefill) in sizes.items():
        batch = step_batch(rows, context, spec.vocabulary, prefill=prefill)
        seconds: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(REPEATS // 5 if prefill else REPEATS):
            for name, program in programs.items():
                started = time.perf_counter()
                program.launch(batch).result()
                seconds[name].append(time.perf_counter() - started)
        peaks.append(backend.read_bandwidth(checkpoint.tensors.nbytes()))
        found = {name: min(values) * 1e3 for name, values in seconds.items()}
        empty, whole = found.pop("empty"), found.pop("whole step")
        columns[size] = {name: value - empty for name, value in found.items()}
        columns[size]["the rest"] = whole - sum(columns[size].values())
        columns[size]["whole step"] = whole
    print_costs(checkpoint, max(peaks[:2]), columns["1 x decode"])
    names = list(columns["1 x decode"])
    table = [[name, *(f"{column[name]:.2f}" for column in columns.values())] for name in names]
    print_table([f"ms, {context} tokens before", *columns], table)
    backend.close()


async def print_loop(model: Path, threads: int | None) -> None:
    """Time in the native call and in Python between two calls; consumers read along."""
    library = load()
    calls: list[tuple[float, float]] = []
    native_run = library.native_run

    def timed(*arguments: Any) -> Any:
        started = time.perf_counter()
        result = native_run(*arguments)
        calls.append((started, time.perf_counter()))
        return result

    rows = []
    async with AsyncEngine(
        EngineConfig(model=model, backend="native", threads=threads, draft_model="none")
    ) as engine:

        async def reader(params: SamplingParams) -> None:
            topic = random.randrange(10**9)
            stream = engine.generate([Message("user", f"Tell me a story about the number {topic}.")], params)
            async for _ in stream:
                pass

        library.native_run = timed
        try:
            for streams, name in [(1, "greedy"), *((16, name) for name in SAMPLERS)]:
                inside: list[float] = []
                between: list[float] = []
                for _ in range(3):
                    calls.clear()
                    await asyncio.gather(*(reader(SAMPLERS[name]) for _ in range(streams)))
                    steady = calls[REPLY // 4 :]  # all prompts are computed by then
                    inside += [end - start for start, end in steady]
                    between += [after[0] - before[1] for before, after in itertools.pairwise(steady)]
                cells = [f"{fifth(inside):.2f}", f"{fifth(between):.2f}", f"{np.median(between) * 1e3:.2f}"]
                rows.append([str(streams), name, *cells])
        finally:
            library.native_run = native_run
    print_table(["streams", "sampling", "native call, ms", "Python between, ms", "its median, ms"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--threads", type=int, help="CPU threads (all)")
    parser.add_argument("--context", type=int, default=256, help="tokens before the one decoded (256)")
    options = parser.parse_args()
    print_parts(open_checkpoint(options.model), options.threads, options.context)
    asyncio.run(print_loop(options.model, options.threads))


if __name__ == "__main__":
    main()
