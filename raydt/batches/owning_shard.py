"""A shard that owns rows: how it gets them, answers for them, writes them for a state and reads them back.

It has the columns of its feature groups of every row, by slot (``rows_on_shards``), and ids, labels, weights and births
of the rows in its buckets, by local slot (``owned_rows``). What a model has of the rows is up to the learner.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from raydt.arrays.types import Arrays, Int32s, Ints, Slots
from raydt.batches.rows_on_shards import ShardWithRows
from raydt.examples.features import Features
from raydt.examples.owned_rows import NEVER, OwnedRows, slots_in_order
from raydt.examples.row_owners import RowOwners, are_in, buckets_of, parts_for
from raydt.examples.weights import filled, unless_equal
from raydt.exchange.meeting import Meeting, Steps
from raydt.exchange.messages import MET, Buckets, Payload
from raydt.exchange.snapshot import STORED
from raydt.messages import message

Rows = TypeVar("Rows", bound=OwnedRows)

#: Bytes of what a model has of the rows in a part of a state: who writes or reads it needs twice as much.
_PIECE = 1 << 26
_NO_SLOTS: Slots = np.empty(0, dtype=np.int32)
_NO_BIRTHS = np.empty(0, dtype=np.int64)
#: Bytes of a row in a part of a state before there is a model, with those in segments.
_ROW = 32


class OwningShard(ShardWithRows, Generic[Rows]):
    """A shard with rows of its own."""

    _owners: RowOwners
    _index: int

    def __init__(self, features: Features, groups: Ints) -> None:
        super().__init__(features, groups)
        self._meeting = Meeting()
        self._rows: Rows | None = None  # none before the coordinator has said who owns what
        self._saved: Mapping[Any, dict[str, Any]] = {}  # a state that was restored, until all of it is used
        # Of a snapshot that is about to be set aside: own rows, where its new rows begin, and these, of all owners.
        self._of_state, self._since, self._slots_of_new = _NO_SLOTS, 0, _NO_SLOTS

    @abstractmethod
    def _no_rows(self) -> Rows:
        """Return rows of which there are none yet."""

    @property
    def rows_here(self) -> Rows:
        """The own rows."""
        assert self._rows is not None
        return self._rows

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request: what yields parts for other shards begins a pass."""
        if method == MET:
            return self._meeting.receive(**payload)
        if self._rows is not None and method in self._rows.ANSWERS:
            return getattr(self._rows, method)(**payload)
        answer = super().handle(method, payload)
        return self._meeting.begin(answer) if isinstance(answer, Generator) else answer

    def restore(self, state: Mapping[Any, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... until the coordinator says which; parts by buckets are kept for later.

        These are read when they are asked for.
        """
        self._saved = state if any(isinstance(part, Buckets) for part in state) else {}
        self._held.restore(state)

    def _on_own(self, shards: int, index: int, slots: Any = None, rows: Any = None) -> Int32s:
        """Begin as one of so many owners, with rows of a state, whose features move to ``slots``; returns counts."""
        self._index, self._owners = index, RowOwners(shards)
        self._rows = self._no_rows()
        if rows is not None:
            self._held.place(slots)
            self._rows.fill(rows)
            if any(name in rows for name in self._rows.LATER):  # else parts that were restored have them
                self._saved = {self._owners.buckets(index): rows}
        return self._rows.counts()

    def _on_read_own(self, shards: int, index: int) -> Steps[Int32s]:
        """Begin as one of so many owners with the own rows of the parts that were restored; returns their counts."""
        self._on_own(shards, index)
        mine, rows, gone, found = self._owners.buckets(index), self.rows_here, [_NO_BIRTHS], list[dict[str, Any]]()
        later = False
        for key in self._parts_of(mine):
            part = self._saved[key]
            own, later = are_in(part["id"], mine), any(name in part for name in rows.LATER)
            found.append({name: part[name][own] for name in rows.COLUMNS})
            found[-1]["weight"] = filled(part.get("weight"), len(own))[own]
            if key.begin in mine:  # of those that nobody has, one owner tells
                gone.append(np.setdiff1d(part[STORED], part["born"], assume_unique=True))
        if found:
            own_rows = {name: np.concatenate([part.pop(name) for part in found]) for name in (*rows.COLUMNS, "weight")}
            if unless_equal(own_rows["weight"]) is None:
                own_rows.pop("weight")
            rows.fill(own_rows)
        if not later:
            self._saved = {}  # all of it is used
        local = rows.in_order_of_birth()
        order = slots_in_order(rows.store.born[local], rows.slots(local), np.concatenate(gone), shards)
        slots = yield from order
        if len(self.groups) and len(slots) != self._held.used:
            raise ValueError(message("models.uneven", columns="X", examples=len(slots)))
        self._held.place(slots)
        return rows.counts()

    def _parts_of(self, buckets: Buckets) -> list[Buckets]:
        """Return the parts of a restored state that have rows of some buckets."""
        return parts_for([buckets], [key for key in self._saved if isinstance(key, Buckets)])

    def delete_oldest(self, slot: int, born: int) -> Steps[dict[str, Any]]:
        """Delete the oldest of the rows that the shards have found, each of its own (:meth:`OwnedRows.oldest`).

        Returns its slot where that is, its birth, and the counts of the own rows.
        """
        rows, births = self.rows_here, (yield [np.array([born])] * self._owners.shards)
        own = born != NEVER and born == min(int(theirs[0]) for theirs in births)
        if own:
            rows.delete(slot)
        return {"slots": rows.slots(np.array([slot][:own], dtype=np.int32)), "born": born, "counts": rows.counts()}

    # ---------------------------------------------------------------- digests and states

    def _on_hash_rows(self, weighted: bool) -> dict[str, Any]:
        """Return the hashes of the own rows (``BucketTree.hashes``), and the columns of those that wait to be deleted.

        ``weighted``: not all rows of all owners have a weight of 1.
        """
        rows, gone = self.rows_here, self.rows_here.pending.deletes
        hashes = rows.digest.hashes(self._owners.buckets(self._index), self._hashed, weighted)
        leaving = {"id": rows.store.id[gone], **self._hashed(gone)}
        return {**hashes, "leaving": leaving | {"weight": rows.weights(gone)} if weighted else leaving}

    def _hashed(self, local: Slots) -> Arrays:
        """Return what the digest has of some of the own rows, beside ids and weights."""
        return {"y": self.rows_here.store.y[local]}

    def _on_order(self, since: int) -> Steps[None]:
        """Find with the other shards the slots of the rows born from ``since`` on, for the snapshot that follows."""
        rows, local = self.rows_here, self.rows_here.in_order_of_birth()
        self._of_state, self._since = local, since
        born = rows.store.born[local]
        new = np.searchsorted(born, since)
        slots = slots_in_order(born[new:], rows.slots(local[new:]), _NO_BIRTHS, self._owners.shards)
        self._slots_of_new = yield from slots

    def rows(self, slots: Slots) -> dict[Any, dict[str, Any]]:
        """Features of the new rows of a snapshot, and what else never changes of the own ones."""
        rows: dict[Any, dict[str, Any]] = {**super().rows(self._slots_of_new if self._rows is not None else slots)}
        for piece, local in self._pieces():
            rows[piece] = self.rows_here.columns(
                local[np.searchsorted(self.rows_here.store.born[local], self._since) :]
            )
        return rows

    def state(self, slots: Slots) -> dict[int | Buckets, dict[str, Any]]:
        """Return births and waiting updates of the own rows, and leaves and ledger, for a state."""
        state: dict[int | Buckets, dict[str, Any]] = {}
        for piece, local in self._pieces():
            state[piece] = {**self.rows_here.changing(local), **self._of_model(local)}
        self._of_state = self._slots_of_new = _NO_SLOTS
        return state

    def _of_model(self, local: Slots) -> dict[str, Any]:
        """Return what the model has of some of the own rows."""
        return {}

    def _width_of_model(self) -> int:
        """Return the bytes of that, of a row."""
        return 0

    def _pieces(self) -> Iterator[tuple[Buckets, Slots]]:
        """Yield parts of the own buckets, and the local slots of their rows in the order of birth."""
        if self._rows is None:
            return
        local, width = self._of_state, _ROW + self._width_of_model()
        bucket = buckets_of(self._rows.store.id[local])
        for piece in self._owners.pieces(self._index, -(-len(local) * width // _PIECE)):
            yield piece, local[(bucket >= piece.begin) & (bucket < piece.end)]
