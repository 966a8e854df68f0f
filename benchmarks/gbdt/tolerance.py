"""Accuracy and time of a sliding window by what derivatives follow: ``never``, ``retrained``, and by the tolerance.

A window of 3,000 rows, 30 steps of 150 rows out and in (of smaller sets two fifths of the rows, and the others in 30
steps); 50 iterations. Each row is predicted before it is inserted.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.data import load
from kit import progress, show

import raydt

WINDOW, STEP, STEPS = 3000, 150, 30
MODES: dict[str, dict[str, Any]] = {
    "never": {"derivatives": "never"},
    "retrained": {"derivatives": "retrained"},
    "0": {"derivatives": "changed_leaves"},
    **{str(tolerance): {"derivative_tolerance": tolerance} for tolerance in (0.1, 0.3, 1.0, 3.0)},
}


def prequential(X: Any, y: Any, regression: bool, **options: Any) -> tuple[float, float]:
    """Accuracy or R2 of a window over some rows, in per cent, and CPU seconds."""
    window, step = (WINDOW, STEP) if len(X) >= WINDOW + STEP * STEPS else (len(X) * 2 // 5, len(X) // 50)
    kind = raydt.OnlineGradientBoostingRegressor if regression else raydt.OnlineGradientBoostingClassifier
    began = time.process_time()
    model = kind(max_iter=50, **options).fit(X[:window], y[:window], ids=np.arange(window))
    said = []
    for i in range(STEPS):
        begin, end = window + i * step, min(window + (i + 1) * step, len(X))
        said.append(model.predict(X[begin:end]))
        model.forget(np.arange(i * step, i * step + end - begin), digests=False)
        model.partial_fit(X[begin:end], y[begin:end], ids=np.arange(begin, end))
    told, truth = np.concatenate(said), y[window:end]
    good = 1 - np.mean((told - truth) ** 2) / np.var(truth) if regression else np.mean(told == truth)
    return 100 * float(good), time.process_time() - began


def run(request: Request) -> None:
    """Print the table."""
    rows = []
    for name in request.sets("electricity", "adult", "givemesomecredit", "optdigits", "pendigits", "abalone", "wine"):
        split = load(name)
        for retrain in ("never", "auto"):
            found = [prequential(split.X, split.y, split.regression, retrain=retrain, **one) for one in MODES.values()]
            cells = [f"{good:.2f} ({seconds:.2f} s)" for good, seconds in found]
            rows.append([split.title, retrain, *cells])
            progress(*rows[-1])
    note = "Accuracy (R2 of Abalone and WineQuality) in per cent, and CPU time; one order of the rows."
    show("Tolerance of derivatives", ["data", "retrain", *MODES], rows, note)
