"""Counts of FuDyADT's messages and work: BUILD with the shards, one round for each open level (``levels``).

Every shard gets slots, labels and sides of all rows; features and candidates are divided among them.
"""

from __future__ import annotations

from costs.counts import Cost, Costs, Shape, Sizes, log2, values_of
from raydt.learners.fudyadt.options import FuDyADTOptions

#: Levels that it takes as long to search as to sort the columns once.
_SORTING = 4


class FuDyADTCosts(Costs):
    """Counts with given options."""

    def __init__(self, options: FuDyADTOptions) -> None:
        self._options = options

    def shape(self, rows: int) -> Shape:
        """A tree of noisy labels: a node for five rows, twice as deep as a balanced one, as far as options allow."""
        levels = min(self._options.depth_limit, round(2 * log2(rows)))
        return Shape(levels, min(float(levels), log2(rows)), min(rows // 5, 2 ** (levels + 1)) | 1)

    def first_model(self, sizes: Sizes, shape: Shape) -> Cost:
        """The rows, then ``begin``, a ``level`` for each but the first, and ``end``."""
        n, shards, splits = sizes.rows, sizes.shards, shape.nodes // 2
        statistics = 8 * sizes.classes if sizes.classes else 8 * 3
        sides = 8 * -(-n // 64)
        sent = shards * 4 * n + values_of(sizes, n)
        sent += shards * (8 * n + statistics)
        sent += shards * ((shape.levels - 1) * sides + splits * (9 + statistics))
        received = shards * shape.levels * sides + splits * sizes.groups * (24 + statistics)
        cells = n * sizes.columns * (shape.depth + _SORTING)
        return Cost(sizes.batches + shape.levels + 1, sent, received, cells, n * shape.depth)

    def batch(self, sizes: Sizes, shape: Shape) -> Cost:
        """New rows only; the coordinator counts."""
        new = sizes.inserts
        sent = sizes.shards * 4 * new + values_of(sizes, new)
        return Cost(1, sent, 0, new * sizes.columns, sizes.batch * shape.depth)
