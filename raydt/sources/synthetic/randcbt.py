"""Generated rows of random binary trees: RandCBT.

Source: R. De Rosa, N. Cesa-Bianchi, "Splitting with confidence in decision trees with application to stream mining",
IJCNN 2015, Algorithm 2 and section VI-A.

Invariant: that of ``raydt.sources.synthetic.numeric``. What a row needs beside its own draws, the trees and which
leaf each row falls into, is drawn once, from the options alone.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raydt.arrays.rng import permutation, stream_key, uniform
from raydt.arrays.types import Bools, Floats, Int32s, Ints
from raydt.sources.synthetic.numeric import NumericSource

if TYPE_CHECKING:
    from raydt.sources.options import RandCbt

#: Draws of a split: the share of leaves on the left, the attribute, the threshold.
_DRAWS = 3


class Leaves(NamedTuple):
    """Leaves of a random tree, from left to right."""

    low: Floats  #: ``low``, ``high``: Shape (n, d): bounds of each one's region: low <= x < high.
    high: Floats
    left: Bools  #: Shape (n,): whether it is the left child of its parent.


def random_tree(key: np.uint64, first: int, leaves: int, d: int) -> Leaves:
    """Draw RandCBT (Algorithm 2) with ``leaves`` (at least 2) on the cube [0, 1)^d, without recursion. O(leaves * d).

    Draws 3 * (``leaves`` - 1) numbers from number ``first`` on, three for each split, parents before their children and
    left before right. A split sends x < threshold to the left. ``max(1, floor(leaves * x))`` as printed gives the left
    side a leaf; the right one has at least one since x < 1.
    """
    draws = uniform(key, first + np.arange(_DRAWS * (leaves - 1))).reshape(-1, _DRAWS)
    low, high, left = np.zeros((leaves, d)), np.ones((leaves, d)), np.zeros(leaves, dtype=bool)
    waiting, split = [(0, leaves)], 0
    while waiting:
        begin, stop = waiting.pop()
        share, attribute, place = draws[split]
        split += 1
        middle = begin + min(max(1, int((stop - begin) * share)), stop - begin - 1)
        j = int(attribute * d)
        threshold = low[begin, j] + (high[begin, j] - low[begin, j]) * place
        high[begin:middle, j] = threshold
        low[middle:stop, j] = threshold
        left[begin:middle], left[middle:stop] = True, False  # the last split on the way to a leaf has the last word
        waiting += [(a, b) for a, b in ((middle, stop), (begin, middle)) if b - a > 1]
    return Leaves(low, high, left)


class RandCbtSource(NumericSource):
    """Rows uniform in the regions of a random tree's leaves, as many in each; label 1 in left leaves, 0 in right ones.

    ``noise`` flips labels, so that P(Y = 1) is 1 - noise in a left leaf and noise in a right one. The stream is cut
    into ``drift`` + 1 equal parts, each of a tree of its own and shuffled by itself; of leaves that cannot have the
    same number of rows, the first have one more.
    """

    purpose = "randcbt"

    def __init__(self, options: RandCbt) -> None:
        d = options.n_features
        super().__init__(options, tuple(f"x{j}" for j in range(d)))
        self._leaves, self._parts = options.leaves, options.drift + 1
        self._n, self._seed = options.n, options.seed
        key, draws = stream_key(options.seed, "randcbt trees"), _DRAWS * (options.leaves - 1)
        #: Of each part.
        self.trees = tuple(random_tree(key, part * draws, options.leaves, d) for part in range(self._parts))
        low, high, left = (np.concatenate(values) for values in zip(*self.trees, strict=True))
        self._low, self._width, self._left = low, high - low, left
        # A product may round up to the bound itself.
        self._last = np.maximum(np.nextafter(high, -np.inf), low)

    @cached_property
    def _leaf(self) -> Int32s:
        """Number of each row's leaf over all trees."""
        edges = -(-np.arange(self._parts + 1) * self._n // self._parts)  # where row * parts // n goes up
        leaf = np.empty(self._n, dtype=np.int32)
        for part, (begin, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            order = permutation(stream_key(self._seed, f"randcbt rows {part}"), stop - begin)
            leaf[begin:stop] = part * self._leaves + order % self._leaves
        return leaf

    def _label(self, X: Floats, row: Ints) -> Bools:
        leaf = self._leaf[row]
        X *= self._width[leaf]
        X += self._low[leaf]
        np.minimum(X, self._last[leaf], out=X)
        return self._left[leaf]
