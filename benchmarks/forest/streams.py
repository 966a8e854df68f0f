"""The exact forest beside river's adaptive random forest: each row is predicted just before it is learned.

    python benchmarks/forest/streams.py [--only NAME ...] [--limit ROWS] [--window 1000]

Both have ten trees; river's forest has its defaults. The exact forest is that of the last ``--window`` rows, with one
setting for all streams: every example lives in all trees. Processor time for each example, a whole replay for ours.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow.parquet as pq
from measure import DATA, machine
from paper.markdown import table
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
            "n_estimators": 10,
            "sample_share": 1.0,
            "min_samples_split": 4,
            "max_depth": 15,
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
    lines = []
    for name in asked.only:
        if not (DATA / f"{name}.parquet").exists():
            continue
        (a, b), (c, d) = ours(name, asked.limit, asked.window), theirs(name, asked.limit)
        lines.append([name, f"{a:.4f}", f"{c:.4f}", f"{b:,.0f}", f"{d:,.0f}", f"{d / b:.1f}"])
        print(*lines[-1], file=sys.stderr, flush=True)
    print(*table(["stream", "ours", "ARF", "us", "us of ARF", "times"], lines), sep="\n")


if __name__ == "__main__":
    main()
