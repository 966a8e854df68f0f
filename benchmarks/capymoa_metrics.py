"""Scores of the same predictions by CapyMOA's evaluators, and by ours: ``python benchmarks/capymoa_metrics.py``.

Needs ``pip install capymoa`` and Java. The last column is the largest difference after any prediction from the tenth
on. Of kappa-M and R2 it is that to MOA's definitions: the majority already has the label that is to be predicted, and
R2 compares with the mean of the labels before each one, instead of the mean of all.
"""

import math
from typing import Any

import numpy as np
from harness import print_machine, show

from raydt.evaluation.classification import Prequential
from raydt.evaluation.regression import PrequentialErrors

N, FIRST = 3_000, 10


def stream(classes: int) -> tuple[Any, Any]:
    """Labels that stay for a while, and predictions that are mostly right."""
    draw = np.random.default_rng(classes)
    truth = np.repeat(draw.integers(0, classes, N), draw.integers(1, 6, N))[:N].astype(np.int32)
    return truth, np.where(draw.random(N) < 0.7, truth, draw.integers(0, classes, N)).astype(np.int32)


def with_label_first(truth: Any, prediction: Any) -> list[float]:
    """Kappa-M after every prediction where the majority already has the label that is to be predicted."""
    seen, right, majority, out = np.zeros(truth.max() + 1, dtype=int), 0, 0, []
    for n, (t, p) in enumerate(zip(truth.tolist(), prediction.tolist(), strict=True), start=1):
        seen[t] += 1
        right, majority = right + (t == p), majority + (int(seen.argmax()) == t)
        out.append((right - majority) / (n - majority) if n > majority else math.nan)
    return out


def classes(count: int) -> list[list[str]]:
    from capymoa.evaluation import ClassificationEvaluator
    from capymoa.stream import Schema

    truth, prediction = stream(count)
    schema = Schema.from_custom(["x", "y"], "y", {"y": [*"abcdefg"][:count]})
    theirs, ours = ClassificationEvaluator(schema=schema), Prequential(positive=count == 2)
    names = {"accuracy": "accuracy", "kappa": "kappa", "kappa_t": "kappa_temporal", "kappa_m": "kappa_m"}
    apart = dict.fromkeys(names, 0.0)
    label_first = with_label_first(truth, prediction)
    for i in range(N):
        theirs.update(int(truth[i]), int(prediction[i]))
        ours.update(truth[i : i + 1], prediction[i : i + 1])
        if i + 1 < FIRST:
            continue
        scores = ours.scores() | {"kappa_m": label_first[i]}
        for name, mine in names.items():
            their, own = getattr(theirs, name)() / 100, scores[mine]
            if not math.isnan(own) and not math.isnan(their):
                apart[name] = max(apart[name], abs(their - own))
    return [[f"{count} classes", name, names[name], f"{difference:.1e}"] for name, difference in apart.items()]


def numbers() -> list[list[str]]:
    from capymoa.evaluation import RegressionEvaluator
    from capymoa.stream import Schema

    draw = np.random.default_rng(0)
    truth = draw.normal(3.0, 2.0, N)
    prediction = truth + draw.normal(0.0, 0.7, N)
    schema = Schema.from_custom(["x", "y"], "y")
    theirs, ours = RegressionEvaluator(schema=schema), PrequentialErrors()
    apart = dict.fromkeys(("mae", "rmse", "r2"), 0.0)
    before = np.concatenate([[0.0], np.cumsum(truth)[:-1] / np.arange(1, N)])
    running_r2 = 1 - np.cumsum((truth - prediction) ** 2) / np.cumsum((truth - before) ** 2)
    for i in range(N):
        theirs.update(float(truth[i]), float(prediction[i]))
        ours.update(truth[i : i + 1], prediction[i : i + 1])
        if i + 1 >= FIRST:
            scores = ours.scores() | {"r2": running_r2[i]}
            apart = {name: max(apart[name], abs(getattr(theirs, name)() - scores[name])) for name in apart}
    return [["numbers", name, name, f"{difference:.1e}"] for name, difference in apart.items()]


if __name__ == "__main__":
    print_machine("capymoa")
    lines = [*classes(2), *classes(4), *numbers()]
    show("Scores", ["Labels", "CapyMOA", "raydt", "largest difference"], lines)
