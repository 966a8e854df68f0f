"""The live tree with its examples, and how a subtree is rebuilt: here, here after gathering columns, or on the shards.

Where a rebuild is done depends on its size and on which features are at hand; what comes out does not.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from raydt.arrays.memory import grown
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.examples.store import ExampleStore
from raydt.examples.updates import INSERT, UPDATE, UpdateBatch
from raydt.exchange.faults import fault
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.learners.base import WorkPlan
from raydt.learners.fudyadt.build import Listing, Scratch, build, new_scratch
from raydt.learners.fudyadt.engine import Cached
from raydt.learners.fudyadt.levels import (
    Children,
    Level,
    choose_splits,
    send_rows,
    side_words,
    split_nodes,
    split_reply,
)
from raydt.learners.fudyadt.presort import largest_build
from raydt.learners.live_tree import (
    Rules,
    most_nodes,
    new_tree,
    start_node,
    stays_leaf,
    with_room,
)
from raydt.learners.nodes import MEMBER, NODES, Examples, link_members, take_rows
from raydt.learners.rebuild_log import COORDINATOR, RESET, SHARDS, record
from raydt.learners.tree_arrays import Arrays, restored

#: Cells of a rebuild up to which the compiled loop does it itself; larger ones are timed one by one.
LOOP_CELLS = 1 << 15
#: Cells up to which scratch is kept: fresh pages cost a third of a BUILD's time (16 MiB of elements).
KEPT_CELLS = 1 << 21
#: Rows fetched in one round when the cache is filled after a restore.
FETCHED_ROWS = 1 << 16


class DynamicTree:
    """Tree, membership of rows in leaves, example store and scratch, growing together.

    Parameters
    ----------
    features : Features
    rules : Rules
    shards : int
    plan : WorkPlan

    Attributes
    ----------
    loop_rows : int
        Largest rebuild the compiled loop does itself.
    """

    def __init__(self, features: Features, rules: Rules, shards: int, plan: WorkPlan) -> None:
        self.features, self.rules, self.plan = features, rules, plan
        self.categorical = features.kinds.astype(np.bool_)
        groups = features.assign(shards)
        self._groups = [len(owned) for owned in groups]
        self.columns = [features.columns_of(owned) for owned in groups]
        d = len(features)
        self.store = ExampleStore(d, plan.row_cache_bytes)
        self.members = np.empty(0, dtype=MEMBER)
        self.tree = new_tree(64, 2)
        self.loop_rows = max(16, LOOP_CELLS // max(1, d))
        self.scratch = new_scratch(self.loop_rows, d, 2)
        self._rows_to_fetch = 0

    @property
    def examples(self) -> Examples:
        """The live examples, for kernels."""
        return Examples(self.members, self.store.y, self.store.born)

    @property
    def cached(self) -> Cached:
        """The features at hand, for kernels."""
        return Cached(self.store.X, self.categorical)

    def make_room(self, batch: UpdateBatch) -> None:
        """Room for the rows and classes of one batch.

        Raises
        ------
        InputError
            More live rows than one BUILD can take with so many classes. Nothing has been applied.
        """
        inserts = int(((batch.op == INSERT) | (batch.op == UPDATE)).sum())
        limit = largest_build(max(2, batch.n_classes))
        if self.store.live + inserts > limit:
            raise InputError(
                f"{self.store.live + inserts:,} live examples of {batch.n_classes:,} classes are more than the "
                f"{limit:,} a tree can hold",
                remedy="Keep fewer examples live, or fewer classes (source.positive)",
            )
        self.store.reserve(inserts)
        if len(self.members) < self.store.capacity:
            self.members = grown(self.members, self.store.capacity)
        classes = max(2, batch.n_classes)
        if classes > self.tree.counts.shape[1]:
            self.tree = with_room(self.tree, 0, classes)
            self.scratch = new_scratch(self.loop_rows, len(self.features), classes)

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; its rows take slots 0, 1, ..."""
        self.tree, self.members = restored(self.store, state, self.rules)
        self.scratch = new_scratch(self.loop_rows, len(self.features), self.tree.counts.shape[1])
        self._rows_to_fetch = 0 if self.plan.shared_store else min(len(state["id"]), len(self.store.X))

    def fill_cache(self) -> Exchange[None]:
        """Fetch the features of cached rows from the shards, after a restore and before the next batch."""
        for begin in range(0, self._rows_to_fetch, FETCHED_ROWS):
            slots = np.arange(begin, min(begin + FETCHED_ROWS, self._rows_to_fetch), dtype=np.int32)
            for columns, reply in zip(self.columns, (yield Ask("gather", {"slots": slots})), strict=True):
                self.store.X[np.ix_(slots, columns)] = reply
        self._rows_to_fetch = 0

    def rebuild(self, node: int, stamp: int, log: npt.NDArray[np.void]) -> Exchange[None]:
        """Rebuild one subtree, wherever its features are."""
        began = time.perf_counter()
        n, depth = int(self.tree.statistics["n"][node]), self.tree.nodes["depth"][node]
        if n * len(self.features) < self.plan.local_work_limit:
            self.tree = with_room(self.tree, most_nodes(n, depth, self.rules), self.tree.counts.shape[1])
        slots = np.empty(n, dtype=np.int32)
        take_rows(self.tree, self.members, node, slots)
        slots.sort()  # reads memory in order; the result does not depend on it
        before = int(self.tree.reg[NODES])
        if stays_leaf(self.tree.counts, node, depth, self.rules):
            place = RESET
            start_node(self.tree, node, stamp, self.rules)
            self.members["leaf"][slots] = node
            link_members(self.tree, self.members, slots)
        elif n * len(self.features) < self.plan.local_work_limit:
            place = COORDINATOR
            X, rows = yield from self._features_of(slots)
            fault("coordinator.local_rebuild")
            self._build(node, X, rows, slots, stamp)
        else:
            place = SHARDS
            yield from self._spread(node, slots, stamp)
        nodes = int(self.tree.reg[NODES]) - before + 1
        record(self.tree, log, node, stamp, n, nodes, place, time.perf_counter() - began)

    def _scratch_for(self, rows: int) -> Scratch:
        """Scratch for a BUILD; that of a very large one is not kept."""
        have = len(self.scratch.spare)
        if rows <= have:
            return self.scratch
        d, classes = len(self.features), self.tree.counts.shape[1]
        if rows * d > KEPT_CELLS:
            return new_scratch(rows, d, classes)
        self.scratch = new_scratch(min(2 * rows, KEPT_CELLS // d), d, classes)
        return self.scratch

    def _build(
        self,
        node: int,
        X: npt.NDArray[np.float64],
        rows: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32],
        stamp: int,
    ) -> None:
        listing = Listing(X, self.categorical, rows, slots, self.store.y[slots])
        scratch = self._scratch_for(len(slots))
        build(self.tree, self.members, node, listing, self.rules, stamp, scratch)

    def _features_of(
        self, slots: npt.NDArray[np.int32]
    ) -> Exchange[tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]]:
        """A matrix and the row in it of each slot; columns of uncached rows are gathered in one round."""
        cached = slots < len(self.store.X)
        if cached.all():
            return self.store.X, slots
        X = np.empty((len(slots), len(self.features)))
        X[cached] = self.store.X[slots[cached]]
        replies = yield Ask("gather", {"slots": slots[~cached]})
        for columns, reply in zip(self.columns, replies, strict=True):
            X[np.ix_(np.flatnonzero(~cached), columns)] = reply
        return X, np.arange(len(slots), dtype=np.int32)

    def _spread(self, root: int, slots: npt.NDArray[np.int32], stamp: int) -> Exchange[None]:
        """BUILD on the shards, one round per level; what is left of little work is finished here."""
        n, K, d = len(slots), self.tree.counts.shape[1], len(self.features)
        start_node(self.tree, root, stamp, self.rules)
        begin = {"slots": slots, "labels": self.store.y[slots], "counts": self.tree.counts[root].copy()}
        replies = yield Ask("begin", begin)
        level = Level(np.array([root], dtype=np.int64), slots, np.zeros(n, dtype=np.int32))
        while True:
            f = len(level.nodes)
            candidates, shard_of, words = split_reply(replies, self._groups, f, K, n)
            self.tree = with_room(self.tree, 2 * f, K)
            chosen, children = np.empty(f, dtype=np.int64), Children.of(f)
            choose_splits(candidates, chosen)
            count = split_nodes(self.tree, level.nodes, candidates, chosen, self.rules, stamp, children)
            sides = np.empty(side_words(n), dtype=np.int64)
            shards = np.where(chosen < 0, -1, shard_of[chosen])
            send_rows(self.tree, self.members, level, shards, words, children, sides)
            level = level._replace(nodes=children.below[:count].copy())
            left_over = int(np.count_nonzero(level.node_of >= 0))
            if left_over * d < self.plan.local_work_limit or not count:
                break
            fault("coordinator.between_levels")
            payload = {"sides": sides, "keep": children.keep, "size_left": children.size_left}
            replies = yield Ask("level", payload | {"counts": self.tree.counts[level.nodes]})
        yield Tell("end", {})
        if left_over:
            yield from self._finish_open(level, stamp)

    def _finish_open(self, level: Level, stamp: int) -> Exchange[None]:
        """Build the subtrees of the nodes that are still open from the rows in them."""
        nodes, node_of = level.nodes, level.node_of
        waiting = np.flatnonzero(node_of >= 0)
        waiting = waiting[np.argsort(node_of[waiting], kind="stable")]
        slots = level.slots[waiting]
        X, rows = yield from self._features_of(slots)
        stops = np.cumsum(np.bincount(node_of[waiting], minlength=len(nodes)))
        for node, begin, stop in zip(nodes.tolist(), [0, *stops[:-1].tolist()], stops.tolist(), strict=True):
            room = most_nodes(stop - begin, self.tree.nodes["depth"][node], self.rules)
            self.tree = with_room(self.tree, room, self.tree.counts.shape[1])
            self._build(node, X, rows[begin:stop], slots[begin:stop], stamp)
