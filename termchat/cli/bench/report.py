"""Measurements for people: a table, and a plot of bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...draft_figures import DraftFigures
from ...units import number, percent

BAR_CELLS = 50


def table(result: Mapping[str, Any]) -> str:
    """A measurement as text."""
    lines = [
        f"{result['concurrency']} at a time, {result['prompt_tokens']} + {result['output_tokens']} tokens",
        f"  {'':14}{'mean':>10}{'p50':>10}{'p95':>10}{'p99':>10}",
    ]
    for name, label in (("ttft_ms", "TTFT ms"), ("itl_ms", "ITL ms"), ("e2e_ms", "E2E ms")):
        cells = "".join(f"{number(result[name][key]):>10}" for key in ("mean", "p50", "p95", "p99"))
        lines.append(f"  {label:14}{cells}")
    lines += [
        f"  {number(result['tps_system'])} tokens/s in all, {number(result['tps_user'])} per user, "
        f"{number(result['rps'], 2)} requests/s, "
        f"prefill {number(result['prefill_tps'])} tokens/s",
        f"  memory traffic {number(result['bandwidth_gbs'])} GB/s{_share(result)}{_slots(result)}",
    ]
    if drafts := result.get("drafts"):
        figures = DraftFigures(
            drafts["by"], drafts["off"] or "", drafts["tokens"], drafts["tried"], drafts["kept"]
        )
        lines += [f"  {line}" for line in [str(figures)] if line]
    baseline = result.get("baseline")
    if baseline is not None:
        lines.append(
            f"  {baseline['mode']}: {number(baseline['tps_system'])} tokens/s in all; "
            f"continuous batching gives {number(baseline['speedup'], 2)} times as much"
        )
    return "\n".join(lines) + "\n"


def plot(points: Sequence[tuple[int, float]]) -> str:
    """Tokens a second by concurrency, as bars of ASCII characters."""
    largest = max(value for _, value in points)
    lines = ["tokens/s in all, by conversations at a time"]
    for level, value in points:
        lines.append(f"{level:>6} {'#' * round(value / largest * BAR_CELLS)} {number(value)}")
    return "\n".join(lines) + "\n"


def _share(result: Mapping[str, Any]) -> str:
    achieved, peak = result["bandwidth_gbs"], result["bandwidth_peak_gbs"]
    if achieved is None or peak is None:
        return ""
    return f", {percent(achieved / peak)} of the measured peak of {number(peak)}"


def _slots(result: Mapping[str, Any]) -> str:
    used = result["kv_utilisation"]  # None: over before it was looked at
    return f"; {percent(used)} of the allocated KV slots in use" if used is not None else ""
