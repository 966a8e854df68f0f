"""Cost of a start: import, kernels compiled into an empty cache and loaded from it, two commands, and a private Ray.

Run: python benchmarks/start.py [--part kernels commands replays ray] [--before CHECKOUT] [--repeats 7] [--learner ...]

The replays print where the processor time of 5,000 rows goes, for each learner; with another checkout, in turn with it.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import ROOT, arguments, print_machine, show

CODE = """
import time; began = time.perf_counter()
from raydt.learners import learners
from raydt.sessions.session import compile_kernels
imported = time.perf_counter()
compile_kernels(learners()["fudyadt"])
from raydt.streams.deletion_log import warmup; warmup()
print(f"{imported - began:.2f} {time.perf_counter() - imported:.2f}")
"""
#: Python keeps what it has read of the sources, as it does unless it is asked not to.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
#: A command that runs no kernel, and a replay of 200 rows with kernels from the cache.
CONFIG = str(ROOT / "configs" / "fudyadt.yaml")
TINY = ["--set=source.n=200", "--set=cluster.backend=in_process", "--set=output.report=false"]
LEARNERS = ("fudyadt", "forest", "gbdt", "sparse_tree", "confidence_tree", "best_split")


def run(*command: str, environment: dict[str, str] = ENVIRONMENT, folder: Path | None = None) -> str:
    called: dict[str, Any] = {"capture_output": True, "text": True, "encoding": "utf-8", "check": True}
    return subprocess.run([sys.executable, *command], env=environment, cwd=folder, **called).stdout


def kernels(given: Any) -> None:
    lines = []
    for turn in range(3):
        with tempfile.TemporaryDirectory() as cache:
            for name in ("empty cache", "warm cache"):
                told = run("-c", CODE, environment={**os.environ, "NUMBA_CACHE_DIR": cache})
                lines.append([f"run {turn + 1}, {name}", *told.split()])
    show("Imports and kernels", ["", "imports s", "kernels s"], lines)


def seconds_of(*arguments: str) -> tuple[float, float]:
    """Return the seconds of processor time and of wall time of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run("-m", "pipelines.cli", *arguments)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def commands(given: Any) -> None:
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        replay = ["replay", CONFIG, *TINY, "--overwrite", "--out", f"{folder}/run"]
        for name, called in (("validate", ["validate", CONFIG]), ("replay of 200 rows", replay)):
            seconds_of(*called)  # fills the caches
            taken = zip(*(seconds_of(*called) for _ in range(5)), strict=True)
            lines.append([name, *(f"{statistics.median(times):.2f}" for times in taken)])
    show("Commands, medians of 5", ["", "s of processor time", "s of wall time"], lines)


#: Runs the command line of a checkout and prints the processor time of each part. A part begins where its function is
#: called, ends where it returns, and does not count the parts within it; imports are all before the job.
PROGRAM = """
import builtins, functools, json, sys, time

PLACES = {
    "pipelines.running.replay": ("run", "replay"),
    "pipelines.config": ("config", "load_config"),
    "raydt.arrays.kernel": ("kernels", "load"),
    "raydt.arrays.kernel": ("kernels", "compile_once"),
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


def parts_of(checkout: Path, learner: str, out: str) -> dict[str, float]:
    """Return seconds of processor time by part of a replay of 5,000 rows with a report, and seconds of wall time."""
    settings = ["--set=source.n=5000", "--set=cluster.backend=in_process", "--set=output.report=true"]
    config = str(ROOT / "configs" / f"{learner}.yaml")
    environment, began = {**ENVIRONMENT, "PYTHONPATH": str(checkout)}, time.perf_counter()
    command = "-c", PROGRAM, "replay", config, *settings, "--overwrite", "--out", out
    found = json.loads(run(*command, environment=environment, folder=checkout).splitlines()[-1])
    assert Path(found.pop("file")).is_relative_to(checkout), "another checkout was imported"
    assert (Path(out) / "report.html").exists(), "the report failed"
    return {**found, "in all": sum(found.values()), "wall time": time.perf_counter() - began}


def replays(given: Any) -> None:
    """Medians of several replays of each learner's example."""
    checkouts = ({"before": given.before.resolve()} if given.before else {}) | {"now": ROOT}
    lines: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for learner in given.learner:
            taken: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
            for _ in range(1 + given.repeats):  # the first one fills the caches
                for name, checkout in checkouts.items():
                    taken[name].append(parts_of(checkout, learner, f"{folder}/run"))
            for name, times in taken.items():
                medians = [statistics.median(each[part] for each in times[1:]) for part in times[0]]
                lines.append([learner, name, *(f"{one:.2f}" for one in medians)])
    show("Replays of 5,000 rows, s", ["", "", *times[0]], lines)


def ray(given: Any) -> None:
    """Seconds from the config to the first update on a private Ray with 2 shards, and to the end of its command."""
    with tempfile.TemporaryDirectory() as folder:
        replay = ["replay", CONFIG, *TINY, "--set=cluster.backend=ray", "--overwrite", "--out", f"{folder}/run"]
        seconds_of(*replay)  # fills the caches
        taken = []
        for _ in range(5):
            _, wall = seconds_of(*replay)
            summary = json.loads(Path(folder, "run", "summary.json").read_text(encoding="utf-8"))
            taken.append((summary["startup_seconds"], summary["seconds"], wall))
    cells = [f"{statistics.median(times):.2f}" for times in zip(*taken, strict=True)]
    header = ["first update s", "stream s", "command s", "least to the first update s"]
    show("A replay of 200 rows on a private Ray, medians of 5", header, [[*cells, f"{min(taken)[0]:.2f}"]])


if __name__ == "__main__":
    parts = {"kernels": kernels, "commands": commands, "replays": replays, "ray": ray}
    given = arguments(__doc__, part=list(parts), before=Path, repeats=7, learner=list(LEARNERS))
    print_machine("ray")
    for part in given.part:
        parts[part](given)
