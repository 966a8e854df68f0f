"""Counts of the sparse tree's messages and work: BUILD with one round for each level, then windows of updates.

Every shard gets slots and labels of the rows at each level, and keeps a structure of its features in every node.
"""

from __future__ import annotations

from costs.counts import Cost, Costs, Shape, Sizes, log2, sparse_aware_rows
from raydt.learners.sparse_tree.coordinator import LONGEST
from raydt.learners.sparse_tree.options import SparseTreeOptions


class SparseTreeCosts(Costs):
    """Counts with given options."""

    def __init__(self, options: SparseTreeOptions) -> None:
        self._options = options

    def shape(self, rows: int) -> Shape:
        """A tree that splits off one word after the other: nearly as deep as its options allow."""
        levels = min(self._options.depth_limit, round(10 * log2(rows))) + 1
        return Shape(levels, max(1.0, levels / 2), rows // 3 | 1)

    def first_model(self, sizes: Sizes, shape: Shape) -> Cost:
        """The rows, then a ``build`` for each level, with all nodes and rows of the level."""
        n, shards = sizes.rows, sizes.shards
        at_levels = round(n * shape.depth)
        sent = sparse_aware_rows(sizes, n, sizes.batches)
        sent += shards * (5 * at_levels + 20 * shape.nodes + 24 * (shape.nodes // 2))
        received = 32 * sizes.groups * shape.nodes + shards * at_levels // 8
        cells = (sizes.columns + sizes.ones) * at_levels
        return Cost(sizes.batches + shape.levels, sent, received, cells, at_levels)

    def batch(self, sizes: Sizes, shape: Shape) -> Cost:
        """New rows, and windows that no split ends."""
        b, shards, windows = sizes.batch, sizes.shards, -(-sizes.batch // LONGEST)
        sent = sparse_aware_rows(sizes, sizes.inserts, 1) + shards * 14 * b
        return Cost(1 + windows, sent, 16 * shards * windows, (sizes.columns + sizes.ones) * b * shape.depth, b)
