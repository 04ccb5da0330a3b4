"""Bytes a step moves, what one token costs at batch 1, and how much memory the KV cache may take.

Decode is limited by memory bandwidth, so bytes / peak is the floor of a step (roofline model, Williams et al.
2009).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from kernels.interface import CacheShape

from .config import EngineConfig
from .models.spec import ModelSpec
from .scheduler import StepPlan
from .types import EngineError

KV_SHARE_OF_MEMORY = 0.25
"""Part of the free memory that the KV cache may take when nobody says how much."""


class Traffic(NamedTuple):
    """Bytes of one step: weights are read once, keys and values once a token.

    weight_bytes: read by every step (an untied embedding table is not: only its rows are).
    """

    weight_bytes: int
    kv_bytes_per_token: int

    def step_bytes(self, plan: StepPlan) -> int:
        """Weights, keys and values read by the plan's rows, and keys and values they write.

        The rows of a chunk read their common past once.
        """
        kv = sum(row.start + 2 * row.count for row in plan.rows)
        return self.weight_bytes + kv * self.kv_bytes_per_token

    def token_bytes(self, context: int = 0) -> int:
        """Bytes one token costs alone, with this many tokens before it; peak / this is the tok/s ceiling."""
        return self.weight_bytes + (context + 2) * self.kv_bytes_per_token


def free_memory() -> int:
    """Bytes of main memory that can be taken now, within the control group's limit."""
    try:
        pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        pages = 4 << 30
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            pages = int(line.split()[1]) * 1024
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        values = [*_lines(limit), *_lines(used)]
        if len(values) == 2 and values[0].isdecimal() and values[1].isdecimal():
            pages = min(pages, max(0, int(values[0]) - int(values[1])))
    return pages


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def plan_cache(config: EngineConfig, spec: ModelSpec, context_length: int) -> CacheShape:
    """How many blocks the KV cache gets: kv_blocks, else kv_memory, else a quarter of the free memory.

    Never more than max_sequences full contexts need. Raises EngineError(out_of_memory) if not even a block
    fits.
    """
    dtype = "float16" if config.kv_dtype == "auto" else config.kv_dtype
    one = CacheShape(spec.layers, 1, config.block_size, spec.kv_heads, spec.head_dim, dtype)
    blocks = config.kv_blocks
    if blocks is None:
        memory = config.kv_memory if config.kv_memory is not None else int(free_memory() * KV_SHARE_OF_MEMORY)
        useful = config.sequences * -(-context_length // config.block_size)
        blocks = min(memory // one.nbytes, useful)
        if blocks < 1:
            raise EngineError(
                "out_of_memory",
                f"the KV cache needs at least {one.nbytes:,} bytes for one block, "
                f"but kv_memory is {memory:,} bytes",
            )
    return CacheShape(spec.layers, blocks, config.block_size, spec.kv_heads, spec.head_dim, dtype)
