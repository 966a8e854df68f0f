"""The coordinator of FuDyADT: admits a batch, runs UPDATE over it, and has large rebuilds done by the shards.

One batch: (1) ids become slots, bad updates are refused before anything is applied; (2) the rows are kept, here or at
the shards; (3) the compiled loop takes the steps; (4) where it stops, the subtree is rebuilt here, here after gathering
columns, or level by level on the shards; (5) emptied slots are released. Here the rows are this process's own; where
shards own them, :class:`OwnedFuDyADTCoordinator` has these admit updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.blocks import SparseRows, as_slice, equal_rows
from raydt.arrays.elementary import Arrays, Floats, Int32s, Ints, Slots
from raydt.arrays.kernel import Repeated
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.digest import Part
from raydt.examples.owned_rows import OwnedColumns
from raydt.examples.updates import (
    INSERT,
    UNIT,
    UNKNOWN_VALUE,
    Admission,
    BatchResult,
    Features,
    Log,
    Targets,
    UpdateBatch,
    Weights,
    filled,
)
from raydt.exchange.messages import OWNED, Ask, Exchange, Tell
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import ADD, REMOVE, STEP, Many, RowUpdates, enter_steps, logged, new_log, steps_of
from raydt.learners.fudyadt.dynamic_tree import FEW_ROWS, BatchSteps, FuDyADTTree, advance
from raydt.learners.fudyadt.many import ListedTree, group_of
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fudyadt.shard import TreeRows
from raydt.learners.tree_coordinator import TreeCoordinator
from raydt.trees.canonical_arrays import RANGE, LeafCounts, chosen_smoothing, count_rows, route, smooth_rows
from raydt.trees.counted_tree import HITS, WARMUP_LEFT, LabelRange
from raydt.trees.packed_trees import NumberPredictor, TreePredictor
from raydt.trees.records import link_members, oldest_equal, preorder, shares_of

_NO_MEANS, _NO_BIRTHS = np.empty(0), np.empty(0, dtype=np.int64)


class FuDyADTCoordinator(TreeCoordinator):
    """Tree, rows and counters."""

    live: FuDyADTTree
    Tree: ClassVar[type[FuDyADTTree]] = FuDyADTTree

    def __init__(self, options: FuDyADTOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__()
        self.features = features
        self.live = self.Tree(features, options, shards, plan)
        self._weighting, self._rows = self.live.weighting, self.live.on_shards
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

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        slots, rows = admitted.new[added], admitted.row[added]
        self.live.count_in_units(slots)
        self.live.weigh()
        if len(slots):
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
            live, begin = self.live, step
            rest = live.rules, live.scratch(live.loop_rows), log, most_rows
            step, node = advance(live.tree, live.examples, live.cached, given, step, *rest)
            if self._labels is not None:  # the next ones may have another range
                means[begin : step + 1] = self._labels.numbers(means[begin : step + 1])
            if node >= 0:
                if live.tree.reg[WARMUP_LEFT] == 0:
                    live.balance(int(steps["stamp"][step]) // 2 + 1)
                yield from self.live.rebuild(node, int(steps["stamp"][step]), log)
            step += 1
        enter_steps(result, steps, position, steps["kind"] != REMOVE, None if self._labels is None else means)
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
        steps, rest = (
            BatchSteps(self._step, X, _NO_MEANS, _NO_BIRTHS),
            (live.rules, live.scratch(live.loop_rows), self._one_log),
        )
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

    def alike(self) -> Any:
        """Return what reads this tree with others of few rows, while its arrays are listed."""
        live, store, listed = self.live, self.store, self.listed
        if listed is None or store.live > FEW_ROWS or store.uneven or live.weighting.factors is not None:
            return None
        if not live.takes_rows:
            return None
        return listed.group if listed.is_current(live) else None

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
        return (yield from super()._equal(slots, row))

    def finish(self) -> Exchange[None]:
        """Build the model of a warm-up that the stream did not complete."""
        if self.live.tree.reg[WARMUP_LEFT] > 0:
            yield from self._end_warmup()

    def _end_warmup(self) -> Exchange[Log]:
        """Build the model of the warm-up; the log has the build."""
        self.live.tree.reg[WARMUP_LEFT] = 0
        self.live.balance(self._seq)
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
            return TreePredictor(self.features, self.model(), self.smoothing)
        return NumberPredictor(self.features, self.model(), self.smoothing)

    @property
    def smoothing(self) -> float:
        """The weight of a parent's shares or mean in units, by the multiple that has been best lately."""
        return chosen_smoothing(self.live.rules.smoothing, self.live.tree.reg[HITS:])

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Smoothed shares of the classes in each row's leaf, shape (n, n_classes). O(depth K) a row, without a copy."""
        live = self.live
        smoothing = self.smoothing
        if smoothing == 0:
            leaves = [route(live.tree, live.categorical, X, np.int32(row), False) for row in range(len(X))]
            return shares_of(live.tree.counts[leaves], n_classes)
        shares = np.repeat(shares_of(live.tree.counts[:1], n_classes), len(X), axis=0)
        smooth_rows(live.tree, live.categorical, np.ascontiguousarray(X), smoothing, shares)
        return shares


# The live tree where shards own the rows: leaf, label and weight of each are here, by a slot that its owner has given.
#
# Invariant: a row takes 13 bytes at rest, 12 for its leaf and its neighbours there and one for a class; nothing that is
# made for a while takes more than a few bits of each row.


class OwnedTree(FuDyADTTree):
    """The live tree; ids and births are with the owners of the rows."""

    store: OwnedColumns  # type: ignore[assignment]
    takes_rows = False

    def _new_store(self, shards: int, columns: int, cache_bytes: int | None, dtype: np.dtype[Any]) -> Any:
        return OwnedColumns(TreeRows, shards, columns, cache_bytes, dtype)

    def make_room(self, batch: UpdateBatch) -> None:
        """Make room for classes of a batch; for its rows once their owners have given slots."""
        super().make_room(batch)
        self.store.hold(self.tree.counts.shape[1])

    def make_room_for(self, slots: int) -> None:
        """Make room for so many slots, of which the owners of the rows have given the last."""
        self.store.make_room(slots)
        self._follow_store()
        self.weighting.reserve(self.store)

    # ---------------------------------------------------------------- states

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state but the rows, which come from their owners (:meth:`restore_rows`)."""
        super().restore(state)
        self._labels_sent = False

    def _restore_rows(self, state: Arrays) -> None:
        self.members, self._counted = self.members[:0], LeafCounts(self.tree)
        self.store.hold(self.tree.counts.shape[1])

    def restore_rows(self, slots: Int32s, leaf: Int32s, y: Targets, weights: Weights | None) -> None:
        """Take some rows of a restored state; :meth:`complete` comes after all."""
        self.members["leaf"][slots] = leaf
        link_members(self.tree, self.members, slots[leaf >= 0])
        self.store.label(slots, y, weights)
        self.weighting.enter(self.store, slots)
        mass = filled(self.weighting.of(weights, y), len(y)) if self.weighted else None
        self._counted.add(leaf, y if self.label_range is None else np.zeros_like(leaf), mass)

    def complete(self) -> None:
        """Make what follows from the rows of a restored state. ValueError if these are not those of the tree."""
        self._counted.check()
        if self.weighted:
            count_rows(self.tree, self._counted.rows)
        if self.label_range is not None:
            self._take_range(self.label_range)
        self._rows_to_fetch = min(self.store.used, len(self.store.X))

    def sum_of_weights(self) -> int:
        """Return what all live examples count, in units: what the root does."""
        return int(self.tree.statistics["n"][0]) * (UNIT // self.rules.unit)


# The coordinator of FuDyADT where shards own the rows: by slot it has leaf and label, and features within a budget.
#
# Owners admit the updates, hash their rows and write them for a state (``raydt.examples.owned_rows``). A leaf is here,
# because the tree is: it goes to the owner of the row for a state, and comes back from there when that is restored.
#
# Invariant: the model is that of :class:`~raydt.learners.fudyadt.coordinator.FuDyADTCoordinator`, bit for bit.

#: Slots of all owners whose leaves are sent at once.
_SENT = 1 << 20


class OwnedFuDyADTCoordinator(FuDyADTCoordinator):
    """Tree, and by slot the leaf and the label of each row; ids and births are at the shard that owns it."""

    rows_are_owned = True

    live: OwnedTree
    Tree = OwnedTree

    @property
    def _owned(self) -> OwnedColumns:
        return self.live.store

    # ---------------------------------------------------------------- one batch

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch, after what is not complete after a restore."""
        yield from self._resume()
        return (yield from super().process(batch, skip_refused=skip_refused))

    def finish(self) -> Exchange[None]:
        """Build the model of a warm-up that the stream did not complete."""
        yield from self._resume()
        yield from super().finish()

    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        if batch.blocks:
            self.live.drop_features()
        elif self.live.keeps or self.live.tree.reg[WARMUP_LEFT] == 0:
            yield from self.live.fill_cache()
        self._owned.births = np.zeros(len(batch), dtype=np.int64)
        yield from super()._prepare(batch)

    def _end_warmup(self) -> Exchange[Any]:
        yield from self.live.fill_cache()
        return (yield from super()._end_warmup())

    def _admit_run(self, batch: UpdateBatch, part: slice, skip_refused: bool, admitted: Admission) -> Exchange[int]:
        if batch.weight is not None:
            self._owned.weigh()
        stop: int = yield from self._owned.admit(batch, part, skip_refused, admitted, self.live.make_room_for)
        return stop

    def _sum_of_weights(self) -> Exchange[int]:
        """Return what the root counts."""
        yield from ()
        return self.live.sum_of_weights()

    def _find_deleted(self, batch: UpdateBatch, position: int, row: int, admitted: Admission) -> Exchange[None]:
        """Have the owners delete the oldest live example that equals a row."""
        rows = RowBlock.of(batch.X, batch.sparse).take(np.array([row]))
        slots = self._alike(rows)
        slots = slots[self._owned.y[slots] == batch.y[row]]
        slots = slots[(yield from self._equal(slots, rows))]
        if not len(slots):
            admitted.fault[position] = UNKNOWN_VALUE
            return
        told = {"slots": slots, "release": self._owned.take_emptied()}
        yield from self._owned.delete("delete_oldest", told, None, admitted, position)

    def _weightless(self) -> Slots:
        """Slots without a row, too: their owners know."""
        return np.flatnonzero(self.live.cached.weight[: self._owned.used] == 0).astype(np.int32)

    def _put(self, batch: UpdateBatch, added: Ints, slots: Slots, rows: Ints) -> Exchange[None]:
        y = self._owned.y[slots]
        if batch.blocks:
            yield from self._read(slots, batch.row[added], batch.blocks, y=y)
            return
        X = batch.X[as_slice(rows)]
        self._owned.put(slots, X)
        yield Tell("rows", {"slots": slots, "y": y}, self._rows.parts(RowBlock.of(X)))

    def _births(self, position: Ints) -> Ints:
        births: Ints = self._owned.births[position]
        return births

    # ---------------------------------------------------------------- what shards are asked for

    def gather_state(self) -> Exchange[None]:
        """Send the owners the leaves of their rows, which they write."""
        yield from self._resume()
        position = preorder(self.live.tree)[1]
        for begin, _, of_each in self._windows():
            each = [position[self.live.members["leaf"][slots]] for slots in of_each]
            yield Tell("take_leaves", {"begin": begin}, [{"leaf": leaf} for leaf in each])

    def gather_digest(self, former: bool = False) -> Exchange[None]:
        """Have the rows hashed."""
        yield from self._resume()
        yield from self._owned.gather_hashes()

    def _row_part(self) -> Part:
        return self._owned.hashed()[1]

    def _windows(self) -> Iterator[tuple[int, int, list[Slots]]]:
        """Yield where windows of local slots begin and end, and for each owner the slots in it, up to the last used."""
        owners, used = self._owned.owners, self._owned.used
        most, width = owners.local_capacity(used), max(1, _SENT // owners.shards)
        for begin in range(0, max(1, most), width):
            local = np.arange(begin, min(begin + width, most))
            of_each = [owners.slots(local, shard) for shard in range(owners.shards)]
            yield begin, begin + width, [slots[slots < used] for slots in of_each]

    # ---------------------------------------------------------------- states

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, the totals, and how many rows there are; these are with the shards."""
        state = super().state(slots)
        state.pop("leaf")
        return {**state, OWNED: self._owned.counted()}

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; shards have the features of its rows in slots 0, 1, ... until they are told."""
        self._owned.restore(state)
        super().restore(state)

    def _resume(self) -> Exchange[None]:
        """Tell the shards which rows are theirs and, after a restore, take leaf, label and weight of all rows."""
        rows = yield from self._owned.begin()
        if rows is None:
            return
        last = [self._owned.owners.slots(np.array([n - 1]), shard) for shard, n in enumerate(rows)]
        self.live.make_room_for(1 + int(np.max(last)))
        for begin, stop, of_each in self._windows():
            replies = yield Ask("leaves", {"begin": begin, "stop": stop})
            for slots, reply in zip(of_each, replies, strict=True):
                count = len(reply["y"])
                self.live.restore_rows(slots[:count], reply["leaf"], reply["y"], reply.get("weight"))
        self.live.complete()
