"""Rank of the old splits when rows come or go, and the robust splits of Definitions 1 and 2 (Figure 2).

No tree is changed: every split is ranked among the candidates of its node with the rows of D' taken out (their stored
derivatives) or put in (fresh ones). A split is distance robust if the rows between it and the nearest candidate of its
feature that divides the node differently are more than Definition 1 asks, and robust (Definition 2) if its gain exceeds
1 / (1 - lambda) of every other, of the same feature (appendix D) or of any (section 3.3). Both are statements about all
D' of a size, so beside them stands what happened: the share of splits that are still first.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from gbdt.command import Request, draw
from gbdt.contestants import fitted, size_of
from gbdt.data import Split, load
from gbdt.forest import Forest, Ints, Sums
from kit import progress, show
from paper.chart import Panel, Style

SHARES = {"1 row": 0.0, "0.1 %": 0.001, "0.5 %": 0.005, "1 %": 0.01}
STYLES = dict(zip(SHARES, map(Style, ("#4477aa", "#228833", "#ccbb44", "#ee6677")), strict=True))
COLUMNS = ("first", "second", "within tolerance", "beyond", "mean rank", "first when trained")
ROBUST = ("Definition 1", "Definition 2, same feature", "Definition 2, any feature")


def measure(split: Split, operation: str, seed: int, **options: Any) -> dict[str, dict[str, Any]]:
    """By size: shares of the inner nodes by rank, shares of robust splits, and mean rank by iteration."""
    order = np.random.default_rng(seed).permutation(len(split))
    largest = size_of(max(SHARES.values()), len(split))
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
    found: dict[str, dict[str, Any]] = {size: defaultdict(list) for size in SHARES}
    for t, tree in enumerate(forest.trees):
        m = t // forest.per_iteration
        cuts = forest.candidates(m)
        inner = np.flatnonzero(tree.feature >= 0)
        own = np.searchsorted(cuts, forest.start[tree.feature[inner]] + tree.cut[inner])
        old = forest.sums(t, codes, forest.leaf[:, t], gradients[:, t], cuts)
        tolerance = _tolerance(forest, len(cuts))
        for size, share in SHARES.items():
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


def run(request: Request) -> None:
    """Print the table, draw Figure 2."""
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
    draw(request, "figure-2", grid, STYLES)
