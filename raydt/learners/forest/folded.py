"""The arrays of a forest that may not be used for long: compressed, and without what follows from the others.

The order of the nodes says which are whose children, and an inner node has the totals of both. Totals that were shifted
or divided may not add up: such a model is kept whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raydt.arrays.compressed import Compressed
from raydt.arrays.kernel import kernel
from raydt.arrays.types import AnyArray, Arrays

#: What follows from the others, and the name of what is kept of totals.
_FOLLOW, _AT_LEAVES = ("left", "right", "totals"), "at_leaves"


@kernel
def _follow(sizes: Any, feature: Any, left: Any, right: Any, totals: Any, waiting: Any) -> None:
    """Fill in children and totals of inner nodes, from the last node of each tree to the first. O(nodes)."""
    node = len(feature)
    for tree in range(len(sizes) - 1, -1, -1):
        start, top = node - sizes[tree], 0
        while node > start:
            node -= 1
            if feature[node] >= 0:
                top -= 2
                a, b = np.int64(waiting[top + 1]), np.int64(waiting[top])
                left[node], right[node] = a - start, b - start
                for k in range(totals.shape[1]):
                    totals[node, k] = totals[a, k] + totals[b, k]
            waiting[top] = node
            top += 1


class Folded:
    """Arrays of a model; :func:`unfolded` returns them bit for bit. O(bytes) each way."""

    def __init__(self, model: Mapping[str, AnyArray]) -> None:
        self._names = tuple(model)
        rest = {name: array for name, array in model.items() if name not in _FOLLOW}
        self._kept = Compressed({**rest, _AT_LEAVES: model["totals"][model["feature"] < 0]})
        if any(not np.array_equal(array, model[name]) for name, array in self.arrays().items()):
            self._kept = Compressed(model)

    def arrays(self) -> Arrays:
        """Return all arrays by name, in the order in which they were given."""
        whole = dict(self._kept)
        if _AT_LEAVES in whole:
            feature, at_leaves = whole["feature"], whole.pop(_AT_LEAVES)
            left, right, waiting = (np.full(len(feature), -1, dtype=np.int32) for _ in range(3))
            totals = np.zeros((len(feature), at_leaves.shape[1]), dtype=at_leaves.dtype)
            totals[feature < 0] = at_leaves
            _follow(whole["tree_nodes"], feature, left, right, totals, waiting)
            whole.update(zip(_FOLLOW, (left, right, totals), strict=True))
        return {name: whole[name] for name in self._names}


def unfolded(model: Folded | Arrays) -> Arrays:
    """Return the arrays of a model that may be folded, in a mapping of its own."""
    return model.arrays() if isinstance(model, Folded) else dict(model)
