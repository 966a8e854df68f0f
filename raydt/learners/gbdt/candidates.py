"""Split candidates (paper, section 3.3), and which sums have to be stored for them.

Of each feature ceil(alpha B) cuts are drawn once per iteration, the same for all trees of it. The sum left of a cut
is a prefix of the sums between neighbouring cuts, its *segments*: a row adds to one segment of each feature. Of a
feature with c cuts only c segments are stored: that of the default bin is the node's total less the others, exactly,
since sums are integers. So a row touches only the features in which it is not in the default bin. Of a *whole* feature,
where rows are seldom in one bin, all c + 1 segments are stored: every row adds to one of them, and no total is needed.

Of a categorical feature the segments are the drawn categories. If the default one is drawn, its segment holds
what falls into no drawn category.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel
from raydt.arrays.rng import bits, stream_key
from raydt.examples.features import CATEGORICAL
from raydt.learners.binning import Bins

Ints = npt.NDArray[np.int32]


class Candidates(NamedTuple):
    """Candidates of d features in all iterations, as kernels take them.

    Attributes
    ----------
    first : ndarray of int64, shape (d + 1,)
        Where the candidates of each feature begin, among C of an iteration.
    categorical : ndarray of uint8, shape (d,)
    cuts : ndarray of int32, shape (iterations or 1, C)
        Cuts of each feature, ascending. One row stands for all iterations where every cut is drawn in each.
    default : ndarray of int32, shape (iterations or 1, d)
        Segment of the default bin; -1 for a categorical feature whose default is not drawn.
    segment : ndarray of uint32, shape (iterations or 1, bins)
        Where a row in this bin adds, among S stored segments; S for nowhere.
    offsets : ndarray of int64, shape (d + 1,)
        Where the bins of each feature begin.
    whole : ndarray of uint8, shape (d,)
        Whether all segments of a feature are stored.
    stored : ndarray of int64, shape (d + 1,)
        Where the stored segments of each feature begin, among S.
    """

    first: npt.NDArray[np.int64]
    categorical: npt.NDArray[np.uint8]
    cuts: Ints
    default: Ints
    segment: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    whole: npt.NDArray[np.uint8]
    stored: npt.NDArray[np.int64]


@inner_kernel
def row_of(candidates: Any, iteration: int) -> int:
    """Row of ``cuts``, ``default`` and ``segment`` that holds an iteration."""
    return iteration if len(candidates.cuts) > 1 else 0


def most_candidates(alpha: float, max_bins: int) -> int:
    """ceil(alpha B): candidates of a feature, at most."""
    return math.ceil(alpha * max_bins)


def tolerance(sigma: float, alpha: float, max_bins: int, candidates: int) -> int:
    """Rank down to which a split stays (paper, section 3.4), of ``candidates`` over all features of a node."""
    return max(1, math.ceil(sigma * min(most_candidates(alpha, max_bins), candidates)))


def draw(
    bins: Bins,
    columns: npt.NDArray[np.int64],
    all_cuts: npt.NDArray[np.int64],
    most: int,
    seed: int,
    iterations: int,
    whole: npt.NDArray[np.bool_] | None = None,
) -> Candidates:
    """Candidates of some features. O(iterations x cuts log(cuts)).

    Parameters
    ----------
    bins : Bins
        Of these features.
    columns : ndarray of int64
        Their numbers among all features.
    all_cuts : ndarray of int64
        Cuts of all features: a cut is drawn by its number among all, whoever owns its feature.
    most : int
        Candidates of a feature, at most.
    seed, iterations : int
    whole : ndarray of bool, optional
        Numeric features all of whose segments are stored; none by default.
    """
    cuts = bins.cuts()
    count = np.minimum(cuts, most)
    first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(bins.counts())]).astype(np.int64)
    number = np.cumsum(all_cuts)[columns] - all_cuts[columns]
    feature = np.repeat(np.arange(len(cuts)), cuts)
    cut = np.arange(len(feature)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
    counter = np.repeat(number, cuts) + cut
    sampled = np.repeat(count < cuts, cuts)
    rows = iterations if sampled.any() else 1
    key = stream_key(seed, "gbdt candidates")
    chosen = np.empty((rows, first[-1]), dtype=np.int32)
    for m in range(rows):
        drawn = ~sampled
        if sampled.any():
            order = np.lexsort((bits(key, (m << 40) + counter), feature))
            drawn[order[cut < np.repeat(count, cuts)]] = True
            drawn[order[cut >= np.repeat(count, cuts)]] = False
        chosen[m] = cut[drawn]
    categorical = bins.kinds == CATEGORICAL
    whole = np.zeros(len(bins), dtype=np.bool_) if whole is None else whole
    stored = np.concatenate([[0], np.cumsum(count + whole)]).astype(np.int64)
    default, segment = _segments(bins, first, stored, offsets, categorical, whole, chosen)
    flags = categorical.astype(np.uint8), whole.astype(np.uint8)
    return Candidates(first, flags[0], chosen, default, segment, offsets, flags[1], stored)


def _segments(
    bins: Bins,
    first: npt.NDArray[np.int64],
    stored: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    categorical: npt.NDArray[np.bool_],
    whole: npt.NDArray[np.bool_],
    chosen: Ints,
) -> tuple[Ints, npt.NDArray[np.uint32]]:
    """Segment of the default bin by feature, and where each bin adds."""
    S, counts = int(stored[-1]), np.diff(offsets)
    feature = np.repeat(np.arange(len(bins)), counts)
    code = np.arange(len(feature)) - offsets[feature]
    cut_feature = np.repeat(np.arange(len(bins)), np.diff(first))
    default = np.empty((len(chosen), len(bins)), dtype=np.int32)
    segment = np.empty((len(chosen), len(feature)), dtype=np.uint32)
    wide = int(counts.max(initial=1))
    bin_key, default_key = feature * wide + code, np.arange(len(bins)) * wide + bins.default
    for m, cuts in enumerate(chosen):
        cut_key = cut_feature * wide + cuts
        # Cuts below a code are the number of its segment; of a drawn category, its own.
        below = np.searchsorted(cut_key, bin_key) - first[feature]
        own = np.searchsorted(cut_key, default_key) - first[:-1]
        known = _among(cut_key, bin_key)
        default[m] = np.where(categorical & ~_among(cut_key, default_key), -1, own)
        own_segment, d = stored[feature] + below, default[m][feature]
        numeric = np.where(below == d, S, own_segment - (below > d))
        rest = np.where(d < 0, S, stored[feature] + d)
        segment[m] = np.where(
            categorical[feature], np.where(known & (code != bins.default[feature]), own_segment, rest), numeric
        )
        segment[m][code == bins.default[feature]] = S
        segment[m] = np.where(whole[feature], own_segment, segment[m])
    return default, segment


def _among(ascending: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which keys occur."""
    if not len(ascending):
        return np.zeros(len(keys), dtype=np.bool_)
    nearest = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    found: npt.NDArray[np.bool_] = ascending[nearest] == keys
    return found
