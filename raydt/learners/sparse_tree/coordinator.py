"""The coordinator of the sparse tree: processes windows of updates with the shards, and rebuilds split nodes.

In one round shards change the structures along every path of a window, as if none of its steps changed the tree, and
answer with the first step after which a candidate beats a split. Later steps are rolled back, the root-most node found
there, or an ancestor of its size, is rebuilt (``coordinator_build``), and the next window begins.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import Arrays, Ints, Slots
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.errors import ConfigError, InputError
from raydt.examples.admission import Admission
from raydt.examples.features import Features
from raydt.examples.updates import BatchResult, Log, UpdateBatch
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.learners.base import WorkPlan
from raydt.learners.rebuild_log import logged, new_log
from raydt.learners.sequential import ADD, LOOK, REMOVE, enter_steps, steps_of
from raydt.learners.sparse_tree.coordinator_build import Builder
from raydt.learners.sparse_tree.coordinator_update import StepRules, list_steps, roll_back, route, walk
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.learners.tree_coordinator import TreeCoordinator, inserts_of
from raydt.messages import message
from raydt.trees.counted_tree import WARMUP_LEFT, target_of
from raydt.trees.predictor import TreePredictor
from raydt.trees.records import NODES

#: Steps of the shortest window, which is the first, and of the longest.
SHORTEST, LONGEST = 16, 4096


class WindowLength:
    """Number of steps of the next window: halved by a change, doubled without one.

    A window should reach about as far as the next change: its steps after that are work for nothing, and each window
    costs a round.
    """

    def __init__(self, shortest: int, longest: int, first: int) -> None:
        self._shortest, self._longest = shortest, longest
        self.steps = first

    def adapt(self, *, changed: bool) -> None:
        """Choose the length of the next window by whether the last one changed the model."""
        self.steps = max(self._shortest, self.steps // 2) if changed else min(self._longest, 2 * self.steps)


class SparseTreeCoordinator(TreeCoordinator):
    """Tree, labels, ids and counters; features and structures are with the shards."""

    live: Builder

    Predictor = TreePredictor

    def __init__(self, options: SparseTreeOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__()
        if not features.names and options.epsilon != "auto":
            raise ConfigError(message("learners.dense_epsilon"))
        self.features = features
        self.live = Builder(options, features, shards)
        self._weighting, self._rows = self.live.weighting, RowsOnShards(features, shards)
        # Dense features have no structure: for them a node is rebuilt by schedule, as an exact tree does.
        self._scheduled = len(features.names) > 0
        self._length = WindowLength(SHORTEST, LONGEST, SHORTEST)
        self._tree_unsent = False  # whether the shards of a restored state have yet to receive its tree

    # ---------------------------------------------------------------- one batch

    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        if batch.n_classes > 2:
            raise InputError(message("learners.classes", found=batch.n_classes, what="a finder", most=2))
        self._require_warmup(batch, "sparse_tree")
        yield from self._catch_up()
        self.live.reserve(inserts_of(batch))
        if batch.start == 0:
            self.live.tree.reg[WARMUP_LEFT] = batch.warmup

    def _catch_up(self) -> Exchange[None]:
        """After a restore: send the tree to the shards, so that they can set up their structures."""
        if self._tree_unsent:
            n = int(self.live.tree.reg[NODES])
            nodes, counts = self.live.tree.nodes[:n], self.live.tree.counts[:n]
            shape = {name: nodes[name].copy() for name in ("parent", "left", "right", "depth")}
            counted = {"n": counts.sum(axis=1), "c1": counts[:, 1].copy(), "unit": self.live.rules.unit}
            yield Tell("resume", shape | counted)
            self._tree_unsent = False

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        rows = RowBlock.of(batch.X, batch.sparse)
        if batch.blocks:  # of the warm-up: until it ends the tree is a leaf, for which no row is looked at
            yield from self._read(admitted.new[added], batch.row[added], batch.blocks)
        else:
            yield from self._rows.put(admitted.new[added], rows.take(admitted.row[added]))
        steps, position = steps_of(batch, part, admitted)
        self.live.weigh()
        log = new_log(len(steps))
        leaf_of = np.empty(len(steps), dtype=np.int64)
        step = 0
        while step < len(steps):
            step = yield from self._take_window(steps, leaf_of, step, rows, log)
        enter_steps(result, steps, position, steps["kind"] != REMOVE)
        return logged(log)

    def _take_window(
        self, steps: npt.NDArray[np.void], leaf_of: Ints, begin: int, rows: RowBlock, log: npt.NDArray[np.void]
    ) -> Exchange[int]:
        """Take some steps from ``begin`` on, and rebuild what has to be after the last of them; the next step."""
        live, y = self.live, self.store.y
        warmup = int(live.tree.reg[WARMUP_LEFT])
        limit = self._end_of_warmup(steps, begin, warmup) if warmup else min(len(steps), begin + self._length.steps)
        weighed = live.weighed
        rules = StepRules(live.categorical, live.watch_rules, self._scheduled, weighed, warmup == 0)
        stop, broken = walk(live.tree, live.examples, rows, steps, leaf_of, begin, limit, rules)
        done, beaten = stop, -1
        if not warmup:
            done, beaten = yield from self._watch(steps, leaf_of, begin, stop)
        if done < stop:
            roll_back(live.tree, y, weighed.weight, steps, leaf_of, done, stop)
            broken = -1
        steps["prediction"][done:stop] = -1
        list_steps(live.tree, live.members, steps, leaf_of, begin, done)
        stamp = int(steps["stamp"][done - 1])
        self._length.adapt(changed=beaten >= 0 or broken >= 0)
        if warmup:
            left = warmup - int((steps["kind"][begin:done] == ADD).sum())
            live.tree.reg[WARMUP_LEFT] = left
            if left == 0:
                live.balance(stamp // 2 + 1, 2)
                yield from live.rebuild(0, stamp, log)
            return done
        worst = self._upper(beaten, broken)
        if worst >= 0:
            yield from live.rebuild(int(target_of(live.tree, worst)), stamp, log)
        return done

    def _end_of_warmup(self, steps: npt.NDArray[np.void], begin: int, warmup: int) -> int:
        """The step after the one that completes the warm-up, or the end."""
        adds = np.flatnonzero(steps["kind"][begin:] == ADD)
        return begin + int(adds[warmup - 1]) + 1 if len(adds) >= warmup else len(steps)

    def _watch(self, steps: npt.NDArray[np.void], leaf_of: Ints, begin: int, stop: int) -> Exchange[tuple[int, int]]:
        """Have the shards take steps; the step after the first change, and the root-most node it beats (-1: none)."""
        moved = np.flatnonzero((steps["kind"][begin:stop] != LOOK) & (leaf_of[begin:stop] >= 0)) + begin
        if not len(moved):
            return stop, -1
        slots, weights = steps["slot"][moved], self.live.weights
        sign = np.where(steps["kind"][moved] == ADD, 1, -1)
        payload = {
            "keep": self.live.take_keep(),
            "sign": sign * weights[slots] if len(weights) else sign.astype(np.int8),
            "label": self.store.y[slots].astype(np.int8),
            "slot": slots,
            "leaf": leaf_of[moved],
            "alone": self.live.shards == 1,
        }
        replies = np.array((yield Ask("watch", payload)))
        done = int(replies[:, 0].min())
        self.live.keep = done
        beaten = -1
        for node in replies[replies[:, 0] == done, 1].tolist():
            beaten = self._upper(beaten, node)
        if beaten < 0:
            return stop, -1
        return int(moved[done - 1]) + 1, beaten

    def _upper(self, a: int, b: int) -> int:
        """The node nearer to the root of two on one path; -1 is none."""
        if a < 0 or b < 0:
            return max(a, b)
        depth = self.live.tree.nodes["depth"]
        return a if depth[a] <= depth[b] else b

    def _alike(self, row: RowBlock) -> Slots:
        """Live examples in the leaf of a row."""
        rows = self.live.rows_of(route(self.live.tree, self.live.categorical, row, 0))
        if self.live.rules.unit == 1:
            return rows
        slots = self.store.slots()  # those that weigh 0 are in no leaf
        return np.concatenate([rows, slots[self.live.weights[slots] == 0]])

    def finish(self) -> Exchange[None]:
        """Build the model of a warm-up that the stream did not complete."""
        yield from self._catch_up()
        if self.live.tree.reg[WARMUP_LEFT] > 0:
            yield from self._end_warmup()

    def _end_warmup(self) -> Exchange[Log]:
        """Build the model of the warm-up; the log has the build."""
        yield from self._catch_up()
        self.live.tree.reg[WARMUP_LEFT] = 0
        self.live.balance(self._seq, 2)
        log = new_log(1)
        yield from self.live.rebuild(0, 2 * self._seq - 1, log)
        return logged(log)

    # ---------------------------------------------------------------- the model

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, the leaf of each example, and the totals."""
        return super().state(slots) | self.live.weighting.state()

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., its nodes ids in preorder."""
        super().restore(state)
        self._length, self._tree_unsent = WindowLength(SHORTEST, LONGEST, SHORTEST), True
