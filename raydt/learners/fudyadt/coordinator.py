"""The coordinator of FuDyADT: admits a batch, runs UPDATE over it, and has large rebuilds done by the shards.

One batch: (1) ids become slots, bad updates are refused before anything is applied; (2) the rows are kept, here or at
the shards; (3) the compiled loop takes the steps; (4) where it stops, the subtree is rebuilt here, here after gathering
columns, or level by level on the shards; (5) emptied slots are released. Here the rows are this process's own; where
shards own them, ``owned_coordinator`` has these admit updates.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from raydt.arrays.blocks import as_slice, equal_rows
from raydt.arrays.digest import Part
from raydt.arrays.kernel import Repeated
from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Arrays, Floats, Ints, Slots
from raydt.batches.rows_on_shards import RowBlock
from raydt.errors import InputError
from raydt.examples.admission import Admission
from raydt.examples.features import Features
from raydt.examples.updates import INSERT, BatchResult, Log, UpdateBatch
from raydt.exchange.messages import Ask, Exchange
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import Many
from raydt.learners.fudyadt.dynamic_tree import FuDyADTTree
from raydt.learners.fudyadt.many import ListedTree, group_of
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fudyadt.update import BatchSteps, advance
from raydt.learners.rebuild_log import logged, new_log
from raydt.learners.row_updates import RowUpdates
from raydt.learners.sequential import ADD, REMOVE, STEP, enter_steps, steps_of
from raydt.learners.tree_coordinator import TreeCoordinator
from raydt.messages import message
from raydt.trees.canonical_arrays import RANGE
from raydt.trees.counted_tree import WARMUP_LEFT
from raydt.trees.predictor import NumberPredictor, TreePredictor
from raydt.trees.records import shares_of
from raydt.trees.regression_sums import LabelRange
from raydt.trees.routes import route, smooth_rows
from raydt.trees.row_search import oldest_equal
from raydt.trees.state_schema import unit_of

_NO_MEANS, _NO_BIRTHS = np.empty(0), np.empty(0, dtype=np.int64)


class FuDyADTCoordinator(TreeCoordinator):
    """Tree, rows and counters."""

    live: FuDyADTTree
    Tree: ClassVar[type[FuDyADTTree]] = FuDyADTTree

    def __init__(self, options: FuDyADTOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__()
        self.features, self.smoothing = features, options.smoothing
        self.live = self.Tree(features, options, shards, plan)
        self._weighting = self.live.weighting
        self._one: RowUpdates | None = None  #: Made for the first of them: most of very many trees never meet one.
        self._step, self._one_log = np.zeros(1, dtype=STEP), new_log(1)
        self._advance, self._advanced = Repeated(advance), self.live.tree  #: For one update, and the tree it was for.
        self.listed: ListedTree | None = None  #: For the call that takes the batches of many trees.

    # ---------------------------------------------------------------- one batch

    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        yield from ()
        self._require_warmup(batch, "fudyadt")
        self.live.make_room(batch)
        if batch.start == 0:
            self.live.tree.reg[WARMUP_LEFT] = batch.warmup
        if self.live.tree.reg[WARMUP_LEFT] == 0 and self._labels is not None and not self._labels.known:
            raise InputError(message("learners.unknown_range"))

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        slots, rows = admitted.new[added], admitted.row[added]
        self.live.count_in_units(slots)
        self.live.weigh()
        yield from self._put(batch, added, slots, rows)
        steps, position = steps_of(batch, part, admitted)
        n = len(steps)
        means = np.full(n if self._labels is not None else 0, np.nan)
        given = BatchSteps(steps, batch.X, means, self._births(position))
        log = new_log(n)
        step = 0
        limit_rows = (self.live.plan.local_work_limit - 1) // max(1, len(self.features))
        most_rows = min(self.live.loop_rows, limit_rows)
        while step < n:
            live = self.live
            rest = live.rules, live.scratch, log, most_rows
            step, node = advance(live.tree, live.examples, live.cached, given, step, *rest)
            if node >= 0:
                if live.tree.reg[WARMUP_LEFT] == 0:
                    live.end_warmup(int(steps["stamp"][step]) // 2 + 1)
                yield from self.live.rebuild(node, int(steps["stamp"][step]), log)
            step += 1
        numbers = None if self._labels is None else self._labels.numbers(means)
        enter_steps(result, steps, position, steps["kind"] != REMOVE, numbers)
        return logged(log)

    def _put(self, batch: UpdateBatch, added: Ints, slots: Slots, rows: Ints) -> Exchange[None]:
        """Keep new rows: ``rows`` of the batch, inserted by the updates at the positions ``added``."""
        yield from ()
        self.store.put(slots, batch.X[as_slice(rows)])

    def _births(self, position: Ints) -> Ints:
        """Births of the examples that steps delete, by the position of each in the batch; none: the store has them."""
        return _NO_BIRTHS

    def take_row(
        self, op: int, number: int, row: Floats, code: int, worker: Any
    ) -> tuple[bool | None, Exchange[Any] | None]:
        """Apply one update without a batch, where the tree has classes and the features of all examples are here."""
        live, store = self.live, self.store
        if not live.takes_rows or live.weighted or code >= live.tree.counts.shape[1]:
            return None, None
        one = self._one = self._one or RowUpdates(len(self.features))
        X, kind = one.take(row).X, ADD
        if op == INSERT:
            live.reserve(1)
            slot = one.insert(store, self._digested, number, code, self._seq)
            store.X[slot] = X
        else:
            kind, leaf = REMOVE, route(live.tree, live.categorical, X, np.int32(0), False)
            slot = int(oldest_equal(live.tree, live.examples, store.X, X, leaf, code))
            if slot < 0:
                return False, None
            one.delete(store, self._digested, slot)
        self._step[0] = 2 * self._seq + 1, slot, 0, -1, kind, 0, 0
        self._one_log["rows"][0] = 0
        steps, rest = BatchSteps(self._step, X, _NO_MEANS, _NO_BIRTHS), (live.rules, live.scratch, self._one_log)
        if self._advanced is not live.tree:
            self._advance, self._advanced = Repeated(advance), live.tree
        node = self._advance(live.tree, live.examples, live.cached, steps, 0, *rest, live.loop_rows)[1]
        if op != INSERT:
            one.release(store, slot)
        self._seq += 1
        return True, live.rebuild(int(node), 2 * self._seq - 1, self._one_log) if node >= 0 else None

    def group(self, batch: UpdateBatch, worker: Any) -> Many | None:
        """Return what takes this batch with those of other trees of classes."""
        group: Many | None
        self.listed, group = group_of(self.live, batch, self.listed)
        return group

    def trim(self) -> None:
        """Rest, and give up room for more examples and nodes."""
        super().trim()
        self.listed, self._advance, self._advanced = None, Repeated(advance), self.live.tree

    def predict_row(self, row: Floats, worker: Any) -> int | None:
        """Return the class of most examples in the leaf of a row; None with smoothing."""
        live = self.live
        if self.smoothing or self._labels is not None:
            return None
        return int(live.tree.counts[route(live.tree, live.categorical, row, np.int32(0), False)].argmax())

    def _alike(self, row: RowBlock) -> Slots:
        """Live examples in the leaf of a row."""
        rows = self.live.rows_of(route(self.live.tree, self.live.categorical, row.X, np.int32(0), False))
        if not self.live.weighted:
            return rows
        return np.concatenate([rows, self._weightless()])

    def _weightless(self) -> Slots:
        """Live examples of weight 0, which are in no leaf."""
        slots = self.store.slots()
        weightless: Slots = slots[self.live.cached.weight[slots] == 0]
        return weightless

    def _equal(self, slots: Slots, row: RowBlock) -> Exchange[Any]:
        if (slots < len(self.store.X)).all():
            return equal_rows(self.store.X[slots], row.X)
        return np.logical_and.reduce((yield Ask("equal", {"slots": slots, "x": row.X[0]})))

    def finish(self) -> Exchange[None]:
        """Build the model of a warm-up that the stream did not complete."""
        if self.live.tree.reg[WARMUP_LEFT] > 0:
            yield from self._end_warmup()

    def _end_warmup(self) -> Exchange[Log]:
        """Build the model of the warm-up; the log has the build."""
        self.live.tree.reg[WARMUP_LEFT] = 0
        self.live.end_warmup(self._seq)
        log = new_log(1)
        yield from self.live.rebuild(0, 2 * self._seq - 1, log)
        return logged(log)

    # ---------------------------------------------------------------- the model

    @property
    def _labels(self) -> LabelRange | None:
        """The range of numeric labels; None with classes."""
        return self.live.label_range

    def _with_range(self, arrays: Arrays) -> Arrays:
        """Arrays of a tree, with the range of its labels where they are numbers."""
        if self._labels is None:
            return arrays
        return {**arrays, RANGE: np.array([self._labels.low, self._labels.high])}

    def _digested_numbers(self) -> list[Part]:
        return list(self._with_range({}).items())

    def model(self) -> Arrays:
        """Canonical arrays of the tree."""
        return self._with_range(super().model())

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, the leaf of each example, and the totals."""
        return self._with_range(super().state(slots) | self.live.weighting.state())

    def predictor(self) -> TreePredictor:
        """Predictions of the tree. O(nodes)."""
        if self._labels is None:
            model = self.model()
            return TreePredictor(self.features, model, self.smoothing * unit_of(model))
        return NumberPredictor(self.features, self.model())

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Smoothed shares of the classes in each row's leaf, shape (n, n_classes). O(depth K) a row, without a copy."""
        live = self.live
        if self.smoothing == 0:
            leaves = [route(live.tree, live.categorical, X, np.int32(row), False) for row in range(len(X))]
            return shares_of(live.tree.counts[leaves], n_classes)
        shares = np.repeat(shares_of(live.tree.counts[:1], n_classes), len(X), axis=0)
        smoothing = self.smoothing * live.rules.unit
        smooth_rows(live.tree, live.categorical, np.ascontiguousarray(X), smoothing, shares)
        return shares
