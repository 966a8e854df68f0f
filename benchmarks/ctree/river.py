"""Time and accuracy beside river's HoeffdingTreeClassifier: the same rule, grace period, delta and tie threshold.

Electricity in file order, every example predicted before it is learned. Ours twice: the session in this process with
batches of 4,096, and the whole replay in process (the file is read, tables, state and model are written). river:
``predict_one`` and ``learn_one`` on dictionaries made beforehand. CPU time, all in turns in one run, median of the
rounds after one that is not counted.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ctree.command import Request
from kit import progress, show
from measure import DATA, electricity

from pipelines import replay
from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession

GRACE, DELTA, TIE = 100, 1e-7, 0.05
BATCH = 4_096
WARMUP = 1_000
OPTIONS: dict[str, Any] = {
    "kind": "confidence_tree", "rule": "hoeffding", "grace_period": GRACE, "delta": DELTA, "tie_threshold": TIE,
    "leaf_prediction": "majority", "max_bins": 256, "renew_bins": 0,
}  # fmt: skip
#: Goals: times as fast, and points of accuracy that may be lost.
FASTER, LOST = 20.0, 0.5

Codes = npt.NDArray[np.int32]


def session(X: npt.NDArray[np.float64], y: Codes) -> Codes:
    """Predictions of our tree; those of the warm-up are -1."""
    learner = learners()["confidence_tree"]
    features = Features(tuple(map(str, range(X.shape[1]))), (False,) * X.shape[1])
    running = InProcessSession(learner, learner.Options(**OPTIONS), features, 1, WorkPlan(2**62))
    found = np.empty(len(y), dtype=np.int32)
    for begin in range(0, len(y), BATCH):
        rows = np.arange(begin, min(begin + BATCH, len(y)))
        warm = max(0, min(WARMUP - begin, len(rows)))
        batch = UpdateBatch(begin, np.full(len(rows), INSERT, np.int8), rows, X[rows], y[rows], 2, rows, warm)
        found[rows] = running.apply(batch).predictions
    return found


def replayed() -> float:
    """Accuracy of a replay in this process."""
    config = {
        "source": {"kind": "parquet", "path": str(DATA / "electricity.parquet")},
        "stream": {"model": "incremental", "warmup": WARMUP},
        "learner": OPTIONS,
        "cluster": {"backend": "in_process", "batch_size": BATCH},
        "checkpoint": {"every_seconds": None},
        "output": {"report": False, "metrics_every": BATCH},
    }
    with tempfile.TemporaryDirectory() as folder:
        return float(replay(config, Path(folder) / "run").summary["metrics"]["accuracy"])


def theirs(rows: list[dict[int, float]], labels: list[int]) -> Codes:
    """Predictions of river's tree."""
    from river.tree import HoeffdingTreeClassifier

    tree = HoeffdingTreeClassifier(
        grace_period=GRACE, delta=DELTA, tau=TIE, split_criterion="gini", leaf_prediction="mc"
    )
    found = np.zeros(len(labels), dtype=np.int32)
    for i, (x, label) in enumerate(zip(rows, labels, strict=True)):
        found[i] = tree.predict_one(x) or 0
        tree.learn_one(x, label)
    return found


def run(request: Request) -> None:
    """Print the table."""
    X, y = electricity()
    n, rows = len(y), [dict(enumerate(x)) for x in X.tolist()]
    labels = y.tolist()
    contestants: dict[str, Callable[[], Any]] = {
        "session": lambda: session(X, y),
        "replay": replayed,
        "river": lambda: theirs(rows, labels),
    }
    times: dict[str, list[float]] = {who: [] for who in contestants}
    found: dict[str, Any] = {}
    for turn in range(request.seeds + 1):
        for who, measured in contestants.items():
            began = time.process_time()
            found[who] = measured()
            seconds = time.process_time() - began
            if turn:
                times[who].append(seconds)
            progress(who, turn, f"{seconds:.2f} s")
    scored = slice(WARMUP, None)  # what all have predicted
    quality = {who: float((found[who] == y)[scored].mean()) for who in ("session", "river")}
    quality["replay"] = found["replay"]
    taken = {who: statistics.median(values) for who, values in times.items()}
    names = {"session": f"raydt, session, batches of {BATCH:,}", "replay": "raydt, replay in process", "river": "river"}
    table = []
    for who, name in names.items():
        factor, lost = taken["river"] / taken[who], 100 * (quality["river"] - quality[who])
        verdict = "" if who == "river" else "met" if factor >= FASTER and lost <= LOST else "**missed**"
        cells = [f"{1e6 * taken[who] / n:.2f}", f"{100 * quality[who]:.2f}", f"{factor:.1f}", verdict]
        table.append([name, *cells])
    note = (
        f"{n:,} rows in file order; rule hoeffding, Gini, grace period {GRACE}, delta {DELTA:g}, tie threshold "
        f"{TIE:g}; leaves predict their majority. Accuracy of the rows after the first {WARMUP:,}. CPU time of "
        f"one core, median of {request.seeds}. Goal: {FASTER:.0f} times as fast, at most {LOST} points less accurate."
    )
    show("Electricity, prequential", ["", "us per example", "accuracy", "times as fast as river", "goal"], table, note)
