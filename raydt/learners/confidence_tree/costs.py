"""Counts of the confidence tree's messages and work: rows, windows of steps, and a round for what is split.

Every shard counts its features of all rows; the coordinator routes them. A window is one round, and rows behind a split
are counted again.
"""

from __future__ import annotations

from raydt.learners.confidence_tree.coordinator import LONGEST
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.costs import Cost, Costs, Shape, Sizes, log2, sparse_aware_rows

#: Bytes of a row that is counted, and of a check that is asked for.
_DELTA, _CHECK = 16, 32
#: Rows of a leaf that is split.
_SPLIT_ROWS = 400


class ConfidenceTreeCosts(Costs):
    """Counts with given options."""

    def __init__(self, options: ConfidenceTreeOptions) -> None:
        self._options = options

    def shape(self, rows: int) -> Shape:
        """A leaf for a thousand rows; each row is counted one and a half times while the tree grows."""
        splits = max(1, rows // 1000)
        return Shape(round(log2(splits)) + 1, 1.5, 2 * splits + 1)

    def first_model(self, sizes: Sizes, shape: Shape) -> Cost:
        """The rows and their bins, the rows back to be routed, then windows, most of which split a leaf."""
        n, shards, splits = sizes.rows, sizes.shards, shape.nodes // 2
        counted = round(n * shape.depth)
        windows, checks = -(-counted // LONGEST), counted // self._options.grace_period
        bins = 8 * sizes.columns * min(self._options.max_bins, n)
        sent = sparse_aware_rows(sizes, n, sizes.batches) + shards * 8 * n
        sent += shards * (_DELTA * counted + _CHECK * checks + 4 * _SPLIT_ROWS * splits)
        received = bins + 8 * n * (sizes.columns + shards) + round(4 * n * sizes.ones)
        received += checks * sizes.groups * 24 * (2 + max(2, sizes.classes))
        rounds = sizes.batches + 2 + windows + min(splits, windows)
        cells = (sizes.columns + sizes.ones) * counted
        return Cost(rounds, sent, received, cells, counted)

    def batch(self, sizes: Sizes, shape: Shape) -> Cost:
        """New rows, and a window."""
        b, shards = sizes.batch, sizes.shards
        checks = sizes.inserts // self._options.grace_period
        sent = sparse_aware_rows(sizes, sizes.inserts, 1) + shards * (_DELTA * b + _CHECK * checks)
        received = checks * sizes.groups * 24 * (2 + max(2, sizes.classes))
        return Cost(1 + -(-b // LONGEST), sent, received, (sizes.columns + sizes.ones) * b, b)
