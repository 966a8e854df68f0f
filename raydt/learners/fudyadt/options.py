"""Options of FuDyADT, the same names in YAML and Python."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from raydt.learners.base import LearnerOptions, Promise
from raydt.learners.fully_dynamic.guarantee import auto_epsilon, epsilon_bound, not_promised
from raydt.learners.fully_dynamic.live_tree import Rules
from raydt.learners.sparse_tree.rules import WatchRules

#: Beyond it a node is never rebuilt on any machine, and epsilon * s leaves the integers.
LARGEST_EPSILON = 1e6
_FINDER_ALPHA = 0.1


class FuDyADTOptions(LearnerOptions):
    """A fully dynamic decision tree, epsilon-feasible after every update (Bressan, Damay, Sozio, AAAI 2023)."""

    kind: Literal["fudyadt"] = "fudyadt"
    epsilon: float | Literal["auto"] = Field(
        "auto",
        description="Share of updates a node takes before it is rebuilt; auto: the largest the theorem allows",
    )
    alpha: float = Field(0.1, ge=0, le=1, description="Impurity below which a node may be a leaf")
    beta: float = Field(0.2, ge=0, le=1, description="Gain a split may lack to the best one")
    max_depth: int | None = Field(None, ge=0, description="h; null for no limit")
    finder: Literal["exact", "updgini", "updent"] = Field(
        "exact",
        description="How the best split is found; updgini, updent: kept at hand over sparse features, two classes",
    )
    finder_alpha: float = Field(
        _FINDER_ALPHA, ge=0.01, le=1e3, description="updgini, updent: a split may be 1 + this times the best"
    )
    min_samples_split: int = Field(2, ge=2, description="k + 1: a smaller node is a leaf")

    @model_validator(mode="after")
    def _check_epsilon(self) -> FuDyADTOptions:
        if not isinstance(self.epsilon, str) and not 0 <= self.epsilon <= LARGEST_EPSILON:
            raise ValueError(f"epsilon must be a number from 0 to {LARGEST_EPSILON:g}, or auto")
        if self.finder == "exact":
            self.resolved_epsilon()
            if "finder_alpha" in self.model_fields_set and self.finder_alpha != _FINDER_ALPHA:
                raise ValueError("finder_alpha is of finder: updgini or updent, not of exact")
        elif self.beta == 0:
            raise ValueError("beta must be greater than 0 with finder: updgini or updent, else every update rebuilds")
        elif self.finder == "updent" and self.epsilon != "auto":
            raise ValueError("epsilon is not used with finder: updent, which rebuilds a node when its split is beaten")
        return self

    @property
    def takes_sparse(self) -> bool:
        """Only structures of a finder follow the ones of a row."""
        return self.finder != "exact"

    @property
    def needs_sparse(self) -> bool:
        """A finder has nothing to keep without them."""
        return self.finder != "exact"

    @property
    def takes_dense(self) -> bool:
        """Dense features need FuDyADT's schedule, whose theorem is about the Gini index."""
        return self.finder != "updent"

    def most_classes(self, *, sparse: bool) -> int | None:
        """A finder compares two."""
        return None if self.finder == "exact" else 2

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

    def promise(self) -> Promise:
        """Whether the guarantee holds for these options."""
        if self.finder != "exact":
            return Promise(
                True,
                f"a node is rebuilt as soon as its score is more than beta {self.beta:g} above what the finder, within "
                f"{1 + self.finder_alpha:g} times the least of all sparse features, has at hand",
            )
        epsilon, rest = self.resolved_epsilon(), (self.alpha, self.beta, self.min_samples_split)
        excuse = not_promised(epsilon, *rest)
        if excuse:
            return Promise(False, excuse)
        place = "the largest below" if isinstance(self.epsilon, str) else "below"
        return Promise(
            True,
            f"epsilon {epsilon:.6g} is {place} the bound {float(epsilon_bound(*rest)):.6g} for alpha {self.alpha:g}, "
            f"beta {self.beta:g} and min_samples_split {self.min_samples_split}",
        )

    def watch_rules(self) -> WatchRules:
        """The options as the kernels of the sparse tree take them."""
        depth = self.max_depth if self.max_depth is not None else 2**31 - 1
        return WatchRules(self.finder == "updent", self.beta, self.alpha, self.min_samples_split, depth)

    def rules(self, scheduled: bool = True) -> Rules:
        """The options as the kernels take them; epsilon is that of nodes that are rebuilt by schedule."""
        depth = self.max_depth if self.max_depth is not None else 2**31 - 1
        return Rules(self.resolved_epsilon() if scheduled else 0.0, self.alpha / 2, self.min_samples_split, depth)
