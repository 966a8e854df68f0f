"""Functional similarity of updated and retrained models (appendix I, Table 8), with its controls.

C2W: share of test rows that the retrained model gets right and the updated one wrong; W2C the reverse; W2W both wrong,
differently; phi = 1 - (C2W + W2C + W2W), the agreement. Beside them the same figures of the model before the update
(doing nothing) and of the retrained model with another seed: phi of an update says something only where it beats the
former, and no update can be expected to beat the latter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.contestants import SIZES, add, delete, fitted, mean_and_error, options_of, predicted, size_of
from gbdt.data import Split, load
from kit import progress, show

METRICS = ("C2W", "W2C", "W2W", "phi")
MODELS = ("updated", "not updated", "other seed")
#: phi in the paper's Table 8, per cent.
PAPER_PHI = (
    "Adult 99.66, 98.83, 98.88, 98.82; CreditInfo 99.70, 99.41, 99.82, 99.63; "
    "Optdigits 99.50, 99.22, 99.22, 98.94; Pendigits 99.69, 99.63, 99.49, 99.49"
)


def compare(truth: Any, retrained: Any, other: Any) -> tuple[float, ...]:
    """C2W, W2C, W2W, phi."""
    right, now_right = retrained == truth, other == truth
    both_wrong = ~right & ~now_right & (retrained != other)
    parts = [float(np.mean(part)) for part in (right & ~now_right, ~right & now_right, both_wrong)]
    return (*parts, 1 - sum(parts))


def trial(split: Split, operation: str, share: float, seed: int, **options: Any) -> dict[str, tuple[float, ...]]:
    """The metrics of each model for one random D'."""
    order = np.random.default_rng(seed).permutation(len(split))
    rows, rest = np.split(order, [size_of(share, len(split))])
    before, after = (None, np.sort(rest)) if operation == "delete" else (np.sort(rest), None)
    model = fitted(split, before, **options)
    said = {"not updated": predicted(model, split)}
    if operation == "delete":
        delete(model, rows)
    else:
        add(model, split, rows)
    said["updated"] = predicted(model, split)
    retrained = predicted(fitted(split, after, **options), split)
    said["other seed"] = predicted(fitted(split, after, **{**options, "random_state": 1}), split)
    return {name: compare(split.y_test, retrained, said[name]) for name in MODELS}


def run(request: Request) -> None:
    """Print the table."""
    rows = []
    for name in request.sets("adult", "givemesomecredit", "optdigits", "pendigits"):
        split = load(name)
        for mode in request.modes("bounded", "retrained"):
            for operation in ("add", "delete"):
                for size, share in SIZES.items():
                    found = [trial(split, operation, share, s, **options_of(mode)) for s in range(request.seeds)]
                    cells = [
                        mean_and_error([t[model][part] for t in found], 100.0)
                        for part in range(len(METRICS))
                        for model in MODELS
                    ]
                    rows.append([split.title, mode, f"{operation} {size}", *cells])
                    progress(*rows[-1])
    note = f"Per cent of the test rows, {request.seeds} seeds, against the same rows retrained. phi in the paper "
    note += f"(add 1, add 0.1 %, delete 1, delete 0.1 %): {PAPER_PHI}."
    header = ["data", "derivatives", "D'", *(f"{metric}, {model}" for metric in METRICS for model in MODELS)]
    show("Functional similarity", header, rows, note)
