"""The coordinator of the GBDT: collects updates to batches D', trains once, and updates the trees in place.

At the end of the warm-up the bins are fixed and the trees trained; at the end of each D' it passes through the trees,
or all trees and bins are made again. Predictions are made by the model of the last such end. Here the rows are this
process's own (``trainer``); where shards own them, ``owned_coordinator`` has these do it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import as_slice
from raydt.arrays.elementary import AnyArray, Arrays, Ints, Slots
from raydt.batches.binning import Bins
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.evaluation.scoring import LEVELS
from raydt.examples.owned_rows import OwnedStore
from raydt.examples.store import ExampleStore, Weighting
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    INSERT,
    MOST_CLASSES,
    QUERY,
    TARGET_TOO_FAR,
    UPDATE,
    Admission,
    BatchResult,
    Features,
    Log,
    UpdateBatch,
    counting,
    filled,
    joined,
    nothing_admitted,
)
from raydt.exchange.links import together
from raydt.exchange.messages import OWNED, Ask, EndOfPass, Exchange, Payload, Tell
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import BatchCoordinator
from raydt.learners.gbdt.candidates import (
    Summary,
    Targets,
    classes_in,
    constant_of,
    joined_summary,
    summaries_before,
    summary_of,
)
from raydt.learners.gbdt.ensemble import Ensemble, extent, restored
from raydt.learners.gbdt.model import ConstantPredictor, GBDTPredictor, ModelDigest, model_arrays, predictor_of
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.split_search import DELETED, INSERTED
from raydt.learners.gbdt.trainer import (
    HeldOut,
    Patience,
    PendingRows,
    ThreadTrainer,
    bins_of_all,
    held_out_rows,
    trained_on,
)
from raydt.learners.gbdt.update import TO_DELETE, TO_INSERT, Counts, PendingUpdates, TrainingRecord, UpdateLog


class GBDTCoordinator(BatchCoordinator):
    """Trees, ids and pending updates; and the ledger, where it does all work itself."""

    def __init__(self, options: GBDTOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        self.options, self.features = options, features
        self._dtype = np.dtype(np.float64 if options.regression else np.int32)
        self._store = ExampleStore(0, None, self._dtype)
        self._rows, self._pending = RowsOnShards(features, shards), PendingUpdates()
        self._weighting: Weighting = Weighting(options.class_weight == "balanced")
        self._trainer: ThreadTrainer | None = None  # of the ensemble, once there is one
        self._seq = self._warmup = self._begun = 0  # updates in all, of the warm-up, and before the present batch D'
        self._record = TrainingRecord()
        self._log, self._totals = UpdateLog(), Counts()
        self._extent: tuple[int, int, int] | None = None  # nodes, leaves and depth of the trees, where they are known
        self._digest = ModelDigest(features.sparse)
        self._restored = False  # what is not saved has to be made

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
        shortened = yield from self._shorten_warmup(batch)
        self._reserve(m)
        nothing = np.nan if self.options.regression else -1
        result = BatchResult(m, np.full(m, nothing, dtype=self._dtype), path=np.zeros(m, dtype=np.int32))
        admitted = nothing_admitted(batch.op)
        self._log = UpdateLog()
        begin = 0
        while begin < m:
            boundary = self._end() - batch.start
            end = min(boundary, m)
            part = slice(begin, end)
            yield from self._admit(batch, part, admitted, result, skip_refused, self._faults(batch, part, admitted))
            yield from self._predict_before(batch, slice(begin, result.applied), admitted, result)
            self._seq = batch.start + result.applied
            if result.applied < end:
                break
            if end == boundary:
                yield from self._apply()
            begin = end
        self._summarise(admitted, result)
        result.log = joined([shortened, self._log.arrays()])
        return result

    def finish(self) -> Exchange[Arrays]:
        """End the batch D' that the stream did not complete, or a warm-up; the log of that."""
        self._log = UpdateLog()
        yield from self._resume()
        self._warmup = min(self._warmup, self._seq)
        if any(self._waiting()):
            yield from self._apply()
        return self._log.arrays()

    def _reserve(self, updates: int) -> None:
        """Make room for so many updates, before anything has changed."""
        self.store.reserve(updates)

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
        old, new = admitted.old[part], admitted.new[part]
        self._pending.add(new[new >= 0], old[old >= 0])
        yield from self._put(batch, part, admitted)
        return {}

    def _put(self, batch: UpdateBatch, part: slice, admitted: Admission) -> Exchange[None]:
        """Give the shards the new rows of a part, or have them read these."""
        added = as_slice(np.flatnonzero(admitted.new[part] >= 0) + part.start)
        slots, rows = admitted.new[added], admitted.row[added]
        if batch.blocks:  # there is no model yet
            yield from self._read(slots, batch.row[added], batch.blocks)
            return
        new = RowBlock.of(batch.X[as_slice(rows)], None if batch.sparse is None else batch.sparse[rows])
        if self._trainer is not None:
            self._trainer.take(slots, new)
        yield from self._rows.put(slots, new)

    def _end(self) -> int:
        """Update before which the present D' (or the warm-up) ends; O(1)."""
        if self._seq < self._warmup:
            return self._warmup
        inserts, deletes = self._waiting()
        held = self.store.live - inserts + deletes if self.ensemble else 0
        return self._begun + self.options.every(held, self._warmup)

    def _predict_before(
        self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult
    ) -> Exchange[None]:
        """Predictions of the rows of a part by the model of the last end of a D'."""
        asked = np.flatnonzero((batch.op[part] != DELETE) & (batch.op[part] != DELETE_VALUE)) + part.start
        asked = asked[admitted.fault[asked] == 0]
        if batch.start + part.start < self._warmup or not batch.answers:
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
        # Without a model, from the labels of the examples that are live just then.
        deleted = np.flatnonzero(admitted.old[part] >= 0) + part.start
        found = yield from self._summaries(batch.start + asked, admitted.old[deleted], batch.start + deleted)
        result.predictions[asked] = [constant_of(summary) for summary in found]
        if not self.options.regression:
            result.give_levels(asked, LEVELS * (result.predictions[asked] == 1))

    def _summaries(self, seqs: Ints, deleted: Slots, since: Ints) -> Exchange[list[Summary]]:
        """Return summaries of the labels live before updates ``seqs``; those in ``deleted`` went at ``since``."""
        yield from ()
        return summaries_before(self.store, seqs, deleted, since)

    # ---------------------------------------------------------------- the model changes

    def _apply(self) -> Exchange[None]:
        """Apply the pending updates: train, or take them through the trees."""
        began = time.perf_counter()
        inserts, deletes = self._waiting()
        self._begun = self._seq
        counts, former, changes = Counts(), self.ensemble, inserts + deletes
        self._record.changes += changes
        live = self.store.live
        if live and (former is None or self._record.is_due(self.options, changes, live, len(former.leaf))):
            self._record.add_training(self._seq, live)
            counts.trained = live
            yield from self._train()
        counts.add((yield from self._change(former is not None and not counts.trained)))
        if counts.trees_checked and not counts.trained:
            assert self.ensemble is not None
            self._record.add_update(counts.work(self.ensemble, changes), changes)
        yield from self._end_batch()
        self._totals.add(counts)
        if counts.subtrees or counts.trained or self.ensemble is not former:
            self._extent = None
        self._log.add(self._seq - 1, deletes, inserts, counts, time.perf_counter() - began)

    def _waiting(self) -> tuple[int, int]:
        """Return how many examples wait to be inserted and to be deleted."""
        return len(self._pending.inserts), len(self._pending.deletes)

    def _end_batch(self) -> Exchange[None]:
        """End a batch D': no update waits, and slots of deleted examples are free."""
        yield from ()
        pending, self._pending = self._pending, PendingUpdates()
        self.store.release(pending.freed)

    def _train(self) -> Exchange[None]:
        """Make bins of the live rows and train on these, but for rows held out the first time."""
        o, y, first = self.options, self.store.y, self.ensemble is None
        slots = self._pending.inserts if first else self.store.slots()
        weights = self.store.weights(slots)
        parts = yield Ask("learn", {"slots": counting(slots, weights)})
        rest, held = held_out_rows(slots, o) if o.early_stopping and first else (slots, slots[:0])
        self._note_all()
        ensemble = self._new_ensemble(parts, summary_of(y[slots], weights))
        self._weighting.balance(self.store, slots, self._seq, ensemble.classes)
        self._trainer = trainer = ThreadTrainer(ensemble, self.features, self._rows)
        yield from trainer.encode(slots, len(y))
        counts = self._weighting.of_slots(self.store, held)
        watched = HeldOut(ensemble, (yield from self._rows.take(held)), y[held], counts) if len(held) else None
        trainer.train(self._targets, rest, watched)
        self._pending.inserts = held

    @property
    def _targets(self) -> Targets:
        """Labels of all rows, and what each counts."""
        return Targets(self.store.y, self._weighting.by_slot(self.store))

    def _new_ensemble(self, parts: Sequence[Arrays], targets: Summary) -> Ensemble:
        """Make the ensemble of a training: of the bins of each shard, and a summary of the labels of the rows."""
        bins = bins_of_all([Bins.from_arrays(part) for part in parts], self._rows.columns, len(self.features.names))
        return trained_on(self.options, bins, targets, self.ensemble)

    def _update(self, slots: Slots, role: int, anew: Slots) -> Counts:
        """Delete rows from the trees or insert them, and compute derivatives of others anew."""
        if not len(slots):
            return Counts()
        assert self._trainer is not None
        counts, taken = self._trainer.update(self._targets, slots, role, anew)
        self._note(taken)
        return counts

    def _change(self, deletes: bool) -> Exchange[Counts]:
        """Delete rows from the trees, add trees for new classes, and insert the rows that wait."""
        yield from ()
        slots, y = self._pending.inserts, self.store.y
        anew = slots[:0]
        counts = self._update(self._pending.deletes, DELETED, anew) if deletes else Counts()
        self._note(slots)
        if len(slots) and not self.options.regression:
            assert self._trainer is not None
            classes = int(y[slots].max()) + 1
            if classes > self._trainer.ensemble.classes:
                anew = np.setdiff1d(self.store.slots(), slots).astype(np.int32)
                self._note_all()
                self._trainer.extend(classes, self._targets, anew)
        counts.add(self._update(slots, INSERTED, anew))
        return counts

    def rest(self) -> None:
        """Drop what the next update or digest makes again."""
        super().rest()
        if self._trainer is not None and not self._restored:
            self._trainer.rest()

    def trim(self) -> None:
        """Rest, and drop what is drawn again; give up room for more examples."""
        super().trim()
        if self._trainer is not None and not self._restored:
            self._trainer.trim(self.store.capacity)

    def _resume(self) -> Exchange[None]:
        """After a restore: make what is not saved."""
        if self._restored and self._trainer is not None:
            held = self._pending.in_model(self.store.slots())
            yield from self._trainer.resume(self._targets, held, self._pending.inserts)
        self._restored = False

    # ---------------------------------------------------------------- the model

    def predictor(self) -> GBDTPredictor | ConstantPredictor:
        """Predictions of the trees as they are now; they change with the next update."""
        if self.ensemble is not None:
            return predictor_of(self.ensemble, self.features.sparse)
        return ConstantPredictor(self._constant(), self.options.regression)

    def _constant(self) -> float:
        """The prediction without a model: the most frequent class so far, or the mean. O(live log(live))."""
        return constant_of(summary_of(self.store.y[self.store.slots()]))

    def digest(self) -> str:
        """Return the digest of trees, bins and rows. O(nodes + rows x trees) once, then for rows that changed."""
        slots = self._pending.deletes
        slots = slots[np.argsort(self.store.id[slots])]
        leaving = {"id": self.store.id[slots], **self._row_columns(slots)}
        if self._has_weights():
            leaving["weight"] = filled(self.store.weights(slots), len(slots))
        return self._digest.of(self.ensemble, self._weighting.factors, leaving, self._row_part())

    def _has_weights(self) -> bool:
        return self.store.uneven > self.store.uneven_of(self._pending.cancelled)  # these are in no state

    def _row_columns(self, slots: Slots) -> Arrays:
        """Labels, which updates are pending, and the derivatives that were added; 0 of what is not yet in."""
        columns: Arrays = {"y": self.store.y[slots], "pending": self._pending.status(slots)}
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
        return model_arrays(self.ensemble, self._constant())

    def in_order_of_birth(self) -> Slots:
        """Slots of the live examples and of those whose deletion is pending, in order of birth. O(n log n)."""
        slots = np.concatenate([self.store.slots(), self._pending.deletes])
        return slots[np.argsort(self.store.born[slots], kind="stable")]

    def state(self, slots: Slots) -> Arrays:
        """Trees and bins, which updates are pending, and the totals; leaf and ledger."""
        e, state = self.ensemble, {**self._model_state(), "pending": self._pending.status(slots)}
        if e is not None:
            e.reserve(self.store.capacity)  # for the slots of pending rows
            state["drift"] = e.drift[slots]
            state["leaf"], state["ledger"] = e.leaves_of(slots), e.ledger_of(slots)
            for name in ("ledger", "drift"):  # former rows may have left something in the slots of pending ones
                state[name][state["pending"] == TO_INSERT] = 0
        return state

    def _model_state(self) -> Arrays:
        """Return what a state has that does not grow with the rows."""
        counted = {"seq": self._seq, "warmup": self._warmup, "begun": self._begun, **self._record.numbers()}
        return self._totals.state(self.ensemble, counted) | self._weighting.state()

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features stay with the shards."""
        pending = state["pending"]
        self._store.fill(state["id"], state["y"], state["born"], pending != TO_DELETE, state.get("weight"))
        slots = np.arange(len(pending), dtype=np.int32)
        self._pending = PendingUpdates()
        self._pending.add(slots[pending == TO_INSERT], slots[pending == TO_DELETE])
        self._restore_model(state)
        self._weighting.enter(self._store, slots)
        if "tree_nodes" in state:
            ensemble = restored(self.options, state, max(len(state["leaf"]), self.store.capacity))
            self._trainer = ThreadTrainer(ensemble, self.features, self._rows)

    def _restore_model(self, state: Arrays) -> None:
        self._seq, self._warmup, self._begun = int(state["seq"][0]), int(state["warmup"][0]), self.options.begun(state)
        self._record = TrainingRecord.of(state)
        self._totals = Counts(subtrees=int(state["rebuilds"][0]), rows=int(state["rebuilt_rows"][0]))
        self._weighting.restore(state)
        self._trainer, self._restored, self._extent = None, True, None


# The coordinator of the GBDT where shards own the rows: it has the trees, and of the rows only their number.
#
# What an algorithm of the coordinator needs of all rows, it asks the owners to do with theirs: to train on them, to
# take those that wait through the trees, to add up labels. They write the rows of a state, and read them back: only a
# state that one process or an earlier version has written passes through here.
#
# Invariant: the model is that of :class:`~raydt.learners.gbdt.coordinator.GBDTCoordinator`, bit for bit.


class OwnedGBDTCoordinator(GBDTCoordinator):
    """Trees, and numbers of rows: a row is at the shard that owns it, with its label, its leaves and its ledger."""

    rows_are_owned = True

    def __init__(self, options: GBDTOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__(options, features, shards, plan)
        self._owned = self._store = OwnedStore(PendingRows, shards)  # type: ignore[assignment]
        self._ensemble: Ensemble | None = None  # without leaves and ledger
        self._largest = 0  # no label among those that wait to be inserted is larger
        # What was fetched from the shards:
        self._only: float | None = None
        self._counts: Ints | None = None

    @property
    def ensemble(self) -> Ensemble | None:
        """Return the trees; None before the first training."""
        return self._ensemble

    # ---------------------------------------------------------------- one batch

    def _reserve(self, updates: int) -> None:
        """Nothing: each owner makes room before it admits."""

    def _admit_run(self, batch: UpdateBatch, part: slice, skip_refused: bool, admitted: Admission) -> Exchange[int]:
        self._only = None
        return (yield from self._owned.admit(batch, part, skip_refused, admitted))

    def _sum_of_weights(self) -> Exchange[int]:
        return int(sum((yield Ask("sum_of_weights", {}))))

    def _find_deleted(self, batch: UpdateBatch, position: int, row: int, admitted: Admission) -> Exchange[None]:
        """Have the shards look for the oldest live example that equals a row, on which its owner has it wait."""
        parts = self._rows.parts(RowBlock.of(batch.X, batch.sparse).take(np.array([row])))
        each = [{"row": part} for part in parts]
        yield from self._owned.delete("delete_equal", {"y": batch.y[row].item()}, each, admitted, position)

    def _enter(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Give the shards the new rows; their owners have labels and births."""
        carries = np.flatnonzero((batch.op[part] == INSERT) | (batch.op[part] == UPDATE)) + part.start
        if len(carries) and not self.options.regression:
            self._largest = max(self._largest, int(batch.y[admitted.row[carries]].max()))
        yield from self._put(batch, part, admitted)
        return {}

    def _summaries(self, seqs: Ints, deleted: Slots, since: Ints) -> Exchange[list[Summary]]:
        replies = yield Ask("summaries", {"seqs": seqs, "deleted": deleted, "since": since})
        return [joined_summary(parts) for parts in zip(*replies, strict=True)]

    # ---------------------------------------------------------------- the model changes

    def _waiting(self) -> tuple[int, int]:
        return self._owned.inserts, self._owned.deletes

    def _end_batch(self) -> Exchange[None]:
        yield from self._owned.end_batch()
        self._largest = 0

    def _train(self) -> Exchange[None]:
        """Have the shards make bins, encode their rows and train on them."""
        hold_out = self.options.early_stopping and self._ensemble is None
        ended = yield from together("learn", {"hold_out": hold_out, "balanced": self._weighting.is_open})
        found = [of_shard.result for of_shard in ended]
        targets = joined_summary([of_shard["targets"] for of_shard in found])
        self._ensemble = e = self._new_ensemble([of_shard["bins"] for of_shard in found], targets)
        if self._weighting.is_open:
            sums = [np.zeros(e.classes, dtype=np.int64), *(of_shard["weights"] for of_shard in found)]
            self._weighting.resolve(joined_summary(sums), self._seq)
        yield from self._encode(False)
        self._owned.inserts = sum(of_shard["held"] for of_shard in found)
        patience, first = Patience(e), 0
        for stop in range(1, e.iterations + 1) if hold_out else [e.iterations]:
            ended = yield from self._pass("train", {"first": first, "stop": stop})
            if hold_out and patience.is_over(first, [of_shard.result["losses"] for of_shard in ended]):
                break
            first = stop
        if hold_out and patience.best + 1 < e.iterations:
            self._ensemble = e.shortened(patience.best + 1)
            yield Tell("shorten", {"iterations": self._ensemble.iterations})

    def _encode(self, restored: bool) -> Exchange[None]:
        """Have the shards begin with an ensemble, and encode the rows of the training or, ``restored``, the model's."""
        assert self._ensemble is not None
        yield Tell("begin", {**self._ensemble.begin(), "factors": self._weighting.factors})
        yield from together("encode", {"restored": restored})

    def _change(self, deletes: bool) -> Exchange[Counts]:
        counts, e = Counts(), self._ensemble
        roles, anew = [DELETED] * (deletes and self._owned.deletes > 0), False
        if self._owned.inserts:
            assert e is not None
            if not self.options.regression and self._largest >= e.classes:  # unless such rows were deleted again
                summary = joined_summary((yield Ask("summary_of_inserts", {})))
                if classes_in(summary) > e.classes:
                    yield from self._update_all(roles, False, counts)
                    roles, anew, classes = [], self._owned.live > self._owned.inserts, classes_in(summary)
                    self._ensemble = Ensemble(e.options, e.bins, classes, 0.0, 0, e.iterations, 0)
                    yield from self._pass("extend", {"classes": classes})
            roles.append(INSERTED)
        yield from self._update_all(roles, anew, counts)
        return counts

    def _update_all(self, roles: Sequence[int], anew: bool, counts: Counts) -> Exchange[None]:
        """Have rows that wait taken through the trees, in one pass of the shards; ``counts`` takes what it costs.

        ``anew``: derivatives of all others are computed anew.
        """
        if not roles:
            return
        ended = yield from self._pass("update", {"roles": roles, "anew": anew})
        assert self._ensemble is not None
        for of_role in zip(*(of_shard.result["counts"] for of_shard in ended), strict=True):
            counts.add(Counts.of(len(self._ensemble.trees.feature), of_role))
        counts.rounds += ended[0].met + 1

    def _pass(self, method: str, payload: Payload) -> Exchange[list[EndOfPass]]:
        """Have the shards make a pass that changes the trees, which all have alike."""
        ended = yield from together(method, payload)
        assert self._ensemble is not None
        trees: tuple[Any, ...] = self._ensemble.trees
        for array, theirs in zip(trees, ended[0].result["trees"], strict=True):
            array[:] = theirs
        return ended

    def _resume(self) -> Exchange[None]:
        """Tell the shards which rows are theirs and, after a restore, have them make what is not saved."""
        restored = yield from self._owned.begin()
        if restored is not None and self._ensemble is not None:
            yield from self._encode(True)
            yield Tell("restore_rows", {"trees": self._ensemble.trees})
            yield from together("sum_up", {})

    # ---------------------------------------------------------------- what shards are asked for

    def gather(self) -> Exchange[None]:
        """Have the rows of each node counted or, without a model, labels added up."""
        yield from self._resume()
        if self._ensemble is not None:
            self._counts = np.sum((yield Ask("count_rows", {})), axis=0)
        else:
            now = np.array([np.iinfo(np.int64).max])
            (summary,) = yield from self._summaries(now, np.empty(0, dtype=np.int32), now[:0])
            self._only = constant_of(summary)

    def gather_state(self) -> Exchange[None]:
        """Have the shards complete what was restored: they have the rows of a state."""
        yield from self._resume()

    def gather_digest(self) -> Exchange[None]:
        """Have the rows hashed."""
        yield from self._resume()
        yield from self._owned.gather_hashes()

    def _constant(self) -> float:
        if self._ensemble is not None:
            return 0.0  # which nobody asks for
        assert self._only is not None, "gather comes first"
        return self._only

    def digest(self) -> str:
        """Digest of trees, sums, bins, and of label and ledger by id, after :meth:`gather_digest`. O(nodes)."""
        return self._digest.of(self._ensemble, self._weighting.factors, *self._owned.hashed())

    def model(self) -> Arrays:
        """Arrays of the predict-only model, after :meth:`gather`."""
        model = super().model()
        if self._ensemble is not None:
            assert self._counts is not None, "gather comes first"
            model["node_count"], self._counts = self._counts, None
        return model

    # ---------------------------------------------------------------- states

    def state(self, slots: Slots) -> Arrays:
        """Trees and bins, the totals, and how many rows there are; these are with the shards."""
        return {**self._model_state(), OWNED: self._owned.counted()}

    def trim(self) -> None:
        """Rest: rows, and what grows with them, are with their owners."""
        self.rest()

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; shards have the features of its rows in slots 0, 1, ... until they are told."""
        self._restore_model(state)
        self._owned.restore(state)
        self._largest, self._only, self._ensemble = MOST_CLASSES, None, None
        if "tree_nodes" in state:
            none: AnyArray = np.empty((0, len(state["tree_nodes"])), dtype=np.uint8)  # shards have the rows
            self._ensemble = restored(self.options, {**state, "leaf": none, "ledger": none, "drift": none[:, 0]}, 0)
