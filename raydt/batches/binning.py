"""Bins of features: what is fixed from the first rows, so that later rows change counts and sums only.

A numeric feature has bins of neighbouring values and, after them, one for NaN; a categorical one has a bin for each
frequent category and one for all others; a sparse binary one has the bins 0 and 1. A *cut* t of a numeric or sparse
feature sends codes up to t to the left, one of a categorical feature sends the category of code t to the left.

A sparse feature has bins only if the first rows had both a 0 and a 1 in it: no split can be on any other. So nothing
here has a length of the number of possible sparse features.

Invariant: bins never change. A later value falls into the nearest bin, a later category among the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import RaggedStore, as_slice, empty, is_one, turned_block
from raydt.arrays.elementary import AnyArray, Arrays, Floats, Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.updates import CATEGORICAL, NUMERIC
from raydt.parallel import divided, ranges, run, threads

#: The third kind of feature here: a binary one that rows name if it is 1.
SPARSE = 2
#: Widths of bins are this one of Algorithm 4 (Lin et al., ICML 2025, appendix A), doubled or halved, however often.
WIDTH = 1e-10
#: Numbers of an exponent beyond this are moved by as many bits as ``MOVED``, so that all their differences are normal.
FAR, MOVED = 960, 64


@inner_kernel
def _fill(values: Any, most: int, width: float, ends: Any) -> int:
    """Fill bins of a width: how many there are, at most ``most + 1``; the index behind each bin goes into ``ends``."""
    bins, start = 1, values[0]
    for i in range(1, len(values)):
        if values[i] - start > width:
            if bins == most:
                return most + 1
            ends[bins - 1] = i
            bins, start = bins + 1, values[i]
    ends[bins - 1] = len(values)
    return bins


@kernel
def _doubled(values: Any, most: int, ends: Any) -> int:
    """Fill at most ``most`` bins of the smallest width that allows it; how many. Sorted values, of which more differ.

    A greater width never makes more bins, so the search may begin anywhere: here at bins that share the range.
    """
    doublings = math.frexp((values[-1] - values[0]) / most / WIDTH)[1]
    width = math.ldexp(WIDTH, doublings)
    while width > 0.0 and _fill(values, most, width, ends) <= most:
        doublings -= 1
        width = math.ldexp(WIDTH, doublings)
    bins = _fill(values, most, width, ends)
    while bins > most:
        doublings += 1
        bins = _fill(values, most, math.ldexp(WIDTH, doublings), ends)
    return bins


@inner_kernel
def _code_at(x: float, kind: int, bins: Any, low: int, begin: int, end: int) -> int:
    """Bin of a value of a numeric or categorical feature, ``low`` being the first place that holds at least as much."""
    if kind == NUMERIC:
        return end - begin + 1 if np.isnan(x) else low - begin
    if low < end and bins.values[low] == x:
        return int(bins.ranks[low])
    return end - begin


@inner_kernel
def code_of(x: float, bins: Any, j: int) -> int:
    """Bin of one value of a numeric or categorical feature."""
    begin, end = bins.starts[j], bins.starts[j + 1]
    low, n = begin, end - begin
    while n > 0:  # of equal length for all values, so that no branch depends on them
        half = (n + 1) >> 1
        low += half if bins.values[low + half - 1] < x else 0
        n -= half
    return _code_at(x, bins.kinds[j], bins, low, begin, end)


#: Values of a feature that are searched together. Their scratch, 1 kB, stays in the nearest cache.
_TOGETHER = 64


@kernel
def _encode(X: Any, bins: Any, slots: Any, codes: Any, x: Any, low: Any) -> None:
    """As :func:`encode`; ``x`` and ``low`` are scratch, shape (_TOGETHER,)."""
    for first in range(0, len(slots), len(x)):
        rows = min(len(x), len(slots) - first)
        for j in range(X.shape[1]):
            begin, end = bins.starts[j], bins.starts[j + 1]
            for i in range(rows):
                x[i], low[i] = X[first + i, j], begin
            n = end - begin
            while n > 0:  # step by step for all of them, so that the processor takes several at a time
                half = (n + 1) >> 1
                for i in range(rows):  # unsigned: no test for an index from the end
                    low[i] += half if bins.values[np.uint64(low[i] + half - 1)] < x[i] else 0
                n -= half
            for i in range(rows):
                codes[j, np.uint32(slots[first + i])] = _code_at(x[i], bins.kinds[j], bins, low[i], begin, end)


def encode(X: Floats, bins: Bins, slots: Int32s, codes: AnyArray) -> None:
    """Write the bins of the dense features of some rows into ``codes``. O(rows x features x log(bins)).

    ``X`` has shape (n, d), ``codes`` (d, slots); ``slots`` names the column of ``codes`` for each row. ``bins`` are of
    these features, and maybe of sparse ones after them.
    """
    _encode(X, bins, slots, codes, np.empty(_TOGETHER), np.empty(_TOGETHER, dtype=np.int64))


@kernel
def _sort_two(x: Any) -> bool:
    """Sort numbers of at most two values; of more return False, and change nothing, once a third one is met. O(n)."""
    low, high, lowest = x[0], x[0], 0
    for i in range(len(x)):
        if x[i] != low and x[i] != high:
            if low != high:
                return False
            low, high, lowest = min(low, x[i]), max(low, x[i]), i if x[i] > low else 0
        lowest += x[i] == low
    for i in range(len(x)):
        x[i] = low if i < lowest else high
    return True


@kernel
def _few(values: Any, most: int, ends: Any) -> int:
    """Count the distinct ones of sorted values, at most ``most + 1``; the index behind each goes into ``ends``."""
    distinct = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] != values[i - 1]:
            if distinct == most:
                return most + 1
            ends[distinct] = i
            distinct += 1
    return distinct


def _moved(values: Floats) -> Floats:
    """Numbers whose differences neither overflow nor lose bits: very large or small ones times a power of two."""
    exponent = math.frexp(max(-values[0], values[-1]))[1]
    return values if abs(exponent) <= FAR else np.ldexp(values, -MOVED if exponent > 0 else MOVED)


def numeric_bins(x: Floats, most: int, method: str) -> tuple[Floats, Ints]:
    """Return the boundaries of at most ``most`` bins of some numbers, ascending, and how many numbers are in each.

    O(n log n). A value up to a boundary lies below it. ``x``, which is sorted here, has no NaN; ``method`` is as
    ``learner.binning``.
    """
    n = len(x)
    if not n:
        return np.empty(0), np.zeros(1, dtype=np.int64)
    if not _sort_two(x):
        x.sort()
    ends = np.empty(most, dtype=np.int64)
    bins = _few(x, most, ends)
    if bins <= most:
        ends = ends[:bins]
    elif method == "doubling":
        ends = ends[: _doubled(_moved(x), most, ends)]
    else:
        last = -(-np.arange(1, most + 1) * n // most) - 1  # in order, the last number of each bin
        ends = np.unique(np.searchsorted(x, x[last], side="right"))
    low, high = x[ends[:-1] - 1], x[ends[:-1]]
    middle = low / 2 + high / 2
    return np.where(middle < high, np.maximum(middle, low), low), np.diff(ends, prepend=0)


class Bins(NamedTuple):
    """Bins of d features, in order, as kernels take them: the dense features, then the sparse ones that have a cut.

    A *place* is a position among these d features; a *number* is a position among all features, those without bins too.
    """

    kinds: npt.NDArray[np.int8]  #: Shape (d,): NUMERIC, CATEGORICAL or SPARSE; sparse features come last.
    #: One feature after the other: the boundaries of a numeric one, the kept categories of a categorical one,
    #: ascending.
    values: Floats
    ranks: Int32s  #: Bin of each kept category; 0 for boundaries.
    starts: Ints  #: Shape (d + 1,): where the values of each feature begin.
    #: Shape (d,): whether the first rows had a NaN (numeric), another category (categorical); 1 of a sparse feature.
    seen: npt.NDArray[np.uint8]
    #: Shape (d,): the most frequent code, of equals the smaller; 0 for sparse features. It decides what is stored, not
    #: results.
    default: Int32s
    sparse: Int32s  #: Index of each sparse feature, in order.

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def dense(self) -> int:
        """Number of dense features."""
        return len(self.kinds) - len(self.sparse)

    def numbers(self, places: AnyArray) -> AnyArray:
        """Numbers of features given by place; what is negative stays."""
        all_numbers = np.concatenate([np.arange(self.dense), self.dense + self.sparse.astype(np.int64), [-1]])
        return np.where(places < 0, places, all_numbers[places])

    def places(self, numbers: AnyArray) -> AnyArray:
        """Places of features given by number; d for a number without bins, and what is negative stays."""
        place = self.dense + np.searchsorted(self.sparse, numbers - self.dense)
        known = np.append(self.sparse, -1)[place - self.dense] == numbers - self.dense
        return np.where(numbers < self.dense, numbers, np.where(known, place, len(self)))

    def counts(self) -> Ints:
        """Bins of each feature, int64, shape (d,)."""
        sizes = np.diff(self.starts)
        return np.select([self.kinds == NUMERIC, self.kinds == CATEGORICAL], [sizes + 2, sizes + 1], 2)

    def cuts(self) -> Ints:
        """Cuts of each feature, int64, shape (d,): they are numbered from 0."""
        available = np.diff(self.starts) + self.seen
        return np.where(self.kinds == CATEGORICAL, np.where(available > 2, available, available == 2), available)

    def arrays(self) -> Arrays:
        """Arrays for a file, of the dense features, and the indices of the sparse ones; see :meth:`from_arrays`."""
        d = self.dense
        parts = self._asdict() | {name: getattr(self, name)[:d] for name in ("kinds", "seen", "default")}
        parts["starts"] = self.starts[: d + 1]
        names = self._fields if len(self.sparse) else self._fields[:-1]
        return {f"bins_{name}": parts[name] for name in names}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Bins:
        """Bins that :meth:`arrays` wrote."""
        sparse = arrays.get("bins_sparse", np.empty(0, dtype=np.int32))
        found = cls(**{name: arrays[f"bins_{name}"] for name in cls._fields[:-1]}, sparse=sparse)
        return found.with_sparse(found.sparse) if len(found.sparse) else found

    def with_sparse(self, sparse: Int32s) -> Bins:
        """These bins, which are of dense features, and those of the sparse features of some indices after them."""
        s = len(sparse)
        return Bins(
            kinds=np.append(self.kinds, np.full(s, SPARSE, dtype=np.int8)),
            values=self.values,
            ranks=self.ranks,
            starts=np.append(self.starts, np.full(s, self.starts[-1])),
            seen=np.append(self.seen, np.ones(s, dtype=np.uint8)),
            default=np.append(self.default, np.zeros(s, dtype=np.int32)),
            sparse=sparse,
        )

    def select(self, features: Ints) -> Bins:
        """Bins of some of the features, in the order given."""
        starts, sizes = self.starts[features], np.diff(self.starts)[features]
        begin = np.concatenate([[0], np.cumsum(sizes)])
        at = np.repeat(starts - begin[:-1], sizes) + np.arange(begin[-1])
        kinds = self.kinds[features]
        among_sparse = (np.cumsum(self.kinds == SPARSE) - 1)[features[kinds == SPARSE]]
        return Bins(
            *(kinds, self.values[at], self.ranks[at], begin, self.seen[features], self.default[features]),
            self.sparse[among_sparse],
        )


def joined(parts: Sequence[Bins]) -> Bins:
    """Bins of several lists of features, one after the other; of a single list these themselves."""
    if len(parts) == 1:
        return parts[0]
    sizes = np.concatenate([np.diff(part.starts) for part in parts])
    return Bins(
        np.concatenate([part.kinds for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.ranks for part in parts]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([part.seen for part in parts]),
        np.concatenate([part.default for part in parts]),
        np.concatenate([part.sparse for part in parts]),
    )


#: Columns copied together, at least: the numbers of one row that lie in a line of the cache.
_TURNED = 8
#: Cells that are worth the start of another thread: sorted, and counted.
_FEW_CELLS, _FEW_COUNTED = 1 << 17, 1 << 21


def learn_bins(
    X: Floats, kinds: npt.NDArray[np.int8], max_bins: int, method: str, sparse: Int32s, rows: Int32s | None = None
) -> Bins:
    """Make the bins of the features of the first rows, at most ``max_bins`` with that of NaN. O(d n log n).

    ``X``, shape (n, d), has the dense features: NaN is a value of its own, a categorical feature holds its code, -1 an
    unknown category. ``method`` is ``doubling`` (appendix A of Lin et al., whose loop makes B + 1 bins as printed) or
    ``quantile`` (equal frequency). ``sparse`` are the indices, ascending, of the sparse features that are 1 in some of
    the rows and 0 in others. By default all ``rows`` of X are taken; a few columns of them are copied at a time.
    """
    rows = np.arange(len(X), dtype=np.int32) if rows is None else rows
    d = X.shape[1]
    together = -(-_TURNED // threads()) * threads()  # as many for each
    scratch, learned = empty((min(together, d), len(rows)), np.float64), []
    for begin in range(0, d, together):
        features = np.arange(begin, min(begin + together, d))
        columns = turned_block(X, rows, features, scratch)
        tasks = [partial(_learn, x, kinds[j], max_bins, method) for x, j in zip(columns, features, strict=True)]
        learned += run(tasks) if divided(columns.size, _FEW_CELLS) else [task() for task in tasks]
    values, ranks, seen, default = zip(*learned, strict=True) if d else ((), (), (), ())
    none: list[Any] = [np.empty(0)]
    return Bins(
        kinds.astype(np.int8),
        np.concatenate([*values] or none),
        np.concatenate([*ranks] or none).astype(np.int32),
        np.cumsum([0, *(len(v) for v in values)]).astype(np.int64),
        np.array(seen, dtype=np.uint8),
        np.array(default, dtype=np.int32),
        sparse,
    ).with_sparse(sparse)


def _learn(x: Floats, kind: int, max_bins: int, method: str) -> tuple[Floats, Int32s, bool, int]:
    """``values``, ``ranks``, ``seen`` and ``default`` (:class:`Bins`) of a dense feature, whose numbers are sorted."""
    if kind == NUMERIC:
        missing = np.isnan(x)
        unknown = int(np.count_nonzero(missing))
        values, in_bin = numeric_bins(x[~missing] if unknown else x, max(1, max_bins - (unknown > 0)), method)
        ranks = np.zeros(len(values), dtype=np.int32)
        return values, ranks, unknown > 0, int(np.append(in_bin, unknown).argmax())
    categories, counts = np.unique(x[x >= 0], return_counts=True)
    kept = np.argsort(-counts, kind="stable")[: max_bins - 1]
    in_order = np.argsort(categories[kept])
    others = len(x) - int(counts[kept].sum())
    default = int(np.append(counts[kept], others).argmax())
    return categories[kept][in_order], in_order.astype(np.int32), others > 0, default


# The rows of a process that holds all features, as bins: one byte a cell where bins are at most 256, else two.
#
# A feature whose rows are often in one bin (one-hot columns, sparse ones) is *listed*: a row has the list of its bins
# other than the default ones, so that the work for it is proportional to its length. All other numeric features lie
# side by side in a matrix. The choice follows from the first rows encoded; it changes what is stored, never a result.

#: A feature is listed if at least this share of the first rows is in its default bin.
LISTED_FROM = 0.7
#: Rows of a task, at least, where lists and the matrix are made.
_ARRANGED = 1 << 12


class Cells(NamedTuple):
    """Rows as kernels take them."""

    columns: AnyArray  #: Shape (dense features, capacity): codes by slot, for splitting.
    matrix: AnyArray  #: Shape (capacity, features in the matrix): codes again, row by row.
    first_bin: Ints  #: Shape (features in the matrix,): where the bins of each begin.
    #: ``begin``, ``end``, ``values``: Other than default bins of the listed features by slot, as in
    #: :class:`raydt.arrays.blocks.RaggedRows`. Without values nothing is to be read of ``begin`` and ``end``.
    begin: Ints
    end: Ints
    values: npt.NDArray[np.uint32]


@kernel
def _arrange(
    slots: Any, indptr: Any, indices: Any, columns: Any, of_matrix: Any, listed: Any, default: Any, offsets: Any,
    matrix: Any, counts: Any, entries: Any
) -> int:  # fmt: skip
    """Fill the matrix, and list the other entries, ascending in each row; returns how many there are in all."""
    dense = len(columns)
    used = 0
    for i in range(len(slots)):
        slot, before = slots[i], used
        for w in range(len(of_matrix)):
            matrix[slot, w] = columns[of_matrix[w], slot]
        for j in listed:
            if columns[j, slot] != default[j]:
                entries[used] = offsets[j] + columns[j, slot]
                used += 1
        for e in range(indptr[i], indptr[i + 1]):
            entries[used] = offsets[dense + indices[e]] + 1
            used += 1
        counts[i] = used - before
    return used


class CellStore:
    """Rows by slot.

    Parameters
    ----------
    bins : Bins
        Of all features.
    dense : int
        How many of them are dense; the others are sparse.
    """

    def __init__(self, bins: Bins, dense: int) -> None:
        self._bins = bins
        counts = bins.counts()
        self._offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        small = int(counts[:dense].max(initial=0)) <= 256
        self._columns = np.empty((dense, 0), dtype=np.uint8 if small else np.uint16)
        self._lists = RaggedStore()
        #: Which features are in the matrix; known once there are rows.
        self.whole = np.zeros(len(bins), dtype=np.bool_)
        self._of_matrix = np.empty(0, dtype=np.int64)
        self._matrix = np.empty((0, 0), dtype=self._columns.dtype)
        self._dropped = 0  # rows that the matrix had

    def trim(self) -> None:
        """Drop the matrix, whose codes the columns have too, until it is used again."""
        self._dropped = self._dropped or len(self._matrix)
        self._matrix = self._matrix[:0].copy()

    def _make_matrix(self) -> None:
        """Make the matrix again, if it was dropped. O(rows x features)."""
        if rows := self._dropped:
            self._matrix = np.ascontiguousarray(self._columns[self._of_matrix, :rows].T)
            self._dropped = 0

    def make_room(self, slots: Int32s) -> None:
        """Room for the columns of some rows."""
        have, need = self._columns.shape[1], int(slots.max(initial=-1)) + 1
        if need > have:
            longer = np.empty((len(self._columns), max(need, have * 3 // 2, 64)), dtype=self._columns.dtype)
            longer[:, :have] = self._columns
            self._columns = longer

    def add_columns(self, slots: Int32s, X: Floats) -> None:
        """Encode the dense features of some rows, shape (rows, dense), for which there is room."""
        encode(X, self._bins, slots, self._columns)

    def put_columns(self, features: Ints, slots: Int32s, codes: Any) -> None:
        """Take codes of some dense features, shape (features, rows), of rows for which there is room."""
        taken = as_slice(slots)
        for j, of_feature in zip(features.tolist(), codes, strict=True):
            self._columns[j, taken] = of_feature

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of codes."""
        return self._columns.dtype

    def default_counts(self, slots: Int32s) -> Ints:
        """Count, of some rows, those in the default bin of each dense feature."""
        taken = as_slice(slots)

        def count(j: int) -> int:
            return int(np.count_nonzero(self._columns[j, taken] == self._bins.default[j]))

        tasks = [partial(count, j) for j in range(len(self._columns))]
        few = not divided(len(tasks) * len(slots), _FEW_COUNTED)
        return np.array([task() for task in tasks] if few else run(tasks), dtype=np.int64)

    def choose(self, counts: Ints, rows: int) -> None:
        """Choose the features of the matrix, by how many of the first rows are in the default bins."""
        dense = len(self._columns)
        for j in np.flatnonzero((self._bins.kinds[:dense] == NUMERIC) & (self._bins.cuts()[:dense] > 0)).tolist():
            self.whole[j] = int(counts[j]) / max(1, rows) < LISTED_FROM
        self._of_matrix = np.flatnonzero(self.whole[:dense])
        self._matrix = np.empty((0, len(self._of_matrix)), dtype=self._columns.dtype)

    def arrange(self, slots: Int32s, rows: RowBlock) -> None:
        """Complete rows whose columns are encoded."""
        self._make_matrix()
        have, need = len(self._matrix), self._columns.shape[1]
        if need > have:
            longer = np.empty((need, self._matrix.shape[1]), dtype=self._matrix.dtype)
            longer[:have] = self._matrix
            self._matrix = longer
        rows = self._with_bins(rows)
        parts = ranges(len(slots), _ARRANGED, 4)
        arranged = run(
            [partial(self._arrange, slots[part], rows.indptr[part.start : part.stop + 1], rows) for part in parts]
        )
        if not self.whole[: len(self._columns)].all() or len(self._bins) > len(self._columns):
            for part, (counts, entries) in zip(parts, arranged, strict=True):
                self._lists.put(slots[part], counts, entries)

    def _arrange(self, slots: Int32s, indptr: Ints, rows: RowBlock) -> tuple[Any, Any]:
        """Fill the matrix of some rows; returns the lengths of their lists, and the lists."""
        listed = np.flatnonzero(~self.whole[: len(self._columns)])
        counts = np.empty(len(slots), dtype=np.int64)
        entries = np.empty(len(slots) * len(listed) + int(indptr[-1] - indptr[0]), dtype=np.uint32)
        default = self._bins.default.astype(np.int64)
        used = _arrange(
            *(slots, indptr, rows.indices, self._columns, self._of_matrix, listed, default, self._offsets),
            *(self._matrix, counts, entries),
        )
        return counts, entries[:used]

    def _with_bins(self, rows: RowBlock) -> RowBlock:
        """The sparse features that have bins, by place among the sparse ones that have. O(ones log(features))."""
        sparse = self._bins.sparse
        place = np.searchsorted(sparse, rows.indices)
        known = np.append(sparse, -1)[place] == rows.indices
        before = np.concatenate([[0], np.cumsum(known)])
        return rows._replace(indptr=before[rows.indptr], indices=place[known].astype(np.int32))

    def add(self, slots: Int32s, rows: RowBlock) -> None:
        """Keep rows once the features of the matrix are chosen."""
        if len(slots):
            self.make_room(slots)
            self.add_columns(slots, rows.X)
            self.arrange(slots, rows)

    @property
    def cells(self) -> Cells:
        """The arrays, for kernels; valid until the next :meth:`add`."""
        self._make_matrix()
        return Cells(self._columns, self._matrix, self._offsets[self._of_matrix], *self._lists.rows)


@inner_kernel
def is_left(cells: Any, slot: int, j: int, cut: int, categorical: Any, offsets: Any) -> bool:
    """Return True if the row in a slot is on the left of a cut of feature ``j``."""
    if j < len(cells.columns):
        code = cells.columns[j, slot]
        return bool(code == cut if categorical[j] else code <= cut)
    return not is_one(cells.values, cells.begin[slot], cells.end[slot], offsets[j] + 1)
