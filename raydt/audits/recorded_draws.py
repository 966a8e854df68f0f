"""What the nodes of a recorded tree draw from their paths, for audits: NumPy, and nothing of the fast path.

The definitions are in ``docs/explanation/guarantees.md``, the numbers those of ``raydt.arrays.rng``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from raydt.arrays.rng import below, bits

#: Numbers of a node's sequence: keys of the left and the right child, of the order of features, of candidates.
LEFT, RIGHT, ORDER, CUTS = range(4)


def number_at(key: np.uint64, counter: int) -> np.uint64:
    """One number of the sequence of a key."""
    number: np.uint64 = bits(key, np.array([counter], dtype=np.int64))[0]
    return number


def order_of_features(key: np.uint64, d: int) -> Iterator[int]:
    """The features in the order of a node with this key: Fisher and Yates."""
    rest: npt.NDArray[np.int64] = np.arange(d)
    places = np.arange(d)
    others = places + below(number_at(key, ORDER), places, d - places)
    for place, other in enumerate(others.tolist()):
        rest[[place, other]] = rest[[other, place]]
        yield int(rest[place])
