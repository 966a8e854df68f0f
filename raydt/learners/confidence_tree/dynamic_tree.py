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
from raydt.learners.confidence_tree.naive_bayes import LeafPrediction
from raydt.learners.confidence_tree.prediction import level_odds, settle, tally_all
from raydt.learners.confidence_tree.tree import (
    CHECK,
    ENTRY,
    Counted,
    Path,
    Rules,
    Test,
    Tree,
    new_tree,
    split,
    walk,
    with_room,
)
from raydt.learners.nodes import (
    LEAF,
    MEMBER,
    NODES,
    USED,
    Examples,
    link_members,
    list_leaves,
    list_nodes,
    list_rows,
    listed,
    preorder,
    take_rows,
)
from raydt.learners.rows import Rows
from raydt.learners.sequential import Slots

Int64 = npt.NDArray[np.int64]

#: Where the levels of naive Bayes begin.
_ODDS = level_odds()


class DynamicTree:
    """The tree with what hangs on it.

    Parameters
    ----------
    features : Features
    grace_period : int
    revisit : bool
    leaf_prediction : str

    Attributes
    ----------
    store : ExampleStore
        Ids and labels of the live examples.
    right : ndarray of uint8
        Of each slot who was right about its example (``prediction``).
    members : ndarray of MEMBER
        Leaf of each slot, and its neighbours in the list of that.
    tree : Tree
    bins : Bins or None
        Of the dense features; None before the end of the warm-up.
    splits : dict of int to Split
        By inner node.
    sites : int
        The most sites of statistics that there were at once.
    """

    def __init__(
        self, features: Features, grace_period: int, *, revisit: bool, leaf_prediction: LeafPrediction
    ) -> None:
        self.categorical = features.kinds.astype(np.bool_)
        self._grace, self._revisit = grace_period, revisit
        self.naive, self._adaptive = leaf_prediction != "majority", leaf_prediction == "adaptive"
        self.right = np.empty(0, dtype=np.uint8)
        self.store = ExampleStore(0, 0)
        self.members = np.empty(0, dtype=MEMBER)
        self.tree: Tree = new_tree()
        self.bins: Bins | None = None
        self.splits: dict[int, Split] = {}
        self.sites = 1
        self._free: list[int] = []

    def make_room(self, batch: UpdateBatch) -> None:
        """Room for the rows and classes of one batch."""
        self.store.reserve(len(batch))
        if len(self.members) < self.store.capacity:
            self.members = grown(self.members, self.store.capacity)
            self.right = grown(self.right, self.store.capacity)
        self.tree = with_room(self.tree, 0, batch.n_classes)

    @property
    def examples(self) -> Examples:
        """The live examples, for kernels."""
        return Examples(self.members, self.store.y, self.store.born)

    def walk(self, path: Path, rows: Rows, *, counted: bool = True, scored: bool = True) -> Window:
        """Take the pending steps as if the tree did not change; ``counted`` unless in a warm-up."""
        tree = self.tree
        per = 1 + (int(tree.nodes["depth"][: int(tree.reg[USED])].max()) if self._revisit else 0)
        room = len(path.pending) * per if counted else 0
        entries, deltas = empty(room, ENTRY), empty((4, room), np.int32)
        checks = empty(room // self._grace + len(tree.nodes), CHECK)
        owns = np.empty((len(checks), tree.own.shape[1]), dtype=np.int64)
        rules = Rules(self.categorical, self._grace if counted else 0, self._revisit, scored, self.naive)
        rows_scored = len(path.pending) if counted and self.naive else 0
        asked, priors = np.empty(rows_scored, np.int64), np.empty((rows_scored, tree.own.shape[1]), np.int64)
        out = Counted(entries, deltas, checks, owns, asked, priors)
        made, due, rows_scored = walk(tree, self.examples, rows, path, rules, out, np.empty_like(tree.counts[:1]))
        checks, owns = checks[:due], owns[:due]
        if self._revisit:  # a step may check several nodes, the one nearest to the root comes first
            order = np.lexsort((checks["depth"], checks["step"]))
            checks, owns = checks[order], owns[order]
        of_rows = asked[:rows_scored], priors[:rows_scored]
        return Window(path, Counted(entries[:made], deltas[:, :made], checks, owns, *of_rows))

    def settle(self, window: Window, scores: Int64, table: Int64, void: npt.NDArray[np.bool_]) -> None:
        """Make the predictions of the steps of a window that stay, and tally who was right (``prediction.settle``)."""
        rules = self._adaptive, self._revisit
        settle(self.tree, self.examples, self.right, window.path, window.counted, scores, (table, _ODDS), void, rules)

    def naive_leaves(self) -> Int64:
        """Leaves that predict by naive Bayes now, in preorder."""
        order = preorder(self.tree)[0].astype(np.int64)
        nodes = self.tree.nodes[order]
        by_naive = (nodes["feature"] < 0) & (self.tree.own[order].sum(axis=1) > 0)
        if self._adaptive:
            by_naive &= nodes["naive_right"] >= nodes["majority_right"]
        found: Int64 = order[by_naive if self.naive else by_naive & False]
        return found

    def rows_of(self, leaf: int) -> Slots:
        """Slots of the live examples of a leaf. O(examples)."""
        slots = np.empty(int(self.tree.counts[leaf].sum()), dtype=np.int32)
        list_rows(self.tree, self.members, leaf, slots)
        return slots

    def counted(self) -> tuple[Slots, Int64, npt.NDArray[np.bool_]]:
        """Slots of the live examples, the site of the leaf of each, and whether that has counted it. O(examples)."""
        order = preorder(self.tree)[0]
        leaves = order[self.tree.nodes["feature"][order] < 0].astype(np.int64)
        slots = np.empty(int(self.tree.counts[0].sum()), dtype=np.int32)
        list_leaves(self.tree, self.members, leaves, slots)
        nodes = self.tree.nodes[self.members["leaf"][slots]]
        return slots, nodes["site"].astype(np.int64), 2 * self.store.born[slots] + 1 > nodes["created"]

    def clear(self, node: int) -> list[int]:
        """Ready a node for its change, and return the sites whose statistics the shards may forget.

        An inner node becomes a leaf, and the sites are those of the nodes below, which are freed. A leaf, which is to
        be split, gives up its own; with ``revisit`` it keeps that and continues to count.
        """
        nodes = self.tree.nodes
        if nodes["feature"][node] >= 0:
            return self._collapse(node)
        if self._revisit:
            return []
        site = int(nodes["site"][node])
        nodes["site"][node], self.tree.own[node] = -1, 0
        nodes["majority_right"][node] = nodes["naive_right"][node] = 0
        return [site]

    def _collapse(self, node: int) -> list[int]:
        """Make an inner node a leaf with the examples of all leaves below; returns the sites of the nodes below."""
        nodes = self.tree.nodes
        below = np.empty(int(self.tree.reg[NODES]), dtype=np.int64)
        below = below[: list_nodes(nodes, node, below)]
        sites: list[int] = nodes["site"][below].tolist()
        for inner in (node, *below.tolist()):
            self.splits.pop(inner, None)
        slots = np.empty(int(self.tree.counts[node].sum()), dtype=np.int32)
        take_rows(self.tree, self.members, node, slots)
        self.members["leaf"][slots] = node
        link_members(self.tree, self.members, slots)
        nodes["cut"][node], nodes["threshold"][node], nodes["since"][node] = LEAF, 0.0, 0
        return sites

    def divide(self, change: Change, slots: Slots, right: npt.NDArray[np.bool_]) -> None:
        """Split a leaf whose examples are ``slots``; ``right`` says which of them go right."""
        assert change.split is not None
        self.tree = with_room(self.tree, 2, 2)
        node, test = change.node, Test(change.feature, change.cut, self.threshold(change.feature, change.cut))
        split(self.tree, self.examples, node, test, change.split.stamp, slots, right)
        self.splits[node] = change.split
        for child in (self.tree.nodes["left"][node], self.tree.nodes["right"][node]):
            self.tree.nodes["site"][child] = self._new_site()

    def free(self, sites: list[int]) -> None:
        """Let sites be used again that the shards have emptied."""
        self._free += sorted(sites, reverse=True)

    def _new_site(self) -> int:
        if self._free:
            return self._free.pop()
        self.sites += 1
        return self.sites - 1

    def threshold(self, feature: int, cut: int) -> float:
        """Value a split compares with: a boundary, infinity where only NaN goes right, or a category; NaN of none."""
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
        arrays, position = canonical_tree(self.tree, self.splits), preorder(self.tree)[1]
        bins = {} if self.bins is None else self.bins.arrays()
        right = {"was_right": self.right[slots]} if self._adaptive and self.bins is not None else {}
        return {**arrays, **bins, **right, "leaf": position[self.members["leaf"][slots]]}

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; its rows take slots 0, 1, ..., its nodes ids in preorder."""
        self.store.fill(state["id"], state["y"], state["born"])
        self.tree, self.splits = live_tree(state)
        self.members = listed(self.tree, state["leaf"], self.store.capacity)
        self.bins = Bins.from_arrays(state) if "bins_kinds" in state else None
        self.right = np.zeros(self.store.capacity, dtype=np.uint8)
        if self._adaptive and self.bins is not None:
            self.right[: len(state["was_right"])] = state["was_right"]
            tally_all(self.tree, self.examples, self.right, len(state["was_right"]), revisit=self._revisit)
        sites = state["place"][state["place"] >= 0]
        self.sites = int(sites.max(initial=-1)) + 1
        self._free = np.setdiff1d(np.arange(self.sites), sites)[::-1].tolist()
