"""How many CPUs this process may use."""

from __future__ import annotations

import functools
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_GROUPS_OF_THIS_PROCESS = Path("/proc/self/cgroup")


def cpus_here() -> int:
    """Return how many CPUs this process may use, at least 1.

    The smallest of its affinity, the quotas of its control group and of those above (as a container has one), and
    ``OMP_NUM_THREADS``, which Ray sets to the CPUs of an actor, and joblib to those of a worker.
    """
    return max(1, min(affinity(), _quota(), _named()))


def affinity() -> int:
    """Return how many CPUs the operating system lets this process use; all where it cannot say (macOS, Windows)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _named() -> int:
    """The first number of ``OMP_NUM_THREADS``; without one no limit."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else 1 << 30


@functools.cache
def _quota() -> int:
    """The smallest quota of CPU time, in whole CPUs (rounded up), of the control group and of those above."""
    try:
        lines = _GROUPS_OF_THIS_PROCESS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 1 << 30
    limits = [1 << 30]
    for line in lines:
        controllers, _, name = line.partition(":")[2].partition(":")
        if controllers in ("", "cpu", "cpu,cpuacct", "cpuacct,cpu"):
            group = _CGROUPS / controllers / name.lstrip("/")
            limits += [_quota_of(folder) for folder in (group, *group.parents) if folder.is_relative_to(_CGROUPS)]
    return min(limits)


def _quota_of(folder: Path) -> int:
    """The quota of one control group; without one, or if it cannot be read, no limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = ((folder / name).read_text(encoding="ascii") for name in names)
        return max(1, -(-int(quota) // int(period))) if int(quota) > 0 else 1 << 30
    except (OSError, ValueError):  # "max" is no number
        return 1 << 30
