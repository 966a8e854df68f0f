"""One process does the work of all shards itself: no messages, no Python for a tree or a node.

It keeps the rows as cells, and the histogram of every inner node. Nothing of that is saved: it follows from rows,
leaves and ledger, bit for bit. The shards, in the same process, keep the raw rows, for snapshots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.batches.rows_on_shards import RowsOnShards
from raydt.examples.features import Features
from raydt.exchange.messages import Exchange
from raydt.learners.gbdt.binned_rows import ENCODED, CellStore, room_for_places
from raydt.learners.gbdt.candidates import draw, most_candidates
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.leaf_search import LocalSums
from raydt.learners.gbdt.local_pass import train_pass, update_pass
from raydt.learners.gbdt.pass_sums import sum_up
from raydt.learners.gbdt.tree_growth import GrowthRoom, growth_room
from raydt.learners.gbdt.update import Counts
from raydt.learners.gbdt.window import INSERTED
from raydt.learners.gbdt.workspace import (
    BOUNDED,
    COUNTS,
    DEPTH,
    NEVER,
    NODES,
    REFRESHED,
    RETRAINED,
    ROWS,
    SUBTREES,
    TREES_RETRAINED,
    LocalBatch,
    PassRoom,
    PassRules,
    pass_room,
)

Slots = npt.NDArray[np.int32]
_FOLLOW = {"never": NEVER, "retrained": RETRAINED, "bounded": BOUNDED, "changed_leaves": BOUNDED}


class LocalTrees:
    """Cells, histograms and room to work.

    Parameters
    ----------
    ensemble : Ensemble
        Whose trees, leaves and ledger change with these histograms.
    features : Features
    cells : CellStore, optional
        Rows that are encoded already.
    """

    def __init__(self, ensemble: Ensemble, features: Features, cells: CellStore | None = None) -> None:
        self.ensemble, self._features = ensemble, features
        self.cells = cells or CellStore(ensemble.bins, len(features.names))
        #: Slots of the rows that the last update took through the trees, until the next.
        self.taken: Slots = np.empty(0, dtype=np.int32)
        self._local: LocalSums | None = None
        self._room: tuple[PassRoom, GrowthRoom, LocalBatch] | None = None

    # ---------------------------------------------------------------- rows

    def encode_first(self, slots: Slots, rows_of: RowsOnShards) -> Exchange[None]:
        """Fetch rows of the model from the shards and encode them, some at a time."""
        parts = [slots[begin : begin + ENCODED] for begin in range(0, len(slots), ENCODED)]
        sparse = []
        self.cells.make_room(slots)
        for part in parts:
            rows = yield from rows_of.take(part)
            self.cells.add_columns(part, rows)
            sparse.append(rows._replace(X=rows.X[:0].copy()))
        self.cells.choose(slots)
        for part, rows in zip(parts, sparse, strict=True):
            self.cells.arrange(part, rows)

    # ---------------------------------------------------------------- work

    def train(self, slots: Slots, y: npt.NDArray[Any], F: npt.NDArray[np.float64], first: int, stop: int) -> None:
        """Train some iterations; ``F``, shape (rows, K'), is the score before and after."""
        room, grow_room, batch = self._begin(y)
        own, local = len(slots), self._sums
        batch.slots[:own], batch.F[:, :own] = slots, F.T
        if self.ensemble.per > 1 or len(local.candidates.cuts) == 1:  # else what is looked up serves one tree only
            places = room_for_places(local.cells, slots, local.sums.shape[2] - 1)
            grow_room = grow_room._replace(places=places)
        train_pass(self.ensemble.arrays(), local, batch, own, first, stop, grow_room, room.p)
        F[:] = batch.F[:, :own].T

    def update(self, y: npt.NDArray[Any], slots: Slots, role: int, anew: Slots) -> Counts:
        """Take rows through all trees, and others whose derivatives are all computed anew."""
        e, o = self.ensemble, self.ensemble.options
        room, grow_room, batch = self._begin(y)
        others, compares = e.others(slots, anew)
        own, n = len(slots), len(slots) + len(others)
        batch.slots[:own], batch.slots[own:n] = slots, others
        batch.F[:, :n] = e.loss.origin
        batch.member[batch.slots[:n]] = True
        rows = int(np.count_nonzero(e.leaf[0] != e.absent)) + own * (role == INSERTED)
        rules = PassRules(_FOLLOW[o.derivatives], o.robustness_tolerance, e.tolerance, rows, e.stale, e.most_drift)
        counts = np.zeros(COUNTS, dtype=np.int64)
        n = update_pass(e.arrays(), self._sums, batch, role, own, n, rules, compares, room, grow_room, counts)
        self.taken = batch.slots[:n]
        batch.member[self.taken] = False
        c = counts.tolist()
        return Counts(len(e.trees.feature), c[TREES_RETRAINED], c[SUBTREES], c[ROWS], c[NODES], c[DEPTH], c[REFRESHED])

    def sum_up(self, slots: Slots, y: npt.NDArray[Any]) -> None:
        """Make all histograms from the rows of the model."""
        room, _, _ = self._begin(y)
        sum_up(self.ensemble.arrays(), self._sums, y, slots, room)

    def shorten(self, ensemble: Ensemble) -> None:
        """Go on with the first trees only."""
        self.ensemble = ensemble
        local = self._sums
        self._local = local._replace(sums=local.sums[: len(ensemble.leaf)].copy())

    # ---------------------------------------------------------------- memory

    @property
    def _sums(self) -> LocalSums:
        """Cells, candidates and histograms, for kernels; made when they are first needed."""
        e, o = self.ensemble, self.ensemble.options
        if self._local is None:
            features, most = np.arange(len(e.bins)), most_candidates(o.candidate_fraction, o.max_bins)
            candidates = draw(e.bins, features, e.bins.cuts(), most, o.random_state, e.iterations, self.cells.whole)
            shape = len(e.leaf), o.max_leaf_nodes - 1, int(candidates.stored[-1]) + 1, 2
            self._local = LocalSums(self.cells.cells, candidates, e.units, np.zeros(shape, dtype=np.int64))
        return self._local._replace(cells=self.cells.cells)

    def _begin(self, y: npt.NDArray[Any]) -> tuple[PassRoom, GrowthRoom, LocalBatch]:
        """Room for as many rows as the ensemble has slots, and the batch over it."""
        e, per = self.ensemble, self.ensemble.per
        capacity = e.leaf.shape[1] + 1  # a row is written before it is known whether it is wanted
        if self._room is None or len(self._room[2].slots) < capacity or len(self._room[2].entry) != per:
            local = self._sums
            trees, inner, stored = local.sums.shape[:3]
            room = pass_room(capacity, trees, inner, stored, len(e.bins), e.absent, per)
            slots, F = np.empty(capacity, dtype=np.int32), np.empty((per, capacity))
            entry, differs = np.empty((per, capacity), dtype=np.int32), np.empty(per, dtype=np.bool_)
            batch = LocalBatch(slots, F, entry, differs, np.zeros(capacity, dtype=np.bool_), y)
            self._room = room, growth_room(capacity, inner + 1, stored - 1), batch
        room, grow_room, batch = self._room
        self._room = room, grow_room, batch._replace(y=y)
        return self._room
