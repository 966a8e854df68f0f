"""The score of the votes on examples that the voting trees have never seen.

An example is predicted by the votes of the trees that do not hold it: the out-of-sample accuracy of a forest, by which
its settings can be compared without held-out rows. It differs from prequential accuracy, which is about the past model.
Evenly chosen examples stand for many. NumPy, and nothing of the fast path.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.parallel import run

Arrays = Mapping[str, AnyArray]

#: Examples that are predicted, evenly chosen by id.
MOST = 5000


def leaves_of(nodes: Arrays, X: Floats, categorical: Bools) -> Ints:
    """The leaf of each row in a tree, by place; -1 where the arrays lead out of the tree."""
    feature, at = nodes["feature"], np.zeros(len(X), dtype=np.int64)
    for _ in range(len(feature)):
        inner = np.flatnonzero((at >= 0) & (feature[at] >= 0))
        if not len(inner):
            break
        node = at[inner]
        j, x = feature[node], X[inner, feature[node]]
        left = np.where(categorical[j], x == nodes["threshold"][node], x <= nodes["threshold"][node])
        below = np.where(left, nodes["left"][node], nodes["right"][node])
        at[inner] = np.where((below > 0) & (below < len(feature)), below, -1)
    return at


def out_of_sample(
    state: Arrays,
    X: Floats,
    y: Ints,
    held: Bools,
    categorical: Bools,
    numeric: bool,
) -> dict[str, float]:
    """Return the share of wrong classes or, with ``numeric``, R2, by name; nothing if every tree holds every example.

    ``totals`` of the state count classes as ``y`` does; numeric labels are in units. ``held``, shape (n, trees), says
    which trees hold which examples. O(trees depth) for each of up to ``MOST`` examples.
    """
    chosen = np.unique(np.linspace(0, len(y) - 1, min(MOST, len(y))).astype(np.int64)) if len(y) else np.empty(0, int)
    chosen = chosen[~held[chosen].all(axis=1)]
    stops = np.cumsum(state["tree_nodes"]).tolist()
    width = 1 if numeric else state["totals"].shape[1]
    votes, voters = np.zeros((len(chosen), width)), np.zeros(len(chosen))
    sample = X[chosen]

    def vote(tree: int) -> tuple[Ints, Floats, Bools]:
        rows, nodes = np.flatnonzero(~held[chosen, tree]), slice(stops[tree - 1] if tree else 0, stops[tree])
        of_tree = {name: state[name][nodes] for name in ("feature", "threshold", "left", "right")}
        totals = state["totals"][nodes][leaves_of(of_tree, sample[rows], categorical)]
        n = totals[:, 0] if numeric else totals.sum(axis=1)
        counted = totals[:, 1:2] if numeric else totals
        if numeric and "unit" in state and totals.shape[1] == 3:  # sums in two words
            counted = totals[:, 1:2] * 2.0**20 + totals[:, 2:]
        return rows, np.divide(counted, n[:, None], out=np.zeros(counted.shape), where=n[:, None] > 0), n > 0

    for rows, shares, some in run([partial(vote, tree) for tree in range(len(stops))]):  # floats, in order
        votes[rows] += shares
        voters[rows] += some
    truth, votes, voters = y[chosen][voters > 0], votes[voters > 0], voters[voters > 0]
    if not len(truth):
        return {}
    if not numeric:
        return {"out_of_sample_error": float((votes.argmax(axis=1) != truth).mean())}
    spread = float(((truth - truth.mean()) ** 2).sum())
    return {"out_of_sample_r2": 1 - float(((truth - votes[:, 0] / voters) ** 2).sum()) / spread} if spread else {}
