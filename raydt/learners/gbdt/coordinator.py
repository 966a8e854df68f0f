"""The coordinator of the GBDT: collects updates to batches D', trains once, and updates the trees in place.

One batch of the stream: (1) ids become slots, bad updates are refused before anything is applied, and the shards get
the new rows; (2) at the end of the warm-up the bins are fixed and the trees trained; (3) at the end of each D' it
passes through the trees, first its deletions, then its insertions (``passes``), or all trees and bins are made again.
Predictions are made by the model of the last such end. Where the trees are trained and updated is up to a trainer
(``trainer``), chosen once.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import as_slice
from raydt.batches.binning import Bins, joined
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.evaluation.ranking import LEVELS
from raydt.examples.admission import Admission, nothing_admitted
from raydt.examples.features import Features
from raydt.examples.owned_store import OwnedStore
from raydt.examples.row_owners import RowOwners
from raydt.examples.store import ExampleStore
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    TARGET_TOO_FAR,
    UPDATE,
    BatchResult,
    Log,
    UpdateBatch,
)
from raydt.examples.weights import Weighting
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import BatchCoordinator
from raydt.learners.gbdt.before_model import before_the_model
from raydt.learners.gbdt.digest import ModelDigest, joined_hashes
from raydt.learners.gbdt.ensemble import Arrays, Ensemble, restored, scale_of
from raydt.learners.gbdt.model import ConstantPredictor, GBDTPredictor, constant_of, model_arrays, predictor_of
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.trainer import HeldOut, ShardTrainer, ThreadTrainer, held_out_rows, no_rows
from raydt.learners.gbdt.trees import extent
from raydt.learners.gbdt.update_batch import TO_DELETE, TO_INSERT, Counts, PendingUpdates, TrainingRecord, UpdateLog
from raydt.learners.gbdt.workspace import DELETED, INSERTED

Slots = npt.NDArray[np.int32]


class GBDTCoordinator(BatchCoordinator):
    """Trees, ids and pending updates; and the ledger, where it does all work itself."""

    def __init__(self, options: GBDTOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        self.options, self.features = options, features
        self._trainer: ThreadTrainer | ShardTrainer | None = None  # of the ensemble, once there is one
        self._dtype = np.dtype(np.float64 if options.regression else np.int32)
        self._owned = None if plan.shared_store else OwnedStore(RowOwners(shards), self._dtype)  # shards have the rows
        # Either has all that is used of a store, and labels by slot.
        self._store = cast(ExampleStore, self._owned) if self._owned else ExampleStore(0, None, self._dtype)
        self._rows, self._pending = RowsOnShards(features, shards), PendingUpdates()
        self._weighting = Weighting(options.class_weight == "balanced")
        if self._owned is not None:
            self._owned.weighting = self._weighting
        self._seq = self._warmup = 0
        self._record = TrainingRecord()
        self._log, self._totals = UpdateLog(), Counts()
        self._extent: tuple[int, int, int] | None = None  # nodes, leaves and depth of the trees, where they are known
        self._digest = ModelDigest(features.sparse)
        self._hashes: list[dict[str, Any]] | None = None  # of the rows, where shards have them
        self._counts: npt.NDArray[np.int64] | None = None  # rows of each node, where shards have them
        self._restored: Slots | None = None  # of the rows of a state, as long as what is not saved is not made
        self._displaced = False  # and shards have these rows in slots 0, 1, ...

    @property
    def ensemble(self) -> Ensemble | None:
        """Trees, leaves and ledger; None before the first training."""
        return None if self._trainer is None else self._trainer.ensemble

    # ---------------------------------------------------------------- one batch

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch (see the module's header). Stops before the first bad update, or passes it over."""
        m = len(batch)
        yield from self._resume()
        if batch.start == 0:
            self._warmup = batch.warmup
        self._owned.reserve_for(batch.id) if self._owned else self._store.reserve(m)
        self._weighting.require(self._store, batch.weight, batch.y)
        nothing = np.nan if self.options.regression else -1
        result = BatchResult(m, np.full(m, nothing, dtype=self._dtype), path=np.zeros(m, dtype=np.int32))
        admitted = nothing_admitted(batch.op)
        self._log = UpdateLog()
        begin = 0
        while begin < m:
            boundary = self._next_end(batch.start + begin) - batch.start
            end = min(boundary, m)
            part = slice(begin, end)
            yield from self._admit(batch, part, admitted, result, skip_refused, self._faults(batch, part, admitted))
            self._predict_before(batch, slice(begin, result.applied), admitted, result)
            self._seq = batch.start + result.applied
            if result.applied < end:
                break
            if end == boundary:
                yield from self._apply()
            begin = end
        self._summarise(admitted, result)
        result.log = self._log.arrays()
        return result

    def finish(self) -> Exchange[Arrays]:
        """End the batch D' that the stream did not complete, or a warm-up; the log of that."""
        self._log = UpdateLog()
        yield from self._resume()
        self._warmup = min(self._warmup, self._seq)
        if len(self._pending):
            yield from self._apply()
        return self._log.arrays()

    def _faults(self, batch: UpdateBatch, part: slice, admitted: Admission) -> npt.NDArray[np.int8]:
        """Why updates of a part are refused, int8, shape (updates of the batch,): targets no ledger entry can hold."""
        faults = np.zeros(len(batch), dtype=np.int8)
        if self.ensemble is not None and len(batch.y):
            op = batch.op[part]
            carries = np.flatnonzero((op == INSERT) | (op == UPDATE)) + part.start
            faults[carries] = np.where(self.ensemble.fits(batch.y[admitted.row[carries]]), 0, TARGET_TOO_FAR)
        return faults

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Keep the admitted updates of a part pending, and give the shards the new rows."""
        added = as_slice(np.flatnonzero(admitted.new[part] >= 0) + part.start)
        slots, rows = admitted.new[added], admitted.row[added]
        self._weighting.enter(self._store, slots)  # labels and weights are there
        old = admitted.old[part]
        self._pending.add(slots, old[old >= 0])
        if batch.blocks:  # there is no model yet
            yield from self._read(slots, batch.row[added], batch.blocks)
            return {}
        new = RowBlock.of(batch.X[as_slice(rows)], None if batch.sparse is None else batch.sparse[rows])
        if self._trainer is not None:
            self._trainer.take(slots, new)
        yield from self._rows.put(slots, new)
        return {}

    def _next_end(self, seq: int) -> int:
        """Update before which the D' (or the warm-up) ends that update ``seq`` belongs to."""
        if seq < self._warmup:
            return self._warmup
        every = self.options.every(self._warmup)
        return self._warmup + ((seq - self._warmup) // every + 1) * every

    def _predict_before(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> None:
        """Predictions of the rows of a part by the model of the last end of a D'."""
        asked = np.flatnonzero((batch.op[part] != DELETE) & (batch.op[part] != DELETE_VALUE)) + part.start
        asked = asked[admitted.fault[asked] == 0]
        if batch.start + part.start < self._warmup:
            asked = asked[batch.op[asked] == QUERY]
        if not len(asked):
            return
        if self.ensemble is not None:
            rows = admitted.row[asked]
            sparse = None if batch.sparse is None else batch.sparse[rows]
            predictor = predictor_of(self.ensemble, self.features.sparse)
            scores = predictor.scores(batch.X[rows], sparse)
            result.predictions[asked] = predictor.classes_of(scores)
            if not self.options.regression:
                result.give_levels(asked, predictor.levels_of(scores))
            return
        before_the_model(self.store, batch.start, part.stop, asked, admitted, result)
        if not self.options.regression:
            result.give_levels(asked, LEVELS * (result.predictions[asked] == 1))

    # ---------------------------------------------------------------- the model changes

    def _apply(self) -> Exchange[None]:
        """Apply the pending updates: train, or take them through the trees."""
        began = time.perf_counter()
        pending, self._pending = self._pending, PendingUpdates()
        self._note(pending.inserts)
        counts = Counts()
        self._record.changes += len(pending)
        former, live = self.ensemble, pending.inserts
        inserts = pending.inserts
        if former is not None:
            due = self._record.is_due(self.options, len(pending), self.store.live, len(former.leaf))
            live = self.store.slots() if due else live[:0]
        if len(live):
            self._record.add_training(self._seq, len(live))
            counts.trained = len(live)
            inserts = yield from self._train(live)
        elif former is not None:
            counts.add((yield from self._update(pending.deletes, DELETED, live[:0])))
        counts.add((yield from self._insert(inserts)))
        if counts.trees_checked and not counts.trained:
            assert self.ensemble is not None
            self._record.add_update(counts.work(self.ensemble, len(pending)), len(pending))
        self.store.release(pending.freed)
        self._totals.add(counts)
        if counts.subtrees or counts.trained or self.ensemble is not former:
            self._extent = None
        self._log.add(self._seq - 1, len(pending.deletes), len(pending.inserts), counts, time.perf_counter() - began)

    def _train(self, slots: Slots) -> Exchange[Slots]:
        """Make the bins from some rows and train on these; returns those held out (only the first time)."""
        o, y, former = self.options, self.store.y, self.ensemble
        parts = yield Ask("learn", {"slots": slots})
        learned = [Bins.from_arrays(part) for part in parts]
        dense, columns = len(self.features.names), self._rows.columns
        owned = [(own, dense + part.sparse) for own, part in zip(columns, learned, strict=True)]
        bins = joined(learned).select(np.argsort(np.concatenate([part for both in owned for part in both])))
        rest, held = held_out_rows(slots, o) if o.early_stopping and former is None else (slots, slots[:0])
        classes = 0 if o.regression else max(2, former.classes if former else 2, int(y[slots].max()) + 1)
        self._weighting.resolve(self._store, slots, classes, self._seq)
        origin, exponent = (
            scale_of(y[slots], self._weighting.of_slots(self._store, slots)) if o.regression else (0.0, 0)
        )
        most = former.iterations if former else o.max_iter
        ensemble = Ensemble(o, bins, classes, origin, exponent, most, 0)
        self._note_all()
        self._trainer = trainer = self._new_trainer(ensemble)
        yield from trainer.encode(slots, y)
        rows = yield from self._rows.take(held)
        watched = HeldOut(ensemble, rows, y[held], self._weighting.of_slots(self._store, held)) if len(held) else None
        yield from trainer.train(y, rest, watched)
        return held

    def _new_trainer(self, ensemble: Ensemble) -> ThreadTrainer | ShardTrainer:
        if self._owned is None:
            return ThreadTrainer(ensemble, self.features, self._rows, partial(self._weighting.by_slot, self._store))
        return ShardTrainer(ensemble, self._rows, self._owned)

    def _held(self) -> Slots:
        """Slots of the rows in the model: not those that wait to be inserted, but those that wait to be deleted."""
        held = np.setdiff1d(self.store.slots(), self._pending.inserts)
        return np.union1d(held, self._pending.deletes).astype(np.int32)

    def _update(self, slots: Slots, role: int, anew: Slots) -> Exchange[Counts]:
        """Delete rows from the trees or insert them, and compute derivatives of others anew."""
        if not len(slots):
            return Counts()
        assert self._trainer is not None
        counts, taken = yield from self._trainer.update(self.store.y, slots, role, anew)
        self._note(taken)
        return counts

    def _insert(self, slots: Slots) -> Exchange[Counts]:
        """Insert rows into the trees; a class that was never seen gets trees of its own first."""
        if not len(slots):
            return Counts()
        assert self._trainer is not None
        e, y, anew = self._trainer.ensemble, self.store.y, slots[:0]
        classes = int(y[slots].max()) + 1 if e.classes else 0
        if classes > e.classes:
            anew = np.setdiff1d(self.store.slots(), slots).astype(np.int32)
            self._note_all()
            yield from self._trainer.extend(classes, y, anew)
        return (yield from self._update(slots, INSERTED, anew))

    def _resume(self) -> Exchange[None]:
        """After a restore: make what is not saved."""
        rows = self._restored
        if rows is None:
            return
        if self._displaced:
            yield Tell("place", {"slots": rows})
            self._displaced = False
        if self._trainer is not None:
            yield from self._trainer.resume(self.store.y, self._held(), self._pending.inserts, rows)
        self._restored = None

    def gather(self) -> Exchange[None]:
        """Have the rows of each node counted, where shards have them."""
        if self._owned is not None and self.ensemble is not None:
            yield from self._resume()
            self._counts = np.sum((yield Ask("count_rows", {})), axis=0)

    def gather_state(self) -> Exchange[None]:
        """Let the shards have what they add to a state."""
        if self._owned is not None:
            yield from self._resume()
            if self.ensemble is not None:
                yield Tell("waiting", self._owned.rows(self._pending.inserts))

    def gather_digest(self) -> Exchange[None]:
        """Have the rows hashed, where shards have them."""
        if self._owned is not None and self.ensemble is not None:
            yield from self._resume()
            inserts = self._owned.rows(self._pending.inserts)
            self._hashes = yield Ask("hash_rows", {"inserts": inserts, "deletes": self._pending.deletes})

    # ---------------------------------------------------------------- the model

    def predictor(self) -> GBDTPredictor | ConstantPredictor:
        """Predictions of the trees as they are now; they change with the next update."""
        if self.ensemble is not None:
            return predictor_of(self.ensemble, self.features.sparse)
        return ConstantPredictor(self._constant(), self.options.regression)

    def _constant(self) -> float:
        """The prediction without a model: the most frequent class so far, or the mean. O(live log(live))."""
        return constant_of(self.store.y[self.store.slots()])

    def digest(self) -> str:
        """Digest of trees, sums, bins, and of label and ledger by id, after :meth:`gather_digest`.

        The first costs O(nodes + live examples x trees), the next O(nodes), and O(trees) for each row that changed.
        """
        e = self.ensemble
        if self._owned is not None and e is not None:
            assert self._hashes is not None
            hashes, self._hashes, self._digested = self._hashes, None, None
            return self._digest.of(e, self._weighting.factors, *joined_hashes(hashes))
        leaving = self._pending.deletes
        leaving = leaving[np.argsort(self.store.id[leaving])]
        gone = {"id": self.store.id[leaving], **self._row_columns(leaving)}
        return self._digest.of(e, self._weighting.factors, gone, self._row_part())

    def _row_columns(self, slots: Slots) -> Arrays:
        """Labels, weights, which updates are pending, and the derivatives that were added; 0 of what is not yet in."""
        columns: Arrays = {"y": self.store.y[slots], "pending": self._pending.status(slots)}
        if (weights := self._weighting.of_slots(self._store, slots)) is not None:
            columns["weight"] = weights
        if self.ensemble is not None:
            self.ensemble.reserve(self.store.capacity)  # for the slots of pending rows
            ledger = np.ascontiguousarray(self.ensemble.ledger[:, slots].T)
            ledger[columns["pending"] == TO_INSERT] = 0
            columns["ledger"] = ledger
        return columns

    def _note(self, slots: Slots) -> None:
        """Note for the digest that rows have changed."""
        if self._digested is not None:
            self._digested.note(self.store.id[slots])

    def _note_all(self) -> None:
        if self._digested is not None:
            self._digested.forget()

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now. O(1), and O(nodes) after a change of the shape of a tree."""
        if self._extent is None:
            self._extent = extent(self.ensemble.trees) if self.ensemble else (0, 0, 0)
        nodes, leaves, depth = self._extent
        totals = self._totals
        return {
            "active": self.store.live,
            "nodes": nodes,
            "leaves": leaves,
            "depth": depth,
            "rebuilds": totals.subtrees,
            "rebuilt_rows": totals.rows,
            "trainings": self._record.trainings,
        }

    def model(self) -> Arrays:
        """Arrays of the predict-only model, after :meth:`gather`."""
        e, arrays = self.ensemble, model_arrays(self.ensemble, self._constant())
        if self._owned is not None and e is not None:
            assert self._counts is not None
            arrays["node_count"], self._counts = self._counts, None
        return arrays

    def in_order_of_birth(self) -> Slots:
        """Slots of the live examples and of those whose deletion is pending, in order of birth. O(n log n)."""
        slots = np.concatenate([self.store.slots(), self._pending.deletes])
        return slots[np.argsort(self.store.born[slots], kind="stable")]

    def state(self, slots: Slots) -> Arrays:
        """Trees and bins, which updates are pending, and the totals; leaf and ledger, unless shards have the rows."""
        e, counted = self.ensemble, {"seq": self._seq, "warmup": self._warmup, **self._record.numbers()}
        state = self._totals.state(e, counted) | self._weighting.state(self._store, slots)
        state["pending"] = self._pending.status(slots)
        if e is not None and self._owned is None:
            e.reserve(self.store.capacity)  # for the slots of pending rows
            state["drift"] = e.drift[slots]
            state["leaf"], state["ledger"] = e.leaves_of(slots), e.ledger_of(slots)
            for name in ("ledger", "drift"):  # former rows may have left something in the slots of pending ones
                state[name][state["pending"] == TO_INSERT] = 0
        return state

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features stay with the shards."""
        n, pending = len(state["id"]), state["pending"]
        self._store.fill(state["id"], state["y"], state["born"], pending != TO_DELETE)
        slots = np.arange(n, dtype=np.int32) if self._owned is None else self._owned.first_slots(state["id"])
        self._weighting.restore(self._store, state, slots)
        self._seq, self._warmup = int(state["seq"][0]), int(state["warmup"][0])
        self._record = TrainingRecord.of(state)
        self._totals = Counts(subtrees=int(state["rebuilds"][0]), rows=int(state["rebuilt_rows"][0]))
        self._pending = PendingUpdates()
        self._pending.add(slots[pending == TO_INSERT], slots[pending == TO_DELETE])
        self._trainer, self._restored, self._displaced, self._extent = None, slots, self._owned is not None, None
        if "tree_nodes" in state:
            whole = state if "leaf" in state else state | no_rows(state)  # shards have theirs
            capacity = max(len(whole["leaf"]), self.store.capacity)
            self._trainer = self._new_trainer(restored(self.options, whole, capacity))
