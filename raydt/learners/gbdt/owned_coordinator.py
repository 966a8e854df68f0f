"""The coordinator of the GBDT where shards own the rows: it has the trees, and of the rows only their number.

What an algorithm of the coordinator needs of all rows, it asks the owners to do with theirs: to train on them, to take
those that wait through the trees, to add up labels. They write the rows of a state, and read them back: only a state
that one process or an earlier version has written passes through here.

Invariant: the model is that of :class:`~raydt.learners.gbdt.coordinator.GBDTCoordinator`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raydt.arrays.types import AnyArray, Arrays, Ints, Slots
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.admission import Admission
from raydt.examples.features import Features
from raydt.examples.owned_store import OwnedStore
from raydt.examples.targets import MOST_CLASSES
from raydt.examples.updates import INSERT, UPDATE, BatchResult, Log, UpdateBatch
from raydt.exchange.meeting import together
from raydt.exchange.messages import Ask, Ended, Exchange, Payload, Tell
from raydt.exchange.snapshot import OWNED
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt.coordinator import GBDTCoordinator
from raydt.learners.gbdt.ensemble import Ensemble, restored
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.owned_rows import PendingRows
from raydt.learners.gbdt.targets import Summary, classes_in, constant_of, joined_summary
from raydt.learners.gbdt.trainer import Patience
from raydt.learners.gbdt.update_batch import Counts
from raydt.learners.gbdt.workspace import DELETED, INSERTED


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

    def _pass(self, method: str, payload: Payload) -> Exchange[list[Ended]]:
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
