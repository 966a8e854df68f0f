"""Counts of the confidence tree's messages and work: rows, windows of steps, and a round for what is split.

Every shard counts its features of all rows; the coordinator routes them. A window is one round, and rows behind a split
are counted again.
"""

from __future__ import annotations

from costs.counts import Cost, Costs, Shape, Sizes, sparse_aware_rows
from raydt.learners.confidence_tree.coordinator import LONGEST
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions

#: Bytes of a row that is counted, and of a check that is asked for.
_DELTA, _CHECK = 16, 16
#: Bytes that name a row to be scored by naive Bayes, for which every shard answers with a whole number for each class.
_SCORED = 8
#: Rows of a leaf that is split.
_SPLIT_ROWS = 400


class ConfidenceTreeCosts(Costs):
    """Counts with given options."""

    def __init__(self, options: ConfidenceTreeOptions) -> None:
        self._options = options

    def shape(self, rows: int) -> Shape:
        """A leaf for a thousand rows; each row is counted one and a half times, and most windows split a leaf."""
        splits = max(1, rows // 1000)
        windows = -(-3 * rows // (2 * LONGEST))
        return Shape(windows + min(splits, windows), 1.5, 2 * splits + 1)

    def first_model(self, sizes: Sizes, shape: Shape) -> Cost:
        """The rows and their bins, the rows back to be routed, then a round for a window, and one for its splits."""
        n, shards, splits = sizes.rows, sizes.shards, shape.nodes // 2
        counted = round(n * shape.depth)
        checks = counted // self._options.grace_period
        bins = 8 * sizes.columns * min(self._options.max_bins, n)
        sent = sparse_aware_rows(sizes, n, sizes.batches) + shards * 8 * n
        sent += shards * (_DELTA * counted + _CHECK * checks + 4 * _SPLIT_ROWS * splits)
        received = bins + 8 * n * (sizes.columns + shards) + round(4 * n * sizes.ones)
        received += checks * sizes.groups * 16 * (2 + max(2, sizes.classes))
        scored = counted if self._options.leaf_prediction != "majority" else 0
        sent += shards * _SCORED * scored
        received += shards * 8 * max(2, sizes.classes) * scored
        cells = (sizes.columns + sizes.ones) * counted
        return Cost(sizes.batches + 2 + shape.levels, sent, received, cells, counted)

    def batch(self, sizes: Sizes, shape: Shape) -> Cost:
        """New rows, and windows without a check; of deletions only those are counted whose leaf has counted them.

        A window ends where trials are compared; what these exchange is not counted.
        """
        b, new = sizes.batch, sizes.inserts
        scored = new if self._options.leaf_prediction != "majority" else 0
        sent = sparse_aware_rows(sizes, new, 1) + sizes.shards * (_DELTA * new + _SCORED * scored)
        received = sizes.shards * 8 * max(2, sizes.classes) * scored
        period = self._options.drift_period
        windows = max(-(-b // LONGEST), new // period if period else 0)
        return Cost(1 + windows, sent, received, (sizes.columns + sizes.ones) * b, b)
