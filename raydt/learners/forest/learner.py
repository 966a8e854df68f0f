"""The exact forest as one of the learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.examples.reading import Reading
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits
from raydt.learners.forest import checks
from raydt.learners.forest.coordinator import ForestCoordinator
from raydt.learners.forest.describe import ForestDescription
from raydt.learners.forest.model import ForestPredictor
from raydt.learners.forest.options import ForestOptions
from raydt.learners.forest.shard import ForestShard


class Forest(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "forest"
    Options = ForestOptions
    Coordinator = ForestCoordinator
    Description = ForestDescription
    Predictor = ForestPredictor
    check_model = staticmethod(checks.check_model)
    check_state = staticmethod(checks.check_state)
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "warmup": "nothing is left of it once it has ended",
        "rebuilds": COUNTS_WORK,
        "rebuilt_rows": COUNTS_WORK,
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

    def shard(
        self, options: ForestOptions, features: Features, groups: npt.NDArray[np.int64], store: Any = None
    ) -> ForestShard:
        """The worker that owns ``groups``."""
        return ForestShard(options, features, groups, store)

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
