"""The rules of the sparse tree as numbers, and the tests that coordinator and shards share.

Symbols: n rows of a node, c1 of class 1, or their masses (``raydt.trees.masses``); I its impurity, the Gini index
2p(1 - p) or the entropy in nats; I(j) the score of a split (``raydt.finders.scores``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.examples.weights import UNIT
from raydt.finders.scores import score_of
from raydt.learners.sparse_tree.shard_build import RIGHT, RIGHT_ONES


class WatchRules(NamedTuple):
    """``entropy``: the criterion; ``slack``: beta; ``alpha``; k + 1, a count, and h."""

    entropy: bool
    slack: float
    alpha: float
    min_samples_split: int
    max_depth: int

    def weighed(self) -> WatchRules:
        """Return the rules where counts are masses."""
        return self._replace(min_samples_split=self.min_samples_split * UNIT)


@inner_kernel
def impurity(rules: Any, table: Any, n: int, c1: int) -> float:
    """I of a node of n > 0 rows."""
    value: float = score_of(rules.entropy, table, n, c1, 0, 0)
    return value


@inner_kernel
def beaten(rules: Any, score: float, candidate: float) -> bool:
    """Whether a split, or a leaf with its impurity for ``score``, lacks more than beta to a candidate of a finder.

    A candidate is at most 1 + finder_alpha times the least score, so what is not beaten is within that, plus beta.
    """
    return bool(score > candidate + rules.slack)


@inner_kernel
def must_be_leaf(rules: Any, n: int, c1: int) -> bool:
    """|S| <= k or I = 0."""
    return bool(n < rules.min_samples_split or c1 == 0 or c1 == n)


@inner_kernel
def may_split(rules: Any, table: Any, n: int, c1: int, depth: int) -> bool:
    """Whether a leaf that is beaten must be split: it is large and impure enough, and not at the largest depth."""
    if depth >= rules.max_depth or must_be_leaf(rules, n, c1):
        return False
    return bool(impurity(rules, table, n, c1) >= rules.alpha)


@inner_kernel
def _tells_nothing(n: int, c1: int, n1: int, c11: int) -> bool:
    """Whether the classes have the same shares on both sides: c11 n = n1 c1.

    Products of masses have up to 96 bits. With equal lowest 64 bits they are equal, or differ by 2**64 at least.
    """
    return bool(c11 * n == n1 * c1 and abs(np.float64(c11) * np.float64(n) - np.float64(n1) * np.float64(c1)) < 2.0**62)


@kernel
def keep_leaves(rules: Any, table: Any, totals: Any, depth: Any, found: Any, chosen: Any) -> None:
    """Line 3 of BUILD: |S| <= k, or I <= alpha / 2, or depth = h, or no split tells the classes apart: chosen = -1."""
    for i in range(len(chosen)):
        n, c1 = totals[i, 0], totals[i, 1]
        if chosen[i] < 0:
            continue
        n1, c11 = found[i, chosen[i], RIGHT], found[i, chosen[i], RIGHT_ONES]
        large = depth[i] < rules.max_depth and not must_be_leaf(rules, n, c1)
        if not large or _tells_nothing(n, c1, n1, c11) or impurity(rules, table, n, c1) <= rules.alpha / 2:
            chosen[i] = -1
