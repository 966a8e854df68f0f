"""Training and updates on the rows of one owner: labels, rows that wait, rows held out, and the threads of a pass.

The rows of a model are divided among *row shards* (``row_shard``). Where shards own the rows, they are the row shards.
An owner that has all rows divides them among threads of its process, as many as pay for the pass, over arrays that they
share; one alone makes a pass in one call of compiled code.

Invariant: the ensemble is the same, bit for bit, with any number of row shards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Int32s, Ints, Slots, permutation, stream_key
from raydt.batches.binning import Bins, joined
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.owned_rows import Ids, OwnedRows
from raydt.examples.row_owners import RowOwners
from raydt.examples.store import Weighting
from raydt.examples.updates import BITS, UNIT, Features, Weights, sums_by_class
from raydt.exchange.links import side_by_side
from raydt.learners.gbdt.candidates import Summary, Targets, classes_in, scale_of, summaries_before, summary_of
from raydt.learners.gbdt.derivatives import ONE, derive
from raydt.learners.gbdt.ensemble import Ensemble, score_rows
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.row_shard import RowShard
from raydt.learners.gbdt.update import TO_DELETE, TO_INSERT, PendingUpdates
from raydt.parallel import run, threads

#: -log of each quantised probability, in fixed point: sums of it are exact.
_LOSS_BITS = 20
#: Rows that are fetched and encoded at once, at most.
_FETCHED = 1 << 16
#: Rows encoded by a task.
_ENCODED = 1 << 12
#: Cells (rows x features) of a model for each thread of a training: a tree then takes some milliseconds, a meeting 0.1.
CELLS_OF_A_THREAD = 1_000_000
#: Cells of a model, and of a batch, for each thread of an update, which trains few of the trees again.
UPDATED_CELLS_OF_A_THREAD, CHANGES_OF_A_THREAD = 3_000_000, 10_000


def held_out_rows(slots: Int32s, options: GBDTOptions) -> tuple[Any, Any]:
    """Return the rows to train on and those to hold out, drawn by their positions among the first rows."""
    held = max(1, min(len(slots) - 1, math.ceil(options.validation_fraction * len(slots))))
    drawn = np.sort(permutation(stream_key(options.random_state, "gbdt validation"), len(slots))[:held])
    return np.delete(slots, drawn), slots[drawn]


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
            return exact_parts((errors * (self._weight / UNIT)).tolist()), weight
        q = np.empty((e.per, n), dtype=np.int32)
        derive(self._F, self._y, e.loss, np.empty(e.per), q)
        own = np.where(self._y == 1, q[0], ONE - q[0]) if e.per == 1 else q[self._y, np.arange(n)]
        weighted = (self._losses[own] * self._weight + UNIT // 2) >> BITS
        return np.array([weighted.sum()]), weight


def exact_parts(values: Sequence[float]) -> Floats:
    """Return few numbers that have the same exact sum as many. O(values) for each of them, of which most have two."""
    parts: list[float] = []
    while rest := math.fsum(itertools.chain(values, (-part for part in parts))):
        parts.append(rest)
        if not math.isfinite(rest):
            break
    return np.array(parts)


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
        parts = [slice(len(slots) * i // len(crew), len(slots) * (i + 1) // len(crew)) for i in range(len(crew))]
        side_by_side(
            [shard.train_steps(slots[part], F[part], first, stop) for shard, part in zip(crew, parts, strict=True)]
        )

    def update(self, slots: Slots, role: int, anew: Slots) -> list[Ints]:
        """Delete or insert rows (``role``), and compute all derivatives of the rows ``anew`` again.

        Returns what each shard has done (COUNTS); ``taken`` of the first are then all rows that went through the trees.
        """
        e = self.shard.ensemble
        if self.shard.rests:
            self.sum_up(np.flatnonzero(e.leaf[0] != e.absent).astype(np.int32))
        most = (len(slots) + len(anew)) * self._width // CHANGES_OF_A_THREAD
        held = np.flatnonzero(e.leaf[0] != e.absent) if min(most, threads()) > 1 else slots
        crew = self._crew(len(held), UPDATED_CELLS_OF_A_THREAD, most)
        if len(crew) == 1:
            return [self.shard.update(slots, role, anew)]
        ends = [0, *(int(held[len(held) * i // len(crew)]) for i in range(1, len(crew))), e.leaf.shape[1]]
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
        self.shard.divide(0, shards)
        if shards > 1:
            former = [*self._beside, *[None] * shards]
            self._beside = [self.shard.beside(former[i - 1], i, shards) for i in range(1, shards)]
            return [self.shard, *self._beside]
        return [self.shard]


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
