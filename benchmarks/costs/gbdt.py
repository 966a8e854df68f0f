"""Counts of the GBDT's messages and work: training with the shards, and the least that a batch D' takes.

For each tree every shard gets slots and derivatives of all rows, and sides as bits down the levels; bins and histograms
of the features are divided.
"""

from __future__ import annotations

import math

from costs.counts import Cost, Costs, Shape, Sizes, log2, sparse_aware_rows
from raydt.learners.gbdt.options import GBDTOptions

#: Levels of a tree in which it takes as long to look at a value as to bin it: 140 to 170 ns, and 3.9 to 4.8 ns with
#: 1,024 bins. With 255, whose sums lie in the nearest cache, it is 2.1 ns and these are 60
#: (``benchmarks/cost_model.py --part training``).
_BINNING = 30
#: Bytes of a row in a tree, in a change: leaf and first derivative; classes have a second one.
_CHANGE = 5


class GBDTCosts(Costs):
    """Counts with given options."""

    def __init__(self, options: GBDTOptions) -> None:
        self._options = options

    def _trees(self, classes: int) -> int:
        """Trees of an iteration."""
        return classes if classes > 2 else 1

    def shape(self, rows: int) -> Shape:
        """Trees with all their leaves, a third deeper than balanced ones."""
        leaves = min(self._options.max_leaf_nodes, max(2, rows))
        depth = log2(leaves)
        return Shape(math.ceil(depth * 4 / 3), depth, (2 * leaves - 1) * self._options.max_iter)

    def first_model(self, sizes: Sizes, shape: Shape) -> Cost:
        """The rows, their bins, and for each iteration ``grow``, a ``split`` for each level, and ``end``."""
        n, shards, iterations = sizes.rows, sizes.shards, self._options.max_iter
        trees = iterations * self._trees(sizes.classes)
        bins = 8 * sizes.columns * min(self._options.max_bins, n)
        sides = trees * n // 8
        sent = sparse_aware_rows(sizes, n, sizes.batches) + shards * (8 * n + bins)
        sent += shards * (trees * 8 * n + round(sides * shape.depth) + 32 * shape.nodes)
        received = bins + shards * (round(sides * (1 + shape.depth)) + 40 * shape.nodes) + trees * 4 * n
        rounds = sizes.batches + 3 + iterations * (2 + shape.levels)
        cells = n * (sizes.columns + sizes.ones) * (trees * shape.depth / 2 + _BINNING)
        return Cost(rounds, sent, received, cells, n * trees * shape.depth)

    def batch(self, sizes: Sizes, shape: Shape) -> Cost:
        """New rows, and for each D' that is full two passes, whose windows double while no tree is retrained."""
        o, new, shards = self._options, sizes.inserts, sizes.shards
        passes = 2 * (sizes.batch // o.every(sizes.rows))
        windows = math.ceil(math.log2(o.max_iter + 1)) if o.bounded else 1
        trees = o.max_iter * self._trees(sizes.classes)
        changed = sizes.batch if passes else 0
        sent = sparse_aware_rows(sizes, new, 1) + shards * changed * (4 * windows + _CHANGE * trees)
        looked = changed * trees
        return Cost(
            1 + passes // 2 + passes * windows, sent, 0, looked * (sizes.columns + sizes.ones) * shape.depth, looked
        )
