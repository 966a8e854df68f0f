"""Counts of the sparse best split's messages and work: rows, and one round for the steps of a batch.

Every shard gets slots and labels of all steps, and answers each search with a candidate for each of its groups.
"""

from __future__ import annotations

from costs.counts import Cost, Costs, Shape, Sizes, sparse_aware_rows
from raydt.learners.best_split.options import BestSplitOptions

#: Bytes of a step, and of a group's answer to a search.
_STEP, _CANDIDATE = 7, 12


class BestSplitCosts(Costs):
    """Counts with given options."""

    def __init__(self, options: BestSplitOptions) -> None:
        self._options = options

    def shape(self, rows: int) -> Shape:
        """A root and two leaves."""
        return Shape(1, 1.0, 3)

    def first_model(self, sizes: Sizes, shape: Shape) -> Cost:
        """The rows, and one search; ``finder: auto`` asks first how sparse they are."""
        n, shards, measures = sizes.rows, sizes.shards, int(self._options.finder == "auto")
        sent = sparse_aware_rows(sizes, n, sizes.batches) + shards * (_STEP + 4 * measures) * n
        received = _CANDIDATE * sizes.groups + 16 * shards * (1 + measures)
        return Cost(sizes.batches + 1 + measures, sent, received, sizes.ones * n, n)

    def batch(self, sizes: Sizes, shape: Shape) -> Cost:
        """New rows, and the steps, with searches."""
        b, shards = sizes.batch, sizes.shards
        sent = sparse_aware_rows(sizes, sizes.inserts, 1) + shards * _STEP * b
        received = _CANDIDATE * sizes.groups * (b // self._options.query_every) + 16 * shards
        return Cost(2, sent, received, sizes.ones * b, b)
