"""Counts of the GBDT's messages and work: training with rows divided, and the least that a batch D' takes.

Every row goes, as codes of all its features, from the shards that keep its columns to the one that owns it. For each
tree the shards then exchange histograms of the leaves that are summed up, and the best splits of the owners of
features: as many bytes whatever the number of rows. What a driver counts here passes through the coordinator; on Ray
shards send it each other.
"""

from __future__ import annotations

import math

from costs.counts import Cost, Costs, Shape, Sizes, log2, sparse_aware_rows
from raydt.learners.gbdt.options import GBDTOptions

#: Levels of a tree in which it takes as long to look at a value as to bin it: 140 to 170 ns, and 3.9 to 4.8 ns with
#: 1,024 bins. With 255, whose sums lie in the nearest cache, it is 2.1 ns and these are 60
#: (``benchmarks/cost_model.py --part training``).
_BINNING = 30
#: Bytes of a stored segment, of a split that an owner has found, of a node's changes, and of a node of the trees.
_SEGMENT, _FOUND, _CHANGES, _NODE = 16, 32, 40, 60
#: Sparse features with bins for each one of a row, in the mean.
_WIDTH = 10
#: Rows that are encoded in a round.
_ENCODED = 1 << 16


class GBDTCosts(Costs):
    """Counts with given options."""

    def __init__(self, options: GBDTOptions) -> None:
        self._options = options

    def _trees(self, classes: int) -> int:
        """All trees."""
        return self._options.max_iter * (classes if classes > 2 else 1)

    def shape(self, rows: int) -> Shape:
        """Trees with all their leaves, a third deeper than balanced ones."""
        leaves = min(self._options.max_leaf_nodes, max(2, rows))
        depth = log2(leaves)
        return Shape(math.ceil(depth * 4 / 3), depth, (2 * leaves - 1) * self._options.max_iter)

    def _whole_rows(self, sizes: Sizes, rows: int) -> int:
        """Bytes of some rows on their way from the owners of columns to their own: codes, ones, pointers at each."""
        code = 1 if self._options.max_bins < 256 else 2
        return round(rows * (code * sizes.columns + 4 * sizes.ones)) + sizes.shards * 8 * (rows + sizes.shards)

    def first_model(self, sizes: Sizes, shape: Shape) -> Cost:
        """The rows, their bins, the rows as cells, and for each tree a meeting for the root and one for each level."""
        o, n, shards, trees = self._options, sizes.rows, sizes.shards, self._trees(sizes.classes)
        bins = 8 * sizes.columns * min(o.max_bins, n)
        segments = sizes.columns * (1 + math.ceil(o.candidate_fraction * min(o.max_bins, n))) + _WIDTH * sizes.ones
        leaves = (shape.nodes - trees) // 2
        summed = leaves * shape.depth / log2(o.max_leaf_nodes)
        parts = round(shards * summed * segments * _SEGMENT) + 16 * trees * shards * shards
        found = shards * 2 * leaves * _FOUND
        whole = self._whole_rows(sizes, n)
        target = 4 if sizes.classes else 8
        passes = o.max_iter if o.early_stopping else 1
        counts = 8 * shards * shards * sizes.columns  # of rows in the default bins
        sent = sparse_aware_rows(sizes, n, sizes.batches) + shards * ((4 * 3 + target) * n + bins) + whole
        sent += counts + parts + shards * found
        received = bins + whole + counts + parts + found + passes * _NODE * trees * (2 * o.max_leaf_nodes - 1)
        rounds = sizes.batches + 5 + passes + 2 * -(-n // _ENCODED) + 2 * trees * (1 + shape.levels)
        cells = n * (sizes.columns + sizes.ones) * (trees * shape.depth / 2 + _BINNING)
        return Cost(rounds, sent, received, cells, n * trees * shape.depth / shards)

    def batch(self, sizes: Sizes, shape: Shape) -> Cost:
        """New rows, and for each D' that is full two passes, each with a meeting for every tree."""
        o, new, shards, trees = self._options, sizes.inserts, sizes.shards, self._trees(sizes.classes)
        full = sizes.batch // o.every(sizes.rows)
        changes = _CHANGES * (2 * o.max_leaf_nodes - 1) + 8
        exchanged = 2 * full * trees * shards * shards * changes
        sent = sparse_aware_rows(sizes, new, 1) + exchanged
        looked = (sizes.batch if full else 0) * trees
        cells = looked * (sizes.columns + sizes.ones) * shape.depth
        return Cost(1 + full * (4 + 4 * trees), sent, exchanged, cells, looked / shards)
