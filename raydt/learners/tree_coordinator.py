"""Common base of the coordinators of fully dynamic trees: state, digest and statistics of the tree they hold.

Invariant: two models with the same digest have the same tree, with the same counts at every node, and the same examples
with the same labels, whatever their slots and node ids. Which leaf an example is in follows from its features; the
audit checks it.
"""

from __future__ import annotations

import numpy as np

from raydt.arrays.digest import Part, digest
from raydt.arrays.memory import trimmed
from raydt.arrays.types import Arrays, Slots
from raydt.examples.features import Features
from raydt.examples.store import ExampleStore
from raydt.examples.updates import INSERT, UPDATE, UpdateBatch
from raydt.examples.weighting import Weighting
from raydt.examples.weights import NO_WEIGHTS, Weights, sums_by_class
from raydt.learners.sequential import SequentialCoordinator
from raydt.trees.canonical_arrays import canonical_tree, count_rows, live_tree
from raydt.trees.counted_tree import REBUILDS, REBUILT_ROWS, WARMUP_LEFT, TreeRules, new_tree
from raydt.trees.masses import masses_by_slot
from raydt.trees.records import (
    LEAVES,
    MEMBER,
    NODES,
    Examples,
    link_members,
    list_rows,
    listed,
    take_rows,
    without_room,
)
from raydt.trees.tree_digest import Outline
from raydt.trees.weighted_counts import weigh
from raydt.trees.weighted_numbers import in_units

#: Totals of a state that are registers of the tree.
_TOTALS = (("warmup_left", WARMUP_LEFT), ("rebuilds", REBUILDS), ("rebuilt_rows", REBUILT_ROWS))


class LiveTree:
    """A tree, the lists of its leaves and the live examples, which grow together."""

    def __init__(
        self, features: Features, rules: TreeRules, store: ExampleStore, weighting: Weighting, classes: int = 2
    ) -> None:
        self.features, self.rules, self.store, self.weighting = features, rules, store, weighting
        self.categorical = features.kinds.astype(np.bool_)
        self.members = np.empty(0, dtype=MEMBER)  #: By slot: the leaf of each example, and its neighbours in the list.
        self.tree = new_tree(64, classes)

    @property
    def examples(self) -> Examples:
        """The live examples, for kernels."""
        return Examples(self.members, self.store.y, self.store.born)

    def reserve(self, rows: int) -> None:
        """Make room for new examples."""
        self.store.reserve(rows)
        self._follow_store()

    def _follow_store(self) -> None:
        """Make room in all that has an entry for each slot of the store."""
        if len(self.members) < self.store.capacity:
            self.members = self.store.grown(self.members, self.store.capacity)

    def trim(self) -> None:
        """Give up room for more examples and nodes."""
        self.store.trim()
        self.members = trimmed(self.members, self.store.capacity)
        self.tree = without_room(self.tree)

    def rows_of(self, leaf: int) -> Slots:
        """Return the slots of the examples in a leaf."""
        rows = self.tree.counts[leaf].sum() if self.rules.unit == 1 else self.tree.statistics["pairs"][leaf]
        slots = np.empty(int(rows), dtype=np.int32)
        list_rows(self.tree, self.members, leaf, slots)
        return slots

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; its rows take slots 0, 1, ..."""
        self.tree = live_tree(state, self.rules)
        self._restore_rows(state)
        self.weighting.restore(state, self.store)

    def _restore_rows(self, state: Arrays) -> None:
        leaf = state["leaf"]
        self.store.fill(state["id"], state["y"], state["born"], weights=state.get("weight"))
        if self.rules.unit > 1:
            count_rows(self.tree, np.bincount(leaf[leaf >= 0], minlength=len(self.tree.nodes)))
        self.members = listed(self.tree, leaf, self.store.capacity)

    # ---------------------------------------------------------------- weights

    @property
    def weights(self) -> Weights:
        """What examples count, by slot; empty while counts are numbers of rows."""
        return NO_WEIGHTS if self.rules.unit == 1 else masses_by_slot(self.weighting, self.store)

    def _count_masses(self) -> None:
        """Take the rules where counts are masses."""
        raise NotImplementedError

    def weigh(self) -> None:
        """Make all counts masses with the first example that has another weight than 1; those in the tree have 1."""
        if self.rules.unit == 1 and self.store.uneven:
            rows = self.tree.counts.sum(axis=1)
            self._count_masses()
            weigh(self.tree, self.rules)
            if self.tree.sums.shape[1]:
                self.tree = self.tree._replace(sums=in_units(self.tree.sums))
            self.tree.statistics["pairs"] = rows

    def balance(self, seq: int, classes: int = 0) -> None:
        """Find the weights of classes, if they are wanted, by the examples in the root, before update ``seq``.

        The tree is one leaf, whose examples count by these weights from now on; ``classes`` as of ``Weighting``.
        """
        if not self.weighting.is_open:
            return
        slots = self.rows_of(0)
        self.weighting.balance(self.store, slots, seq, classes, np.arange(self.store.used))
        if self.rules.unit == 1:
            self._count_masses()
        take_rows(self.tree, self.members, 0, slots)
        weight = self.weights[slots]
        self.members["leaf"][slots] = np.where(weight > 0, 0, -1)
        link_members(self.tree, self.members, slots[weight > 0])
        sums = sums_by_class(weight, self.store.y[slots], self.tree.counts.shape[1])
        self.tree.counts[0] = sums
        self.tree.statistics["n"][0], self.tree.statistics["pairs"][0] = sums.sum(), np.count_nonzero(weight)


def inserts_of(batch: UpdateBatch) -> int:
    """Return how many examples a batch may add."""
    return int(((batch.op == INSERT) | (batch.op == UPDATE)).sum())


class TreeCoordinator(SequentialCoordinator):
    """A coordinator that holds a dynamic tree."""

    live: LiveTree
    _outlined: Outline | None = None
    _outlined_unit = 1

    @property
    def _outline(self) -> Outline:
        """The outline of the tree as it is. O(nodes changed since it was last asked for)."""
        rules = self.live.rules
        if self._outlined is None or self._outlined_unit != rules.unit:  # with the first weight all counts are others
            self._outlined, self._outlined_unit = Outline(rules.certified), rules.unit
        self._outlined.follow(self.live.tree)
        return self._outlined

    @property
    def store(self) -> ExampleStore:
        """The live examples."""
        return self.live.store

    def _is_cut_short(self, updates: int) -> bool:
        """Return True if the warm-up is over; it counts insertions, and takes as many more as were refused."""
        left = updates - self.store.live
        if 0 < left < self.live.tree.reg[WARMUP_LEFT]:
            self.live.tree.reg[WARMUP_LEFT] = left
        return not left and bool(self.live.tree.reg[WARMUP_LEFT] > 0)

    def _positions(self, slots: Slots) -> Arrays:
        return {"leaf": self._outline.places(self.live.tree, self.live.members["leaf"][slots])}

    def digest(self) -> str:
        """Return the digest of tree and examples, free of node ids. O(nodes + live examples), then O(depth)."""
        tree = self._outline.root(self.live.tree)
        return digest([("tree", tree), *self._digested_numbers(), *self._class_parts(), self._row_part()])

    def trim(self) -> None:
        """Rest, and give up the outline and room for more examples and nodes."""
        super().trim()
        self._outlined = None
        self.live.trim()

    def _digested_numbers(self) -> list[Part]:
        """What else the digest has."""
        return []

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now."""
        reg = self.live.tree.reg
        return {
            "active": self.store.live,
            "nodes": int(reg[NODES]),
            "leaves": int(reg[LEAVES]),
            "depth": self._outline.depth,
            "rebuilds": int(reg[REBUILDS]),
            "rebuilt_rows": int(reg[REBUILT_ROWS]),
        }

    def model(self) -> Arrays:
        """Canonical arrays of the tree."""
        return canonical_tree(self.live.tree, self.live.rules)[0]

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, the leaf of each example, and the totals."""
        arrays, position = canonical_tree(self.live.tree, self.live.rules)
        totals = {name: self.live.tree.reg[[register]] for name, register in _TOTALS}
        leaf = position[self.live.members["leaf"][slots]]
        return {**arrays, "leaf": leaf, "seq": np.array([self._seq], dtype=np.int64), **totals}

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features stay with the shards."""
        self.live.restore(state)
        self._outlined = None
        for name, register in _TOTALS:
            self.live.tree.reg[register] = state[name][0]
        self._seq = int(state["seq"][0])
