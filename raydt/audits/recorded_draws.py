"""What the nodes of a recorded tree draw from their paths, for audits: NumPy, and nothing of the fast path.

The definitions are in ``docs/explanation/guarantees.md``, the numbers those of ``raydt.arrays.rng``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt

from raydt.arrays.rng import below, bits
from raydt.arrays.types import Ints

Words = npt.NDArray[np.uint64]

#: Numbers of a node's sequence: keys of the left and the right child, of the order of features, of candidates.
LEFT, RIGHT, ORDER, CUTS = range(4)


def numbers_at(keys: Words, counters: Ints | int) -> Words:
    """Return a number of the sequence of each key: broadcast, as NumPy does."""
    keys, places = np.broadcast_arrays(keys, counters)
    return bits(cast(np.uint64, keys), places)  # which adds keys one by one as it adds one key


def features_in_order(keys: Words, d: int) -> Iterator[Ints]:
    """The features in the order of each node with one of these keys, place after place: Fisher and Yates."""
    rest, node, own = np.tile(np.arange(d), (len(keys), 1)), np.arange(len(keys)), numbers_at(keys, ORDER)
    for place in range(d):
        other = place + below(cast(np.uint64, own), np.full(len(keys), place), d - place)
        rest[node, place], rest[node, other] = rest[node, other], rest[node, place]
        yield rest[:, place]
