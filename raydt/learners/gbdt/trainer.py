"""The coordinator's half of training and of updates: which shards there are, and what each is told.

The rows of a model are divided among *row shards* (``row_shard``). With :class:`ThreadTrainer` these are threads of
this process, as many as pay for the pass, over arrays that they share with the coordinator; one alone makes a pass in
one call of compiled code. With :class:`ShardTrainer` they are the shards of the exchange, each with memory of its own.

Invariant: both leave the same ensemble, bit for bit, with any number of shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.rng import permutation, stream_key
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.examples.features import Features
from raydt.examples.owned_store import OwnedStore
from raydt.examples.weights import BITS, UNIT, Weights
from raydt.exchange.meeting import side_by_side, together
from raydt.exchange.messages import Ended, Exchange, Payload, Tell
from raydt.learners.gbdt.derivatives import ONE, derive
from raydt.learners.gbdt.ensemble import Arrays, Ensemble, known_trees, with_class
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.row_shard import RowShard
from raydt.learners.gbdt.trees import score_rows
from raydt.learners.gbdt.update_batch import Counts
from raydt.learners.gbdt.workspace import INSERTED
from raydt.parallel.threads import ranges, run, threads

Labels = npt.NDArray[Any]  # by slot
Slots = npt.NDArray[np.int32]

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


def held_out_rows(slots: npt.NDArray[np.int32], options: GBDTOptions) -> tuple[Any, Any]:
    """Return the rows to train on and those to hold out, drawn by their positions among the first rows."""
    held = max(1, min(len(slots) - 1, math.ceil(options.validation_fraction * len(slots))))
    drawn = np.sort(permutation(stream_key(options.random_state, "gbdt validation"), len(slots))[:held])
    return np.delete(slots, drawn), slots[drawn]


class HeldOut:
    """Rows and targets, shape (n,), on which the loss is watched while the others are trained on."""

    def __init__(self, ensemble: Ensemble, rows: RowBlock, y: npt.NDArray[Any], weight: Weights | None) -> None:
        self._ensemble, self._rows, self._y = ensemble, rows, y
        self._weight = np.full(len(y), UNIT, dtype=np.int64) if weight is None else weight.astype(np.int64)
        self._F = ensemble.origins(len(y))
        self.best, self._least = -1, math.inf
        with np.errstate(divide="ignore"):
            table = -np.log(np.arange(ONE + 1) / ONE)
        self._losses = np.rint(np.minimum(table, 64.0) * 2**_LOSS_BITS).astype(np.int64)

    def loss(self) -> float:
        """Return the mean loss: log loss of quantised probabilities, or squared error in units of the scale, 2**e."""
        e, n = self._ensemble, max(UNIT, int(self._weight.sum())) / UNIT
        if e.loss.squared:
            errors = np.ldexp(self._y - self._F[:, 0], -e.exponent) ** 2
            return float(math.fsum(errors * (self._weight / UNIT))) / n
        q = np.empty((e.per, len(self._y)), dtype=np.int32)
        derive(self._F, self._y, e.loss, np.empty(e.per), q)
        own = np.where(self._y == 1, q[0], ONE - q[0]) if e.per == 1 else q[self._y, np.arange(len(self._y))]
        weighted = (self._losses[own] * self._weight + UNIT // 2) >> BITS
        return int(weighted.sum()) / float(2**_LOSS_BITS) / n

    def is_enough(self, m: int) -> bool:
        """Return True if the loss, after iteration ``m``, has not fallen for as long as the options allow."""
        e = self._ensemble
        score_rows(e.trees, m, m + 1, self._rows, e.bins, self._F)
        loss = self.loss()
        if self.best < 0 or loss < self._least - e.options.tol:
            self._least, self.best = loss, m
        return m - self.best >= e.options.n_iter_no_change


class ThreadTrainer:
    """Does the work of all shards in this process; it asks them only for the features of the first rows.

    ``weights`` gives what all rows count, by slot.
    """

    def __init__(
        self, ensemble: Ensemble, features: Features, rows: RowsOnShards, weights: Callable[[], Weights]
    ) -> None:
        self.shard, self._features, self._rows, self._weights = RowShard(ensemble, features), features, rows, weights
        self._beside: list[RowShard] = []  # the other shards of the last pass

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: without the memory of other threads."""
        return {**self.__dict__, "_beside": []}

    @property
    def ensemble(self) -> Ensemble:
        """Return the ensemble as it is now."""
        return self.shard.ensemble

    def encode(self, slots: Slots, y: Labels) -> Exchange[None]:
        """Encode the first rows of a new ensemble."""
        self.ensemble.reserve(len(y))
        cells = self.shard.cells
        cells.make_room(slots)
        parts = []
        for begin in range(0, len(slots), _FETCHED):
            block = slots[begin : begin + _FETCHED]
            rows = yield from self._rows.take(block)
            divided = ranges(len(block), _ENCODED, 4)
            run([partial(cells.add_columns, block[part], rows.X[part]) for part in divided])
            parts.append((block, rows._replace(X=rows.X[:0].copy())))
        cells.choose(cells.default_counts(slots), len(slots))
        for block, rows in parts:
            cells.arrange(block, rows)

    def take(self, slots: Slots, rows: RowBlock) -> None:
        """Encode new rows."""
        self.shard.cells.add(slots, rows)

    def train(self, y: Labels, slots: Slots, held_out: HeldOut | None) -> Exchange[None]:
        """Train all iterations on encoded rows; rows held out decide how many of them are kept."""
        yield from ()
        e, self.shard.y, self.shard.weight = self.ensemble, y, self._weights()
        F = e.origins(len(slots))
        if held_out is None:
            self._train(slots, F, 0, e.iterations)
            return
        for m in range(e.iterations):
            self._train(slots, F, m, m + 1)
            if held_out.is_enough(m):
                break
        if held_out.best + 1 < e.iterations:
            self.shard.shorten(held_out.best + 1)

    def _train(self, slots: Slots, F: npt.NDArray[np.float64], first: int, stop: int) -> None:
        crew = self._crew(len(slots), CELLS_OF_A_THREAD)
        if len(crew) == 1:
            self.shard.train(slots, F, first, stop)
            return
        parts = [slice(len(slots) * i // len(crew), len(slots) * (i + 1) // len(crew)) for i in range(len(crew))]
        side_by_side(
            [shard.train_steps(slots[part], F[part], first, stop) for shard, part in zip(crew, parts, strict=True)]
        )

    def update(self, y: Labels, slots: Slots, role: int, anew: Slots) -> Exchange[tuple[Counts, Slots]]:
        """Delete or insert rows (``role``), and compute all derivatives of the rows ``anew`` again.

        Returns its costs, and the slots of all rows here that went through the trees, valid until the next update.
        """
        yield from ()
        e, self.shard.y, self.shard.weight = self.ensemble, y, self._weights()
        e.reserve(len(y))
        most = (len(slots) + len(anew)) * self._width // CHANGES_OF_A_THREAD
        held = np.flatnonzero(e.leaf[0] != e.absent) if min(most, threads()) > 1 else slots
        crew = self._crew(len(held), UPDATED_CELLS_OF_A_THREAD, most)
        if len(crew) == 1:
            return self.shard.update(slots, role, anew), self.shard.taken
        ends = [0, *(int(held[len(held) * i // len(crew)]) for i in range(1, len(crew))), e.leaf.shape[1]]
        results = side_by_side(
            [
                shard.update_steps(slots[_within(slots, *own)], role, anew[_within(anew, *own)], len(anew) > 0, *own)
                for shard, own in zip(crew, pairwise(ends), strict=True)
            ]
        )
        return Counts.of(len(e.trees.feature), results), np.concatenate([shard.taken for shard in crew])

    def extend(self, classes: int, y: Labels, held: Slots) -> Exchange[None]:
        """Continue with an ensemble of more classes, the same bins and the rows ``held``."""
        yield from ()
        known = known_trees(self.ensemble)
        ensemble = with_class(self.ensemble, classes, held)
        ensemble.set_roots(known, ensemble.sums_of_roots(known, y, self._weights(), held))
        self.shard, self._beside = RowShard(ensemble, self._features, self.shard.cells), []
        self._sum_up(y, held)

    def resume(self, y: Labels, held: Slots, new: Slots, rows: Slots) -> Exchange[None]:
        """After a restore: encode the rows ``held`` and sum up their histograms, and take those that wait, ``new``.

        ``rows`` are the slots of all rows, in the order of the state.
        """
        yield from self.encode(np.union1d(held, new).astype(np.int32), y)
        self._sum_up(y, held)

    def _sum_up(self, y: Labels, slots: Slots) -> None:
        """Make all histograms, some trees in each thread."""
        self.shard.y, self.shard.weight = y, self._weights()
        crew = self._crew(len(slots), CELLS_OF_A_THREAD)
        trees, n = len(self.ensemble.leaf), len(crew)
        bounds = [trees * i // n for i in range(n + 1)]
        run([partial(one.sum_up, slots, bounds[i], bounds[i + 1]) for i, one in enumerate(crew)])

    @property
    def _width(self) -> int:
        """Features of a row, about."""
        return max(1, len(self._features.names))

    def _crew(self, rows: int, of_a_thread: int, most: int = 1 << 30) -> list[RowShard]:
        """Return the shards of a pass over so many rows, at most ``most``; the first is this process's own.

        Each has at least ``of_a_thread`` cells.
        """
        shards = max(1, min(threads(), most, rows * self._width // of_a_thread))
        self.shard.divide(0, shards)
        if shards > 1:
            former = [*self._beside, *[None] * shards]
            self._beside = [self.shard.beside(former[i - 1], i, shards) for i in range(1, shards)]
            return [self.shard, *self._beside]
        return [self.shard]


def _within(slots: Slots, begin: int, end: int) -> npt.NDArray[np.bool_]:
    """Return which slots are in a range."""
    within: npt.NDArray[np.bool_] = (slots >= begin) & (slots < end)
    return within


class ShardTrainer:
    """Has the shards of the exchange keep the rows and train on them; methods as of :class:`ThreadTrainer`.

    The ensemble here has trees only: leaves, ledger and drift of the rows stay with the shards.
    """

    def __init__(self, ensemble: Ensemble, rows: RowsOnShards, store: OwnedStore) -> None:
        self.ensemble, self._rows, self._store = ensemble, rows, store

    def encode(self, slots: Slots, y: Labels) -> Exchange[None]:
        """Have the first rows of a new ensemble encoded."""
        shards, slots = len(self._rows.columns), np.sort(slots)
        each = [{"index": index} for index in range(shards)]
        yield Tell("begin", {**self.ensemble.begin(), "shards": shards}, each)
        yield from together("encode", self._store.rows(slots))

    def take(self, slots: Slots, rows: RowBlock) -> None:
        """Nothing: rows are encoded when they are inserted into the trees."""

    def train(self, y: Labels, slots: Slots, held_out: HeldOut | None) -> Exchange[None]:
        """Train all iterations on encoded rows; rows held out decide how many of them are kept."""
        e = self.ensemble
        ends = [e.iterations] if held_out is None else range(1, e.iterations + 1)
        first = 0
        for stop in ends:
            given = slots if first == 0 else slots[:0]
            yield from self._pass("train", {"slots": given, "first": first, "stop": stop})
            if held_out is not None and held_out.is_enough(first):
                break
            first = stop
        if held_out is not None and held_out.best + 1 < e.iterations:
            self.ensemble = e.shortened(held_out.best + 1)
            yield Tell("shorten", {"iterations": self.ensemble.iterations})

    def update(self, y: Labels, slots: Slots, role: int, anew: Slots) -> Exchange[tuple[Counts, Slots]]:
        """Delete or insert rows, as :meth:`ThreadTrainer.update`; no rows are here."""
        rows = {**self._store.rows(slots if role == INSERTED else slots[:0]), "slots": slots}
        ended = yield from self._pass("update", {**rows, "role": role, "anew": anew})
        counts = Counts.of(len(self.ensemble.trees.feature), [of_shard.result["counts"] for of_shard in ended])
        counts.rounds = 2 * ended[0].met + 1
        return counts, slots[:0]

    def extend(self, classes: int, y: Labels, held: Slots) -> Exchange[None]:
        """Continue with an ensemble of more classes, the same bins and the rows ``held``."""
        e = self.ensemble
        self.ensemble = Ensemble(e.options, e.bins, classes, 0.0, 0, e.iterations, 0)
        yield from self._pass("extend", {"classes": classes})

    def resume(self, y: Labels, held: Slots, new: Slots, rows: Slots) -> Exchange[None]:
        """After a restore: encode the rows ``held`` and sum up their histograms."""
        e = self.ensemble
        yield from self.encode(held, y)
        each: list[dict[str, Any]] = []
        for own, _ in self._store.by_owner(rows) if e.leaf.shape[1] else ():  # else the shards have theirs
            own = own[e.leaf[0, own] != e.absent]
            given = {"slots": rows[own], "leaf": e.leaf[:, own], "ledger": e.ledger[:, own], "drift": e.drift[own]}
            each.append({"rows": given})
        yield Tell("restore_rows", {"trees": e.trees}, each or None)
        e.release()
        yield from together("sum_up", {})

    def _pass(self, method: str, payload: Payload) -> Exchange[list[Ended]]:
        """Have the shards make a pass that changes the trees, which all have alike."""
        ended = yield from together(method, payload)
        trees: tuple[Any, ...] = self.ensemble.trees
        for array, theirs in zip(trees, ended[0].result["trees"], strict=True):
            array[:] = theirs
        return ended


def no_rows(state: Arrays) -> Arrays:
    """Leaves, ledger and drift in a state of no rows: what the coordinator has where shards have these."""
    none: npt.NDArray[Any] = np.empty((0, len(state["tree_nodes"])), dtype=np.uint8)
    return {"leaf": none, "ledger": none, "drift": none[:, 0]}
