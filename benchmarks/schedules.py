"""Schedules of FuDyADT beside each other: rows rebuilt, CPU time, accuracy, F1, tree size and the worst update.

Every stream is replayed by an in-process session in batches of 4,096, in three orders: as it is in the file, and
shuffled with two seeds. Each inserted example is predicted by the tree as it was just before. A window of W deletes the
oldest example before it inserts the next, two updates a step. River's EFDT learns the same insert-only streams.
Run: python benchmarks/schedules.py [--data FOLDER] [--rows 50000] [--only NAME] [--orders 3] [--river]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from harness import DATA, machine, table

from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import InProcessSession, compile_kernels

BATCH = 4096
#: Options of each schedule; the first is the one the others are compared with.
SCHEDULES: dict[str, dict[str, Any]] = {
    "published, auto": {"schedule": "published"},
    "published, .1": {"epsilon": 0.1},
    "certificate": {},
}


@dataclass(frozen=True, slots=True)
class Data:
    """Features (float64, categories as codes), which of them are categorical, and labels of ``classes`` classes."""

    X: npt.NDArray[np.float64]
    categorical: tuple[bool, ...]
    y: npt.NDArray[np.int32]
    classes: int

    def shuffled(self, seed: int) -> Data:
        """The rows in another order; seed 0 is the order of the file."""
        if not seed:
            return self
        order = np.random.default_rng(seed).permutation(len(self.y))
        return Data(self.X[order], self.categorical, self.y[order], self.classes)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replay: shares in percent, ``us`` CPU microseconds per update, rows of the largest rebuild."""

    rows: float
    us: float
    accuracy: float
    f1: float
    nodes: float
    worst: float


def read(name: str, rows: int, folder: Path) -> Data:
    """The first ``rows`` rows of a Parquet file whose label is ``y``; sparse rows become dense columns of 0 and 1."""
    file = pq.ParquetFile(folder / f"{name}.parquet")
    content = file.read().slice(0, rows)
    codes = content["y"].combine_chunks()
    codes = codes.dictionary_decode() if pa.types.is_dictionary(codes.type) else codes
    y = np.unique(codes.to_numpy(zero_copy_only=False), return_inverse=True)[1].astype(np.int32)
    if "indices" in content.column_names:
        lists = content["indices"].combine_chunks()
        X = np.zeros((len(y), int(file.schema_arrow.metadata[b"n_features"])))
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


def sea(rows: int) -> Data:
    """SEA with four concepts that follow each other, a tenth of the labels wrong."""
    rng = np.random.default_rng(0)
    X = rng.random((rows, 3)) * 10
    limits = np.array([8.0, 9.0, 7.0, 9.5])[np.arange(rows) * 4 // rows]
    y = (X[:, 0] + X[:, 1] <= limits) ^ (rng.random(rows) < 0.1)
    return Data(X, (False,) * 3, y.astype(np.int32), 2)


def uniform(rows: int, features: int = 10) -> Data:
    """Uniform numbers; the class is whether the first two exceed 1 together, a twentieth of the labels wrong."""
    rng = np.random.default_rng(0)
    X = rng.random((rows, features))
    y = (X[:, 0] + X[:, 1] > 1) ^ (rng.random(rows) < 0.05)
    return Data(X, (False,) * features, y.astype(np.int32), 2)


#: Data and window (0: insert-only) of each stream.
STREAMS: dict[str, tuple[Callable[[int, Path], Data], int]] = {
    "Electricity": (lambda n, folder: read("electricity", n, folder), 0),
    "Electricity, window 1,000": (lambda n, folder: read("electricity", n, folder), 1000),
    "Electricity, window 5,000": (lambda n, folder: read("electricity", n, folder), 5000),
    "covtype, first 10,000": (lambda n, folder: read("covtype_head10k", n, folder), 0),
    "covtype 3 or 4": (lambda n, folder: read("covtype_class3_vs_4", n, folder), 0),
    "adult": (lambda n, folder: read("adult_train", n, folder), 0),
    "a9a": (lambda n, folder: read("a9a_train", n, folder), 0),
    "kddcup99": (lambda n, folder: read("kddcup99_10pct", n, folder), 0),
    "poker_lsn": (lambda n, folder: read("poker_lsn", n, folder), 0),
    "mushrooms": (lambda n, folder: read("mushrooms", n, folder), 0),
    "posture, window 5,000": (lambda n, folder: read("posture", n, folder), 5000),
    "SEA with drift": (lambda n, _: sea(n), 0),
    "SEA with drift, window 10,000": (lambda n, _: sea(n), 10_000),
    "uniform, 10 features": (lambda n, _: uniform(6 * n), 0),
}


def batches(data: Data, window: int) -> Iterator[UpdateBatch]:
    """The stream over ``data``: insert each row; with a window, delete the oldest before each insertion beyond it."""
    n = len(data.y)
    if window:
        pairs = np.column_stack([np.arange(max(0, n - window)), np.arange(window, max(n, window))]).ravel()
        op = np.concatenate([np.zeros(min(n, window)), np.tile([1, 0], len(pairs) // 2)]).astype(np.int8)
        ids = np.concatenate([np.arange(min(n, window)), pairs])
    else:
        op, ids = np.zeros(n, np.int8), np.arange(n)
    for begin in range(0, len(op), BATCH):
        ops, part = op[begin : begin + BATCH], ids[begin : begin + BATCH]
        rows = part[ops == INSERT]
        nowhere = np.full(len(ops), -1)
        yield UpdateBatch(begin, ops, part, data.X[rows], data.y[rows], data.classes, nowhere)


def f1_of(truth: npt.NDArray[np.int32], predicted: npt.NDArray[np.int32], classes: int) -> float:
    """F1 of class 1 of two, and the mean over the classes of more."""
    values = []
    for k in (1,) if classes == 2 else range(classes):
        both = np.count_nonzero((truth == k) & (predicted == k))
        values.append(2 * both / max(1, np.count_nonzero(truth == k) + np.count_nonzero(predicted == k)))
    return statistics.mean(values)


def replay(data: Data, window: int, options: dict[str, Any]) -> Outcome:
    """One replay by an in-process session."""
    learner = learners()["fudyadt"]
    features = Features(tuple(f"f{j}" for j in range(data.X.shape[1])), data.categorical)
    session = InProcessSession(learner, learner.Options(**options), features)
    predicted, largest, seconds, updates = [], 0, 0.0, 0
    for batch in batches(data, window):
        began = time.process_time()
        result = session.apply(batch)
        seconds += time.process_time() - began
        updates += len(batch)
        predicted.append(result.predictions[batch.op == INSERT])
        rows = result.log.get("rows", ())
        largest = max(largest, int(max(rows, default=0)))
    guesses = np.concatenate(predicted)
    accuracy, f1 = float(np.mean(guesses == data.y)), f1_of(data.y, guesses, data.classes)
    stats = session.statistics()
    rebuilt = float(stats["rebuilt_rows"]) / updates
    return Outcome(rebuilt, 1e6 * seconds / updates, 100 * accuracy, 100 * f1, float(stats["nodes"]), largest)


def efdt(data: Data) -> Outcome:
    """River's Extremely Fast Decision Tree, grace period 500."""
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
    accuracy, f1 = float(np.mean(guesses == data.y)), f1_of(data.y, guesses, data.classes)
    return Outcome(float("nan"), us, 100 * accuracy, 100 * f1, float(model.n_nodes), float("nan"))


def line(stream: str, schedule: str, outcomes: list[Outcome]) -> list[str]:
    """One row of the table: means over the orders, with the spread of the accuracies."""
    mean = {name: statistics.mean(getattr(o, name) for o in outcomes) for name in Outcome.__slots__}
    spread = max(o.accuracy for o in outcomes) - min(o.accuracy for o in outcomes)
    return [
        stream,
        schedule,
        f"{mean['rows']:.1f}",
        f"{mean['us']:.1f}",
        f"{mean['accuracy']:.2f} ({spread:.2f})",
        f"{mean['f1']:.2f}",
        f"{mean['nodes']:,.0f}",
        f"{mean['worst']:,.0f}",
    ]


def main() -> None:
    """Print one table, and what the certificate saves against the published schedule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the Parquet files")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of a stream (uniform: six times as many)")
    parser.add_argument("--orders", type=int, default=3, help="orders of each stream")
    parser.add_argument("--only", default="", help="streams whose name contains this")
    parser.add_argument("--river", action="store_true", help="river's EFDT too, in the first order")
    request = parser.parse_args()
    print(machine(*(["river"] if request.river else [])), flush=True)
    compile_kernels(learners()["fudyadt"])
    header = ["stream", "schedule", "rows/update", "us/update", "accuracy % (spread)", "F1 %", "nodes", "worst rows"]
    lines, saved, lost = [], [], []
    for name, (make, window) in STREAMS.items():
        if request.only.lower() not in name.lower():
            continue
        data = make(request.rows, request.data)
        outcomes: dict[str, list[Outcome]] = {schedule: [] for schedule in SCHEDULES}
        for seed in range(request.orders):
            shuffled = data.shuffled(seed)
            for schedule, options in SCHEDULES.items():
                outcomes[schedule].append(replay(shuffled, window, options))
        new = [line(name, schedule, outcomes[schedule]) for schedule in SCHEDULES]
        first, _, last = (outcomes[schedule] for schedule in SCHEDULES)
        saved.append(statistics.mean(o.rows for o in first) / statistics.mean(o.rows for o in last))
        lost.append(statistics.mean(o.accuracy for o in first) - statistics.mean(o.accuracy for o in last))
        if request.river and not window:
            new.append(line(name, "river EFDT", [efdt(data)]))
        lines += new
        print(*table(header, new), sep="\n", flush=True)
    print("\n", *table(header, lines), sep="\n")
    print(
        f"\nCertificate beside published: {statistics.geometric_mean(saved):.1f} times fewer rows rebuilt "
        f"(least {min(saved):.1f}), accuracy lower by {statistics.mean(lost):.2f} points in the mean "
        f"and by {max(lost):.2f} at worst."
    )


if __name__ == "__main__":
    main()
