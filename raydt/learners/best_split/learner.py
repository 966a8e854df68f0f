"""The sparse best split as one of the learners."""

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
from raydt.learners.best_split.checks import check_split, check_state
from raydt.learners.best_split.coordinator import BestSplitCoordinator
from raydt.learners.best_split.describe import BestSplitDescription
from raydt.learners.best_split.model import BestSplitPredictor
from raydt.learners.best_split.options import BestSplitOptions
from raydt.learners.best_split.shard import BestSplitShard

Arrays = dict[str, "npt.NDArray[Any]"]


class BestSplit(Learner):
    """Makes the two halves of the learner, its predictor and its audit."""

    kind = "best_split"
    Options = BestSplitOptions
    unproven: ClassVar[dict[str, str]] = {
        "seq": "queries and refused updates are counted, which leave nothing behind",
        "warmup": "nothing is left of it once it has ended",
        "measured": "counts work that was done, which the result does not depend on",
        "changes": "counts work that was done, which the result does not depend on",
        "searched": "counts work that was done, which the result does not depend on",
        "moves": "counts work that was done, which the result does not depend on",
        "bucket": "intervals overlap: a feature may be in either of two",
    }

    def traits(self, options: BestSplitOptions) -> Traits:
        """Sparse features only, and two classes: a finder compares two."""
        return Traits(
            Reading(sparse=True, needs_sparse=True, dense=False, classes=2, sparse_classes=2),
            warmup=options.warmup,
            rebuilds=False,
            counts=("changes", "moves"),
            levels=("buckets",),
            stays=(
                "the model itself: a split that was chosen while they were in stays until the next search, and which "
                "bucket a feature lies in, within its limits, depends on the updates before",
            ),
        )

    def describe(self, options: Mapping[str, Any]) -> BestSplitDescription:
        """The split, and how it was searched."""
        return BestSplitDescription(options)

    def coordinator(
        self, options: BestSplitOptions, features: Features, shards: int, plan: WorkPlan
    ) -> BestSplitCoordinator:
        """The coordinator for ``shards`` shards."""
        return BestSplitCoordinator(options, features, shards, plan)

    def shard(
        self, options: BestSplitOptions, features: Features, groups: npt.NDArray[np.int64], store: Any = None
    ) -> BestSplitShard:
        """The worker that owns ``groups``; it keeps their features itself."""
        return BestSplitShard(options, features, groups)

    def check(
        self,
        options: BestSplitOptions,
        features: Features,
        classes: int,
        model: Arrays,
        groups: Mapping[int, Arrays] | None,
    ) -> None:
        """Require of saved arrays what the kernels rely on."""
        if features.names:
            raise ValueError("its features are not all sparse")
        if groups is None:
            check_split(model, features)
        else:
            check_state(model, groups, options, features, classes)

    def predictor(self, options: BestSplitOptions, features: Features, model: Arrays) -> BestSplitPredictor:
        """Predictions of a saved model."""
        return BestSplitPredictor(model, features.sparse)

    def audit(
        self,
        options: BestSplitOptions,
        features: Features,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays],
    ) -> AuditReport:
        """Prove or refute what the method promises of a state."""
        from raydt.learners.best_split.audit import audit

        return audit(options, features, state, history, groups)

    def cases(self) -> Sequence[Case]:
        """Every finder."""
        return tuple(
            Case(finder, {"finder": finder, "query_every": 2}, dense=False, sparse=True, warmup=6 * (finder == "auto"))
            for finder in ("updgini", "updent", "scan", "auto")
        )


LEARNER = BestSplit()
