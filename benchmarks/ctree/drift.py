"""Drift: prequential accuracy with ``drift_period``, and of the defaults over windows of the last examples.

In a window each example is deleted exactly when so many later ones have come (``stream.model: sliding_window``):
counts, naive Bayes and the tallies of who was right are then those of the window; splits stay. Streams, rows and orders
as in ``prequential``, but random orders are those of ``source.permutation``. CPU time of a whole replay, per example.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from ctree.command import Request
from ctree.prequential import WARMUP, orders
from ctree.streams import STREAMS
from kit import progress, show
from measure import DATA

from pipelines import replay

#: Name, examples that are kept (None for all), and options.
SETTINGS: tuple[tuple[str, int | None, dict[str, Any]], ...] = (
    ("defaults", None, {}),
    ("drift_period 200", None, {"drift_period": 200}),
    ("drift_period 500", None, {"drift_period": 500}),
    ("window 10,000", 10_000, {}),
    ("window 5,000", 5_000, {}),
    ("window 2,000", 2_000, {}),
    ("window 1,000", 1_000, {}),
)


def source_of(name: str, order: int | None, most: int) -> dict[str, Any]:
    """Section ``source`` of a config: the first rows of a file, in one order."""
    return {"kind": "parquet", "path": str(DATA / f"{name}.parquet"), "limit": most, "permutation": order}


def replayed(source: dict[str, Any], window: int | None, learner: dict[str, Any]) -> tuple[float, float]:
    """Accuracy and CPU microseconds per example of a whole replay in this process."""
    model = {"model": "incremental"} if window is None else {"model": "sliding_window", "window": window}
    config = {
        "source": source,
        "stream": {**model, "warmup": WARMUP},
        "learner": {"kind": "confidence_tree", **learner},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        summary = replay(config, Path(folder) / "run").summary
    us = 1e6 * (time.process_time() - began) / float(summary["inserts"])
    return 100 * float(summary["metrics"]["accuracy"]), us


def run(request: Request) -> None:
    """Print accuracy by setting, and what it costs."""
    names = request.sets(*STREAMS)
    table = []
    sources = [[source_of(name, order, request.rows) for order in orders(name)] for name in names]
    replayed(source_of("bananas", 0, request.rows), None, {"drift_period": 200})  # so that no kernel is compiled below
    for setting, window, options in SETTINGS[: request.settings]:
        found = np.array(
            [np.mean([replayed(source, window, options) for source in of_name], axis=0) for of_name in sources]
        )
        cells = [f"{accuracy:.2f}" for accuracy in (*found[:, 0], found[:, 0].mean())]
        table.append([setting, *cells, f"{found[:, 1].mean():.1f}"])
        progress(*table[-1])
    show("Prequential accuracy by setting, mean of the orders", ["setting", *names, "mean", "us"], table)
