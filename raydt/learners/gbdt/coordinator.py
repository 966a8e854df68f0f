"""The coordinator of the GBDT: collects updates to batches D', trains once, and updates the trees in place.

At the end of the warm-up the bins are fixed and the trees trained; at the end of each D' it passes through the trees,
or all trees and bins are made again. Predictions are made by the model of the last such end.

The coordinator has the trees, and of the rows only their number. What an algorithm needs of all rows, it asks the
owners of the rows to do with theirs: to train on them, to take those that wait through the trees, to add up labels.
They write the rows of a state, and read them back. Where one shard in this process has all rows, these are the
coordinator's, too (:class:`LocalGBDTCoordinator`): it asks by a call, and writes them itself.

Invariant: the model is the same, bit for bit, with any number of owners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import as_slice
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Ints, Slots
from raydt.batches.binning import Bins
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.evaluation.scoring import LEVELS
from raydt.examples.digest import Part
from raydt.examples.owned_rows import OwnedStore
from raydt.examples.row_owners import RowOwners
from raydt.examples.store import Weighting
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    INSERT,
    MOST_CLASSES,
    QUERY,
    TARGET_TOO_FAR,
    UNIT,
    UPDATE,
    Admission,
    BatchResult,
    Features,
    Log,
    UpdateBatch,
    filled,
    joined,
    no_targets,
    nothing_admitted,
)
from raydt.exchange.links import together
from raydt.exchange.messages import MET, OWNED, Ask, EndOfPass, Exchange, Payload, Tell
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import BatchCoordinator
from raydt.learners.gbdt.candidates import (
    Summary,
    classes_in,
    constant_of,
    joined_summary,
    summary_of,
)
from raydt.learners.gbdt.ensemble import Ensemble, extent, restored
from raydt.learners.gbdt.model import (
    SLOPE,
    CalibrationSlope,
    ConstantPredictor,
    GBDTPredictor,
    ModelDigest,
    model_arrays,
    predictor_of,
)
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.shard import GBDTShard, Patience, PendingRows, bins_of_all, trained_on
from raydt.learners.gbdt.split_search import DELETED, INSERTED
from raydt.learners.gbdt.update import Counts, TrainingRecord, UpdateLog
from raydt.parallel import work_seconds


class GBDTCoordinator(BatchCoordinator):
    """Trees, and numbers of rows: a row is at the shard that owns it, with its label, its leaves and its ledger."""

    rows_are_owned = True

    _owned: OwnedStore
    _weighting: Weighting
    _ensemble: Ensemble | None = None

    def __init__(self, options: GBDTOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        self.options, self.features = options, features
        self._dtype = np.dtype(np.float64 if options.regression else np.int32)
        self._rows, self._weighting = RowsOnShards(features, shards), Weighting(options.class_weight == "balanced")
        self._take_store(shards)
        self._seq = self._warmup = self._begun = 0  # updates in all, of the warm-up, and before the present batch D'
        self._record = TrainingRecord()
        self._log, self._totals = UpdateLog(), Counts()
        self._extent: tuple[int, int, int] | None = None  # nodes, leaves and depth of the trees, where they are known
        self._digest = ModelDigest(features.sparse)
        self._slope = CalibrationSlope()
        self._largest = 0  # no label among those that wait to be inserted is larger
        # What was fetched from the shards:
        self._only: float | None = None
        self._counts: Ints | None = None

    @property
    def ensemble(self) -> Ensemble | None:
        """Trees, without leaves and ledger; None before the first training."""
        return self._ensemble

    def _take_store(self, shards: int) -> None:
        """Begin without rows."""
        self._owned = self._store = OwnedStore(PendingRows, shards)  # type: ignore[assignment]

    def _ask(self, method: str, payload: Payload) -> Exchange[list[Any]]:
        """Ask the owners; returns their answers."""
        return (yield Ask(method, payload))

    def _together(self, method: str, payload: Payload) -> Exchange[list[EndOfPass]]:
        """Have the owners make a pass."""
        return (yield from together(method, payload))

    # ---------------------------------------------------------------- one batch

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch (see the module's header). Stops before the first bad update, or passes it over."""
        m = len(batch)
        yield from self._resume()
        if batch.start == 0:
            self._warmup = batch.warmup
        shortened = yield from self._shorten_warmup(batch)
        self.store.reserve(m)
        result = BatchResult(m, no_targets(m, self._dtype), path=np.zeros(m, dtype=np.int32))
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

    def _faults(self, batch: UpdateBatch, part: slice, admitted: Admission) -> npt.NDArray[np.int8]:
        """Return why updates are refused, int8, shape (updates of the batch,): targets no ledger entry can hold."""
        faults = np.zeros(len(batch), dtype=np.int8)
        if self.ensemble is not None and len(batch.y):
            op = batch.op[part]
            carries = np.flatnonzero((op == INSERT) | (op == UPDATE)) + part.start
            faults[carries] = np.where(self.ensemble.fits(batch.y[admitted.row[carries]]), 0, TARGET_TOO_FAR)
        return faults

    def _admit_run(self, batch: UpdateBatch, part: slice, skip_refused: bool, admitted: Admission) -> Exchange[int]:
        self._only = None
        return (yield from self._owned.admit(batch, part, skip_refused, admitted))

    def _sum_of_weights(self) -> Exchange[int]:
        return int(sum((yield from self._ask("sum_of_weights", {}))))

    def _find_deleted(self, batch: UpdateBatch, position: int, row: int, admitted: Admission) -> Exchange[None]:
        """Have the shards look for the oldest live example that equals a row, on which its owner has it wait."""
        parts = self._rows.parts(RowBlock.of(batch.X, batch.sparse).take(np.array([row])))
        each = [{"row": part} for part in parts]
        yield from self._owned.delete("delete_equal", {"y": batch.y[row].item()}, each, admitted, position)

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Give the shards the new rows of a part, or have them read these; owners have labels and births."""
        carries = np.flatnonzero((batch.op[part] == INSERT) | (batch.op[part] == UPDATE)) + part.start
        if len(carries) and not self.options.regression:
            self._largest = max(self._largest, int(batch.y[admitted.row[carries]].max()))
        added = as_slice(np.flatnonzero(admitted.new[part] >= 0) + part.start)
        slots, rows = admitted.new[added], admitted.row[added]
        if batch.blocks:  # there is no model yet
            yield from self._read(slots, batch.row[added], batch.blocks)
        else:
            sparse = None if batch.sparse is None else batch.sparse[rows]
            yield from self._rows.put(slots, RowBlock.of(batch.X[as_slice(rows)], sparse))
        return {}

    def _enter(self, batch: UpdateBatch, part: slice, admitted: Admission) -> None:
        """Owners have labels and births."""

    def _end(self) -> int:
        """Update before which the present D' (or the warm-up) ends; O(1)."""
        if self._seq < self._warmup:
            return self._warmup
        inserts, deletes = self._waiting()
        e = self.ensemble
        held, candidates = (self.store.live - inserts + deletes, e.candidates) if e else (0, 0)
        return self._begun + self.options.every(held, self._warmup, candidates)

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
            predictor = predictor_of(self.ensemble, self.features.sparse, self._slope)
            scores = predictor.scores(batch.X[rows], sparse)
            if self.options.regression:
                learned = (batch.op[asked] != QUERY) & self.options.calibrates
                result.predictions[asked] = self._calibrated(batch, rows, learned, scores[:, 0])
                return
            result.predictions[asked] = predictor.classes_of(scores)
            result.give_levels(asked, predictor.levels_of(scores))
            return
        # Without a model, from the labels of the examples that are live just then.
        deleted = np.flatnonzero(admitted.old[part] >= 0) + part.start
        found = yield from self._summaries(batch.start + asked, admitted.old[deleted], batch.start + deleted)
        result.predictions[asked] = [constant_of(summary) for summary in found]
        if not self.options.regression:
            result.give_levels(asked, LEVELS * (result.predictions[asked] == 1))

    def _calibrated(self, batch: UpdateBatch, rows: Ints, learned: Bools, F: Floats) -> Floats:
        """Return the numbers of rows of the batch, each by the slope of the rows before it; queries count nothing."""
        e = self.ensemble
        assert e is not None
        weight = filled(batch.weight, len(batch.y))[rows] / UNIT
        return self._slope.predict(F, e.start, 2.0**e.exponent, batch.y[rows], weight * learned)

    def _summaries(self, seqs: Ints, deleted: Slots, since: Ints) -> Exchange[list[Summary]]:
        """Return summaries of the labels live before updates ``seqs``; those in ``deleted`` went at ``since``."""
        replies = yield from self._ask("summaries", {"seqs": seqs, "deleted": deleted, "since": since})
        return [joined_summary(parts) for parts in zip(*replies, strict=True)]

    # ---------------------------------------------------------------- the model changes

    def _apply(self) -> Exchange[None]:
        """Apply the pending updates: train, or take them through the trees."""
        began = work_seconds()
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
        self._log.add(self._seq - 1, deletes, inserts, counts, work_seconds() - began)

    def _waiting(self) -> tuple[int, int]:
        """Return how many examples wait to be inserted and to be deleted."""
        return self._owned.inserts, self._owned.deletes

    def _end_batch(self) -> Exchange[None]:
        """End a batch D': no update waits, and slots of deleted examples are free."""
        yield from self._owned.end_batch()
        self._largest = 0

    def _train(self) -> Exchange[None]:
        """Have the owners make bins, encode their rows and train on them, but for rows held out the first time."""
        hold_out = self.options.early_stopping and self.ensemble is None
        ended = yield from self._together("learn", {"hold_out": hold_out, "balanced": self._weighting.is_open})
        found = [of_shard.result for of_shard in ended]
        targets = joined_summary([of_shard["targets"] for of_shard in found])
        bins = [Bins.from_arrays(of_shard["bins"]) for of_shard in found]
        of_all = bins_of_all(bins, self._rows.columns, len(self.features.names))
        e = trained_on(self.options, of_all, targets, self.ensemble)
        if self.ensemble is not None:
            self._slope.rescale(e.exponent - self.ensemble.exponent)
        if self._weighting.is_open:
            sums = [np.zeros(e.classes, dtype=np.int64), *(of_shard["weights"] for of_shard in found)]
            self._weighting.resolve(joined_summary(sums), self._seq)
        self._keep(e)
        yield from self._encode(e, False)
        if self.rows_are_owned:  # else the rows held out wait here
            self._owned.inserts = sum(of_shard["held"] for of_shard in found)
        patience, first = Patience(e), 0
        for stop in range(1, e.iterations + 1) if hold_out else [e.iterations]:
            ended = yield from self._pass("train", {"first": first, "stop": stop})
            if hold_out and patience.is_over(first, [of_shard.result["losses"] for of_shard in ended]):
                break
            first = stop
        if hold_out and patience.best + 1 < e.iterations:
            assert self.ensemble is not None
            self._keep(self.ensemble.shortened(patience.best + 1))
            yield from self._ask("shorten", {"iterations": patience.best + 1})

    def _keep(self, ensemble: Ensemble | None) -> None:
        """Take the trees of an ensemble, which shards have, too."""
        self._ensemble = ensemble

    def _encode(self, ensemble: Ensemble, restored: bool) -> Exchange[None]:
        """Have the shards begin with an ensemble, and encode the rows of the training or, ``restored``, the model's."""
        yield from self._ask("begin", {**ensemble.begin(), "factors": self._weighting.factors})
        yield from self._together("encode", {"restored": restored})

    def _change(self, deletes: bool) -> Exchange[Counts]:
        """Delete rows from the trees, add trees for new classes, and insert the rows that wait."""
        counts, (to_insert, to_delete) = Counts(), self._waiting()
        roles, anew = [DELETED] * (deletes and to_delete > 0), False
        if to_insert:
            assert self.ensemble is not None
            if not self.options.regression and self._largest >= self.ensemble.classes:  # unless deleted again
                classes = classes_in(joined_summary((yield from self._ask("summary_of_inserts", {}))))
                if classes > self.ensemble.classes:
                    yield from self._update_all(roles, False, counts)
                    roles, anew, e = [], self.store.live > to_insert, self.ensemble
                    self._keep(Ensemble(e.options, e.bins, classes, 0.0, 0, e.iterations, 0))
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
        assert self.ensemble is not None
        for of_role in zip(*(of_shard.result["counts"] for of_shard in ended), strict=True):
            counts.add(Counts.of(len(self.ensemble.trees.feature), [*np.concatenate(of_role)]))
        counts.rounds += ended[0].met + 1

    def _pass(self, method: str, payload: Payload) -> Exchange[list[EndOfPass]]:
        """Have the shards make a pass that changes the trees, which all have alike."""
        ended = yield from self._together(method, payload)
        assert self.ensemble is not None
        trees: tuple[Any, ...] = self.ensemble.trees
        for array, theirs in zip(trees, ended[0].result["trees"], strict=True):
            array[:] = theirs
        return ended

    def _resume(self) -> Exchange[None]:
        """Tell the shards which rows are theirs and, after a restore, have them make what is not saved."""
        restored = yield from self._owned.begin()
        if restored is not None and self.ensemble is not None:
            yield from self._encode(self.ensemble, True)
            yield Tell("restore_rows", {"trees": self.ensemble.trees})
            yield from together("sum_up", {})

    # ---------------------------------------------------------------- the model

    def predictor(self) -> GBDTPredictor | ConstantPredictor:
        """Predictions of the trees as they are now; they change with the next update."""
        if self.ensemble is not None:
            return predictor_of(self.ensemble, self.features.sparse, self._slope)
        return ConstantPredictor(self._constant(), self.options.regression)

    def gather(self) -> Exchange[None]:
        """Have the rows of each node counted or, without a model, labels added up."""
        yield from self._resume()
        if self.ensemble is not None:
            self._counts = np.sum((yield Ask("count_rows", {})), axis=0)
        else:
            now = np.array([np.iinfo(np.int64).max])
            (summary,) = yield from self._summaries(now, np.empty(0, dtype=np.int32), now[:0])
            self._only = constant_of(summary)

    def gather_state(self) -> Exchange[None]:
        """Have the shards complete what was restored: they have the rows of a state."""
        yield from self._resume()

    def gather_digest(self, former: bool = False) -> Exchange[None]:
        """Have the rows hashed."""
        yield from self._resume()
        yield from self._owned.gather_hashes(former)

    def _constant(self) -> float:
        """The prediction without a model: the most frequent class so far, or the mean."""
        assert self._only is not None, "gather comes first"
        return self._only

    def digest(self, former: bool = False) -> str:
        """Return the digest of trees, bins, and of label and ledger by id, after :meth:`gather_digest`. O(nodes)."""
        return self._digest.of(self.ensemble, self._weighting.factors, *self._hashed(former), former)

    def _hashed(self, former: bool) -> tuple[Arrays, Part]:
        """Return the columns of rows that wait to be deleted, by id, and the part of a digest for all rows."""
        return self._owned.hashed()

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
        model = model_arrays(self.ensemble, 0.0 if self.ensemble is not None else self._constant())
        if self._counts is not None:
            model["node_count"], self._counts = self._counts, None
        return model | (self._slope_state() if self.ensemble is not None else {})

    def _slope_state(self) -> Arrays:
        """Return the sums of the slope, if a row has counted."""
        return {SLOPE: np.array(self._slope.sums)} if any(self._slope.sums) else {}

    # ---------------------------------------------------------------- states

    def trim(self) -> None:
        """Rest: rows, and what grows with them, are with their owners."""
        self.rest()

    def state(self, slots: Slots) -> Arrays:
        """Trees and bins, the totals, and how many rows there are; these are with the shards."""
        return {**self._model_state(), OWNED: self._owned.counted()}

    def _model_state(self) -> Arrays:
        """Return what a state has that does not grow with the rows."""
        counted = {"seq": self._seq, "warmup": self._warmup, "begun": self._begun, **self._record.numbers()}
        return self._totals.state(self.ensemble, counted) | self._weighting.state() | self._slope_state()

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; shards have the features of its rows in slots 0, 1, ... until they are told."""
        self._restore_model(state)
        self._owned.restore(state)
        self._largest, self._only, self._ensemble = MOST_CLASSES, None, None
        if "tree_nodes" in state:
            none: AnyArray = np.empty((0, len(state["tree_nodes"])), dtype=np.uint8)  # shards have the rows
            self._ensemble = restored(self.options, {**state, "leaf": none, "ledger": none, "drift": none[:, 0]}, 0)

    def _restore_model(self, state: Arrays) -> None:
        self._seq, self._warmup, self._begun = int(state["seq"][0]), int(state["warmup"][0]), self.options.begun(state)
        self._record = TrainingRecord.of(state)
        self._totals = Counts(subtrees=int(state["rebuilds"][0]), rows=int(state["rebuilt_rows"][0]))
        self._weighting.restore(state)
        self._slope = CalibrationSlope(state[SLOPE]) if SLOPE in state else CalibrationSlope()
        self._extent = None


# Where one shard in this process has all rows: one set of them, and no messages.


class LocalGBDTCoordinator(GBDTCoordinator):
    """A coordinator beside the one owner of all rows, with which it shares a store."""

    rows_are_owned = False
    _restored = False  # what is not saved has to be made

    def _take_store(self, shards: int) -> None:
        self._mine = PendingRows(RowOwners(shards), 0, self._dtype, self._weighting)
        self._store, self._digested = self._mine.store, self._mine.digest

    @property
    def shared(self) -> PendingRows:
        """The rows."""
        return self._mine

    @property
    def _shard(self) -> GBDTShard:
        shard: GBDTShard = self._mine.shard
        return shard

    @property
    def ensemble(self) -> Ensemble | None:
        """The ensemble of the shard; None before the first training."""
        return self._shard.ensemble

    def _keep(self, ensemble: Ensemble | None) -> None:
        """Nothing: the shard has it."""

    def _ask(self, method: str, payload: Payload) -> Exchange[list[Any]]:
        yield from ()
        return [self._shard.handle(method, payload)]

    def _together(self, method: str, payload: Payload) -> Exchange[list[EndOfPass]]:
        yield from ()
        parts = self._shard.handle(method, payload)
        while not isinstance(parts, EndOfPass):
            parts = self._shard.handle(MET, {"parts": parts})
        return [EndOfPass(parts.result, -1)]  # which is no round

    _pass = _together

    # ---------------------------------------------------------------- the rows

    _admit_run = BatchCoordinator._admit_run
    _find_deleted = BatchCoordinator._find_deleted
    _enter = BatchCoordinator._enter

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Keep the admitted updates of a part pending, and give the shard the new rows."""
        old, new = admitted.old[part], admitted.new[part]
        self._mine.pending.add(new[new >= 0], old[old >= 0])
        return (yield from super()._take(batch, part, admitted, result))

    def _waiting(self) -> tuple[int, int]:
        return len(self._mine.pending.inserts), len(self._mine.pending.deletes)

    def _end_batch(self) -> Exchange[None]:
        yield from ()
        self._mine.end_batch()
        self._largest = 0

    def _resume(self) -> Exchange[None]:
        """After a restore: make what is not saved."""
        if self._restored and self.ensemble is not None:
            yield from self._together("encode", {"restored": True})
            yield from self._together("sum_up", {})
        self._restored = False

    gather, gather_state = BatchCoordinator.gather, BatchCoordinator.gather_state  # nothing: it is here
    gather_digest = BatchCoordinator.gather_digest

    def _constant(self) -> float:
        return constant_of(summary_of(self.store.y[self.store.slots()]))

    def _hashed(self, former: bool) -> tuple[Arrays, Part]:
        return self._shard.digested(bool(self._mine.counts()[3]), former)

    # ---------------------------------------------------------------- states

    def rest(self) -> None:
        """Drop what the next update or digest makes again."""
        super().rest()
        if not self._restored:
            self._shard.rest()

    def trim(self) -> None:
        """Rest, and drop what is drawn again; give up room for more examples."""
        BatchCoordinator.trim(self)
        if self.ensemble is not None and not self._restored:
            self._shard.own.trim(self.store.capacity)

    def in_order_of_birth(self) -> Slots:
        """Slots of the live examples and of those whose deletion is pending, in order of birth. O(n log n)."""
        return self._mine.in_order_of_birth()

    def state(self, slots: Slots) -> Arrays:
        """Trees and bins, which updates are pending, and the totals; leaf and ledger."""
        rows = {**self._model_state(), **self._mine.changing(slots), **self._shard.of_model(slots)}
        del rows["born"]
        return rows

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features stay with the shard."""
        self._mine.fill(state)
        self._restore_model(state)
        self._weighting.enter(self.store, np.arange(len(state["id"])))
        self._largest, self._restored = MOST_CLASSES, True
        rows = max(len(state["id"]), self.store.capacity)
        self._shard.begin_with(restored(self.options, state, rows) if "tree_nodes" in state else None)
