"""Error of leaf scores after updates (appendix N, Table 13), recomputed from the raw rows in NumPy.

The sum of |score - fresh score| over all leaves of all trees, over the sum of |fresh score|: fresh scores belong to the
same structure and rows, with all derivatives computed anew. Beside it, "not updated", the same figure of the model
before the update: its scores against fresh ones for its structure and the changed rows. ``Forest`` reads the state that
checkpoints write; numeric features only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import gbdt.data as kit
import numpy as np
import numpy.typing as npt
from gbdt.data import Split
from harness import Request, progress, show

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: A probability of 1, the units of G and H, and the largest value of a leaf before the learning rate.
ONE, G_UNIT, H_UNIT, LARGEST_LEAF = 65536, 2.0**-16, 2.0**-32, 128.0
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


class Tree(NamedTuple):
    feature: Ints
    cut: Ints
    left: Ints
    right: Ints
    value: Floats


class Forest:
    """The trees of a fitted classifier as arrays, and the live rows with their leaves."""

    def __init__(self, model: Any) -> None:
        state, _ = model.session_.state()
        self.options = model.get_params()
        self.ids, self.y, self.leaf = state["id"], state["y"].astype(np.int64), state["leaf"].astype(np.int64)
        self.classes = int(state["classes"][0])
        self.per_iteration = 1 if self.classes <= 2 else self.classes
        bounds = pairwise(np.concatenate([[0], np.cumsum(state["tree_nodes"])]).astype(np.int64))
        names = ("node_feature", "node_cut", "node_left", "node_right")
        self.trees = [
            Tree(*(state[name][a:b].astype(np.int64) for name in names), state["node_value"][a:b]) for a, b in bounds
        ]
        self.boundaries = [state["bins_values"][a:b] for a, b in pairwise(state["bins_starts"])]

    def codes(self, X: Floats) -> Ints:
        """Bin of every value, shape (n, d): the number of boundaries below it; NaN comes after all bins."""
        parts = []
        for column, boundaries in zip(X.T, self.boundaries, strict=True):
            code = np.searchsorted(boundaries, column, side="left")
            parts.append(np.where(np.isnan(column), len(boundaries) + 1, code))
        return np.column_stack(parts).astype(np.int64)

    def route(self, codes: Ints) -> Ints:
        """Leaf of every row in every tree, shape (n, trees)."""
        out = np.empty((len(codes), len(self.trees)), dtype=np.int64)
        rows = np.arange(len(codes))
        for t, tree in enumerate(self.trees):
            at = np.zeros(len(codes), dtype=np.int64)
            while (inner := tree.feature[at] >= 0).any():
                here, i = at[inner], rows[inner]
                goes_left = codes[i, tree.feature[here]] <= tree.cut[here]
                at[inner] = np.where(goes_left, tree.left[here], tree.right[here])
            out[:, t] = at
        return out

    def fresh_values(self, leaf: Ints, y: Ints) -> list[Floats]:
        """Values of the nodes of every tree if the derivatives of all rows were computed anew, structure as it is."""
        values, F = [], np.zeros((len(leaf), self.per_iteration))
        for first in range(0, len(self.trees), self.per_iteration):
            q = quantised(F)
            for k in range(self.per_iteration):
                t = first + k
                g = (y == (k if self.per_iteration > 1 else 1)) * ONE - q[:, k]
                h = np.abs(g) * (ONE - np.abs(g))
                nodes = len(self.trees[t].feature)
                G, H = np.bincount(leaf[:, t], g, nodes) * G_UNIT, np.bincount(leaf[:, t], h, nodes) * H_UNIT
                factor = (self.classes - 1) / self.classes if self.per_iteration > 1 else 1.0
                beta = np.divide(G, H + self.options["l2_regularization"], out=np.zeros_like(G), where=H > 0) * factor
                values.append(self.options["learning_rate"] * np.clip(beta, -LARGEST_LEAF, LARGEST_LEAF))
                F[:, k] += values[-1][leaf[:, t]]
        return values


def quantised(F: Floats) -> Ints:
    """Probabilities of logits, shape (n, K'), as numbers of 65536ths."""
    if F.shape[1] == 1:
        p = 1.0 / (1.0 + np.exp(-F))
    else:
        e = np.exp(F - F.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
    return np.clip(np.floor(p * ONE + 0.5), 1, ONE - 1).astype(np.int64)


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
    rows, rest = np.split(order, [kit.size_of(share, len(split))])
    before = np.arange(len(split)) if operation == "delete" else np.sort(rest)
    model = kit.fitted(split, before, **options)
    old = Forest(model)
    trained = error(old, old.leaf, old.y)
    if operation == "delete":
        stays = ~np.isin(old.ids, rows)
        leaf, y = old.leaf[stays], old.y[stays]
        kit.delete(model, rows)
    else:
        leaf = np.concatenate([old.leaf, old.route(old.codes(split.X[rows]))])
        y = np.concatenate([old.y, split.y[rows]])
        kit.add(model, split, rows)
    new = Forest(model)
    return error(new, new.leaf, new.y), error(old, leaf, y), trained


def leaf_scores(request: Request) -> None:
    rows = []
    for name in request.sets("adult", "givemesomecredit", "optdigits", "pendigits"):
        split = kit.load(name)
        for mode in request.derivatives or ["bounded", "retrained", "never"]:
            for operation in ("add", "delete"):
                cells, trained = [], 0.0
                for share in SHARES.values():
                    seeds, settings = range(min(request.seeds, 3)), kit.options_of(mode)
                    trials = [trial(split, operation, share, seed, **settings) for seed in seeds]
                    cells += [kit.mean_and_error([t[part] for t in trials], 100.0) for part in range(2)]
                    trained = max([trained, *(t[2] for t in trials)])
                paper = PAPER.get((split.title, operation), "")
                rows.append([split.title, mode, operation, *cells, f"{100 * trained:.3f}", paper])
                progress(*rows[-1])
    header = ["data", "derivatives", "", *(f"{s}, {m}" for s in SHARES for m in ("updated", "not updated"))]
    note = "Per cent; up to three seeds; retrain: never, so that only updates are looked at."
    show("Error of leaf scores", [*header, "just trained", "paper"], rows, note)
