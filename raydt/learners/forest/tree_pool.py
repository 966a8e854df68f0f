"""Neighbouring trees of a shard with nodes, blocks and scratch of their own: what one thread at a time changes.

A tree is in one pool. Rows, and the lists of the rows in leaves, are the shard's: the pools share them, and each
changes the entries of its own trees only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import Bools, Floats, Ints, Slots
from raydt.learners.forest.apply_steps import ENDED, advance, look
from raydt.learners.forest.build import resolve
from raydt.learners.forest.node_pool import count, most_rows
from raydt.learners.forest.nodes import (
    ForestArrays,
    ForestRows,
    ForestRules,
    ForestSteps,
    TreeArrays,
    new_scratch,
    weighed,
    with_classes,
    with_room,
    without_room,
)
from raydt.trees.masses import mass_of
from raydt.trees.records import link, next_in_preorder, unlink


@kernel
def _copy_out(forest: Any, trees: Any, place: Any, out: Any) -> None:
    """Write some of the trees in preorder into ``TreeArrays``; an open leaf is a leaf. ``place`` is scratch by node."""
    nodes, at = forest.nodes, 0
    for i in range(len(trees)):
        begin, root = at, np.int64(forest.roots[trees[i] - forest.first])
        node = root
        while node >= 0:
            parent = nodes[node].parent
            if parent >= 0 and nodes[parent].right == node:
                out.right[place[parent]] = at - begin
            place[node] = at
            out.feature[at] = max(np.int64(nodes[node].feature), np.int64(-1))
            out.threshold[at] = nodes[node].threshold
            out.right[at] = -1
            for m in range(forest.totals.shape[1]):
                out.totals[at, m] = forest.totals[node, m]
            at += 1
            node = next_in_preorder(nodes, node, root)


@kernel
def _mark(forest: Any, k: int, found: Any) -> None:
    """Mark the slots of all rows."""
    for tree in range(len(forest.roots)):
        root = np.int64(forest.roots[tree])
        node = root
        while node >= 0:
            entry = forest.nodes[node].head
            while entry >= 0:
                found[entry // k] = True
                entry = forest.members[entry].next
            node = next_in_preorder(forest.nodes, node, root)


@kernel
def _gather_or_scatter(forest: Any, slots: Any, by: int, examples: Any, numeric: bool) -> None:
    """Put rows into the open roots of their trees (``by`` 1), or take them out (-1)."""
    k = examples.member.shape[1]
    for i in range(len(slots)):
        slot = np.int64(slots[i])
        for at in range(k):
            tree = np.int64(examples.member[slot, at]) - forest.first
            if tree < 0 or tree >= len(forest.roots):
                continue
            root = np.int64(forest.roots[tree])
            count(forest, root, examples.y[slot], by, by * mass_of(examples.weight, slot), numeric)
            forest.touched[tree] = True
            if by > 0:
                link(forest, forest.members, root, slot * k + at)
            else:
                unlink(forest, forest.members, slot * k + at)


class TreePool:
    """Trees, and what their builds need; ``examples`` of its methods are the rows of the shard."""

    def __init__(self, forest: ForestArrays, rules: ForestRules, categorical: Bools) -> None:
        self.forest, self.rules, self._categorical = forest, rules, categorical
        self.new_scratch(0)

    @property
    def width(self) -> int:
        """Classes that are counted, or how many numbers of numeric labels."""
        width: int = self.forest.totals.shape[1]
        return width

    def new_scratch(self, rows: int) -> None:
        """Take scratch for builds of so many rows."""
        self.scratch = new_scratch(rows, self.width, self.rules, self._categorical)

    def trim(self) -> None:
        """Give up the scratch, and room for more nodes."""
        self.forest = without_room(self.forest)
        self.new_scratch(0)

    def share(self, members: npt.NDArray[np.void]) -> None:
        """Use these lists of rows."""
        self.forest = self.forest._replace(members=members)

    def know(self, order: Ints) -> None:
        """Count all classes, whose codes are in ascending order of their labels."""
        grows = len(order) > self.width
        self.forest = with_classes(self.forest, order)
        if grows:
            self.new_scratch(len(self.scratch.slots))

    def weigh(self) -> None:
        """Count weights from now on; those of all rows there are, are 1."""
        self.forest, self.rules = weighed(self.forest, self.rules.numeric), self.rules.weighed()
        self.new_scratch(len(self.scratch.slots))

    def wait(self, slots: Slots, by: int, examples: ForestRows) -> None:
        """Put rows into the roots of their trees (``by`` 1), which are not built yet, or take them out (-1)."""
        _gather_or_scatter(self.forest, slots, by, examples, self.rules.numeric)

    def take(self, work: ForestSteps, begin: int, end: int, examples: ForestRows) -> None:
        """Take steps; leaves that are opened may stay so."""
        at, first = begin, -1
        while True:
            at, first, why = advance(self.forest, work, at, first, end, examples, self.scratch, self.rules)
            if why == ENDED:
                return
            self._make_room()

    def votes(self, X: Floats, examples: ForestRows) -> Ints:
        """Votes of these trees, shape (n, K), or (n, 2) of numbers; open leaves that no row passes stay open."""
        out, at = np.zeros((len(X), 2 if self.rules.numeric else self.width), dtype=np.int64), 0
        while (at := look(self.forest, X, at, examples, self.scratch, self.rules, out)) < len(X):
            self._make_room()
        return out

    def open_rows(self) -> int:
        """Return the rows of trees with open leaves."""
        waiting = self.forest.roots[self.forest.shape[:, 2] > 0]
        return int(self.forest.nodes["n"][waiting].sum())

    def resolve(self, examples: ForestRows) -> None:
        """Build all open leaves."""
        for tree in np.flatnonzero(self.forest.shape[:, 2]).tolist():
            while not resolve(self.forest, tree, examples, self.scratch, self.rules):
                self._make_room()

    def _make_room(self) -> None:
        """Make room to build the largest tree again, with one row more."""
        rows = int(most_rows(self.forest)) + 1
        self.forest = with_room(self.forest, rows)
        if len(self.scratch.slots) <= rows:
            self.new_scratch(max(rows + rows // 4, 64))

    def mark(self, found: Bools, copies: int) -> None:
        """Mark the slots of all rows, of which each is in so many trees. O(nodes + rows)."""
        _mark(self.forest, copies, found)

    def arrays(self, places: Ints) -> TreeArrays:
        """Return those of some trees that are in this pool, in canonical form. O(nodes)."""
        forest = self.forest
        places = places[(places >= forest.first) & (places < forest.first + len(forest.roots))]
        sizes = forest.shape[places - forest.first, 0].astype(np.int64)
        n = int(sizes.sum())
        out = TreeArrays(
            sizes,
            np.empty(n, dtype=np.int32),
            np.empty(n),
            np.empty(n, dtype=np.int32),
            np.empty((n, self.width), dtype=np.int64),
        )
        _copy_out(forest, places, np.empty(len(forest.nodes), dtype=np.int64), out)
        return out
