"""Default arguments of the fully dynamic tree: how well it predicts held-out rows, and rows of a stream.

    python benchmarks/defaults.py held-out | options | streams | choice [--data FOLDER] [--orders 3] [--only NAME ...]

``held-out`` fits FullyDynamicTreeClassifier() to four fifths of each data set in a drawn order and predicts the rest,
with scikit-learn's DecisionTreeClassifier(max_depth=10), the defaults of before and the majority class; ``options``
changes one option at a time; ``streams`` predicts each row just before it is learned. AUC is that of one class against
the rest, in the mean of the classes. Categories are columns of 0 and 1 for both sides, NaN is -1.

``choice`` chooses the defaults by a rule that was fixed before its first run (``defaults_choice.py``).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from defaults_choice import choice
from defaults_data import FRESH, MADE, SETS, UNTOUCHED, Codes, Rows, majority, quality, row, split, tables
from harness import DATA, machine
from sklearn.tree import DecisionTreeClassifier

from raydt import FullyDynamicTreeClassifier
from raydt.examples.updates import DELETE, INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession

#: The defaults of version 0.1.
BEFORE: dict[str, Any] = {"alpha": 0.1, "max_depth": None, "smoothing": 0.0}
#: Streams: data set, and the rows of its window (0: nothing is deleted).
STREAMS = (("electricity", 0), ("electricity", 1000), ("covtype_head10k", 0), ("sea_concepts", 0))
#: One option changed at a time.
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    *({"max_depth": depth} for depth in (10, 15, None)),
    *({"alpha": alpha} for alpha in (0.05, 0.1, 0.2)),
    *({"min_samples_split": rows} for rows in (5, 20)),
)
SMOOTHINGS = (0.0, 10.0, 20.0, 40.0, 80.0)


def held_out(folder: Path, names: list[str], orders: int) -> None:
    """Accuracy and AUC on held-out rows, in the mean of the orders."""
    row("Data", "rows x features, classes", "majority", "before", "AUC", "raydt", "AUC", "scikit-learn", "AUC")
    row(*["---"] * 9)
    means = []
    for name, X, y in tables(folder, names):
        found = []
        for seed in range(orders):
            data = split(name, X, y, seed)
            models = (
                FullyDynamicTreeClassifier(**BEFORE),
                FullyDynamicTreeClassifier(),
                DecisionTreeClassifier(max_depth=10, random_state=seed),
            )
            found.append([majority(data), *np.concatenate([quality(m.fit(data.X, data.y), data) for m in models])])
        means.append(np.mean(found, axis=0))
        row(name, f"{len(data.y) + len(data.y_test):,} x {X.shape[1]}, {y.max() + 1}", *means[-1].tolist())
    if means:
        row("mean", "", *np.mean(means, axis=0).tolist())


def options(folder: Path, names: list[str], orders: int) -> None:
    """One option changed at a time: what it gains over scikit-learn's tree, in the mean of data sets and orders."""
    gains: dict[str, list[Any]] = {}
    for name, X, y in tables(folder, names):
        here: dict[str, list[Any]] = {}
        for seed in range(orders):
            data = split(name, X, y, seed)
            peer = quality(DecisionTreeClassifier(max_depth=10, random_state=seed).fit(data.X, data.y), data)
            base = majority(data)
            for change in CHANGES:
                model = FullyDynamicTreeClassifier(**change).fit(data.X, data.y)
                results = {_in_words(change): quality(model, data)}
                for smoothing in () if change else SMOOTHINGS:  # of predictions only: the tree is the same
                    other = FullyDynamicTreeClassifier(smoothing=smoothing).fit(data.X, data.y)
                    results[f"smoothing {smoothing:g}"] = quality(other, data)
                for words, result in results.items():
                    here.setdefault(words, []).append([*(result - peer), result[0] - base])
        for words, values in here.items():
            gains.setdefault(words, []).append(np.mean(values, axis=0))
    row("Options", "accuracy less scikit-learn's", "AUC less scikit-learn's", "worst accuracy less the majority's")
    row(*["---"] * 4)
    for words, values in gains.items():
        accuracy, area, _ = np.mean(values, axis=0)
        least = np.min(values, axis=0)[2]
        row(words, f"{accuracy:+.4f}", f"{area:+.4f}", f"{least:+.4f}")


def replay(X: Rows, y: Codes, window: int, change: dict[str, Any]) -> tuple[float, float, float]:
    """Share of rows predicted right just before they are learned, rows rebuilt and microseconds of CPU per update."""
    learner = learners()["fudyadt"]
    features = Features(tuple(map(str, range(X.shape[1]))), (False,) * X.shape[1])
    session = InProcessSession(learner, learner.Options(kind="fudyadt", **change), features, 1, WorkPlan(2**62))
    right = done = 0
    began = time.process_time()
    for first in range(0, len(y), 1000):
        new = np.arange(first, min(first + 1000, len(y)))
        old = new - window if window else np.full(len(new), -1)
        pairs = np.stack([old, new], axis=1).ravel()
        kinds = np.tile(np.array([DELETE, INSERT], np.int8), len(new))
        kept = pairs >= 0
        ids, ops = pairs[kept], kinds[kept]
        batch = UpdateBatch(done, ops, ids, X[new], y[new].astype(np.int32), int(y.max()) + 1, np.full(len(ops), -1))
        result = session.driver.run(session.coordinator.process(batch))
        right += int((result.predictions[ops == INSERT] == y[new]).sum())
        done += len(ops)
    used = 1e6 * (time.process_time() - began) / done
    return right / len(y), session.statistics()["rebuilt_rows"] / done, used


def streams(folder: Path, names: list[str], orders: int) -> None:
    """Accuracy of a stream in the order of the file; ``smoothing`` takes no part in it."""
    row("Stream", "window", "options", "accuracy", "rows rebuilt per update", "us per update")
    row(*["---"] * 6)
    before = {name: value for name, value in BEFORE.items() if name != "smoothing"}
    for name, window in STREAMS:
        if name not in names:
            continue
        for _, X, y in tables(folder, [name]):
            replay(X[:500], y[:500], window, {})
            for change in ({}, before, *(c for c in CHANGES if c), {"beta": 0.1}):
                words = "before" if change is before else _in_words(change)
                accuracy, rebuilt, used = replay(X, y, window, change)
                row(name, window or "none", words, accuracy, f"{rebuilt:.1f}", f"{used:.1f}")


def _in_words(change: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in change.items()) or "the defaults"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("held-out", "options", "streams", "choice"))
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the Parquet files")
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[*SETS, *UNTOUCHED, *FRESH, *MADE], metavar="NAME")
    given = parser.parse_args()
    print(machine("scikit-learn"), f"load {os.getloadavg()[0]:.1f}\n", flush=True)
    part = {"held-out": held_out, "options": options, "streams": streams, "choice": choice}[given.part]
    names = given.only or (SETS + UNTOUCHED if given.part == "choice" else SETS)
    part(given.data, names, given.orders)


if __name__ == "__main__":
    main()
