"""Error of leaf scores after updates (appendix N, Table 13).

The sum of |score - fresh score| over all leaves of all trees, over the sum of |fresh score|: fresh scores belong to the
same structure and rows, with all derivatives computed anew. Beside it, "not updated", the same figure of the model
before the update: its scores against fresh ones for its structure and the changed rows.
"""

from __future__ import annotations

import numpy as np
from gbdt.command import Request
from gbdt.contestants import add, delete, fitted, mean_and_error, options_of, size_of
from gbdt.data import Split, load
from gbdt.forest import Forest, Ints
from kit import progress, show

SHARES = {"1 row": 0.0, "0.1 %": 0.001, "0.5 %": 0.005, "1 %": 0.01, "10 %": 0.1, "50 %": 0.5}
#: Table 13, per cent, in the order of SHARES.
PAPER = {
    ("Adult", "add"): "2.42, 4.59, 5.10, 5.30, 4.25, 3.55",
    ("CreditInfo", "add"): "1.18, 6.57, 7.44, 7.43, 8.33, 0.00",
    ("Optdigits", "add"): "2.69, 3.48, 5.12, 5.92, 4.64, 0.00",
    ("Pendigits", "add"): "2.23, 4.12, 4.50, 4.70, 4.42, 0.00",
    ("Adult", "delete"): "1.21, 3.63, 3.58, 3.40, 0.27, 0.00",
    ("CreditInfo", "delete"): "0.00, 3.80, 3.76, 3.16, 0.39, 0.00",
    ("Optdigits", "delete"): "0.01, 1.40, 2.52, 3.07, 1.67, 0.00",
    ("Pendigits", "delete"): "0.19, 0.50, 1.15, 1.73, 0.97, 0.00",
}


def error(forest: Forest, leaf: Ints, y: Ints) -> float:
    """Of the forest's leaf values against fresh ones for rows in these leaves."""
    off = whole = 0.0
    for tree, fresh in zip(forest.trees, forest.fresh_values(leaf, y), strict=True):
        leaves = tree.feature < 0
        off += float(np.abs(tree.value[leaves] - fresh[leaves]).sum())
        whole += float(np.abs(fresh[leaves]).sum())
    return off / whole


def trial(split: Split, operation: str, share: float, seed: int, **options: object) -> tuple[float, float, float]:
    """Errors of the updated model, of the one before, and of the one before on its own rows (quantisation only)."""
    order = np.random.default_rng(seed).permutation(len(split))
    rows, rest = np.split(order, [size_of(share, len(split))])
    before = np.arange(len(split)) if operation == "delete" else np.sort(rest)
    model = fitted(split, before, **options)
    old = Forest(model)
    trained = error(old, old.leaf, old.y)
    if operation == "delete":
        stays = ~np.isin(old.ids, rows)
        leaf, y = old.leaf[stays], old.y[stays]
        delete(model, rows)
    else:
        leaf = np.concatenate([old.leaf, old.route(old.codes(split.X[rows]))])
        y = np.concatenate([old.y, split.y[rows]])
        add(model, split, rows)
    new = Forest(model)
    return error(new, new.leaf, new.y), error(old, leaf, y), trained


def run(request: Request) -> None:
    """Print the table."""
    rows = []
    for name in request.sets("adult", "givemesomecredit", "optdigits", "pendigits"):
        split = load(name)
        for mode in request.modes("bounded", "retrained", "never"):
            for operation in ("add", "delete"):
                cells, trained = [], 0.0
                for share in SHARES.values():
                    settings, seeds = options_of(mode), range(min(request.seeds, 3))
                    trials = [trial(split, operation, share, seed, **settings) for seed in seeds]
                    cells += [mean_and_error([t[part] for t in trials], 100.0) for part in range(2)]
                    trained = max([trained, *(t[2] for t in trials)])
                paper = PAPER.get((split.title, operation), "")
                rows.append([split.title, mode, operation, *cells, f"{100 * trained:.3f}", paper])
                progress(*rows[-1])
    header = ["data", "derivatives", "", *(f"{s}, {m}" for s in SHARES for m in ("updated", "not updated"))]
    note = "Per cent; up to three seeds; retrain: never, so that only updates are looked at."
    show("Error of leaf scores", [*header, "just trained", "paper"], rows, note)
