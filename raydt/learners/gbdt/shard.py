"""The GBDT's half on a shard: it keeps columns of all rows, makes their bins, and trains on rows of its own.

Raw rows lie where their features do; as cells, a row lies with all its features at the shard that owns its slot, and
with its id, label and birth (``owned_rows``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from raydt.arrays.blocks import SparseRows, as_slice, merged
from raydt.arrays.digest import SIZE, Part
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Ints, Slots
from raydt.batches.binning import Bins, CellStore, encode, learn_bins
from raydt.batches.rows_on_shards import OwningShard, RowBlock, RowsOnShards
from raydt.examples.row_digest import Columns, RowDigest
from raydt.examples.row_owners import are_in
from raydt.examples.updates import Features
from raydt.exchange.links import Steps
from raydt.exchange.messages import MET, Buckets, Payload
from raydt.learners.gbdt.ensemble import Ensemble, known_trees, with_class
from raydt.learners.gbdt.model import LedgerHashes, count_rows
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.row_shard import RowShard
from raydt.learners.gbdt.split_search import INSERTED
from raydt.learners.gbdt.trainer import Crew, HeldOut, PendingRows, held_out_rows
from raydt.learners.gbdt.update import TO_INSERT
from raydt.parallel import limited, ranges, run

# What a shard of the GBDT has of the rows that it owns: how it gets them, writes them for a state and reads them back.
#
# Not here: what it does with them (``shard``), and what all shards that own rows have
# (``raydt.batches.rows_on_shards``).

#: Rows that are copied at once.
_COPIED = 1 << 16
_NO_SLOTS: Slots = np.empty(0, dtype=np.int32)


class ShardOfOwner(OwningShard[PendingRows]):
    """A shard with rows of its own, by local slot, and their leaves, ledger and drift."""

    _layout: RowsOnShards

    def __init__(self, options: GBDTOptions, features: Features, groups: Ints, rows: PendingRows | None = None) -> None:
        super().__init__(features, groups)
        self._options = options
        self._own: RowShard | None = None
        self._crew: Crew | None = None  # that makes its passes, if there is no other shard
        self._encoded = _NO_SLOTS  # the first own rows of this model
        self._is_here = rows is not None  # in the coordinator's process, which writes the rows of a state
        if rows is not None:
            self._index, self._owners, self._rows, rows.shard = 0, rows.owners, rows, self
            self._layout = RowsOnShards(features, 1)

    def _no_rows(self) -> PendingRows:
        self._layout = RowsOnShards(self._features, self._owners.shards)
        return PendingRows(self._owners, self._index, np.dtype(np.float64 if self._options.regression else np.int32))

    @property
    def own(self) -> RowShard:
        """The model of the own rows, once there is one."""
        assert self._own is not None
        return self._own

    def begin_with(self, ensemble: Ensemble | None, cells: CellStore | None = None) -> None:
        """Begin with an ensemble, and perhaps with encoded rows; None: without a model."""
        self._own = self._crew = None
        if ensemble is not None:
            self._own_bins = ensemble.bins.select(self.columns)
            self._own = RowShard(ensemble, self._features, cells)
            self._own.targets = self.rows_here.targets
            self._crew = Crew(self._own, self._features) if self._owners.shards == 1 else None

    @property
    def ensemble(self) -> Ensemble | None:
        """The ensemble of the own rows; None without a model."""
        return None if self._own is None else self._own.ensemble

    def rest(self) -> None:
        """Drop what the next update makes again from the rows."""
        if self._crew is not None:
            self._crew.rest()

    def _in_model(self, local: Slots) -> Bools:
        """Return, for each local slot, True if its row is in the model, and does not wait to be inserted."""
        e = self.own.ensemble
        held = local < e.leaf.shape[1]
        held[held] = e.leaf[0, local[held]] != e.absent
        return held

    # ---------------------------------------------------------------- states

    def rows(self, slots: Slots) -> dict[Any, dict[str, Any]]:
        """Features of new rows; of an owner that writes its rows, what else never changes of these."""
        return self._held.by_group(slots) if self._is_here else super().rows(slots)

    def state(self, slots: Slots) -> dict[int | Buckets, dict[str, Any]]:
        """Own rows, if this shard writes them."""
        return {} if self._is_here else super().state(slots)

    def of_model(self, local: Slots) -> dict[str, Any]:
        """Leaves, ledger and drift: histograms follow from these."""
        return {} if self._own is None else self._own.of_rows(local, self._in_model(local))

    def _width_of_model(self) -> int:
        if self._own is None:
            return 0
        e = self._own.ensemble
        return len(e.leaf) * (e.leaf.itemsize + e.ledger.itemsize)

    def _on_restore_rows(self, trees: Any) -> None:
        """Take trees and, by id, leaves, ledger and drift of the encoded rows from the parts of a state."""
        e, mine = self.own.ensemble, self._owners.buckets(self._index)
        own: tuple[Any, ...] = e.trees
        for array, theirs in zip(own, trees, strict=True):
            array[:] = theirs
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
        self._saved, self._encoded = {}, _NO_SLOTS


#: Cells whose bins one thread makes in less than it takes to hand them out.
FEW_CELLS = 1 << 16
#: Rows that are encoded between two meetings, at most; and by a task of one owner.
_ENCODED, ENCODED_BY_A_TASK = 1 << 16, 1 << 12


class GBDTShard(ShardOfOwner):
    """Owner of whole feature groups, and of the rows in some slots."""

    def __init__(self, options: GBDTOptions, features: Features, groups: Ints, rows: PendingRows | None = None) -> None:
        super().__init__(options, features, groups, rows)
        self._kinds = features.kinds[self.columns]
        self._training = _NO_SLOTS  # the own rows that this model is trained on
        self._slots = _NO_SLOTS  # of the rows that will be encoded, of all owners
        self._waiting = np.empty(0, dtype=np.int64)  # ids of the rows that waited at the last digest
        self._hashes: LedgerHashes | None = None  # of the ledger at the last digest
        self._scores = np.empty((0, 0))  # of the rows of a training
        self._holds_out = False  # whether some of those rows are held out
        self._held_out: HeldOut | None = None  # the own ones, whose losses end it early

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request."""
        if self._own is not None and method != MET:
            self._own.targets = self.rows_here.targets  # which may have grown
        return super().handle(method, payload)

    def begin_with(self, ensemble: Ensemble | None, cells: CellStore | None = None) -> None:
        """As of all owners; nothing of the ledger is hashed."""
        self._hashes = None
        super().begin_with(ensemble, cells)

    def rest(self) -> None:
        """Drop what the next update or digest makes again from the rows."""
        self._hashes = None
        super().rest()

    def restore(self, state: Mapping[Any, dict[str, Any]]) -> None:
        """Also begin without a model, unless the coordinator has given one."""
        if not self._is_here:
            self.begin_with(None)
        super().restore(state)

    # ---------------------------------------------------------------- the own rows

    def _on_delete_equal(self, y: Any, row: Any) -> Steps[Any]:
        """Find the oldest live row that equals one together with the other shards; its owner has it wait."""
        rows, masks = self.rows_here, []
        local = np.arange(self._owners.local_capacity(self._held.used), dtype=np.int32)
        for shard in range(self._owners.shards if len(self.groups) else 0):
            masks.append(np.packbits(self._held.among(self._owners.slots(local, shard), row)))
        none = np.empty(0, dtype=np.uint8)  # of a shard that has nothing to compare
        found = rows.equal(y, (yield masks or [none] * self._owners.shards))
        return (yield from self.delete_oldest(*found))

    def _of_all(self, mine: AnyArray) -> Steps[AnyArray]:
        """Return what all shards have, sorted."""
        return np.sort(np.concatenate((yield [mine] * self._owners.shards)))

    # ---------------------------------------------------------------- bins and cells

    def _on_learn(self, hold_out: bool, balanced: bool) -> Steps[dict[str, Any]]:
        """Make the bins from all live rows, which the owners know together.

        Also decide which rows are held out, as the first ones of all in the order of their births. Returns the bins,
        and what :meth:`PendingRows.of_training` does.
        """
        rows = self.rows_here
        mine = self._training = rows.store.slots()
        slots, weights = rows.slots(mine), rows.store.weights(mine)
        told = yield from self._of_all(slots if weights is None else np.where(weights > 0, slots, ~slots))
        counting = told[told >= 0]  # those of rows of weight 0 are told as negative numbers
        self._slots = np.sort(np.append(counting, ~told[told < 0]))
        held = mine[:0]
        if hold_out:
            drawn = held_out_rows((yield from self._of_all(rows.store.born[mine])), self._options)[1]
            held = mine[np.isin(rows.store.born[mine], drawn)]
            self._training = np.setdiff1d(mine, held)
        rows.pending.inserts, self._holds_out = held, hold_out
        return {"bins": self._bins_of(counting), **rows.of_training(mine, held, balanced)}

    def _bins_of(self, slots: Any) -> dict[str, Any]:
        self._held.make_room(slots)
        indices, ones = np.unique(self._held.sparse(np.array(slots)).indices, return_counts=True)
        sparse = indices[ones < len(slots)]
        few = len(slots) * len(self._kinds) < FEW_CELLS
        with limited(1 if few else None):
            bins = learn_bins(self._held.X, self._kinds, self._options.max_bins, self._options.binning, sparse, slots)
        return bins.arrays()

    def _on_begin(self, bins: Any, factors: Any, **given: Any) -> None:
        """Take the bins of all features and make room for trees; the first rows come next."""
        self.rows_here.digest.forget()
        self.rows_here.balance(factors)
        self.begin_with(Ensemble(self._options, Bins.from_arrays(bins), **given, capacity=0))

    def _all(self) -> Slots:
        """Local slots of the own rows in the model."""
        e = self.own.ensemble
        return np.flatnonzero(e.leaf[0] != e.absent).astype(np.int32)

    def _encode(self, slots: Slots) -> Steps[list[tuple[Slots, RowBlock]]]:
        """Give every shard the own columns of its rows as codes, and take what all have of the own rows.

        Yields once for each block of rows; returns the own ones and their sparse features.
        """
        own, mine = self.own, self.rows_here.mine(slots)
        own.ensemble.reserve(self._owners.local_capacity(int(slots.max(initial=-1)) + 1))  # alike at all shards
        own.cells.make_room(mine)
        taken = []
        for begin in range(0, len(slots), _ENCODED):
            block = slots[begin : begin + _ENCODED]
            if self._owners.shards == 1:
                X, tasks = self._held.X[as_slice(block)], ranges(len(block), ENCODED_BY_A_TASK, 4)
                run([partial(own.cells.add_columns, block[part], X[part]) for part in tasks])
                taken.append((block, RowBlock.of(X[:, :0], self._held.sparse(block))))
                continue
            parts = yield self._codes(block)
            local = self.rows_here.mine(block)
            for columns, part in zip(self._layout.columns, parts, strict=True):
                own.cells.put_columns(columns, local, part["codes"])
            width = self._features.sparse
            ones = merged([SparseRows(part["indptr"], part["indices"], width) for part in parts]) if width else None
            taken.append((local, RowBlock.of(np.empty((len(local), 0)), ones)))
        return taken

    def _codes(self, slots: Slots) -> list[dict[str, Any]]:
        """Return, for each shard, the own columns of its rows as codes, shape (columns, rows), and sparse features."""
        self._held.make_room(slots)
        codes = np.empty((len(self.columns), len(slots)), dtype=self.own.cells.dtype)
        encode(self._held.X[as_slice(slots)], self._own_bins, np.arange(len(slots), dtype=np.int32), codes)
        parts, owner = [], self._owners.shard_of(slots)
        for shard in range(self._owners.shards):
            theirs = np.flatnonzero(owner == shard)
            sparse = self._held.sparse(slots[theirs])
            parts.append({"codes": codes.take(theirs, axis=1), "indptr": sparse.indptr, "indices": sparse.indices})
        return parts

    def _on_encode(self, restored: bool) -> Steps[None]:
        """Encode the first rows together with the other shards, and choose the features of the matrix.

        They are those that the bins were learned from or, of a model that was restored, its own.
        """
        rows = self.rows_here
        if restored:
            self._slots = yield from self._of_all(rows.slots(rows.pending.in_model(rows.store.slots())))
        slots, self._slots = self._slots, _NO_SLOTS
        taken, own, shards = (yield from self._encode(slots)), self.own, self._owners.shards
        self._encoded = self.rows_here.mine(slots)
        counts = own.cells.default_counts(self._encoded)
        own.cells.choose(np.sum((yield [counts] * shards), axis=0), len(slots))
        for local, ones in taken:
            own.cells.arrange(local, ones)
        own.divide(self._index, shards)

    # ---------------------------------------------------------------- passes

    def _on_train(self, first: int, stop: int) -> Steps[Any]:
        """Train some iterations together with the other shards; returns the trees, and losses of own rows held out."""
        if first == 0:
            self._scores, self._held_out = self.own.ensemble.origins(len(self._training)), None
        if first == 0 and self._holds_out:
            held = np.sort(self.rows_here.pending.inserts)
            slots = (yield from self._of_all(self.rows_here.slots(held))).astype(np.int32)
            rows = yield from self._layout.dealt(self._held, slots, self._owners.shard_of(slots), self._index)
            y, weights = self.rows_here.targets
            self._held_out = HeldOut(self.own.ensemble, rows, y[held], weights[held] if len(weights) else None)
        if self._crew is not None:
            self._crew.train(self._training, self._scores, first, stop)
        else:
            yield from self.own.train_steps(self._training, self._scores, first, stop)
        losses = {} if self._held_out is None else {"losses": self._held_out.losses(first)}
        if stop == self.own.ensemble.iterations:
            self._forget_training()
        return {**losses, **self._trees()}

    def _on_update(self, roles: Sequence[int], anew: bool) -> Steps[Any]:
        """Take the rows that wait through all trees together with the other shards, those of one role after the other.

        Those in the model have all their derivatives computed ``anew``. Returns the counts of each role, of every row
        shard here, and the trees.
        """
        waiting, others, counts = self.rows_here.pending, self._all() if anew else _NO_SLOTS, []
        self._forget_training()
        for role in roles:
            mine = waiting.inserts if role == INSERTED else waiting.deletes
            if role == INSERTED:
                slots = yield from self._of_all(self.rows_here.slots(mine))
                for local, ones in (yield from self._encode(slots)):
                    self.own.cells.arrange(local, ones)
            own, end = self.own, self.own.ensemble.leaf.shape[1]
            if self._crew is not None:
                counts.append(np.stack(self._crew.update(mine, role, others)))
            else:
                counts.append((yield from own.update_steps(mine, role, others, anew, 0, end))[np.newaxis])
            if self._hashes is not None:  # else all rows are hashed anew
                self.rows_here.digest.note(self.rows_here.store.id[self._hashes.changed(own.taken)])
        return {"counts": counts, **self._trees()}

    def _on_sum_up(self) -> Steps[None]:
        """Make all histograms together with the other shards."""
        if self._crew is not None:
            self._crew.sum_up(self._all())
        else:
            yield from self.own.sum_up_steps(self._all())

    def _on_extend(self, classes: int) -> Steps[Any]:
        """Continue with more classes; returns the trees."""
        former, slots, shards = self.own, self._all(), self._owners.shards
        self.rows_here.digest.forget()
        ensemble, known = with_class(former.ensemble, classes, slots), known_trees(former.ensemble)
        sums = ensemble.sums_of_roots(known, former.targets, slots)
        ensemble.set_roots(known, np.sum((yield [sums] * shards), axis=0))
        self.begin_with(ensemble, former.cells)
        self.own.divide(self._index, shards)
        yield from self._on_sum_up()
        return self._trees()

    def _on_shorten(self, iterations: int) -> None:
        """Keep the first iterations only: the training has ended early."""
        self._forget_training()
        self.own.shorten(iterations)

    def _forget_training(self) -> None:
        """Keep nothing by row that only a training needs."""
        self._training, self._scores, self._held_out = _NO_SLOTS, np.empty((0, 0)), None

    def _trees(self) -> dict[str, list[AnyArray]]:
        """Return the trees, if this is the first shard: all have the same. The coordinator sees those that are here."""
        tells = self._index == 0 and not self._is_here
        return {"trees": [array.copy() for array in self.own.ensemble.trees] if tells else []}

    # ---------------------------------------------------------------- what others want to know of the rows

    def _on_count_rows(self) -> Ints:
        """Count the own rows of each node, of the trees one after the other, their nodes in preorder."""
        e = self.own.ensemble
        counts = np.zeros((len(e.leaf), e.trees.feature.shape[1] + 1), dtype=np.int64)
        count_rows(e.trees, e.leaf, counts)
        order, _ = e.preorder()
        tree, i = np.nonzero(order >= 0)
        return counts[tree, order[tree, i]]

    def _on_hash_rows(self, weighted: bool, former: bool = False) -> dict[str, Any]:
        """As of all owners."""
        self._note_waiting()
        return super()._on_hash_rows(weighted, former)

    def digested(self, weighted: bool, former: bool) -> tuple[Arrays, Part]:
        """Return the columns of rows that wait to be deleted, by id, and the part of all rows, which this shard has."""
        self._note_waiting()
        leaving = self._leaving(weighted, former)
        order = np.argsort(leaving["id"])
        leaving = {name: column[order] for name, column in leaving.items()}
        rows = RowDigest(self.rows_here.store) if former else self.rows_here.digest
        return leaving, rows.part(self._columns(former), weighted)

    def _note_waiting(self) -> None:
        """Have rows hashed anew that have waited at the last digest.

        Rows that wait to be inserted are hashed, although they are not in the model yet; those still in it are not.
        """
        rows, pending = self.rows_here, self.rows_here.pending
        rows.digest.note(self._waiting)
        self._waiting = rows.store.id[np.concatenate([pending.inserts, pending.deletes])]

    def _columns(self, former: bool) -> Columns:
        """Also whether the rows wait, and the hash of their ledger; in the ``former`` format all of it."""
        rows, e, hashes = self.rows_here, self.ensemble, None
        if e is not None and not former:
            if self._hashes is None or self._hashes.ensemble is not e:
                self._hashes = LedgerHashes(e)
            hashes = self._hashes
            hashes.reserve()

        def columns(local: Slots) -> Arrays:
            hashed = {"y": rows.store.y[local], "pending": rows.pending.status(local)}
            if e is not None:
                held = hashed["pending"] != TO_INSERT
                width, kind = (len(e.leaf), e.ledger.dtype) if hashes is None else (SIZE, np.dtype(np.uint8))
                hashed["ledger"] = np.zeros((len(local), width), dtype=kind)
                hashed["ledger"][held] = e.ledger[:, local[held]].T if hashes is None else hashes.of(local[held])
            return hashed

        return columns
