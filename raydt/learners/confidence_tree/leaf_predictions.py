"""Tables by which the leaves of a live tree predict, and tallies of correct predictors, for all leaves at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np

from raydt.arrays.elementary import Arrays, Bools, Ints
from raydt.batches.binning import Bins
from raydt.examples.digest import Part, digest, encoded
from raydt.learners.confidence_tree.dynamic_tree import TALLIED, LiveConfidenceTree, StepWindow
from raydt.learners.confidence_tree.statistics import INHERITED, MAJORITY, choose, level_odds, settle

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
    rest = summed, (table, ODDS), void, (live.adaptive, live.inherits)
    settle(live.tree, live.examples, live.right, window.path, window.counted, *rest)


def naive_leaves(live: LiveConfidenceTree) -> Ints:
    """Return the leaves that predict by naive Bayes now, in preorder."""
    order = live.outline.order(live.tree).astype(np.int64)
    found: Ints = order[chosen(live, order) != MAJORITY]
    return found


def chosen(live: LiveConfidenceTree, some: Ints) -> Ints:
    """Return what predicts at some nodes (``prediction.chosen``): the majority at inner nodes and without counts."""
    found = np.full(len(some), MAJORITY)
    if live.naive and live.bins is not None:
        choose(live.tree, some, live.adaptive, live.normal, live.inherits, found)
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


# The digest of a confidence tree: most of what is hashed is encoded once, and kept until it changes.
#
# An update changes the counts and tallies of nodes, the number of examples taken, and rows. Whatever else there is (the
# shape of the tree, the records of its splits, bins, totals) changes with a check, a renewal or a new class.
#
# Invariant: the digest is that of all arrays by name (``docs/reference/formats.md``), whatever was kept.

#: What a state has beside the model: slots, places, when classes were weighed, and rows, which enter by the root of a
#: tree of hashes.
_SKIPPED = ("place", "seq", "leaf", "was_right", "weighed")


class ConfidenceTreeDigest:
    """Digests of a tree as it changes."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._bins: Bins | None = None
        self._kept: list[bytes | str] = []  # in the order of names; a name stands for an array that changes

    def of(self, live: LiveConfidenceTree, totals: Arrays, state: Callable[[], Arrays], rows: Part) -> str:
        """Return the digest. O(nodes), of counts alone unless something else has changed.

        ``totals`` are the counters of the state, whose arrays ``state`` makes; ``rows`` is the part of all rows.
        """
        changing = live.changing() | leaf_tallies(live) | {"t": totals["t"]}
        fixed = (int(value[0]) for name, value in totals.items() if name not in ("t", "seq"))
        key = live.outline.version, changing["counts"].shape[1], *fixed
        if key != self._key or live.bins is not self._bins:
            everything = state() | changing
            self._kept = list(_kept([(name, everything[name]) for name in sorted(everything)], changing))
            self._key, self._bins = key, live.bins
        parts = (part if isinstance(part, bytes) else (part, changing[part]) for part in self._kept)
        return digest([*parts, rows])


def _kept(parts: list[Part], changing: Arrays) -> Iterator[bytes | str]:
    """Encode what lies between the arrays that change."""
    between: list[Part] = []
    for name, values in parts:
        if name in changing:
            yield encoded(between)
            yield name
            between = []
        elif name not in _SKIPPED:
            between.append((name, np.asarray(values)))
    yield encoded(between)
