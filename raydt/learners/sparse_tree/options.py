"""Options of the sparse fully dynamic tree, the same names in YAML and Python."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from raydt.learners.base import Promise
from raydt.learners.fully_dynamic import FullyDynamicOptions
from raydt.learners.sparse_tree.rules import WatchRules


class SparseTreeOptions(FullyDynamicOptions):
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
            raise ValueError("beta must be greater than 0, or every update would rebuild a node")
        if self.finder == "updent" and self.epsilon != "auto":
            raise ValueError("epsilon is not used with finder: updent, which rebuilds a node when its split is beaten")
        return self

    def promise(self) -> Promise:
        """Whether the guarantee holds for these options."""
        return Promise(
            True,
            f"a node is rebuilt as soon as its score is more than beta {self.beta:g} above the finder's best split, "
            f"which is at most {1 + self.finder_alpha:g} times the lowest score of all sparse features",
        )

    def watch_rules(self) -> WatchRules:
        """The options as the kernels take them."""
        entropy = self.finder == "updent"
        return WatchRules(entropy, self.beta, self.alpha, self.min_samples_split, self.depth_limit)
