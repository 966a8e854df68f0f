"""The rows of a process that holds all features, as bins: one byte a cell where bins are at most 256, else two.

A feature whose rows are often in one bin (one-hot columns, sparse ones) is *listed*: a row has the list of its bins
other than the default ones, so that the work for it is proportional to its length. All other numeric features lie side
by side in a matrix. The choice follows from the first rows encoded; it changes what is stored, never a result.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import as_slice
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.ragged import RaggedStore
from raydt.arrays.sparse import is_one
from raydt.arrays.types import AnyArray, Floats, Int32s, Ints
from raydt.batches.binning import Bins, encode
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.features import NUMERIC
from raydt.parallel.threads import ranges, run

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
    #: :class:`raydt.arrays.ragged.RaggedRows`. Without values nothing is to be read of ``begin`` and ``end``.
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

        return np.array(run([partial(count, j) for j in range(len(self._columns))]), dtype=np.int64)

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
