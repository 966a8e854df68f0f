"""Scores of splits from integer class counts, smaller is better: the one function coordinator and shards share.

Phi(Y | F) as Theorems 1 to 3 estimate it (De Rosa, Cesa-Bianchi), for K classes. With l_k and r_k examples of class k
on the two sides of m: the Gini index is 1 - sum p_k^2, the entropy half of nats, the index of Kearns and Mansour
sqrt(p (1 - p)), the error 1 - max p_k; each side counts by its share of the m.

Counts may be masses (``raydt.trees.masses``), whose squares have up to 96 bits: they are floats, exact up to 94,906,265
rows.
"""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np

from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.finders.scores import xlogx_of
from raydt.learners.confidence_tree.bounds import Criterion

GINI, ENTROPY, KEARNS_MANSOUR, ERROR = range(4)
#: Criteria by their number in kernels.
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)

#: Columns of a candidate: its feature (-1: there is none), its cut, and the class counts of the left side.
FEATURE, CUT, COUNTS = 0, 1, 2
#: Candidates of one feature group, or of all: the best, and the one it is compared with.
BEST, RIVAL = 0, 1


@inlined_kernel
def _of_sums(criterion: int, table: Any, n: int, squares: float, logs: float, product: float, most: int) -> float:
    """Impurity of one side times its n examples, by sums over its classes."""
    if criterion == GINI:
        rows = np.float64(n)
        return (rows * rows - squares) / rows if n > 0 else 0.0
    if criterion == ENTROPY:
        nats: float = 0.5 * (xlogx_of(table, n) - logs)
        return nats
    return math.sqrt(product) if criterion == KEARNS_MANSOUR else float(n - most)


@inlined_kernel
def phi(criterion: int, table: Any, left: Any, totals: Any) -> float:
    """Phi of a split with class counts ``left`` out of ``totals``, both of shape (K,). O(K).

    ``table`` has k log k up to the sum of ``totals``, for entropy; it is empty of masses. With all or nothing on the
    left it is the impurity of the node itself.
    """
    n_left, n_right, squares_left, squares_right = 0, 0, 0.0, 0.0
    logs_left, logs_right, product_left, product_right = 0.0, 0.0, 1.0, 1.0
    most_left, most_right = 0, 0
    for k in range(len(totals)):
        a = left[k]
        b = totals[k] - a
        n_left += a
        n_right += b
        if criterion == GINI:
            squares_left += np.float64(a) * np.float64(a)
            squares_right += np.float64(b) * np.float64(b)
        elif criterion == ENTROPY:
            logs_left += xlogx_of(table, a)
            logs_right += xlogx_of(table, b)
        elif criterion == KEARNS_MANSOUR:
            product_left *= np.float64(a)
            product_right *= np.float64(b)
        else:
            most_left = max(most_left, a)
            most_right = max(most_right, b)
    on_left = _of_sums(criterion, table, n_left, squares_left, logs_left, product_left, most_left)
    on_right = _of_sums(criterion, table, n_right, squares_right, logs_right, product_right, most_right)
    score: float = (on_left + on_right) / np.float64(n_left + n_right)
    return score


@inlined_kernel
def comes_first(score: float, feature: int, cut: int, other_score: float, other: Any) -> bool:
    """The order of candidates: smaller score, then smaller feature, then smaller cut; anything before none."""
    if other[FEATURE] < 0 or score != other_score:
        return bool(other[FEATURE] < 0 or score < other_score)
    if feature != other[FEATURE]:
        return bool(feature < other[FEATURE])
    return bool(cut < other[CUT])


@inlined_kernel
def _put(found: Any, scores: Any, at: int, score: float, feature: int, cut: int, left: Any) -> None:
    scores[at] = score
    found[at, FEATURE], found[at, CUT] = feature, cut
    for k in range(len(left)):
        found[at, COUNTS + k] = left[k]


@inlined_kernel
def offer(found: Any, scores: Any, by_feature: bool, score: float, feature: int, cut: int, left: Any) -> None:
    """Let a candidate compete for the places BEST and RIVAL of ``found``, shape (2, 2 + K), and ``scores``.

    With ``by_feature`` the rival is the best on another feature than the best, else the best other candidate.
    """
    if comes_first(score, feature, cut, scores[BEST], found[BEST]):
        if found[BEST, FEATURE] >= 0 and not (by_feature and found[BEST, FEATURE] == feature):
            _put(found, scores, RIVAL, scores[BEST], found[BEST, FEATURE], found[BEST, CUT], found[BEST, COUNTS:])
        _put(found, scores, BEST, score, feature, cut, left)
    elif not (by_feature and found[BEST, FEATURE] == feature) and comes_first(
        score, feature, cut, scores[RIVAL], found[RIVAL]
    ):
        _put(found, scores, RIVAL, score, feature, cut, left)


@kernel
def merge(
    criterion: int, by_feature: bool, table: Any, totals: Any, candidates: Any, found: Any, scores: Any, impurity: Any
) -> None:
    """Find the best and the rival of all groups for each check, their scores, and the impurity of the node itself.

    ``totals`` has shape (checks, K), ``candidates`` (checks, groups, 2, 2 + K). The results have room: ``found``,
    (checks, 2, 2 + K), ``scores``, (checks, 2), and ``impurity``, (checks,).
    """
    for c in range(len(totals)):
        found[c, :, FEATURE] = -1
        found[c, :, CUT:] = 0
        scores[c, :] = np.inf
        impurity[c] = phi(criterion, table, totals[c], totals[c])
        for g in range(candidates.shape[1]):
            for at in range(2):
                own = candidates[c, g, at]
                if own[FEATURE] < 0:
                    continue
                score = phi(criterion, table, own[COUNTS:], totals[c])
                offer(found[c], scores[c], by_feature, score, own[FEATURE], own[CUT], own[COUNTS:])
