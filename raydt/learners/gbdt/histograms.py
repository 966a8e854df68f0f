"""Rows as bins, and histograms: the sums of derivatives by candidate segment, built for a node or changed along paths.

A row is the list of its bins other than the default ones, so that the work for it is proportional to its length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.binning import code_of
from raydt.learners.gbdt.candidates import row_of
from raydt.learners.gbdt.derivatives import ONE


class Codes(NamedTuple):
    """The rows of a shard as bins.

    Attributes
    ----------
    begin, end, values : ndarray
        Bins other than the default ones by slot, as in :class:`raydt.arrays.ragged.RaggedRows`.
    columns : ndarray of uint16, shape (dense features, capacity)
        Codes of the dense features by slot, for splitting.
    """

    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint32]
    columns: npt.NDArray[np.uint16]


class ShardTrees(NamedTuple):
    """A shard's view of the trees.

    Attributes
    ----------
    parent : ndarray of int16, shape (trees, nodes)
        -1: none.
    histogram : ndarray of int16, shape (trees, nodes)
        Number of the histogram of each inner node in its tree.
    sums : ndarray of int64, shape (trees, inner nodes, C + 1, 2)
        The histograms: G and H by segment.
    per : int
        Trees of an iteration.
    """

    parent: npt.NDArray[np.int16]
    histogram: npt.NDArray[np.int16]
    sums: npt.NDArray[np.int64]
    per: int


class Change(NamedTuple):
    """Rows whose derivatives change in the trees ``first`` up to before ``stop``.

    Attributes
    ----------
    first, stop : int
    slots : ndarray of int32, shape (rows,)
    leaf : ndarray of int16, shape (trees, rows)
        The leaf each row is in.
    dg, dh : ndarray of int32, shape (trees, rows)
    """

    first: int
    stop: int
    slots: npt.NDArray[np.int32]
    leaf: npt.NDArray[np.int16]
    dg: npt.NDArray[np.int32]
    dh: npt.NDArray[np.int32]

    def since(self, tree: int) -> Change:
        """The part of it from a tree on."""
        i = max(tree - self.first, 0)
        return Change(self.first + i, self.stop, self.slots, self.leaf[i:], self.dg[i:], self.dh[i:])


@kernel
def encode(
    slots: Any, X: Any, lengths: Any, indices: Any, bins: Any, offsets: Any, columns: Any, counts: Any, entries: Any
) -> int:
    """Entries of rows, ascending in each, into ``entries``, their number into ``counts``; returns how many in all.

    ``X``, shape (n, dense features); the sparse features of row i are the next ``lengths[i]`` of ``indices``.
    ``columns``, shape (dense features, capacity), takes the codes of the dense features by slot.
    """
    dense = X.shape[1]
    used = taken = 0
    for i in range(len(X)):
        before = used
        for j in range(dense):
            code = code_of(X[i, j], bins.kinds[j], bins.values, bins.ranks, bins.starts[j], bins.starts[j + 1])
            columns[j, slots[i]] = code
            if code != bins.default[j]:
                entries[used] = offsets[j] + code
                used += 1
        for _ in range(lengths[i]):
            entries[used] = offsets[dense + indices[taken]] + 1
            used += 1
            taken += 1
        counts[i] = used - before
    return used


@inner_kernel
def add_rows(rows: Any, begin: int, end: int, codes: Any, segment: Any, sums: Any) -> None:
    """Add the rows ``rows.order[begin:end]`` (``growth.JobRows``) to a histogram, shape (C + 1, 2)."""
    order = rows.order[begin:end]
    for i in range(len(order)):
        row = np.uint32(order[i])  # unsigned: no test for an index from the end
        G = np.int64(rows.g[row])
        a = abs(G)
        H = np.int64(1) if rows.squared else a * (ONE - a)
        slot = np.uint32(rows.slots[row])
        for e in range(np.uint64(codes.begin[slot]), np.uint64(codes.end[slot])):
            s = segment[codes.values[e]]
            sums[s, 0] += G
            sums[s, 1] += H


@kernel
def change_sums(nodes: Any, change: Any, sign: int, codes: Any, candidates: Any, scratch: Any) -> None:
    """Add a :class:`Change` (``sign`` 1), or subtract it (-1), at all nodes above the leaves of its rows.

    ``scratch``, uint32, has room for the longest row. O(trees x rows x depth x entries of a row).
    """
    slots = change.slots
    for t in range(change.first, change.stop):
        w = t - change.first
        segment = candidates.segment[row_of(candidates, t // nodes.per)]
        for i in range(len(slots)):
            G, H = np.int64(change.dg[w, i]) * sign, np.int64(change.dh[w, i]) * sign
            node = nodes.parent[t, change.leaf[w, i]]
            if node < 0 or (G == 0 and H == 0):
                continue
            begin = np.uint64(codes.begin[slots[i]])
            length = np.uint64(codes.end[slots[i]]) - begin
            for e in range(length):
                scratch[e] = segment[codes.values[begin + e]]
            while node >= 0:
                sums = nodes.sums[t, nodes.histogram[t, node]]
                for e in range(length):
                    sums[scratch[e], 0] += G
                    sums[scratch[e], 1] += H
                node = nodes.parent[t, node]
