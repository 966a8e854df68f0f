"""The exact forest beside river's adaptive random forest: each row is predicted just before it is learned.

    python benchmarks/forest/streams.py [--only NAME ...] [--limit ROWS] [--window 1000]

River's forest has ten trees, and its defaults. The exact forest is that of the last ``--window`` rows, with one setting
for all streams, which was chosen on the first 5,000 rows of each: twenty trees, of which each example lives in five.
Processor time for each example, a whole replay for ours.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pyarrow.parquet as pq
from harness import DATA, machine, table
from river.forest import ARFClassifier

import pipelines

NAMES = ("electricity", "bananas", "image_segments", "posture", "poker_lsn", "covtype_head10k", "covtype_class3_vs_4")


def ours(name: str, limit: int, window: int) -> tuple[float, float]:
    """Accuracy, and microseconds for each example."""
    config: dict[str, Any] = {
        "source": {"kind": "parquet", "path": str(DATA / f"{name}.parquet"), "label": "y", "limit": limit},
        "stream": {"model": "sliding_window", "window": window},
        "learner": {
            "kind": "forest",
            "n_estimators": 20,
            "sample_share": 0.25,
            "max_features": "sqrt",
            "thresholds": 2,
            "min_samples_split": 4,
            "max_depth": 15,
            "rebuild": "lazy",
        },
        "cluster": {"backend": "in_process", "shards": 1},
        "output": {"report": False, "predictions": False, "metrics_every": 20_000},
        "checkpoint": {"every_seconds": 3600},
    }
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        summary = pipelines.replay(config, Path(folder) / "run").summary
        took = time.process_time() - began
    return summary["metrics"]["accuracy"], 1e6 * took / summary["inserts"]


def theirs(name: str, limit: int) -> tuple[float, float]:
    """The same of river's forest."""
    frame = pq.read_table(DATA / f"{name}.parquet").slice(0, limit).to_pandas()
    labels = frame.pop("y").astype(str).tolist()
    model, right = ARFClassifier(n_models=10, seed=1), 0
    began = time.process_time()
    for row, y in zip(frame.to_dict("records"), labels, strict=True):
        right += model.predict_one(row) == y
        model.learn_one(row, y)
    return right / len(labels), 1e6 * (time.process_time() - began) / len(labels)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=NAMES)
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--window", type=int, default=1000)
    asked = parser.parse_args()
    print(machine("river"), flush=True)
    ours(asked.only[0], 500, 100)  # imports and compiles
    lines = []
    for name in asked.only:
        if not (DATA / f"{name}.parquet").exists():
            continue
        (a, b), (c, d) = ours(name, asked.limit, asked.window), theirs(name, asked.limit)
        lines.append([name, f"{a:.4f}", f"{c:.4f}", f"{b:,.0f}", f"{d:,.0f}", f"{d / b:.1f}"])
        print(*lines[-1], file=sys.stderr, flush=True)
    means = [float(np.mean([float(line[i].replace(",", "")) for line in lines])) for i in range(1, 5)]
    lines.append(["mean", *(f"{m:.4f}" for m in means[:2]), *(f"{m:,.0f}" for m in means[2:])])
    lines[-1].append(f"{means[3] / means[2]:.1f}")
    print(*table(["stream", "ours", "ARF", "us", "us of ARF", "times"], lines), sep="\n")


if __name__ == "__main__":
    main()
