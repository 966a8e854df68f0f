"""Blocks of rows whose features the shards have read themselves: what a numbered batch says of them.

A block is a range of consecutive rows of the source. Whoever numbers the updates knows the codes of its categories; a
shard has numbered them by their first appearance among the rows of the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a source from ``start`` up to before ``stop``."""

    start: int
    stop: int
    #: Of each categorical feature, by name: the code of each of its categories, in the order of their first appearance.
    #: Of a column of tokens: the code of each of these.
    codes: Mapping[str, Ints]


class FeatureReader(Protocol):
    """A shard's way to the features it reads itself."""

    def take(self, rows: Ints, blocks: Sequence[Block]) -> tuple[Floats, SparseRows]:
        """Return the shard's features of rows in checked blocks, which are dropped behind the last row."""
