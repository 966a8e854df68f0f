"""Two versions of raydt side by side: CPU time, peak memory and digests of the same replays, in process, in turns.

    python benchmarks/versions.py OTHER_CHECKOUT [--runs 5] [--only NAME]

Each replay runs in a process of its own, of this checkout and of the other by turns; what start-up takes is measured
by a replay of 10 rows and taken off. A ratio above 1 means that this checkout is slower.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from harness import arguments, print_machine, progress, show

HERE = Path(__file__).resolve().parents[1]
_TREE = {"kind": "fudyadt", "alpha": 0.0, "beta": 0.0, "max_depth": 10}
_SPARSE = {"finder": "updgini"}


def _source(generator: str, n: int, **more: int) -> dict[str, Any]:
    return {"kind": "synthetic", "generator": generator, "seed": 7, "n": n, **more}


def _window(size: int, warmup: int | None = None) -> dict[str, Any]:
    return {"model": "sliding_window", "window": size} | ({} if warmup is None else {"warmup": warmup})


#: Source, stream and learner of each replay.
REPLAYS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "fudyadt, insert-only, epsilon 0.15": (
        _source("hyperplane", 250_000), {"model": "incremental"}, {**_TREE, "epsilon": 0.15},
    ),
    "fudyadt, window 1,000, epsilon 0.1": (_source("sea", 300_000), _window(1000), {**_TREE, "epsilon": 0.1}),
    "confidence_tree": (
        _source("randcbt", 900_000), _window(50_000, 1000), {"kind": "confidence_tree", "c": 0.02},
    ),
    "confidence_tree, drift": (
        _source("randcbt", 900_000), _window(20_000, 1000), {"kind": "confidence_tree", "c": 0.02},
    ),
    "sparse_tree": (
        _source("sparse", 60_000, irrelevant=2000), _window(2000, 500),
        {"kind": "sparse_tree", **_SPARSE, "beta": 0.05, "max_depth": 10},
    ),
    "best_split": (_source("sparse", 200_000, irrelevant=10_000), _window(4000), {"kind": "best_split", **_SPARSE}),
    "gbdt": (
        _source("sea", 6000), _window(1500, 1500),
        {"kind": "gbdt", "max_iter": 30, "max_leaf_nodes": 10, "update_every": 200},
    ),
}  # fmt: skip


def replay(checkout: Path, config: Path, out: Path) -> tuple[float, float, str]:
    """CPU seconds and peak memory, in MiB, of a replay's process, and the digest of its model."""
    command = [sys.executable, "-m", "pipelines.cli", "replay", str(config), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    with (out.parent / "said").open("w+", encoding="utf-8") as said:
        process = subprocess.Popen(command, cwd=checkout, env=environment, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode:
            raise SystemExit(said.read())
    digest = json.loads((out / "summary.json").read_text(encoding="utf-8"))["model_digest"]
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, digest


def written(folder: Path, name: str, rows: int | None = None) -> Path:
    """The config of a replay, of all its rows or of some."""
    source, stream, learner = REPLAYS[name]
    if rows is not None:
        source = {**source, "limit": rows}
        stream = {**stream, "warmup": rows} if "warmup" in stream else stream
    config = {"source": source, "stream": stream, "learner": learner}
    config |= {"cluster": {"backend": "in_process"}, "output": {"report": False}}
    path = folder / f"{rows or 'all'}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def compare(name: str, other: Path, runs: int) -> list[str]:
    """Replay with both versions in turns; return a line of the table."""
    times: dict[Path, list[float]] = {HERE: [], other: []}
    peaks: dict[Path, list[float]] = {checkout: [] for checkout in times}
    digests = set()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        few, all_rows = written(folder, name, 10), written(folder, name)
        for run in range(-1, runs):  # the first compiles, and is not counted
            for place, (checkout, seconds) in enumerate(times.items()):
                start, _, _ = replay(checkout, few, folder / f"start {run} {place}")
                total, peak, digest = replay(checkout, all_rows, folder / f"run {run} {place}")
                digests.add(digest)
                if run >= 0:
                    seconds.append(total - start)
                    peaks[checkout].append(peak)
    mine, theirs = times.values()
    ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
    cells = [f"{statistics.median(side):.2f}" for side in (mine, theirs)]
    memory = [f"{statistics.median(side):.0f}" for side in peaks.values()]
    return [name, *cells, f"{ratio:.3f}", *memory, "equal" if len(digests) == 1 else "DIFFERENT"]


if __name__ == "__main__":
    given = arguments(__doc__, other_={"type": Path}, runs=5, only={"choices": REPLAYS})
    print_machine("pyarrow")
    lines = []
    for name in [given.only] if given.only else REPLAYS:
        lines.append(compare(name, given.other.resolve(), given.runs))
        progress(*lines[-1])
    show("Versions", ["replay", "this s", "other s", "ratio", "this MiB", "other MiB", "digests"], lines)
