"""Options of the sparse best split, the same names in YAML and Python."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from raydt.finders.finder import FinderName
from raydt.learners.base import LearnerOptions, Promise
from raydt.learners.batch_coordinator import ClassWeight
from raydt.messages import message

#: ``auto`` keeps a structure where there are so many seen features for each one of a row (measured
#: in docs/development/results/sparse.md).
STRUCTURE_FROM = 50

#: What ``auto`` goes by: features seen in the warm-up, their ones, and its rows.
MEASURED = ("features", "ones", "rows")

_CRITERION_OF = {"updgini": "gini", "updent": "entropy"}


class BestSplitOptions(LearnerOptions, ClassWeight):
    """The best split over sparse binary features, within (1 + alpha) of the optimum after every update (Tatti)."""

    kind: Literal["best_split"] = "best_split"
    finder: Literal["updgini", "updent", "scan", "auto"] = Field(
        "updgini",
        description="search for the split; updgini, updent: a structure updated in time proportional to the ones of a "
        "row; scan: evaluates every seen feature, exact; auto: chosen from the sparsity of the warm-up",
    )
    criterion: Literal["gini", "entropy"] | None = Field(
        None, description="impurity that the best split minimises; null: the finder's own, or gini for scan and auto"
    )
    alpha: float = Field(
        0.1,
        ge=0.01,
        le=1e3,
        description="the split's score is at most 1 + alpha times the optimum; larger is faster and less exact",
    )
    query_every: int = Field(1, ge=1, description="updates between two searches for the best split")

    @model_validator(mode="after")
    def _consistent(self) -> BestSplitOptions:
        own = _CRITERION_OF.get(self.finder)
        if own is not None and self.criterion not in (None, own):
            other = next(finder for finder, criterion in _CRITERION_OF.items() if criterion == self.criterion)
            given = {"criterion": self.criterion, "finder": self.finder}
            raise ValueError(message("learners.finder_criterion", own=own, other=other, **given))
        return self

    @property
    def entropy(self) -> bool:
        """True if the criterion is the entropy, and not the Gini index."""
        return (self.criterion or _CRITERION_OF.get(self.finder, "gini")) == "entropy"

    @property
    def warmup(self) -> str:
        """The reason for a warm-up, as part of a sentence: ``auto`` chooses, or classes are balanced by it."""
        if self.finder == "auto":
            return message("learners.needs_sparsity")
        return message("learners.needs_classes") if self.class_weight == "balanced" else ""

    @property
    def structure(self) -> FinderName:
        """The finder with a structure for this criterion."""
        return "updent" if self.entropy else "updgini"

    def chosen(self, seen: int, ones: int, rows: int) -> FinderName:
        """Return the finder; for ``auto`` by the features ``seen`` in the warm-up, their ``ones``, and ``rows``."""
        if self.finder != "auto":
            return self.finder
        return self.structure if ones and seen * rows >= STRUCTURE_FROM * ones else "scan"

    def promise(self) -> Promise:
        """Propositions 4.2 and 5.2; a scan is exact."""
        if self.finder == "scan":
            return Promise(True, message("learners.scan"))
        return Promise(True, message("learners.structure", bound=1 + self.alpha))
