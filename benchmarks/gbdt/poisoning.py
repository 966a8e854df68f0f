"""6,000 rows with flipped labels are inserted into a model of Adult and deleted again.

Two choices of rows: any, and only rows with an income above 50K (said to be below), which does more harm. The controls:
the poisoned model as it is (doing nothing), and the clean rows retrained with another seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.contestants import add, agreement, delete, fitted, lightgbm, mean_and_error, options_of, predicted, trivial
from gbdt.data import Split, load
from kit import progress, show

FLIPPED = 6000
MODELS = ("clean", "poison inserted", "deleted again", "poison trained in", "then deleted", "clean, other seed")


def flipped(split: Split, seed: int, count: int, positives: bool) -> tuple[Split, Any, Any]:
    """The training set with flipped labels; the numbers of its clean and of its flipped rows."""
    order = np.random.default_rng(seed).permutation(len(split))
    chosen = order[split.y[order] == 1] if positives else order
    rows = np.sort(chosen[:count])
    y = split.y.copy()
    y[rows] = 1 - y[rows]
    return Split(split.title, split.X, y, split.X_test, split.y_test), np.setdiff1d(order, rows), rows


def trial(
    split: Split, seed: int, count: int, positives: bool, **options: Any
) -> dict[str, tuple[float, float, float]]:
    """Of each model: accuracy, share of the gap of the poisoned model that is closed, agreement with the clean one."""
    data, clean, rows = flipped(split, seed, count, positives)
    said = {}
    model = fitted(data, clean, **options)
    said["clean"] = predicted(model, split)
    said["poison inserted"] = predicted(add(model, data, rows), split)
    delete(model, rows)
    said["deleted again"] = predicted(model, split)
    model = fitted(data, **options)
    said["poison trained in"] = predicted(model, split)
    delete(model, rows)
    said["then deleted"] = predicted(model, split)
    said["clean, other seed"] = predicted(fitted(data, clean, **{**options, "random_state": 1}), split)
    said["LightGBM, clean"] = predicted(lightgbm(data, clean), split)
    said["LightGBM, poisoned"] = predicted(lightgbm(data), split)
    accuracy = {name: float(np.mean(values == split.y_test)) for name, values in said.items()}
    found = {}
    for name, values in said.items():
        start = accuracy["poison trained in" if name == "then deleted" else "poison inserted"]
        gap = accuracy["clean"] - start
        closed = (accuracy[name] - start) / gap if gap else float("nan")
        found[name] = accuracy[name], closed, agreement(values, said["clean"])
    return found


def run(request: Request) -> None:
    """Print the tables."""
    for name in request.sets("adult"):
        split = load(name)
        rows = []
        for positives, which in ((False, "any"), (True, "> 50K only")):
            for mode in request.modes("bounded", "retrained", "never"):
                trials = [trial(split, s, FLIPPED, positives, **options_of(mode)) for s in range(request.seeds)]
                for model in trials[0]:
                    accuracy, closed, same = (np.array([t[model][part] for t in trials]) for part in range(3))
                    scaled = mean_and_error(accuracy, 100.0), mean_and_error(closed, 100.0, 1)
                    rows.append([which, mode, model, *scaled, mean_and_error(same, 1.0, 4)])
                    progress(*rows[-1])
        note = f"{FLIPPED:,} rows, {request.seeds} seeds; accuracy of the majority class {100 * trivial(split):.2f}."
        header = [
            "rows flipped",
            "derivatives",
            "model",
            "accuracy %",
            "gap closed %",
            "agreement with the clean model",
        ]
        show(f"Label-flip poisoning, {split.title}", header, rows, note)
