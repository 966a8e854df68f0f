"""Options of the confidence tree, the same names in YAML and Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from raydt.audits.recorded_tree import noted
from raydt.errors import InputError
from raydt.examples.updates import MOST_CLASSES
from raydt.learners.base import LearnerOptions, Promise
from raydt.learners.batch_coordinator import ClassWeight
from raydt.learners.confidence_tree.bounds import Criterion, RuleName, SplitRule
from raydt.learners.confidence_tree.naive_bayes import LeafPrediction
from raydt.messages import message
from raydt.presentation.charts import counted

#: What the warm-up is needed for.
WARMUP = message("learners.needs_bins")
#: Fewer first rows make bins that are of use only once they are renewed.
FEW = 20
#: Fewest insertions between two renewals of bins, by default.
FEWEST = 100
#: Below it products with delta may leave the numbers.
SMALLEST_DELTA = 1e-100
#: Criteria each rule has a width for; the first is its default.
_CRITERIA: dict[str, tuple[Criterion, ...]] = {
    "ctree": ("gini", "entropy", "kearns_mansour"),
    "hoeffding": ("gini", "entropy"),
    "corrected": ("error",),
    "mcdiarmid": ("entropy",),
}
#: Range of an index of two classes: a split that may lack so much may be any.
_RANGE = {"gini": 0.5, "entropy": math.log(2.0) / 2.0, "kearns_mansour": 0.5}

#: Keys that not every tree uses, and which trees do.
_USED_BY = {
    "confidence": "rule: ctree",
    "c": "rule: ctree with confidence: practical",
    "delta": "confidence: theorem, or another rule than ctree",
}


def _or_null(schema: dict[str, Any]) -> None:
    """Let null be valid in the JSON Schema of a key, too."""
    if "anyOf" in schema:
        schema["anyOf"].append({"type": "null"})
        return
    schema["type"] = [schema["type"], "null"]
    if "enum" in schema:
        schema["enum"].append(None)


class ConfidenceTreeOptions(LearnerOptions, ClassWeight):
    """A tree that splits a leaf when a confidence interval says so (De Rosa, Cesa-Bianchi), under deletions too."""

    retired: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {
        "finder": (("exact", None), "All sparse features are evaluated: remove it"),
        "finder_alpha": ((0.1, None), "All sparse features are evaluated: remove it"),
        "strict": ((False, None), "Set a smaller delta instead"),
        "drift_period": ((0, None), "Follow drift with stream: {model: adaptive_window}, or sliding_window"),
    }

    kind: Literal["confidence_tree"] = "confidence_tree"
    rule: RuleName = Field(
        "ctree",
        description="rule that decides when a leaf is split; ctree: confidence intervals of the theorems; hoeffding: "
        "VFDT; corrected: CorrH-Tree; mcdiarmid: Rutkowski's bound",
    )
    criterion: Literal["gini", "entropy", "kearns_mansour", "error"] | None = Field(
        None,
        description="impurity that the best split minimises; null: gini, or error for rule: corrected, entropy for "
        "rule: mcdiarmid; kearns_mansour is for two classes",
    )
    confidence: Literal["theorem", "practical"] = Field(
        "practical",
        description="width of the intervals of rule: ctree; theorem: theorems 1 to 4; practical: the narrower one of "
        "the paper's experiments (eq. 8)",
        json_schema_extra=_or_null,
    )
    delta: float | Literal["1/t"] = Field(
        1e-7,
        description="probability that an interval is wrong; smaller splits later; 1/t: decreases with every example; "
        "not used by confidence: practical",
        json_schema_extra=_or_null,
    )
    c: float = Field(
        0.01,
        gt=0,
        le=1e6,
        description="factor of the width of confidence: practical; smaller splits sooner",
        json_schema_extra=_or_null,
    )
    tie_threshold: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="half width of the interval below which a tie is broken by taking the best split; 0: never. Set it "
        "well below the width at the leaf sizes you want, or every leaf is split on a tie (tau)",
    )
    grace_period: int = Field(100, ge=1, description="insertions into a leaf between two checks whether to split it")
    max_bins: int = Field(64, ge=2, le=2**16 - 1, description="largest number of bins of a feature")
    renew_bins: int | None = Field(
        None,
        ge=0,
        description="least number of insertions after which new bins are made from the live examples; more if more "
        "were live at the last renewal; 0: the warm-up fixes the bins; null: 100, but 0 with confidence: theorem",
    )
    rival: Literal["feature", "split"] = Field(
        "feature",
        description="split that the best one must beat; feature: the best split on another feature; split: "
        "every other split",
    )
    leaf_prediction: LeafPrediction = Field(
        "adaptive_inherited",
        description="prediction of a leaf; majority: its most frequent class; naive_bayes: naive Bayes on the counts "
        "of its bins; adaptive: whichever has been right more often there; adaptive_normal: of these two and of naive "
        "Bayes with normally distributed numbers; adaptive_inherited: of these three and of the last one with the "
        "examples that the leaf began with",
    )

    @model_validator(mode="before")
    @classmethod
    def _left_out(cls, given: Any) -> Any:
        """Null is the default of a key that other values may leave without a use: ``--set`` cannot leave it out."""
        if not isinstance(given, Mapping):
            return given
        return {key: value for key, value in given.items() if value is not None or key not in _USED_BY}

    @field_validator("delta")
    @classmethod
    def _probability(cls, delta: float | str) -> float | str:
        if not isinstance(delta, str) and not SMALLEST_DELTA <= delta < 1:
            raise ValueError(message("learners.delta"))
        return delta

    @model_validator(mode="after")
    def _consistent(self) -> ConfidenceTreeOptions:
        fitting = _CRITERIA[self.rule]
        if self.criterion is not None and self.criterion not in fitting:
            given = {"criterion": self.criterion, "rule": self.rule}
            raise ValueError(message("learners.rule_criterion", fitting=" or ".join(fitting), **given))
        for key in self.unused:  # the default may be written out
            default = type(self).model_fields[key].default
            if key in self.model_fields_set and getattr(self, key) != default:
                raise ValueError(message("learners.unused", key=key, users=_USED_BY[key]))
        return self

    @property
    def unused(self) -> tuple[str, ...]:
        """Keys of other rules."""
        practical = self.rule == "ctree" and self.confidence == "practical"
        used = {
            "confidence": self.rule == "ctree",
            "c": practical,
            "delta": not practical,
        }
        return tuple(key for key in _USED_BY if not used[key])

    @property
    def renewal(self) -> int:
        """Fewest insertions between two renewals of the bins; 0 of bins that stay."""
        if self.renew_bins is not None:
            return self.renew_bins
        return 0 if self.rule == "ctree" and self.confidence == "theorem" else FEWEST

    def outlook(self, warmup: int) -> str:
        """Return a warning where the first rows are few for bins that stay; empty if they are enough."""
        if self.renewal or warmup >= FEW:
            return ""
        return message("learners.few_rows", rows=counted(warmup, "row"))

    @property
    def resolved_criterion(self) -> Criterion:
        """The criterion, by the rule where none is given."""
        return self.criterion or _CRITERIA[self.rule][0]

    def most_classes(self, *, sparse: bool) -> int:
        """Return the largest number of classes: two where the index or the counters of sparse features are for two."""
        return 2 if sparse or self.resolved_criterion == "kearns_mansour" else MOST_CLASSES

    def require_classes(self, found: int, *, sparse: bool) -> None:
        """Require that there are no more classes than may be; InputError says why."""
        most = self.most_classes(sparse=sparse)
        if found > most:
            what = f"criterion: {self.resolved_criterion}" if most == 2 else "a confidence tree"
            what = "a confidence tree of sparse features" if sparse else what
            raise InputError(message("learners.classes", found=found, what=what, most=most))

    def split_rule(self, d: int) -> SplitRule:
        """Rule that decides when a leaf is split, for d features."""
        delta = None if isinstance(self.delta, str) else self.delta
        practical = self.confidence == "practical"
        settings = delta, self.c, self.tie_threshold
        return SplitRule(self.rule, self.resolved_criterion, practical, *settings, d)

    def promise(self) -> Promise:
        """Theorem 4, where its premises hold."""
        if self.rule != "ctree":
            return Promise(False, message("learners.rule", rule=self.rule))
        limit = _RANGE[self.resolved_criterion]
        ties = {"threshold": self.tie_threshold, "criterion": self.resolved_criterion, "limit": limit}
        lacks = [
            message(f"learners.{reason}", **(ties if reason == "ties" else {}))
            for reason, holds in (
                ("practical", self.confidence == "practical"),
                ("rival", self.rival == "feature"),
                ("falling_delta", self.delta == "1/t"),
                ("ties", 2 * self.tie_threshold >= limit),
                ("renewals", self.renewal > 0),
                ("many_checks", self.grace_period < 20),
                ("many_bins", self.max_bins > 1024),
            )
            if holds
        ]
        if lacks:
            return Promise(False, noted(*lacks))
        if self.tie_threshold:
            given = {"delta": self.delta, "lack": 2 * self.tie_threshold}
            return Promise(True, message("learners.proven_ties", **given))
        return Promise(True, message("learners.proven_splits", delta=self.delta))
