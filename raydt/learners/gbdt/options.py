"""Options of the in-place online GBDT, the same names in YAML and Python."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from raydt.learners.base import LearnerOptions, Promise


class GBDTOptions(LearnerOptions):
    """Boosted trees, updated in place when examples are inserted and deleted (Lin et al., ICML 2025)."""

    kind: Literal["gbdt"] = "gbdt"
    objective: Literal["auto", "binary", "multiclass", "squared_error"] = Field(
        "auto", description="auto: binary for two classes in the warm-up, else multiclass; squared_error for numbers"
    )
    max_iter: int = Field(100, ge=1, le=2**20, description="M: boosting iterations")
    max_leaf_nodes: int = Field(20, ge=2, le=2**14, description="J: leaves of a tree, at most")
    learning_rate: float = Field(0.1, gt=0, le=1, description="nu: shrinkage of every leaf")
    l2_regularization: float = Field(1.0, ge=0, le=1e6, description="Added to the sum of second derivatives")
    max_bins: int = Field(1024, ge=2, le=2**16 - 1, description="B: bins of a feature, fixed from the warm-up")
    binning: Literal["doubling", "quantile"] = Field(
        "doubling", description="Bins of equal width, doubled until at most max_bins are used; or of equal frequency"
    )
    candidate_fraction: float = Field(0.1, gt=0, le=1, description="alpha: ceil(alpha B) split candidates a feature")
    robustness_tolerance: float = Field(
        0.1, ge=0, le=1, description="sigma: a split stays while among the best ceil(sigma alpha B) of its node"
    )
    derivatives: Literal["retrained", "changed_leaves", "never"] = Field(
        "retrained", description="After which changes of a tree the derivatives of old examples are computed anew"
    )
    update_every: int = Field(100, ge=1, description="Updates of the stream that are applied at once, as one D'")
    random_state: int = Field(0, description="Seed of the split candidates; any integer")
    early_stopping: bool = Field(False, description="End the first training when held-out rows gain no more")
    validation_fraction: float = Field(
        0.1, gt=0, lt=1, description="Share of the warm-up that early_stopping holds out"
    )
    n_iter_no_change: int = Field(10, ge=1, description="Iterations without a gain after which training ends early")
    tol: float = Field(1e-7, ge=0, description="Loss that counts as a gain")

    @property
    def regression(self) -> bool:
        """Whether the labels are numbers."""
        return self.objective == "squared_error"

    def promise(self) -> Promise:
        """The paper bounds nothing after an update; what is exact is said by conformance."""
        return Promise(
            False,
            "the paper promises no bound on an updated model; that stored sums equal recomputed ones bit for bit and "
            "that every split is within the tolerance is conformance",
        )
