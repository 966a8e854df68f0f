"""The confidence tree as one of the learners."""

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
from raydt.learners.confidence_tree.checks import check_model, check_state
from raydt.learners.confidence_tree.coordinator import ConfidenceTreeCoordinator
from raydt.learners.confidence_tree.describe import COUNTS, ConfidenceTreeDescription
from raydt.learners.confidence_tree.naive_predictor import NaivePredictor
from raydt.learners.confidence_tree.options import WARMUP, ConfidenceTreeOptions
from raydt.learners.confidence_tree.shard import ConfidenceTreeShard

Arrays = dict[str, "npt.NDArray[Any]"]


class ConfidenceTree(Learner):
    """Makes the two halves of the learner, its predictor and its audit."""

    kind = "confidence_tree"
    Options = ConfidenceTreeOptions
    unproven: ClassVar[dict[str, str]] = {
        "seq": "queries and refused updates are counted, which leave nothing behind",
        "threshold": "that of a leaf is not used",
        "place": "any negative number is none",
        "checks": "counts work that was done, which the result does not depend on",
        "splits": "counts work that was done, which the result does not depend on",
        "ties": "counts work that was done, which the result does not depend on",
        "restarted": "counts work that was done, which the result does not depend on",
        "was_right": "predictions of the past cannot be made again from the tree that there is now",
        **{
            f"trial_{name}": "tallies of predictions of the past, which cannot be made again"
            for name in ("seen", "wrong", "seen_before", "wrong_before", "better", "worse")
        },
        "trial_place": "any negative number is none",
    }

    def oldest(self, what: str, options: Mapping[str, Any]) -> int:
        """Those with the options of format 2."""
        return 2

    def traits(self, options: ConfidenceTreeOptions) -> Traits:
        """Dense and sparse features, missing values."""
        return Traits(
            Reading(
                missing=True,
                sparse=True,
                classes=options.most_classes(sparse=False),
                sparse_classes=options.most_classes(sparse=True),
                with_classes="criterion: gini" if options.criterion == "kearns_mansour" else "",
            ),
            warmup=WARMUP,
            rebuilds=False,
            counts=COUNTS,
            stays=(_stays(options),),
            unused=options.unused,
            reports_within=True,
        )

    def outlook(self, options: ConfidenceTreeOptions, warmup: int) -> str:
        """Whether the first rows are few for bins that stay."""
        return options.outlook(warmup)

    def describe(self, options: Mapping[str, Any]) -> ConfidenceTreeDescription:
        """The tree, and what decided its splits."""
        return ConfidenceTreeDescription(options)

    def coordinator(
        self, options: ConfidenceTreeOptions, features: Features, shards: int, plan: WorkPlan
    ) -> ConfidenceTreeCoordinator:
        """The coordinator for ``shards`` shards."""
        return ConfidenceTreeCoordinator(options, features, shards, plan)

    def shard(
        self, options: ConfidenceTreeOptions, features: Features, groups: npt.NDArray[np.int64], store: Any = None
    ) -> ConfidenceTreeShard:
        """The worker that owns ``groups``; it keeps their columns itself."""
        return ConfidenceTreeShard(options, features, groups)

    def check(
        self,
        options: ConfidenceTreeOptions,
        features: Features,
        classes: int,
        model: Arrays,
        groups: Mapping[int, Arrays] | None,
    ) -> None:
        """Require of saved arrays what the kernels rely on."""
        if groups is None:
            check_model(model, features, classes)
        else:
            check_state(model, groups, options, features, classes)

    def predictor(self, options: ConfidenceTreeOptions, features: Features, model: Arrays) -> NaivePredictor:
        """Predictions of a saved model."""
        return NaivePredictor(features, model)

    def audit(
        self,
        options: ConfidenceTreeOptions,
        features: Features,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays],
    ) -> AuditReport:
        """Prove or refute what the method promises of a state."""
        from raydt.learners.confidence_tree.audit import audit

        return audit(options, features, state, history, groups)

    def cases(self) -> Sequence[Case]:
        """Nodes that are restarted, bins that are renewed, leaves of one kind, and sparse features."""
        hasty = {"c": 0.001, "grace_period": 1}
        return (
            Case("drift", hasty | {"drift_period": 2}, missing=True, warmup=6),
            Case("three classes", {"rule": "hoeffding", "delta": 0.5, "grace_period": 3}, classes=3, warmup=6),
            Case("renewed bins", hasty | {"renew_bins": 3, "max_bins": 32}, missing=True, warmup=6),
            Case("majority leaves", hasty | {"leaf_prediction": "majority", "renew_bins": 3}, sparse=True, warmup=6),
            Case("exact finder", hasty | {"drift_period": 3, "criterion": "entropy"}, sparse=True, warmup=6),
        )


def _stays(options: ConfidenceTreeOptions) -> str:
    """What stays in a tree of examples that are deleted."""
    splits = "the model itself: splits that were chosen while they were in stay, with the records of what decided them"
    until = ", until their node is restarted (drift_period), as do its tallies of errors"
    bins = "; so do bins that were made while they were in"
    renewed = ", until these are made again (renew_bins)"
    chosen = ", and which prediction of a leaf was right about other examples"
    parts = (
        *((splits, True), (until, options.drift_period > 0)),
        *((bins, True), (renewed, options.renewal > 0), (chosen, options.leaf_prediction == "adaptive")),
    )
    return "".join(part for part, holds in parts if holds)


LEARNER = ConfidenceTree()
