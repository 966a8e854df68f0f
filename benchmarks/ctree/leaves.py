"""Performance against number of leaves: the running score of settings, as a function of how large their trees were.

A stream is followed at its logged moments: at each, the score so far and the leaves then. The *curve* of a trial (one
order of the rows, or one drawn data set) goes through the mean score of its moments, of all settings pooled, by number
of leaves.

Source: R. De Rosa, N. Cesa-Bianchi, "Splitting with confidence in decision trees with application to stream mining",
IJCNN 2015, Figures 2 and 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def performance_at(leaves: npt.NDArray[np.integer], score: Floats, places: npt.NDArray[np.integer]) -> Floats:
    """The curve of a trial at given numbers of leaves, between neighbours by straight lines.

    Parameters
    ----------
    leaves, score : ndarray, shape (n,)
        Of each moment; those without a score (NaN) are passed over.
    places : ndarray of integer, shape (k,)

    Returns
    -------
    ndarray of float64, shape (k,)
        NaN where no tree was as small, or none as large.

    Notes
    -----
    O(n log n + k log n).
    """
    known = np.isfinite(score)
    if not known.any():
        return np.full(len(places), np.nan)
    sizes, which, moments = np.unique(leaves[known], return_inverse=True, return_counts=True)
    means = np.bincount(which, weights=score[known]) / moments
    return np.asarray(np.interp(places, sizes, means, left=np.nan, right=np.nan), dtype=np.float64)


def averaged(curves: Sequence[Floats]) -> Floats:
    """The mean of the curves of several trials, NaN where fewer than half of them have a value.

    Parameters
    ----------
    curves : sequence of ndarray of float64, shape (k,)
        At least one.

    Returns
    -------
    ndarray of float64, shape (k,)
    """
    stacked = np.array(curves)
    known = np.isfinite(stacked)
    there = known.sum(axis=0)
    mean = np.where(known, stacked, 0.0).sum(axis=0) / np.maximum(there, 1)
    return np.where((there > 0) & (2 * there >= len(stacked)), mean, np.nan)


def sizes_between(least: int, most: int, at_most: int) -> npt.NDArray[np.int64]:
    """Whole numbers of leaves from the least to the most, at equal ratios where they are many."""
    if most - least < at_most:
        return np.arange(least, most + 1)
    return np.unique(np.round(np.geomspace(least, most, at_most)).astype(np.int64))
