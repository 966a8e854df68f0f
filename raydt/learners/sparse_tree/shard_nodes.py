"""A shard's view of the tree: the nodes, and which feature groups of each are its own.

A *unit* is one of the shard's feature groups at one node: unit = node * groups + group, counted within the shard. A
node at the largest depth, which is never split, has no structure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inlined_kernel
from raydt.arrays.sparse import group_of

#: A node as a shard knows it, by node id: links (-1: none), depth, rows and those of class 1.
NODE = np.dtype(
    [
        ("parent", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("depth", np.int32),
        ("n", np.int64),
        ("c1", np.int64),
    ]
)


class Groups(NamedTuple):
    """The feature groups of a shard: how many it owns, the first of them, and how many all shards own."""

    owned: int
    first: int
    total: int


@inlined_kernel
def unit_of(groups: Any, node: int, index: int) -> int:
    """The unit of a sparse feature at a node."""
    unit: int = node * groups.owned + group_of(index, groups.total) - groups.first
    return unit
