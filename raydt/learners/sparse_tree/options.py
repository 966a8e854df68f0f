"""Options of the sparse fully dynamic tree, the same names in YAML and Python."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from raydt.learners.base import FullyDynamicOptions, Promise
from raydt.learners.batch_coordinator import ClassWeight
from raydt.learners.sparse_tree.build import WatchRules
from raydt.messages import message


class SparseTreeOptions(FullyDynamicOptions, ClassWeight):
    """A fully dynamic tree for sparse binary features and two classes, rebuilt where a split is beaten."""

    kind: Literal["sparse_tree"] = "sparse_tree"
    finder: Literal["updgini", "updent"] = Field(
        "updgini",
        description="structure that finds the best split; updgini: Gini index, also with numeric and categorical "
        "features; updent: entropy",
    )
    finder_alpha: float = Field(
        0.1, ge=0.01, le=1e3, description="a split found by the finder scores at most 1 + finder_alpha times the best"
    )

    @model_validator(mode="after")
    def _check(self) -> SparseTreeOptions:
        self.require_epsilon()
        if self.beta == 0:
            raise ValueError(message("learners.no_beta"))
        if self.finder == "updent" and self.epsilon != "auto":
            raise ValueError(message("learners.dense_epsilon"))
        return self

    def promise(self) -> Promise:
        """Return the guarantee for these options, or the reason why there is none."""
        return Promise(True, message("learners.beaten_splits", beta=self.beta, bound=1 + self.finder_alpha))

    def watch_rules(self) -> WatchRules:
        """The options as the kernels take them."""
        entropy = self.finder == "updent"
        return WatchRules(entropy, self.beta, self.alpha, self.min_samples_split, self.depth_limit)
