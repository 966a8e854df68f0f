"""One example at a time: our classifiers for river beside river's own trees and forest, CPU time per call.

20,000 examples of 10 uniform numbers, y = x_0 + x_1 > 1 with a tenth of the labels drawn at random; predict, learn, and
(ours) forget the example of 2,000 steps ago. FuDyADT has epsilon 0.5, alpha = beta = 0, depth 10; our confidence tree,
forest and boosting have their defaults, and so have theirs. Forests and boosting take the first 5,000 examples.
Run: python benchmarks/river_adapter.py [--rows 20000] [--only Tree]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import machine
from river import forest as river_forest
from river import tree as river_tree

from raydt import (
    RiverConfidenceTreeClassifier,
    RiverForestClassifier,
    RiverGradientBoostingClassifier,
    RiverTreeClassifier,
)
from raydt.learners import learners
from raydt.sessions.session import compile_kernels

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rows", type=int, default=20_000)
parser.add_argument("--only", default="", help="models with this in their names")
given = parser.parse_args()
N, FOREST_N, WINDOW = given.rows, given.rows // 4, given.rows // 10
rng = np.random.default_rng(0)
X = rng.random((N, 10))
labels = np.where(rng.random(N) < 0.1, rng.random(N) < 0.5, X[:, 0] + X[:, 1] > 1).tolist()
rows = [{f"x{j}": value for j, value in enumerate(x)} for x in X.tolist()]


def timed(totals: dict[str, float], name: str, call: Callable[..., Any], *arguments: Any) -> Any:
    began = time.process_time()
    result = call(*arguments)
    totals[name] = totals.get(name, 0.0) + time.process_time() - began
    return result


for kind in ("fudyadt", "confidence_tree", "forest", "gbdt"):
    if not given.only:
        compile_kernels(learners()[kind])
print(machine("river"))
for model in (
    RiverTreeClassifier(epsilon=0.5, alpha=0.0, beta=0.0, max_depth=10),
    RiverConfidenceTreeClassifier(),
    river_tree.HoeffdingTreeClassifier(),
    river_tree.ExtremelyFastDecisionTreeClassifier(),
    RiverForestClassifier(),
    RiverGradientBoostingClassifier(),
    river_forest.ARFClassifier(n_models=10, seed=1),
):
    if given.only not in type(model).__name__:
        continue
    totals: dict[str, float] = {}
    right, n = 0, N if "Tree" in type(model).__name__ else FOREST_N
    for i, (x, y) in enumerate(zip(rows[:n], labels[:n], strict=True)):
        right += timed(totals, "predict_one", model.predict_one, x) == y
        timed(totals, "learn_one", model.learn_one, x, y)
        if hasattr(model, "forget_one") and i >= WINDOW:
            timed(totals, "forget_one", model.forget_one, rows[i - WINDOW], labels[i - WINDOW])
    calls = {"forget_one": n - WINDOW}
    times = "  ".join(f"{name} {seconds / calls.get(name, n) * 1e6:6.1f} us" for name, seconds in totals.items())
    print(f"{type(model).__name__:36s} {times}  accuracy {right / n:.3f}")
