"""Ids, labels, weights and births of examples where shards own whole rows: they lie at the owners, none here.

What an update does depends on the updates of the same id only, so every owner decides about its own. The coordinator
sends each its updates of a batch (:class:`OwnedStore`) and gets their slots, in one round; the first update that is
refused is the first of any owner's, and the others then take back what they have done after it.

Invariant: decisions are those of one :class:`~raydt.examples.store.ExampleStore`, whatever the number of shards; only
the slots are others (:class:`~raydt.examples.row_owners.RowOwners`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Arrays, Ints, Slots
from raydt.examples.admission import Admission, nothing_admitted
from raydt.examples.row_owners import RowOwners
from raydt.examples.store import ExampleStore
from raydt.examples.updates import CARRIES_ROW, DELETE_VALUE, QUERY, UpdateBatch
from raydt.examples.weighting import Weighting
from raydt.examples.weights import Weights, filled, sums_by_class, unless_equal
from raydt.exchange.meeting import Steps
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.exchange.snapshot import living
from raydt.learners.gbdt.targets import Targets, summaries_before, summary_of
from raydt.learners.gbdt.update_batch import NOT_PENDING, TO_DELETE, TO_INSERT, PendingUpdates

Ids = Ints

#: What a state has of each row beside its features and what the model has of it.
COLUMNS = ("id", "y", "born", "pending")
#: Requests that an owner answers by the methods of these names.
OF_OWNERS = (
    "admit", "retract", "end_batch", "summaries", "summary_of_inserts", "living", "uneven", "sum_of_weights",
)  # fmt: skip
#: Birth of no example: after all others.
NEVER = np.iinfo(np.int64).max
#: Births among which shards look for those of their rows at once, and what they find of one that is nobody's.
_WINDOW, _NOBODY = 1 << 20, -2


class OwnedStore:
    """The coordinator's half: how many examples there are, and of which updates each owner decides.

    ``live``: live examples. ``inserts``, ``deletes``: those that wait for the end of a batch D'. ``weighted``: whether
    some may have another weight than 1.
    """

    def __init__(self, shards: int) -> None:
        self.owners = RowOwners(shards)
        self.live = self.inserts = self.deletes = 0
        self.weighted = False
        #: How often updates may have changed some examples.
        self.changes = 0

    def admit(self, batch: UpdateBatch, begin: int, stop: int, skip: bool, admission: Admission) -> Exchange[int]:
        """Admit updates from ``begin`` to before ``stop``, as :meth:`ExampleStore.admit`; returns where it stopped.

        The owners have labels and births of the new examples then. One round; two if an update is refused and it is not
        skipped, or an owner has no memory: then nobody has taken any of them, and it is a MemoryError.
        """
        by_value = np.flatnonzero(batch.op[begin:stop] == DELETE_VALUE)
        stop = begin + int(by_value[0]) if len(by_value) else stop
        named = begin + np.flatnonzero(batch.op[begin:stop] != QUERY)
        if not len(named):
            return stop
        owner = self.owners.of(batch.id[named])
        owned = [named[owner == shard] for shard in range(self.owners.shards)]
        self.changes += 1  # before, so that a change that is broken off is counted
        self.weighted |= batch.weight is not None
        replies = yield Ask("admit", {"skip": skip}, [_sent(batch, own, admission) for own in owned])
        ends = [int(reply["stop"]) for reply in replies]
        if any(reply["lacks"] for reply in replies):
            yield Ask("retract", {}, [{"updates": end} for end in ends])
            self.changes -= 1
            raise MemoryError
        refused = [int(own[end]) for own, end in zip(owned, ends, strict=True) if end < len(own)]
        kept = [own[:end] for own, end in zip(owned, ends, strict=True)]
        counts: Sequence[Any] = [reply["counts"] for reply in replies]
        if refused:
            stop = min(refused)
            kept = [own[own < stop] for own in kept]
            gone = [end - len(own) for own, end in zip(kept, ends, strict=True)]
            if any(gone):
                counts = yield Ask("retract", {}, [{"updates": updates} for updates in gone])
            self.changes -= not any(map(len, kept))
        for shard, (own, whole, reply) in enumerate(zip(kept, owned, replies, strict=True)):
            for ours, name in ((admission.old, "old"), (admission.new, "new")):
                local = reply[name][: len(own)]
                ours[own] = np.where(local >= 0, self.owners.slots(local, shard), -1)
            decided = whole[whole <= stop]  # with the one that is refused
            admission.fault[decided] = reply["fault"][: len(decided)]
        self.take(counts)
        return stop

    def end_batch(self) -> Exchange[None]:
        """Have nothing wait any more: slots of deleted examples are free."""
        yield Tell("end_batch", {})
        self.inserts = self.deletes = 0

    def take(self, counts: Sequence[Any]) -> None:
        """Take note of how many examples the owners have (:meth:`OwnedRows.counts`)."""
        self.live, self.inserts, self.deletes = np.sum(counts, axis=0).tolist()

    def fill(self, pending: npt.NDArray[np.int8], weights: Weights | None = None) -> None:
        """Take note of the examples of a state."""
        self.weighted = weights is not None
        listed, deletes = np.count_nonzero(pending == TO_INSERT), int(np.count_nonzero(pending == TO_DELETE))
        self.live, self.inserts, self.deletes = len(pending) - deletes, int(listed), deletes


def _sent(batch: UpdateBatch, own: npt.NDArray[np.intp], admission: Admission) -> dict[str, Any]:
    """Return what an owner gets of its updates: ``y`` and ``weight`` are of those that carry a row."""
    op = batch.op[own]
    rows = admission.row[own[CARRIES_ROW[op]]]
    weight = None if batch.weight is None else batch.weight[rows]
    return {"op": op, "key": batch.id[own], "y": batch.y[rows], "weight": weight, "born": batch.start + own}


class OwnedRows:
    """An owner's half: its examples by local slot, and which of them wait for the end of a batch D'."""

    def __init__(self, owners: RowOwners, index: int, target_dtype: np.dtype[Any]) -> None:
        self.owners, self.index = owners, index
        self.store, self.pending = ExampleStore(0, None, target_dtype), PendingUpdates()
        self._weighting = Weighting(False)  # whose factors the coordinator resolves
        self._undo: tuple[PendingUpdates, Slots, Slots] | None = None

    def slots(self, local: npt.NDArray[np.integer]) -> Slots:
        """Return the slots of some of the own rows."""
        return self.owners.slots(local, self.index)

    def counts(self) -> Ints:
        """Count the live examples, and those that wait to be inserted and to be deleted."""
        return np.array([self.store.live, len(self.pending.inserts), len(self.pending.deletes)])

    # ---------------------------------------------------------------- labels and weights

    @property
    def targets(self) -> Targets:
        """Labels of the own rows, and what each counts, by local slot."""
        return Targets(self.store.y, self._weighting.by_slot(self.store))

    def balance(self, factors: Ints | None) -> None:
        """Take the factors of classes, None before they are resolved."""
        self._weighting.take(factors)
        self._weighting.enter(self.store, np.concatenate([self.store.slots(), self.pending.deletes]))

    def of_training(self, local: Slots, held: Slots, balanced: bool) -> dict[str, Any]:
        """Return a summary of the labels of rows of a training, and how many are ``held`` out.

        ``balanced``: and the sums of their weights by class.
        """
        y, weights = self.store.y[local], self.store.weights(local)
        found: dict[str, Any] = {"targets": summary_of(y, weights), "held": len(held)}
        return found | {"weights": sums_by_class(weights, y)} if balanced else found

    def uneven(self) -> int:
        """Count the rows of other weights than 1, with those that wait to be deleted."""
        return self.store.uneven

    def sum_of_weights(self) -> int:
        """Add up what the live rows count, in units."""
        return self._weighting.sum_of(self.store)

    def weights(self, local: Slots) -> Weights:
        """Weights of some of the own rows, as an array."""
        return filled(self.store.weights(local), len(local))

    # ---------------------------------------------------------------- updates

    def admit(self, op: Any, key: Ids, y: AnyArray, weight: Weights | None, born: Ids, skip: bool) -> dict[str, Any]:
        """Admit updates (no query, no deletion by value), up to the first one that is refused unless it is skipped.

        Where memory ends (``lacks``) none is admitted.
        """
        store, stop, lacks, admitted = self.store, 0, False, nothing_admitted(op[:0])
        self._undo = copy.copy(self.pending), admitted.old, admitted.new
        try:
            store.reserve(len(op))  # before anything has changed
            admitted = nothing_admitted(op)
            stop = store.admit(op, key, 0, skip, admitted)
            old, new = admitted.old[:stop], admitted.new[:stop]
            self._undo = self._undo[0], old, new
            added = np.flatnonzero(new >= 0)
            rows = admitted.row[added]
            store.enter(new[added], y[rows], born[added], None if weight is None else weight[rows])
            self._weighting.enter(store, new[added])
            self._wait(old, new)
        except MemoryError:
            self.retract(stop)
            stop, lacks = 0, True
            self._undo = self.pending, admitted.old[:0], admitted.new[:0]
        old, new = admitted.old[:stop], admitted.new[:stop]
        found = {"stop": stop, "old": old, "new": new, "fault": admitted.fault, "counts": self.counts()}
        return {**found, "lacks": lacks}

    def retract(self, updates: int) -> Ints:
        """Take back the last updates of those just admitted; returns :meth:`counts`."""
        assert self._undo is not None
        self.pending, old, new = self._undo
        kept = len(old) - updates
        self.store.retract(old[kept:], new[kept:])
        self._undo = None
        self._wait(old[:kept], new[:kept])
        return self.counts()

    def delete(self, local: int) -> None:
        """Have one row wait to be deleted."""
        self.store.discard(local)
        self._wait(np.array([local], dtype=np.int32), self.pending.inserts[:0])

    def _wait(self, old: Slots, new: Slots) -> None:
        self.pending.add(new[new >= 0], old[old >= 0])

    def end_batch(self) -> None:
        """Release what a batch D' has deleted, once the trees have no trace of it."""
        self.store.release(self.pending.freed)
        self.pending, self._undo = PendingUpdates(), None

    # ---------------------------------------------------------------- all rows

    def equal(self, y: Any, masks: Sequence[npt.NDArray[np.uint8]]) -> tuple[int, int]:
        """Return local slot and birth of the oldest live row of a label that is in all masks (bits by local slot).

        -1 and NEVER if there is none. A mask of no bits has all rows.
        """
        store = self.store
        found = store.slots()
        found = found[store.y[found] == y]
        for mask in masks:
            if len(mask):
                found = found[np.unpackbits(mask)[found] == 1]
        if not len(found):
            return -1, NEVER
        oldest = int(found[store.born[found].argmin()])
        return oldest, int(store.born[oldest])

    def summaries(self, seqs: Ids, deleted: Slots, since: Ids) -> list[AnyArray]:
        """Return summaries of the labels of the examples that were live before each of some updates (``seqs``).

        ``deleted`` are slots of any owner whose rows a later update, ``since``, has deleted.
        """
        mine = self.owners.shard_of(deleted) == self.index
        return summaries_before(self.store, seqs, self.owners.local(deleted[mine]), since[mine])

    def summary_of_inserts(self) -> AnyArray:
        """Return a summary of the labels of the rows that wait to be inserted."""
        return summary_of(self.store.y[self.pending.inserts])

    # ---------------------------------------------------------------- states

    def in_order_of_birth(self) -> Slots:
        """Return the local slots of the own rows of a state, the oldest first."""
        local = np.concatenate([self.store.slots(), self.pending.deletes])
        return local[np.argsort(self.store.born[local], kind="stable")]

    def living(self, edges: Ids) -> Ids:
        """Count the own rows of a state in segments (:func:`raydt.exchange.snapshot.living`)."""
        return living(self.store.born[self.in_order_of_birth()], edges)

    def columns(self, local: Slots) -> Arrays:
        """Return what never changes of some of the own rows, but their features."""
        columns: Arrays = {"id": self.store.id[local], "y": self.store.y[local], "born": self.store.born[local]}
        weights = unless_equal(self.store.weights(local))
        return columns if weights is None else columns | {"weight": weights}

    def fill(self, rows: Mapping[str, AnyArray]) -> None:
        """Take the own rows of a state into local slots 0, 1, ...; ``rows`` has their :data:`COLUMNS`, and weights."""
        pending = rows["pending"]
        self.store.fill(rows["id"], rows["y"], rows["born"], pending != TO_DELETE, rows.get("weight"))
        local = np.arange(len(pending), dtype=np.int32)
        self.pending, self._undo = PendingUpdates(), None
        self.pending.add(local[pending == TO_INSERT], local[pending == TO_DELETE])

    def status(self) -> npt.NDArray[np.int8]:
        """Return ``pending`` by local slot, shape (slots,)."""
        status = np.full(self.store.capacity, NOT_PENDING, dtype=np.int8)
        status[self.pending.inserts], status[self.pending.deletes] = TO_INSERT, TO_DELETE
        return status


def slots_in_order(born: Ids, slots: Slots, gone: Ids, shards: int) -> Steps[Slots]:
    """Return the slots of all owners' rows in the order of their births, and -1 for those that are ``gone``.

    Each shard has those of its own rows, by ``born``. It tells the others those of :data:`_WINDOW` births at a time, so
    that nobody has the births of all rows.
    """
    born, slots = np.concatenate([born, gone]), np.concatenate([slots, np.full(len(gone), -1, dtype=np.int32)])
    order = np.argsort(born, kind="stable")
    born, slots = born[order], slots[order]
    ends = np.array([born[0], born[-1] + 1] if len(born) else [NEVER, 0])
    found, ends_of_all = [np.empty(0, dtype=np.int32)], np.array((yield [ends] * shards))
    for begin in range(int(ends_of_all[:, 0].min()), int(ends_of_all[:, 1].max()), _WINDOW):
        mine = slice(*np.searchsorted(born, [begin, begin + _WINDOW]))
        own = np.stack([(born[mine] - begin).astype(np.int32), slots[mine]])
        window = np.full(_WINDOW, _NOBODY, dtype=np.int32)
        for place, slot in (yield [own] * shards):
            window[place] = slot
        found.append(window[window != _NOBODY])
    return np.concatenate(found)
