"""How many CPU threads this process can keep busy: its affinity, and the quotas of its control groups."""

from __future__ import annotations

import os
from pathlib import Path


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _quota(folder: Path) -> float | None:
    """CPUs one control group grants, None for no limit: cpu.max (version 2) or cpu.cfs_* (version 1)."""
    words = _words(folder / "cpu.max")
    if not words:
        words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
    try:
        quota, period = (int(word) for word in words)
    except ValueError:  # no such files, or the word "max"
        return None
    return quota / period if quota > 0 and period > 0 else None


def cgroup_cpus(membership: str, root: Path) -> float | None:
    """Least CPU quota of the groups in `membership` (text of /proc/self/cgroup) and of those around them.

    root: where the control groups are mounted. None if no group sets a limit. Source: Linux kernel
    documentation, admin-guide/cgroup-v2 and scheduler/sched-bwc.
    """
    quotas = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "cpu" if controllers else root
        folder = base / path.lstrip("/")
        # Inside a container the path may be the host's; the group itself is then mounted at the base.
        quotas += [_quota(level) for level in (folder, *folder.parents) if level.is_relative_to(base)]
    return min((quota for quota in quotas if quota is not None), default=None)


def usable_cpus() -> int:
    """Threads worth starting, at least 1; a part of a CPU doesn't count, as a team waits for its slowest."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota = cgroup_cpus(Path("/proc/self/cgroup").read_text(), Path("/sys/fs/cgroup"))
    except OSError:
        quota = None
    return max(1, cpus if quota is None else min(cpus, int(quota)))
