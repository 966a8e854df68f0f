"""A shard's histograms: sums of derivatives by candidate segment at every inner node, changed along paths of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.simd import add_pair
from raydt.learners.gbdt.binned_rows import segments_of
from raydt.learners.gbdt.candidates import row_of


class ShardTrees(NamedTuple):
    """A shard's view of the trees."""

    parent: npt.NDArray[np.int16]  #: Shape (trees, nodes): -1: none.
    histogram: npt.NDArray[np.int16]  #: Shape (trees, nodes): number of the histogram of each inner node in its tree.
    sums: npt.NDArray[np.int64]  #: Shape (trees, inner nodes, S + 1, 2): the histograms: G and H by stored segment.
    per: int  #: Trees of an iteration.


class SumChange(NamedTuple):
    """Rows whose derivatives change in the trees ``first`` up to before ``stop``."""

    first: int
    stop: int
    slots: npt.NDArray[np.int32]  #: Shape (rows,).
    leaf: npt.NDArray[np.int16]  #: Shape (trees, rows): the leaf each row is in.
    dg: npt.NDArray[np.int32]  #: ``dg``, ``dh``: Shape (trees, rows).
    dh: npt.NDArray[np.int32]

    def since(self, tree: int) -> SumChange:
        """The part of it from a tree on."""
        i = max(tree - self.first, 0)
        return SumChange(self.first + i, self.stop, self.slots, self.leaf[i:], self.dg[i:], self.dh[i:])


@kernel
def change_sums(nodes: Any, change: Any, sign: int, cells: Any, candidates: Any, scratch: Any) -> None:
    """Add a :class:`SumChange` (``sign`` 1), or subtract it (-1), at all nodes above the leaves of its rows.

    ``scratch``, uint32, has room for the features. O(trees x rows x depth x entries of a row).
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
            length = segments_of(np.uint32(slots[i]), cells, segment, scratch)
            while node >= 0:
                sums = nodes.sums[t, nodes.histogram[t, node]]
                for e in range(length):
                    add_pair(sums, scratch[e], G, H)
                node = nodes.parent[t, node]
