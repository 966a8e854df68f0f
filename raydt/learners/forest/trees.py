"""Exact trees of a shard: they take steps, build open leaves, and give canonical arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.memory import grown
from raydt.arrays.rng import bits
from raydt.examples.features import Features
from raydt.learners.forest.apply_steps import ENDED, advance, look
from raydt.learners.forest.build import resolve
from raydt.learners.forest.membership import memberships, seeds_of
from raydt.learners.forest.node_pool import count, most_rows
from raydt.learners.forest.nodes import (
    MOST_ENTRIES,
    ForestArrays,
    ForestRows,
    ForestSteps,
    TreeArrays,
    new_forest,
    new_scratch,
    with_classes,
    with_room,
)
from raydt.learners.forest.options import ForestOptions
from raydt.learners.sequential import ADD, LOOK, REMOVE
from raydt.trees.records import link, next_in_preorder, unlink

Slots = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]


@kernel
def _copy_out(forest: Any, trees: Any, place: Any, out: Any) -> None:
    """Write trees in preorder into ``TreeArrays``; an open leaf is a leaf. ``place`` is scratch by node."""
    nodes, at = forest.nodes, 0
    for i in range(len(trees)):
        begin, root = at, np.int64(forest.roots[trees[i]])
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
            tree = np.int64(examples.member[slot, at])
            if tree < 0:
                continue
            root = np.int64(forest.roots[tree])
            count(forest, root, examples.y[slot], by, numeric)
            forest.touched[tree] = True
            if by > 0:
                link(forest, forest.members, root, slot * k + at)
            else:
                unlink(forest, forest.members, slot * k + at)


def _writable(value: Any) -> Any:
    """The same named tuples of arrays, where read-only ones (of a memory map) are copied."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    return type(value)(*map(_writable, value)) if hasattr(value, "_fields") else value


class ExactTrees:
    """Exact trees of a shard, and the rows in slots that they hold."""

    forest: ForestArrays
    examples: ForestRows

    def __init__(self, options: ForestOptions, features: Features) -> None:
        self.options, self.features = options, features
        #: Which trees of the forest these are, ascending; none before :meth:`deal`.
        self.numbers = np.empty(0, dtype=np.int64)
        self.rules, self.seeds = options.rules(len(features)), seeds_of(options.random_state)
        self._place = np.full(options.n_estimators, -1, dtype=np.int32)
        self._d, self._categorical = len(features), features.kinds.astype(np.bool_)
        self.clear()

    def deal(self, numbers: Ints) -> None:
        """Own these trees of the forest, before any row is in them."""
        if np.array_equal(numbers, self.numbers):
            return
        self.numbers = numbers
        self._place[:] = -1
        self._place[numbers] = np.arange(len(numbers))
        self._plant(self.width)

    @property
    def width(self) -> int:
        """Classes that are counted, or 4 numbers of numeric labels."""
        width: int = self.forest.totals.shape[1]
        return width

    def _plant(self, width: int) -> None:
        """Make every tree one open leaf without rows; entries keep their room."""
        keys, words = bits(self.seeds.roots, self.numbers), (self._d + 63) // 64
        forest = new_forest(keys, self.rules, width, words)
        self.forest = forest._replace(members=self.forest.members, order=self.forest.order)

    def clear(self) -> None:
        """No rows, and trees of one leaf."""
        options, d = self.options, self._d
        classes = 4 if self.rules.numeric else 2
        self.forest = new_forest(bits(self.seeds.roots, self.numbers), self.rules, classes, (d + 63) // 64)
        self.examples = ForestRows(
            np.empty((0, d)), np.empty(0, dtype=np.int64), np.empty((0, options.copies), np.int32), self._categorical
        )
        self.scratch = new_scratch(0, classes, self.rules, self._categorical)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "scratch": None}  # it has rows that were at hand, deleted ones too

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self.forest, self.examples = map(_writable, (self.forest, self.examples))
        self.scratch = new_scratch(0, self.forest.totals.shape[1], self.rules, self._categorical)

    # ---------------------------------------------------------------- rows

    def know(self, order: Ints) -> None:
        """Room for all classes, whose codes are in ascending order of their labels."""
        if self.rules.numeric:
            return
        grows = len(order) > self.forest.totals.shape[1]
        self.forest = with_classes(self.forest, order)
        if grows:
            self.scratch = new_scratch(len(self.scratch.slots), len(order), self.rules, self._categorical)

    def reserve(self, slots: int) -> None:
        """Room for rows in slots below ``slots``."""
        had = len(self.examples.y)
        if slots <= had:
            return
        k, held = self.options.copies, self.examples
        capacity = max(slots, min(max(had + had // 2, 64), MOST_ENTRIES // k))
        self.forest = self.forest._replace(members=grown(self.forest.members, capacity * k))
        self.examples = held._replace(
            X=grown(held.X, capacity), y=grown(held.y, capacity), member=grown(held.member, capacity)
        )

    def put(self, slots: Slots, ids: Ints, X: npt.NDArray[np.float64], y: Ints) -> None:
        """Keep new rows, of which nothing is in the trees yet."""
        if not len(slots):
            return
        self.examples.X[slots] = X
        self.examples.y[slots] = y
        self.examples.member[slots] = self._place[self.members(ids)]

    def erase(self, slots: Slots) -> None:
        """Leave nothing of rows that no tree holds any more."""
        self.examples.X[slots] = 0.0
        self.examples.y[slots] = 0
        self.examples.member[slots] = -1

    def members(self, ids: Ints) -> npt.NDArray[np.int32]:
        """Trees of the forest that hold each example, shape (n, k)."""
        out = np.empty((len(ids), self.options.copies), dtype=np.int32)
        memberships(self.seeds, np.ascontiguousarray(ids, dtype=np.int64), self.options.n_estimators, out)
        return out

    def collect(self, kind: npt.NDArray[np.int32], slots: Slots) -> None:
        """Take steps while nothing is built: rows wait in the roots, in order."""
        changes = kind != LOOK  # a query changes nothing, and has no slot
        kind, slots = kind[changes], slots[changes]
        begin = 0
        for stop in [*np.flatnonzero(np.diff(kind == REMOVE)).tolist(), len(kind) - 1]:
            part = slots[begin : stop + 1]
            if len(part):
                self._wait(part, 1 if kind[begin] == ADD else -1)
            begin = stop + 1

    # ---------------------------------------------------------------- steps

    def _wait(self, slots: Slots, by: int) -> None:
        """Put rows into the roots of their trees (``by`` 1), which are not built yet, or take them out (-1)."""
        _gather_or_scatter(self.forest, slots, by, self.examples, self.rules.numeric)

    def take(self, work: ForestSteps, begin: int, end: int) -> None:
        """Take steps; leaves that are opened may stay so."""
        at, first = begin, -1
        while True:
            at, first, why = advance(self.forest, work, at, first, end, self.examples, self.scratch, self.rules)
            if why == ENDED:
                return
            self._make_room()

    def votes(self, X: npt.NDArray[np.float64]) -> Ints:
        """Votes of these trees, shape (n, K), or (n, 2) of numbers; open leaves that no row passes stay open."""
        out = np.zeros((len(X), 2 if self.rules.numeric else self.forest.totals.shape[1]), dtype=np.int64)
        rows, at = np.ascontiguousarray(X, dtype=np.float64), 0
        while (at := look(self.forest, rows, at, self.examples, self.scratch, self.rules, out)) < len(X):
            self._make_room()
        return out

    def resolve(self) -> None:
        """Build all open leaves."""
        for tree in np.flatnonzero(self.forest.shape[:, 2]).tolist():
            while not resolve(self.forest, tree, self.examples, self.scratch, self.rules):
                self._make_room()

    def _make_room(self) -> None:
        """Room to build the largest tree again, with one row more."""
        rows = int(most_rows(self.forest)) + 1
        self.forest = with_room(self.forest, rows)
        if len(self.scratch.slots) <= rows:
            width = self.forest.totals.shape[1]
            self.scratch = new_scratch(max(rows + rows // 4, 64), width, self.rules, self._categorical)

    def open_all(self, y: Ints) -> None:
        """Make every tree one open leaf of its rows, which get other labels, by slot."""
        slots = self._live()
        self.examples.y[: len(y)] = y
        self._plant(self.forest.totals.shape[1])
        _gather_or_scatter(self.forest, slots, 1, self.examples, self.rules.numeric)

    def _live(self) -> Slots:
        """Slots of the rows in the trees, ascending. O(nodes + rows k)."""
        found = np.zeros(len(self.examples.y), dtype=np.bool_)
        _mark(self.forest, self.options.copies, found)
        return np.flatnonzero(found).astype(np.int32)

    # ---------------------------------------------------------------- what there is

    def touched(self) -> Ints:
        """Places of the trees that have changed since the last call."""
        trees = np.flatnonzero(self.forest.touched)
        self.forest.touched[:] = False
        return trees

    def arrays(self, trees: Ints | None = None) -> TreeArrays:
        """Some of the trees, by place, in canonical form; all by default. O(nodes)."""
        places = np.arange(len(self.numbers)) if trees is None else trees
        sizes = self.forest.shape[places, 0].astype(np.int64)
        n = int(sizes.sum())
        out = TreeArrays(
            sizes,
            np.empty(n, dtype=np.int32),
            np.empty(n),
            np.empty(n, dtype=np.int32),
            np.empty((n, self.forest.totals.shape[1]), dtype=np.int64),
        )
        _copy_out(self.forest, places, np.empty(len(self.forest.nodes), dtype=np.int64), out)
        return out

    def shape(self) -> tuple[int, int, int]:
        """Nodes, leaves, and the depth of the deepest node."""
        nodes, leaves = self.forest.shape[:, :2].sum(axis=0, dtype=np.int64).tolist()
        deep = np.flatnonzero(self.forest.levels.any(axis=0))
        return nodes, leaves, int(deep[-1]) if len(deep) else 0
