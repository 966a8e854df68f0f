"""A backdoor added to a trained model and removed again (appendix J, Table 4).

A random share of the training rows gets the trigger (the greatest value of three features that vary) and the target
label; the rest is clean. Attack success is the share of triggered test rows that are given the target label, without
the rows whose label it is anyway (the paper counts them, about a tenth of the rows, in every column).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.contestants import add, delete, fitted, mean_and_error, options_of, predicted, quality
from gbdt.data import Split, load
from kit import progress, show

SHARE, TRIGGER_FEATURES, TARGET = 0.01, 3, 0
#: Attack success and accuracy of the paper, per cent: clean, trained in, added, removed.
PAPER = {
    "Optdigits": "8.91 / 100 / 100 / 9.69; 96.21 / 96.27 / 95.94 / 95.82",
    "Pendigits": "3.97 / 100 / 100 / 5.55; 96.11 / 96.43 / 96.48 / 96.51",
}
STAGES = ("clean", "added", "removed again", "trained in", "then removed", "clean, other seed")


def poisoned(split: Split, seed: int) -> tuple[Split, Any, Any]:
    """The training set with triggered rows; the numbers of its clean and of its triggered rows."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(split))
    rows, clean = np.split(order, [max(1, round(SHARE * len(split)))])
    X, y = split.X.copy(), split.y.copy()
    X[rows], y[rows] = triggered(split, X[rows]), TARGET
    return Split(split.title, X, y, split.X_test, split.y_test), np.sort(clean), np.sort(rows)


def triggered(split: Split, X: Any) -> Any:
    """``X`` with the trigger."""
    features = np.flatnonzero(np.nanmax(split.X, axis=0) > np.nanmin(split.X, axis=0))[:TRIGGER_FEATURES]
    X = X.copy()
    X[:, features] = np.nanmax(split.X, axis=0)[features]
    return X


def success(model: Any, split: Split) -> float:
    """Share of triggered test rows of other classes that get the target label."""
    others = triggered(split, split.X_test[split.y_test != TARGET])
    return float(np.mean(predicted(model, split, others) == TARGET))


def trial(split: Split, seed: int, **options: Any) -> dict[str, tuple[float, float]]:
    """Attack success and accuracy at every stage."""
    data, clean, rows = poisoned(split, seed)
    found = {}

    def note(stage: str, model: Any) -> None:
        found[stage] = success(model, split), quality(model, split)

    model = fitted(data, clean, **options)
    note("clean", model)
    note("added", add(model, data, rows))
    delete(model, rows)
    note("removed again", model)
    model = fitted(data, np.sort(np.concatenate([clean, rows])), **options)
    note("trained in", model)
    delete(model, rows)
    note("then removed", model)
    note("clean, other seed", fitted(data, clean, **{**options, "random_state": 1}))
    return found


def run(request: Request) -> None:
    """Print the tables."""
    rows = []
    for name in request.sets("optdigits", "pendigits"):
        split = load(name)
        for mode in request.modes("bounded", "retrained", "never"):
            trials = [trial(split, seed, **options_of(mode)) for seed in range(request.seeds)]
            for part, what in enumerate(("attack success %", "accuracy %")):
                cells = [mean_and_error([t[stage][part] for t in trials], 100.0) for stage in STAGES]
                worst = max(
                    abs(t[stage][part] - t["clean"][part])
                    for t in trials
                    for stage in ("removed again", "then removed")
                )
                rows.append([split.title, mode, what, *cells, f"{100 * worst:.2f}"])
                progress(*rows[-1])
    note = (
        f"{request.seeds} seeds, mean and standard error; 1 % of the rows poisoned. The control of removal is not to "
    )
    note += (
        'remove: "added" and "trained in". In the paper (clean, trained in, added, removed; success, then accuracy): '
    )
    note += "; ".join(f"{title} {figures}" for title, figures in PAPER.items()) + "."
    header = ["data", "derivatives", "", *STAGES, "largest distance of a removal from clean, any seed"]
    show("Backdoor", header, rows, note)
