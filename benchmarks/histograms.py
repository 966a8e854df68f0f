"""Columns of few values counted instead of sorted, beside the same engine that sorts them all: CPU time per update.

Insert-only through an in-process session in batches of 4,096, each inserted example being predicted first; epsilon
0.15, depth 10. Both sides build the same tree (the digests are compared). One core, median of 5.
Run: python benchmarks/histograms.py [folder of the data]
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from harness import DATA, cpu_seconds, machine

from raydt.examples.updates import Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.fudyadt import build
from raydt.learners.fudyadt.histograms import new_histograms
from raydt.sessions.session import InProcessSession

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
LEARNER = learners()["fudyadt"]
BATCH = 4096
SORTED = functools.partial(new_histograms, most_values=0)


def one_hot(name: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], list[bool]]:
    """A sparse binary data set, dense; class 1 is the smaller one."""
    table = pq.read_table(FOLDER / f"{name}.parquet")
    indices = table["indices"].combine_chunks()
    lengths = np.diff(indices.offsets.to_numpy())
    X = np.zeros((len(table), int(table.schema.metadata[b"n_features"])))
    X[np.repeat(np.arange(len(table)), lengths), indices.flatten().to_numpy()] = 1.0
    return X, (table["y"].to_numpy() > 0).astype(np.int32), [False] * X.shape[1]


def plain(name: str, rows: int | None = None) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], list[bool]]:
    """A table of numbers and categories; class 1 is the majority."""
    table = pq.read_table(FOLDER / f"{name}.parquet")
    table = table.slice(0, rows).unify_dictionaries().combine_chunks()
    _, y = np.unique(table["y"].to_pylist(), return_inverse=True)
    columns, categorical = [], []
    for column in table.drop_columns("y"):
        is_category = hasattr(column.type, "value_type")
        values = column.chunk(0).indices if is_category else column
        columns.append(values.to_numpy().astype(np.float64))
        categorical.append(is_category)
    return np.column_stack(columns), (y == np.bincount(y).argmax()).astype(np.int32), categorical


def replay(X: npt.NDArray[np.float64], y: npt.NDArray[np.int32], categorical: list[bool]) -> str:
    features = Features(tuple(map(str, range(X.shape[1]))), tuple(categorical))
    session = InProcessSession(LEARNER, LEARNER.Options(epsilon=0.15, alpha=0.0, beta=0.0, max_depth=10), features)
    for begin in range(0, len(y), BATCH):
        rows = np.arange(begin, min(begin + BATCH, len(y)))
        session.apply(UpdateBatch(begin, np.zeros(len(rows), np.int8), rows, X[rows], y[rows], 2, rows))
    return session.digest()


print(machine())
for name, data in {
    "a9a, 123 binary columns": lambda: one_hot("a9a_train"),
    "w8a, 300 binary columns": lambda: one_hot("w8a"),
    "adult, 8 of 14 categorical": lambda: plain("adult_train"),
    "KDD Cup 99, first 100,000": lambda: plain("kddcup99_10pct", 100_000),
    "Electricity, 8 numeric": lambda: plain("electricity"),
}.items():
    X, y, categorical = data()
    counted_digest = replay(X, y, categorical)
    counted = cpu_seconds(lambda: replay(X, y, categorical))  # noqa: B023 (called at once)
    with mock.patch.object(build, "new_histograms", SORTED):
        same = replay(X, y, categorical) == counted_digest
        all_sorted = cpu_seconds(lambda: replay(X, y, categorical))  # noqa: B023
    print(
        f"{name:<28} counted {counted / len(y) * 1e6:7.2f} us/update  sorted {all_sorted / len(y) * 1e6:7.2f}  "
        f"ratio {all_sorted / counted:5.2f}  same tree: {same}"
    )
