"""Options that the fully dynamic trees have in common, the same names in YAML and Python."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from raydt.learners.base import LearnerOptions
from raydt.learners.fully_dynamic.guarantee import auto_epsilon
from raydt.learners.fully_dynamic.live_tree import Rules

#: Beyond it a node is never rebuilt on any machine, and epsilon * s leaves the integers.
LARGEST_EPSILON = 1e6


class FullyDynamicOptions(LearnerOptions):
    """When a node is a leaf, how far its split may be from the best, and how many updates it takes."""

    epsilon: float | Literal["auto"] = Field(
        "auto",
        description="Share of updates a node takes before it is rebuilt; auto: the largest the theorem allows",
    )
    alpha: float = Field(0.1, ge=0, le=1, description="Impurity below which a node may be a leaf")
    beta: float = Field(0.2, ge=0, le=1, description="Gain a split may lack to the best one")
    max_depth: int | None = Field(None, ge=0, description="h; null for no limit")
    min_samples_split: int = Field(2, ge=2, description="k + 1: a smaller node is a leaf")

    def require_epsilon(self) -> None:
        """ValueError unless epsilon is ``auto`` or a number within its limits."""
        if not isinstance(self.epsilon, str) and not 0 <= self.epsilon <= LARGEST_EPSILON:
            raise ValueError(f"epsilon must be a number from 0 to {LARGEST_EPSILON:g}, or auto")

    def resolved_epsilon(self) -> float:
        """Epsilon as a number.

        Raises
        ------
        ConfigError
            ``auto`` with alpha or beta 0: the theorem then allows no epsilon.
        """
        if isinstance(self.epsilon, str):
            return auto_epsilon(self.alpha, self.beta, self.min_samples_split)
        return self.epsilon

    @property
    def depth_limit(self) -> int:
        """The largest depth of a node, as kernels take it."""
        return self.max_depth if self.max_depth is not None else 2**31 - 1

    def rules(self, scheduled: bool = True) -> Rules:
        """The options as the kernels take them; epsilon is that of nodes that are rebuilt by schedule."""
        epsilon = self.resolved_epsilon() if scheduled else 0.0
        return Rules(epsilon, self.alpha / 2, self.min_samples_split, self.depth_limit)
