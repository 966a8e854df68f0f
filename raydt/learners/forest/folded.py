"""The arrays of a forest that may not be used for long: compressed, and without what follows from the others.

The order of the nodes says which are whose children, and an inner node has the totals of both. Totals that were shifted
or divided may not add up: such a model is kept whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from raydt.arrays.compressed import Compressed
from raydt.arrays.kernel import kernel
from raydt.arrays.types import AnyArray, Arrays

_FOLLOW = ("left", "right", "totals")


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


class Folded(Mapping[str, AnyArray]):
    """Arrays of a model by name, bit for bit those that were given; each access makes a new one. O(bytes)."""

    def __init__(self, model: Mapping[str, AnyArray]) -> None:
        self._names, leaves = tuple(model), model["feature"] < 0
        rest = {name: array for name, array in model.items() if name not in _FOLLOW}
        self._kept = Compressed({**rest, "at_leaves": model["totals"][leaves]})
        if any(not np.array_equal(array, model[name]) for name, array in self._following().items()):
            self._kept = Compressed(model)

    def _following(self) -> Arrays:
        feature, at_leaves = self._kept["feature"], self._kept["at_leaves"]
        left, right, waiting = (np.full(len(feature), -1, dtype=np.int32) for _ in range(3))
        totals = np.zeros((len(feature), at_leaves.shape[1]), dtype=at_leaves.dtype)
        totals[feature < 0] = at_leaves
        _follow(self._kept["tree_nodes"], feature, left, right, totals, waiting)
        return dict(zip(_FOLLOW, (left, right, totals), strict=True))

    def __getitem__(self, name: str) -> AnyArray:
        return self._kept[name] if name in tuple(self._kept) else self._following()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
