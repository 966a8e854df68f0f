"""Counts of the exact forest's messages and work: one message for each batch, whatever the trees do.

Shards own whole trees. In the warm-up a shard gets the rows of its trees in full, and its columns of the others; after
it every row in full, since all trees vote. It answers with steps and votes of its trees. The trees come back only where
a digest, a model or a checkpoint is wanted, which is not counted here.
"""

from __future__ import annotations

import math

from costs.counts import Cost, Costs, Shape, Sizes, log2
from raydt.learners.forest.options import ForestOptions

#: Bytes of a step, of a new row beside its values, and of what was done in a step.
_STEP, _ROW, _DONE = 16, 20, 40


class ForestCosts(Costs):
    """Counts with given options."""

    def __init__(self, options: ForestOptions) -> None:
        self._options = options
        self._step = _STEP

    def shape(self, rows: int) -> Shape:
        """Trees of noisy labels: a node for four of a tree's rows at the smallest size that is split."""
        o = self._options
        of_tree = max(1, rows * o.copies // o.n_estimators)
        nodes = max(1, min(of_tree * 8 // max(4, 2 * o.min_samples_split), 2 ** (min(o.max_depth, 40) + 1)))
        return Shape(0, min(float(o.max_depth), log2(nodes)), nodes * o.n_estimators)

    def first_model(self, sizes: Sizes, shape: Shape) -> Cost:
        """The rows, each in full where one of its trees is."""
        n, shards, copies, trees = sizes.rows, sizes.shards, self._options.copies, self._options.n_estimators
        # A shard has trees / shards of the trees, and none of a row's with the chance that all k are others.
        whole = 1 - math.prod(max(0.0, 1 - trees / shards / (trees - i)) for i in range(copies))
        values = 8 * n * sizes.columns * (shards * whole + (1 - whole))
        sent = shards * (self._step + _ROW + (shards > 1)) * n + round(values)
        received = shards * _DONE * n
        tried = self._options.features_tried(sizes.columns) * self._options.thresholds
        return Cost(sizes.batches, sent, received, n * copies * tried * shape.depth, n)

    def batch(self, sizes: Sizes, shape: Shape) -> Cost:
        """One message with the steps and all new rows; votes."""
        b, new, shards, copies = sizes.batch, sizes.inserts, sizes.shards, self._options.copies
        width = max(2, sizes.classes)
        sent = shards * (self._step * b + (_ROW + 8 * sizes.columns + (shards > 1)) * new)
        received = shards * (_DONE * b + 8 * width * new)
        tried = self._options.features_tried(sizes.columns) * self._options.thresholds
        return Cost(1, sent, received, shape.depth * (b * copies * tried + new * self._options.n_estimators), b)
