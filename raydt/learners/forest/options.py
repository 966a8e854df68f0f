"""Options of the exact forest, the same names in YAML and Python."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field, model_validator

from raydt.learners import learners
from raydt.learners.base import LearnerOptions, Promise
from raydt.learners.forest.nodes import Rules
from raydt.learners.whole_trees import TreeKind

#: The kind of trees that are functions of the live examples.
EXACT = "exact"
#: Features that ``max_features: auto`` tries.
AUTO_FEATURES = 20


def guest_kinds() -> dict[str, TreeKind]:
    """Learners whose trees can be members of a forest, with their trees of default options."""
    kinds = {kind: learner.whole_trees(learner.Options()) for kind, learner in learners().items()}
    return {kind: trees for kind, trees in kinds.items() if trees is not None}


class ForestOptions(LearnerOptions):
    """Randomised trees that always equal those trained from scratch on the live examples, bit for bit."""

    kind: Literal["forest"] = "forest"
    trees: str = Field(
        EXACT,
        description="kind of the trees: exact; or the kind of a learner whose trees can form a forest, in which each "
        "node draws features and takes the best split on them",
    )
    tree_options: dict[str, Any] | None = Field(
        None, description="options of the learner that trees names, such as alpha and beta"
    )
    criterion: Literal["gini", "squared_error"] = Field(
        "gini", description="what a split lowers: gini for classes; squared_error, for numeric labels"
    )
    n_estimators: int = Field(100, ge=1, le=2**14, description="trees (T)")
    sample_share: float = Field(
        0.1, gt=0, le=1, description="share of the trees that hold each example, rounded up to whole trees (q)"
    )
    max_features: int | Literal["auto", "sqrt", "all"] = Field(
        "auto",
        description="number of features that a node tries, among those not constant there (with trees of another "
        f"learner: among all): a number; sqrt: the square root of all; all; auto: at most {AUTO_FEATURES} (P)",
    )
    thresholds: int = Field(
        5,
        ge=1,
        le=255,
        description="thresholds, or categories, tried for each feature (S); not used by trees of another learner",
    )
    max_depth: int = Field(20, ge=0, le=255, description="largest depth of a node; the root has depth 0")
    min_samples_split: int = Field(10, ge=2, le=2**30, description="a node with fewer examples is a leaf")
    rebuild: Literal["eager", "lazy"] = Field(
        "eager",
        description="when to rebuild a subtree whose split has changed; eager: with the update that changed it; lazy: "
        "node by node when a prediction passes it, at the latest at the end of the batch. The model is the same",
    )
    random_state: int = Field(0, description="seed of memberships, features and thresholds; any integer")

    @model_validator(mode="after")
    def _possible(self) -> ForestOptions:
        if isinstance(self.max_features, int) and self.max_features < 1:
            raise ValueError("max_features must be at least 1")
        if self.exact and self.tree_options:
            raise ValueError("tree_options apply only to the trees of another learner. Set trees, or remove them")
        if not self.exact:
            self._check_guests()
        return self

    def _check_guests(self) -> None:
        """ValueError unless the trees of another learner can do what the options ask for."""
        kinds = guest_kinds()
        if self.trees not in kinds:
            raise ValueError(f"trees must be {' or '.join([EXACT, *kinds])}, not {self.trees!r}")
        if self.numeric:
            raise ValueError(f"trees: {self.trees} takes classes only. Set trees: {EXACT} for numeric labels")
        if self.rebuild == "lazy":
            raise ValueError(f"rebuild: lazy applies only to trees: {EXACT}. Remove it")
        kind = self.guests()
        assert kind is not None
        if others := sorted(set(self.tree_options or ()) - set(kind.settable)):
            raise ValueError(
                f"tree_options of trees: {self.trees} are {', '.join(kind.settable)}, not {', '.join(others)}"
            )

    @property
    def exact(self) -> bool:
        """Whether trees are functions of the live examples."""
        return self.trees == EXACT

    def guests(self) -> TreeKind | None:
        """Trees of another learner with these options; None of exact trees."""
        if self.exact:
            return None
        return learners()[self.trees].whole_trees(self._guest_options())

    def _guest_options(self) -> LearnerOptions:
        """Options of the learner whose trees these are."""
        own = {"max_depth": self.max_depth, "min_samples_split": self.min_samples_split, **(self.tree_options or {})}
        options: LearnerOptions = learners()[self.trees].Options(kind=self.trees, **own)
        return options

    @property
    def numeric(self) -> bool:
        """Whether labels are numbers."""
        return self.criterion == "squared_error"

    @property
    def copies(self) -> int:
        """Trees that an example lives in: k = ceil(q T), of the decimal that was given."""
        return max(1, math.ceil(Fraction(repr(self.sample_share)) * self.n_estimators))

    def features_tried(self, features: int) -> int:
        """P, given how many features there are."""
        if isinstance(self.max_features, int):
            return min(self.max_features, features)
        wanted = {"auto": AUTO_FEATURES, "sqrt": math.isqrt(max(features, 1)), "all": features}[self.max_features]
        return max(1, min(wanted, features))

    def rules(self, features: int) -> Rules:
        """The options as the kernels take them."""
        return Rules(
            self.features_tried(features),
            self.thresholds,
            self.max_depth,
            self.min_samples_split,
            self.numeric,
            self.rebuild == "lazy",
        )

    def promise(self) -> Promise:
        """Exact trees are exact with all options; others promise what their learner does."""
        if self.exact:
            return Promise(True, "every tree equals the one trained from scratch on its live examples, bit for bit")
        own = learners()[self.trees].promise(self._guest_options())
        return Promise(own.promised, f"of every tree, within the features that its nodes draw: {own.reason}")
