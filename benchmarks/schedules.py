"""Schedules of FuDyADT beside each other: rows rebuilt, CPU time, accuracy and the largest rebuild of each stream.

Every stream is replayed by an in-process session in batches of 4,096, in three orders: as it is in the file, and
shuffled with two seeds. Each inserted example is predicted by the tree as it was just before. A window of W deletes the
oldest example before it inserts the next, two updates a step. River's EFDT learns the same insert-only streams.
Run: python benchmarks/schedules.py [--data FOLDER] [--rows 50000] [--only NAME] [--orders 3] [--river]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from harness import DATA, arguments, print_machine, progress, read, session, show

from raydt.examples.updates import INSERT, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import compile_kernels

BATCH = 4096
#: Options of each schedule; the first is the one the others are compared with.
SCHEDULES: dict[str, dict[str, Any]] = {
    "published, auto": {"schedule": "published"}, "published, .1": {"epsilon": 0.1}, "certificate": {},
}  # fmt: skip
#: Data and window (0: insert-only) of each stream.
STREAMS = {
    "Electricity": ("electricity", 0), "Electricity, window 1,000": ("electricity", 1000),
    "Electricity, window 5,000": ("electricity", 5000), "covtype, first 10,000": ("covtype_head10k", 0),
    "covtype 3 or 4": ("covtype_class3_vs_4", 0), "adult": ("adult_train", 0), "a9a": ("a9a_train", 0),
    "kddcup99": ("kddcup99_10pct", 0), "poker_lsn": ("poker_lsn", 0), "mushrooms": ("mushrooms", 0),
    "posture, window 5,000": ("posture", 5000), "SEA with drift": ("sea", 0),
    "SEA with drift, window 10,000": ("sea", 10_000), "uniform, 10 features": ("uniform", 0),
}  # fmt: skip


class Data(NamedTuple):
    """Features (float64, categories as codes), which of them are categorical, and labels of ``classes`` classes."""

    X: npt.NDArray[np.float64]
    categorical: tuple[bool, ...]
    y: npt.NDArray[np.int32]
    classes: int

    def shuffled(self, seed: int) -> Data:
        """Return the rows in another order; seed 0 is the order of the file."""
        if not seed:
            return self
        order = np.random.default_rng(seed).permutation(len(self.y))
        return self._replace(X=self.X[order], y=self.y[order])


class Outcome(NamedTuple):
    """One replay: rows rebuilt and CPU microseconds per update, accuracy in per cent, rows of the largest rebuild."""

    rows: float
    us: float
    accuracy: float
    largest: float


def data_of(name: str, rows: int, folder: Path) -> Data:
    """Return the first rows of a file, with sparse rows as columns of 0 and 1, or drawn rows with wrong labels.

    SEA has four concepts that follow each other; of uniform rows the class tells whether the first two exceed 1.
    """
    rng = np.random.default_rng(0)
    if name == "sea":
        X, limits = rng.random((rows, 3)) * 10, np.array([8.0, 9.0, 7.0, 9.5])[np.arange(rows) * 4 // rows]
        y = (X[:, 0] + X[:, 1] <= limits) ^ (rng.random(rows) < 0.1)
        return Data(X, (False,) * 3, y.astype(np.int32), 2)
    if name == "uniform":
        X = rng.random((6 * rows, 10))
        y = (X[:, 0] + X[:, 1] > 1) ^ (rng.random(6 * rows) < 0.05)
        return Data(X, (False,) * 10, y.astype(np.int32), 2)
    content = read(name, folder).slice(0, rows)
    codes = content["y"].combine_chunks()
    codes = codes.dictionary_decode() if pa.types.is_dictionary(codes.type) else codes
    y = np.unique(codes.to_numpy(zero_copy_only=False), return_inverse=True)[1].astype(np.int32)
    if "indices" in content.column_names:
        lists = content["indices"].combine_chunks()
        X = np.zeros((len(y), int(content.schema.metadata[b"n_features"])))
        X[np.repeat(np.arange(len(y)), np.diff(lists.offsets.to_numpy())), lists.flatten().to_numpy()] = 1.0
        return Data(X, (False,) * X.shape[1], y, int(y.max()) + 1)
    columns, categorical = [], []
    for column in content.drop_columns(["y"]).columns:
        values = column.combine_chunks()
        text = pa.types.is_dictionary(values.type) or pa.types.is_string(values.type)
        if text:
            values = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
            values = values.indices.fill_null(-1)
        columns.append(np.nan_to_num(values.to_numpy(zero_copy_only=False).astype(np.float64), nan=-1.0))
        categorical.append(text)
    return Data(np.column_stack(columns), tuple(categorical), y, int(y.max()) + 1)


def batches(data: Data, window: int) -> Iterator[UpdateBatch]:
    """Insert each row; with a window, delete the oldest before each insertion beyond it."""
    n = len(data.y)
    op, ids = np.zeros(n, np.int8), np.arange(n)
    if window:
        pairs = np.column_stack([np.arange(max(0, n - window)), np.arange(window, max(n, window))]).ravel()
        op = np.concatenate([np.zeros(min(n, window)), np.tile([1, 0], len(pairs) // 2)]).astype(np.int8)
        ids = np.concatenate([np.arange(min(n, window)), pairs])
    for begin in range(0, len(op), BATCH):
        ops, part = op[begin : begin + BATCH], ids[begin : begin + BATCH]
        rows = part[ops == INSERT]
        yield UpdateBatch(begin, ops, part, data.X[rows], data.y[rows], data.classes, np.full(len(ops), -1))


def replay(data: Data, window: int, options: dict[str, Any]) -> Outcome:
    running = session("fudyadt", data.categorical, smoothing=0.0, **options)
    predicted, largest, seconds, updates = [], 0, 0.0, 0
    for batch in batches(data, window):
        began = time.process_time()
        result = running.apply(batch)
        seconds += time.process_time() - began
        updates += len(batch)
        predicted.append(result.predictions[batch.op == INSERT])
        largest = max(largest, int(max(result.log.get("rows", ()), default=0)))
    rebuilt = running.statistics()["rebuilt_rows"] / updates
    return Outcome(rebuilt, 1e6 * seconds / updates, 100 * np.mean(np.concatenate(predicted) == data.y), largest)


def efdt(data: Data) -> Outcome:
    from river import tree as river_tree

    nominal = [str(j) for j, categorical in enumerate(data.categorical) if categorical]
    model = river_tree.ExtremelyFastDecisionTreeClassifier(grace_period=500, nominal_attributes=nominal)
    rows = [dict(zip(map(str, range(len(x))), x, strict=True)) for x in data.X.tolist()]
    guesses = np.zeros(len(rows), np.int32)
    began = time.process_time()
    for i, (x, label) in enumerate(zip(rows, data.y.tolist(), strict=True)):
        guesses[i] = model.predict_one(x) or 0
        model.learn_one(x, label)
    us = 1e6 * (time.process_time() - began) / len(rows)
    return Outcome(float("nan"), us, 100 * np.mean(guesses == data.y), float("nan"))


if __name__ == "__main__":
    given = arguments(__doc__, data=DATA, rows=50_000, orders=3, only="", river=False)
    print_machine("river")
    compile_kernels(learners()["fudyadt"])
    lines, saved, lost = [], [], []
    for name, (file, window) in STREAMS.items():
        if given.only.lower() not in name.lower():
            continue
        data = data_of(file, given.rows, given.data)
        outcomes: dict[str, list[Outcome]] = {schedule: [] for schedule in SCHEDULES}
        for seed in range(given.orders):
            shuffled = data.shuffled(seed)
            for schedule, options in SCHEDULES.items():
                outcomes[schedule].append(replay(shuffled, window, options))
        means = [np.mean(found, axis=0) for found in outcomes.values()]
        saved.append(means[0][0] / means[-1][0])
        lost.append(means[0][2] - means[-1][2])
        means += [np.array(efdt(data))] if given.river and not window else []
        lines.append([name, *("; ".join(f"{value:,.4g}" for value in part) for part in np.transpose(means))])
        progress(*lines[-1])
    note = f"Certificate beside published: {statistics.geometric_mean(saved):.1f} times fewer rows rebuilt (least "
    note += f"{min(saved):.1f}), accuracy lower by {np.mean(lost):.2f} points in the mean, {max(lost):.2f} at worst."
    header = ["stream", "rows rebuilt per update", "us per update", "accuracy %", "rows of the largest rebuild"]
    show(f"Schedules: {'; '.join(SCHEDULES)}; river's EFDT", header, lines, note)
