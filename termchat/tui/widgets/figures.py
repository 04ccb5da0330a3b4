"""The panel's lines: each a label and figures, right-aligned. Pure functions of the statistics."""

from __future__ import annotations

from functools import lru_cache

from textual.content import Content

from ...cells import cell_len, fit
from ...draft_figures import DraftFigures
from ...render.wrap import rows_of
from ...units import (
    NOT_YET,
    count,
    milliseconds,
    milliseconds_each,
    number,
    percent,
    percent_each,
    rate,
    size,
)
from ..engines.stats import EngineStats
from ..glyphs import STYLES, Glyphs

MUTED = "$chat-muted"
MOST_SHARES = 6
"""Conversations listed one by one; of more only their number is shown."""


@lru_cache(512)  # most lines are as they were a fifth of a second ago
def pair(label: str, value: str, width: int, style: str = "", label_style: str = MUTED) -> Content:
    """A label on the left, a value on the right; the label gives way."""
    room = max(0, width - cell_len(value) - 1)
    return Content.assemble((cut(label, room), label_style), " ", (value, style))


def cut(text: str, width: int) -> str:
    """Exactly `width` cells of one line, with an ellipsis where something was left out."""
    return fit(" ".join(text.splitlines()), width)


def bar(share: float | None, width: int, glyphs: Glyphs, style: str = "$primary") -> Content:
    """A bar, `share` of it full."""
    full = round(min(1.0, max(0.0, share or 0.0)) * width)
    return Content.assemble(
        (glyphs.bar_full * full, style), (glyphs.bar_empty * (width - full), "$chat-muted 40%")
    )


def heading(name: str, value: str, width: int) -> Content:
    """The first line of a section."""
    return pair(name, value, width, MUTED, "bold $primary")


def speed_lines(stats: EngineStats, width: int, glyphs: Glyphs) -> list[Content]:
    """Tokens a second, in total and of each conversation; who runs and waits."""
    snapshot = stats.snapshot
    fade = MUTED if stats.idle and stats.elsewhere is None else ""
    at_work = f"{snapshot.running} running"
    if snapshot.waiting:
        at_work += f" {snapshot.waiting} waiting"
    lines = [
        heading("tok/s", "idle" if stats.idle else at_work, width),
        pair("all conversations", rate(stats.total), width, fade or "bold"),
    ]
    shares = stats.shares[:MOST_SHARES] if len(stats.shares) > 1 else ()
    for share in shares:
        state = share.conversation.state
        sign = glyphs.of(state, unread=False)
        room = max(0, width - 2)
        lines.append(
            Content.assemble(
                (f"{sign} ", STYLES[state]),
                pair(share.conversation.title, rate(share.tokens_per_second), room),
            )
        )
    if len(stats.shares) > MOST_SHARES:
        lines.append(Content.styled(f"  and {len(stats.shares) - MOST_SHARES} more", MUTED))
    if stats.elsewhere is not None:
        lines.append(pair("of other models", rate(stats.elsewhere), width, MUTED))
    if snapshot.last_step_rows > 1 and not stats.idle:
        lines.append(pair("rows in the last step", str(snapshot.last_step_rows), width))
    return lines


def latency_lines(stats: EngineStats, width: int) -> list[Content]:
    """First token and time between tokens."""
    snapshot = stats.snapshot
    fade = MUTED if stats.idle else ""
    lines = [
        heading("latency", "", width),
        pair("first token", milliseconds(snapshot.ttft_ms), width, fade),
    ]
    if snapshot.queue_ms is not None and snapshot.prefill_ms is not None:
        split = milliseconds_each((snapshot.queue_ms, snapshot.prefill_ms), " + ")
        lines.append(pair("  queue + prefill", split, width, MUTED))
    if snapshot.ttft_p50_ms is not None:
        lines.append(pair("  median", milliseconds(snapshot.ttft_p50_ms), width, MUTED))
    lines.append(pair("between tokens", milliseconds(snapshot.itl_ms), width, fade))
    if snapshot.itl_p95_ms is not None and snapshot.itl_recent_ms:
        worst = milliseconds_each((snapshot.itl_p95_ms, max(snapshot.itl_recent_ms)), " / ")
        lines.append(pair("  p95 / max", worst, width, MUTED))
    return lines


def bandwidth_lines(stats: EngineStats, width: int, glyphs: Glyphs) -> list[Content]:
    """Achieved memory bandwidth against what was measured on this machine."""
    snapshot = stats.snapshot
    fade = MUTED if stats.idle else ""
    lines = [heading("bandwidth", "", width)]
    if snapshot.bandwidth_gbs is None and snapshot.bandwidth_peak_gbs is None:
        return [*lines, Content.styled("not measured yet", MUTED)]
    achieved = NOT_YET if snapshot.bandwidth_gbs is None else f"{number(snapshot.bandwidth_gbs)} GB/s"
    lines.append(pair("achieved", achieved, width, fade))
    if snapshot.bandwidth_peak_gbs is None:
        lines.append(pair("peak", "measured when idle", width, MUTED))
        return lines
    share = stats.bandwidth_share
    lines.append(
        pair(f"of {number(snapshot.bandwidth_peak_gbs)} measured", percent(share), width, fade or "bold")
    )
    lines.append(bar(share, width, glyphs, MUTED if stats.idle else "$primary"))
    if not snapshot.bandwidth_peak_quiet:
        lines.append(Content.styled(cut("measured on a busy machine", width), MUTED))
    if stats.limit:
        lines.append(pair("limited by", stats.limit, width))
    lines.append(pair("ceiling of one alone", f"{rate(stats.ceiling)} tok/s", width, MUTED))
    return lines


def cache_lines(stats: EngineStats, width: int) -> list[Content]:
    """The KV cache in numbers, below its map."""
    snapshot = stats.snapshot
    lines = [
        pair("cached, free to take", count(snapshot.blocks_cached), width, MUTED),
        pair("slots filled", percent(snapshot.kv_utilisation), width, MUTED),
        pair("room for more like this", NOT_YET if stats.fits is None else str(stats.fits), width, MUTED),
        pair("prefix tokens saved", count(snapshot.prefix_tokens_saved), width, MUTED),
    ]
    if snapshot.preemptions:
        lines.append(pair("preemptions", count(snapshot.preemptions), width, "$warning"))
    return lines


def draft_lines(stats: EngineStats, width: int) -> list[Content]:
    """Speculative decoding, and whether it is off; nothing without it, or before there was a draft."""
    snapshot = stats.snapshot
    if not snapshot.draft_tokens:
        return []
    tokens, tried, kept = snapshot.tokens_total, snapshot.drafts_tried, snapshot.drafts_kept
    figures = DraftFigures(snapshot.draft, snapshot.draft_off, tokens, tried, kept)
    return [
        heading("drafts", f"{percent(stats.kept)} kept", width),
        pair("by", cut(snapshot.draft, min(cell_len(snapshot.draft), width - 3)), width, MUTED),
        pair("tokens a step", number(figures.each, 2), width),
        pair("by place", percent_each(figures.shares[: max(1, (width - 11) // 3)]), width, MUTED),
        *(
            [pair("memory of it", size(memory), width, MUTED)]
            if (memory := snapshot.draft_memory_bytes)
            else []
        ),
        *(
            [pair("off now", snapshot.draft_off, width, MUTED)]
            if snapshot.draft_off and not stats.idle
            else []
        ),
    ]


def engine_lines(stats: EngineStats, width: int) -> list[Content]:
    """What runs, on what."""
    snapshot = stats.snapshot
    exact = "exact" if snapshot.exact else "not exact"
    on_gpu = snapshot.device and not snapshot.device.startswith("cpu")
    replaced = cut(", ".join(snapshot.replaced), max(1, width - len("plain torch "))).rstrip()
    return [
        heading("engine", f"{snapshot.backend}, {exact}", width),
        *(
            [pair("on", cut(snapshot.device, max(1, width - len("on "))).rstrip(), width, MUTED)]
            if on_gpu
            else []
        ),
        *([pair("parallel", snapshot.ranks, width, MUTED)] if snapshot.ranks else []),
        *([pair("plain torch", replaced, width)] if snapshot.replaced else []),
        pair("memory", size(snapshot.memory_bytes), width, MUTED),
    ]


def one_line(stats: EngineStats, width: int, glyphs: Glyphs) -> Content:
    """The whole panel in one line; of it, what there is room for."""
    snapshot = stats.snapshot
    parts = [f"{rate(stats.total)} tok/s"]
    if not stats.idle:
        parts.append(f"{snapshot.running} run" + (f" {snapshot.waiting} wait" if snapshot.waiting else ""))
    parts.append(f"first {milliseconds(snapshot.ttft_ms)}")
    if stats.bandwidth_share is not None:
        parts.append(f"bandwidth {percent(stats.bandwidth_share)}")
    total = snapshot.blocks_total
    parts.append(f"kv {percent(snapshot.blocks_used / total if total else None)}")
    return Content.styled(rows_of(parts, glyphs.between, width)[0], MUTED)
