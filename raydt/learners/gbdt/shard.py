"""The GBDT's half on a shard: it keeps columns of all rows, makes their bins, and trains on rows of its own.

Raw rows lie where their features do; as cells, a row lies with all its features at the shard that owns its slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import as_slice
from raydt.arrays.memory import grown
from raydt.arrays.sparse import SparseRows, merged
from raydt.batches.binning import Bins, encode, learn_bins
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards, ShardWithRows
from raydt.examples.bucket_digest import BucketDigest
from raydt.examples.features import Features
from raydt.examples.row_digest import record_of
from raydt.examples.row_owners import RowOwners, buckets_of, parts_for
from raydt.examples.weights import UNIT, Weights
from raydt.exchange.meeting import Meeting, Steps
from raydt.exchange.messages import COMBINED, GO_ON, Buckets, Payload
from raydt.learners.gbdt.ensemble import Ensemble, known_trees, with_class
from raydt.learners.gbdt.model import count_rows
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.row_shard import RowShard
from raydt.learners.gbdt.update_batch import TO_DELETE, TO_INSERT
from raydt.learners.gbdt.workspace import INSERTED
from raydt.parallel.threads import limited

Slots = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]

#: Cells whose bins one thread makes in less than it takes to hand them out.
FEW_CELLS = 1 << 16
#: Rows that are encoded between two meetings, at most.
_ENCODED = 1 << 16
#: Bytes of leaves and ledger in a part of a state: who writes or reads it needs twice as much.
_PIECE = 1 << 26
#: An answer to nobody.
_NOTHING = np.empty(0, dtype=np.int64)
_NO_SLOTS: Slots = np.empty(0, dtype=np.int32)


class Told(NamedTuple):
    """What the coordinator tells of some rows: ids, labels, and weights unless all count 1."""

    ids: Ids
    y: npt.NDArray[Any]
    weight: Weights | None

    @classmethod
    def of(cls, ids: Any, y: Any, weight: Any = None) -> Told:
        """Take a message."""
        return cls(np.asarray(ids), np.asarray(y), None if weight is None else np.asarray(weight))

    def take(self, rows: Any) -> Told:
        """Return what is told of some of the rows."""
        return Told(self.ids[rows], self.y[rows], None if self.weight is None else self.weight[rows])


class GBDTShard(ShardWithRows):
    """Owner of whole feature groups, and of the rows in some slots."""

    def __init__(self, options: GBDTOptions, features: Features, groups: npt.NDArray[np.int64]) -> None:
        super().__init__(features, groups)
        self._options, self._kinds = options, features.kinds[self.columns]
        self._meeting = Meeting()
        self._own: RowShard | None = None  # by local slot (``RowOwners``)
        self._saved: Mapping[Any, dict[str, Any]] = {}  # a state that was restored, until all of it is used
        self._encoded = _NO_SLOTS  # the first rows of this model
        self._id = np.empty(0, dtype=np.int64)  # of the own rows
        self._digest, self._waiting = BucketDigest(), (np.empty(0, dtype=np.int64), _NO_SLOTS)
        self._training: Any = None  # rows of a training, and their scores

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request."""
        if method in (COMBINED, GO_ON):
            return self._meeting.receive(method, payload)
        return super().handle(method, payload)

    def state(self, slots: Slots) -> dict[int | Buckets, dict[str, Any]]:
        """Ids, leaves, ledger and drift of the own rows, once there is a model: histograms follow from these."""
        if self._own is None:
            return {}
        e, local = self.own.ensemble, self._mine(slots)
        width = len(e.leaf) * (e.leaf.itemsize + e.ledger.itemsize)
        pieces = self._owners.pieces(self._index, -(-len(local) * width // _PIECE))
        ids = self._id[local]
        bucket = buckets_of(ids)
        return {
            piece: {"id": ids[own], **self._of_rows(local[own])}
            for piece in pieces
            for own in [(bucket >= piece.begin) & (bucket < piece.end)]
        }

    def _of_rows(self, local: Slots) -> dict[str, npt.NDArray[Any]]:
        """Drift, leaves and ledger of own rows; of those that are not in the model nothing."""
        e = self.own.ensemble
        leaf = np.full((len(local), len(e.leaf)), e.absent, dtype=e.leaf.dtype)
        ledger, drift = np.zeros(leaf.shape, dtype=e.ledger.dtype), np.zeros(len(local), dtype=np.uint16)
        held = np.flatnonzero(self._in_model(local))
        for begin in range(0, len(held), _ENCODED):
            rows = held[begin : begin + _ENCODED]
            leaf[rows], ledger[rows] = e.leaves_of(local[rows]), e.ledger[:, local[rows]].T
            drift[rows] = e.drift[local[rows]]
        return {"drift": drift, "leaf": leaf, "ledger": ledger}

    def restore(self, state: Mapping[Any, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... until the coordinator says which; parts by buckets are kept for later.

        These are read when they are asked for.
        """
        self._own, self._saved = None, state if any(isinstance(part, Buckets) for part in state) else {}
        self._held.restore(state)

    # ---------------------------------------------------------------- bins and cells

    def _on_learn(self, slots: Any) -> dict[str, Any]:
        """Make the bins from the rows of a training."""
        self._held.make_room(slots)
        indices, ones = np.unique(self._held.sparse(np.array(slots)).indices, return_counts=True)
        sparse = indices[ones < len(slots)]
        few = len(slots) * len(self._kinds) < FEW_CELLS
        with limited(1 if few else None):
            bins = learn_bins(self._held.X, self._kinds, self._options.max_bins, self._options.binning, sparse, slots)
        return bins.arrays()

    def _on_begin(self, bins: Any, shards: int, index: int, **given: Any) -> None:
        """Take the bins of all features and make room for trees; the first rows come next."""
        self._columns, self._index = RowsOnShards(self._features, shards).columns, index
        self._owners = RowOwners(shards)
        self._digest.forget()
        ensemble = Ensemble(self._options, Bins.from_arrays(bins), **given, capacity=0)
        self._own_bins = ensemble.bins.select(self.columns)
        self._own = RowShard(ensemble, self._features)

    @property
    def own(self) -> RowShard:
        """The rows of this shard, once there is a model."""
        assert self._own is not None
        return self._own

    def _mine(self, slots: Any) -> Slots:
        """Local slots of the own ones of some slots."""
        slots = np.asarray(slots)
        return self._owners.local(slots[self._owners.shard_of(slots) == self._index])

    def _in_model(self, local: Slots) -> npt.NDArray[np.bool_]:
        """Whether the rows in some local slots are in the model, and do not wait to be inserted."""
        e = self.own.ensemble
        held = local < e.leaf.shape[1]
        held[held] = e.leaf[0, local[held]] != e.absent
        return held

    def _all(self) -> Slots:
        """Local slots of the own rows in the model."""
        e = self.own.ensemble
        return np.flatnonzero(e.leaf[0] != e.absent).astype(np.int32)

    def _keep(self, local: Slots, ids: Ids, y: npt.NDArray[Any], weight: Weights | None) -> None:
        """Keep ids, labels and weights (None: all count 1) of own rows."""
        need = int(local.max(initial=-1)) + 1
        if need > len(self._id):
            self._id = grown(self._id, max(need, len(self._id) * 3 // 2))
        own = self.own
        if len(self._id) > len(own.y) or own.y.dtype != y.dtype:
            own.y = grown(own.y.astype(y.dtype), len(self._id))
        self._id[local], own.y[local] = ids, y
        if weight is not None or len(own.weight):
            if not len(own.weight):
                self._digest.forget()
            if len(own.weight) < len(self._id) or not len(own.weight):
                had, own.weight = len(own.weight), grown(own.weight, max(1, len(self._id)))
                own.weight[had:] = UNIT
            own.weight[local] = UNIT if weight is None else weight

    def _encode(self, slots: Slots, told: Told) -> Steps[list[tuple[Slots, RowBlock]]]:
        """Give every shard the own columns of its rows as codes, and take what all have of the own rows, and labels.

        Yields once for each block of rows; returns the own ones and their sparse features.
        """
        own, mine = self.own, self._owners.shard_of(slots) == self._index
        own.ensemble.reserve(self._owners.local_capacity(int(slots.max(initial=-1)) + 1))
        own.cells.make_room(self._owners.local(slots[mine]))
        self._keep(self._owners.local(slots[mine]), *told.take(mine))
        taken = []
        for begin in range(0, len(slots), _ENCODED):
            block = slots[begin : begin + _ENCODED]
            parts = yield self._codes(block)
            local = self._mine(block)
            for columns, part in zip(self._columns, parts, strict=True):
                own.cells.put_columns(columns, local, part["codes"])
            width = self._features.sparse
            ones = merged([SparseRows(part["indptr"], part["indices"], width) for part in parts]) if width else None
            taken.append((local, RowBlock.of(np.empty((len(local), 0)), ones)))
            yield _NOTHING
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

    def _on_encode(self, slots: Any, **told: Any) -> Any:
        """Encode the first rows together with the other shards, and choose the features of the matrix."""
        return self._meeting.begin(self._encode_first(np.asarray(slots), Told.of(**told)))

    def _encode_first(self, slots: Slots, told: Told) -> Steps[None]:
        taken, own, shards = (yield from self._encode(slots, told)), self.own, self._owners.shards
        self._encoded = self._mine(slots)
        counts = own.cells.default_counts(self._encoded)
        own.cells.choose(np.sum((yield [counts] * shards), axis=0), len(slots))
        yield _NOTHING
        for local, ones in taken:
            own.cells.arrange(local, ones)
        own.divide(self._index, shards)

    # ---------------------------------------------------------------- passes

    def _on_train(self, slots: Any, first: int, stop: int) -> Any:
        """Train some iterations together with the other shards; returns the trees."""
        if first == 0:
            self._training = self._mine(slots), self.own.ensemble.origins(len(self._mine(slots)))
        return self._meeting.begin(self._train(first, stop))

    def _train(self, first: int, stop: int) -> Steps[Any]:
        slots, F = self._training
        yield from self.own.train_steps(slots, F, first, stop)
        return self._trees()

    def _on_update(self, slots: Any, role: int, anew: Any, **told: Any) -> Any:
        """Take rows through all trees together with the other shards.

        Returns the counts and the trees.
        """
        steps = self._update(np.asarray(slots), Told.of(**told), role, np.asarray(anew))
        return self._meeting.begin(steps)

    def _update(self, slots: Slots, told: Told, role: int, anew: Slots) -> Steps[Any]:
        if role == INSERTED:
            for local, ones in (yield from self._encode(slots, told)):
                self.own.cells.arrange(local, ones)
        own, end, self._training = self.own, self.own.ensemble.leaf.shape[1], None
        counts = yield from own.update_steps(self._mine(slots), role, self._mine(anew), len(anew) > 0, 0, end)
        self._digest.note(self._id[own.taken], own.taken)
        return {"counts": counts, **self._trees()}

    def _on_sum_up(self) -> Any:
        """Make all histograms together with the other shards."""
        return self._meeting.begin(self.own.sum_up_steps(self._all()))

    def _on_extend(self, classes: int) -> Any:
        """Continue with more classes; returns the trees."""
        return self._meeting.begin(self._extend(classes))

    def _extend(self, classes: int) -> Steps[Any]:
        former, slots, shards = self.own, self._all(), self._owners.shards
        self._digest.forget()
        ensemble, known = with_class(former.ensemble, classes, slots), known_trees(former.ensemble)
        sums = ensemble.sums_of_roots(known, former.y, former.weight, slots)
        ensemble.set_roots(known, np.sum((yield [sums] * shards), axis=0))
        yield _NOTHING
        self._own = own = RowShard(ensemble, self._features, former.cells)
        own.y, own.weight = former.y, former.weight
        own.divide(self._index, shards)
        yield from own.sum_up_steps(slots)
        return self._trees()

    def _on_shorten(self, iterations: int) -> None:
        """Keep the first iterations only."""
        self.own.shorten(iterations)

    def _trees(self) -> dict[str, list[npt.NDArray[Any]]]:
        """Return the trees, if this is the first shard: all have the same."""
        return {"trees": [array.copy() for array in self.own.ensemble.trees] if self._index == 0 else []}

    def _on_waiting(self, slots: Any, **told: Any) -> None:
        """Take note of rows that wait to be inserted."""
        own = np.flatnonzero(self._owners.shard_of(slots) == self._index)
        self._keep(self._owners.local(slots[own]), *Told.of(**told).take(own))

    def _on_restore_rows(self, trees: Any, rows: Any = None) -> None:
        """Take trees, and leaves, ledger and drift of the own rows, which are given by slot, or were restored."""
        e = self.own.ensemble
        own: tuple[Any, ...] = e.trees
        for array, theirs in zip(own, trees, strict=True):
            array[:] = theirs
        if rows is not None:
            local = self._owners.local(np.asarray(rows["slots"]))
            e.leaf[:, local], e.ledger[:, local], e.drift[local] = rows["leaf"], rows["ledger"], rows["drift"]
        else:
            self._take_saved()
        self._saved, self._encoded = {}, _NO_SLOTS

    def _take_saved(self) -> None:
        """Take leaves, ledger and drift of the encoded rows from the parts of the state, by id."""
        e, mine = self.own.ensemble, self._owners.buckets(self._index)
        order = np.argsort(self._id[self._encoded])
        local, ids = self._encoded[order], self._id[self._encoded[order]]
        for key in parts_for([mine], [key for key in self._saved if isinstance(key, Buckets)]):
            part = self._saved[key]
            bucket = buckets_of(part["id"])
            rows = np.flatnonzero((bucket >= mine.begin) & (bucket < mine.end) & (part["leaf"][:, 0] != e.absent))
            for begin in range(0, len(rows), _ENCODED):
                some = rows[begin : begin + _ENCODED]
                slots = local[np.searchsorted(ids, part["id"][some])]
                e.leaf[:, slots], e.ledger[:, slots] = part["leaf"][some].T, part["ledger"][some].T
                e.drift[slots] = part["drift"][some]

    # ---------------------------------------------------------------- what others want to know of the rows

    def _on_count_rows(self) -> npt.NDArray[np.int64]:
        """Count the own rows of each node, of the trees one after the other, their nodes in preorder."""
        e = self.own.ensemble
        counts = np.zeros((len(e.leaf), e.trees.feature.shape[1] + 1), dtype=np.int64)
        count_rows(e.trees, e.leaf, counts)
        order, _ = e.preorder()
        tree, i = np.nonzero(order >= 0)
        return counts[tree, order[tree, i]]

    def _on_hash_rows(self, inserts: Any, deletes: Any) -> dict[str, Any]:
        """Return the hashes of the own rows (``BucketTree.hashes``), and the columns of those that wait to be deleted.

        ``inserts`` (as for ``_on_waiting``) are not in the model yet, and the rows in the slots ``deletes`` still are.
        """
        self._on_waiting(**inserts)
        new, gone = self._mine(inserts["slots"]), self._mine(deletes)
        status, e = np.zeros(len(self._id), dtype=np.int8), self.own.ensemble
        status[new], status[gone] = TO_INSERT, TO_DELETE
        live = status == TO_INSERT
        live[self._all()] = True
        live[gone] = False

        def columns(slots: Slots) -> dict[str, npt.NDArray[Any]]:
            held, ledger = status[slots] != TO_INSERT, np.zeros((len(slots), len(e.leaf)), dtype=e.ledger.dtype)
            ledger[held] = e.ledger[:, slots[held]].T
            known = {"y": self.own.y[slots], "pending": status[slots]}
            if len(self.own.weight):
                known["weight"] = self.own.weight[slots]
            return known | {"ledger": ledger}

        self._digest.note(*self._waiting)
        waiting = np.concatenate([new, gone])
        self._waiting = self._id[waiting], waiting
        self._digest.note(*self._waiting)
        hashes = self._digest.hashes(self._owners.buckets(self._index), self._id, live, partial(record_of, columns))
        return {**hashes, "leaving": {"id": self._id[gone], **columns(gone)}}
