"""The exact forest on Ray with two shards beside one process: the same stream, wall time, and equal digests.

python benchmarks/forest/distributed.py [--updates 100000] [--trees 64] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import machine

import pipelines


def config(updates: int, trees: int, **cluster: Any) -> dict[str, Any]:
    """A window over a drawn stream: each step deletes an example and inserts one."""
    window = 4000
    return {
        "source": {
            "kind": "synthetic",
            "generator": "hyperplane",
            "n": updates // 2 + window,
            "n_features": 16,
            "seed": 7,
        },
        "stream": {"model": "sliding_window", "window": window, "warmup": window},
        "learner": {"kind": "forest", "n_estimators": trees},
        "cluster": cluster,
        "output": {"report": False, "predictions": False, "metrics_every": 20_000},
        "checkpoint": {"every_seconds": 3600},
    }


def main() -> None:
    """Time both, in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--trees", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(machine("ray"), flush=True)
    ways = {"one process": {"backend": "in_process", "shards": 1}, "Ray, two shards": {"backend": "ray", "shards": 2}}
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(asked.rounds):
        digests = set()
        for name, cluster in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                run = pipelines.replay(config(asked.updates, asked.trees, **cluster), Path(folder) / "run")
            took[name].append(run.summary["seconds"])
            digests.add(run.digest)
            print(f"{name}: {took[name][-1]:.1f} s, accuracy {run.summary['metrics']['accuracy']:.4f}", flush=True)
        assert len(digests) == 1, "the digests differ"
    medians = {name: statistics.median(seconds) for name, seconds in took.items()}
    print(medians, f"{medians['one process'] / medians['Ray, two shards']:.2f} times faster")


if __name__ == "__main__":
    main()
