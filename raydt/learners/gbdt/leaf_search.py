"""Open leaves: what growing trees needs in one process and on a shard alike.

Invariant: the histogram of an open leaf lies in a pool. When the leaf is split, the histogram of the smaller child is
summed up from its rows, and the parent's, less that one, becomes the larger child's: exactly, since sums are integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel
from raydt.learners.gbdt.binned_rows import Cells, add_cells, add_places
from raydt.learners.gbdt.candidates import Candidates
from raydt.learners.gbdt.split_search import FEATURE, Units, least_gain, scan

#: A leaf that was opened: its node, where it is known; its left child, the right one being the next (-1: not split);
#: its rows ``slots[begin:end]`` and their sums; the gain of its best split, 0 if there is none or the leaf is split;
#: and the number in the pool of its histogram, or of that of its larger child.
OPEN_LEAF = np.dtype(
    [
        ("node", np.int64),
        ("left", np.int64),
        ("begin", np.int64),
        ("end", np.int64),
        ("G", np.int64),
        ("H", np.int64),
        ("gain", np.float64),
        ("histogram", np.int64),
    ]
)


class LocalSums(NamedTuple):
    """Rows, candidates and the histogram of every inner node, of the features that this process holds.

    ``sums``, int64, shape (trees, inner nodes, S + 1, 2), has G and H by stored segment.
    """

    cells: Cells
    candidates: Candidates
    units: Units
    sums: npt.NDArray[np.int64]


@inner_kernel
def search(local: Any, row: int, room: Any, e: int) -> None:
    """Find the best split of an open leaf."""
    leaf = room.leaf[e]
    leaf.gain = 0.0
    if leaf.end - leaf.begin > 1:
        sums, found = room.pool[leaf.histogram], room.found[e]
        least = least_gain(leaf.G, leaf.H, local.units)
        scan(sums, leaf.G, leaf.H, local.candidates, row, local.units, least, room.best, found)
        if found[FEATURE] >= 0:
            leaf.gain = room.best[0]


@inner_kernel
def sum_up_leaf(local: Any, row: int, room: Any, e: int, squared: bool) -> None:
    """Make the histogram of an open leaf from its rows."""
    leaf = room.leaf[e]
    sums, a, b = room.pool[leaf.histogram], leaf.begin, leaf.end
    sums[:] = 0
    if len(room.places.ends):
        add_places(room.slots[a:b], room.g[a:b], squared, room.places, sums)
    else:
        add_cells(room.slots[a:b], room.g[a:b], squared, local.cells, local.candidates.segment[row], sums)


@inner_kernel
def copy_sums(sums: Any, into: Any) -> None:
    """Copy a histogram."""
    for s in range(len(sums)):
        into[s, 0] = sums[s, 0]
        into[s, 1] = sums[s, 1]
