"""The split of the last search as a model: which side a row is on, and what that side says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import kernel
from raydt.arrays.sparse import SparseRows, is_one
from raydt.arrays.types import AnyArray, Arrays, Bools, Floats, Int32s, Ints
from raydt.evaluation.ranking import LEVELS, Levels, levels_of
from raydt.examples.features import Features
from raydt.finders.finder import NO_FEATURE
from raydt.finders.scores import best_candidates, scores_of
from raydt.parallel.threads import ranges, run
from raydt.trees.state_schema import unit_of
from raydt.trees.tree_sum import StoredTrees, TreeSum, constant, one_category_left

#: Rows that are worth the start of another thread.
_FEW_ROWS = 1 << 14


#: Fields of splits that are counts.
COUNTS = ("n", "c1", "n1", "c11")


class Splits(NamedTuple):
    """Results of searches, one after the other."""

    feature: Ints  #: Shape (searches,): -1 where no feature was seen.
    n: Ints  #: ``n``, ``c1``: Shape (searches,): rows then (or their mass), and those of class 1.
    c1: Ints
    n1: Ints  #: ``n1``, ``c11``: Shape (searches,): of them, those in which the feature is 1; 0 without one.
    c11: Ints

    @classmethod
    def none(cls) -> Splits:
        """Return the split before any search: no feature, no rows."""
        zero = np.zeros(1, dtype=np.int64)
        return cls(zero - 1, zero, zero, zero, zero)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, AnyArray]) -> Splits:
        """The one split of a model or state."""
        return cls(*arrays["split"].reshape(-1, 1))

    def arrays(self) -> Arrays:
        """The first split, as an entry of a model or state."""
        return {"split": np.concatenate(self)}

    def at(self, searches: Any) -> Splits:
        """Some of the searches, by a slice or an array of places."""
        return Splits(*(column[searches] for column in self))

    def levels(self, side: Bools) -> Levels:
        """The share of class 1 on a side of each split, as a level; of an empty side, or of none, that of both."""
        other = ~side | (self.feature == NO_FEATURE)
        size, ones = np.where(other, self.n - self.n1, self.n1), np.where(other, self.c1 - self.c11, self.c11)
        whole = (size == 0) | (self.feature == NO_FEATURE)
        return levels_of(np.where(whole, self.c1, ones), np.where(whole, self.n, size), of_nothing=LEVELS // 2)

    def labels(self) -> Int32s:
        """The class that is predicted where the feature is 0, and where it is 1, shape (searches, 2).

        It is the majority of the side; of a tie, or of an empty side, the majority of both; of a tie there class 0.
        """
        both = (2 * self.c1 > self.n).astype(np.int32)
        out = np.empty((len(self.n), 2), dtype=np.int32)
        for side, (size, ones) in enumerate(((self.n - self.n1, self.c1 - self.c11), (self.n1, self.c11))):
            out[:, side] = np.where(2 * ones == size, both, 2 * ones > size)
        out[self.feature == NO_FEATURE, 1] = both[self.feature == NO_FEATURE]
        return out


@kernel
def _holds(indptr: Any, indices: Any, rows: Any, features: Any, out: Any) -> None:
    """Whether a feature is 1 in a row, for pairs of both; the ones of a row ascend."""
    for i in range(len(rows)):
        out[i] = is_one(indices, indptr[rows[i]], indptr[rows[i] + 1], features[i])


def merged_splits(entropy: bool, table: Floats, n: Ints, c1: Ints, candidates: Int32s) -> Splits:
    """The best of all groups' candidates, shape (groups, searches, 3), at each search.

    ``table`` has k log k up to the largest of ``n``, for entropy; it is empty of masses.
    """
    found, of_search = np.empty(len(n), dtype=np.int64), np.ascontiguousarray(candidates.swapaxes(0, 1))
    best_candidates(entropy, table, np.stack([n, c1], axis=1), of_search, found)
    best = of_search[np.arange(len(n)), found].astype(np.int64)
    best[found < 0] = NO_FEATURE, 0, 0
    return Splits(best[:, 0], n, c1, best[:, 1], best[:, 2])


def score_of_split(entropy: bool, split: Splits, unit: int) -> float:
    """Score of the first split; without a feature the impurity of all rows, 0 without rows."""
    return float(scores_of_splits(entropy, split.at(slice(0, 1)), unit)[0])


def scores_of_splits(entropy: bool, splits: Splits, unit: int) -> Floats:
    """Scores of all splits, of whose counts a row is ``unit`` units. O(splits)."""
    scores = np.empty(len(splits.n))
    scores_of(entropy, unit, splits.n, splits.c1, splits.n1, splits.c11, scores)
    return scores


def sides(sparse: SparseRows, rows: Ints, features: Ints) -> Bools:
    """Whether ``features[i]`` is 1 in row ``rows[i]``; never for -1."""
    out = np.empty(len(rows), dtype=np.bool_)
    indptr, indices = np.ascontiguousarray(sparse.indptr), np.ascontiguousarray(sparse.indices)
    _holds(indptr, indices, np.ascontiguousarray(rows, dtype=np.int64), np.ascontiguousarray(features), out)
    return out


class BestSplitPredictor:
    """Predictions of one split, by the arrays of a model or a state."""

    def __init__(self, features: Features, model: Mapping[str, AnyArray]) -> None:
        self.split, self._width, self._unit = Splits.of_arrays(model), features.sparse, unit_of(model)

    def _sides(self, sparse: SparseRows | None) -> Ints:
        assert sparse is not None
        ones, out = sparse, np.empty(len(sparse), dtype=np.int64)

        def find(part: slice) -> None:
            rows = np.arange(part.start, part.stop)
            out[part] = sides(ones, rows, np.full(len(rows), self.split.feature[0]))

        run([partial(find, part) for part in ranges(len(out), _FEW_ROWS)])
        return out

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> Int32s:
        """Class codes, shape (n,): the majority of each row's side."""
        codes: Int32s = self.split.labels()[0, self._sides(sparse)]
        return codes

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Shares of the classes on each row's side, shape (n, n_classes).

        Those of both sides where a side is empty, and uniform before there are rows.
        """
        proba: Floats = self._shares(n_classes)[self._sides(sparse)]
        return proba

    def tree_sum(self, n_classes: int) -> TreeSum:
        """The split as a tree, whose leaves predict shares.

        Where the two shares of a side are equal, :meth:`predict` takes the majority of both sides.
        """
        feature, n, _, n1, _ = (int(column[0]) for column in self.split)
        shares = self._shares(n_classes)
        if feature == NO_FEATURE:
            return constant(0, self._width, shares[0], n, np.arange(n_classes))
        stored = StoredTrees(
            np.array([0, 3]), np.array([feature, -1, -1]), np.zeros(3), np.array([1, -1, -1]), np.array([2, -1, -1])
        )
        trees = one_category_left(stored, np.empty(0, dtype=np.bool_), self._width, shares[[0, 0, 1]])
        cover = np.array([n, n - n1, n1])
        return replace(trees, cover=cover, codes=np.arange(n_classes), unit=self._unit)

    def _shares(self, n_classes: int) -> Floats:
        """Of the side without the feature, and of that with it, shape (2, n_classes)."""
        _, n, c1, n1, c11 = (int(column[0]) for column in self.split)
        counts = np.array([[n - n1 - c1 + c11, c1 - c11], [n1 - c11, c11]], dtype=np.float64)
        counts[counts.sum(axis=1) == 0] = n - c1, c1
        if self.split.feature[0] == NO_FEATURE:
            counts[:] = n - c1, c1
        shares = np.zeros((2, max(2, n_classes)))
        shares[:, :2] = counts
        shares = shares[:, :n_classes]
        shares[shares.sum(axis=1) == 0] = 1.0
        shares /= shares.sum(axis=1, keepdims=True)
        return shares
