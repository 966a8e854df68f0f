"""The coordinator of the GBDT: collects updates to batches D', trains once, and updates the trees in place.

One batch of the stream: (1) ids become slots, bad updates are refused before anything is applied, and the shards are
told the new rows; (2) at the end of the warm-up the bins are fixed and the trees trained; (3) at the end of each D' it
is taken through the trees, first what goes, then what comes (``updating``). What is predicted is predicted by the model
of the last such end.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.digest import digest
from raydt.arrays.sparse import SparseRows
from raydt.examples.admission import Admission, nothing_admitted
from raydt.examples.features import Features
from raydt.examples.store import ExampleStore
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    QUERY,
    BatchResult,
    Refusal,
    UpdateBatch,
)
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.learners.base import WorkPlan
from raydt.learners.binning import Bins, joined
from raydt.learners.gbdt.ensemble import Arrays, Ensemble, restored, scale_of, with_class
from raydt.learners.gbdt.intake import Intake
from raydt.learners.gbdt.log import UpdateLog
from raydt.learners.gbdt.model import middle_of, model_arrays, predictor_of
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.passes import IN, OUT
from raydt.learners.gbdt.training import HeldOut, held_out_rows, train
from raydt.learners.gbdt.trees import extent
from raydt.learners.gbdt.updating import Counts, Pass
from raydt.learners.gbdt.waiting import COMING, GOING, Waiting
from raydt.learners.rows import Rows

Slots = npt.NDArray[np.int32]
#: Rows times trees that are summed up again in one round.
_SUMMED = 1 << 22


class GBDTCoordinator:
    """Trees, ledger, ids and waiting updates; features of live examples are with the shards only.

    Parameters
    ----------
    options : GBDTOptions
    features : Features
    shards : int
    plan : WorkPlan
    """

    def __init__(self, options: GBDTOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        self.options, self.features = options, features
        self._shards = shards
        self._patient = shards > 1 and not plan.shared_store
        self._dtype = np.dtype(np.float64 if options.regression else np.int32)
        self._intake = Intake(features, shards, self._dtype)
        self.ensemble: Ensemble | None = None
        self._seq = self._warmup = 0
        self._log, self._totals = UpdateLog(), Counts()
        self._behind = False  # the shards have not yet the sums of a state that was restored

    @property
    def store(self) -> ExampleStore:
        """Ids and labels of the live examples."""
        return self._intake.store

    def find_equal(
        self, X: npt.NDArray[np.float64], row: int, y: float, sparse: SparseRows | None = None
    ) -> Exchange[Slots]:
        """Slots of the live examples equal to (X[row], y), the oldest first. O(live examples x features)."""
        return self._intake.find_equal(Rows.of(X, sparse).take(np.array([row])), y)

    # ---------------------------------------------------------------- one batch

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch (see the module's header). Stops before the first bad update, or passes it over."""
        m = len(batch)
        yield from self._catch_up()
        if batch.start == 0:
            self._warmup = batch.warmup
        self.store.reserve(m)
        nothing = np.nan if self.options.regression else -1
        result = BatchResult(m, np.full(m, nothing, dtype=self._dtype), path=np.zeros(m, dtype=np.int32))
        admitted = nothing_admitted(batch.op)
        self._log = UpdateLog()
        begin = 0
        while begin < m:
            end = self._next_end(batch, begin)
            stop = yield from self._intake.admit(batch, begin, end, skip_refused, admitted, self.ensemble)
            self._predict_before(batch, slice(begin, stop), admitted, result)
            self._seq = batch.start + stop
            if stop < end:
                result.applied = stop
                break
            if self._at_end():
                yield from self._apply()
            begin = end
        result.refused = [Refusal(int(i), int(admitted.fault[i])) for i in np.flatnonzero(admitted.fault)]
        result.inserts, result.deletes = int((admitted.new >= 0).sum()), int((admitted.old >= 0).sum())
        result.log = self._log.arrays()
        return result

    def finish(self) -> Exchange[Arrays]:
        """End the batch D' that the stream did not complete, or a warm-up; the log of that."""
        self._log = UpdateLog()
        yield from self._catch_up()
        self._warmup = min(self._warmup, self._seq)
        if len(self._intake.waiting):
            yield from self._apply()
        return self._log.arrays()

    def _next_end(self, batch: UpdateBatch, begin: int) -> int:
        """Position behind the last update of the D' (or the warm-up) that the one at ``begin`` belongs to."""
        seq = batch.start + begin
        if seq < self._warmup:
            end = self._warmup
        else:
            every = self.options.update_every
            end = self._warmup + ((seq - self._warmup) // every + 1) * every
        return min(end - batch.start, len(batch))

    def _at_end(self) -> bool:
        """Whether a D' or the warm-up ends here."""
        if self._seq <= self._warmup:
            return self._seq == self._warmup
        return (self._seq - self._warmup) % self.options.update_every == 0

    def _predict_before(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> None:
        """Predictions of the rows of a part by the model of the last end of a D'."""
        at = np.flatnonzero((batch.op[part] != DELETE) & (batch.op[part] != DELETE_VALUE)) + part.start
        at = at[admitted.fault[at] == 0]
        if batch.start + part.start < self._warmup:
            at = at[batch.op[at] == QUERY]
        if not len(at):
            return
        if self.ensemble is not None:
            rows = admitted.row[at]
            sparse = None if batch.sparse is None else batch.sparse[rows]
            result.predictions[at] = self.predict(batch.X[rows], sparse)
            return
        live = self.store.slots()
        for i in at.tolist():  # before there is a model, what lives then is all there is
            deleted_later = admitted.old[i + 1 : part.stop]
            slots = np.concatenate([live, deleted_later[deleted_later >= 0]])
            result.predictions[i] = middle_of(self.store.y[slots[self.store.born[slots] < batch.start + i]])

    # ---------------------------------------------------------------- the model changes

    def _apply(self) -> Exchange[None]:
        """Apply what waits: train, or take it through the trees."""
        began = time.perf_counter()
        waiting, self._intake.waiting = self._intake.waiting, Waiting()
        counts = Counts()
        if self.ensemble is None:
            late = yield from self._train(waiting.coming)
            new = yield from self._intake.features_of(late)
        else:
            late = waiting.coming
            new = waiting.rows if len(late) else Rows.none(self.features)
            counts.add((yield from self._leave(waiting.going)))
        counts.add((yield from self._come(late, new)))
        self.store.release(waiting.emptied)
        self._totals.add(counts)
        self._log.add(self._seq - 1, len(waiting.going), len(waiting.coming), counts, time.perf_counter() - began)

    def _train(self, slots: Slots) -> Exchange[Slots]:
        """Fix the bins from the first rows and train on them; returns those that were held out."""
        o, y = self.options, self.store.y
        if not len(slots):
            return slots
        parts = yield Ask("learn", {"slots": slots})
        order = np.argsort(self._intake.owned())
        bins = joined([Bins.from_arrays(part) for part in parts]).select(order)
        rest, held = held_out_rows(slots, o) if o.early_stopping else (slots, slots[:0])
        origin, exponent = scale_of(y[slots]) if o.regression else (0.0, 0)
        classes = 0 if o.regression else max(2, int(y[slots].max()) + 1)
        ensemble = Ensemble(o, bins, classes, origin, exponent, o.max_iter, self.store.capacity, self._shards)
        yield Tell("begin", ensemble.begin())
        yield Tell("encode", {"slots": slots})
        watched = None
        if len(held):
            watched = HeldOut(ensemble, (yield from self._intake.features_of(held)), y[held])
        iterations = yield from train(ensemble, rest, y, watched)
        if iterations < ensemble.iterations:
            ensemble = ensemble.shortened(iterations)
            yield Tell("shorten", {"trees": len(ensemble.leaf)})
        self.ensemble = ensemble
        return held

    def _leave(self, slots: Slots) -> Exchange[Counts]:
        """Take rows out of the trees."""
        if not len(slots):
            return Counts()
        none = Rows.none(self.features)
        assert self.ensemble is not None
        return (yield from Pass(self.ensemble, self.store.y, slots, OUT, none, slots[:0], self._patient).run())

    def _come(self, slots: Slots, rows: Rows) -> Exchange[Counts]:
        """Take rows into the trees; a class that was never seen gets trees of its own first."""
        if not len(slots):
            return Counts()
        assert self.ensemble is not None
        e, y = self.ensemble, self.store.y
        e.reserve(self.store.capacity)
        again = slots[:0]
        classes = int(y[slots].max()) + 1 if e.classes else 0
        if classes > e.classes:
            again = np.flatnonzero((e.leaf != e.nowhere).any(axis=0)).astype(np.int32)
            self.ensemble = e = with_class(e, classes, y, again)
            yield from self._tell_sums(again)
        return (yield from Pass(e, y, slots, IN, rows, again, self._patient).run())

    def _tell_sums(self, slots: Slots) -> Exchange[None]:
        """Have the shards sum up the rows of the model again: sums follow from rows, leaves and ledger."""
        assert self.ensemble is not None
        e = self.ensemble
        yield Tell("begin", e.begin())
        yield Tell("encode", {"slots": slots})
        yield Tell("resume", {"parent": e.trees.parent, "place": e.trees.place})
        none = {"visits": np.empty((0, 4), dtype=np.int64), "limits": np.empty(0)}
        total = len(e.leaf)
        at_once = max(1, _SUMMED // max(1, len(slots)))
        for begin in range(0, total, at_once):
            trees = range(begin, min(begin + at_once, total))
            g = np.stack([e.gradients(t, slots, self.store.y) for t in trees])
            leaf = e.leaf[begin : trees.stop, slots].astype(np.int16)
            changes = {"slots": slots, "leaf": leaf, "dG": g, "dH": e.hessians(g)}
            yield Tell("change", {"trees": [begin, trees.stop], "keep": total, **changes, **none})

    def _catch_up(self) -> Exchange[None]:
        """After a restore: give the shards what they do not save."""
        if self._behind and self.ensemble is not None:
            going = self._intake.waiting.going
            slots = np.union1d(np.setdiff1d(self.store.slots(), self._intake.waiting.coming), going).astype(np.int32)
            yield from self._tell_sums(slots)
            if len(self._intake.waiting.coming):
                coming = self._intake.waiting.coming
                self._intake.waiting.rows = yield from self._intake.features_of(coming)
                yield Tell("encode", {"slots": coming})
        self._behind = False

    # ---------------------------------------------------------------- the model

    def predict_proba(
        self, X: npt.NDArray[np.float64], n_classes: int, sparse: SparseRows | None = None
    ) -> npt.NDArray[np.float64]:
        """Probabilities of the classes, shape (n, n_classes)."""
        return predictor_of(self.ensemble, self._only(), self.options.regression).predict_proba(X, n_classes, sparse)

    def predict(self, X: npt.NDArray[np.float64], sparse: SparseRows | None = None) -> npt.NDArray[Any]:
        """Class codes, or numbers."""
        return predictor_of(self.ensemble, self._only(), self.options.regression).predict(X, sparse)

    def _only(self) -> float:
        """What is predicted without a model: the most frequent class so far, or the mean."""
        return middle_of(self.store.y[self.store.slots()])

    def locate(self, ids: npt.NDArray[np.int64]) -> Arrays:
        """Label ``y`` of live examples. O(ids)."""
        return {"y": self.store.y[self.store.find(ids)]}

    def digest(self) -> str:
        """Digest of trees, sums, bins, and of leaf and ledger by sorted id; free of slots and node numbers."""
        slots = self.in_order_of_birth()
        slots = slots[np.argsort(self.store.id[slots], kind="stable")]
        state = {**self.state(slots), **self.rows(slots)}
        # A record of what could not grow decides when that is tried again; the model is the same without it.
        skipped = {"seq", "warmup", "y", "rebuilds", "rebuilt_rows", "node_tried_g", "node_tried_h"}
        return digest((name, state[name]) for name in sorted(state) if name not in skipped)

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now."""
        nodes, leaves, depth = extent(self.ensemble.trees) if self.ensemble else (0, 0, 0)
        totals = self._totals
        return {
            "active": self.store.live,
            "nodes": nodes,
            "leaves": leaves,
            "depth": depth,
            "rebuilds": totals.subtrees,
            "rebuilt_rows": totals.rows,
        }

    def model(self) -> Arrays:
        """Arrays of the predict-only model."""
        return model_arrays(self.ensemble, self._only())

    def in_order_of_birth(self) -> Slots:
        """Slots of the live examples and of those that wait for their deletion, in order of birth. O(n log n)."""
        slots = np.concatenate([self.store.slots(), self._intake.waiting.going])
        return slots[np.argsort(self.store.born[slots], kind="stable")]

    def born(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Number of the update that inserted each example."""
        return self.store.born[slots]

    def rows(self, slots: Slots) -> Arrays:
        """Ids and labels."""
        return {"id": self.store.id[slots], "y": self.store.y[slots]}

    def state(self, slots: Slots) -> Arrays:
        """Trees and bins, leaf and ledger of each example, what it waits for, and the totals."""
        e, totals = self.ensemble, self._totals
        scalars = {
            "seq": self._seq,
            "warmup": self._warmup,
            "classes": e.classes if e else -1,
            "exponent": e.exponent if e else 0,
            "rebuilds": totals.subtrees,
            "rebuilt_rows": totals.rows,
        }
        state: Arrays = {name: np.array([value], dtype=np.int64) for name, value in scalars.items()}
        state["pending"] = self._intake.waiting.status(slots)
        if e is not None:
            e.reserve(self.store.capacity)  # for the slots of rows that wait
            state |= e.bins.arrays() | e.nodes()
            state["origin"] = np.array([e.loss.origin])
            state["leaf"], state["ledger"] = e.leaves_of(slots), np.ascontiguousarray(e.ledger[:, slots].T)
        return state

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features stay with the shards."""
        n = len(state["id"])
        pending = state["pending"]
        self.store.fill(state["id"], state["y"], state["born"], pending != GOING)
        self._seq, self._warmup = int(state["seq"][0]), int(state["warmup"][0])
        self._totals = Counts(subtrees=int(state["rebuilds"][0]), rows=int(state["rebuilt_rows"][0]))
        self._intake.waiting = Waiting()
        slots = np.arange(n, dtype=np.int32)
        self._intake.waiting.add(slots[pending == COMING], None, slots[pending == GOING])
        self.ensemble, self._behind = None, True
        if "tree_nodes" in state:
            self.ensemble = restored(self.options, state, self.store.capacity, self._shards)
