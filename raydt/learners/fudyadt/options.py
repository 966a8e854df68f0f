"""Options of FuDyADT, the same names in YAML and Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from raydt.examples.updates import UNIT
from raydt.learners.base import FullyDynamicOptions, Promise, epsilon_bound
from raydt.learners.batch_coordinator import ClassWeight
from raydt.messages import message
from raydt.trees.counted_tree import LARGEST_EXPONENT, LabelRange, TreeRules

#: Mass per example by which a certificate stays below beta: more than all rounding, for up to a thousand classes.
MARGIN = 1e-12
#: Least beta of certificates: a thousand times what they leave for rounding, which a smaller one would not cover.
LEAST_BETA = 1e-9
#: Defaults where labels are numbers: their variance is at most a quarter of the range squared.
_OF_NUMBERS = {"alpha": 0.005, "beta": 0.01}


class FuDyADTOptions(FullyDynamicOptions, ClassWeight):
    """A fully dynamic decision tree, feasible after every update (after Bressan, Damay, Sozio, AAAI 2023)."""

    retired: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {
        "finder": (("exact",), "Use learner.kind: sparse_tree, which has it, or remove it"),
        "finder_alpha": ((0.1,), "Use learner.kind: sparse_tree, which has it, or remove it"),
    }

    kind: Literal["fudyadt"] = "fudyadt"
    alpha: float = Field(0.02, ge=0, le=1, description="impurity below which a node may be a leaf (alpha)")
    max_depth: int | None = Field(
        20, ge=0, description="largest depth of a node; the root has depth 0; null sets no limit (h)"
    )
    smoothing: float = Field(
        30.0,
        ge=0,
        le=1e6,
        description="weight of the parent's probabilities, or mean label, in those of a node: as many examples as this "
        "at depth 10, growing with the cube of the depth. A stream takes 0, 0.1, 1, 10 or 100 times as much, whichever "
        "has been right most often lately; of numbers, whichever had the least squared errors, the mean of all "
        "examples among them; 0: always the leaf's own",
    )
    schedule: Literal["auto", "certificate", "published"] = Field(
        "auto",
        description="when a subtree is rebuilt; certificate: as soon as counts no longer prove that its split is "
        "within beta of the best, needs epsilon: auto; published: after the share epsilon of its size in updates; "
        "auto: certificate if epsilon is auto, else published",
    )
    criterion: Literal["gini", "squared_error"] = Field(
        "gini",
        description="impurity of a node: gini for classes; squared_error, the variance in units of the range of the "
        "labels squared, for numeric labels, with alpha 0.005 and beta 0.01 as defaults",
    )
    label_range: tuple[float, float] | None = Field(
        None,
        description="smallest and largest numeric label; a label outside counts as the nearer of them; null takes "
        "both from the live labels whenever the whole tree is built, as it is for a label outside",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        """Defaults that depend on the criterion."""
        if isinstance(given, dict) and given.get("criterion") == "squared_error":
            return {**_OF_NUMBERS, **given}
        return given

    @model_validator(mode="after")
    def _has_classes(self) -> FuDyADTOptions:
        if self.numeric and self.class_weight is not None:
            raise ValueError(message("settings.no_classes"))
        return self

    @model_validator(mode="after")
    def _check_epsilon(self) -> FuDyADTOptions:
        self.require_epsilon()
        if self.schedule == "certificate" and self.epsilon != "auto":
            raise ValueError(message("learners.certificate_epsilon"))
        self.resolved_epsilon()
        if self.certified and self.beta < LEAST_BETA:
            raise ValueError(message("learners.certificate_beta", least=LEAST_BETA))
        if self.label_range is None:
            return self
        low, high = self.label_range
        if self.criterion != "squared_error":
            raise ValueError(message("learners.class_range"))
        largest = 2.0**LARGEST_EXPONENT
        if not (max(abs(low), abs(high)) <= largest and high - low >= 1 / largest):
            raise ValueError(message("learners.label_range", low=low, high=high))
        return self

    @property
    def certified(self) -> bool:
        """True if inner nodes are rebuilt by certificates; leaves then have epsilon: auto."""
        return self.schedule != "published" and self.epsilon == "auto"

    def rules(self, scheduled: bool = True) -> TreeRules:
        """The options as the kernels take them."""
        rules = super().rules(scheduled)._replace(certified=self.certified, slack=self.beta - MARGIN)
        return rules._replace(smoothing=self.smoothing if self.smooths else 0.0)

    def weighed(self, rules: TreeRules) -> TreeRules:
        """Return rules as the kernels take them where rows have weights."""
        return super().weighed(rules)._replace(smoothing=rules.smoothing * UNIT)

    def rules_of(self, labels: LabelRange) -> TreeRules:
        """The options as the kernels take them where labels are numbers: masses are in units squared."""
        square, half_alpha = float(labels.top**2), Fraction(self.alpha) / 2
        rules = self.rules()
        return rules._replace(
            slack=rules.slack * square, step=square, half_alpha_units=math.floor(half_alpha * labels.top**2)
        )

    @property
    def numeric(self) -> bool:
        """True if labels are numbers."""
        return self.criterion == "squared_error"

    @property
    def smooths(self) -> bool:
        """True if a stream chooses how much it smooths."""
        return self.smoothing > 0

    def declared_range(self) -> LabelRange | None:
        """The range of numeric labels, as far as the options say; None with classes."""
        low, high = self.label_range or (float("nan"), float("nan"))
        return LabelRange.of(low, high) if self.numeric else None

    @property
    def bounded_by(self) -> tuple[float, float, int, str]:
        """Arguments of ``epsilon_bound``."""
        return (*super().bounded_by[:3], self.criterion)

    def promise(self) -> Promise:
        """Return the guarantee for these options, or the reason why there is none."""
        epsilon, excuse = self.resolved_epsilon(), self.excuse()
        if excuse:
            return Promise(False, excuse)
        bound = epsilon_bound(*self.bounded_by)
        known = {"epsilon": epsilon, "alpha": self.alpha, "beta": self.beta, "samples": self.min_samples_split}
        if self.certified:
            return Promise(True, message("learners.certified", **known))
        return Promise(True, message("learners.small_epsilon", bound=float(bound), **known))
