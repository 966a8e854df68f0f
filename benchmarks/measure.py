"""Shared by the benchmark scripts: the machine's line, data, memory, and the median of CPU times."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DATA = Path(__file__).parents[2] / "shared" / "data"


def machine(*packages: str) -> str:
    """Processor, cores and versions, for the first line of every benchmark's output."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")
    versions = " ".join(f"{p}={importlib.metadata.version(p)}" for p in ("raydt", "numpy", "numba", *packages))
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}"


def cpu_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Median CPU time of this process over ``repeats`` runs after one that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        gc.collect()
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return statistics.median(times)


def stored_bytes(*roots: Any) -> int:
    """Bytes of all NumPy arrays that can be reached from ``roots``; memory that arrays share is counted once."""
    seen: set[int] = set()
    total, waiting = 0, list(roots)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | str | bytes | int | float | None):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            owner = thing
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            if owner is thing or id(owner) not in seen:
                seen.add(id(owner))
                total += owner.nbytes
            if thing.dtype == object:
                waiting += thing.ravel().tolist()
        elif isinstance(thing, Mapping):
            waiting += thing.values()
        elif isinstance(thing, list | tuple | set | frozenset):
            waiting += thing
        else:
            waiting += getattr(thing, "__dict__", {}).values()
            slots = {name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())}
            waiting += [getattr(thing, name) for name in slots if hasattr(thing, name)]
    return total


def peak_mb() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident_mib(pid: int, field: str) -> float:
    """One of the sizes of a process in ``/proc/PID/status``, in MiB. Linux only."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def electricity(folder: Path = DATA) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Electricity in file order: (X float64 (45312, 8), y int32, 1 = DOWN)."""
    import pyarrow.parquet as pq

    path = folder / "electricity.parquet"
    if not path.exists():
        sys.exit(f"{path} is missing: give the folder of electricity.parquet as the first argument")
    table = pq.read_table(path)
    names = [name for name in table.column_names if name != "y"]
    X = np.column_stack([table[name].to_numpy() for name in names]).astype(np.float64)
    y = (np.array(table["y"].to_pylist()) == "DOWN").astype(np.int32)
    return X, y
