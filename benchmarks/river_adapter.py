"""One example at a time: our classifiers for river beside river's own trees and forest, CPU time per call.

20,000 examples of 10 uniform numbers, y = x_0 + x_1 > 1 with a tenth of the labels drawn at random; predict, learn, and
(ours) forget the example of 2,000 steps ago. FuDyADT has epsilon 0.5, alpha = beta = 0, depth 10; our confidence tree,
forest and boosting have their defaults, and so have theirs. Forests and boosting take the first 5,000 examples.
Run: python benchmarks/river_adapter.py [--rows 20000] [--only Tree]
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import river.forest
import river.tree
from harness import arguments, print_machine, show

import raydt
from raydt.learners import learners
from raydt.sessions.session import compile_kernels


def measured(model: Any, rows: list[dict[str, float]], labels: list[bool], window: int) -> list[str]:
    spent, right = Counter[str](), 0

    def timed(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.process_time()
        result = call(*arguments)
        spent[name] += time.process_time() - began  # type: ignore[assignment]
        return result

    for i, (x, y) in enumerate(zip(rows, labels, strict=True)):
        right += timed("predict", model.predict_one, x) == y
        timed("learn", model.learn_one, x, y)
        if hasattr(model, "forget_one") and i >= window:
            timed("forget", model.forget_one, rows[i - window], labels[i - window])
    calls = {"predict": len(rows), "learn": len(rows), "forget": len(rows) - window}
    times = [f"{1e6 * spent[name] / n:.1f}" if name in spent else "" for name, n in calls.items()]
    return [type(model).__name__, *times, f"{right / len(rows):.3f}"]


if __name__ == "__main__":
    given = arguments(__doc__, rows=20_000, only="")
    rng = np.random.default_rng(0)
    X = rng.random((given.rows, 10))
    labels = np.where(rng.random(given.rows) < 0.1, rng.random(given.rows) < 0.5, X[:, 0] + X[:, 1] > 1).tolist()
    rows = [{f"x{j}": value for j, value in enumerate(x)} for x in X.tolist()]
    for kind in ("fudyadt", "confidence_tree", "forest", "gbdt") if not given.only else ():
        compile_kernels(learners()[kind])
    print_machine("river")
    models = (
        raydt.RiverTreeClassifier(epsilon=0.5, alpha=0.0, beta=0.0, max_depth=10),
        raydt.RiverConfidenceTreeClassifier(), river.tree.HoeffdingTreeClassifier(),
        river.tree.ExtremelyFastDecisionTreeClassifier(), raydt.RiverForestClassifier(),
        raydt.RiverGradientBoostingClassifier(), river.forest.ARFClassifier(n_models=10, seed=1),
    )  # fmt: skip
    lines = []
    for model in models:
        if given.only in type(model).__name__:
            n = given.rows if "Tree" in type(model).__name__ else given.rows // 4
            lines.append(measured(model, rows[:n], labels[:n], given.rows // 10))
    show("One example at a time", ["model", "predict us", "learn us", "forget us", "accuracy"], lines)
