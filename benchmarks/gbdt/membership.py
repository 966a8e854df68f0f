"""Membership inference (appendix K, Table 9): can deleted rows still be told from rows that were never seen?

Half of the rows train an overfitted model (5 iterations, learning rate 1), half do not. An attack model learns, from
half of the members and half of the others, to tell them apart by the predicted probabilities and that of the true
label. It is then asked about the other halves and about D', which is a member, is deleted, and is added again. The
controls: D' before the deletion (doing nothing), and a model that never saw it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.contestants import add, delete, fitted, mean_and_error, options_of
from gbdt.data import Split, load
from kit import progress, show

#: Shares of base data and D'; the paper's D' of 0.1 % is six rows of Optdigits.
BASE, ONLINE = 0.49, 0.01
OVERFIT = {"max_iter": 5, "learning_rate": 1.0, "max_leaf_nodes": 200, "l2_regularization": 0.0}
PARTS = ("base", "D'", "test")
STAGES = ("trained", "D' deleted", "D' added again", "never saw D'")


def evidence(model: Any, split: Split, rows: Any) -> Any:
    """What the attack sees of each row: sorted probabilities, and that of the true label."""
    p = model.predict_proba(split.X[rows])
    return np.column_stack([np.sort(p, axis=1)[:, ::-1], p[np.arange(len(rows)), split.y[rows]]])


def trial(split: Split, seed: int, **options: Any) -> dict[tuple[str, str], float]:
    """Share of rows said to be members, by stage and part."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    order = np.random.default_rng(seed).permutation(len(split))
    base, online, test = np.split(order, np.cumsum([int(BASE * len(order)), max(1, round(ONLINE * len(order)))]))
    settings = {**OVERFIT, **options}
    trained = np.sort(np.concatenate([base, online]))
    model = fitted(split, trained, **settings)
    (known, base), (unknown, test) = np.array_split(base, 2), np.array_split(test, 2)
    attack = HistGradientBoostingClassifier(random_state=0).fit(
        np.concatenate([evidence(model, split, known), evidence(model, split, unknown)]),
        np.repeat([1, 0], [len(known), len(unknown)]),
    )
    found = {}

    def note(stage: str, model: Any) -> None:
        for part, rows in zip(PARTS, (base, online, test), strict=True):
            found[stage, part] = float(np.mean(attack.predict(evidence(model, split, rows))))

    note("trained", model)
    delete(model, online)
    note("D' deleted", model)
    note("D' added again", add(model, split, online))
    note("never saw D'", fitted(split, np.setdiff1d(trained, online), **settings))
    return found


def whole(split: Split) -> Split:
    """Training and test rows together."""
    X, y = np.concatenate([split.X, split.X_test]), np.concatenate([split.y, split.y_test])
    return Split(split.title, X, y, split.X_test, split.y_test)


def run(request: Request) -> None:
    """Print the table."""
    rows = []
    for name in request.sets("optdigits", "pendigits"):
        split = whole(load(name))
        for mode in request.modes("bounded", "retrained", "never"):
            trials = [trial(split, seed, **options_of(mode)) for seed in range(request.seeds)]
            for stage in STAGES:
                cells = [mean_and_error([t[stage, part] for t in trials], 100.0, 1) for part in PARTS]
                rows.append([split.title, mode, stage, *cells])
                progress(*rows[-1])
    note = (
        f"Share of rows said to be training rows, per cent; {request.seeds} seeds, D' is 1 % of the rows. Paper (base, "
    )
    note += (
        "D', test): trained 100, 100, 44 (Optdigits) and 100, 100, 56 (Pendigits); deleted 100, 34, 42 and 100, 55, 46."
    )
    show("Membership inference", ["data", "derivatives", "model", *PARTS], rows, note)
