"""The tree, the lists of its leaves, the live examples and the places of statistics: what the coordinator changes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raydt.arrays.memory import empty, grown
from raydt.examples.features import CATEGORICAL, Features
from raydt.examples.store import ExampleStore
from raydt.examples.updates import UpdateBatch
from raydt.learners.binning import Bins
from raydt.learners.confidence_tree.deciding import Change, Window
from raydt.learners.confidence_tree.model import Arrays, Split, canonical_tree, live_tree
from raydt.learners.confidence_tree.tree import CHECK, ENTRY, Tree, collapse, new_tree, split, walk, with_room
from raydt.learners.nodes import MEMBER, NODES, USED, list_rows, listed, preorder
from raydt.learners.rows import Rows
from raydt.learners.sequential import Slots

Int64 = npt.NDArray[np.int64]


class LiveTree:
    """The tree with what hangs on it.

    Parameters
    ----------
    features : Features
    grace_period : int
    revisit : bool

    Attributes
    ----------
    store : ExampleStore
        Ids and labels of the live examples.
    members : ndarray of MEMBER
        Leaf of each slot, and its neighbours in the list of that.
    tree : Tree
    bins : Bins or None
        Of the dense features; None before the end of the warm-up.
    splits : dict of int to Split
        By inner node.
    places : int
        How many places of statistics there have been at once.
    """

    def __init__(self, features: Features, grace_period: int, *, revisit: bool) -> None:
        self.categorical = features.kinds.astype(np.bool_)
        self._grace, self._revisit = grace_period, revisit
        self.store = ExampleStore(0, 0)
        self.members = np.empty(0, dtype=MEMBER)
        self.tree: Tree = new_tree()
        self.bins: Bins | None = None
        self.splits: dict[int, Split] = {}
        self.places = 1
        self._free: list[int] = []

    def make_room(self, batch: UpdateBatch) -> None:
        """Room for the rows and classes of one batch."""
        self.store.reserve(len(batch))
        if len(self.members) < self.store.capacity:
            self.members = grown(self.members, self.store.capacity)
        self.tree = with_room(self.tree, 0, batch.n_classes)

    def walk(
        self,
        steps: npt.NDArray[np.void],
        pending: Int64,
        rows: Rows,
        path: Int64,
        leaves: Int64,
        *,
        taken: int = 0,
        counted: bool = True,
        scored: bool = True,
    ) -> Window:
        """Walk some steps through the tree as it is; what they count. ``leaves`` and ``taken``: see ``tree.walk``."""
        tree = self.tree
        per = 1 + (int(tree.nodes["depth"][: int(tree.reg[USED])].max()) if self._revisit else 0)
        room = len(pending) * per if counted else 0
        entries, told = empty(room, ENTRY), empty((4, room), np.int32)
        checks = empty(room // self._grace + len(tree.nodes), CHECK)
        owns = np.empty((len(checks), tree.own.shape[1]), dtype=np.int64)
        where = tree, self.members, self.store.y, self.store.born, steps, pending, leaves, self.categorical
        options = self._grace if counted else 0, self._revisit, scored
        made, due = walk(
            *where, *rows, *options, entries, told, checks, owns, path, taken, np.empty_like(tree.counts[:1])
        )
        return Window(steps, pending, entries[:made], told[:, :made], checks[:due], owns[:due])

    def rows_of(self, leaf: int) -> Slots:
        """Slots of the live examples of a leaf. O(examples)."""
        slots = np.empty(int(self.tree.counts[leaf].sum()), dtype=np.int32)
        list_rows(self.tree, self.members, leaf, slots)
        return slots

    def clear(self, node: int) -> list[int]:
        """Ready a node for its change, and return the places whose statistics the shards may forget.

        An inner node becomes a leaf, and the places are those of the nodes below, which are gone. A leaf, which is to
        be split, gives up its own; with ``revisit`` it keeps that, and goes on counting.
        """
        nodes = self.tree.nodes
        if nodes["feature"][node] >= 0:
            below = np.empty(int(self.tree.reg[NODES]), dtype=np.int64)
            below = below[: collapse(self.tree, self.members, node, below)]
            for gone in (node, *below.tolist()):
                self.splits.pop(gone, None)
            places: list[int] = nodes["place"][below].tolist()
            return places
        if self._revisit:
            return []
        place = int(nodes["place"][node])
        nodes["place"][node], self.tree.own[node] = -1, 0
        return [place]

    def divide(self, change: Change, slots: Slots, right: npt.NDArray[np.bool_]) -> None:
        """Split a leaf whose examples are ``slots``; ``right`` says which of them go right."""
        assert change.split is not None
        self.tree = with_room(self.tree, 2, 2)
        node, threshold = change.node, self.threshold(change.feature, change.cut)
        where = self.tree, self.members, self.store.y, node, change.feature, change.cut, threshold
        split(*where, change.split.stamp, slots, right)
        self.splits[node] = change.split
        for child in (self.tree.nodes["left"][node], self.tree.nodes["right"][node]):
            self.tree.nodes["place"][child] = self._place()

    def free(self, places: list[int]) -> None:
        """Let places be used again that the shards have emptied."""
        self._free += sorted(places, reverse=True)

    def _place(self) -> int:
        if self._free:
            return self._free.pop()
        self.places += 1
        return self.places - 1

    def threshold(self, feature: int, cut: int) -> float:
        """What a split compares with: a boundary, infinity where only NaN goes right, or a category; NaN of none."""
        if feature < 0:
            return float("nan")
        if feature >= len(self.categorical):
            return 0.0
        assert self.bins is not None
        begin, end = self.bins.starts[feature : feature + 2]
        if self.bins.kinds[feature] == CATEGORICAL:
            return float(self.bins.values[begin:end][self.bins.ranks[begin:end] == cut][0])
        return float(self.bins.values[begin + cut]) if begin + cut < end else float(np.inf)

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, its records, the bins, and the leaf of each example."""
        arrays, at = canonical_tree(self.tree, self.splits), preorder(self.tree)[1]
        bins = {} if self.bins is None else self.bins.arrays()
        return {**arrays, **bins, "leaf": at[self.members["leaf"][slots]]}

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; its rows take slots 0, 1, ..., its nodes ids in preorder."""
        self.store.fill(state["id"], state["y"], state["born"])
        self.tree, self.splits = live_tree(state)
        self.members = listed(self.tree, state["leaf"], self.store.capacity)
        self.bins = Bins.from_arrays(state) if "bins_kinds" in state else None
        places = state["place"][state["place"] >= 0]
        self.places = int(places.max(initial=-1)) + 1
        self._free = np.setdiff1d(np.arange(self.places), places)[::-1].tolist()
