"""BUILD for the sparse tree: level by level with the shards, one round a level, best split of each node exactly."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import AnyArray, Arrays, Ints, Slots
from raydt.examples.features import Features
from raydt.examples.store import ExampleStore
from raydt.examples.weighting import Weighting
from raydt.exchange.messages import Ask, Exchange
from raydt.finders.scores import best_candidates, table_of, xlogx_table
from raydt.learners.rebuild_log import SHARDS, record
from raydt.learners.sparse_tree.coordinator_update import WeighedRows
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.learners.sparse_tree.rules import keep_leaves
from raydt.learners.sparse_tree.shard_build import MISSING
from raydt.learners.tree_coordinator import LiveTree
from raydt.trees.counted_tree import start_node, with_room
from raydt.trees.records import NODES, link_members, list_nodes, split_node, take_rows
from raydt.trees.state_schema import unit_of


class Builder(LiveTree):
    """The live tree, and how a subtree is rebuilt."""

    def __init__(self, options: SparseTreeOptions, features: Features, shards: int) -> None:
        weighting = Weighting(options.class_weight == "balanced")
        super().__init__(features, options.rules(len(features.names) > 0), ExampleStore(0), weighting)
        self.shards, self.watch_rules = shards, options.watch_rules()
        self._options = options
        #: Steps of the last window up to its first change; the shards roll back the others with the next message.
        self.keep = 0
        self._table = xlogx_table(0)

    def take_keep(self) -> int:
        """``keep`` for the next message, once."""
        keep, self.keep = self.keep, 0
        return keep

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; its rows take slots 0, 1, ..."""
        self.rules, self.watch_rules = self._options.rules(len(self.features.names) > 0), self._options.watch_rules()
        if unit_of(state) > 1:
            self._count_masses()
        super().restore(state)
        self.keep = 0

    # ---------------------------------------------------------------- weights

    @property
    def weighed(self) -> WeighedRows:
        """What rows count, for kernels."""
        return WeighedRows(self.weights, self.rules.min_samples_split if self.rules.by_size else 0)

    def _count_masses(self) -> None:
        self.rules = self._options.weighed_rules(len(self.features.names) > 0)
        self.watch_rules = self._options.watch_rules().weighed()

    # ---------------------------------------------------------------- rebuilding

    def rebuild(self, root: int, stamp: int, log: npt.NDArray[np.void]) -> Exchange[None]:
        """Rebuild one subtree."""
        began = time.perf_counter()
        weighted, weights = self.rules.unit > 1, self.weights
        n = int(self.tree.statistics["pairs"][root] if weighted else self.tree.counts[root].sum())
        self._table = np.empty(0) if weighted else table_of(self.watch_rules.entropy, n, self._table)
        slots = np.empty(n, dtype=np.int32)
        gone = self._nodes_from(root)
        take_rows(self.tree, self.members, root, slots)
        slots.sort()
        before = int(self.tree.reg[NODES])
        nodes, ends = np.array([root]), np.array([n])
        splits = np.empty((0, 3), dtype=np.int64)
        while len(nodes):
            self._start(nodes, ends, slots, stamp)
            payload = {
                "keep": self.take_keep(),
                "gone": gone,
                "splits": splits,
                "nodes": nodes,
                "depth": self.tree.nodes["depth"][nodes],
                "ends": ends,
                "slots": slots,
                "labels": self.store.y[slots].astype(np.int8),
                "masses": weights[slots] if weighted else weights,
            }
            replies = yield Ask("build", payload)
            splits, nodes, ends, slots = self._grow(nodes, ends, slots, replies)
            gone = gone[:0]
        record(
            self.tree, log, root, stamp, n, int(self.tree.reg[NODES]) - before + 1, SHARDS, time.perf_counter() - began
        )

    def _nodes_from(self, root: int) -> Ints:
        """A node and all below it."""
        nodes = np.empty(int(self.tree.reg[NODES]) + 1, dtype=np.int64)
        nodes[0] = root
        return nodes[: 1 + list_nodes(self.tree.nodes, root, nodes[1:])]

    def _start(self, nodes: AnyArray, ends: AnyArray, slots: Slots, stamp: int) -> None:
        """Make fresh leaves of nodes, with their rows listed."""
        begin = 0
        for node, end in zip(nodes.tolist(), ends.tolist(), strict=True):
            if self.rules.unit > 1:
                self.tree.statistics["pairs"][node] = end - begin
            start_node(self.tree, node, stamp, self.rules)
            self.members["leaf"][slots[begin:end]] = node
            link_members(self.tree, self.members, slots[begin:end])
            begin = end

    def _grow(
        self, nodes: AnyArray, ends: AnyArray, slots: Slots, replies: list[Any]
    ) -> tuple[Ints, Ints, Ints, Slots]:
        """Split what is to be split of one level: the splits, the nodes below, where their rows end, their rows."""
        found = np.concatenate([reply["found"] for reply in replies], axis=1)
        shard_of = np.repeat(np.arange(len(replies)), [reply["found"].shape[1] for reply in replies])
        sides = [np.unpackbits(reply["sides"], count=len(slots)).view(np.bool_) for reply in replies]
        splits, below, sizes, rows = [], [], [], []
        counts = self.tree.counts[nodes]
        totals = np.stack([counts.sum(axis=1), counts[:, 1]], axis=1)
        winner = np.empty(len(nodes), dtype=np.int64)
        best_candidates(self.watch_rules.entropy, self._table, totals, found, winner)
        keep_leaves(self.watch_rules, self._table, totals, self.tree.nodes["depth"][nodes], found, winner)
        self.tree = with_room(self.tree, 2 * len(nodes), 2)
        t, begin = self.tree, 0
        for i, (node, end) in enumerate(zip(nodes.tolist(), ends.tolist(), strict=True)):
            mine = slice(begin, end)
            begin = end
            chosen = int(winner[i])
            if chosen < 0:
                continue
            feature, n1, c11 = found[i, chosen, :3].tolist()
            threshold = found[i, chosen, 3:].view(np.float64)[0]
            left, right = _split(t, node, feature, threshold, n1, c11, int(found[i, chosen, MISSING]))
            on_right = sides[shard_of[chosen]][mine]
            splits.append((node, left, right))
            for child, part in ((left, slots[mine][~on_right]), (right, slots[mine][on_right])):
                below.append(child)
                sizes.append(len(part))
                rows.append(part)
        joined = np.concatenate([np.empty(0, dtype=np.int32), *rows])
        return (
            np.array(splits, dtype=np.int64).reshape(-1, 3),
            np.array(below, dtype=np.int64),
            np.cumsum(np.array(sizes, dtype=np.int64)),
            joined,
        )


@kernel
def _split(tree: Any, node: int, feature: int, threshold: float, n1: int, c11: int, missing: int) -> tuple[int, int]:
    """Split a leaf whose counts are right; the counts of its children follow."""
    left, right = split_node(tree, node, feature, threshold)
    tree.nodes[node].missing = missing
    tree.counts[right, 1] = c11
    tree.counts[right, 0] = n1 - c11
    for k in range(2):
        tree.counts[left, k] = tree.counts[node, k] - tree.counts[right, k]
    tree.nodes[node].head = -1
    return left, right
