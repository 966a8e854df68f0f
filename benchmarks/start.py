"""Cost of a start: import, kernels compiled into an empty cache and loaded from it, and the time of two commands.

Run: python benchmarks/start.py
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import machine

CODE = """
import time; began = time.perf_counter()
from raydt.learners import learners
from raydt.sessions.warmup import compile_kernels
imported = time.perf_counter()
compile_kernels(learners()["fudyadt"])
from raydt.streams import warmup; warmup()
print(f"imports {imported - began:.2f} s, kernels {time.perf_counter() - imported:.2f} s")
"""
print(machine())
for run in range(3):
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty cache", "warm cache"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            done = subprocess.run(
                [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
            )
            print(f"run {run + 1}, {name}: {done.stdout.strip()}")

#: A command that runs no kernel, and a replay of 200 rows with kernels from the cache.
CONFIG = str(Path(__file__).parents[1] / "configs" / "fudyadt.yaml")
TINY = ["--set=source.n=200", "--set=cluster.backend=in_process", "--set=output.report=false"]


#: Python keeps what it has read of the sources, as it does unless it is asked not to.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds_of(*arguments: str) -> tuple[float, float]:
    """Processor and wall time of one command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "pipelines.cli", *arguments]
    subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


with tempfile.TemporaryDirectory() as folder:
    replay = ["replay", CONFIG, *TINY, "--overwrite", "--out", str(Path(folder) / "run")]
    for name, arguments in (("validate", ["validate", CONFIG]), ("replay of 200 rows", replay)):
        seconds_of(*arguments)  # fills the caches
        taken = zip(*(seconds_of(*arguments) for _ in range(5)), strict=True)
        processor, wall = (statistics.median(times) for times in taken)
        print(f"{name}: {processor:.2f} s of processor time, {wall:.2f} s of wall time, medians of 5")
