"""The GBDT's half on a shard: it keeps its columns as bins, and the histogram of every inner node.

Histograms are not saved: they follow from rows, leaves and ledger, bit for bit (``resume`` and ``change``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.ragged import RaggedStore
from raydt.examples.features import Features
from raydt.learners.binning import Bins, learn_bins
from raydt.learners.gbdt.candidates import draw, most_candidates
from raydt.learners.gbdt.growth import SPLIT, Growth, JobRows, Jobs, grow_alone, new_leaves
from raydt.learners.gbdt.growth_rounds import keep_splits, open_all, sides, split_each
from raydt.learners.gbdt.histograms import Change, Codes, ShardTrees, change_sums, encode
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.split_search import FEATURE, FIELDS, Units, count_better
from raydt.learners.rows import ShardWithRows

#: Rows encoded at once.
_ENCODED = 1 << 14


class GBDTShard(ShardWithRows):
    """Owner of whole feature groups.

    Parameters
    ----------
    options : GBDTOptions
    features : Features
    groups : ndarray of int64
        Groups this shard owns.
    """

    def __init__(self, options: GBDTOptions, features: Features, groups: npt.NDArray[np.int64]) -> None:
        super().__init__(features, groups)
        self._options, self._sparse_of = options, features.sparse_of(groups)
        #: All features of this shard, ascending: these columns, then sparse ones.
        self.owned = np.concatenate([self.columns, len(features.names) + self._sparse_of])
        self._kinds = features.kinds[self.columns]
        self._entries = RaggedStore()
        self._columns = np.empty((len(self.columns), 0), dtype=np.uint16)
        self._bins: Bins | None = None
        self._change: Change | None = None
        self._growth: Growth | None = None

    # ---------------------------------------------------------------- rows

    def _on_rows(self, slots: Any, X: Any, indptr: Any, indices: Any) -> None:
        """Keep new rows, encoded too once there are bins."""
        super()._on_rows(slots, X, indptr, indices)
        if len(slots) and self._bins is not None:
            self._on_encode(slots)

    @property
    def _codes(self) -> Codes:
        return Codes(*self._entries.rows, self._columns)

    def _on_encode(self, slots: Any) -> None:
        """Find the bins of rows that become part of the model."""
        self._held.make_room(slots)
        have, dense = self._columns.shape[1], len(self.columns)
        if len(self._held.X) > have:
            longer = np.empty((dense, len(self._held.X)), dtype=np.uint16)
            longer[:, :have] = self._columns
            self._columns = longer
        for begin in range(0, len(slots), _ENCODED):
            part = np.array(slots[begin : begin + _ENCODED])
            X, sparse = self._held.X[part], self._held.sparse(part)
            own = np.searchsorted(self._sparse_of, sparse.indices).astype(np.int32)
            counts = np.empty(len(part), dtype=np.int64)
            entries = np.empty(X.size + len(own), dtype=np.uint32)
            offsets = self._candidates.offsets
            used = encode(part, X, sparse.lengths, own, self._bins, offsets, self._columns, counts, entries)
            self._entries.put(part, counts, entries[:used])

    def state(self, slots: npt.NDArray[np.int32]) -> dict[int, dict[str, Any]]:
        """Nothing: histograms follow from rows, leaves and ledger."""
        return {}

    def restore(self, state: dict[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        self._entries, self._bins = RaggedStore(), None
        self._held.restore(state)

    # ---------------------------------------------------------------- bins and histograms

    def _on_learn(self, slots: Any) -> dict[str, Any]:
        """Fix the bins from the first rows."""
        self._held.make_room(slots)
        indices = self._held.sparse(np.array(slots)).indices
        ones = np.bincount(indices, minlength=self._features.sparse)[self._sparse_of]
        bins = learn_bins(self._held.X[slots], self._kinds, self._options.max_bins, self._options.binning, ones)
        return bins.arrays()

    def _on_begin(self, bins: Any, all_cuts: Any, trees: int, per: int, squared: bool, units: Any) -> None:
        """Take the bins of these columns, and make room for the histograms of ``trees`` trees, ``per`` an iteration."""
        o = self._options
        self._bins = Bins.from_arrays(bins).select(self.owned)
        self._units, self._squared = Units(*units), squared
        most = most_candidates(o.candidate_fraction, o.max_bins)
        self._candidates = draw(self._bins, self.owned, all_cuts, most, o.random_state, trees // per)
        nodes, inner = 2 * o.max_leaf_nodes - 1, o.max_leaf_nodes - 1
        self._trees = ShardTrees(
            np.full((trees, nodes), -1, dtype=np.int16),
            np.full((trees, nodes), -1, dtype=np.int16),
            np.zeros((trees, inner, int(self._candidates.first[-1]) + 1, 2), dtype=np.int64),
            per,
        )
        self._scratch, self._change = np.empty(len(self.owned) + 1, dtype=np.uint32), None

    def _on_shorten(self, trees: int) -> None:
        """Keep the first trees only."""
        f = self._trees
        self._trees = ShardTrees(f.parent[:trees].copy(), f.histogram[:trees].copy(), f.sums[:trees].copy(), f.per)

    def _on_resume(self, parent: Any, histogram: Any) -> None:
        """Take the shape of trees that were restored; histograms are 0 until rows are added by ``change``."""
        self._trees.parent[:], self._trees.histogram[:] = parent, histogram
        self._trees.sums[:] = 0

    def _on_change(self, change: Change, keep: int, splits: Any) -> npt.NDArray[np.int64]:
        """Change histograms along the paths of rows; how many candidates gain more than each of some splits.

        First the change before is rolled back on the trees from ``keep`` on. ``splits`` are ``RANKED`` records.
        """
        if self._change is not None and keep < self._change.stop:
            self._apply(self._change.since(keep), -1)
        self._change = change
        self._apply(change, 1)
        better = np.zeros(len(splits), dtype=np.int64)
        scratch = np.empty(FIELDS, dtype=np.int64)
        count_better(splits, self._trees, self._candidates, self._units, scratch, better)
        return better

    def _apply(self, change: Change, sign: int) -> None:
        change_sums(self._trees, change, sign, self._codes, self._candidates, self._scratch)

    # ---------------------------------------------------------------- growing

    def _on_grow(self, jobs: Jobs, slots: Any, g: Any, alone: bool) -> Any:
        """Grow trees to the end if this shard owns all features, else open their roots."""
        n, roots = len(slots), np.diff(jobs.first_root)
        order, spare = np.arange(n, dtype=np.int32), np.empty(n, dtype=np.int32)
        most = roots + jobs.room  # histograms of each job
        if alone:  # the jobs use the pool one after the other
            pooled, pool_first = int(most.max(initial=0)), np.zeros_like(most)
        else:
            pooled, pool_first = int(most.sum()), np.cumsum(most) - most
        growth = Growth(
            jobs,
            new_leaves(roots, jobs.room),
            JobRows(slots, g, order, spare, self._squared),
            self._codes,
            self._candidates,
            self._units,
            np.empty((pooled, int(self._candidates.first[-1]) + 1, 2), dtype=np.int64),
            pool_first,
        )
        if alone:
            splits, leaf_of = np.empty(int(jobs.budget.sum()), dtype=SPLIT), np.empty(n, dtype=np.int16)
            made = grow_alone(growth, self._trees, np.empty(n, dtype=np.bool_), splits, leaf_of)
            return {"splits": splits[:made], "leaf": leaf_of}
        self._growth = growth
        open_all(growth, self._trees.sums)
        first = growth.leaves.first
        return self._answer(np.concatenate([first[i] + np.arange(count) for i, count in enumerate(roots)]))

    def _on_split(self, steps: Any, on_left: Any) -> Any:
        """Split some leaves, and answer for their children."""
        assert self._growth is not None
        bits = np.unpackbits(np.asarray(on_left)).view(np.bool_)
        children = np.empty((len(steps), 2), dtype=np.int64)
        split_each(self._growth, np.array(steps), bits, children)
        return self._answer(children.ravel())

    def _answer(self, opened: npt.NDArray[np.int64]) -> Any:
        """The best split of each of some leaves (with its global feature), and the sides of their rows."""
        assert self._growth is not None
        leaves = self._growth.leaves
        found = leaves.found[opened]
        has = found[:, FEATURE] >= 0
        found[has, FEATURE] = self.owned[found[has, FEATURE]]
        rows = int((leaves.leaf["end"] - leaves.leaf["begin"])[opened].sum())
        out = np.empty(rows, dtype=np.bool_)
        sides(self._growth, opened, out)
        return {"found": found, "sides": np.packbits(out)}

    def _on_end(self, splits: Any, leaves: Any) -> None:
        """Take the splits that were made, of these leaves, and give the memory back."""
        assert self._growth is not None
        splits = np.array(splits)
        histogram = np.full(len(self._growth.leaves.leaf), -1)
        histogram[leaves] = splits["histogram"]
        keep_splits(self._growth, splits, histogram, self._trees)
        self._growth = None
