"""What the leaves of a live tree predict by, and who has been right: whole tables, where kernels take leaf by leaf."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.types import Arrays, Bools, Ints
from raydt.learners.confidence_tree.drift_kernels import YOUNG
from raydt.learners.confidence_tree.dynamic_tree import TALLIED, LiveConfidenceTree
from raydt.learners.confidence_tree.prediction import INHERITED, MAJORITY, NAIVE, NORMAL, level_odds, settle
from raydt.learners.confidence_tree.split_decisions import StepWindow

#: Where the levels of naive Bayes begin.
ODDS = level_odds()


def settle_window(live: LiveConfidenceTree, window: StepWindow, replies: list[Any], table: Ints, void: Bools) -> None:
    """Make the predictions of the steps of a window that stay, and tally who was right (``prediction.settle``).

    ``replies`` of every shard have the scores of naive Bayes. Where leaves predict the majority there is nothing to do.
    """
    if not live.naive:
        return
    none = np.empty((0, 2), dtype=np.int64)
    each = (sum((reply[i] for reply in replies[1:]), replies[0][i]) if replies else none for i in (1, 2))
    summed = tuple(np.ascontiguousarray(scores) for scores in each)
    rules = live.adaptive, 1 + live.period // YOUNG * live.unit if live.period else 0, live.inherits
    settle(live.tree, live.examples, live.right, window.path, window.counted, summed, (table, ODDS), void, rules)


def naive_leaves(live: LiveConfidenceTree) -> Ints:
    """Return the leaves that predict by naive Bayes now, in preorder."""
    order = live.outline.order(live.tree).astype(np.int64)
    found: Ints = order[chosen(live, order) != MAJORITY]
    return found


def chosen(live: LiveConfidenceTree, some: Ints) -> Ints:
    """Return what predicts at some nodes (``prediction.chosen``): the majority at inner nodes and without counts."""
    nodes, found = live.tree.nodes[some], np.full(len(some), NAIVE)
    if live.adaptive:
        right = nodes["majority_right"]
        found[nodes["naive_right"] < right] = MAJORITY
        right = np.maximum(right, nodes["naive_right"])
        if live.normal:
            found[nodes["normal_right"] >= right] = NORMAL
            right = np.maximum(right, nodes["normal_right"])
        if live.inherits:
            found[nodes["inherited_right"] > right] = INHERITED
    none = (nodes["feature"] >= 0) | (live.tree.own[some].sum(axis=1) == 0)
    found[none | (not live.naive or live.bins is None)] = MAJORITY
    return found


def priors_of(live: LiveConfidenceTree, leaves: Ints) -> Ints:
    """Return the class counts that the predictions of some leaves are made of, shape (leaves, K)."""
    of_all = (chosen(live, leaves) == INHERITED)[:, None]
    counts: Ints = np.where(of_all, live.tree.counts[leaves], live.tree.own[leaves])
    return counts


def leaf_tallies(live: LiveConfidenceTree) -> Arrays:
    """Return who was right, by node in preorder, 0 of inner ones, if they are tallied."""
    if not live.tallies:
        return {}
    order, nodes = live.outline.order(live.tree), live.tree.nodes
    leaves = nodes["feature"][order] < 0
    names = TALLIED[: 2 + live.normal + live.inherits]
    return {name: np.where(leaves, nodes[name][order], 0) for name in names}
