"""Options of the exact forest, the same names in YAML and Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from raydt.learners.base import LearnerOptions, Promise
from raydt.learners.batch_coordinator import ClassWeight
from raydt.learners.forest.nodes import ForestRules
from raydt.messages import message

#: Features that ``max_features: auto`` tries.
AUTO_FEATURES = 20


class ForestOptions(LearnerOptions, ClassWeight):
    """Randomised trees that always equal those trained from scratch on the live examples, bit for bit."""

    retired: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {
        "trees": (("exact",), "Every forest has exact trees: remove it"),
        "tree_options": ((None, {}), "Every forest has exact trees: remove it"),
    }

    kind: Literal["forest"] = "forest"
    criterion: Literal["gini", "squared_error"] = Field(
        "gini", description="what a split lowers: gini for classes; squared_error, for numeric labels"
    )
    n_estimators: int = Field(40, ge=1, le=2**14, description="number of trees (T)")
    sample_share: float = Field(
        0.5, gt=0, le=1, description="share of the trees that hold each example, rounded up to whole trees (q)"
    )
    max_features: int | Literal["auto", "sqrt", "all"] = Field(
        "auto",
        description="number of features that a node tries, among those not constant there: a number; sqrt: the square "
        f"root of all; all; auto: at most {AUTO_FEATURES} (P)",
    )
    thresholds: int = Field(
        5,
        ge=1,
        le=255,
        description="number of thresholds, or categories, tried for each feature (S)",
    )
    max_depth: int = Field(20, ge=0, le=255, description="largest depth of a node; the root has depth 0")
    min_samples_split: int = Field(10, ge=2, le=2**30, description="a node with fewer examples is a leaf")
    rebuild: Literal["auto", "eager", "lazy"] = Field(
        "auto",
        description="when to rebuild a subtree whose split has changed; eager: with the update that changed it; auto: "
        "node by node when a prediction passes it, at the latest at the end of the batch; lazy: as auto, but an "
        "estimator waits for the next prediction, digest or save. The model is the same",
    )
    random_state: int = Field(0, description="seed of memberships, features and thresholds; any integer")

    @model_validator(mode="after")
    def _has_classes(self) -> ForestOptions:
        if self.numeric and self.class_weight is not None:
            raise ValueError(message("settings.no_classes"))
        return self

    @model_validator(mode="after")
    def _possible(self) -> ForestOptions:
        if isinstance(self.max_features, int) and self.max_features < 1:
            raise ValueError(message("learners.max_features"))
        return self

    @property
    def numeric(self) -> bool:
        """True if labels are numbers."""
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

    def rules(self, features: int) -> ForestRules:
        """The options as the kernels take them."""
        return ForestRules(
            self.features_tried(features),
            self.thresholds,
            self.max_depth,
            self.min_samples_split,
            self.numeric,
            self.rebuild != "eager",
        )

    def promise(self) -> Promise:
        """Trees are exact with all options."""
        return Promise(True, message("learners.exact_trees"))
