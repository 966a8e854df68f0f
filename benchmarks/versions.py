"""Two versions of raydt side by side: CPU time, peak memory and digests of the same replays, in process, in turns.

    python benchmarks/versions.py OTHER_CHECKOUT [--runs 5] [--only NAME]

Each replay runs in a process of its own, of this checkout and of the other by turns; what start-up takes is measured
by a replay of 10 rows and taken off. A ratio above 1 means that this checkout is slower.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from harness import machine

HERE = Path(__file__).resolve().parents[1]
_SEA = {"kind": "synthetic", "generator": "sea", "seed": 7}
_SPARSE = {"kind": "synthetic", "generator": "sparse", "seed": 7}
_TREE = {"alpha": 0.0, "beta": 0.0, "max_depth": 10}

#: Source, stream and learner of each replay.
REPLAYS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "fudyadt, insert-only, epsilon 0.15": (
        {**_SEA, "generator": "hyperplane", "n": 250_000},
        {"model": "incremental"},
        {"kind": "fudyadt", "epsilon": 0.15, **_TREE},
    ),
    "fudyadt, window 1,000, epsilon 0.1": (
        {**_SEA, "n": 300_000},
        {"model": "sliding_window", "window": 1000},
        {"kind": "fudyadt", "epsilon": 0.1, **_TREE},
    ),
    "confidence_tree": (
        {**_SEA, "generator": "randcbt", "n": 900_000},
        {"model": "sliding_window", "window": 50_000, "warmup": 1000},
        {"kind": "confidence_tree", "c": 0.02},
    ),
    "confidence_tree, drift": (
        {**_SEA, "generator": "randcbt", "n": 900_000},
        {"model": "sliding_window", "window": 20_000, "warmup": 1000},
        {"kind": "confidence_tree", "c": 0.02, "drift_period": 200},
    ),
    "sparse_tree": (
        {**_SPARSE, "irrelevant": 2000, "n": 60_000},
        {"model": "sliding_window", "window": 2000, "warmup": 500},
        {"kind": "sparse_tree", "finder": "updgini", "beta": 0.05, "max_depth": 10},
    ),
    "best_split": (
        {**_SPARSE, "irrelevant": 10_000, "n": 200_000},
        {"model": "sliding_window", "window": 4000},
        {"kind": "best_split", "finder": "updgini"},
    ),
    "gbdt": (
        {**_SEA, "n": 6000},
        {"model": "sliding_window", "window": 1500, "warmup": 1500},
        {"kind": "gbdt", "max_iter": 30, "max_leaf_nodes": 10, "update_every": 200},
    ),
}


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
        stream = {key: value for key, value in stream.items() if key != "warmup"} | (
            {"warmup": rows} if "warmup" in stream else {}
        )
    config = {
        "source": source,
        "stream": stream,
        "learner": learner,
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    path = folder / f"{rows or 'all'}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="folder of the other version")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=REPLAYS)
    arguments = parser.parse_args()
    print(machine("pyarrow"), f"load {os.getloadavg()[0]:.1f}")
    print(f"{'replay':<36}{'this':>9}{'other':>9}{'ratio':>8}{'MiB':>8}{'other':>8}  digests")
    for name in [arguments.only] if arguments.only else REPLAYS:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            few, all_rows = written(folder, name, 10), written(folder, name)
            times: dict[Path, list[float]] = {HERE: [], arguments.other.resolve(): []}
            peaks: dict[Path, list[float]] = {checkout: [] for checkout in times}
            digests = set()
            for run in range(-1, arguments.runs):  # the first compiles, and is not counted
                for checkout, seconds in times.items():
                    start, _, _ = replay(checkout, few, folder / f"start {run} {len(seconds)} {checkout.name}")
                    out = folder / f"run {run} {len(seconds)} {checkout.name}"
                    total, peak, digest = replay(checkout, all_rows, out)
                    digests.add(digest)
                    if run >= 0:
                        seconds.append(total - start)
                        peaks[checkout].append(peak)
        mine, theirs = times.values()
        ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
        same = "equal" if len(digests) == 1 else "DIFFERENT"
        memory = "".join(f"{statistics.median(peak):>8.0f}" for peak in peaks.values())
        seconds_of_both = f"{statistics.median(mine):>8.2f}s{statistics.median(theirs):>8.2f}s"
        print(f"{name:<36}{seconds_of_both}{ratio:>8.3f}{memory}  {same}")


if __name__ == "__main__":
    main()
