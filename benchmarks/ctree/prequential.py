"""Defaults of both sides on ten streams: prequential accuracy and CPU time beside river's two Hoeffding trees.

Rows in file order where order is time, else in three random orders; at most ``--rows`` of each file. ``defaults``
compares, ``choice`` prints the settings among which the defaults were chosen. Every example is predicted before it is
learned; the first 200 rows, our warm-up, are not scored on either side. river: ``predict_one`` and ``learn_one`` on
dictionaries made beforehand. CPU time of this process; of ours the median of three runs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from ctree.command import Request
from ctree.streams import STREAMS
from kit import progress, show
from measure import DATA

from pipelines import replay
from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED
from raydt.sessions.session import InProcessSession

#: Rows that are not scored, rows of a batch, runs of ours.
WARMUP, BATCH, RUNS = 200, 4_096, 3
#: Settings of ``choice``: each changes one option of the defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "c 0.05": {"c": 0.05},
    "c 0.02": {"c": 0.02},
    "c 0.005": {"c": 0.005},
    "c 0.002": {"c": 0.002},
    "ties 0.01": {"tie_threshold": 0.01},
    "grace 50": {"grace_period": 50},
    "grace 200": {"grace_period": 200},
    "bins 16": {"max_bins": 16},
    "bins 256": {"max_bins": 256},
    "bins stay": {"renew_bins": 0},
    "majority": {"leaf_prediction": "majority"},
    "naive Bayes": {"leaf_prediction": "naive_bayes"},
    "drift 200": {"drift_period": 200},
    "before": {"c": 0.05, "max_bins": 256, "renew_bins": 0, "leaf_prediction": "majority"},
}


class Rows(NamedTuple):
    """Examples of one stream: float64 (n, d), class codes, names, and which columns are categories."""

    X: npt.NDArray[np.float64]
    y: npt.NDArray[np.int32]
    names: tuple[str, ...]
    categorical: tuple[bool, ...]

    def features(self) -> Features:
        """As a session takes them."""
        return Features(self.names, self.categorical)


class Result(NamedTuple):
    """Share of right predictions, and CPU microseconds per example."""

    accuracy: float
    us: float


def orders(name: str) -> list[int | None]:
    """None for the order of the file, or the seeds of random orders."""
    return [None] if STREAMS[name] else [0, 1, 2]


def rows_of(name: str, order: int | None, most: int) -> Rows:
    """The first rows of a stream, in one order."""
    rows = _read(name, most)
    if order is None:
        return rows
    at = np.random.default_rng(order).permutation(len(rows.y))
    return rows._replace(X=np.ascontiguousarray(rows.X[at]), y=rows.y[at])


@cache
def _read(name: str, most: int) -> Rows:
    table = pq.read_table(DATA / f"{name}.parquet").slice(0, most)
    columns, categorical = [], []
    names = tuple(column for column in table.column_names if column != "y")
    for column in (*names, "y"):
        values = table[column].combine_chunks()
        category = pa.types.is_dictionary(values.type)
        if category or column == "y":
            text = np.array(values.to_pylist()).astype(str)
            values = np.unique(text, return_inverse=True)[1]
        columns.append(np.asarray(values, dtype=np.float64))
        categorical.append(category)
    X = np.ascontiguousarray(np.stack(columns[:-1], axis=1))
    return Rows(X, columns[-1].astype(np.int32), names, tuple(categorical[:-1]))


def ours(rows: Rows, options: dict[str, Any]) -> Result:
    """A session in this process."""
    learner = learners()["confidence_tree"]
    n, classes = len(rows.y), int(rows.y.max()) + 1
    found = np.empty(n, dtype=np.int32)
    began = time.process_time()
    running = InProcessSession(learner, learner.Options(**options), rows.features(), 1, NOTHING_DIVIDED)
    for begin in range(0, n, BATCH):
        ids = np.arange(begin, min(begin + BATCH, n))
        inserts = np.full(len(ids), INSERT, np.int8)
        batch = UpdateBatch(begin, inserts, ids, rows.X[ids], rows.y[ids], classes, ids, WARMUP)
        found[ids] = running.apply(batch).predictions
    us = 1e6 * (time.process_time() - began) / n
    return Result(float((found == rows.y)[WARMUP:].mean()), us)


def replayed(name: str, most: int) -> float:
    """CPU microseconds per example of a whole replay in this process: reading, tables, checkpoint and model."""
    config = {
        "source": {"kind": "parquet", "path": str(DATA / f"{name}.parquet"), "limit": most},
        "stream": {"model": "incremental", "warmup": WARMUP},
        "learner": {"kind": "confidence_tree"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    with tempfile.TemporaryDirectory() as folder:  # which is not removed within the time
        began = time.process_time()
        summary = replay(config, Path(folder) / "run").summary
        seconds = time.process_time() - began
    return 1e6 * seconds / float(summary["updates"])


def repeated(rows: Rows) -> Result:
    """The defaults, several times."""
    results = [ours(rows, {}) for _ in range(RUNS)]
    return Result(results[0].accuracy, statistics.median(result.us for result in results))


def theirs(rows: Rows, adaptive: bool) -> Result:
    """river's tree with its defaults."""
    from river.tree import HoeffdingAdaptiveTreeClassifier, HoeffdingTreeClassifier

    nominal = [name for name, category in zip(rows.names, rows.categorical, strict=True) if category] or None
    if adaptive:
        tree = HoeffdingAdaptiveTreeClassifier(nominal_attributes=nominal, seed=1)
    else:
        tree = HoeffdingTreeClassifier(nominal_attributes=nominal)
    examples = [
        (dict(zip(rows.names, x, strict=True)), y) for x, y in zip(rows.X.tolist(), rows.y.tolist(), strict=True)
    ]
    right = np.zeros(len(examples), dtype=np.bool_)
    began = time.process_time()
    for i, (x, y) in enumerate(examples):
        right[i] = tree.predict_one(x) == y
        tree.learn_one(x, y)
    return Result(float(right[WARMUP:].mean()), 1e6 * (time.process_time() - began) / len(examples))


def _mean(results: list[Result]) -> Result:
    return Result(*np.mean(results, axis=0).tolist())


def run(request: Request) -> None:
    """Print the table of the defaults beside river's."""
    ours(rows_of("bananas", 0, request.rows), {})  # so that no kernel is compiled below
    replayed("bananas", request.rows)
    table, all_means = [], []
    for name in request.sets(*STREAMS):
        streams = [rows_of(name, order, request.rows) for order in orders(name)]
        whole = statistics.median(replayed(name, request.rows) for _ in range(RUNS))
        own, plain, adaptive = (
            _mean([how(rows) for rows in streams])
            for how in (repeated, partial(theirs, adaptive=False), partial(theirs, adaptive=True))
        )
        progress(name, own, whole, plain, adaptive)
        all_means.append((own.accuracy, plain.accuracy, adaptive.accuracy))
        accuracies = [f"{100 * value:.2f}" for value in all_means[-1]]
        times = [
            f"{own.us:.2f}",
            f"{whole:.2f}",
            f"{plain.us:.1f}",
            f"{plain.us / own.us:.1f}",
            f"{plain.us / whole:.1f}",
        ]
        table.append([name, str(len(streams[0].y)), str(len(streams)), *accuracies, *times])
    means = [f"{100 * value:.2f}" for value in np.mean(all_means, axis=0)]
    table.append(["mean", "", "", *means, "", "", "", "", ""])
    header = ["stream", "rows", "orders", "raydt", "river HT", "river HAT"]
    header += ["us, session", "us, replay", "us, river HT", "times, session", "times, replay"]
    show("Prequential accuracy and CPU time per example, defaults of both sides", header, table)


def choice(request: Request) -> None:
    """Print the table of settings: accuracy, and nodes of the tree."""
    names = request.sets(*STREAMS)
    table = []
    for setting, options in SETTINGS.items():
        found = [
            np.mean([ours(rows_of(name, order, request.rows), options).accuracy for order in orders(name)])
            for name in names
        ]
        table.append([setting, *(f"{100 * value:.2f}" for value in found), f"{100 * np.mean(found):.2f}"])
        progress(*table[-1])
    show("Prequential accuracy by setting, mean of the orders", ["setting", *names, "mean"], table)
