"""The coordinator of FuDyADT: admits a batch, runs UPDATE over it, and has large rebuilds done by the shards.

One batch: (1) ids become slots, bad updates are refused before anything is applied; (2) shards are told the new
rows; (3) the compiled loop takes the steps; (4) where it stops, the subtree is rebuilt here, here after
gathering columns, or level by level on the shards; (5) emptied slots are released.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raydt.admission import Admission, nothing_admitted
from raydt.digest import digest
from raydt.example_store import ExampleStore
from raydt.exchange import Ask, Exchange, Tell
from raydt.features import Features
from raydt.learners.base import WorkPlan
from raydt.learners.fudyadt.dynamic_tree import DynamicTree
from raydt.learners.fudyadt.engine import ADD, LOOK, REMOVE, STEP, advance, logged, new_log
from raydt.learners.fudyadt.live_tree import (
    LEAVES,
    NODES,
    REBUILDS,
    REBUILT_ROWS,
    WARMUP_LEFT,
    list_rows,
    route,
)
from raydt.learners.fudyadt.model import Arrays, TreePredictor, canonical_tree, preorder, shares_of
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.updates import (
    DELETE,
    DELETE_VALUE,
    QUERY,
    UNKNOWN_VALUE,
    UPDATE,
    BatchResult,
    Refusal,
    UpdateBatch,
)

Positions = npt.NDArray[np.int64]


def steps_of(batch: UpdateBatch, part: slice, admitted: Admission) -> tuple[npt.NDArray[np.void], Positions]:
    """Steps of one part (``STEP`` records), and the position in the batch of each; refused updates have none."""
    op = batch.op[part]
    times = np.where(admitted.fault[part] != 0, 0, np.where(op == UPDATE, 2, 1))
    position = np.repeat(np.arange(part.start, part.stop), times)
    op = batch.op[position]
    second = np.zeros(len(position), dtype=bool)
    second[1:] = (op[1:] == UPDATE) & (position[1:] == position[:-1])
    first_half = (op == UPDATE) & ~second
    removes = (op == DELETE) | (op == DELETE_VALUE) | first_half
    steps = np.empty(len(position), dtype=STEP)
    steps["kind"] = np.where(removes, REMOVE, np.where(op == QUERY, LOOK, ADD))
    steps["stamp"] = 2 * (batch.start + position) + 1 - first_half
    steps["slot"] = np.where(removes, admitted.old[position], admitted.new[position])
    steps["row"] = admitted.row[position]
    steps["prediction"] = -1
    return steps, position


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
        self.features = features
        self.live = DynamicTree(features, options.rules(), shards, plan)
        self._seq = 0

    @property
    def store(self) -> ExampleStore:
        """The live examples."""
        return self.live.store

    # ---------------------------------------------------------------- one batch

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch (see the module's header).

        Stops before the first bad update; with ``skip_refused`` passes it over.
        """
        m = len(batch)
        yield from self.live.fill_cache()
        self.live.make_room(batch)
        if batch.start == 0:
            self.live.tree.reg[WARMUP_LEFT] = batch.warmup
        result = BatchResult(m, np.full(m, -1, dtype=np.int32), path=np.zeros(m, dtype=np.int32))
        admitted = nothing_admitted(batch.op)
        old, new, fault, rows = admitted
        logs: list[Arrays] = []
        begin = 0
        while begin < m:
            stop = self.store.admit(batch.op, batch.id, begin, skip_refused, old, new, fault)
            by_value = stop < m and fault[stop] == 0
            logs.append((yield from self._take(batch, slice(begin, stop), admitted, result)))
            if by_value:
                equal = yield from self.find_equal(batch.X, int(rows[stop]), int(batch.y[rows[stop]]))
                if len(equal):
                    old[stop] = equal[0]
                    self.store.discard(int(equal[0]))
                    logs.append((yield from self._take(batch, slice(stop, stop + 1), admitted, result)))
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

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Arrays]:
        """Take the admitted updates of one part of the batch; returns the log of its rebuilds."""
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        slots, rows = admitted.new[added], admitted.row[added]
        X = batch.X[rows]
        self.store.y[slots] = batch.y[rows]
        self.store.born[slots] = batch.start + added
        self.store.put(slots, X)
        if not self.live.plan.shared_store:
            columns = [{"X": X[:, owned]} for owned in self.live.columns]
            if len(slots):
                yield Tell("rows", {"slots": slots}, columns)
        steps, position = steps_of(batch, part, admitted)
        n = len(steps)
        log = new_log(n)
        step = 0
        limit_rows = (self.live.plan.local_work_limit - 1) // max(1, len(self.features))
        most_rows = min(self.live.loop_rows, limit_rows)
        while step < n:
            X = self.store.X
            step, node = advance(
                self.live.tree,
                self.live.members,
                X,
                self.store.y,
                steps,
                batch.X,
                step,
                self.live.categorical,
                self.live.rules,
                self.live.scratch,
                log,
                most_rows,
            )
            if node >= 0:
                yield from self.live.rebuild(node, int(steps["stamp"][step]), log)
            step += 1
        looked = steps["kind"] != REMOVE
        result.predictions[position[looked]] = steps["prediction"][looked]
        for kind in (REMOVE, ADD):  # an update has one of each
            taken = steps["kind"] == kind
            result.path[position[taken]] += steps["row"][taken] + 1
        return logged(log)

    def find_equal(self, X: npt.NDArray[np.float64], row: int, y: int) -> Exchange[npt.NDArray[np.int32]]:
        """Slots of the live examples equal to (X[row], y), the oldest first: all lie in the leaf of X[row]."""
        leaf = route(self.live.tree, self.live.categorical, X, np.int32(row))
        slots = np.empty(int(self.live.tree.counts[leaf].sum()), dtype=np.int32)
        list_rows(self.live.tree, self.live.members, leaf, slots)
        slots = slots[self.store.y[slots] == y]
        if (slots < len(self.store.X)).all():
            equal = (self.store.X[slots] == X[row]).all(axis=1)
        else:
            equal = np.logical_and.reduce((yield Ask("equal", {"slots": slots, "x": X[row]})))
        oldest_first: npt.NDArray[np.int32] = slots[equal][np.argsort(self.store.born[slots[equal]])]
        return oldest_first

    def finish(self) -> Exchange[None]:
        """Build the model of a warm-up that the stream did not complete."""
        if self.live.tree.reg[WARMUP_LEFT] > 0:
            self.live.tree.reg[WARMUP_LEFT] = 0
            yield from self.live.fill_cache()
            yield from self.live.rebuild(0, 2 * self._seq - 1, new_log(1))

    # ---------------------------------------------------------------- the model

    def predict_proba(self, X: npt.NDArray[np.float64], n_classes: int) -> npt.NDArray[np.float64]:
        """Shares of the classes in each row's leaf, shape (n, n_classes). O(depth) a row: the tree is not copied."""
        live = self.live
        leaves = [route(live.tree, live.categorical, X, np.int32(row)) for row in range(len(X))]
        return shares_of(live.tree.counts[leaves], n_classes)

    def predict(self, X: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """Class codes of the live tree."""
        return TreePredictor(self.features, self.model()).predict(X)

    def locate(self, ids: npt.NDArray[np.int64]) -> Arrays:
        """Class code ``y`` and ``leaf`` (its place in preorder) of live examples. O(ids + nodes)."""
        slots = self.store.find(ids)
        return {"y": self.store.y[slots], "leaf": preorder(self.live.tree)[1][self.live.members["leaf"][slots]]}

    def digest(self) -> str:
        """Digest of tree, counters, counts and sorted id -> leaf; free of slots and list orders."""
        slots = self.store.slots()
        slots = slots[np.argsort(self.store.id[slots])]
        state = {**self.state(slots), **self.rows(slots)}
        names = ("feature", "threshold", "left", "right", "s", "c", "counts", "id", "leaf")
        return digest((name, state[name]) for name in names)

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now."""
        reg = self.live.tree.reg
        return {
            "active": self.store.live,
            "nodes": int(reg[NODES]),
            "leaves": int(reg[LEAVES]),
            "depth": preorder(self.live.tree)[2],
            "rebuilds": int(reg[REBUILDS]),
            "rebuilt_rows": int(reg[REBUILT_ROWS]),
        }

    def model(self) -> Arrays:
        """Canonical arrays of the tree."""
        return canonical_tree(self.live.tree)[0]

    def in_order_of_birth(self) -> npt.NDArray[np.int32]:
        """Slots of the live examples in order of birth. O(n log n)."""
        return self.store.in_order_of_birth()

    def born(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Number of the update that inserted each example."""
        return self.store.born[slots]

    def rows(self, slots: npt.NDArray[np.int32]) -> Arrays:
        """Ids and class codes."""
        return {"id": self.store.id[slots], "y": self.store.y[slots]}

    def state(self, slots: npt.NDArray[np.int32]) -> Arrays:
        """Canonical arrays of the tree, the leaf of each example, and the totals."""
        arrays, place = canonical_tree(self.live.tree)
        reg = self.live.tree.reg
        return {
            **arrays,
            "leaf": place[self.live.members["leaf"][slots]],
            "seq": np.array([self._seq], dtype=np.int64),
            "warmup_left": reg[[WARMUP_LEFT]],
            "rebuilds": reg[[REBUILDS]],
            "rebuilt_rows": reg[[REBUILT_ROWS]],
        }

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features stay with the shards."""
        self.live.restore(state)
        for register, name in ((WARMUP_LEFT, "warmup_left"), (REBUILDS, "rebuilds"), (REBUILT_ROWS, "rebuilt_rows")):
            self.live.tree.reg[register] = state[name][0]
        self._seq = int(state["seq"][0])
