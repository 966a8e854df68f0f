"""Fully dynamic trees: their options, and how small epsilon has to be for the guarantee.

A node is rebuilt before more than ``epsilon * s`` updates have passed through it, s its size when it was built.
``docs/explanation/guarantees.md`` proves that the tree is then feasible for (alpha, beta) after every update, for any
number of classes, if epsilon lies below :func:`epsilon_bound`, which is computed in exact rational arithmetic.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Literal

from pydantic import Field

from raydt.errors import ConfigError
from raydt.examples.weights import UNIT
from raydt.learners.base import LearnerOptions
from raydt.messages import Message, message
from raydt.trees.counted_tree import TreeRules

#: What a bound for numeric labels leaves for rounding: of alpha to units of the labels, and of gains.
FOR_ROUNDING = Fraction(1, 2**30)


@functools.lru_cache(64)
def epsilon_bound(alpha: float, beta: float, min_samples_split: int, criterion: str = "gini") -> Fraction:
    """Return the exclusive upper bound of the epsilons for which the guarantee is proven.

    It is min(1 / (k + 1), alpha / (4 + alpha), beta / (6 + beta)) of the exact values of the floats, k + 1 being
    ``min_samples_split``; with numeric labels min(1 / (k + 1), alpha / 2 - 2**-30, beta / (1 + beta) - 2**-30). 0 where
    nothing is promised: alpha or beta is 0 or, with numeric labels, too small.
    """
    a, b = Fraction(alpha), Fraction(beta)
    if criterion == "squared_error":
        bound = min(Fraction(1, min_samples_split), min(a / 2, b / (1 + b)) - FOR_ROUNDING)
        return max(bound, Fraction(0))
    return min(Fraction(1, min_samples_split), a / (4 + a), b / (6 + b))


@functools.lru_cache(64)
def auto_epsilon(alpha: float, beta: float, min_samples_split: int, criterion: str = "gini") -> float:
    """Return the largest float64 below :func:`epsilon_bound`; ConfigError if the bound is 0.

    For example ``auto_epsilon(0.1, 0.2, 2)`` is 0.024390243902439025.
    """
    bound = epsilon_bound(alpha, beta, min_samples_split, criterion)
    if bound <= 0:
        raise ConfigError(message("learners.no_epsilon", alpha=alpha, beta=beta))
    nearest = float(bound)
    return nearest if Fraction(nearest) < bound else math.nextafter(nearest, 0.0)


#: Beyond it a node is never rebuilt on any machine, and epsilon * s leaves the integers.
LARGEST_EPSILON = 1e6


class FullyDynamicOptions(LearnerOptions):
    """When a node is a leaf, how far its split may be from the best, and how many updates it takes."""

    epsilon: float | Literal["auto"] = Field(
        "auto",
        description="a subtree is rebuilt after this share of its size in updates; larger is faster and less exact; "
        "auto: the largest value the theorem allows (epsilon)",
    )
    alpha: float = Field(0.1, ge=0, le=1, description="impurity below which a node may be a leaf (alpha)")
    beta: float = Field(
        0.2, ge=0, le=1, description="largest amount by which a split's gain may fall short of the best (beta)"
    )
    max_depth: int | None = Field(
        None, ge=0, description="largest depth of a node; the root has depth 0; null sets no limit (h)"
    )
    min_samples_split: int = Field(2, ge=2, description="a node with fewer examples is a leaf (k + 1)")

    def require_epsilon(self) -> None:
        """ValueError unless epsilon is ``auto`` or a number within its limits."""
        if not isinstance(self.epsilon, str) and not 0 <= self.epsilon <= LARGEST_EPSILON:
            raise ValueError(message("learners.epsilon", most=LARGEST_EPSILON))

    @property
    def bounded_by(self) -> tuple[float, float, int, str]:
        """Arguments of :func:`epsilon_bound`."""
        return self.alpha, self.beta, self.min_samples_split, "gini"

    def resolved_epsilon(self) -> float:
        """Return epsilon as a number; ConfigError if it is ``auto`` and the theorem allows none."""
        return auto_epsilon(*self.bounded_by) if isinstance(self.epsilon, str) else self.epsilon

    def excuse(self) -> Message | None:
        """Return why nothing is promised for these options; None if something is."""
        epsilon, bound = self.resolved_epsilon(), epsilon_bound(*self.bounded_by)
        if bound == 0:
            return message("learners.no_epsilon", alpha=self.alpha, beta=self.beta).alone()
        if Fraction(epsilon) >= bound:
            return message("learners.large_epsilon", epsilon=epsilon, bound=float(bound))
        return None

    @property
    def depth_limit(self) -> int:
        """The largest depth of a node, as kernels take it."""
        return self.max_depth if self.max_depth is not None else 2**31 - 1

    def rules(self, scheduled: bool = True) -> TreeRules:
        """The options as the kernels take them; epsilon is that of nodes that are rebuilt by schedule."""
        epsilon = self.resolved_epsilon() if scheduled else 0.0
        return TreeRules(epsilon, self.alpha / 2, self.min_samples_split, self.depth_limit)

    def weighed_rules(self, scheduled: bool = True) -> TreeRules:
        """The options as the kernels take them where rows have weights."""
        return self.weighed(self.rules(scheduled))

    def weighed(self, rules: TreeRules) -> TreeRules:
        """Return rules as the kernels take them where rows have weights."""
        least = self.min_samples_split
        by_size = Fraction(rules.epsilon) * least < 1
        return rules._replace(unit=UNIT, min_samples_split=least * UNIT, by_size=by_size)
