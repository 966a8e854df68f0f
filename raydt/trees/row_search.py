"""The oldest example of a leaf that equals a row: for deletions of one example by value."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import kernel


@kernel
def oldest_equal(tree: Any, examples: Any, X: Any, row: Any, leaf: int, code: int) -> int:
    """Slot of the oldest live example of a leaf that equals a row, shape (1, d), and has a class; -1 of none.

    ``X`` has the features by slot. NaN equals NaN. O(examples in the leaf x d).
    """
    oldest: int = np.int64(-1)
    slot = np.int64(tree.nodes[leaf].head)
    while slot >= 0:
        if examples.y[slot] == code and (oldest < 0 or examples.born[slot] < examples.born[oldest]):
            equal = True
            for j in range(row.shape[1]):
                a, b = X[slot, j], row[0, j]
                if a != b and (a == a or b == b):
                    equal = False
                    break
            if equal:
                oldest = slot
        slot = np.int64(examples.members[slot].next)
    return oldest
