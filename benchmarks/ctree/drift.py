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
from ctree.prequential import MOST, WARMUP, orders
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


def replayed(name: str, order: int | None, window: int | None, learner: dict[str, Any]) -> tuple[float, float]:
    """Accuracy and CPU microseconds per example of a whole replay in this process."""
    model = {"model": "incremental"} if window is None else {"model": "sliding_window", "window": window}
    config = {
        "source": {"kind": "parquet", "path": str(DATA / f"{name}.parquet"), "limit": MOST, "permutation": order},
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
    replayed("bananas", 0, None, {"drift_period": 200})  # so that no kernel is compiled below
    for setting, window, options in SETTINGS[: request.settings]:
        found = np.array(
            [np.mean([replayed(name, order, window, options) for order in orders(name)], axis=0) for name in names]
        )
        cells = [f"{accuracy:.2f}" for accuracy in (*found[:, 0], found[:, 0].mean())]
        table.append([setting, *cells, f"{found[:, 1].mean():.1f}"])
        progress(*table[-1])
    show("Prequential accuracy by setting, mean of the orders", ["setting", *names, "mean", "us"], table)
