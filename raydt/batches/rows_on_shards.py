"""Rows that are kept by the shards only: as kernels take them, on their way from the coordinator, and on a shard.

A shard has of every row the columns and the sparse features of its feature groups, in the slot that the coordinator
gave the row. Whatever is asked of whole rows goes through here, so that learners need not know who has what.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import (
    RaggedRows,
    RaggedStore,
    SparseRows,
    as_slice,
    blocks,
    equal_rows,
    grown,
    merged,
    put_rows,
    trimmed,
)
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Int32s, Ints, Slots
from raydt.examples.digest import BucketDigest, Columns
from raydt.examples.owned_rows import NEVER, OwnedRows, slots_in_order
from raydt.examples.row_owners import RowOwners, are_in, buckets_of, parts_for
from raydt.examples.updates import Features, filled, unless_equal
from raydt.exchange.links import Meeting, Steps
from raydt.exchange.meetings import AllGather
from raydt.exchange.messages import MET, STORED, Ask, Buckets, Exchange, FeatureReader, Payload, Tell, fault
from raydt.messages import message

#: Rows that are compared with one at once.
_COMPARED = 1 << 14


class RowBlock(NamedTuple):
    """n rows: ``X``, shape (n, dense features), and the sparse features that are 1 (``indptr``, ``indices``)."""

    X: Floats
    indptr: Ints
    indices: Int32s

    @classmethod
    def of(cls, X: Floats, sparse: SparseRows | None = None) -> RowBlock:
        """Rows of a matrix and, if there are some, its sparse features."""
        sparse = sparse or SparseRows.empty(0, len(X))
        return cls(np.ascontiguousarray(X, dtype=np.float64), sparse.indptr, sparse.indices)

    @classmethod
    def none(cls, features: Features) -> RowBlock:
        """No rows."""
        return cls.of(np.empty((0, len(features.names))))

    def sparse(self, n_features: int) -> SparseRows:
        """The sparse features alone."""
        return SparseRows(self.indptr, self.indices, n_features)

    def take(self, rows: npt.NDArray[np.integer] | Bools) -> RowBlock:
        """Some of the rows."""
        return RowBlock.of(self.X[rows], self.sparse(0)[rows])


class RowsOnShards:
    """The coordinator's half: who has what."""

    def __init__(self, features: Features, shards: int) -> None:
        self._features, self._groups = features, features.assign(shards)

    @cached_property  # most of very many models never ask
    def columns(self) -> list[Ints]:
        """Columns of ``X`` that each shard owns."""
        return [self._features.columns_of(groups) for groups in self._groups]

    @cached_property
    def _shard_of_groups(self) -> Ints:
        return np.repeat(np.arange(len(self._groups)), [len(groups) for groups in self._groups])

    @cached_property
    def _shard_of_columns(self) -> Ints:
        shards = np.zeros(len(self._features.names), dtype=np.int64)
        for shard, columns in enumerate(self.columns):
            shards[columns] = shard
        return shards

    def owners(self, features: Ints) -> Ints:
        """The shard that has each of some features, by number. O(features asked for)."""
        dense = len(self._features.names)
        owners: Ints = np.empty(len(features), dtype=np.int64)
        is_dense = features < dense
        owners[is_dense] = self._shard_of_columns[features[is_dense]]
        owners[~is_dense] = self._shard_of_groups[self._features.groups_of(features[~is_dense] - dense)]
        return owners

    def put(self, slots: Slots, rows: RowBlock) -> Exchange[None]:
        """Tell the shards new rows, each its part."""
        if len(slots):
            yield Tell("rows", {"slots": slots}, self.parts(rows))

    def equal(self, slots: Slots, row: RowBlock) -> Exchange[Bools]:
        """Return, for each slot, True if its row equals one row. O(slots x features) on the shards."""
        replies = yield Ask("equal", {"slots": slots}, self.parts(row))
        equal: Bools = np.logical_and.reduce(replies)
        return equal

    def take(self, slots: Slots) -> Exchange[RowBlock]:
        """The rows in some slots."""
        if not len(slots):
            return RowBlock.none(self._features)
        replies = yield Ask("gather", {"slots": slots})
        return self.merged(replies, len(slots))

    def merged(self, parts: Sequence[Mapping[str, Any]], rows: int) -> RowBlock:
        """Put the shards' parts of some rows together; they may share memory with what a shard keeps."""
        if len(parts) == 1 and parts[0]["X"].flags.c_contiguous:  # all columns in order
            X = parts[0]["X"]
        else:
            X = np.empty((rows, len(self._features.names)))
            for columns, part in zip(self.columns, parts, strict=True):
                X[:, columns] = part["X"]
        n = self._features.sparse
        sparse = merged([SparseRows(part["indptr"], part["indices"], n) for part in parts]) if n else None
        return RowBlock.of(X, sparse)

    def dealt(self, held: HeldRows, slots: Slots, owner: AnyArray, index: int) -> Steps[RowBlock]:
        """On shard ``index``: deal the columns ``held`` here to the owners of the rows; returns the own rows, whole."""
        parts = yield [held.gather(slots[owner == shard]) for shard in range(len(self._groups))]
        return self.merged(parts, int(np.count_nonzero(owner == index)))

    def parts(self, rows: RowBlock) -> list[dict[str, Any]]:
        """Return the part of some rows that each shard owns."""
        return [self._part(rows, shard) for shard in range(len(self._groups))]

    def _part(self, rows: RowBlock, shard: int) -> dict[str, Any]:
        columns = self.columns[shard]  # neighbours
        part = rows.X[:, columns[0] : columns[-1] + 1] if len(columns) else rows.X[:, :0]
        if not self._features.sparse:
            return {"X": part}
        sparse = rows.sparse(self._features.sparse).of_groups(self._groups[shard], self._features.groups)
        return {"X": part, "indptr": sparse.indptr, "indices": sparse.indices}


class HeldRows:
    """A shard's half: the columns and sparse features of the groups it owns, of every row, by slot."""

    def __init__(self, features: Features, groups: Ints) -> None:
        self._features, self._groups = features, groups
        self.columns = features.columns_of(groups)  #: Of ``X``, those of the groups.
        self.X = np.empty((0, len(self.columns)))  #: Shape (slots, columns).
        self.used = 0  #: Slots that have had a row: those before this one.
        self._sparse = RaggedStore(np.int32)

    def put(self, slots: Any, X: Any, indptr: Any = None, indices: Any = None) -> None:
        """Keep new rows; ``indices`` are those of this shard's sparse features that are 1, if there are such."""
        if not len(slots):
            return
        self.make_room(slots)
        put_rows(self.X, slots, X)
        self.used = max(self.used, int(slots.max()) + 1)
        if self._features.sparse:
            self._sparse.put(np.array(slots), np.diff(indptr), np.array(indices))

    def make_room(self, slots: Any) -> None:
        """Room for rows; a shard without features that was restored has not seen how many there are."""
        have, need = len(self.X), int(slots.max(initial=-1)) + 1
        if need > have:
            self.X = grown(self.X, max(need, 2 * have, 64))
            if self._features.sparse and not len(self._groups):
                more = np.arange(have, len(self.X), dtype=np.int32)
                self._sparse.put(more, np.zeros(len(more), np.int64), np.empty(0, np.int32))

    def trim(self) -> None:
        """Give up room for more rows."""
        self.X = trimmed(self.X, self.used)

    @property
    def ones(self) -> RaggedRows:
        """The arrays of sparse features by slot, for kernels; valid until the next :meth:`put`."""
        return self._sparse.rows

    def sparse(self, slots: Int32s) -> SparseRows:
        """Sparse features of some rows; without any where there are none."""
        width = self._features.sparse
        return SparseRows.of_lengths(*self._sparse.take(slots), width) if width else SparseRows.empty(0, len(slots))

    def gather(self, slots: Any) -> dict[str, Any]:
        """Return the stored values of some rows; of neighbouring ones, views of what is kept."""
        self.make_room(slots)
        X = self.X[as_slice(slots)]
        if not self._features.sparse:
            return {"X": X}
        sparse = self.sparse(np.array(slots))
        return {"X": X, "indptr": sparse.indptr, "indices": sparse.indices}

    def equal(self, slots: Any, X: Any, indptr: Any = None, indices: Any = None) -> Bools:
        """Return, for each of some rows, True if it equals a row in every feature of this shard; NaN equals NaN."""
        self.make_room(slots)
        mine = self.X[slots]
        equal = equal_rows(mine, X)
        if self._features.sparse:
            begin, end, _ = self._sparse.rows
            equal &= end[slots] - begin[slots] == len(indices)
            left = np.array(slots)[equal]
            held = self._sparse.take(left)[1].reshape(len(left), len(indices))
            equal[equal] = (held == indices).all(axis=1)
        return equal

    def by_group(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Columns ``X`` of some rows, by group, and their sparse features if there are some."""
        groups = self._groups.tolist()
        if not groups:
            return {}  # and there may be no rows in these slots, after a restore
        owned = [np.searchsorted(self.columns, self._features.group_columns(g)) for g in groups]
        parts = blocks(self.X, slots, owned)
        rows: dict[int, dict[str, Any]] = {g: {"X": part} for g, part in zip(groups, parts, strict=True)}
        if self._features.sparse:
            sparse = self.sparse(slots)
            for g in groups:
                rows[g] |= sparse.of_groups(np.array([g]), self._features.groups).arrays()
        return rows

    def among(self, slots: Slots, row: Mapping[str, Any]) -> Bools:
        """Return, for each of many slots, True if its row equals one; either, of slots that never had a row."""
        found = np.zeros(len(slots), dtype=np.bool_)
        (seen,) = np.nonzero(slots < self.used)
        for begin in range(0, len(seen), _COMPARED):
            some = seen[begin : begin + _COMPARED]
            found[some] = self.equal(slots[some], **row)
        return found

    def place(self, slots: Slots) -> None:
        """Move the rows in slots 0, 1, ..., all that there are, into others; drop those that are to be in slot -1."""
        self.make_room(np.arange(len(slots)))
        former = np.flatnonzero(slots >= 0).astype(np.int32)
        X, sparse = self.X[as_slice(former)], self.sparse(former)
        self.X, self._sparse, self.used = np.empty((0, len(self.columns))), RaggedStore(np.int32), 0
        self.put(slots[former], X, sparse.indptr, sparse.indices)

    def restore(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        """Put what :meth:`by_group` gave of all rows into slots 0, 1, ..."""
        width, ones = self._features.sparse, []
        self.X = np.empty((0, len(self.columns)))
        for i, g in enumerate(self._groups.tolist()):  # which may be read one after the other
            part = state[g]
            X, own = part["X"], np.searchsorted(self.columns, self._features.group_columns(g))
            self.X = self.X if i else np.empty((len(X), len(self.columns)))
            self.X[:, own] = X
            if width:
                ones.append(SparseRows.of_arrays(part, width))
        self.used = len(self.X)
        if ones:
            self._sparse = RaggedStore(np.int32)
            rows = merged(ones)
            self._sparse.put(np.arange(len(rows), dtype=np.int32), rows.lengths, rows.indices)


def without_rows(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's part of a state without its rows, which should not be in memory for as long."""
    return {name: value for name, value in part.items() if name != "X" and not name.startswith("sparse_")}


class ShardWithRows:
    """A learner's shard that keeps its rows here: what it answers of them, and how a request finds its method."""

    def __init__(self, features: Features, groups: Ints) -> None:
        self._features, self.groups = features, groups
        self._held = HeldRows(features, groups)
        self.reader: FeatureReader | None = None
        self.columns = self._held.columns  #: Of ``X``, those of the groups.

    def trim(self) -> None:
        """Give up room for more rows."""
        self._held.trim()

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request: each is a method ``_on_...``."""
        answer: Any = getattr(self, f"_on_{method}")(**payload)
        return answer

    def rows(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Columns ``X`` of some rows, by group, and their sparse features if there are some."""
        return self._held.by_group(slots)

    def _on_rows(self, slots: Any, X: Any, indptr: Any = None, indices: Any = None) -> None:
        """Keep new rows. A slot of a deleted row is not handed out again before its batch is over."""
        self._held.put(slots, X, indptr, indices)

    def _on_read(self, slots: Any, rows: Any, blocks: Any, **more: Any) -> None:
        assert self.reader is not None
        X, ones = self.reader.take(rows, blocks)
        self._on_rows(slots, X, ones.indptr, ones.indices, **more)

    def _on_gather(self, slots: Any) -> dict[str, Any]:
        fault("shard.before_columns")
        return self._held.gather(slots)

    def _on_equal(self, slots: Any, **row: Any) -> Bools:
        """Return, for each of some rows, True if it equals a row in every feature of this shard; NaN equals NaN."""
        return self._held.equal(slots, **row)


# A shard that owns rows: how it gets them, answers for them, writes them for a state and reads them back.
#
# It has the columns of its feature groups of every row, by slot (``rows_on_shards``), and ids, labels, weights and
# births of the rows in its buckets, by local slot (``owned_rows``). What a model has of the rows is up to the learner.

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
        rows, births = self.rows_here, (yield AllGather(np.array([born]), self._owners.shards))
        own = born != NEVER and born == min(int(theirs[0]) for theirs in births)
        if own:
            rows.delete(slot)
        return {"slots": rows.slots(np.array([slot][:own], dtype=np.int32)), "born": born, "counts": rows.counts()}

    # ---------------------------------------------------------------- digests and states

    def _on_hash_rows(self, weighted: bool, former: bool = False) -> dict[str, Any]:
        """Return the hashes of the own rows (``BucketTree.hashes``), and the columns of those that wait to be deleted.

        ``weighted``: not all rows of all owners have a weight of 1. ``former``: in the format before the present one,
        of which nothing is kept.
        """
        rows = BucketDigest(self.rows_here.store) if former else self.rows_here.digest
        hashes = rows.hashes(self._owners.buckets(self._index), self._columns(former), weighted)
        return {**hashes, "leaving": self._leaving(weighted, former)}

    def _leaving(self, weighted: bool, former: bool) -> Arrays:
        """Return the columns of the own rows that wait to be deleted."""
        rows, gone = self.rows_here, self.rows_here.pending.deletes
        leaving = {"id": rows.store.id[gone], **self._columns(former)(gone)}
        return leaving | {"weight": rows.weights(gone)} if weighted else leaving

    def _columns(self, former: bool) -> Columns:
        """Return what gives the columns that the digest has of some of the own rows, beside ids and weights."""
        return lambda local: {"y": self.rows_here.store.y[local]}

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
            state[piece] = {**self.rows_here.changing(local), **self.of_model(local)}
        self._of_state = self._slots_of_new = _NO_SLOTS
        return state

    def of_model(self, local: Slots) -> dict[str, Any]:
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
