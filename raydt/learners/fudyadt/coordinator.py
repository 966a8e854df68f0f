"""The coordinator of FuDyADT: admits a batch, runs UPDATE over it, and has large rebuilds done by the shards.

One batch: (1) ids become slots, bad updates are refused before anything is applied; (2) shards are told the new
rows; (3) the compiled loop takes the steps; (4) where it stops, the subtree is rebuilt here, here after
gathering columns, or level by level on the shards; (5) emptied slots are released.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from raydt.digest import digest
from raydt.example_store import ExampleStore
from raydt.exchange import Ask, Exchange, Tell
from raydt.features import Features
from raydt.learners.base import WorkPlan
from raydt.learners.fudyadt.build import build, new_scratch
from raydt.learners.fudyadt.engine import (
    ADD,
    COORDINATOR,
    LOOK,
    REMOVE,
    RESET,
    SHARDS,
    Log,
    Plan,
    advance,
    new_log,
    record,
)
from raydt.learners.fudyadt.levels import grow_level, side_words, split_reply
from raydt.learners.fudyadt.live_tree import (
    LEAVES,
    NODES,
    REBUILDS,
    REBUILT_ROWS,
    WARMUP_LEFT,
    Members,
    count_rows,
    list_rows,
    most_nodes,
    new_tree,
    route,
    start_node,
    stays_leaf,
    take_rows,
    with_room,
)
from raydt.learners.fudyadt.model import Arrays, TreePredictor, canonical_tree, depth_of, link_members, live_tree
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.memory import grown
from raydt.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    UNKNOWN_VALUE,
    UPDATE,
    BatchResult,
    Refusal,
    UpdateBatch,
)

#: Cells of a rebuild up to which the compiled loop does it itself; larger ones are timed one by one.
LOOP_CELLS = 1 << 15


class FuDyADTCoordinator:
    """Tree, labels, ids and counters; features only within the row cache's budget.

    Parameters
    ----------
    options : FuDyADTOptions
    features : Features
    shards : int
    plan : WorkPlan
    """

    def __init__(self, options: FuDyADTOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        self.features, self.plan = features, plan
        self.rules = options.rules()
        self._categorical = features.kinds.astype(np.bool_)
        self._groups = features.assign(shards)
        self._columns = [
            np.concatenate([np.empty(0, dtype=np.int64), *(features.group_columns(int(g)) for g in groups)])
            for groups in self._groups
        ]
        d = len(features)
        self.store = ExampleStore(d, plan.row_cache_bytes)
        self.members = Members(*(np.empty(0, dtype=np.int32) for _ in range(3)))
        self.tree = new_tree(64, 2)
        self._loop_rows = max(16, LOOP_CELLS // max(1, d))
        self._scratch = new_scratch(self._loop_rows, d, 2)
        self._seq = 0

    # ---------------------------------------------------------------- one batch

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch (see the module's header).

        Stops before the first bad update; with ``skip_refused`` passes it over.
        """
        m = len(batch)
        self._make_room(batch)
        if batch.start == 0:
            self.tree.reg[WARMUP_LEFT] = batch.warmup
        result = BatchResult(m, np.full(m, -1, dtype=np.int32))
        old, new = np.full(m, -1, dtype=np.int32), np.full(m, -1, dtype=np.int32)
        fault = np.zeros(m, dtype=np.int8)
        x_row = (np.cumsum(CARRIES_ROW[batch.op]) - 1).astype(np.int32)
        logs: list[Arrays] = []
        begin = 0
        while begin < m:
            stop = self.store.admit(batch.op, batch.id, begin, skip_refused, old, new, fault)
            by_value = stop < m and fault[stop] == 0
            logs.append((yield from self._take(batch, slice(begin, stop), old, new, fault, x_row, result.predictions)))
            if by_value:
                row = int(x_row[stop])
                equal = yield from self.find_equal(batch.X, row, int(batch.y[row]))
                if len(equal):
                    old[stop] = equal[0]
                    self.store.discard(int(old[stop]))
                    here = slice(stop, stop + 1)
                    logs.append((yield from self._take(batch, here, old, new, fault, x_row, result.predictions)))
                else:
                    fault[stop] = UNKNOWN_VALUE
            if stop < m and fault[stop] and not skip_refused:
                result.applied = stop
                break
            begin = stop + 1
        result.refused = [Refusal(int(i), int(fault[i])) for i in np.flatnonzero(fault)]
        freed = old[old >= 0]
        self.store.release(freed)
        result.inserts, result.deletes = int((new >= 0).sum()), len(freed)
        result.log = {name: np.concatenate([log[name] for log in logs]) for name in logs[0]} if logs else {}
        self._seq = batch.start + result.applied
        return result

    def _take(
        self,
        batch: UpdateBatch,
        part: slice,
        old: npt.NDArray[np.int32],
        new: npt.NDArray[np.int32],
        fault: npt.NDArray[np.int8],
        x_row: npt.NDArray[np.int32],
        predictions: npt.NDArray[np.int32],
    ) -> Exchange[Arrays]:
        """Take the admitted updates of one part of the batch; returns the log of its rebuilds."""
        added = np.flatnonzero(new[part] >= 0) + part.start
        slots, rows = new[added], x_row[added]
        self.store.y[slots] = batch.y[rows]
        self.store.born[slots] = batch.start + added
        self.store.put(slots, batch.X[rows])
        if not self.plan.shared_store:
            freed = old[part][old[part] >= 0]
            X = batch.X[rows]
            yield Tell("rows", {"slots": slots, "freed": freed}, [{"X": X[:, columns]} for columns in self._columns])
        plan, position = self._plan(batch, part, old, new, fault, x_row)
        n = len(plan.kind)
        log = new_log(n)
        step = 0
        limit_rows = (self.plan.local_work_limit - 1) // max(1, len(self.features))
        most_rows = min(self._loop_rows, limit_rows)
        while step < n:
            X = self.store.X
            step, node = advance(
                self.tree,
                self.members,
                X,
                X.view(np.int64),
                self.store.y,
                plan,
                batch.X,
                step,
                self._categorical,
                self.rules,
                self._scratch,
                log,
                most_rows,
            )
            if node >= 0:
                yield from self._rebuild(node, int(plan.stamp[step]), log)
            step += 1
        looked = plan.kind != REMOVE
        predictions[position[looked]] = plan.prediction[looked]
        filled = int(log.n[0])
        return {
            "seq": log.stamp[:filled] >> 1,
            **{name: getattr(log, name)[:filled] for name in ("rows", "depth", "nodes", "place", "seconds")},
        }

    def _plan(
        self,
        batch: UpdateBatch,
        part: slice,
        old: npt.NDArray[np.int32],
        new: npt.NDArray[np.int32],
        fault: npt.NDArray[np.int8],
        x_row: npt.NDArray[np.int32],
    ) -> tuple[Plan, npt.NDArray[np.int64]]:
        """Steps of one part and the position in the batch of each; refused updates have none."""
        op = batch.op[part]
        times = np.where(fault[part] != 0, 0, np.where(op == UPDATE, 2, 1))
        position = np.repeat(np.arange(part.start, part.stop), times)
        op = batch.op[position]
        second = np.zeros(len(position), dtype=bool)
        second[1:] = (op[1:] == UPDATE) & (position[1:] == position[:-1])
        removes = (op == DELETE) | (op == DELETE_VALUE) | ((op == UPDATE) & ~second)
        kind = np.where(removes, REMOVE, np.where(op == QUERY, LOOK, ADD)).astype(np.int8)
        stamp = 2 * (batch.start + position) + 1 - ((op == UPDATE) & ~second)
        slot = np.where(removes, old[position], new[position]).astype(np.int32)
        return Plan(kind, slot, x_row[position], stamp, np.full(len(position), -1, dtype=np.int32)), position

    def _make_room(self, batch: UpdateBatch) -> None:
        self.store.reserve(int(((batch.op == INSERT) | (batch.op == UPDATE)).sum()))
        if len(self.members.leaf) < self.store.capacity:
            self.members = Members(*(grown(array, self.store.capacity) for array in self.members))
        classes = max(2, batch.n_classes)
        if classes > self.tree.counts.shape[1]:
            self.tree = with_room(self.tree, 0, classes)
            self._scratch = new_scratch(self._loop_rows, len(self.features), classes)

    def find_equal(self, X: npt.NDArray[np.float64], row: int, y: int) -> Exchange[npt.NDArray[np.int32]]:
        """Slots of the live examples equal to (X[row], y), the oldest first: all lie in the leaf of X[row]."""
        leaf = route(self.tree, self._categorical, X, row)
        slots = np.empty(int(self.tree.counts[leaf].sum()), dtype=np.int32)
        list_rows(self.tree, self.members, leaf, slots)
        slots = slots[self.store.y[slots] == y]
        if (slots < len(self.store.X)).all():
            equal = (self.store.X[slots] == X[row]).all(axis=1)
        else:
            equal = np.logical_and.reduce((yield Ask("equal", {"slots": slots, "x": X[row]})))
        oldest_first: npt.NDArray[np.int32] = slots[equal][np.argsort(self.store.born[slots[equal]])]
        return oldest_first

    # ---------------------------------------------------------------- rebuilds

    def _rebuild(self, node: int, stamp: int, log: Log) -> Exchange[None]:
        """Rebuild one subtree, wherever its features are."""
        began = time.perf_counter()
        counts = np.zeros((1, self.tree.counts.shape[1]), dtype=np.int64)
        n = count_rows(self.tree, node, counts)
        depth = int(self.tree.depth[node])
        if n * len(self.features) < self.plan.local_work_limit:
            self.tree = with_room(self.tree, most_nodes(n, depth, self.rules), counts.shape[1])
        slots = np.empty(n, dtype=np.int32)
        take_rows(self.tree, self.members, node, slots)
        slots.sort()  # reads memory in order; the result does not depend on it
        self.tree.counts[node] = counts[0]
        before = int(self.tree.reg[NODES])
        if stays_leaf(counts, 0, depth, self.rules):
            place = RESET
            start_node(self.tree, node, stamp, self.rules)
            self.members.leaf[slots] = node
            link_members(self.tree, self.members, slots)
        elif n * len(self.features) < self.plan.local_work_limit:
            place = COORDINATOR
            X, rows = yield from self._features_of(slots)
            self._build(node, X, rows, slots, stamp)
        else:
            place = SHARDS
            yield from self._spread(node, slots, stamp)
        nodes = int(self.tree.reg[NODES]) - before + 1
        record(self.tree, log, node, stamp, n, nodes, place, time.perf_counter() - began)

    def _build(
        self,
        node: int,
        X: npt.NDArray[np.float64],
        rows: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32],
        stamp: int,
    ) -> None:
        n = len(slots)
        scratch = self._scratch
        if n > self._loop_rows:
            scratch = new_scratch(n, len(self.features), self.tree.counts.shape[1])
        build(
            self.tree,
            self.members,
            node,
            X,
            X.view(np.int64),
            rows,
            slots,
            self.store.y[slots],
            n,
            self._categorical,
            self.rules,
            stamp,
            scratch,
        )

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
        for columns, reply in zip(self._columns, replies, strict=True):
            X[np.ix_(np.flatnonzero(~cached), columns)] = reply
        return X, np.arange(len(slots), dtype=np.int32)

    def _spread(self, root: int, slots: npt.NDArray[np.int32], stamp: int) -> Exchange[None]:
        """BUILD on the shards, one round per level; what is left of little work is finished here."""
        n, K, d = len(slots), self.tree.counts.shape[1], len(self.features)
        start_node(self.tree, root, stamp, self.rules)
        begin = {"slots": slots, "labels": self.store.y[slots], "counts": self.tree.counts[root].copy()}
        replies = yield Ask("begin", begin)
        open_nodes = np.array([root], dtype=np.int32)
        place = np.zeros(n, dtype=np.int32)
        groups = [len(g) for g in self._groups]
        while True:
            f = len(open_nodes)
            candidates, shard_of, words = split_reply(replies, groups, f, K, n)
            self.tree = with_room(self.tree, 2 * f, K)
            sides = np.empty(side_words(n), dtype=np.int64)
            keep, size_left = np.empty(f, dtype=np.uint8), np.zeros(f, dtype=np.int64)
            below = np.empty(2 * f, dtype=np.int32)
            count = grow_level(
                self.tree,
                self.members,
                open_nodes,
                candidates,
                shard_of,
                words,
                place,
                slots,
                self.rules,
                stamp,
                sides,
                keep,
                size_left,
                below,
                np.empty((3, f), dtype=np.int64),
            )
            open_nodes = below[:count].copy()
            left_over = int(np.count_nonzero(place >= 0))
            if left_over * d < self.plan.local_work_limit or not count:
                break
            replies = yield Ask(
                "level",
                {"sides": sides, "keep": keep, "size_left": size_left, "counts": self.tree.counts[open_nodes]},
            )
        yield Tell("end", {})
        if left_over:
            yield from self._finish_open(open_nodes, slots, place, stamp)

    def _finish_open(
        self, nodes: npt.NDArray[np.int32], slots: npt.NDArray[np.int32], place: npt.NDArray[np.int32], stamp: int
    ) -> Exchange[None]:
        """Build the subtrees of the nodes that are still open from the rows in them."""
        waiting = np.flatnonzero(place >= 0)
        waiting = waiting[np.argsort(place[waiting], kind="stable")]
        X, rows = yield from self._features_of(slots[waiting])
        stops = np.cumsum(np.bincount(place[waiting], minlength=len(nodes)))
        for node, begin, stop in zip(nodes.tolist(), [0, *stops[:-1].tolist()], stops.tolist(), strict=True):
            room = most_nodes(stop - begin, int(self.tree.depth[node]), self.rules)
            self.tree = with_room(self.tree, room, self.tree.counts.shape[1])
            self._build(node, X, rows[begin:stop], slots[waiting[begin:stop]], stamp)

    def finish(self) -> Exchange[None]:
        """Build the model of a warm-up that the stream did not complete."""
        if self.tree.reg[WARMUP_LEFT] > 0:
            self.tree.reg[WARMUP_LEFT] = 0
            yield from self._rebuild(0, 2 * self._seq - 1, new_log(1))

    # ---------------------------------------------------------------- the model

    def predict(self, X: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """Class codes of the live tree."""
        return TreePredictor(self.features, self.model()).predict(X)

    def digest(self) -> str:
        """Digest of tree, counters, counts and sorted id -> leaf; free of slots and list orders."""
        state = self.state()
        order = np.argsort(state["id"])
        rows = {name: state[name][order] for name in ("id", "leaf")}
        names = ("feature", "threshold", "left", "right", "s", "c", "counts")
        return digest([*((name, state[name]) for name in names), *rows.items()])

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now."""
        reg = self.tree.reg
        return {
            "active": self.store.live,
            "nodes": int(reg[NODES]),
            "leaves": int(reg[LEAVES]),
            "depth": depth_of(self.tree),
            "rebuilds": int(reg[REBUILDS]),
            "rebuilt_rows": int(reg[REBUILT_ROWS]),
        }

    def model(self) -> Arrays:
        """Canonical arrays of the tree."""
        return canonical_tree(self.tree)[0]

    def state(self) -> Arrays:
        """Canonical arrays, the live rows in ascending slot order, and the totals."""
        arrays, place = canonical_tree(self.tree)
        slots = self.store.slots()
        reg = self.tree.reg
        return {
            **arrays,
            "id": self.store.id[slots],
            "y": self.store.y[slots],
            "born": self.store.born[slots],
            "leaf": place[self.members.leaf[slots]],
            "seq": np.array([self._seq], dtype=np.int64),
            "warmup_left": reg[[WARMUP_LEFT]],
            "rebuilds": reg[[REBUILDS]],
            "rebuilt_rows": reg[[REBUILT_ROWS]],
        }

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features come from the shards."""
        self.tree = live_tree(state, self.rules)
        self.store.fill(state["id"], state["y"], state["born"])
        self.members = Members(*(np.empty(self.store.capacity, dtype=np.int32) for _ in range(3)))
        n = len(state["id"])
        self.members.leaf[:n] = state["leaf"]
        link_members(self.tree, self.members, np.arange(n, dtype=np.int32))
        for register, name in ((WARMUP_LEFT, "warmup_left"), (REBUILDS, "rebuilds"), (REBUILT_ROWS, "rebuilt_rows")):
            self.tree.reg[register] = state[name][0]
        self._seq = int(state["seq"][0])
        self._scratch = new_scratch(self._loop_rows, len(self.features), self.tree.counts.shape[1])
