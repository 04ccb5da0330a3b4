"""Everything worth knowing about termchat on an NVIDIA GPU, in less than eight minutes, without a network.

    PYTHONPATH=. python benchmarks/gpu_check.py [--seconds 460] [--out FILE] [--device cuda:0] [--tiny]

Needs torch, triton, transformers, tokenizers, numpy and jinja2, and no installation of termchat. Models are
random weights of real shapes. First what is right: each kernel against plain torch, logits against the
reference on the CPU, the same tokens alone, in a batch, in chunks, from the prefix cache, after preemption,
with drafts, with graphs and without. Then what is fast: decode and prefill as shares of a measured copy's
bandwidth, and transformers' continuous batching on the same shapes. Each line is printed, and added to the
JSON file, when it is known: a run that is cut off still tells. What there is no time for is said to be so.

--tiny: on a machine without a GPU, small shapes in Triton's interpreter: whether this script works.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_kernels import copy_bandwidth, kernels, machine, products
from gpu_report import GIGA, Report, Sizes, sizes


def prompt_of(index: int, length: int, vocabulary: int) -> list[int]:
    """Token ids, other ones for every index."""
    return [(7 + 31 * index + 17 * i * (index + 1)) % vocabulary for i in range(length)]


def config_of(model: Any, args: argparse.Namespace, **more: Any) -> Any:
    """An engine's configuration, of which most is measured without drafts."""
    from engine import EngineConfig

    given = {"device": args.device, "backend": args.backend, "draft_model": "none"}
    return EngineConfig(model=model, findings=args.findings, **{**given, **more})


async def replies(config: Any, prompts: list[list[int]], tokens: int, *, together: bool) -> list[list[int]]:
    """Greedy replies."""
    from engine import AsyncEngine, SamplingParams

    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    async with AsyncEngine(config) as engine:

        async def one(prompt: list[int]) -> list[int]:
            finished = await engine.generate(prompt, params).result()
            if finished.error is not None:
                raise RuntimeError(f"{finished.error.code}: {finished.error.message}")
            return list(finished.token_ids)

        if together:
            return list(await asyncio.gather(*map(one, prompts)))
        return [await one(prompt) for prompt in prompts]


async def exactness(report: Report, args: argparse.Namespace, sizes: Sizes) -> None:
    """Logits of the reference, and the same tokens whatever else is computed."""
    from gpu_models import RandomModel

    from engine import AsyncEngine

    shape = sizes.small
    prompts = [prompt_of(i, n, shape.vocabulary) for i, n in enumerate(sizes.prompts)]
    small = {"context_length": 512 if not args.tiny else 96, "kv_blocks": 128 if not args.tiny else 12}
    if not args.tiny:
        scores = {}
        for backend, device in (("reference", "cpu"), (args.backend, args.device)):
            more = {**small, "backend": backend, "device": device, "dtype": "float32", "kv_dtype": "float32"}
            async with AsyncEngine(config_of(RandomModel(shape, "f32"), args, **more)) as engine:
                scores[backend] = await engine.score(prompts[0])
        worst = float(abs(scores["reference"] - scores[args.backend]).max())
        report.add("exactness", "log-probabilities against the reference", worst, "", "largest difference")
    for format in ("q4",) if args.tiny else ("bf16", "q4", "q8"):
        model = RandomModel(shape, format)
        alone = await replies(config_of(model, args, **small), prompts, sizes.reply, together=False)
        few = -(-max(map(len, prompts)) // 32) + 4
        variants: dict[str, tuple[Any, dict[str, Any], list[list[int]]]] = {
            "batched": (model, {}, prompts),
            "chunked": (model, {"prefill_chunk": 16}, prompts),
            "prefix hit": (model, {}, [*prompts, *prompts]),
            "preempted": (model, {"kv_blocks": few, "prefix_cache": False}, prompts),
            "drafted": (model, {"draft_model": "ngram"}, prompts),
            "without graphs": (replace(model, graphs=False), {}, prompts),
        }
        for name in sizes.variants:
            source, more, asked = variants[name]
            found = await replies(
                config_of(source, args, **{**small, **more}),
                asked,
                sizes.reply,
                together=name != "prefix hit",
            )
            same = all(found[i] == alone[i % len(prompts)] for i in range(len(asked)))
            report.add("exactness", f"{format} {name}: tokens as alone", same)


@dataclass(slots=True)
class Rates:
    """Of replies to prompts that began together. decode: tokens a second while all of them were at it."""

    ttft: float
    decode: float
    system: float
    tokens: list[list[int]]


async def rates(engine: Any, prompts: list[list[int]], tokens: int) -> Rates:
    """Ask for replies together."""
    from engine import SamplingParams, TextDelta

    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    started = time.perf_counter()

    async def one(prompt: list[int]) -> list[tuple[float, list[int]]]:
        seen = []
        async with engine.generate(prompt, params) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    seen.append((time.perf_counter() - started, list(event.token_ids)))
                elif event.error is not None:
                    raise RuntimeError(f"{event.error.code}: {event.error.message}")
        return seen

    found = await asyncio.gather(*map(one, prompts))
    begin, end = max(seen[0][0] for seen in found), min(seen[-1][0] for seen in found)
    between = sum(len(ids) for seen in found for at, ids in seen if begin < at <= end)
    every = sum(len(ids) for seen in found for _, ids in seen)
    last = max(seen[-1][0] for seen in found)
    decode = between / (end - begin) if end > begin else 0.0
    return Rates(
        found[0][0][0], decode, every / last, [[t for _, ids in seen for t in ids] for seen in found]
    )


async def speed(
    report: Report, args: argparse.Namespace, sizes: Sizes, shape: Any, format: str, peak: float, exact: bool
) -> None:
    """Decode at several numbers of streams, prefill and speculation of one model. exact: see EngineConfig."""
    from gpu_models import Oracle, RandomModel

    from engine import AsyncEngine

    name = f"{shape.name} {format}" if exact else f"{shape.name} {format}, not exact"
    model = RandomModel(shape, format)
    most = max(sizes.streams)
    more = {
        "context_length": sizes.context,
        "max_batch_tokens": max(2048, most) if not args.tiny else 64,
        "max_sequences": most,
        "exact": exact,
    }
    if args.tiny:
        more["kv_blocks"] = 12
    started = time.monotonic()
    async with AsyncEngine(config_of(model, args, **more)) as engine:
        report.add(
            name, "load", time.monotonic() - started, "s", f"{model.weight_bytes / GIGA:.2f} GB a step"
        )
        prompts = [prompt_of(i, 32 if not args.tiny else 5, shape.vocabulary) for i in range(most)]
        once = Rates(0, 0, 0, [])
        for streams in sizes.streams:
            if report.left() < 40:
                report.add(name, f"decode, {streams} streams", "not measured", note="no time left")
                continue
            if not args.tiny:  # compiles, and records graphs
                await rates(engine, prompts[:streams], 6)
            found = await rates(engine, prompts[:streams], sizes.decoded)
            if streams == 1:
                once = found
            share = model.weight_bytes * found.decode / streams / peak
            note = f"weights at {share:.0%} of a copy" if not shape.experts else ""
            report.add(name, f"decode, {streams} streams", found.decode, "tokens/s", note)
            if streams == 64:
                report.add(name, "64 streams from submit to last token", found.system, "tokens/s")
        for length in sizes.prefills:
            if report.left() < 40:
                report.add(name, f"prefill of {length}", "not measured", note="no time left")
                continue
            if not args.tiny:
                await rates(engine, [prompt_of(500 + length, length, shape.vocabulary)], 1)
            found = await rates(engine, [prompt_of(900 + length, length, shape.vocabulary)], 1)
            report.add(name, f"prefill of {length}", length / found.ttft, "tokens/s")
            report.add(name, f"time to first token, {length}", found.ttft * 1e3, "ms")
    if once.tokens and exact and not args.tiny and report.left() > 60:
        model.drafter = Oracle([prompts[0] + once.tokens[0]], 0.8)
        more.update(draft_model="ngram", draft_tokens=4, context_length=1024, max_sequences=8)
        async with AsyncEngine(config_of(model, args, **more)) as engine:
            await rates(engine, prompts[:1], 8)
            found = await rates(engine, prompts[:1], sizes.decoded)
            same = "the same tokens" if found.tokens == once.tokens else "OTHER TOKENS"
            report.add(name, "1 stream, 4 drafts, 80 % right", found.decode, "tokens/s", same)


def transformers_batching(report: Report, sizes: Sizes, device: Any) -> None:
    """transformers with continuous batching on the dense shape in bf16: 64 streams, as above."""
    import torch
    import transformers

    shape = sizes.measured[0][0]
    config = transformers.LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
    )
    config._attn_implementation = "sdpa"
    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = transformers.LlamaForCausalLM(config).eval()
        finally:
            torch.set_default_dtype(torch.float32)
    inputs = [prompt_of(i, 32, shape.vocabulary) for i in range(64)]
    settings = transformers.GenerationConfig(
        max_new_tokens=sizes.decoded, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    # A manager that is kept has its graphs already when it is asked again.
    known = inspect.signature(model.generate_batch).parameters
    options = {k: v for k, v in {"persistent_manager": True, "progress_bar": False}.items() if k in known}
    for _ in range(2):
        started = time.perf_counter()
        outputs = model.generate_batch(inputs=inputs, generation_config=settings, **options)
        took = time.perf_counter() - started
    tokens = sum(len(output.generated_tokens) for output in outputs.values())
    report.add("transformers", "64 streams from submit to last token", tokens / took, "tokens/s", "bf16")


def sections(report: Report, args: argparse.Namespace) -> Iterator[tuple[str, float, Callable[[], Any]]]:
    """In order: a name, seconds that have to be left for it, and what to do."""
    import torch

    own = sizes(args.tiny)
    device = torch.device(args.device)
    peak = [1.0]

    def copying() -> None:
        peak[0] = copy_bandwidth(report, device, own.copied)

    def measure(shape: Any, format: str, sizes: Sizes = own, exact: bool = True) -> Callable[[], Any]:
        return lambda: asyncio.run(speed(report, args, sizes, shape, format, peak[0], exact))

    (first, *others) = own.measured
    yield "machine", 0, lambda: machine(report, device)
    yield "copy", 0, copying
    yield "kernels", 60, lambda: kernels(report, Path(args.findings), device, own.kernels)
    yield "products", 60, lambda: products(report, device, own, peak[0])
    yield "exactness", 60, lambda: asyncio.run(exactness(report, args, own))
    yield f"{first[0].name} {first[1]}", 60, measure(*first)
    if args.tiny:
        report.add("transformers", "64 streams", "not measured", note="needs a GPU")
        report.add("not exact", "products of the vendor", "not measured", note="needs a GPU")
    else:
        yield "transformers", 60, lambda: transformers_batching(report, own, device)
        few = replace(own, streams=(1, 64), prefills=own.prefills[:1])
        yield "not exact", 60, measure(*first, few, exact=False)
    for shape, format in others:
        yield f"{shape.name} {format}", 60, measure(shape, format)


def main() -> int:
    """Run all sections; 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=460.0, help="no section begins without time for it")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"), help="where the figures go")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="small shapes, also without a GPU")
    args = parser.parse_args()
    args.backend = "triton"
    started = time.monotonic()
    import torch

    if args.tiny and not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
        args.device = "cpu"
    elif not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} finds no CUDA GPU; --tiny tries this script without one")
    report = Report(args.out, started + args.seconds)
    with tempfile.TemporaryDirectory() as args.findings:
        failed = run_all(report, args)
    report.add("machine", "all of it took", time.monotonic() - started, "s")
    return int(failed)


def run_all(report: Report, args: argparse.Namespace) -> bool:
    """Run the sections there is time for; whether one failed."""
    failed = False
    for name, needed, run in sections(report, args):
        if report.left() < needed:
            report.add(name, "all of it", "not measured", note="no time left")
            continue
        try:
            run()
        except Exception as error:  # the other sections still tell
            failed = True
            report.add(name, "failed", type(error).__name__, note=(str(error).splitlines() or [""])[0][:200])
        release()
    return failed


def release() -> None:
    """Give back what a section has held."""
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
