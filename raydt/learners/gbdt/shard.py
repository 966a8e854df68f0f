"""What a shard does for the GBDT: keep its columns as bins, and the sums of derivatives at every inner node.

The sums are not saved: they follow from rows, leaves and ledger, bit for bit (``resume`` and ``change``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.ragged import RaggedStore
from raydt.examples.features import Features
from raydt.learners.binning import Bins, learn_bins
from raydt.learners.gbdt.candidates import draw, most_candidates
from raydt.learners.gbdt.growth import (
    PLACE,
    RECORD,
    Codes,
    Forest,
    JobRows,
    Jobs,
    grow_alone,
    new_leaves,
)
from raydt.learners.gbdt.growth_rounds import STEP, keep_splits, open_all, sides, split_each
from raydt.learners.gbdt.histograms import change, encode
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.ranks import better_candidates
from raydt.learners.gbdt.split_search import FEATURE, FIELDS, Units
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
        self._change: tuple[Any, ...] = ()

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
        """Nothing: sums follow from rows, leaves and ledger."""
        return {}

    def restore(self, state: dict[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        self._entries, self._bins = RaggedStore(), None
        self._held.restore(state)

    # ---------------------------------------------------------------- bins and sums

    def _on_learn(self, slots: Any) -> dict[str, Any]:
        """Fix the bins from the first rows."""
        self._held.make_room(slots)
        indices = self._held.sparse(np.array(slots)).indices
        ones = np.bincount(indices, minlength=self._features.sparse)[self._sparse_of]
        bins = learn_bins(self._held.X[slots], self._kinds, self._options.max_bins, self._options.binning, ones)
        return bins.arrays()

    def _on_begin(self, bins: Any, all_cuts: Any, trees: int, per: int, squared: bool, units: Any) -> None:
        """Take the bins of these columns, and make room for the sums of so many trees, ``per`` of an iteration."""
        o = self._options
        self._bins = Bins.from_arrays(bins).select(self.owned)
        self._units, self._squared, self._per = Units(*units), squared, per
        most = most_candidates(o.candidate_fraction, o.max_bins)
        self._candidates = draw(self._bins, self.owned, all_cuts, most, o.random_state, trees // per)
        nodes, inner = 2 * o.max_leaf_nodes - 1, o.max_leaf_nodes - 1
        self._forest = Forest(
            np.full((trees, nodes), -1, dtype=np.int16),
            np.full((trees, nodes), -1, dtype=np.int16),
            np.zeros((trees, inner, int(self._candidates.first[-1]) + 1, 2), dtype=np.int64),
        )
        self._scratch, self._change = np.empty(len(self.owned) + 1, dtype=np.uint32), ()

    def _on_shorten(self, trees: int) -> None:
        """Keep the sums of the first trees only."""
        f = self._forest
        self._forest = Forest(f.parent[:trees].copy(), f.place[:trees].copy(), f.sums[:trees].copy())

    def _on_resume(self, parent: Any, place: Any) -> None:
        """Take the shape of trees that were restored; their sums are 0 until rows are added by ``change``."""
        self._forest.parent[:], self._forest.place[:] = parent, place
        self._forest.sums[:] = 0

    def _on_change(
        self, trees: Any, keep: int, slots: Any, leaf: Any, dG: Any, dH: Any, visits: Any, limits: Any
    ) -> npt.NDArray[np.int64]:
        """Change sums along the paths of rows, and count the candidates of the visited nodes that gain more.

        Of the change before, the trees from ``keep`` on are taken back first. ``visits``, shape (v, 4), has tree,
        node, G and H of each visited node, ``limits`` the gain of its split.
        """
        if self._change and keep < self._change[0][1]:
            (first, stop), *rest = self._change
            begin = max(keep - first, 0)
            at, old_leaf, old_G, old_H = rest
            self._apply((first + begin, stop), at, old_leaf[begin:], old_G[begin:], old_H[begin:], sign=-1)
        self._change = (tuple(trees), slots, leaf, dG, dH)
        self._apply(trees, slots, leaf, dG, dH, sign=1)
        better = np.zeros(len(limits), dtype=np.int64)
        better_candidates(
            visits,
            limits,
            self._forest,
            self._candidates,
            self._per,
            self._units,
            np.empty(FIELDS, dtype=np.int64),
            better,
        )
        return better

    def _apply(self, trees: Any, slots: Any, leaf: Any, dG: Any, dH: Any, sign: int) -> None:
        span, arrays = np.array(trees, dtype=np.int64), [np.ascontiguousarray(array) for array in (leaf, dG, dH)]
        leaf, dG, dH = arrays
        change(
            span, slots, leaf, dG, dH, self._codes, self._candidates, self._per, self._forest, sign,
            self._scratch,
        )  # fmt: skip

    # ---------------------------------------------------------------- growing

    def _on_grow(self, jobs: Any, slots: Any, g: Any, alone: bool) -> Any:
        """Grow trees to the end if this shard owns all features, else open their roots."""
        # In one process the payload is that of all shards, and not to be written to.
        rows = jobs["iteration"] if len(self._candidates.cuts) > 1 else np.zeros_like(jobs["iteration"])
        self._jobs = Jobs(row=rows, **{name: array for name, array in jobs.items() if name != "iteration"})
        n = len(slots)
        order, spare = np.arange(n, dtype=np.int32), np.empty(n, dtype=np.int32)
        self._rows = JobRows(slots, g, order, spare, self._squared)
        roots = np.diff(self._jobs.first_root)
        self._leaves = new_leaves(roots, self._jobs.room)
        width = int(self._candidates.first[-1]) + 1
        most = roots + self._jobs.room
        self._pool_first = np.cumsum(most) - most
        pools = int(most.max(initial=0)) if alone else int(most.sum())
        self._pool = np.empty((pools, width, 2), dtype=np.int64)
        shared = self._leaves, self._rows, self._codes, self._candidates
        if not alone:
            open_all(self._jobs, *shared, self._pool, self._pool_first, self._units, self._forest.sums)
            return self._answer(
                np.concatenate([f + np.arange(r) for f, r in zip(self._leaves.first, roots, strict=False)])
            )
        records = np.empty((int(self._jobs.budget.sum()), RECORD), dtype=np.int64)
        leaf_of = np.empty(n, dtype=np.int16)
        made = grow_alone(
            self._jobs,
            *shared,
            self._pool,
            self._units,
            self._forest,
            np.empty(n, dtype=np.bool_),
            records,
            leaf_of,
        )
        self._forget_growth()
        return {"records": records[:made], "leaf": leaf_of}

    def _on_split(self, steps: Any, on_left: Any) -> Any:
        """Split some leaves, and answer for their children."""
        bits = np.unpackbits(np.asarray(on_left)).view(np.bool_)
        children = np.empty((len(steps), 2), dtype=np.int64)
        split_each(
            self._jobs,
            np.array(steps).reshape(-1, STEP),
            bits,
            self._leaves,
            self._rows,
            self._codes,
            self._candidates,
            self._pool,
            self._pool_first,
            self._units,
            children,
        )
        return self._answer(children.ravel())

    def _answer(self, opened: npt.NDArray[np.int64]) -> Any:
        """The best split of each of some leaves (global feature), and on which side their rows are."""
        found = self._leaves.found[opened]
        has = found[:, FEATURE] >= 0
        found[has, FEATURE] = self.owned[found[has, FEATURE]]
        rows = int((self._leaves.end[opened] - self._leaves.begin[opened]).sum())
        out = np.empty(rows, dtype=np.bool_)
        sides(opened, self._leaves, self._rows, self._codes, self._candidates, out)
        return {"found": found, "sides": np.packbits(out)}

    def _on_end(self, records: Any, leaves: Any) -> None:
        """Take the splits that were made, of these leaves, and give the memory back."""
        records = np.array(records)
        place = np.full(len(self._leaves.node), -1)
        place[leaves] = records[:, PLACE]
        keep_splits(self._jobs, records, place, self._leaves, self._pool, self._forest)
        self._forget_growth()

    def _forget_growth(self) -> None:
        del self._jobs, self._rows, self._leaves, self._pool
