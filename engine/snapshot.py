"""Builds the immutable picture of the engine that other threads may read."""

from __future__ import annotations

import time
from typing import Literal

from .bandwidth import PeakBandwidth
from .blocks import BlockPool
from .metrics import EngineMetrics, percentile, rate_within
from .model import LoadedModel
from .request import Request
from .scheduler import Scheduler
from .speculative.drafter import ComputingDrafter
from .speculative.speculation import DraftFigures
from .types import ConversationRow, EngineSnapshot

State = Literal["loading", "ready", "failed", "closed"]


def take_snapshot(
    state: State,
    model: LoadedModel,
    scheduler: Scheduler,
    metrics: EngineMetrics,
    requests: list[Request],
    peak: PeakBandwidth,
    drafts: DraftFigures,
) -> EngineSnapshot:
    """The engine's state between two steps."""
    now = time.perf_counter()
    window, achieved = metrics.window(now), metrics.bandwidth_gbs(now)
    peak.achieved(metrics.best_alone)
    best = peak.best
    pool = scheduler.pool
    latest = metrics.first_tokens[-1] if metrics.first_tokens else None
    intervals = [seconds * 1e3 for seconds in metrics.intervals]
    ttfts = [times.ttft_ms for times in metrics.first_tokens if times.ttft_ms is not None]
    drafter = model.drafter if isinstance(model.drafter, ComputingDrafter) else None
    draft_memory = 0 if drafter is None else drafter.memory_bytes
    of_token = model.runner.traffic.written_bytes + (0 if drafter is None else drafter.bytes_per_token)
    written = (pool.used + pool.cached) * pool.block_size * of_token
    return EngineSnapshot(
        state=state,
        backend=model.runner.backend,
        device=model.runner.device,
        exact=model.runner.exact,
        replaced=model.runner.replaced,
        model=model.name,
        ranks=model.ranks,
        loaded=1.0,
        time=now,
        running=len(scheduler.running),
        waiting=len(scheduler.waiting) + sum(request.sequence is None for request in requests),
        blocks_total=pool.total,
        blocks_free=pool.free,
        blocks_cached=pool.cached,
        blocks_used=pool.used,
        block_size=pool.block_size,
        kv_utilisation=utilisation(pool, scheduler),
        preemptions=scheduler.preemptions,
        steps=metrics.steps,
        last_step_rows=metrics.last_step_rows,
        tokens_total=metrics.tokens_total,
        prefix_tokens_saved=scheduler.prefix_tokens_saved,
        draft_tokens=sum(drafts.tried),
        accepted_tokens=sum(drafts.kept),
        draft=drafts.name,
        draft_off=drafts.off,
        draft_memory_bytes=draft_memory,
        drafts_tried=drafts.tried,
        drafts_kept=drafts.kept,
        ttft_ms=latest.ttft_ms if latest else None,
        ttft_p50_ms=percentile(ttfts, 0.5),
        queue_ms=latest.queue_ms if latest else None,
        prefill_ms=latest.prefill_ms if latest else None,
        itl_ms=percentile(intervals, 0.5),
        itl_p95_ms=percentile(intervals, 0.95),
        itl_recent_ms=tuple(intervals),
        itl_count=metrics.interval_count,
        tokens_per_second=metrics.tokens_per_second(now),
        crowding=metrics.crowding,
        decode_bytes=metrics.decode_bytes,
        decode_seconds=metrics.decode_seconds,
        bandwidth_gbs=achieved,
        bandwidth_peak_gbs=None if best is None else max(best.gbs, achieved or 0.0),
        bandwidth_peak_quiet=best is None or best.quiet,
        bytes_per_token=model.runner.traffic.token_bytes(),
        memory_bytes=model.runner.weight_bytes + model.runner.working_bytes + draft_memory + written,
        conversations=tuple(_conversation(request, pool, window) for request in requests),
    )


def utilisation(pool: BlockPool, scheduler: Scheduler) -> float | None:
    """Token slots in use / slots of referenced blocks, shared ones counted once; None with nothing allocated.

    Only the last blocks of a table hold unused slots, and those are never shared.
    """
    allocated = pool.used * pool.block_size
    if allocated == 0:
        return None
    unused = sum(
        max(0, len(sequence.table.blocks) * pool.block_size - sequence.computed)
        for sequence in scheduler.running
    )
    return 1 - unused / allocated


def _conversation(request: Request, pool: BlockPool, window: tuple[float, float] | None) -> ConversationRow:
    sequence, times = request.sequence, request.token_times
    if sequence is None:  # its prompt is being tokenized
        return ConversationRow(request.id, "waiting", 0, None, None, 0, 0)
    if not sequence.table.blocks:  # not admitted yet, or preempted
        state: Literal["waiting", "prefill", "decode"] = "waiting"
    else:
        state = "decode" if times else "prefill"
    return ConversationRow(
        id=request.id,
        state=state,
        tokens=len(sequence.tokens),
        tokens_per_second=rate_within(times, window),
        ttft_ms=(times[0] - request.submitted) * 1e3 if times else None,
        blocks=len(sequence.table.blocks),
        shared_blocks=pool.shared(sequence.table),
    )
