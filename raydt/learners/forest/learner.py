"""The exact forest as one of the learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.reading import Reading
from raydt.learners.audit_report import AuditReport
from raydt.learners.base import Case, Learner, Traits, WorkPlan
from raydt.learners.forest.checks import check_model, check_state
from raydt.learners.forest.coordinator import ForestCoordinator
from raydt.learners.forest.describe import ForestDescription
from raydt.learners.forest.model import ForestPredictor
from raydt.learners.forest.options import ForestOptions
from raydt.learners.forest.shard import ForestShard

Arrays = dict[str, "npt.NDArray[Any]"]


class Forest(Learner):
    """Makes the two halves of the learner, its predictor and its audit."""

    kind = "forest"
    Options = ForestOptions
    unproven: ClassVar[dict[str, str]] = {
        "seq": "queries and refused updates are counted, which leave nothing behind",
        "warmup": "nothing is left of it once it has ended",
        "rebuilds": "counts work that was done, which the result does not depend on",
        "rebuilt_rows": "counts work that was done, which the result does not depend on",
    }

    def oldest(self, what: str, options: Mapping[str, Any]) -> int:
        """All but states of numeric labels, which format 1 rounds to fewer bits."""
        return 2 if what == "state" and options.get("criterion") == "squared_error" else 1

    def traits(self, options: ForestOptions) -> Traits:
        """Numbers and categories, also missing ones; any number of classes, or numeric labels."""
        return Traits(
            Reading(
                regression=options.numeric,
                missing=True,
                by_value=True,
                with_numbers="" if options.numeric else "criterion: squared_error",
            ),
            retrained=True,
            parts=options.n_estimators,
            erases=True,
            divided="always",
            rebuilds=options.rebuild == "eager",
            stays=(),
        )

    def describe(self, options: Mapping[str, Any]) -> ForestDescription:
        """The trees in numbers, and their rebuilds."""
        return ForestDescription(lazy=options.get("rebuild") == "lazy", trees=int(options.get("n_estimators", 0)))

    def outlook(self, options: ForestOptions, warmup: int) -> str:
        """In how many trees an example lives."""
        return f"{options.copies:,} of {options.n_estimators:,} trees hold each example"

    def coordinator(self, options: ForestOptions, features: Features, shards: int, plan: WorkPlan) -> ForestCoordinator:
        """The coordinator for ``shards`` shards."""
        return ForestCoordinator(options, features, shards, plan)

    def shard(
        self, options: ForestOptions, features: Features, groups: npt.NDArray[np.int64], store: Any = None
    ) -> ForestShard:
        """The worker that owns ``groups``."""
        return ForestShard(options, features, groups, store)

    def check(
        self,
        options: ForestOptions,
        features: Features,
        classes: int,
        model: Arrays,
        groups: Mapping[int, Arrays] | None,
    ) -> None:
        """Require of saved arrays what the kernels rely on."""
        if groups is None:
            check_model(model, options, features, classes)
        else:
            check_state(model, groups, options, features, classes)

    def predictor(self, options: ForestOptions, features: Features, model: Arrays) -> ForestPredictor:
        """Predictions of a saved model."""
        return ForestPredictor(features, model)

    def audit(
        self,
        options: ForestOptions,
        features: Features,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays],
    ) -> AuditReport:
        """Prove or refute that a state is the forest of its live examples."""
        from raydt.learners.forest.audit import audit

        return audit(options, features, state, history)

    def cases(self) -> Sequence[Case]:
        """Two classes, three, and numbers; missing values; rebuilt at once or later; with and without a warm-up."""
        small = {"n_estimators": 6, "sample_share": 0.5, "max_features": 2, "thresholds": 2, "min_samples_split": 2}
        deep = small | {"max_depth": 70, "sample_share": 1.0, "n_estimators": 3}
        return (
            Case("two classes", small, missing=True),
            Case("three classes", small | {"rebuild": "lazy"}, classes=3, warmup=12),
            Case("every tree has every example", deep | {"max_features": "all", "thresholds": 5}, classes=3, warmup=6),
            Case("numbers", small | {"criterion": "squared_error"}, classes=0, missing=True, warmup=6),
        )

    def concerns(self, case: Case, options: ForestOptions) -> bool:
        """Kernels are compiled for classes, or for numbers."""
        return (case.classes == 0) == options.numeric


LEARNER = Forest()
