"""Ids, labels and births of the live examples where shards own whole rows: a store for each owner.

What an update does depends on the updates of the same id only, so every owner decides about its own; the first update
that is refused is the first of any. Slots are those of :class:`~raydt.examples.row_owners.RowOwners`.

Invariant: decisions are those of one :class:`~raydt.examples.store.ExampleStore`, whatever the number of shards; only
the slots are others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.examples.admission import Admission, nothing_admitted
from raydt.examples.row_owners import RowOwners
from raydt.examples.store import ExampleStore
from raydt.examples.targets import Targets
from raydt.examples.updates import DELETE, DELETE_VALUE, DUPLICATE_ID, INSERT, QUERY, UNKNOWN_ID
from raydt.examples.weights import Weighting, Weights

Ids = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]


def first_refused(store: ExampleStore, op: npt.NDArray[np.int8], key: Ids) -> int:
    """Return the position of the first update that a store would refuse, their number if there is none.

    There are no queries and no deletions by value. O(m log m), without an effect.
    """
    order = np.argsort(key, kind="stable")
    op, key = op[order], key[order]
    begins = np.ones(len(key), dtype=np.bool_)
    begins[1:] = key[1:] != key[:-1]
    live = np.empty(len(key), dtype=np.bool_)  # before each update, if those before it are admitted
    live[1:] = op[:-1] != DELETE
    live[begins] = store.find(key[begins]) >= 0
    return int(order[(op == INSERT) == live].min(initial=len(key)))


class OwnedStore:
    """The live examples by slot; attributes and methods as of ``ExampleStore``, without features."""

    def __init__(self, owners: RowOwners, target_dtype: np.dtype[Any]) -> None:
        self._owners = owners
        self._stores = [ExampleStore(0, None, target_dtype) for _ in range(owners.shards)]
        self.changes = 0
        self.id, self.born = _Column(self, "id", np.dtype(np.int64)), _Column(self, "born", np.dtype(np.int64))
        self.y = _Column(self, "y", target_dtype)
        self.weighting = Weighting(False)  #: What examples count, of which their owners are told.

    @property
    def live(self) -> int:
        """Number of live examples."""
        return sum(store.live for store in self._stores)

    @property
    def capacity(self) -> int:
        """Slots of arrays that are kept with this store: none, since shards keep them."""
        return 0

    @property
    def filled(self) -> int:
        """How often all examples were replaced."""
        return self._stores[0].filled

    def reserve_for(self, ids: Ids) -> None:
        """Make room for an example of each id."""
        for store, more in zip(self._stores, self._counts(self._owners.of(ids)), strict=True):
            store.reserve(more)

    def admit(self, op: npt.NDArray[np.int8], key: Ids, begin: int, skip: bool, admission: Admission) -> int:
        """As :meth:`ExampleStore.admit`."""
        by_value = np.flatnonzero(op[begin:] == DELETE_VALUE)
        stop = begin + int(by_value[0]) if len(by_value) else len(op)
        named = begin + np.flatnonzero(op[begin:stop] != QUERY)
        owner = self._owners.of(key[named])
        owned = [named[owner == shard] for shard in range(len(self._stores))]
        if not skip:
            firsts = [first_refused(store, op[own], key[own]) for store, own in zip(self._stores, owned, strict=True)]
            refused = min(
                (int(own[first]) for own, first in zip(owned, firsts, strict=True) if first < len(own)), default=stop
            )
            if refused < stop:
                stop, owned = refused, [own[own < refused] for own in owned]
                admission.fault[stop] = DUPLICATE_ID if op[stop] == INSERT else UNKNOWN_ID
        if stop > begin:
            self.changes += 1  # before, so that a change that is broken off is counted
        for shard, (store, own) in enumerate(zip(self._stores, owned, strict=True)):
            found = nothing_admitted(op[own])
            store.admit(op[own], key[own], 0, skip, found)
            for ours, local in ((admission.old, found.old), (admission.new, found.new)):
                ours[own] = np.where(local >= 0, self._owners.slots(local, shard), -1)
            admission.fault[own] = found.fault
        return stop

    def discard(self, slot: int) -> None:
        """Take one slot out of the map (deletion by value); free it later with :meth:`release`."""
        self.changes += 1
        where = np.array([slot], dtype=np.int32)
        self._stores[int(self._owners.shard_of(where)[0])].discard(int(self._owners.local(where)[0]))

    def release(self, slots: Slots) -> None:
        """Put slots on the free lists."""
        for store, (_, local) in zip(self._stores, self.by_owner(slots), strict=True):
            store.release(local)

    def find(self, keys: Ids) -> Slots:
        """Slot of each id, -1 where it is not live."""
        owner, slots = self._owners.of(keys), np.full(len(keys), -1, dtype=np.int32)
        for shard, store in enumerate(self._stores):
            own = np.flatnonzero(owner == shard)
            local = store.find(keys[own])
            slots[own] = np.where(local >= 0, self._owners.slots(local, shard), -1)
        return slots

    def slots(self) -> Slots:
        """Live slots in ascending order."""
        found = [self._owners.slots(store.slots(), shard) for shard, store in enumerate(self._stores)]
        return np.sort(np.concatenate(found))

    def in_order_of_birth(self) -> Slots:
        """Live slots, the oldest example first."""
        slots = self.slots()
        return slots[np.argsort(self.born[slots], kind="stable")]

    def fill(self, key: Ids, y: Targets, born: Ids, listed: npt.NDArray[np.bool_]) -> None:
        """Replace everything by examples in :meth:`first_slots`; only those ``listed`` are live."""
        owner = self._owners.of(key)
        for shard, store in enumerate(self._stores):
            own = owner == shard
            store.fill(key[own], y[own], born[own], listed[own])

    def first_slots(self, ids: Ids) -> Slots:
        """Return the slots of examples that :meth:`fill` has put here."""
        return self._owners.first_slots(ids)

    @property
    def weighted(self) -> bool:
        """Whether some example has, or had, another weight than 1."""
        return any(store.weighted for store in self._stores)

    def weights(self, slots: Slots) -> Weights:
        """Weights of the examples in some slots."""
        weights = np.empty(len(slots), dtype=np.uint32)
        for store, (positions, local) in zip(self._stores, self.by_owner(slots), strict=True):
            weights[positions] = store.weights(local)
        return weights

    def put_weights(self, slots: Slots | slice, weights: Weights | None) -> None:
        """Enter the weights of new examples, None if all are 1."""
        if isinstance(slots, slice):
            slots = np.arange(slots.start, slots.stop, dtype=np.int32)
        for store, (positions, local) in zip(self._stores, self.by_owner(slots), strict=True):
            store.put_weights(local, None if weights is None else weights[positions])

    def rows(self, slots: Slots) -> dict[str, npt.NDArray[Any]]:
        """Return what owners of rows are told: ``slots``, ``ids``, ``y`` and, unless all count 1, ``weight``."""
        told = {"slots": slots, "ids": self.id[slots], "y": self.y[slots]}
        counted = self.weighting.of_slots(self, slots)
        return told if counted is None else told | {"weight": counted}

    def by_owner(self, slots: Slots) -> list[tuple[npt.NDArray[np.intp], Slots]]:
        """Return, for each owner, the positions of its own ones of some slots, and these as local slots."""
        shard, local = self._owners.shard_of(slots), self._owners.local(slots)
        own = [np.flatnonzero(shard == index) for index in range(len(self._stores))]
        return [(positions, local[positions]) for positions in own]

    def _counts(self, owner: npt.NDArray[np.int64]) -> list[int]:
        counts: list[int] = np.bincount(owner, minlength=len(self._stores)).tolist()
        return counts


class _Column:
    """One number of every example, by slot."""

    def __init__(self, store: OwnedStore, name: str, dtype: np.dtype[Any]) -> None:
        self._store, self._name, self.dtype = store, name, dtype

    def __getitem__(self, slots: Slots) -> npt.NDArray[Any]:
        values = np.empty(len(slots), dtype=self.dtype)
        for store, (positions, local) in zip(self._store._stores, self._store.by_owner(slots), strict=True):
            values[positions] = getattr(store, self._name)[local]
        return values

    def __setitem__(self, slots: Slots | slice, values: npt.NDArray[Any]) -> None:
        if isinstance(slots, slice):
            slots = np.arange(slots.start, slots.stop, dtype=np.int32)
        for store, (positions, local) in zip(self._store._stores, self._store.by_owner(slots), strict=True):
            getattr(store, self._name)[local] = values[positions]
