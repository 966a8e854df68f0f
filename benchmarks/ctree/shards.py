"""What naive Bayes at the leaves costs on Ray, where the shards do all work: beside leaves that predict their majority.

Two shards on this machine (``memory_limit: 0``), defaults otherwise. Wall time of the stream, as the run reports it,
and bytes exchanged with the shards. In turns, median of the rounds after one that is not counted.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from ctree.command import Request
from ctree.prequential import WARMUP
from kit import progress, show
from measure import DATA

from pipelines import replay

#: Two classes, and ten; of each file so many rows at most.
FILES, MOST = ("electricity", "poker_lsn"), 200_000
KINDS = ("majority", "adaptive")
ROUNDS = 5


def replayed(name: str, kind: str) -> dict[str, Any]:
    """Summary of a replay."""
    config = {
        "source": {"kind": "parquet", "path": str(DATA / f"{name}.parquet"), "limit": MOST},
        "stream": {"model": "incremental", "warmup": WARMUP},
        "learner": {"kind": "confidence_tree", "leaf_prediction": kind},
        "cluster": {"backend": "ray", "shards": 2, "memory_limit": 0},
        "output": {"report": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        summary: dict[str, Any] = replay(config, Path(folder) / "run").summary
    return summary


def run(request: Request) -> None:
    """Print the table."""
    table = []
    for name in request.sets(*FILES):
        runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        for _ in range(ROUNDS + 1):
            for kind, summaries in runs.items():
                summaries.append(replayed(name, kind))
        for kind, summaries in runs.items():
            last, times = summaries[-1], [summary["seconds"] for summary in summaries[1:]]
            n = int(last["updates"])
            us = [f"{1e6 * seconds / n:.1f}" for seconds in (statistics.median(times), min(times), max(times))]
            sent = f"{last['bytes_exchanged'] / n:.0f}"
            table.append([name, f"{n:,}", kind, *us, sent, str(last["rounds"]), f"{last['metrics']['accuracy']:.3f}"])
            progress(*table[-1])
    header = ["stream", "rows", "leaves predict", "us", "least", "most", "bytes", "rounds", "accuracy"]
    show("Wall time and bytes per example on Ray with two shards", header, table)
