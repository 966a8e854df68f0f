"""Cost of a start: import, kernels compiled into an empty cache and loaded from it, two commands, and a private Ray.

Run: python benchmarks/start.py [--part kernels|commands|ray]
"""

from __future__ import annotations

import argparse
import json
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


def kernels() -> None:
    """Import, and kernels."""
    for run in range(3):
        with tempfile.TemporaryDirectory() as cache:
            for name in ("empty cache", "warm cache"):
                environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
                done = subprocess.run(
                    [sys.executable, "-c", CODE],
                    env=environment,
                    capture_output=True,
                    text=True,
                    encoding="utf-8",
                    check=True,
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


def commands() -> None:
    """A command that runs no kernel, and a short replay."""
    with tempfile.TemporaryDirectory() as folder:
        replay = ["replay", CONFIG, *TINY, "--overwrite", "--out", str(Path(folder) / "run")]
        for name, arguments in (("validate", ["validate", CONFIG]), ("replay of 200 rows", replay)):
            seconds_of(*arguments)  # fills the caches
            taken = zip(*(seconds_of(*arguments) for _ in range(5)), strict=True)
            processor, wall = (statistics.median(times) for times in taken)
            print(f"{name}: {processor:.2f} s of processor time, {wall:.2f} s of wall time, medians of 5")


def ray() -> None:
    """Seconds from the config to the first update on a private Ray with 2 shards, and to the end of its command."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        replay = ["replay", CONFIG, *TINY, "--set=cluster.backend=ray", "--overwrite", "--out", str(run)]
        seconds_of(*replay)  # fills the caches
        taken = []
        for _ in range(5):
            _, wall = seconds_of(*replay)
            summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
            taken.append((summary["startup_seconds"], summary["seconds"], wall))
    start, stream, wall = (statistics.median(times) for times in zip(*taken, strict=True))
    least = min(times[0] for times in taken)
    print(
        f"replay of 200 rows on a private Ray: first update after {start:.2f} s (least {least:.2f}), "
        f"stream {stream:.2f} s, command {wall:.2f} s, medians of 5"
    )


PARTS = {"kernels": kernels, "commands": commands, "ray": ray}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    print(machine("ray"), f"load {os.getloadavg()[0]:.1f}", flush=True)
    for part in parser.parse_args().part or PARTS:
        PARTS[part]()
