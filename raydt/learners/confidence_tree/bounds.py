"""Half widths of confidence intervals around split scores, and the rules that split by them.

Equations are those of De Rosa and Cesa-Bianchi, "Splitting with Confidence in Decision Trees with Application to
Stream Mining". Symbols: m examples at the leaf, t examples so far, d features, depth of the leaf (0 at the root),
K classes. All logarithms are natural unless noted; everything is plain ``math`` in float64, evaluated by the
coordinator only. Every function is O(1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

Criterion = Literal["gini", "entropy", "kearns_mansour", "error"]
RuleName = Literal["ctree", "hoeffding", "corrected", "mcdiarmid"]

#: Why a leaf is split: by the rule, or because its interval is narrower than the tie threshold.
RULE, TIE = 0, 1
#: In a log: a node is a leaf that counts only recent examples (``drift``).
RESTARTED = 2
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
    """When a leaf is split."""

    rule: RuleName
    criterion: Criterion
    practical: bool  #: Of ctree: eq. (8) in place of the theorems.
    delta: float | None  #: None for 1 / t.
    c: float
    tie_threshold: float
    d: int  #: Features.

    @property
    def bits(self) -> bool:
        """Whether differences are measured in bits of information instead of halves of nats."""
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
        """Whether splits are better than others with confidence, by their scores, numbers or arrays."""
        if self.rule == "ctree":
            return best <= rival - 2.0 * width
        return self.lead(best, rival) > self.widths * width

    def reason(self, best: float, rival: float, impurity: float, width: float) -> int | None:
        """Why a leaf of this impurity is to be split: ``RULE``, ``TIE`` or None for not at all."""
        if self.beats(best, rival, width):
            return RULE
        return TIE if self.tie_threshold > 0.0 and width <= self.tie_threshold and best < impurity else None
