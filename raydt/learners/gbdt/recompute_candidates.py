"""Bins and split candidates of the online GBDT, recomputed from the raw rows of the last training for its audit.

Nothing of the fast path is imported; candidates are drawn from the same counter. Source: Lin et al. (ICML 2025),
section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from raydt.arrays import rng
from raydt.arrays.sparse import SparseRows
from raydt.audits.recorded_bins import FeatureBins, Floats, Ints, derived_bins
from raydt.examples.features import Features

if TYPE_CHECKING:
    from raydt.learners.gbdt.options import GBDTOptions


def training_bins(
    X: Floats, sparse: SparseRows | None, features: Features, options: GBDTOptions
) -> tuple[list[FeatureBins], Ints]:
    """Bins of the dense features from the raw rows of a training, and indices of the sparse ones with both values."""
    dense = [
        derived_bins(X[:, j], categorical, options.max_bins, options.binning)
        for j, categorical in enumerate(features.categorical)
    ]
    indices, ones = np.unique([] if sparse is None else sparse.indices, return_counts=True)
    return dense, indices[ones < len(X)].astype(np.int64)


class RecomputedCandidates:
    """Candidates: which cuts may split, and how many a feature has at most, of dense features and ``sparse`` ones."""

    def __init__(self, bins: Sequence[FeatureBins], sparse: int, options: GBDTOptions) -> None:
        self.cuts = np.array([*(b.cuts for b in bins), *([1] * sparse)], np.int64)
        self.per_feature = math.ceil(options.candidate_fraction * options.max_bins)
        self.key = rng.stream_key(options.random_state, "gbdt candidates")
        self.total = int(np.minimum(self.cuts, self.per_feature).sum())

    def of(self, m: int) -> tuple[Ints, Ints]:
        """Features and cuts of the candidates of iteration m, ascending. O(cuts log cuts)."""
        feature = np.repeat(np.arange(len(self.cuts)), self.cuts)
        drawn = rng.bits(self.key, (m << 40) + np.arange(len(feature)))
        begin = (np.cumsum(self.cuts) - self.cuts)[feature]
        # The run of a cut is the last that does not begin after it: run i of r begins at cut i n // r of n.
        runs = np.minimum(self.cuts, self.per_feature)[feature]
        run = ((np.arange(len(feature)) - begin + 1) * runs - 1) // self.cuts[feature]
        order = np.lexsort((drawn, run, feature))
        opens = np.diff(run[order], prepend=-1) | np.diff(feature[order], prepend=-1)
        chosen = np.sort(order[opens != 0])
        return feature[chosen], chosen - begin[chosen]
