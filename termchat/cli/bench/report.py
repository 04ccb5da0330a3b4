"""Measurements for people: a table, and a plot of bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BAR_CELLS = 50


def table(result: Mapping[str, Any]) -> str:
    """A measurement as text."""
    lines = [
        f"{result['concurrency']} at a time, {result['prompt_tokens']} + {result['output_tokens']} tokens",
        f"  {'':14}{'mean':>10}{'p50':>10}{'p95':>10}{'p99':>10}",
    ]
    for name, label in (("ttft_ms", "TTFT ms"), ("itl_ms", "ITL ms"), ("e2e_ms", "E2E ms")):
        cells = "".join(f"{_number(result[name][key]):>10}" for key in ("mean", "p50", "p95", "p99"))
        lines.append(f"  {label:14}{cells}")
    lines += [
        f"  {_number(result['tps_system'])} tokens/s in all, {_number(result['tps_user'])} per user, "
        f"{result['rps']:.2f} requests/s, "
        f"prefill {_number(result['prefill_tps'])} tokens/s",
        f"  memory traffic {_number(result['bandwidth_gbs'])} GB/s{_share(result)}{_slots(result)}",
    ]
    baseline = result.get("baseline")
    if baseline is not None:
        lines.append(
            f"  {baseline['mode']}: {_number(baseline['tps_system'])} tokens/s in all; "
            f"continuous batching gives {baseline['speedup']:.2f} times as much"
        )
    return "\n".join(lines) + "\n"


def plot(points: Sequence[tuple[int, float]]) -> str:
    """Tokens a second by concurrency, as bars of ASCII characters."""
    largest = max(value for _, value in points)
    lines = ["tokens/s in all, by conversations at a time"]
    lines += [f"{level:>6} {'#' * round(value / largest * BAR_CELLS)} {value:.1f}" for level, value in points]
    return "\n".join(lines) + "\n"


def _share(result: Mapping[str, Any]) -> str:
    achieved, peak = result["bandwidth_gbs"], result["bandwidth_peak_gbs"]
    if achieved is None or peak is None:
        return ""
    return f", {100 * achieved / peak:.0f} % of the measured peak of {peak:.1f}"


def _slots(result: Mapping[str, Any]) -> str:
    used = result["kv_utilisation"]  # None: over before it was looked at
    return f"; {100 * used:.1f} % of the allocated KV slots in use" if used is not None else ""


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"
