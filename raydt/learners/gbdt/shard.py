"""The GBDT's half on a shard: it keeps its columns as bins, and the histogram of every inner node.

Histograms are not saved: they follow from rows, leaves and ledger, bit for bit (``resume`` and ``change``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.batches.binning import Bins, learn_bins
from raydt.batches.rows_on_shards import RowBlock, ShardWithRows
from raydt.examples.features import Features
from raydt.learners.gbdt.binned_rows import ENCODED, CellStore
from raydt.learners.gbdt.candidates import draw, most_candidates
from raydt.learners.gbdt.growth import Growth, Jobs, keep_splits, new_growth, open_roots, part_rows, sides, split_leaves
from raydt.learners.gbdt.histograms import ShardTrees, SumChange, change_sums
from raydt.learners.gbdt.leaf_search import LocalSums
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.split_search import FEATURE, FIELDS, Units, count_better


class GBDTShard(ShardWithRows):
    """Owner of whole feature groups."""

    def __init__(self, options: GBDTOptions, features: Features, groups: npt.NDArray[np.int64]) -> None:
        super().__init__(features, groups)
        self._options, self._kinds = options, features.kinds[self.columns]
        #: Places, among the bins of all features, of those of this shard, ascending.
        self.owned = self.columns
        self._cells: CellStore | None = None
        self._trees: ShardTrees | None = None
        self._change: SumChange | None = None
        self._growth: Growth | None = None

    # ---------------------------------------------------------------- rows

    def _on_rows(self, slots: Any, X: Any, indptr: Any, indices: Any) -> None:
        """Keep new rows, encoded too once there are bins."""
        super()._on_rows(slots, X, indptr, indices)
        if len(slots) and self._cells is not None:
            self._on_encode(slots)

    def _on_encode(self, slots: Any) -> None:
        """Find the bins of rows that become part of the model."""
        assert self._cells is not None
        self._held.make_room(slots)
        parts = [np.array(slots[begin : begin + ENCODED]) for begin in range(0, len(slots), ENCODED)]
        if self._trees is not None:
            for part in parts:
                self._cells.add(part, self._own(part))
            return
        self._cells.make_room(slots)
        for part in parts:
            self._cells.add_columns(part, self._own(part))
        self._cells.choose(slots)
        for part in parts:
            self._cells.arrange(part, self._ones(part))
        self._draw()

    def _own(self, slots: npt.NDArray[np.int32]) -> RowBlock:
        """The features of some rows."""
        return self._ones(slots)._replace(X=self._held.X[slots])

    def _ones(self, slots: npt.NDArray[np.int32]) -> RowBlock:
        """The sparse features alone."""
        sparse = self._held.sparse(slots)
        return RowBlock(self._held.X[:0], sparse.indptr, sparse.indices)

    def state(self, slots: npt.NDArray[np.int32]) -> dict[int, dict[str, Any]]:
        """Nothing: histograms follow from rows, leaves and ledger."""
        return {}

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        self._cells = self._trees = None
        self._held.restore(state)

    # ---------------------------------------------------------------- bins and histograms

    def _on_learn(self, slots: Any) -> dict[str, Any]:
        """Make the bins from the rows of a training."""
        self._held.make_room(slots)
        indices, ones = np.unique(self._held.sparse(np.array(slots)).indices, return_counts=True)
        sparse = indices[ones < len(slots)]
        bins = learn_bins(self._held.X, self._kinds, self._options.max_bins, self._options.binning, sparse, slots)
        return bins.arrays()

    def _on_begin(self, bins: Any, all_cuts: Any, trees: int, per: int, squared: bool, units: Any) -> None:
        """Take the bins of these columns, for ``trees`` trees, ``per`` an iteration; the first rows come next."""
        bins = Bins.from_arrays(bins)
        own = np.isin(self._features.groups_of(bins.sparse), self.groups)
        self.owned = np.concatenate([self.columns, bins.dense + np.flatnonzero(own)])
        self._bins, self._all_cuts = bins.select(self.owned), np.array(all_cuts)
        self._units, self._squared, self._per, self._iterations = Units(*units), squared, per, trees // per
        self._cells, self._trees, self._change = CellStore(self._bins, len(self.columns)), None, None

    def _draw(self) -> None:
        """Draw the candidates, and make room for the histograms."""
        assert self._cells is not None
        o, iterations, whole = self._options, self._iterations, self._cells.whole
        most = most_candidates(o.candidate_fraction, o.max_bins)
        self._candidates = draw(self._bins, self.owned, self._all_cuts, most, o.random_state, iterations, whole)
        trees, nodes, inner = iterations * self._per, 2 * o.max_leaf_nodes - 1, o.max_leaf_nodes - 1
        self._trees = ShardTrees(
            np.full((trees, nodes), -1, dtype=np.int16),
            np.full((trees, nodes), -1, dtype=np.int16),
            np.zeros((trees, inner, int(self._candidates.stored[-1]) + 1, 2), dtype=np.int64),
            self._per,
        )
        self._scratch = np.empty(len(self.owned) + 1, dtype=np.uint32)

    @property
    def _local(self) -> LocalSums:
        """Cells, candidates and histograms, for kernels."""
        assert self._cells is not None
        assert self._trees is not None
        return LocalSums(self._cells.cells, self._candidates, self._units, self._trees.sums)

    def _on_shorten(self, trees: int) -> None:
        """Keep the first trees only."""
        f = self._trees
        assert f is not None
        self._trees = ShardTrees(f.parent[:trees].copy(), f.histogram[:trees].copy(), f.sums[:trees].copy(), f.per)

    def _on_resume(self, parent: Any, histogram: Any) -> None:
        """Take the shape of trees that were restored; histograms are 0 until rows are added by ``change``."""
        assert self._trees is not None
        self._trees.parent[:], self._trees.histogram[:] = parent, histogram
        self._trees.sums[:] = 0

    def _on_change(self, change: SumChange, keep: int, splits: Any) -> npt.NDArray[np.int64]:
        """Change histograms along the paths of rows; how many candidates gain more than each of some splits.

        First the change before is rolled back on the trees from ``keep`` on. ``splits`` are ``RANKED`` records.
        """
        if self._change is not None and keep < self._change.stop:
            self._apply(self._change.since(keep), -1)
        self._change = change
        self._apply(change, 1)
        better = np.zeros(len(splits), dtype=np.int64)
        none = np.empty(0), np.empty(FIELDS, dtype=np.int64)
        count_better(splits, self._trees, self._candidates, self._units, none, better)
        return better

    def _apply(self, change: SumChange, sign: int) -> None:
        change_sums(self._trees, change, sign, self._local.cells, self._candidates, self._scratch)

    # ---------------------------------------------------------------- growing

    def _on_grow(self, jobs: Jobs, slots: Any, g: Any) -> Any:
        """Open the roots of some trees, and answer for them."""
        self._growth = growth = new_growth(jobs, slots, g, self._squared, int(self._candidates.stored[-1]))
        open_roots(growth, self._local)
        return self._answer(
            np.concatenate([a + np.arange(n) for a, n in zip(growth.first[:-1], growth.opened, strict=True)])
        )

    def _on_split(self, steps: Any, on_left: Any) -> Any:
        """Split some leaves, and answer for their children."""
        children = np.empty((len(steps), 2), dtype=np.int64)
        split_leaves(self._growth, self._local, np.array(steps), np.asarray(on_left), children)
        return self._answer(children.ravel())

    def _answer(self, opened: npt.NDArray[np.int64]) -> Any:
        """The best split of each of some leaves (its feature by place among all bins), and the sides of their rows."""
        assert self._growth is not None
        leaf, found = self._growth.leaf[opened], self._growth.found[opened]
        has = found[:, FEATURE] >= 0
        found[has, FEATURE] = self.owned[found[has, FEATURE]]
        bits = np.empty(int(((leaf["end"] - leaf["begin"] + 7) >> 3).sum()), dtype=np.uint8)
        left = np.empty(len(opened), dtype=np.int64)
        used = sides(self._growth, self._local, opened, bits, left)
        return {"found": found, "left": left, "sides": bits[:used]}

    def _on_end(self, splits: Any, leaves: Any, last: Any, on_left: Any, tells: bool) -> Any:
        """Take the splits that were made, of these leaves, and give the memory back.

        Answers with the slots of all rows, leaf after leaf, if it is the shard that tells. Of the ``last`` splits the
        rows are parted now.
        """
        growth, splits = self._growth, np.array(splits)
        assert growth is not None
        assert self._trees is not None
        histogram = np.full(len(growth.leaf), -1)
        histogram[leaves] = splits["histogram"]
        keep_splits(growth, self._local, splits, histogram, self._trees.parent, self._trees.histogram)
        self._growth = None
        if not tells:
            return growth.slots[:0]
        part_rows(growth, np.asarray(last), np.asarray(on_left))
        return growth.slots
