"""The in-place online GBDT as one of the learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from raydt.examples.features import Features
from raydt.examples.reading import Reading
from raydt.examples.targets import MOST_CLASSES
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits, WorkPlan
from raydt.learners.batch_coordinator import Arrays
from raydt.learners.gbdt import checks
from raydt.learners.gbdt.coordinator import GBDTCoordinator
from raydt.learners.gbdt.describe import GBDTDescription
from raydt.learners.gbdt.model import saved_predictor
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.retraining import outlook
from raydt.learners.gbdt.shard import GBDTShard


class GBDT(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "gbdt"
    Options = GBDTOptions
    Coordinator = GBDTCoordinator
    Shard = GBDTShard
    Description = GBDTDescription
    check_model = staticmethod(checks.check_model)
    check_state = staticmethod(checks.check_state)
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "warmup": "nothing is left of it once it has ended",
        "rebuilds": COUNTS_WORK,
        "rebuilt_rows": COUNTS_WORK,
        "bins_ranks": "those of numbers are not used",
        "bins_default": "any bin may be the one whose sums are not stored",
        "node_feature": "another split that parts the rows alike is as good",
        "node_cut": "that of a leaf is not used, and another that parts the rows alike is as good",
        "node_tried_g": "of an earlier time: it decides when a leaf that could not grow is tried again",
        "node_tried_h": "of an earlier time: it decides when a leaf that could not grow is tried again",
        "trained": "another end of the last training that leaves the same rows gives the same bins",
        "trained_rows": "of an earlier time: it decides when the trees are trained again",
        "changes": "counted since then: it decides when the trees are trained again",
        "work": "of the last update in place: it decides when the trees are trained again",
        "work_changes": "of the last update in place: it decides when the trees are trained again",
        "trainings": COUNTS_WORK,
        "drift": "of earlier times: it decides when derivatives are compared with the scores, which the audit does",
        "node_above": "of earlier times, as drift",
        "node_below": "of earlier times, as drift",
    }

    def oldest(self, what: str, options: Mapping[str, Any]) -> int:
        """All models, and states with the bins of format 2."""
        return 2 if what == "state" else 1

    def traits(self, options: GBDTOptions) -> Traits:
        """Dense and sparse features, missing values, classes or numbers; a batch D' at a time."""
        binary = options.objective == "binary"
        most = 2 if binary else MOST_CLASSES
        return Traits(
            Reading(
                regression=options.regression,
                missing=True,
                sparse=True,
                classes=most,
                sparse_classes=most,
                with_numbers="" if options.regression else "objective: squared_error",
                with_classes="objective: multiclass" if binary else "",
            ),
            warmup="builds its first model of the first rows at once",
            collects_updates=True,
            counts=("trainings",),
            unused=options.unused,
            stays=(
                "the model itself: splits chosen while they were in stay while they are among the best, values of "
                "leaves follow from derivatives that were computed with them, and bins were made from all rows of the "
                "last training of all trees",
            ),
        )

    def outlook(self, options: GBDTOptions, warmup: int) -> str:
        """What a batch D' costs, and how often all trees are trained again."""
        return outlook(options, warmup)

    def predictor(self, options: GBDTOptions, features: Features, model: Arrays) -> Any:
        """Predictions of a saved model."""
        return saved_predictor(model, options, features)

    def cases(self) -> Sequence[Case]:
        """Classes and numbers, every kind of derivatives, trained again or not, dense and sparse features."""
        small = {"max_iter": 3, "max_leaf_nodes": 4, "update_every": 5, "max_bins": 8, "candidate_fraction": 0.5}
        numbers = small | {"objective": "squared_error"}
        outgrown = WorkPlan(row_cache_bytes=150 * 8, shared_store=False)  # the coordinator begins, shards go on
        updated = {"retrain": "never"}
        retrained, changed = updated | {"derivatives": "retrained"}, updated | {"derivatives": "changed_leaves"}
        never = updated | {"derivatives": "never", "robustness_tolerance": 0.0}
        return (
            Case("two classes", small | {"early_stopping": True}, missing=True, warmup=20, plan=outgrown),
            Case("two classes, updated", small | retrained | {"early_stopping": True}, missing=True, warmup=20),
            Case("three classes", small | {"derivative_tolerance": 0.5} | updated, sparse=True, classes=3, warmup=12),
            Case("three classes, updated", small | changed, sparse=True, classes=3, warmup=12),
            Case("numbers", numbers | {"update_every": "auto"}, classes=0, warmup=12),
            Case("numbers, updated", numbers | never, classes=0, warmup=12),
        )


LEARNER = GBDT()
