"""Shared by the benchmark scripts: the machine's line, data, and the median of CPU times."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

DATA = Path(__file__).parents[2] / "shared" / "data"


def machine(*packages: str) -> str:
    """Processor, cores and versions, for the first line of every benchmark's output."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
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
