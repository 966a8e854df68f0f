"""Split candidates (paper, section 3.3), and which sums have to be stored for them.

Each iteration draws ceil(alpha B) cuts of each feature, the same for all its trees. It divides the cuts of a feature
into as many runs of neighbours, of nearly equal length, and draws one cut of each run. So no wide range of values is
without a candidate.

The sum left of a cut is a prefix of the sums between neighbouring cuts, its *segments*: a row adds to one segment of
each feature. Of a feature with c cuts only c segments are stored: that of the default bin is the node's total less the
others, exactly, since sums are integers. So a row touches only the features in which it is not in the default bin. Of a
*whole* feature, where rows are seldom in one bin, all c + 1 segments are stored: every row adds to one of them, and no
total is needed.

Of a categorical feature the segments are the drawn categories. If the default one is drawn, its segment holds
what falls into no drawn category.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.rng import bits_at, stream_key
from raydt.arrays.types import Bools, Int32s, Ints
from raydt.batches.binning import Bins
from raydt.examples.features import CATEGORICAL


class Candidates(NamedTuple):
    """Candidates of d features in all iterations, as kernels take them."""

    #: Shape (d + 1,): where the candidates of each feature begin, among C of an iteration.
    first: Ints
    categorical: npt.NDArray[np.uint8]  #: Shape (d,).
    #: Shape (iterations or 1, C): cuts of each feature, ascending. One row stands for all iterations where every cut is
    #: drawn in each.
    cuts: Int32s
    #: Shape (iterations or 1, d): segment of the default bin; -1 for a categorical feature whose default is not drawn.
    default: Int32s
    #: Shape (iterations or 1, bins): where a row in this bin adds, among S stored segments; S for nowhere.
    segment: npt.NDArray[np.uint32]
    offsets: Ints  #: Shape (d + 1,): where the bins of each feature begin.
    whole: npt.NDArray[np.uint8]  #: Shape (d,): whether all segments of a feature are stored.
    stored: Ints  #: Shape (d + 1,): where the stored segments of each feature begin, among S.


@inner_kernel
def row_of(candidates: Any, iteration: int) -> int:
    """Return the row of ``cuts``, ``default`` and ``segment`` that holds an iteration."""
    return iteration if len(candidates.cuts) > 1 else 0


def most_candidates(alpha: float, max_bins: int) -> int:
    """Return ceil(alpha B): candidates of a feature, at most."""
    return math.ceil(alpha * max_bins)


def tolerance(sigma: float, alpha: float, max_bins: int, candidates: int) -> int:
    """Return the rank down to which a split stays (paper, section 3.4), of ``candidates`` of a node in all."""
    return max(1, math.ceil(sigma * min(most_candidates(alpha, max_bins), candidates)))


def draw(
    bins: Bins, columns: Ints, all_cuts: Ints, most: int, seed: int, iterations: int, whole: Bools | None = None
) -> Candidates:
    """Draw the candidates of some features, ``columns`` among all, at most ``most`` of each. O(iterations x cuts).

    ``bins`` are those of these features, ``all_cuts`` the cuts of all: a cut is drawn by its number among all, whoever
    owns its feature. Of the numeric features ``whole`` all segments are stored; of none by default.
    """
    cuts = bins.cuts()
    count = np.minimum(cuts, most)
    first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(bins.counts())]).astype(np.int64)
    number = np.cumsum(all_cuts)[columns] - all_cuts[columns]
    sampled = count < cuts
    rows = iterations if sampled.any() else 1
    every = np.arange(first[-1]) - np.repeat(first[:-1], count)
    chosen = np.tile(every.astype(np.int32), (rows, 1))
    _choose(stream_key(seed, "gbdt candidates"), cuts, number, first, np.flatnonzero(sampled), chosen)
    categorical = bins.kinds == CATEGORICAL
    whole = np.zeros(len(bins), dtype=np.bool_) if whole is None else whole
    stored = np.concatenate([[0], np.cumsum(count + whole)]).astype(np.int64)
    default = np.empty((rows, len(bins)), dtype=np.int32)
    segment = np.empty((rows, offsets[-1]), dtype=np.uint32)
    found = Candidates(
        *(first, categorical.astype(np.uint8), chosen, default, segment),
        *(offsets, whole.astype(np.uint8), stored),
    )
    _fill_segments(found, bins.default)
    return found


@kernel
def _choose(key: Any, cuts: Any, number: Any, first: Any, sampled: Any, chosen: Any) -> None:
    """Draw the candidates of some features in all iterations. O(iterations x cuts)."""
    for m in range(len(chosen)):
        for j in sampled:
            begin, count = first[j], first[j + 1] - first[j]
            for i in range(count):
                cut, end = i * cuts[j] // count, (i + 1) * cuts[j] // count
                drawn, least = cut, bits_at(key, (m << 40) + number[j] + cut)
                for other in range(cut + 1, end):
                    mixed = bits_at(key, (m << 40) + number[j] + other)
                    if mixed < least:  # the random bits of two cuts are never equal
                        drawn, least = other, mixed
                chosen[m, begin + i] = drawn


@kernel
def _fill_segments(candidates: Any, default_bin: Any) -> None:
    """Find the segment of the default bin of each feature, and where each bin adds. O(iterations x (bins + C))."""
    first, stored, offsets = candidates.first, candidates.stored, candidates.offsets
    nowhere = stored[-1]
    for m in range(len(candidates.cuts)):
        cuts, segment = candidates.cuts[m], candidates.segment[m]
        for j in range(len(candidates.categorical)):
            categorical, end, base = candidates.categorical[j], first[j + 1], stored[j]
            i = first[j]
            while i < end and cuts[i] < default_bin[j]:
                i += 1
            drawn = i < end and cuts[i] == default_bin[j]
            d = -1 if categorical and not drawn else i - first[j]
            candidates.default[m, j] = d
            i = first[j]
            for code in range(offsets[j + 1] - offsets[j]):
                while i < end and cuts[i] < code:
                    i += 1
                # Cuts below a code are the number of its segment; of a drawn category, its own.
                below = i - first[j]
                if candidates.whole[j]:
                    s = base + below
                elif code == default_bin[j]:
                    s = nowhere
                elif categorical:
                    drawn = i < end and cuts[i] == code
                    s = base + below if drawn else nowhere if d < 0 else base + d
                else:
                    s = nowhere if below == d else base + below - (below > d)
                segment[offsets[j] + code] = s
