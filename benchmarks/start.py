"""Cost of a start: import, kernels compiled into an empty cache and loaded from it, two commands, and a private Ray.

Run: python benchmarks/start.py [--part kernels|commands|replays|ray] [--before CHECKOUT]

The replays print where the processor time of 5,000 rows goes, for each learner; with another checkout, in turn with it.
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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from harness import print_machine

CODE = """
import time; began = time.perf_counter()
from raydt.learners import learners
from raydt.sessions.session import compile_kernels
imported = time.perf_counter()
compile_kernels(learners()["fudyadt"])
from raydt.streams.deletion_log import warmup; warmup()
print(f"imports {imported - began:.2f} s, kernels {time.perf_counter() - imported:.2f} s")
"""


def kernels() -> None:
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
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "pipelines.cli", *arguments]
    subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def commands() -> None:
    with tempfile.TemporaryDirectory() as folder:
        replay = ["replay", CONFIG, *TINY, "--overwrite", "--out", str(Path(folder) / "run")]
        for name, arguments in (("validate", ["validate", CONFIG]), ("replay of 200 rows", replay)):
            seconds_of(*arguments)  # fills the caches
            taken = zip(*(seconds_of(*arguments) for _ in range(5)), strict=True)
            processor, wall = (statistics.median(times) for times in taken)
            print(f"{name}: {processor:.2f} s of processor time, {wall:.2f} s of wall time, medians of 5")


#: Runs the command line of a checkout and prints the processor time of each part. A part begins where its function is
#: called, ends where it returns, and does not count the parts within it; imports are all before the job.
PROGRAM = """
import builtins, functools, json, sys, time

PLACES = {
    "pipelines.running.replay": ("run", "replay"),
    "pipelines.config": ("config", "load_config"),
    "raydt.arrays.kernel": ("kernels", "load", "compile_once"),
    "numba.core.caching": ("kernels", "FunctionCache._load_overload"),
    "pipelines.reporting": ("report", "publish_report"),
}
parts, taken, last = ["imports"], dict.fromkeys(("imports", "config", "kernels", "run", "report"), 0.0), 0.0

def switch():
    global last
    now = time.process_time()
    taken[parts[-1]] += now - last
    last = now

def timed(part, function):
    @functools.wraps(function)
    def run(*given, **named):
        switch()
        parts.append(part)
        try:
            return function(*given, **named)
        finally:
            switch()
            parts.pop()
    return run

def importing(name, *given, **named):
    module = real(name, *given, **named)
    found = sys.modules.get(name)
    part, *functions = PLACES.get(name, [None])
    if functions and all(hasattr(found, function.split(".")[0]) for function in functions):
        del PLACES[name]
        for function in functions:
            *owner, attribute = function.split(".")
            owner = getattr(found, owner[0]) if owner else found
            setattr(owner, attribute, timed(part, getattr(owner, attribute)))
    return module

real, builtins.__import__ = builtins.__import__, importing
from pipelines.cli import __file__ as used, main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
switch()
print(json.dumps({"file": used, **taken}))
"""
LEARNERS = ("fudyadt", "forest", "gbdt", "sparse_tree", "confidence_tree", "best_split")


def parts_of(checkout: Path, learner: str, out: str) -> dict[str, float]:
    """Return seconds of processor time by part of a replay of 5,000 rows with a report, and seconds of wall time."""
    settings = ["--set=source.n=5000", "--set=cluster.backend=in_process", "--set=output.report=true"]
    config = str(Path(__file__).parents[1] / "configs" / f"{learner}.yaml")
    command = [sys.executable, "-c", PROGRAM, "replay", config, *settings, "--overwrite", "--out", out]
    environment, began = {**ENVIRONMENT, "PYTHONPATH": str(checkout)}, time.perf_counter()
    done = subprocess.run(
        command, env=environment, cwd=checkout, capture_output=True, text=True, encoding="utf-8", check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found.pop("file")).is_relative_to(checkout), "another checkout was imported"
    assert (Path(out) / "report.html").exists(), "the report failed"
    return {**found, "in all": sum(found.values()), "wall time": time.perf_counter() - began}


def replays(before: Path | None = None, repeats: int = 7, only: Sequence[str] = LEARNERS) -> None:
    """Print medians of several replays of each learner's example."""
    checkouts = {"before": before.resolve()} if before else {}
    checkouts["now"] = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        for learner in only:
            taken: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
            for _ in range(1 + repeats):  # the first one fills the caches
                for name, checkout in checkouts.items():
                    taken[name].append(parts_of(checkout, learner, str(Path(folder) / "run")))
            for name, times in taken.items():
                medians = {part: statistics.median(each[part] for each in times[1:]) for part in times[0]}
                print(learner, f"{name}:", ", ".join(f"{part} {s:.2f} s" for part, s in medians.items()), flush=True)


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


PARTS: dict[str, Callable[[], None]] = {"kernels": kernels, "commands": commands, "replays": replays, "ray": ray}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--before", type=Path, help="an earlier checkout, for the replays")
    parser.add_argument("--repeats", type=int, default=7, help="replays of each learner and checkout")
    parser.add_argument("--learner", choices=LEARNERS, action="append", help="replays of these alone")
    given = parser.parse_args()
    PARTS["replays"] = partial(replays, given.before, given.repeats, given.learner or LEARNERS)
    print_machine("ray")
    for part in given.part or PARTS:
        PARTS[part]()
