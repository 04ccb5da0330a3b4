"""Single kernels on a GPU: whether they are right, and how fast products are beside torch's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_report import GIGA, Report, Sizes


def machine(report: Report, device: Any) -> None:
    """What is measured on."""
    import platform

    import torch
    import triton

    report.add("machine", "python", platform.python_version())
    report.add("machine", "torch", torch.__version__)
    report.add("machine", "triton", triton.__version__)
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        report.add("machine", "gpu", about.name, note=f"compute capability {about.major}.{about.minor}")
        free, total = torch.cuda.mem_get_info(device)
        report.add("machine", "memory", free / GIGA, "GB free", f"of {total / GIGA:.0f}")


def copy_bandwidth(report: Report, device: Any, nbytes: int) -> float:
    """Bytes a second that a copy reads and writes: the best of twenty."""
    import torch

    source = torch.empty(nbytes, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(20):
        wait(device)
        started = time.perf_counter()
        target.copy_(source)
        wait(device)
        best = min(best, time.perf_counter() - started)
    report.add("machine", "copy bandwidth", 2 * nbytes / best / GIGA, "GB/s", "read and written")
    return 2 * nbytes / best


def wait(device: Any) -> None:
    """Until the device is done."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def kernels(report: Report, findings: Path, device: Any, names: tuple[str, ...]) -> None:
    """Each kernel against its twin in plain torch, and whether rows have bits of their own.

    What is found is left where engines look for it, so that they do not look at all of it again.
    """
    import torch

    from kernels.triton.exactness import rows_are_independent
    from kernels.triton.self_check import Finding, Record, complaint
    from kernels.triton.table import KERNELS

    failed, exact = {}, True
    for kernel in KERNELS:
        if names and kernel.name not in names:
            continue
        if report.left() < 240 and not names:
            report.add("kernels", kernel.name, "not checked", note="no time left")
            continue
        started = time.monotonic()
        with torch.inference_mode():
            why = complaint(kernel, device).why
        if why:
            failed[kernel.name] = why
        took = f"{time.monotonic() - started:.1f} s with compiling"
        report.add("kernels", kernel.name, "wrong" if why else "ok", note=why or took)
    if not names:
        with torch.inference_mode():
            use = {k.name: k.twin if k.name in failed else k.compute for k in KERNELS}
            exact = rows_are_independent(use, device)
        report.add("kernels", "rows have bits of their own", exact)
    Record(findings, device).write(Finding(failed, exact))


def seconds_of(compute: Callable[[], Any], device: Any, repeats: int) -> float:
    """Of one call: the best of five times so many, which a GPU gets as one graph, without Python between."""
    import torch

    compute()
    again = compute
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                compute()
        again = graph.replay
    best = float("inf")
    for _ in range(5):
        wait(device)
        started = time.perf_counter()
        again()
        wait(device)
        best = min(best, time.perf_counter() - started)
    return best / (repeats if device.type == "cuda" else 1)


def products(report: Report, device: Any, sizes: Sizes, peak: float) -> None:
    """Products with large matrices of the first shape: weights against a copy, and torch's own in bf16."""
    import torch
    from gpu_models import RandomTensors

    from kernels.triton.linear import linear
    from kernels.triton.matrix import place

    shape = sizes.measured[0][0]
    tensors = RandomTensors(shape, "bf16", 0)
    for outputs, inputs in ((2 * shape.feed_forward, shape.width), (shape.width, shape.feed_forward)):
        theirs = {}
        for format in ("bf16", "q8", "q4"):
            matrix = place((tensors.matrix((outputs, inputs), format),), device)
            for rows in sizes.rows:
                x = torch.randn(rows, inputs, device=device)
                with torch.inference_mode():
                    ours = seconds_of(lambda m=matrix, x=x: linear(x, m), device, 20)
                    if format == "bf16":
                        values, short = matrix.blocks[0].values, x.bfloat16()
                        theirs[rows] = seconds_of(
                            lambda w=values, x=short: torch.nn.functional.linear(x, w), device, 20
                        )
                note = f"{theirs[rows] / ours:.2f} of torch's speed in bf16"
                if rows <= 64:
                    note += f"; weights at {matrix.nbytes / ours / peak:.0%} of a copy"
                report.add("products", f"{format} {outputs} x {inputs}, {rows} rows", ours * 1e6, "us", note)
