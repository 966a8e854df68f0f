"""The sparse fully dynamic tree, prequentially: every row is predicted before it is inserted.

Beside it, on the same rows in the same order:

* FuDyADT on the ``FREQUENT`` most frequent features as numbers 0 and 1, chosen with the whole data in view. All of them
  as dense columns are not feasible: Reuters takes 21,578 x 50,887 x 8 bytes = 8.8 GB, and rebuilds read their share.
* river's Hoeffding tree, which cannot delete: on dictionaries of the ones, where a feature that is absent counts as
  missing, and on the same frequent features, zeros included.
* no-change and the majority of the labels so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from harness import Request, progress, show, stored_bytes, trivial_predictions
from sparse.data import Steps, real

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import DELETE, INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession, compile_kernels

WINDOW, FREQUENT, BATCH, WARM = 2_000, 200, 1_000, 50
#: alpha and beta of all trees of ours.
GAINS = {"alpha": 0.05, "beta": 0.05}

Codes = npt.NDArray[np.int64]


class Outcome(NamedTuple):
    """Predictions of all rows, updates, CPU seconds of the stream, bytes of all arrays at its end (0: not known)."""

    predictions: Codes
    updates: int
    seconds: float
    bytes: int = 0
    note: str = ""


def batches(rows: Steps, d: int, window: int, X: npt.NDArray[np.float64]) -> Iterator[UpdateBatch]:
    """All rows in order, each followed by the deletion of the one ``window`` rows before it (0: never)."""
    n = len(rows)
    when = np.arange(n) * 2
    op, ids = np.full(n, INSERT), np.arange(n)
    if window:
        op = np.concatenate([op, np.full(n - window, DELETE)])
        ids = np.concatenate([ids, np.arange(n - window)])
        order = np.argsort(np.concatenate([when, when[window:] + 1]))
        op, ids = op[order], ids[order]
    for begin in range(0, len(op), BATCH):
        ops, own = op[begin : begin + BATCH].astype(np.int8), ids[begin : begin + BATCH]
        new = own[ops == INSERT]
        first, last = (int(new[0]), int(new[-1]) + 1) if len(new) else (0, 0)
        part = rows.part(first, last)
        ones = (part.indptr, part.feature) if d else (np.zeros(len(new) + 1, dtype=np.int64), part.feature[:0])
        y = part.label.astype(np.int32)
        yield UpdateBatch(begin, ops, own, X[first:last], y, 2, np.full(len(ops), -1), 0, None, SparseRows(*ones, d))


def ours(kind: str, rows: Steps, d: int, window: int, X: npt.NDArray[np.float64], **options: Any) -> Outcome:
    learner = learners()[kind]
    chosen = learner.Options(kind=kind, **{**GAINS, **options})
    features = Features(tuple(f"x{j}" for j in range(X.shape[1])), (False,) * X.shape[1], chosen.feature_groups, d)
    stream = list(batches(rows, d, window, X))
    session = InProcessSession(learner, chosen, features, 1, WorkPlan(2**62))
    began = time.process_time()
    found = [result.predictions[batch.op == INSERT] for batch, result in session.process(stream)]
    seconds = time.process_time() - began
    told = session.statistics()
    note = f"{told['nodes']} nodes, {told['rebuilds']} rebuilds"
    size = stored_bytes(session.coordinator, session.shards)
    return Outcome(np.concatenate(found), sum(map(len, stream)), seconds, size, note)


def frequent(rows: Steps, d: int) -> npt.NDArray[np.float64]:
    places = np.full(d, -1)
    most = np.argsort(-np.bincount(rows.feature, minlength=d), kind="stable")[:FREQUENT]
    places[most] = np.arange(len(most))
    X = np.zeros((len(rows), len(most)))
    row, column = np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), places[rows.feature]
    X[row[column >= 0], column[column >= 0]] = 1.0
    return X


def river_tree(dense: bool) -> Callable[..., Outcome]:
    from river.tree import HoeffdingTreeClassifier

    def run(rows: Steps, d: int, window: int) -> Outcome:
        model = HoeffdingTreeClassifier()
        if dense:
            given = [dict(enumerate(row)) for row in frequent(rows, d).tolist()]
        else:
            bounds = rows.indptr[1:-1]
            given = [dict.fromkeys(row.tolist(), 1.0) for row in np.split(rows.feature, bounds)]
        found = np.zeros(len(rows), dtype=np.int64)
        began = time.process_time()
        for i, (x, y) in enumerate(zip(given, rows.label.tolist(), strict=True)):
            found[i] = model.predict_one(x) or 0
            model.learn_one(x, y)
        seconds = time.process_time() - began
        size = int(model._raw_memory_usage)
        return Outcome(found, len(rows), seconds, size, f"{model.n_nodes} nodes, insertions only")

    return run


def trivial(name: str) -> Callable[..., Outcome]:
    return lambda rows, d, window: Outcome(trivial_predictions(rows.label)[name].astype(np.int64), len(rows), 0.0)


def contestants() -> dict[str, tuple[bool, Callable[..., Outcome]]]:
    """Return whether each can delete, and what runs it on rows, with their features and a window."""

    def sparse_tree(finder: str) -> Callable[..., Outcome]:
        return lambda rows, d, window: ours("sparse_tree", rows, d, window, np.empty((len(rows), 0)), finder=finder)

    def dense_tree(rows: Steps, d: int, window: int) -> Outcome:
        return ours("fudyadt", rows, 0, window, frequent(rows, d), max_depth=10, epsilon=0.1)

    return {
        "sparse tree, updgini": (True, sparse_tree("updgini")), "sparse tree, updent": (True, sparse_tree("updent")),
        f"FuDyADT, {FREQUENT} features": (True, dense_tree), "river Hoeffding tree, ones": (False, river_tree(False)),
        f"river Hoeffding tree, {FREQUENT} features": (False, river_tree(True)),
        "no-change": (False, trivial("no-change")), "majority": (False, trivial("majority")),
    }  # fmt: skip


def f1(truth: Codes, said: Codes) -> float:
    hits = int(((truth == 1) & (said == 1)).sum())
    return 2 * hits / max(1, int((truth == 1).sum()) + int((said == 1).sum()))


def run(request: Request) -> None:
    for kind in ("fudyadt", "sparse_tree"):
        compile_kernels(learners()[kind])
    for name in request.sets("reuters", "spamassassin", "farm"):
        rows, d = real(name)
        truth, table = rows.label.astype(np.int64), []
        for who, (deletes, measured) in contestants().items():
            if deletes:
                measured(rows.part(0, 4 * WARM), d, WARM)  # compiles
            for window in (0, WINDOW) if deletes else (0,):
                found = measured(rows, d, window)
                speed = f"{found.updates / found.seconds:,.0f}" if found.seconds else ""
                size = f"{found.bytes / 2**20:.0f}" if found.bytes else ""
                quality = f"{f1(truth, found.predictions):.4f}", f"{(found.predictions == truth).mean():.4f}"
                table.append([who, f"{window:,}" if window else "all rows", speed, *quality, size, found.note])
                progress(name, *table[-1])
        header = ["", "live", "updates per second", "F1", "accuracy", "MB", ""]
        note = f"{len(rows):,} rows, {d:,} features; each is predicted, then inserted; one run, CPU time of one core."
        show(f"Trees on {name}", header, table, note)
