"""Insert-only Electricity beside river's EFDT (grace 500): default options, and the paper's epsilon 0.15 and depth 10.

A session in this process (what a replay drives, in batches of 4,096) predicts every example by the model as it was
just before, as EFDT does. The estimator, in batches of 1,000, predicts each batch before it learns any of it. One
core, CPU time, median of 5. Defaults are proven by the audit, which the last line repeats; epsilon 0.15 is not.
Run: python benchmarks/electricity_efdt.py [folder of the data]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from harness import DATA, cpu_seconds, electricity, machine

from raydt import FullyDynamicTreeClassifier
from raydt.examples.updates import Features, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import InProcessSession

X, y = electricity(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
n = len(y)
print(machine("river"))
predicted = np.zeros(n, dtype=np.int32)


def f1(prediction: np.ndarray) -> float:
    hit = ((prediction == 1) & (y == 1)).sum()
    return float(2 * hit / (2 * hit + (prediction != y).sum()))


LEARNER = learners()["fudyadt"]
OPTIONS = {"epsilon": 0.15, "alpha": 0.0, "beta": 0.0, "max_depth": 10}
FEATURES = Features(tuple(map(str, range(X.shape[1]))), (False,) * X.shape[1])


def session(options: dict[str, float]) -> None:
    running = InProcessSession(LEARNER, LEARNER.Options(**options), FEATURES)
    for begin in range(0, n, 4096):
        rows = np.arange(begin, min(begin + 4096, n))
        batch = UpdateBatch(begin, np.zeros(len(rows), np.int8), rows, X[rows], y[rows], 2, rows)
        predicted[rows] = running.apply(batch).predictions


def estimator(options: dict[str, float]) -> FullyDynamicTreeClassifier:
    tree = FullyDynamicTreeClassifier(**options)
    for begin in range(0, n, 1000):
        rows = slice(begin, begin + 1000)
        if begin:
            predicted[rows] = tree.predict(X[rows])
        tree.partial_fit(X[rows], y[rows], [0, 1])
    return tree


def quality(prediction: np.ndarray) -> str:
    return f"accuracy {100 * float(np.mean(prediction == y)):.2f}  F1(DOWN) {100 * f1(prediction):.2f}"


mine = {}
for setting, options in (("default", {}), ("epsilon .15", OPTIONS)):
    for kind, run in (("session", session), ("estimator", estimator)):
        name = f"{setting}, {kind}"
        mine[name] = cpu_seconds(lambda run=run, options=options: run(options))
        print(f"raydt {name:<24} {mine[name] / n * 1e6:8.2f} us/update  {quality(predicted)}", flush=True)
verdict = estimator({}).audit().feasibility

from river import tree as river_tree  # noqa: E402 (imported after our timing, so that it cannot disturb it)

rows = [dict(enumerate(x)) for x in X.tolist()]
theirs = np.zeros(n, dtype=np.int32)


def efdt() -> None:
    tree = river_tree.ExtremelyFastDecisionTreeClassifier(grace_period=500)
    for i, (x, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        theirs[i] = tree.predict_one(x) or 0
        tree.learn_one(x, label)


peer = cpu_seconds(efdt)
print(f"river EFDT                     {peer / n * 1e6:8.2f} us/update  {quality(theirs)}")
for name, seconds in mine.items():
    print(f"EFDT / {name:<24}{peer / seconds:8.1f}")
print(f"audit of the default tree: {verdict}")
