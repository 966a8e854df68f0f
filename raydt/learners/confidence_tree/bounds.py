"""Half widths of confidence intervals around split scores, and the rules that split by them.

Equations are those of De Rosa and Cesa-Bianchi, "Splitting with Confidence in Decision Trees with Application to
Stream Mining". Symbols: m examples at the leaf, t examples so far, d features, depth of the leaf (0 at the root),
K classes. All logarithms are natural unless noted; everything is plain ``math`` in float64, evaluated by the
coordinator only. Every function is O(1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.finders.finder import xlogx_of

Criterion = Literal["gini", "entropy", "kearns_mansour", "error"]
RuleName = Literal["ctree", "hoeffding", "corrected", "mcdiarmid"]

#: Why a leaf is split: by the rule, or because its interval is narrower than the tie threshold.
RULE, TIE = 0, 1
NATS_PER_BIT = math.log(2.0)


def hoeffding_width(m: int, delta: float, value_range: float = 1.0) -> float:
    """Eq. (1): the mean of m values in a range R, R sqrt(ln(1 / delta) / (2 m))."""
    return value_range * math.sqrt(math.log(1.0 / delta) / (2.0 * m))


def mcdiarmid_width(m: int, delta: float, classes: int = 2) -> float:
    """Eq. (2), of Rutkowski et al.: the information gain in bits, around its expectation."""
    constant = 6.0 * (classes * math.log2(math.e) + math.log2(2.0 * m)) + 2.0 * math.log2(classes)
    return constant * hoeffding_width(m, delta)


def entropy_width(m: int, delta: float, classes: int = 2) -> float:
    """Eq. (4): half of the conditional entropy in nats.

    The deviation holds for any number of values. The bias is at most (N - 1) / (2 m) for N values of each half, that is
    (2K - 1) / (2 m) for label and side together and 1 / (2 m) for the side: K / m in place of the paper's 2 / m.
    """
    return math.log(m) * math.sqrt(2.0 / m * math.log(4.0 / delta)) + classes / m


def gini_width(m: int, delta: float) -> float:
    """Eq. (5): the conditional Gini index; it holds as printed for any number of classes.

    Proof: ``docs/explanation/guarantees.md``.
    """
    return math.sqrt(8.0 / m * math.log(2.0 / delta)) + 4.0 * math.sqrt(1.0 / m)


def kearns_mansour_width(m: int, delta: float) -> float:
    """Eq. (6): the conditional index of Kearns and Mansour, two classes."""
    return 4.0 * math.sqrt(math.log(8.0 / delta) / m)


def node_delta(delta: float, m: int, t: int, depth: int, d: int) -> float:
    """Eq. (7): the share of delta that one leaf has at one time."""
    return delta / ((depth + 1.0) * (depth + 2.0) * t * d * m)


def practical_width(m: int, t: int, depth: int, d: int, c: float, *, entropy: bool = False) -> float:
    """Eq. (8), the paper's experiments: c sqrt(ln(m^2 h^2 t d) / m), h = depth + 1; for entropy times ln m."""
    h = depth + 1.0
    width = c * math.sqrt(math.log(float(m) * m * h * h * t * d) / m)
    return width * math.log(m) if entropy else width


@dataclass(frozen=True, slots=True)
class SplitRule:
    """The rule by which a leaf is split."""

    rule: RuleName
    criterion: Criterion
    practical: bool  #: Of ctree: eq. (8) in place of the theorems.
    delta: float | None  #: None for 1 / t.
    c: float
    tie_threshold: float
    d: int  #: Features.

    @property
    def bits(self) -> bool:
        """True if differences are measured in bits of information instead of halves of nats."""
        return self.criterion == "entropy" and self.rule in ("hoeffding", "mcdiarmid")

    @property
    def widths(self) -> float:
        """By how many widths a split must lead."""
        return 2.0 if self.rule in ("ctree", "corrected") else 1.0

    def lead(self, best: Any, rival: Any) -> Any:
        """By how much a split is better than another, by their scores, in the unit of the widths."""
        return (rival - best) * 2.0 / NATS_PER_BIT if self.bits else rival - best

    def width(self, m: int, t: int, depth: int, classes: int) -> float:
        """Return the half width of the interval around a score, in the unit of the rule.

        m live examples has the leaf counted, t examples has the tree taken so far; K ``classes`` are at least 2.
        """
        delta = 1.0 / t if self.delta is None else self.delta
        entropy = self.criterion == "entropy"
        if self.rule == "mcdiarmid":
            return mcdiarmid_width(m, delta, classes)
        if self.rule != "ctree":
            return hoeffding_width(m, delta, math.log2(classes) if entropy else 1.0)
        if self.practical:
            return practical_width(m, t, depth, self.d, self.c, entropy=entropy)
        delta = node_delta(delta, m, t, depth, self.d)
        if entropy:
            return entropy_width(m, delta, classes)
        return gini_width(m, delta) if self.criterion == "gini" else kearns_mansour_width(m, delta)

    def beats(self, best: Any, rival: Any, width: Any) -> Any:
        """Return True if splits are better than others with confidence, by their scores, numbers or arrays."""
        if self.rule == "ctree":
            return best <= rival - 2.0 * width
        return self.lead(best, rival) > self.widths * width

    def reason(self, best: float, rival: float, impurity: float, width: float) -> int | None:
        """Why a leaf of this impurity is to be split: ``RULE``, ``TIE`` or None for not at all."""
        if self.beats(best, rival, width):
            return RULE
        return TIE if self.tie_threshold > 0.0 and width <= self.tie_threshold and best < impurity else None


# Scores of splits from integer class counts, smaller is better: the one function coordinator and shards share.
#
# Phi(Y | F) as Theorems 1 to 3 estimate it (De Rosa, Cesa-Bianchi), for K classes. With l_k and r_k examples of class k
# on the two sides of m: the Gini index is 1 - sum p_k^2, the entropy half of nats, the index of Kearns and Mansour
# sqrt(p (1 - p)), the error 1 - max p_k; each side counts by its share of the m.
#
# Counts may be masses (``raydt.trees.records``), whose squares have up to 96 bits: they are floats, exact up to
# 94,906,265 rows.

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
