"""An owner's half of rows that shards own: ids, labels, weights and births of its examples, none at the coordinator.

An owner decides about the updates of its own ids, which the coordinator (:mod:`~raydt.examples.owned_store`) sends it.
A learner whose updates wait for a batch of its own, or which keeps more of an example, derives its rows from
:class:`OwnedRows`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Arrays, Bools, Int32s, Ints, Slots
from raydt.examples.admission import nothing_admitted
from raydt.examples.bucket_digest import BucketDigest
from raydt.examples.row_owners import RowOwners
from raydt.examples.store import ExampleStore
from raydt.examples.weights import Weights, filled, unless_equal
from raydt.exchange.meeting import Steps
from raydt.exchange.snapshot import living

Ids = Ints

#: Birth of no example: after all others.
NEVER = np.iinfo(np.int64).max
#: Births among which shards look for those of their rows at once, and what they find of one that is nobody's.
_WINDOW, _NOBODY = 1 << 20, -2
_NO_SLOTS: Slots = np.empty(0, dtype=np.int32)


class AppliedUpdates:
    """Emptied slots of an owner that are not released yet; updates take effect at once, so none waits."""

    def __init__(self) -> None:
        self.inserts = self.deletes = self.cancelled = self.freed = _NO_SLOTS

    def add(self, new: Slots, old: Slots) -> None:
        """Add deletions of the examples in the slots ``old``."""
        self.freed = np.concatenate([self.freed, old])


class OwnedRows:
    """An owner's examples by local slot."""

    #: What a state has of each row beside its features and what else the model has of it.
    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "y", "born")
    #: What a state has of rows in the model, which a learner takes later than these.
    LATER: ClassVar[tuple[str, ...]] = ()
    #: Whether the coordinator gets the births of rows that updates delete.
    TELLS_BIRTHS: ClassVar[bool] = False
    #: Requests that an owner answers by the methods of these names.
    ANSWERS: ClassVar[frozenset[str]] = frozenset(("admit", "retract", "end_batch", "living"))
    #: What waits, and for what: with ``inserts`` and ``deletes``, which are in the model later, and slots to be freed.
    Pending: ClassVar[type[Any]] = AppliedUpdates

    def __init__(self, owners: RowOwners, index: int, target_dtype: np.dtype[Any]) -> None:
        self.owners, self.index = owners, index
        self.store, self.pending = ExampleStore(0, None, target_dtype), self.Pending()
        self.digest = BucketDigest(self.store)
        self._undo: tuple[Any, Slots, Slots] | None = None

    def slots(self, local: npt.NDArray[np.integer]) -> Slots:
        """Return the slots of some of the own rows."""
        return self.owners.slots(local, self.index)

    def mine(self, slots: Any) -> Slots:
        """Return the local slots of the own ones of some slots."""
        slots = np.asarray(slots)
        return self.owners.local(slots[self.owners.shard_of(slots) == self.index])

    def counts(self) -> Int32s:
        """Count the live examples, those that wait to be inserted and to be deleted, and those of other weights than 1.

        The latter with those whose slots are not free yet, and then those whose slots the end of the batch frees; but
        without those that no model will have.
        """
        store, pending = self.store, self.pending
        cancelled = store.uneven_of(pending.cancelled)
        uneven = store.uneven - cancelled, store.uneven_of(pending.freed) - cancelled
        return np.array([store.live, len(pending.inserts), len(pending.deletes), *uneven], dtype=np.int32)

    @classmethod
    def counts_of(cls, state: Mapping[str, AnyArray]) -> list[int]:
        """Count the live rows of a state, and those that wait to be inserted and to be deleted."""
        return [len(state["id"]), 0, 0]

    def weights(self, local: Slots) -> Weights:
        """Weights of some of the own rows, as an array."""
        return filled(self.store.weights(local), len(local))

    # ---------------------------------------------------------------- updates

    def admit(
        self, op: Any, key: Ids, y: AnyArray, weight: Weights | None, born: Ids, skip: bool, release: bool = False
    ) -> dict[str, Any]:
        """Admit updates (no query, no deletion by value), up to the first one that is refused unless it is skipped.

        Where memory ends (``lacks``) none is admitted. ``release``: earlier batches are over.
        """
        if release:
            self.end_batch()
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
            self._enter(new[added])
            self._wait(old, new)
            told = {"counts": self.counts()} | ({"born": store.born[old[old >= 0]]} if self.TELLS_BIRTHS else {})
        except MemoryError:
            self.retract(stop)
            stop, lacks, old, new = 0, True, admitted.old[:0], admitted.new[:0]
            self._undo, told = (self.pending, old, new), {"counts": self.counts()}
        return {"stop": stop, "old": old, "new": new, "fault": admitted.fault, **told, "lacks": lacks}

    def retract(self, updates: int) -> Int32s:
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
        self._wait(np.array([local], dtype=np.int32), _NO_SLOTS)

    def end_batch(self) -> None:
        """Release what a batch has deleted, once the model has no trace of it."""
        self.store.release(self.pending.freed)
        self.pending, self._undo = self.Pending(), None

    def _enter(self, local: Slots) -> None:
        """Take note of new rows, whose labels and weights the store has."""

    def _wait(self, old: Slots, new: Slots) -> None:
        """Have updates wait, of which these local slots were emptied and filled (-1: none)."""
        new, old = new[new >= 0], old[old >= 0]
        self.pending.add(new, old)
        self.digest.note(self.store.id[np.concatenate([old, new])])

    # ---------------------------------------------------------------- all rows

    def oldest(self, local: Slots) -> tuple[int, int]:
        """Return local slot and birth of the oldest of some live rows; -1 and NEVER if there is none."""
        if not len(local):
            return -1, NEVER
        slot = int(local[self.store.born[local].argmin()])
        return slot, int(self.store.born[slot])

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
        self.store.fill(rows["id"], rows["y"], rows["born"], self._listed(rows), rows.get("weight"))
        self.pending, self._undo = self.Pending(), None

    def _listed(self, rows: Mapping[str, AnyArray]) -> Bools | None:
        """Return which rows of a state live; None: all."""
        return None

    def changing(self, local: Slots) -> Arrays:
        """Return what a state has of some of the own rows that may change, and their births."""
        return {"born": self.store.born[local]}


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
    first, end = int(ends_of_all[:, 0].min()), int(ends_of_all[:, 1].max())
    for begin in range(first, end, _WINDOW):
        mine = slice(*np.searchsorted(born, [begin, begin + _WINDOW]))
        own = np.stack([(born[mine] - begin).astype(np.int32), slots[mine]])
        window = np.full(min(_WINDOW, end - begin), _NOBODY, dtype=np.int32)
        for place, slot in (yield [own] * shards):
            window[place] = slot
        found.append(window[window != _NOBODY])
    return np.concatenate(found)
