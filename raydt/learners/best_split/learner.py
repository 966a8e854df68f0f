"""The sparse best split as one of the learners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from raydt.examples.reading import Reading
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits
from raydt.learners.best_split import checks
from raydt.learners.best_split.coordinator import BestSplitCoordinator
from raydt.learners.best_split.describe import BestSplitDescription
from raydt.learners.best_split.model import BestSplitPredictor
from raydt.learners.best_split.options import BestSplitOptions
from raydt.learners.best_split.shard import BestSplitShard


class BestSplit(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "best_split"
    Options = BestSplitOptions
    Coordinator = BestSplitCoordinator
    Shard = BestSplitShard
    Description = BestSplitDescription
    Predictor = BestSplitPredictor
    check_model = staticmethod(checks.check_split)
    check_state = staticmethod(checks.check_state)
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "warmup": "nothing is left of it once it has ended",
        "measured": COUNTS_WORK,
        "changes": COUNTS_WORK,
        "searched": COUNTS_WORK,
        "moves": COUNTS_WORK,
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

    def cases(self) -> Sequence[Case]:
        """Every finder."""
        return tuple(
            Case(finder, {"finder": finder, "query_every": 2}, dense=False, sparse=True, warmup=6 * (finder == "auto"))
            for finder in ("updgini", "updent", "scan", "auto")
        )


LEARNER = BestSplit()
