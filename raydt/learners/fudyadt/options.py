"""Options of FuDyADT, the same names in YAML and Python."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from raydt.learners.base import Promise
from raydt.learners.fully_dynamic import FullyDynamicOptions, epsilon_bound, not_promised
from raydt.learners.live_tree import Rules

#: Mass per example by which a certificate stays below beta: more than all rounding, for up to a thousand classes.
MARGIN = 1e-12


class FuDyADTOptions(FullyDynamicOptions):
    """A fully dynamic decision tree, feasible after every update (after Bressan, Damay, Sozio, AAAI 2023)."""

    kind: Literal["fudyadt"] = "fudyadt"
    alpha: float = Field(0.05, ge=0, le=1, description="impurity below which a node may be a leaf (alpha)")
    max_depth: int | None = Field(
        20, ge=0, description="largest depth of a node; the root has depth 0; null sets no limit (h)"
    )
    smoothing: float = Field(
        20.0,
        ge=0,
        le=1e6,
        description="weight of the parent in the shares that a model predicts for a node: that of so many examples, "
        "divided by the Gini index of the parent's shares; 0: plain shares of the leaf. Predictions of a stream are "
        "the majority of the leaf in any case",
    )
    schedule: Literal["auto", "certificate", "published"] = Field(
        "auto",
        description="when a subtree is rebuilt; certificate: as soon as counts cannot prove any more that its split "
        "is within beta of the best, needs epsilon: auto; published: after the share epsilon of its size in updates; "
        "auto: certificate if epsilon is auto, else published",
    )

    @model_validator(mode="after")
    def _check_epsilon(self) -> FuDyADTOptions:
        self.require_epsilon()
        if self.schedule == "certificate" and self.epsilon != "auto":
            raise ValueError(
                "schedule: certificate rebuilds by certificates, not after epsilon. Remove epsilon, or set schedule: "
                "published"
            )
        self.resolved_epsilon()
        return self

    @property
    def certified(self) -> bool:
        """Whether inner nodes are rebuilt by certificates; leaves then have epsilon: auto."""
        return self.schedule != "published" and self.epsilon == "auto"

    def rules(self, scheduled: bool = True) -> Rules:
        """The options as the kernels take them."""
        return super().rules(scheduled)._replace(certified=self.certified, slack=self.beta - MARGIN)

    def promise(self) -> Promise:
        """Whether the guarantee holds for these options."""
        epsilon, rest = self.resolved_epsilon(), (self.alpha, self.beta, self.min_samples_split)
        excuse = not_promised(epsilon, *rest)
        if excuse:
            return Promise(False, excuse)
        place = "the largest below" if isinstance(self.epsilon, str) else "below"
        bound = (
            f"epsilon {epsilon:.6g} is {place} the bound {float(epsilon_bound(*rest)):.6g} for alpha {self.alpha:g}, "
            f"beta {self.beta:g} and min_samples_split {self.min_samples_split}"
        )
        if self.certified:
            return Promise(True, f"splits are rebuilt before their certificates run out; of leaves, {bound}")
        return Promise(True, bound)
