"""The trees as the coordinator holds them: how rows pass through them, values of leaves, preorder.

All trees are of one size: node 0 is the root, and a node that is not in use is FREE. The sums G and H of every node
are kept, since they change with a row on its path; leaf values follow from them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import is_one
from raydt.arrays.types import Floats, Int32s, Ints
from raydt.batches.binning import SPARSE, code_of
from raydt.examples.features import CATEGORICAL
from raydt.learners.gbdt.split_search import gain_of

#: Values of ``feature`` of a node without a split.
LEAF, FREE = -1, -2
#: The largest step of a leaf in F, before shrinkage (classification): where all second derivatives are tiny.
LARGEST_STEP = 128.0


class Rates(NamedTuple):
    """How a leaf's value follows from its sums: units of G and H, L2, factor, largest step, shrinkage."""

    g: float
    h: float
    l2: float
    factor: float
    largest: float
    shrinkage: float


class Trees(NamedTuple):
    """Arrays of shape (trees, nodes).

    ``feature`` (or LEAF or FREE), ``cut``, ``left``, ``right``, ``parent`` (-1: none), ``histogram`` (its number at the
    shards, -1 of a leaf), ``G``, ``H``, ``value`` of a leaf (shrunk), ``tried_g`` and ``tried_h``, its sums when it
    could not be split (``tried_h`` -1: it was not tried), ``above`` and ``below``, how far a leaf has been above and
    below its value (``staleness``; 0 elsewhere); and ``leaves``, shape (trees,).
    """

    feature: Int32s
    cut: Int32s
    left: npt.NDArray[np.int16]
    right: npt.NDArray[np.int16]
    parent: npt.NDArray[np.int16]
    histogram: npt.NDArray[np.int16]
    G: Ints
    H: Ints
    value: Floats
    tried_g: Ints
    tried_h: Ints
    above: npt.NDArray[np.uint16]
    below: npt.NDArray[np.uint16]
    leaves: Int32s


def new_trees(count: int, max_leaf_nodes: int) -> Trees:
    """``count`` trees of one leaf without rows."""
    shape = count, 2 * max_leaf_nodes - 1
    feature = np.full(shape, FREE, dtype=np.int32)
    feature[:, 0] = LEAF
    left, right, parent, histogram = (np.full(shape, -1, dtype=np.int16) for _ in range(4))
    cut, value, leaves = np.zeros(shape, dtype=np.int32), np.zeros(shape), np.ones(count, dtype=np.int32)
    G, H, tried_g = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    tried_h = np.full(shape, -1, dtype=np.int64)
    above, below = (np.zeros(shape, dtype=np.uint16) for _ in range(2))
    return Trees(feature, cut, left, right, parent, histogram, G, H, value, tried_g, tried_h, above, below, leaves)


@inner_kernel
def value_of(G: int, H: int, rates: Any) -> float:
    """Value of a leaf (Algorithm 1, line 7), with the L2 term and shrinkage."""
    if H <= 0:
        return 0.0
    beta = (G * rates.g) / (H * rates.h + rates.l2) * rates.factor
    value: float = rates.shrinkage * min(max(beta, -rates.largest), rates.largest)
    return value


@inner_kernel
def set_values(trees: Any, t: int, rates: Any) -> None:
    """Values of all leaves of one tree from their sums."""
    for node in range(trees.feature.shape[1]):
        if trees.feature[t, node] == LEAF:
            trees.value[t, node] = value_of(trees.G[t, node], trees.H[t, node], rates)


@kernel
def set_all_values(trees: Any, rates: Any) -> None:
    """Values of all leaves of all trees."""
    for t in range(len(trees.feature)):
        set_values(trees, t, rates)


@inner_kernel
def _goes_left(rows: Any, i: int, j: int, cut: int, bins: Any) -> bool:
    """Return True if row ``i`` is on the left of a cut of feature ``j``."""
    kind = bins.kinds[j]
    if kind == SPARSE:
        return not is_one(rows.indices, rows.indptr[i], rows.indptr[i + 1], bins.sparse[j - rows.X.shape[1]])
    a, b = bins.starts[j], bins.starts[j + 1]
    x = rows.X[i, j]
    if kind == CATEGORICAL:
        return bool(code_of(x, bins, j) == cut)
    if a + cut == b:
        return not np.isnan(x)
    return bool(x <= bins.values[a + cut])  # NaN goes right


@inner_kernel
def leaf_of(trees: Any, t: int, rows: Any, i: int, bins: Any) -> int:
    """Return the leaf of row ``i`` in one tree. O(depth)."""
    node = 0
    while trees.feature[t, node] >= 0:
        left = _goes_left(rows, i, trees.feature[t, node], trees.cut[t, node], bins)
        node = trees.left[t, node] if left else trees.right[t, node]
    return int(node)


@kernel
def gains(trees: Any, units: Any, out: Any) -> None:
    """Return the gain of every split, 0 elsewhere; shape (trees, nodes)."""
    for t in range(len(trees.feature)):
        for node in range(trees.feature.shape[1]):
            if trees.feature[t, node] >= 0:
                left = trees.left[t, node]
                if 0 < trees.H[t, left] < trees.H[t, node]:
                    out[t, node] = gain_of(
                        trees.G[t, left], trees.H[t, left], trees.G[t, node], trees.H[t, node], units
                    )


@kernel
def score_rows(trees: Any, first: int, stop: int, rows: Any, bins: Any, F: Any) -> None:
    """Add the leaf values of rows in iterations ``first`` up to before ``stop`` to F, shape (rows, K')."""
    per = F.shape[1]
    for i in range(len(F)):
        for m in range(first, stop):
            for k in range(per):
                t = m * per + k
                F[i, k] += trees.value[t, leaf_of(trees, t, rows, i, bins)]


@inner_kernel
def next_in_preorder(trees: Any, t: int, node: int) -> int:
    """Return the node after one in preorder, -1 after the last."""
    if trees.feature[t, node] >= 0:
        return int(trees.left[t, node])
    up = np.int64(trees.parent[t, node])
    while up >= 0 and trees.right[t, up] == node:
        node, up = up, np.int64(trees.parent[t, up])
    return int(trees.right[t, up]) if up >= 0 else -1


@kernel
def preorder(trees: Any, order: Any, position: Any) -> None:
    """List the nodes of every tree in preorder (-1 after the last), and the position of each in it (-1: free)."""
    for t in range(len(trees.feature)):
        position[t] = -1
        order[t] = -1
        n = 0
        node = np.int64(0)
        while node >= 0:
            order[t, n] = node
            position[t, node] = n
            n += 1
            node = next_in_preorder(trees, t, node)


@kernel
def _deepest(trees: Any, depth: Any) -> int:
    """Depth of the deepest node of all trees; ``depth`` is scratch by node."""
    deepest = 0
    for t in range(len(trees.feature)):
        depth[0] = 0
        node = next_in_preorder(trees, t, np.int64(0))
        while node >= 0:
            depth[node] = depth[trees.parent[t, node]] + 1
            deepest = max(deepest, depth[node])
            node = next_in_preorder(trees, t, node)
    return deepest


def extent(trees: Trees) -> tuple[int, int, int]:
    """Return nodes and leaves of all trees, and the depth of the deepest."""
    count, width = trees.feature.shape
    leaves = int(trees.leaves.sum())
    return 2 * leaves - count, leaves, int(_deepest(trees, np.empty(width, dtype=np.int64)))
