"""An owner's half of rows that shards own: ids, labels, weights and births of its examples, none at the coordinator.

An owner decides about the updates of its own ids, which the coordinator (:mod:`~raydt.examples.owned_rows`) sends it.
A learner whose updates wait for a batch of its own, or which keeps more of an example, derives its rows from
:class:`OwnedRows`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import extended
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Int32s, Ints, Slots
from raydt.examples.digest import BucketDigest, Part, joined_part
from raydt.examples.row_owners import RowOwners
from raydt.examples.store import ExampleStore, SlotColumns
from raydt.examples.updates import (
    CARRIES_ROW,
    CODES,
    DELETE_VALUE,
    QUERY,
    UNIT,
    UNKNOWN_VALUE,
    Admission,
    Targets,
    UpdateBatch,
    Weights,
    filled,
    nothing_admitted,
    unless_equal,
)
from raydt.exchange.links import Steps, together
from raydt.exchange.meetings import AllGather
from raydt.exchange.messages import OWNED, Ask, Exchange, Payload, Tell, living

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
        """Count the own rows of a state in segments (:func:`raydt.exchange.messages.living`)."""
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
    found, ends_of_all = [np.empty(0, dtype=np.int32)], np.array((yield AllGather(ends, shards)))
    first, end = int(ends_of_all[:, 0].min()), int(ends_of_all[:, 1].max())
    for begin in range(first, end, _WINDOW):
        mine = slice(*np.searchsorted(born, [begin, begin + _WINDOW]))
        own = np.stack([(born[mine] - begin).astype(np.int32), slots[mine]])
        window = np.full(min(_WINDOW, end - begin), _NOBODY, dtype=np.int32)
        for place, slot in (yield AllGather(own, shards)):
            window[place] = slot
        found.append(window[window != _NOBODY])
    return np.concatenate(found)


# The coordinator's half of rows that shards own: how many there are, who owns and hashes them, who admits what.
#
# What an update does depends on the updates of the same id only, so every owner decides about its own
# (:mod:`~raydt.examples.owned_rows`). The coordinator sends each its updates of a batch and gets their slots, in one
# round; the first update that is refused is the first of any owner's, and the others then take back what they have done
# after it.
#
# Invariant: decisions are those of one :class:`~raydt.examples.store.ExampleStore`, whatever the number of shards; only
# the slots are others (:class:`~raydt.examples.row_owners.RowOwners`).


class OwnedStore:
    """Numbers of examples, and their owners.

    ``live``: live examples. ``inserts``, ``deletes``: those that wait for the end of a batch D'. ``uneven``: those that
    have another weight than 1, of all whose slots are not free. ``births``: of the examples that updates of the batch
    under way have deleted, by the update's position in the batch, if the owners tell them.
    """

    def __init__(self, rows: type[OwnedRows], shards: int) -> None:
        self.owners, self._rows = RowOwners(shards), rows
        self.live = self.inserts = self.deletes = self.uneven = 0
        self._leaving = 0  # of the uneven ones, those whose slots are free once the batch is over
        self.births: Ints = np.empty(0, dtype=np.int64)
        #: How often updates may have changed some examples.
        self.changes = 0
        self._emptied = False  # earlier batches have emptied slots that owners have not released
        self._known = self._restored = False  # the shards know which rows are theirs; of a state
        self._state: Arrays | None = None  # by row, until owners have it; none, if they read it themselves
        self._hashes: Sequence[Mapping[str, Any]] | None = None

    # ---------------------------------------------------------------- updates

    def reserve(self, extra: int) -> None:
        """Nothing: each owner makes room before it admits, and which slots are used is known then."""

    def admit(
        self,
        batch: UpdateBatch,
        run: slice,
        skip: bool,
        admission: Admission,
        make_room: Callable[[int], None] | None = None,
    ) -> Exchange[int]:
        """Admit updates of a run, as :meth:`ExampleStore.admit`; returns where it stopped.

        The owners have labels and births of the new examples then. One round; two if an update is refused and it is not
        skipped, or an owner, or the coordinator, has no memory: then nobody has taken any of them, and it is a
        MemoryError. ``make_room`` does so for a number of slots, of whoever keeps something by slot.
        """
        begin, stop = int(run.start), int(run.stop)
        by_value = np.flatnonzero(batch.op[begin:stop] == DELETE_VALUE)
        stop = begin + int(by_value[0]) if len(by_value) else stop
        named = begin + np.flatnonzero(batch.op[begin:stop] != QUERY)
        if not len(named):
            return stop
        owner = self.owners.of(batch.id[named])
        owned = [named[owner == shard] for shard in range(self.owners.shards)]
        self.changes += 1  # before, so that a change that is broken off is counted
        replies = yield Ask(
            "admit", {"skip": skip, "release": self.take_emptied()}, [_sent(batch, own, admission) for own in owned]
        )
        ends = [int(reply["stop"]) for reply in replies]
        if any(reply["lacks"] for reply in replies) or not self._has_room_for(replies, make_room):
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
            if "born" in reply:
                deletes = own[admission.old[own] >= 0]
                self.births[deletes] = reply["born"][: len(deletes)]
            decided = whole[whole <= stop]  # with the one that is refused
            admission.fault[decided] = reply["fault"][: len(decided)]
        self.take(counts)
        return stop

    def _has_room_for(self, replies: Sequence[dict[str, Any]], make_room: Callable[[int], None] | None) -> bool:
        """Make room for the slots that owners have given; False if there is no memory."""
        if make_room is None:
            return True
        last = [self.owners.slots(reply["new"].max(initial=-1, keepdims=True), s) for s, reply in enumerate(replies)]
        try:
            make_room(1 + int(np.max(last)))
        except MemoryError:
            return False
        return True

    def delete(self, method: str, payload: Payload, each: Any, admission: Admission, position: int) -> Exchange[None]:
        """Have the shards find the oldest example that equals that of an update, by a pass, and its owner delete it.

        Each returns what ``OwningShard.delete_oldest`` does.
        """
        self.changes += 1  # before, so that a change that is broken off is counted
        ended = yield from together(method, payload, each)
        self.take([of_shard.result["counts"] for of_shard in ended])
        found = [of_shard.result for of_shard in ended if len(of_shard.result["slots"])]
        if not found:
            self.changes -= 1
            admission.fault[position] = UNKNOWN_VALUE
            return
        admission.old[position] = found[0]["slots"][0]
        if len(self.births):
            self.births[position] = found[0]["born"]

    def release(self, slots: Slots) -> None:
        """Have the owners release the slots that a batch has emptied, with the first request of the next one."""
        self._emptied = self._emptied or len(slots) > 0
        self._forget_leaving()

    def take_emptied(self) -> bool:
        """Return True if the next request, the first of a batch that deletes, has the owners release slots first."""
        emptied, self._emptied = self._emptied, False
        return emptied

    def end_batch(self) -> Exchange[None]:
        """Have nothing wait any more: slots of deleted examples are free."""
        yield Tell("end_batch", {})
        self.inserts = self.deletes = 0
        self._forget_leaving()

    def _forget_leaving(self) -> None:
        self.uneven, self._leaving = self.uneven - self._leaving, 0

    def take(self, counts: Sequence[Any]) -> None:
        """Take note of how many examples the owners have (:meth:`OwnedRows.counts`)."""
        self.live, self.inserts, self.deletes, self.uneven, self._leaving = np.sum(counts, axis=0).tolist()

    # ---------------------------------------------------------------- states and digests

    def counted(self) -> Ints:
        """Return the examples of a state as numbers, int64, shape (3,): live, to be inserted, to be deleted."""
        return np.array([self.live, self.inserts, self.deletes])

    def restore(self, state: Arrays) -> None:
        """Continue with the examples of a saved state, once :meth:`begin` has told the owners."""
        self.changes += 1
        self._known, self._restored, self._state = False, True, None
        if OWNED not in state:
            names = *self._rows.COLUMNS, *self._rows.LATER, "weight"
            self._state = {name: state[name] for name in names if name in state}
        self.take([[*(state[OWNED] if OWNED in state else self._rows.counts_of(state)), 0, 0]])

    def begin(self) -> Exchange[list[int] | None]:
        """Tell the shards which rows are theirs, once; after a restore, they take those of the state, or read them.

        Returns how many each then has, if there was a restore.
        """
        if self._known:
            return None
        shards, state = self.owners.shards, self._state
        given, each = dict[str, Any](shards=shards), [dict[str, Any](index=index) for index in range(shards)]
        if self._restored and state is None:
            counts = [of_shard.result for of_shard in (yield from together("read_own", given, each))]
        else:
            if state is not None:
                owner, given["slots"] = self.owners.of(state["id"]), self.owners.first_slots(state["id"])
                for index, payload in enumerate(each):
                    payload["rows"] = {name: array[owner == index] for name, array in state.items()}
            counts = yield Ask("own", given, each)
        self.take(counts)
        restored, self._known, self._restored, self._state = self._restored, True, False, None
        return [int(live + deletes) for live, _, deletes, *_ in counts] if restored else None

    def gather_hashes(self, former: bool = False) -> Exchange[None]:
        """Have the owners hash their rows; ``former``: as of :meth:`BatchCoordinator.digest`."""
        self._hashes = yield Ask("hash_rows", {"weighted": self.uneven > 0, **({"former": True} if former else {})})

    def hashed(self) -> tuple[Arrays, Part]:
        """Return the columns of examples that wait to be deleted, and the part of all, after :meth:`gather_hashes`."""
        assert self._hashes is not None, "gather_hashes comes first"
        hashes, self._hashes = self._hashes, None
        return joined_part(hashes)


def _sent(batch: UpdateBatch, own: npt.NDArray[np.intp], admission: Admission) -> dict[str, Any]:
    """Return what an owner gets of its updates: ``y`` and ``weight`` are of those that carry a row."""
    op = batch.op[own]
    rows = admission.row[own[CARRIES_ROW[op]]]
    weight = None if batch.weight is None else batch.weight[rows]
    return {"op": op, "key": batch.id[own], "y": batch.y[rows], "weight": weight, "born": batch.start + own}


# The coordinator's store where shards own the rows, of a learner whose kernels need something of each row by slot.
#
# Ids and births are with the owners (:mod:`~raydt.examples.owned_rows`). What is here grows with the rows, and 10^9 of
# them have to fit in one process.

#: Class codes of at most so many classes, a byte each.
_FEW_CODES, _FEW = np.dtype(np.uint8), 255


class OwnedColumns(SlotColumns, OwnedStore):
    """Labels, weights and, as far as a budget goes, features by slot; codes of few classes take a byte each."""

    #: By slot nothing: births of examples come with their deletion (:attr:`OwnedStore.births`).
    born: Ints = np.empty(0, dtype=np.int64)

    def __init__(self, rows: type[OwnedRows], shards: int, *columns: Any) -> None:
        OwnedStore.__init__(self, rows, shards)
        SlotColumns.__init__(self, *columns)

    def _clear(self) -> None:
        super()._clear()
        self._used = 0
        if self.target_dtype == CODES:
            self.y = self.y.astype(_FEW_CODES)

    def hold(self, classes: int) -> None:
        """Have labels of so many classes fit."""
        if self.y.dtype == _FEW_CODES and classes > _FEW:
            self.y = self.y.astype(CODES)

    @property
    def used(self) -> int:
        """Slots that have had an example, and free ones between: those before this one."""
        return self._used

    def grown(self, array: AnyArray, capacity: int) -> AnyArray:
        """As of all stores, but the former array is used up: an update that is broken off is admitted already."""
        return extended(array, capacity)

    def make_room(self, slots: int) -> None:
        """Make room for so many slots, of which the last may be used."""
        had = 0 if self.weight is None else len(self.weight)
        super().make_room(slots)
        if self.weight is not None:
            self.weight[had:] = UNIT  # a slot without a row looks like one of weight 1, which is in a leaf
        self._used = max(self._used, slots)

    def enter(self, slots: Any, y: Targets, born: Ints, weights: Weights | None) -> None:
        """Record labels and weights of examples that were admitted; their owners have the births, too."""
        self.label(slots, y, weights)

    def release(self, slots: Slots) -> None:
        """Have the owners release slots, too; a free one looks like a row of weight 1, which is in a leaf."""
        if self.weight is not None:
            self.weight[slots] = UNIT
        OwnedStore.release(self, slots)

    def restore(self, state: Arrays) -> None:
        """Begin again with the examples of a state, whose owners say later what there is by slot."""
        self._clear()
        OwnedStore.restore(self, state)
