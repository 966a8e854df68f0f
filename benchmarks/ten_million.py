"""10,000,000 x 20 rows: throughput, memory of each process, checkpoints, and a resume; in process and on Ray.

Each replay is a command of its own, on a generated hyperplane with 20 numbers: once with all rows live (``all``), once
with the newest 1,000,000 (``window``), so that what grows although nothing is added to the live rows shows. Ray is a
private one on this machine, with 2 shards. When a checkpoint of seven tenths of the updates is complete, the driver is
killed (SIGKILL), and ``raydt resume`` goes on to the end.

updates/s   of the stream, as the summary reports it, without start and report
memory      proportional set size (shared pages are divided among those that share them), sampled every two seconds:
            the peak of each process, and the mean of each third of the time before the kill, after the warm-up
checkpoint  seconds and bytes, in the background: of the median, and of the largest
resume      seconds from the checkpoint's folder to the first new result; Ray and its actors start before

A checkpoint is due every tenth of the updates. Each backend and kind of live rows can be asked for alone, and
``--rows 500000`` tries the script.

Run: python benchmarks/ten_million.py [--rows 10000000] [--backend in_process|ray] [--live all|window]
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
from harness import arguments, print_machine, progress, show

FEATURES, WINDOW = 20, 1_000_000
BACKENDS, LIVE = ("in_process", "ray"), ("all", "window")
#: Seconds between two samples of memory, and between two looks at the checkpoints.
SAMPLE_SECONDS, LOOK_SECONDS, KILL_AT = 2.0, 0.1, 0.7

Samples = dict[str, list[float]]


def config(backend: str, live: str, rows: int, updates: int) -> dict[str, Any]:
    window = min(WINDOW, rows // 10)
    stream = {"model": "incremental"} if live == "all" else {"model": "sliding_window", "window": window}
    return {
        "source": {"kind": "synthetic", "generator": "hyperplane", "n_features": FEATURES, "n": rows},
        "stream": {**stream, "warmup": window},
        "learner": {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0.0, "beta": 0.0, "max_depth": 10},
        "cluster": {"backend": backend, "shards": 2},
        "checkpoint": {"every_updates": updates // 10, "every_seconds": None},
        "output": {"report": False},
    }


def role(process: psutil.Process, driver: int) -> str:
    if process.pid == driver:
        return "driver"
    command = process.cmdline()[0]
    for name in ("Coordinator", "FeatureShard"):
        if command.startswith(f"ray::{name}"):
            return name if name == "Coordinator" else f"shard {process.pid}"
    return "Ray"


def sample(driver: int) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    here = psutil.Process(driver)
    for process in [here, *here.children(recursive=True)]:
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8")
            found[role(process, driver)] += int(text.partition("\nPss:")[2].split()[0]) / 1024
        except (OSError, IndexError, psutil.Error):
            continue
    return found


def command(folder: Path, *arguments: str, kill_at: int | None = None) -> Samples:
    """Run a command and sample its memory; kill it when there is a checkpoint of ``kill_at`` updates."""
    samples: Samples = defaultdict(list)
    with open(folder / "stderr", "a", encoding="utf-8") as errors:
        running = subprocess.Popen([sys.executable, "-m", "pipelines.cli", *arguments], stderr=errors, stdout=errors)
    due = 0.0
    while running.poll() is None:
        if time.monotonic() >= due:
            due = time.monotonic() + SAMPLE_SECONDS
            for name, size in sample(running.pid).items():
                samples[name].append(size)
        if kill_at is not None and newest(folder / "run" / "checkpoints") >= kill_at:
            others = psutil.Process(running.pid).children(recursive=True)
            os.kill(running.pid, signal.SIGKILL)
            running.wait()
            psutil.wait_procs(others, timeout=60)
            return samples
        time.sleep(LOOK_SECONDS)
    if running.returncode:
        raise SystemExit((folder / "stderr").read_text(encoding="utf-8"))
    return samples


def newest(checkpoints: Path) -> int:
    """Updates of the newest complete checkpoint; 0 if there is none."""
    complete = [int(path.parent.name) for path in checkpoints.glob("*/manifest.json") if path.parent.name.isdigit()]
    return max(complete, default=0)


def written(run: Path) -> list[tuple[float, int]]:
    lines = (json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [(line["seconds"], line["bytes"]) for line in lines if line.get("event") == "checkpoint_written"]


def one(backend: str, live: str, rows: int) -> tuple[list[str], list[list[str]]]:
    """Row of the table of throughput, and rows of that of memory."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        updates = rows if live == "all" else 2 * rows - min(WINDOW, rows // 10)
        (folder / "config.yaml").write_text(json.dumps(config(backend, live, rows, updates)), encoding="utf-8")
        out = folder / "run"
        called = "replay", str(folder / "config.yaml"), "--out", str(out)
        samples = command(folder, *called, kill_at=int(KILL_AT * updates))
        resumed = command(folder, "resume", str(out))
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        checkpoints = written(out)
    seconds, sizes = zip(*checkpoints, strict=True)
    if not summary["recoveries"]:
        raise SystemExit(f"{live}, {backend}: the replay ended before it was killed; give more --rows")
    recovery = summary["recoveries"][-1]
    place = "in process" if backend == "in_process" else "Ray"
    times = f"{statistics.median(seconds):.1f} / {max(seconds):.1f}", f"{statistics.median(sizes) / 1e6:,.0f}"
    rates = f"{summary['updates']:,}", f"{summary['updates_per_second']:,.0f}", f"{summary['rounds']:,}"
    row = [f"{live}, {place}", *rates, f"{len(checkpoints)}", times[0], f"{times[1]} / {max(sizes) / 1e6:,.0f}"]
    row += [f"{recovery['seconds']:.1f}", summary["model_digest"][7:19]]
    progress(*row)
    again = {name.split()[0]: max(sizes) for name, sizes in resumed.items()}
    memory = [
        [row[0], name, *(f"{size:,.0f}" for size in (max(of), *thirds(of), again.get(name.split()[0], 0.0)))]
        for name, of in sorted(samples.items())
    ]
    return row, memory


def thirds(sizes: list[float]) -> list[float]:
    part = max(1, len(sizes) // 3)
    return [statistics.mean(sizes[begin : begin + part]) for begin in (0, part, 2 * part) if sizes[begin:]]


if __name__ == "__main__":
    chosen = {"action": "append"}
    asked = arguments(__doc__, rows=10_000_000, backend=chosen | {"choices": BACKENDS}, live=chosen | {"choices": LIVE})
    print_machine("ray")
    rows, memory = [], []
    for live in asked.live or LIVE:
        for backend in asked.backend or BACKENDS:
            row, sizes = one(backend, live, asked.rows)
            rows.append(row)
            memory += sizes
    header = ["live rows, where", "updates", "updates/s", "rounds", "checkpoints", "seconds, median / largest"]
    show(f"{asked.rows:,} x {FEATURES}", [*header, "MB, median / largest", "resume s", "digest"], rows)
    thirds_of = [f"MB, mean of third {number}" for number in (1, 2, 3)]
    show("Memory", ["live rows, where", "process", "MB, peak", *thirds_of, "MB, peak of the resume"], memory)
    print(f"\nLoad average of the last 15 minutes: {os.getloadavg()[2]:.1f}, of {os.cpu_count()} cores.")
