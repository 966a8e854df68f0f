"""Insert-only Electricity: the estimator in batches of 1,000 (epsilon 0.15) beside river's EFDT (grace 500).

Both predict every example before they learn it (the estimator: each batch before the batch). One core, CPU time,
median of 5.
Run: python benchmarks/electricity_efdt.py [folder of the data]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from measure import DATA, cpu_seconds, electricity, machine

from raydt import FullyDynamicTreeClassifier

X, y = electricity(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
n, batch = len(y), 1000
print(machine("river"))
predicted = np.zeros(n, dtype=np.int32)


def f1(prediction: np.ndarray) -> float:
    hit = ((prediction == 1) & (y == 1)).sum()
    return float(2 * hit / (2 * hit + (prediction != y).sum()))


def ours() -> None:
    tree = FullyDynamicTreeClassifier(epsilon=0.15, alpha=0, beta=0, max_depth=10)
    for begin in range(0, n, batch):
        rows = slice(begin, begin + batch)
        if begin:
            predicted[rows] = tree.predict(X[rows])
        tree.partial_fit(X[rows], y[rows], [0, 1])


mine = cpu_seconds(ours)
print(f"raydt estimator  {mine / n * 1e6:8.2f} us/update  F1(DOWN) {100 * f1(predicted):.2f}")

from river import tree as river_tree  # noqa: E402 (imported after our timing, so that it cannot disturb it)

rows = [dict(enumerate(x)) for x in X.tolist()]
theirs = np.zeros(n, dtype=np.int32)


def efdt() -> None:
    tree = river_tree.ExtremelyFastDecisionTreeClassifier(grace_period=500)
    for i, (x, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        theirs[i] = tree.predict_one(x) or 0
        tree.learn_one(x, label)


peer = cpu_seconds(efdt)
print(f"river EFDT       {peer / n * 1e6:8.2f} us/update  F1(DOWN) {100 * f1(theirs):.2f}")
print(f"ratio            {peer / mine:8.1f}")
