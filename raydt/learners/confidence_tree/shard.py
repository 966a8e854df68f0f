"""The work of a shard of the confidence tree: keep its features of every live row, and count them at nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import Compressed, grown
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import kernel
from raydt.batches.binning import Bins, encode, joined, learn_bins
from raydt.batches.rows_on_shards import ShardWithRows, without_rows
from raydt.examples.updates import UNIT, Features
from raydt.finders.finder import table_of, xlogx_table
from raydt.finders.pool import (
    USED,
    Pool,
    find_or_add,
    free_dead,
    new_pool,
    release_nodes,
    weighed,
    with_entries,
    with_units,
)
from raydt.learners.confidence_tree.bounds import COUNTS, CRITERIA
from raydt.learners.confidence_tree.naive_bayes import (
    INHERITED,
    NORMAL,
    NormalScores,
    Pools,
    half_logs,
    normal_scores,
    pools_of,
    summarise,
)
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.confidence_tree.schema import SEEN
from raydt.learners.confidence_tree.statistics import (
    SLOT,
    BinnedColumns,
    Checks,
    Held,
    HeldDense,
    Naive,
    Search,
    Sparse,
    Statistics,
    recount,
    take,
)

_HALVES = half_logs()
#: Entries that are counted, and rows that are encoded, at once.
_TOGETHER = 1 << 12


class ConfidenceTreeShard(ShardWithRows):
    """Owner of whole feature groups."""

    def __init__(self, options: ConfidenceTreeOptions, features: Features, groups: Ints) -> None:
        super().__init__(features, groups)
        self._options = options
        self._normal = options.leaf_prediction in NORMAL
        self._inherits = options.leaf_prediction == INHERITED
        self._entropy = options.resolved_criterion == "entropy"
        sizes = [len(features.group_columns(g)) for g in groups.tolist()]
        self._group_of_columns = np.cumsum([0, *sizes])
        self._clear()

    def _clear(self) -> None:
        self._bins: Bins | None = None
        self._encoded: npt.NDArray[np.uint16] | None = None
        self._counted: Statistics | Compressed = Statistics.none()
        self._of_bins: tuple[Pools, NormalScores] | None = None
        self._pool: Pool = new_pool(0)
        self._table = xlogx_table(0)
        self._logs = np.empty(0, dtype=np.int64)

    def _on_rows(self, slots: Any, X: Any, **ones: Any) -> None:  # type: ignore[override]
        """Keep new rows, and their bins once these are known."""
        super()._on_rows(slots, X, **ones)
        if self._bins is not None and len(slots):
            self._encode(slots, X)

    def _on_learn(self, slots: Any) -> dict[str, Any]:
        """Fix the bins of the dense columns by the first rows."""
        return self._learn(slots).arrays()

    def _on_renew(self, slots: Any, counted: Any) -> dict[str, Any]:
        """Make the bins again from some rows; ``counted`` are deltas of each row that is counted."""
        bins, counted = self._learn(slots), np.array(counted)
        self._weigh(counted)
        if len(self.groups):
            sites, classes = self._counts.totals.shape
            by_bin = np.zeros((sites, int(self._columns.first[-1]), classes), dtype=self._counts.bins.dtype)
            recount(by_bin, self._columns.first, self._codes, counted)
            self._counted = Statistics(self._counts.totals, by_bin)
        return bins.arrays()

    def _learn(self, slots: Any) -> Bins:
        self._held.make_room(slots)
        kinds, none = self._features.kinds[self.columns], np.empty(0, dtype=np.int32)
        bins = learn_bins(self._held.X, kinds, self._options.max_bins, "quantile", none, slots)
        self._begin(bins)
        return bins

    def _begin(self, bins: Bins) -> None:
        self._bins = bins
        self._columns = BinnedColumns.of(bins, self.columns, self._group_of_columns)
        self._encoded = self._of_bins = None

    @property
    def _derived(self) -> tuple[Pools, NormalScores]:
        """Groups of bins, and their normal scores, made from the bins."""
        if self._of_bins is None:
            assert self._bins is not None
            self._of_bins = pools_of(self._bins), normal_scores(self._bins)
        return self._of_bins

    @property
    def _codes(self) -> npt.NDArray[np.uint16]:
        """Bins of the rows kept, shape (slots, columns); at first of all, also those that came after the warm-up."""
        if self._encoded is None:
            used, none = self._held.used, np.empty((0, len(self.columns)), dtype=np.uint16)
            codes = grown(none, len(self._held.X))
            assert self._bins is not None
            encode(self._held.X[:used], self._bins, np.arange(used, dtype=np.int32), codes.T)
            self._encoded = codes  # last: until then they are made again
        return self._encoded

    @property
    def _counts(self) -> Statistics:
        if isinstance(self._counted, Compressed):
            self._counted = Statistics(**self._counted)
        return self._counted

    def _encode(self, slots: Any, X: Any) -> None:
        """Find the bins of rows."""
        self._room_for_codes()
        assert self._bins is not None
        encode(np.ascontiguousarray(X), self._bins, np.array(slots), self._codes.T)

    def _room_for_codes(self) -> None:
        if len(self._held.X) > len(self._codes):
            self._encoded = grown(self._codes, len(self._held.X))

    def trim(self) -> None:
        """Give up room for more rows, sites and classes, and what can be made again of rows and bins."""
        super().trim()
        self._encoded = self._of_bins = None
        self._counted = Compressed(self._counts.without_room()._asdict())

    # ---------------------------------------------------------------- one row at a time

    def single(self, slots: int, sites: int, classes: int) -> tuple[HeldDense, Bins]:
        """Return what a shard with all features has counted, with room for so many slots, sites and classes."""
        if slots > len(self._held.X):
            self._held.make_room(np.array([slots - 1]))
        self._room_for_codes()
        self._room_for(sites, classes)
        assert self._bins is not None
        return HeldDense(self._counts, self._columns, self._codes), self._bins

    @property
    def features_by_slot(self) -> Floats:
        """Shape (slots, columns): the dense features kept."""
        return self._held.X

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Counts and bins of rows as :meth:`single` gives them, once they are made, and :attr:`features_by_slot`.

        They are the same objects as long as none is replaced.
        """
        return self._counted, self._encoded, self._held.X

    def keep(self, slot: int) -> None:
        """Note that a new row is kept in a slot for which :meth:`single` has made room."""
        self._held.used = max(self._held.used, slot + 1)

    # ---------------------------------------------------------------- counting

    def _on_count(
        self, sites: int, classes: int, deltas: Any, checks: Any, scored: Any, logs: Any
    ) -> tuple[Ints, Ints, Ints]:
        """Count rows in and out; answer the checks among them, and score rows just before they are counted.

        There may be so many ``sites`` and ``classes`` by now. ``deltas``, ``checks`` and ``scored`` are as in
        ``statistics.take``; ``logs`` is the table of ``naive_bayes``, empty if the last one is long enough. Returns
        candidates, shape (checks, groups, 2, 2 + K), and scores, shape (rows to score, K), of counts and with normal
        columns, which have no rows if leaves do not choose them, and twice as many where leaves inherit: those of all
        live examples of the leaf are behind. All are int64.
        """
        scores = np.zeros((len(scored), classes), dtype=np.int64)
        normal_rows = len(scored) * (self._normal + self._inherits)
        if not len(self.groups):
            normals = np.zeros((normal_rows, classes), dtype=np.int64)
            return np.empty((len(checks), 0, 2, COUNTS + classes), dtype=np.int64), scores, normals
        deltas, asked = np.array(deltas), np.array(checks)
        self._weigh(deltas)
        if len(logs):
            self._logs = np.require(logs, requirements=["C", "A", "W"])  # copied if it was sent
        self._room_for(sites, classes)
        wanted, classes = classes, self._counts.totals.shape[1]  # more, if other classes were announced once
        found = np.empty((len(asked), len(self.groups), 2, COUNTS + classes), dtype=np.int64)
        self._held.make_room(deltas[SLOT])
        scores = np.zeros((len(scored), classes), dtype=np.int64)
        naive = self.naive(np.array(scored), self._logs, scores, np.zeros((normal_rows, classes), dtype=np.int64))
        check, row, n = 0, 0, deltas.shape[1]
        for begin in range(0, max(1, n), _TOGETHER):
            stop = min(n, begin + _TOGETHER)
            held, search = self._searched(deltas[SLOT, begin:stop])
            rest = deltas, begin, stop, Checks(asked, found), check, naive, row
            check, row = take(held, search, *rest)
        return found[..., : COUNTS + wanted], scores[:, :wanted], naive.found_normal[:, :wanted]

    def naive(self, asked: Any, table: Any, found: Any, found_normal: Any) -> Naive:
        """Return what rows are scored by, and where their scores go, both of shape (rows, K)."""
        sums = np.empty((2, found.shape[1]))
        pools, (score, normal) = self._derived
        return Naive(asked, table, pools.low, pools.stop, found, normal, score, _HALVES, sums, found_normal)

    def _on_normal(self, sites: Any, past: Any) -> Ints:
        """Numbers, means and variances of the normal columns at some sites, shape (3, sites, normal columns, K).

        ``past`` says of which of them together with the site after it.
        """
        classes = self._counts.totals.shape[1]
        score, normal = (np.empty(0, np.int32), np.empty(0, np.uint8)) if not len(self.groups) else self._derived[1]
        out = np.zeros((3, len(sites), int(normal.sum()), classes), dtype=np.int64)
        if out.size:
            self._room_for(int(np.max(sites)) + 2, classes)
            bins = self._counts.bins[np.array(sites)]
            bins[past] += self._counts.bins[np.array(sites)[past] + 1]
            unit = UNIT if self._weighted else 1
            summarise(bins, self._columns.first, normal, score, unit, np.empty((2, classes)), out)
        return out

    @property
    def _weighted(self) -> bool:
        """True if all counts are masses."""
        return self._counts.bins.dtype == np.int64

    def _weigh(self, deltas: AnyArray) -> None:
        """Make all counts masses with the first deltas that are."""
        if deltas.dtype == np.int64 and not self._weighted:
            self._counted, self._pool = self._counts.weighed(), weighed(self._pool)
            self._table, self._logs = np.empty(0), np.empty(0, dtype=np.int64)

    def _on_naive(self, sites: Any, past: Any) -> Ints:
        """Return the sums of naive Bayes at some sites, shape (5, cells); with ``past`` and the site after it together.

        Of each group of bins, or sparse feature that is 1 (group 0), and class that has been counted: place
        among ``sites``, feature, group, class and number.
        """
        cells = [np.empty((5, 0), dtype=np.int64)]
        if not len(self.groups):
            return cells[0]
        first, sites, past = self._columns.first, np.array(sites), np.array(past)
        self._room_for(int(np.max(sites, initial=-1)) + 2, self._counts.totals.shape[1])
        for j, feature in enumerate(self.columns.tolist()):
            of = self._derived[0].of[first[j] : first[j + 1]]
            begins = np.flatnonzero(np.diff(of, prepend=-1))
            counts = self._counts.bins[sites, first[j] : first[j + 1]]
            counts[past] += self._counts.bins[sites[past] + 1, first[j] : first[j + 1]]
            pooled = np.add.reduceat(counts, begins, axis=1, dtype=np.int64)
            place, group, label = np.nonzero(pooled)
            of_feature = np.full(len(place), feature)
            cells.append(np.stack([place, of_feature, group, label, pooled[place, group, label]]))
        if self._features.sparse:
            cells += self._naive_ones(sites, past)
        return np.concatenate(cells, axis=1)

    def _naive_ones(self, sites: Ints, past: Bools) -> list[Ints]:
        """Return those cells of the sparse features."""
        p, per, dense = self._pool, len(self.groups), len(self._features.names)
        of_site = np.append(np.arange(len(sites)), np.flatnonzero(past))
        sites = np.append(sites, sites[past] + 1)
        unit = p.unit[: p.reg[USED]].astype(np.int64)
        used = np.flatnonzero((unit >= 0) & (p.n1[: len(unit)] > 0))
        used = used[np.isin(unit[used] // per, sites)]
        order = np.argsort(sites)
        place = of_site[order[np.searchsorted(sites[order], unit[used] // per)]]
        # A leaf may have a feature at both its sites.
        key, at = np.unique(place * self._features.sparse + p.feature[used], return_inverse=True)
        n1, c11 = np.zeros((2, len(key)), dtype=np.int64)
        np.add.at(n1, at, p.n1[used])
        np.add.at(c11, at, p.c11[used])
        place, feature = np.divmod(key, self._features.sparse)
        cells = []
        for label, number in enumerate((n1 - c11, c11)):
            some = number > 0
            nothing = np.zeros(np.count_nonzero(some), dtype=np.int64)
            cells.append(np.stack([place[some], feature[some] + dense, nothing, nothing + label, number[some]]))
        return cells

    def _on_divide(self, gone: Any, feature: Any, cut: Any, ends: Any, slots: Any) -> npt.NDArray[np.uint8]:
        """Forget the statistics at some sites; of splits whose feature this shard owns, who goes right, as bits.

        The rows of split i are ``slots[ends[i - 1]:ends[i]]``; the bits of the splits it owns follow each other.
        """
        self._forget(np.array(gone))
        sides = [np.empty(0, dtype=np.bool_)]
        dense = len(self._features.names)
        begin = 0
        for j, t, end in zip(feature.tolist(), cut.tolist(), ends.tolist(), strict=True):
            rows, begin = np.array(slots[begin:end]), end
            if j >= dense:
                if np.isin(self._features.groups_of(np.array([j - dense])), self.groups)[0]:
                    ones = self._held.sparse(rows)
                    of_row = np.repeat(np.arange(len(rows)), ones.lengths)
                    sides.append(np.isin(np.arange(len(rows)), of_row[ones.indices == j - dense]))
            elif j in self.columns:
                codes = self._codes[rows, np.searchsorted(self.columns, j)]
                sides.append(codes != t if self._features.categorical[j] else codes > t)
        return np.packbits(np.concatenate(sides))

    def _forget(self, gone: Int32s) -> None:
        gone = gone[gone < len(self._counts.totals)]
        self._counts.totals[gone], self._counts.bins[gone] = 0, 0
        if self._features.sparse and len(self.groups):
            release_nodes(self._pool, len(self.groups), gone)

    def _room_for(self, sites: int, classes: int) -> None:
        self._counted = self._counts.with_room(sites, int(self._columns.first[-1]), classes)
        if self._features.sparse:
            self._pool = with_units(self._pool, len(self._counts.totals) * len(self.groups))

    @property
    def _sparse(self) -> Sparse:
        first = int(self.groups[0])
        of = self._features.groups if self._features.sparse else 0
        return Sparse(self._held.ones, first, of, len(self._features.names))

    def _searched(self, slots: Int32s) -> tuple[Held, Search]:
        """Return the statistics held, with room for the ones of some rows, and the search over them."""
        if self._features.sparse:
            begin, end, _ = self._held.ones
            free_dead(self._pool)
            self._pool = with_entries(self._pool, int((end[slots] - begin[slots]).sum()))
        if not self._weighted:
            self._table = table_of(self._entropy, len(self._held.X), self._table)
        o = self._options
        criterion = CRITERIA.index(o.resolved_criterion)
        left = np.empty(self._counts.totals.shape[1], dtype=np.int64)
        held = Held(self._counts, self._columns, self._codes, self._sparse, self._pool)
        return held, Search(criterion, o.rival == "feature", self._table, left, np.empty(2))

    # ---------------------------------------------------------------- snapshots

    def state(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """By group: the bins, what is counted at every site (``totals``, ``bins``), of sparse features ``SEEN``."""
        counts = self._counts.without_room()
        state: dict[int, dict[str, Any]] = {}
        for i, g in enumerate(self.groups.tolist()):
            state[g] = {}
            if self._bins is not None:
                mine = np.arange(self._group_of_columns[i], self._group_of_columns[i + 1])
                first = self._columns.first[self._group_of_columns[[i, i + 1]]]
                counted = counts.bins[:, first[0] : first[1]].copy()
                state[g] = {**self._bins.select(mine).arrays(), "totals": counts.totals.copy(), "bins": counted}
            if self._features.sparse:
                state[g] |= self._seen(i)
        return state

    def _seen(self, group: int) -> dict[str, AnyArray]:
        """Counters of the sparse features that are 1 somewhere, ascending by site and feature."""
        p, per = self._pool, len(self.groups)
        unit = p.unit[: p.reg[USED]]
        used = np.flatnonzero((unit >= 0) & (unit % per == group) & (p.n1[: len(unit)] > 0))
        site = p.unit[used] // np.int32(per)
        order = np.lexsort((p.feature[used], site))
        return {"place": site[order], **{name: getattr(p, name)[used[order]] for name in SEEN[1:]}}

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        self._clear()
        self._held.restore(state)
        parts = [without_rows(state[g]) for g in self.groups.tolist()]
        if not parts or "totals" not in parts[0]:
            return
        self._begin(joined([Bins.from_arrays(part) for part in parts]))
        counted = np.concatenate([part["bins"] for part in parts], axis=1)
        self._weigh(counted)  # before there are any
        self._counted = Statistics(np.array(parts[0]["totals"]), counted)
        if not self._features.sparse:
            return
        self._pool = with_units(self._pool, len(self._counts.totals) * len(parts))
        for i, part in enumerate(parts):
            self._pool = with_entries(self._pool, len(part["feature"]))
            unit = part["place"].astype(np.int64) * len(parts) + i
            feature, n1, c11 = (np.array(part[name]) for name in SEEN[1:])
            _restore(self._pool, unit, feature, n1, c11)


@kernel
def _restore(pool: Any, unit: Any, feature: Any, n1: Any, c11: Any) -> None:
    for i in range(len(unit)):
        e = find_or_add(pool, unit[i], feature[i])
        pool.n1[e], pool.c11[e] = n1[i], c11[i]
