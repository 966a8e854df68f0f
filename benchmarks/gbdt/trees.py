"""Trees of an updated GBDT, recomputed from raw rows in NumPy: error of leaf scores, and rank of the old splits.

``Forest`` reads the state that checkpoints write and computes everything else here. Numeric features.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from gbdt.data import Split, add, delete, fitted, load, mean_and_error, options_of, size_of
from harness import Panel, Request, Style, progress, show

from raydt.arrays import elementary as rng

# -- The trees of a fitted classifier as arrays: routing, sums of the candidates' two sides, and leaf values anew --

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: A probability of 1, and the units of G and H.
ONE = 65536
G_UNIT, H_UNIT = 2.0**-16, 2.0**-32
LARGEST_LEAF = 128.0


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree in preorder; ``end[i]`` is the place after the subtree of node ``i``."""

    feature: Ints
    cut: Ints
    left: Ints
    right: Ints
    value: Floats
    end: Ints


@dataclass(frozen=True, slots=True)
class Sums:
    """G and H left of every candidate and of the whole node, in the paper's units, and rows likewise.

    Shapes (inner nodes, candidates) and (inner nodes, 1).
    """

    G_left: Floats
    H_left: Floats
    n_left: Floats
    G: Floats
    H: Floats
    n: Floats

    def valid(self) -> npt.NDArray[np.bool_]:
        return (self.H_left > 0) & (self.H - self.H_left > 0)

    def gains(self, l2: float) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            both = self.G_left**2 / (self.H_left + l2) + (self.G - self.G_left) ** 2 / (self.H - self.H_left + l2)
            gain = both - self.G**2 / (self.H + l2)
        return np.where(self.valid(), gain, -np.inf)


class Forest:
    """Trees, bins, and the live rows with their leaves and ledger; ids must be numbers of the training rows."""

    def __init__(self, model: Any) -> None:
        state, _ = model.session_.state()
        self.options = model.get_params()
        self.ids, self.y = state["id"], state["y"].astype(np.int64)
        self.leaf, self.ledger = state["leaf"].astype(np.int64), state["ledger"].astype(np.int64)
        self.classes = int(state["classes"][0])
        self.per_iteration = 1 if self.classes <= 2 else self.classes
        self.trees = _trees(state)
        borders = pairwise(state["bins_starts"])
        self.boundaries = [state["bins_values"][a:b] for a, b in borders]
        self.has_nan = state["bins_seen"].astype(np.bool_)
        #: First histogram column of each feature, and their number: a bin each and one for NaN.
        self.start = np.concatenate([[0], np.cumsum([len(b) + 2 for b in self.boundaries])]).astype(np.int64)

    @property
    def iterations(self) -> int:
        return len(self.trees) // self.per_iteration

    def codes(self, X: Floats) -> Ints:
        """Bin of every value, shape (n, d): the number of boundaries below it; NaN comes after all bins."""
        parts = []
        for column, boundaries in zip(X.T, self.boundaries, strict=True):
            code = np.searchsorted(boundaries, column, side="left")
            parts.append(np.where(np.isnan(column), len(boundaries) + 1, code))
        return np.column_stack(parts).astype(np.int64)

    def route(self, codes: Ints) -> Ints:
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

    def gradients(self, ledger: Ints, y: Ints) -> Ints:
        """g of every row and tree, from ledger entries of shape (n, trees)."""
        tree_class = np.arange(len(self.trees)) % self.per_iteration if self.per_iteration > 1 else np.ones(1, np.int64)
        return (y[:, None] == tree_class) * ONE - ledger

    def ledger_of(self, leaf: Ints) -> Ints:
        """What the ledger of new rows in these leaves would be, shape (n, trees)."""
        out = np.empty_like(leaf)
        F = np.zeros((len(leaf), self.per_iteration))
        for m in range(self.iterations):
            trees = range(m * self.per_iteration, (m + 1) * self.per_iteration)
            out[:, trees] = quantised(F)
            F += np.column_stack([self.trees[t].value[leaf[:, t]] for t in trees])
        return out

    def fresh_values(self, leaf: Ints, y: Ints) -> list[Floats]:
        """Values of the nodes of every tree if the derivatives of all rows were computed anew, structure as it is."""
        values = []
        F = np.zeros((len(leaf), self.per_iteration))
        for m in range(self.iterations):
            q = quantised(F)
            for k in range(self.per_iteration):
                t = m * self.per_iteration + k
                target = (y == (k if self.per_iteration > 1 else 1)) * ONE
                g = target - q[:, k]
                h = np.abs(g) * (ONE - np.abs(g))
                nodes = len(self.trees[t].feature)
                G = np.bincount(leaf[:, t], g, nodes) * G_UNIT
                values.append(self._value(G, np.bincount(leaf[:, t], h, nodes) * H_UNIT))
                F[:, k] += values[-1][leaf[:, t]]
        return values

    def _value(self, G: Floats, H: Floats) -> Floats:
        factor = (self.classes - 1) / self.classes if self.per_iteration > 1 else 1.0
        beta = np.divide(G, H + self.options["l2_regularization"], out=np.zeros_like(G), where=H > 0) * factor
        return self.options["learning_rate"] * np.clip(beta, -LARGEST_LEAF, LARGEST_LEAF)

    def candidates(self, m: int) -> Ints:
        """Histogram columns of the cuts that iteration ``m`` tries, ascending: of each run of neighbours one."""
        most = math.ceil(self.options["candidate_fraction"] * self.options["max_bins"])
        key = rng.stream_key(self.options["random_state"], "gbdt candidates")
        found, offset = [], 0
        for j, boundaries in enumerate(self.boundaries):
            available = len(boundaries) + int(self.has_nan[j])
            chosen = np.arange(available)
            if available > most:
                drawn = rng.bits(key, (m << 40) + offset + chosen)
                runs = pairwise(i * available // most for i in range(most + 1))
                chosen = np.array([begin + int(np.argmin(drawn[begin:end])) for begin, end in runs])
            found.append(self.start[j] + chosen)
            offset += available
        return np.concatenate(found)

    def sums(self, t: int, codes: Ints, leaf: Ints, g: Ints, cuts: Ints) -> Sums:
        """Of the inner nodes of tree ``t`` over the given rows; ``leaf`` and ``g`` have shape (n,)."""
        tree, width = self.trees[t], int(self.start[-1])
        place = (leaf[:, None] * width + self.start[:-1] + codes).ravel()
        size = len(tree.feature) * width
        first = self.start[np.searchsorted(self.start, cuts, side="right") - 1]
        inner = np.flatnonzero(tree.feature >= 0)
        left, whole = [], []
        for weight in (g * G_UNIT, np.abs(g) * (ONE - np.abs(g)) * H_UNIT, np.ones(len(g))):
            histogram = np.bincount(place, np.repeat(weight, codes.shape[1]), size).reshape(-1, width)
            upto = np.zeros((len(histogram) + 1, width + 1))  # sums before a node and before a column
            np.cumsum(np.cumsum(histogram, axis=0), axis=1, out=upto[1:, 1:])
            node = upto[tree.end[inner]] - upto[inner]
            left.append(node[:, cuts + 1] - node[:, first])
            whole.append(node[:, self.start[1]][:, None])
        return Sums(*left, *whole)


def quantised(F: Floats) -> Ints:
    """Probabilities of logits, shape (n, K'), as numbers of 65536ths."""
    if F.shape[1] == 1:
        p = 1.0 / (1.0 + np.exp(-F))
    else:
        e = np.exp(F - F.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
    return np.clip(np.floor(p * ONE + 0.5), 1, ONE - 1).astype(np.int64)


def _trees(state: dict[str, npt.NDArray[Any]]) -> list[Tree]:
    names = ("node_feature", "node_cut", "node_left", "node_right")
    borders = np.concatenate([[0], np.cumsum(state["tree_nodes"])]).astype(np.int64)
    trees = []
    for a, b in pairwise(borders):
        feature, cut, left, right = (state[name][a:b].astype(np.int64) for name in names)
        end = np.arange(1, b - a + 1)
        for i in range(b - a - 1, -1, -1):
            if feature[i] >= 0:
                end[i] = end[right[i]]
        trees.append(Tree(feature, cut, left, right, state["node_value"][a:b], end))
    return trees


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


def leaf_scores(request: Request) -> None:
    """Error of leaf scores after updates (appendix N, Table 13).

    The sum of |score - fresh score| over all leaves of all trees, over the sum of |fresh score|: fresh scores belong to
    the same structure and rows, with all derivatives computed anew. Beside it, "not updated", the same figure of the
    model before the update: its scores against fresh ones for its structure and the changed rows.
    """
    rows = []
    for name in request.sets("adult", "givemesomecredit", "optdigits", "pendigits"):
        split = load(name)
        for mode in request.derivatives or ["bounded", "retrained", "never"]:
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


RANKS_SHARES = {"1 row": 0.0, "0.1 %": 0.001, "0.5 %": 0.005, "1 %": 0.01}
STYLES = dict(zip(RANKS_SHARES, map(Style, ("#4477aa", "#228833", "#ccbb44", "#ee6677")), strict=True))
COLUMNS = ("first", "second", "within tolerance", "beyond", "mean rank", "first when trained")
ROBUST = ("Definition 1", "Definition 2, same feature", "Definition 2, any feature")


def measure(split: Split, operation: str, seed: int, **options: Any) -> dict[str, dict[str, Any]]:
    """By size: shares of the inner nodes by rank, shares of robust splits, and mean rank by iteration."""
    order = np.random.default_rng(seed).permutation(len(split))
    largest = size_of(max(RANKS_SHARES.values()), len(split))
    before = np.arange(len(split)) if operation == "delete" else np.sort(order[largest:])
    forest = Forest(fitted(split, before, **options))
    codes, moved = forest.codes(split.X[forest.ids]), order[:largest]
    moved_codes = forest.codes(split.X[moved])
    if operation == "delete":
        place = np.argsort(forest.ids)[np.searchsorted(np.sort(forest.ids), moved)]
        moved_leaf, moved_ledger = forest.leaf[place], forest.ledger[place]
    else:
        moved_leaf = forest.route(moved_codes)
        moved_ledger = forest.ledger_of(moved_leaf)
    gradients = forest.gradients(forest.ledger, forest.y)
    moved_gradients = forest.gradients(moved_ledger, split.y[moved])
    sign = -1.0 if operation == "delete" else 1.0
    found: dict[str, dict[str, Any]] = {size: defaultdict(list) for size in RANKS_SHARES}
    for t, tree in enumerate(forest.trees):
        m = t // forest.per_iteration
        cuts = forest.candidates(m)
        inner = np.flatnonzero(tree.feature >= 0)
        own = np.searchsorted(cuts, forest.start[tree.feature[inner]] + tree.cut[inner])
        old = forest.sums(t, codes, forest.leaf[:, t], gradients[:, t], cuts)
        tolerance = _tolerance(forest, len(cuts))
        for size, share in RANKS_SHARES.items():
            n = size_of(share, len(split))
            change = forest.sums(t, moved_codes[:n], moved_leaf[:n, t], moved_gradients[:n, t], cuts)
            _note(found[size], m, old, _moved(old, change, sign), own, n / len(before), tolerance, forest)
            for name, holds in zip(ROBUST, _robust(old, own, cuts, n / len(before), forest), strict=True):
                found[size][name].append(holds)
    return {size: _shares(values) for size, values in found.items()}


def _tolerance(forest: Forest, candidates: int) -> int:
    most = int(np.ceil(forest.options["candidate_fraction"] * forest.options["max_bins"]))
    return max(1, int(np.ceil(forest.options["robustness_tolerance"] * min(most, candidates))))


def _moved(old: Sums, change: Sums, sign: float) -> Sums:
    names = ("G_left", "H_left", "n_left", "G", "H", "n")
    return Sums(*(getattr(old, name) + sign * getattr(change, name) for name in names))


def _rank(sums: Sums, own: Ints, l2: float) -> Ints:
    """Of each inner node's split; a split with an empty side is after all."""
    gains = sums.gains(l2)
    mine = np.take_along_axis(gains, own[:, None], axis=1)
    return 1 + (gains > mine).sum(axis=1)


def _note(
    found: dict[str, Any], m: int, old: Sums, new: Sums, own: Ints, share: float, tolerance: int, forest: Forest
) -> None:
    l2 = forest.options["l2_regularization"]
    rank, trained = _rank(new, own, l2), _rank(old, own, l2)
    found["first when trained"].append(trained == 1)
    found["first"].append(rank == 1)
    found["second"].append(rank == 2)
    found["within tolerance"].append(rank <= tolerance)
    found["beyond"].append(rank > tolerance)
    found["mean rank"].append(rank)
    found["iteration"].append(np.full(len(rank), m))


def _robust(sums: Sums, own: Ints, cuts: Ints, share: float, forest: Forest) -> list[Any]:
    """Definition 1, Definition 2 within the feature, Definition 2, of each inner node."""
    l2 = forest.options["l2_regularization"]
    gains = sums.gains(l2)
    column = own[:, None]
    mine = np.take_along_axis(gains, column, axis=1)
    G, H, n = (np.take_along_axis(a, column, axis=1) for a in (sums.G_left, sums.H_left, sums.n_left))
    rows_between = np.abs(sums.n_left - n)
    feature = np.searchsorted(forest.start, cuts, side="right") - 1
    same = feature == feature[own][:, None]
    other = (rows_between > 0) | ~same
    distance = np.where(same & (rows_between > 0), rows_between, np.inf).min(axis=1)
    right_G, right_H, right_n = sums.G - G, sums.H - H, sums.n - n
    needed = share * mine / (G**2 / (H + l2) / n + right_G**2 / (right_H + l2) / right_n)
    enough = np.where(other, gains, -np.inf) / (1 - share) < mine
    return [distance > needed[:, 0], (enough | ~same).all(axis=1), enough.all(axis=1)]


def _shares(values: dict[str, Any]) -> dict[str, Any]:
    joined = {name: np.concatenate(parts) for name, parts in values.items()}
    iteration = joined.pop("iteration")
    by_iteration = np.bincount(iteration, joined["mean rank"]) / np.maximum(1, np.bincount(iteration))
    return {**{name: float(np.mean(v)) for name, v in joined.items()}, "by iteration": by_iteration.tolist()}


def ranks(request: Request) -> None:
    """Rank of the old splits when rows come or go, and the robust splits of Definitions 1 and 2 (Figure 2).

    No tree is changed: every split is ranked among the candidates of its node with the rows of D' taken out (their
    stored derivatives) or put in (fresh ones). A split is distance robust if the rows between it and the nearest
    candidate of its feature that divides the node differently are more than Definition 1 asks, and robust (Definition
    2) if its gain exceeds 1 / (1 - lambda) of every other, of the same feature (appendix D) or of any (section 3.3).
    Both are statements about all D' of a size, so beside them stands what happened: the share of splits that are still
    first.
    """
    rows, grid = [], []
    for operation in ("add", "delete"):
        panels = []
        for name in request.sets("adult", "pendigits"):
            split = load(name)
            found = measure(split, operation, 0)
            for size, values in found.items():
                cells = [f"{values[c]:.2f}" if c == "mean rank" else f"{100 * values[c]:.2f}" for c in COLUMNS]
                rows.append([split.title, f"{operation} {size}", *cells, *(f"{100 * values[c]:.2f}" for c in ROBUST)])
                progress(*rows[-1])
            lines = {s: [(float(m), r) for m, r in enumerate(v["by iteration"])] for s, v in found.items()}
            panels.append(Panel(f"{split.title}, {operation}: mean rank", lines, x="iteration"))
        grid.append(panels)
    note = (
        "Per cent of all inner nodes. The paper prints a picture only: for one row the best split mostly stays, from "
    )
    show("Rank of the old split", ["data", "D'", *COLUMNS, *ROBUST], rows, note + "0.1 % on it is mostly second.")
    request.draw("figure-2", grid, STYLES)
