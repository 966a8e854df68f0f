"""What a shard of the GBDT has of the rows that it owns: how it gets them, writes them for a state and reads them back.

Not here: what it does with them (``shard``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from raydt.arrays.types import Bools, Ints, Slots
from raydt.batches.rows_on_shards import RowsOnShards, ShardWithRows
from raydt.examples.features import Features
from raydt.examples.row_owners import RowOwners, are_in, buckets_of, parts_for
from raydt.examples.weights import filled, unless_equal
from raydt.exchange.meeting import Steps
from raydt.exchange.messages import Buckets
from raydt.exchange.snapshot import STORED
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.owned_rows import COLUMNS, OwnedRows, slots_in_order
from raydt.learners.gbdt.row_shard import RowShard
from raydt.messages import message

#: Rows that are copied at once.
_COPIED = 1 << 16
#: Bytes of leaves and ledger in a part of a state: who writes or reads it needs twice as much.
_PIECE = 1 << 26
_NO_SLOTS: Slots = np.empty(0, dtype=np.int32)
_NO_BIRTHS = np.empty(0, dtype=np.int64)
#: Bytes of a row in a part of a state before there is a model, with those in segments.
_ROW = 32


class ShardOfOwner(ShardWithRows):
    """A shard with rows of its own, by local slot (``RowOwners``), and their leaves, ledger and drift."""

    _owners: RowOwners
    _layout: RowsOnShards
    _index: int

    def __init__(self, options: GBDTOptions, features: Features, groups: Ints) -> None:
        super().__init__(features, groups)
        self._options = options
        self._own: RowShard | None = None
        self._rows: OwnedRows | None = None  # none where the coordinator has all rows
        self._saved: Mapping[Any, dict[str, Any]] = {}  # a state that was restored, until all of it is used
        self._encoded = _NO_SLOTS  # the first own rows of this model
        # Of a snapshot that is about to be set aside: own rows, where its new rows begin, and these, of all owners.
        self._of_state, self._since, self._slots_of_new = _NO_SLOTS, 0, _NO_SLOTS

    @property
    def rows_here(self) -> OwnedRows:
        """The own rows."""
        assert self._rows is not None
        return self._rows

    @property
    def own(self) -> RowShard:
        """The model of the own rows, once there is one."""
        assert self._own is not None
        return self._own

    def _in_model(self, local: Slots) -> Bools:
        """Whether the rows in some local slots are in the model, and do not wait to be inserted."""
        e = self.own.ensemble
        held = local < e.leaf.shape[1]
        held[held] = e.leaf[0, local[held]] != e.absent
        return held

    def _on_own(self, shards: int, index: int, factors: Any, slots: Any = None, rows: Any = None) -> None:
        """Begin as one of so many owners; features of the rows of a state, of any owner, are moved to ``slots``."""
        self._layout, self._index = RowsOnShards(self._features, shards), index
        self._owners = owners = RowOwners(shards)
        self._rows = OwnedRows(owners, index, np.dtype(np.float64 if self._options.regression else np.int32))
        if rows is not None:
            self._held.place(slots)
            self._rows.fill(rows)
        self._rows.balance(factors)

    def _on_read_own(self, shards: int, index: int, factors: Any) -> Steps[dict[str, Any]]:
        """Begin as one of so many owners with the own rows of the parts that were restored.

        Returns how many there are, how many have another weight than 1, and the largest label that waits.
        """
        self._on_own(shards, index, factors)
        mine, rows, gone, found = self._owners.buckets(index), self.rows_here, [_NO_BIRTHS], list[dict[str, Any]]()
        trained = False
        for key in self._parts_of(mine):
            part = self._saved[key]
            own, trained = are_in(part["id"], mine), "leaf" in part
            found.append({name: part[name][own] for name in COLUMNS})
            found[-1]["weight"] = filled(part.get("weight"), len(own))[own]
            if key.begin in mine:  # of those that nobody has, one owner tells
                gone.append(np.setdiff1d(part[STORED], part["born"], assume_unique=True))
        if found:
            own_rows = {name: np.concatenate([part.pop(name) for part in found]) for name in (*COLUMNS, "weight")}
            if unless_equal(own_rows["weight"]) is None:
                own_rows.pop("weight")
            rows.fill(own_rows)
        if not trained:
            self._saved = {}  # all of it is used
        local = rows.in_order_of_birth()
        order = slots_in_order(rows.store.born[local], rows.slots(local), np.concatenate(gone), shards)
        slots = yield from order
        if len(self.groups) and len(slots) != self._held.used:
            raise ValueError(message("models.uneven", columns="X", examples=len(slots)))
        self._held.place(slots)
        rows.balance(factors)
        waiting = rows.store.y[rows.pending.inserts]
        return {"counts": rows.counts(), "uneven": rows.uneven(), "largest": waiting.max(initial=0)}

    def _parts_of(self, buckets: Buckets) -> list[Buckets]:
        """Return the parts of a restored state that have rows of some buckets."""
        return parts_for([buckets], [key for key in self._saved if isinstance(key, Buckets)])

    # ---------------------------------------------------------------- states

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
        if self._rows is None:
            return super().rows(slots)
        rows: dict[Any, dict[str, Any]] = {**super().rows(self._slots_of_new)}
        for piece, local in self._pieces():
            rows[piece] = self._rows.columns(local[np.searchsorted(self._rows.store.born[local], self._since) :])
        return rows

    def state(self, slots: Slots) -> dict[int | Buckets, dict[str, Any]]:
        """Births of the own rows, which wait and, of a model, leaves, ledger, drift: histograms follow from these."""
        if self._rows is None:
            return {}
        state: dict[int | Buckets, dict[str, Any]] = {}
        for piece, local in self._pieces():
            state[piece] = {"born": self._rows.store.born[local], "pending": self._rows.pending.status(local)}
            if self._own is not None:
                state[piece] |= self._own.of_rows(local, self._in_model(local))
        self._of_state = self._slots_of_new = _NO_SLOTS
        return state

    def _pieces(self) -> Iterator[tuple[Buckets, Slots]]:
        """Yield parts of the own buckets, and the local slots of their rows in the order of birth."""
        local, width = self._of_state, _ROW
        if self._own is not None:
            e = self._own.ensemble
            width += len(e.leaf) * (e.leaf.itemsize + e.ledger.itemsize)
        bucket = buckets_of(self.rows_here.store.id[local])
        for piece in self._owners.pieces(self._index, -(-len(local) * width // _PIECE)):
            yield piece, local[(bucket >= piece.begin) & (bucket < piece.end)]

    def _on_restore_rows(self, trees: Any, rows: Any = None) -> None:
        """Take trees, and leaves, ledger and drift of the own rows, which are given by local slot, or were restored."""
        e = self.own.ensemble
        own: tuple[Any, ...] = e.trees
        for array, theirs in zip(own, trees, strict=True):
            array[:] = theirs
        if rows is not None:
            local = rows["local"]
            e.leaf[:, local], e.ledger[:, local], e.drift[local] = rows["leaf"], rows["ledger"], rows["drift"]
        else:
            self._take_saved()
        self._saved, self._encoded = {}, _NO_SLOTS

    def _take_saved(self) -> None:
        """Take leaves, ledger and drift of the encoded rows from the parts of the state, by id."""
        e, mine = self.own.ensemble, self._owners.buckets(self._index)
        ids = self.rows_here.store.id[self._encoded]
        order = np.argsort(ids)
        local, ids = self._encoded[order], ids[order]
        for key in self._parts_of(mine):
            part = self._saved[key]
            rows = np.flatnonzero(are_in(part["id"], mine) & (part["leaf"][:, 0] != e.absent))
            for begin in range(0, len(rows), _COPIED):
                some = rows[begin : begin + _COPIED]
                slots = local[np.searchsorted(ids, part["id"][some])]
                e.leaf[:, slots], e.ledger[:, slots] = part["leaf"][some].T, part["ledger"][some].T
                e.drift[slots] = part["drift"][some]
