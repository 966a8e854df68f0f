"""The GBDT's half on a shard: it keeps columns of all rows, makes their bins, and trains on rows of its own.

Raw rows lie where their features do; as cells, a row lies with all its features at the shard that owns its slot, and
with its id, label and birth (``owned_rows``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import SparseRows, as_slice, merged
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Ints, Slots, permutation, stream_key
from raydt.batches.binning import Bins, CellStore, encode, joined, learn_bins
from raydt.batches.rows_on_shards import OwningShard, RowBlock, RowsOnShards
from raydt.examples.digest import SIZE, Columns, Part, RowDigest
from raydt.examples.owned_rows import Ids, OwnedRows
from raydt.examples.row_owners import RowOwners, are_in
from raydt.examples.store import Weighting
from raydt.examples.updates import BITS, UNIT, Features, Weights, sums_by_class
from raydt.exchange.links import Steps, side_by_side
from raydt.exchange.meetings import AllGather, ReduceScatter
from raydt.exchange.messages import MET, Buckets, Payload
from raydt.learners.gbdt.candidates import (
    Summary,
    Targets,
    classes_in,
    exact_parts,
    scale_of,
    summaries_before,
    summary_of,
)
from raydt.learners.gbdt.derivatives import ONE, derive
from raydt.learners.gbdt.ensemble import Ensemble, known_trees, score_rows, with_class
from raydt.learners.gbdt.model import LedgerHashes, count_rows
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.row_shard import RowShard
from raydt.learners.gbdt.split_search import INSERTED
from raydt.learners.gbdt.update import TO_DELETE, TO_INSERT, PendingUpdates
from raydt.parallel import limited, ranges, run, threads

# Training and updates on the rows of one owner: labels, rows that wait, rows held out, and the threads of a pass.
#
# The rows of a model are divided among *row shards* (``row_shard``). Where shards own the rows, they are the row
# shards. An owner that has all rows divides them among threads of its process, as many as pay for the pass, over arrays
# that they share; one alone makes a pass in one call of compiled code.
#
# Invariant: the ensemble is the same, bit for bit, with any number of row shards.

#: -log of each quantised probability, in fixed point: sums of it are exact.
_LOSS_BITS = 20
#: Cells (rows x features) of a model for each thread of a training: a tree then takes some milliseconds, a meeting 0.1.
CELLS_OF_A_THREAD = 1_000_000
#: Cells of a model, and of a batch, for each thread of an update, which trains few of the trees again.
UPDATED_CELLS_OF_A_THREAD, CHANGES_OF_A_THREAD = 3_000_000, 10_000


def drawn_to_hold_out(born: Ints, options: GBDTOptions) -> Ints:
    """Return the births of the rows to hold out, drawn by their positions among those of all, which ascend."""
    held = max(1, min(len(born) - 1, math.ceil(options.validation_fraction * len(born))))
    drawn: Ints = born[permutation(stream_key(options.random_state, "gbdt validation"), len(born))[:held]]
    return drawn


def in_both(ours: npt.NDArray[np.uint8], theirs: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the rows that are in two masks (:meth:`PendingRows.equal`), of which the longer has no more rows."""
    if not len(ours) or not len(theirs):
        return ours if len(ours) else theirs
    n = min(len(ours), len(theirs))
    return ours[:n] & theirs[:n]


def bins_of_all(learned: Sequence[Bins], columns: Sequence[Ints], dense: int) -> Bins:
    """Put together the bins that shards have made of their features; ``columns`` are the dense ones of each."""
    owned = [(own, dense + part.sparse) for own, part in zip(columns, learned, strict=True)]
    return joined(learned).select(np.argsort(np.concatenate([part for both in owned for part in both])))


def trained_on(options: GBDTOptions, bins: Bins, targets: Summary, former: Ensemble | None) -> Ensemble:
    """Make the ensemble of a training on rows whose labels have this summary; ``former`` is the one before."""
    origin, exponent = scale_of(targets) if options.regression else (0.0, 0)
    classes = 0 if options.regression else max(2, former.classes if former else 2, classes_in(targets))
    return Ensemble(options, bins, classes, origin, exponent, former.iterations if former else options.max_iter, 0)


class HeldOut:
    """Rows and targets, shape (n,), whose loss is counted while others are trained on: all that are held out, or some.

    Losses are added up without an error of rounding, so that it does not matter whose rows come first.
    """

    def __init__(self, ensemble: Ensemble, rows: RowBlock, y: AnyArray, weight: Weights | None) -> None:
        self._ensemble, self._rows, self._y = ensemble, rows, y
        self._weight = np.full(len(y), UNIT, dtype=np.int64) if weight is None else weight.astype(np.int64)
        self._F = ensemble.origins(len(y))
        with np.errstate(divide="ignore"):
            table = -np.log(np.arange(ONE + 1) / ONE)
        self._losses = np.rint(np.minimum(table, 64.0) * 2**_LOSS_BITS).astype(np.int64)

    def losses(self, m: int) -> tuple[AnyArray, int]:
        """Return numbers whose exact sum is that of the losses of the rows after iteration ``m``, and their weight.

        Iterations come one after the other. Log losses of quantised probabilities are integers, in 2**-20; squared
        errors are in units of the scale, 2**e.
        """
        e, n, weight = self._ensemble, len(self._y), int(self._weight.sum())
        score_rows(e.trees, m, m + 1, self._rows, e.bins, self._F)
        if e.loss.squared:
            errors = np.ldexp(self._y - self._F[:, 0], -e.exponent) ** 2
            return np.array(exact_parts((errors * (self._weight / UNIT)).tolist())), weight
        q = np.empty((e.per, n), dtype=np.int32)
        derive(self._F, self._y, e.loss, np.empty(e.per), q)
        own = np.where(self._y == 1, q[0], ONE - q[0]) if e.per == 1 else q[self._y, np.arange(n)]
        weighted = (self._losses[own] * self._weight + UNIT // 2) >> BITS
        return np.array([weighted.sum()]), weight


class Patience:
    """Decides by the losses of the rows that are held out when a training has gone on in vain for long enough."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble, self.best, self._least = ensemble, -1, math.inf

    def is_over(self, m: int, losses: Sequence[tuple[AnyArray, int]]) -> bool:
        """Return True if the mean loss, after iteration ``m``, has not fallen for as long as the options allow.

        ``losses`` are those of :meth:`HeldOut.losses` of all rows.
        """
        options, parts = self._ensemble.options, np.concatenate([part for part, _ in losses]).tolist()
        total = math.fsum(parts) if self._ensemble.loss.squared else sum(map(int, parts)) / float(2**_LOSS_BITS)
        loss = total / (max(UNIT, sum(weight for _, weight in losses)) / UNIT)
        if self.best < 0 or loss < self._least - options.tol:
            self._least, self.best = loss, m
        return m - self.best >= options.n_iter_no_change


class Crew:
    """The row shards of an owner that has all rows: threads, each a shard beside the owner's own."""

    def __init__(self, shard: RowShard, features: Features) -> None:
        self.shard, self._width = shard, max(1, len(features.names))  # of a row, about
        self._beside: list[RowShard] = []  # the other shards of the last pass

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: without the memory of other threads."""
        return {**self.__dict__, "_beside": []}

    def rest(self) -> None:
        """Drop what the next update makes again from the rows."""
        self._beside = []
        self.shard.rest()

    def train(self, slots: Slots, F: Floats, first: int, stop: int) -> None:
        """Train some iterations; arguments as of :meth:`RowShard.train`."""
        crew = self._crew(len(slots), CELLS_OF_A_THREAD)
        if len(crew) == 1:
            self.shard.train(slots, F, first, stop)
            return
        parts = [slice(*bounds) for bounds in pairwise(_bounds(len(slots), len(crew)))]
        side_by_side(
            [shard.train_steps(slots[part], F[part], first, stop) for shard, part in zip(crew, parts, strict=True)]
        )

    def update(self, slots: Slots, role: int, anew: Slots) -> list[Ints]:
        """Delete or insert rows (``role``), and compute all derivatives of the rows ``anew`` again.

        Returns what each shard has done (COUNTS); ``taken`` of the first are then all rows that went through the trees.
        """
        e = self.shard.ensemble
        e.write_ledger()  # before threads share it
        if self.shard.rests:
            self.sum_up(np.flatnonzero(e.leaf[0] != e.absent).astype(np.int32))
        most = (len(slots) + len(anew)) * self._width // CHANGES_OF_A_THREAD
        held = np.flatnonzero(e.leaf[0] != e.absent) if min(most, threads()) > 1 else slots
        crew = self._crew(len(held), UPDATED_CELLS_OF_A_THREAD, most)
        if len(crew) == 1:
            return [self.shard.update(slots, role, anew)]
        ends = [0, *(int(held[i]) for i in _bounds(len(held), len(crew))[1:-1]), e.leaf.shape[1]]
        results = side_by_side(
            [
                shard.update_steps(slots[_within(slots, *own)], role, anew[_within(anew, *own)], len(anew) > 0, *own)
                for shard, own in zip(crew, pairwise(ends), strict=True)
            ]
        )
        self.shard.taken = np.concatenate([shard.taken for shard in crew])
        return results

    def sum_up(self, slots: Slots) -> None:
        """Make all histograms, some trees in each thread."""
        crew = self._crew(len(slots), CELLS_OF_A_THREAD)
        trees, n = len(self.shard.ensemble.leaf), len(crew)
        bounds = [trees * i // n for i in range(n + 1)]
        run([partial(one.sum_up, slots, bounds[i], bounds[i + 1]) for i, one in enumerate(crew)])

    def _crew(self, rows: int, of_a_thread: int, most: int = 1 << 30) -> list[RowShard]:
        """Return the shards of a pass over so many rows, at most ``most``; the first is the owner's own.

        Each has at least ``of_a_thread`` cells.
        """
        shards = max(1, min(threads(), most, rows * self._width // of_a_thread))
        self.shard.divide(0, shards, True)
        if shards > 1:
            former = [*self._beside, *[None] * shards]
            self._beside = [self.shard.beside(former[i - 1], i, shards) for i in range(1, shards)]
            return [self.shard, *self._beside]
        return [self.shard]


def _bounds(rows: int, shards: int) -> list[int]:
    """Return where the rows of each shard of this process begin, and how many rows there are in all."""
    return [rows * i // shards for i in range(shards + 1)]


def _within(slots: Slots, begin: int, end: int) -> Bools:
    within: Bools = (slots >= begin) & (slots < end)
    return within


# The rows that a shard of the GBDT owns: which wait for the end of a batch D', and what their labels and weights add.
#
# Invariant: of a row that waits to be deleted the store has all but the way from its id.


class PendingRows(OwnedRows):
    """An owner's examples, and which of them wait for the end of a batch D'."""

    LATER = ("leaf", "ledger", "drift")
    COLUMNS: ClassVar[tuple[str, ...]] = (*OwnedRows.COLUMNS, "pending")
    ANSWERS: ClassVar[frozenset[str]] = OwnedRows.ANSWERS | {"summaries", "summary_of_inserts", "sum_of_weights"}
    Pending = PendingUpdates

    #: The shard that has the features of these rows, where it is in the coordinator's process and has all rows.
    shard: Any

    def __init__(
        self, owners: RowOwners, index: int, target_dtype: np.dtype[Any], weighting: Weighting | None = None
    ) -> None:
        super().__init__(owners, index, target_dtype)
        self._weighting = weighting or Weighting(False)  # whose factors the coordinator resolves

    @classmethod
    def counts_of(cls, state: Mapping[str, AnyArray]) -> list[int]:
        """Count the live rows of a state, and those that wait to be inserted and to be deleted."""
        inserts, deletes = (int(np.count_nonzero(state["pending"] == kind)) for kind in (TO_INSERT, TO_DELETE))
        return [len(state["pending"]) - deletes, inserts, deletes]

    # ---------------------------------------------------------------- labels and weights

    @property
    def targets(self) -> Targets:
        """Labels of the own rows, and what each counts, by local slot."""
        return Targets(self.store.y, self._weighting.by_slot(self.store))

    def balance(self, factors: Ints | None) -> None:
        """Take the factors of classes, None before they are resolved."""
        if factors is not self._weighting.factors:
            self._weighting.take(factors)
        self._weighting.enter(self.store, np.concatenate([self.store.slots(), self.pending.deletes]))

    def _enter(self, local: Slots) -> None:
        self._weighting.enter(self.store, local)

    def of_training(self, local: Slots, held: Slots, balanced: bool) -> dict[str, Any]:
        """Return a summary of the labels of rows of a training, and how many are ``held`` out.

        ``balanced``: and the sums of their weights by class.
        """
        y, weights = self.store.y[local], self.store.weights(local)
        found: dict[str, Any] = {"targets": summary_of(y, weights), "held": len(held)}
        return found | {"weights": sums_by_class(weights, y)} if balanced else found

    def sum_of_weights(self) -> int:
        """Add up what the live rows count, in units."""
        return self._weighting.sum_of(self.store)

    def summaries(self, seqs: Ids, deleted: Slots, since: Ids) -> list[AnyArray]:
        """Return summaries of the labels of the examples that were live before each of some updates (``seqs``).

        ``deleted`` are slots of any owner whose rows a later update, ``since``, has deleted.
        """
        mine = self.owners.shard_of(deleted) == self.index
        return summaries_before(self.store, seqs, self.owners.local(deleted[mine]), since[mine])

    def summary_of_inserts(self) -> AnyArray:
        """Return a summary of the labels of the rows that wait to be inserted."""
        return summary_of(self.store.y[self.pending.inserts])

    # ---------------------------------------------------------------- all rows

    def equal(self, y: Any, masks: Sequence[npt.NDArray[np.uint8]]) -> tuple[int, int]:
        """Return :meth:`oldest` of the live rows of a label that are in all masks (bits by local slot).

        A mask of no bits has all rows.
        """
        found = self.store.slots()
        found = found[self.store.y[found] == y]
        for mask in masks:
            if len(mask):
                found = found[np.unpackbits(mask)[found] == 1]
        return self.oldest(found)

    # ---------------------------------------------------------------- states

    def fill(self, rows: Mapping[str, AnyArray]) -> None:
        """As of all owners; rows that wait to be deleted are not found by their ids."""
        super().fill(rows)
        pending, local = rows["pending"], np.arange(len(rows["pending"]), dtype=np.int32)
        self.pending.add(local[pending == TO_INSERT], local[pending == TO_DELETE])

    def _listed(self, rows: Mapping[str, AnyArray]) -> Bools | None:
        listed: Bools = rows["pending"] != TO_DELETE
        return listed

    def changing(self, local: Slots) -> Arrays:
        """Return births, and which rows wait."""
        return {**super().changing(local), "pending": self.pending.status(local)}


# What a shard of the GBDT has of the rows that it owns: how it gets them, writes them for a state and reads them back.
#
# Not here: what it does with them (``shard``), and what all shards that own rows have
# (``raydt.batches.rows_on_shards``).

#: Rows that are copied at once.
_COPIED = 1 << 16
_NO_SLOTS: Slots = np.empty(0, dtype=np.int32)
#: Cells whose bins one thread makes in less than it takes to hand them out.
FEW_CELLS = 1 << 16
#: Rows that are encoded between two meetings, at most; and by a task of one owner.
_ENCODED, ENCODED_BY_A_TASK = 1 << 16, 1 << 12


class GBDTShard(OwningShard[PendingRows]):
    """Owner of whole feature groups, and of the rows in some slots, with their leaves, ledger and drift."""

    _layout: RowsOnShards

    def __init__(self, options: GBDTOptions, features: Features, groups: Ints, rows: PendingRows | None = None) -> None:
        super().__init__(features, groups)
        self._options, self._kinds = options, features.kinds[self.columns]
        self._own: RowShard | None = None
        self._crew: Crew | None = None  # that makes its passes, if there is no other shard
        self._encoded = _NO_SLOTS  # the first own rows of this model
        self._training = _NO_SLOTS  # the own rows that this model is trained on
        self._slots = _NO_SLOTS  # of the rows that will be encoded, of all owners
        self._waiting = np.empty(0, dtype=np.int64)  # ids of the rows that waited at the last digest
        self._hashes: LedgerHashes | None = None  # of the ledger at the last digest
        self._scores = np.empty((0, 0))  # of the rows of a training
        self._holds_out = False  # whether some of those rows are held out
        self._is_first = True  # whether no model came before this one
        self._held_out: HeldOut | None = None  # the own ones, whose losses end it early
        self._is_here = rows is not None  # in the coordinator's process, which writes the rows of a state
        if rows is not None:
            self._index, self._owners, self._rows, rows.shard = 0, rows.owners, rows, self
            self._layout = RowsOnShards(features, 1)

    def _no_rows(self) -> PendingRows:
        self._layout = RowsOnShards(self._features, self._owners.shards)
        return PendingRows(self._owners, self._index, np.dtype(np.float64 if self._options.regression else np.int32))

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request."""
        if self._own is not None and method != MET:
            self._own.targets = self.rows_here.targets  # which may have grown
        return super().handle(method, payload)

    @property
    def own(self) -> RowShard:
        """The model of the own rows, once there is one."""
        assert self._own is not None
        return self._own

    def begin_with(self, ensemble: Ensemble | None, cells: CellStore | None = None) -> None:
        """Begin with an ensemble, and perhaps with encoded rows; None: without a model."""
        self._own = self._crew = self._hashes = None
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
        """Drop what the next update or digest makes again from the rows."""
        self._hashes = None
        if self._crew is not None:
            self._crew.rest()

    # ---------------------------------------------------------------- states

    def rows(self, slots: Slots) -> dict[Any, dict[str, Any]]:
        """Features of new rows; of an owner that writes its rows, what else never changes of these."""
        return self._held.by_group(slots) if self._is_here else super().rows(slots)

    def state(self, slots: Slots) -> dict[int | Buckets, dict[str, Any]]:
        """Own rows, if this shard writes them."""
        return {} if self._is_here else super().state(slots)

    def of_model(self, local: Slots) -> dict[str, Any]:
        """Leaves, ledger and drift: histograms follow from these."""
        return {} if self._own is None else self._own.of_rows(local)

    def _width_of_model(self) -> int:
        if self._own is None:
            return 0
        e = self._own.ensemble
        return len(e.leaf) * (e.leaf.itemsize + e.ledger.itemsize)

    def restore(self, state: Mapping[Any, dict[str, Any]]) -> None:
        """Also begin without a model, unless the coordinator has given one."""
        if not self._is_here:
            self.begin_with(None)
        super().restore(state)

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

    # ---------------------------------------------------------------- the own rows

    def _on_delete_equal(self, y: Any, row: Any) -> Steps[Any]:
        """Find the oldest live row that equals one together with the other shards; its owner has it wait."""
        rows, masks = self.rows_here, []
        local = np.arange(self._owners.local_capacity(self._held.used), dtype=np.int32)
        for shard in range(self._owners.shards if len(self.groups) else 0):
            masks.append(np.packbits(self._held.among(self._owners.slots(local, shard), row)))
        none = np.empty(0, dtype=np.uint8)  # of a shard that has nothing to compare
        found = rows.equal(y, (yield ReduceScatter(masks or [none] * self._owners.shards, in_both)))
        return (yield from self.delete_oldest(*found))

    def _of_all(self, mine: AnyArray) -> Steps[AnyArray]:
        """Return what all shards have, sorted."""
        return np.sort(np.concatenate((yield AllGather(mine, self._owners.shards))))

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
            drawn = drawn_to_hold_out((yield from self._of_all(rows.store.born[mine])), self._options)
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
        self._is_first = self._own is None
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
        mine = self.rows_here.mine(slots)
        self._encoded = mine if restored else _NO_SLOTS
        counts = own.cells.default_counts(mine)
        own.cells.choose(np.sum((yield AllGather(counts, shards)), axis=0), len(slots))
        for local, ones in taken:
            own.cells.arrange(local, ones)
        own.divide(self._index, shards)

    # ---------------------------------------------------------------- passes

    def _on_train(self, first: int, stop: int) -> Steps[Any]:
        """Train some iterations together with the other shards; returns the trees, and losses of own rows held out."""
        if first == 0:
            self._scores, self._held_out = self.own.ensemble.origins(len(self._training)), None
            if self._is_first and not self._holds_out:
                self.own.ensemble.leave_ledger(self.rows_here.store.y)
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
        ensemble.set_roots(known, np.sum((yield AllGather(sums, shards)), axis=0))
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
