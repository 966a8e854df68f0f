"""Confidence trees: C-Tree, VFDT's Hoeffding tree, CorrH-Tree and McDiarmid's bound, under deletions.

A leaf is split once a confidence interval says that the best split is better than its rival (De Rosa, Cesa-Bianchi).
The path of one update: ``coordinator`` -> ``tree`` (who counts it) -> ``shard`` / ``statistics`` (counts, candidates,
naive Bayes) -> ``dynamic_tree`` / ``bounds`` (the rule) -> ``naive_bayes`` and ``leaf_predictions`` -> ``tree`` again
(the split). ``audit`` recomputes it all (``recompute``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raydt.examples.updates import Features, Reading
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits
from raydt.learners.confidence_tree.coordinator import ConfidenceTreeCoordinator
from raydt.learners.confidence_tree.describe import COUNTS, ConfidenceTreeDescription
from raydt.learners.confidence_tree.naive_bayes import ADAPTIVE
from raydt.learners.confidence_tree.options import WARMUP, ConfidenceTreeOptions
from raydt.learners.confidence_tree.schema import check_naive, check_state, schema_of
from raydt.learners.confidence_tree.shard import ConfidenceTreeShard
from raydt.learners.confidence_tree.tree import NaivePredictor, filled
from raydt.messages import Message, message
from raydt.trees.records import masses_of
from raydt.trees.state_schema import (
    AnyInts,
    Arrays,
    Schema,
    check_classes,
    check_leaves,
    check_sums,
    check_trees,
    require,
    unit_of,
)


class ConfidenceTree(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "confidence_tree"
    Options = ConfidenceTreeOptions
    Coordinator = ConfidenceTreeCoordinator
    Shard = ConfidenceTreeShard
    Description = ConfidenceTreeDescription
    Predictor = NaivePredictor
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "threshold": "that of a leaf is not used",
        "place": "that of a node which has counted nothing may be any free one",
        "checks": COUNTS_WORK,
        "splits": COUNTS_WORK,
        "ties": COUNTS_WORK,
        "was_right": "predictions of the past cannot be made again from the tree that there is now",
    }

    def schema(self, options: ConfidenceTreeOptions, features: Features, model: Arrays, *, state: bool) -> Schema:
        """A tree by nodes, records of its splits, bins once the warm-up is over, and counts by node."""
        return schema_of(options, model, sparse=features.sparse > 0, state=state)

    def check_relations(
        self, options: Any, features: Features, model: Arrays, groups: Mapping[int, Arrays] | None, n: Mapping[str, int]
    ) -> None:
        """Require one tree, in whose model empty leaves have the counts of nodes above them."""
        inner = check_trees(model)
        at = model["threshold"][inner]
        require(not (np.isnan(at) | np.isneginf(at)).any(), "threshold", "states.threshold")
        check_classes(model, "counts", n["labels"])
        if groups is not None:
            check_sums(model, "counts", inner)
            check_leaves(*_leaves(model))
            check_state(options, features, model, groups, n)
        elif "naive_leaf" in model:
            check_naive(features, model, n)

    def model_within(self, options: ConfidenceTreeOptions, features: Features, state: Any) -> dict[str, Any] | None:
        """Return the tree; None where leaves predict by naive Bayes, whose counts the shards make from the rows."""
        return filled(state) if options.leaf_prediction == "majority" else None

    def oldest(self, what: str, options: Mapping[str, Any]) -> int:
        """Return the options of this format from those of format 2."""
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
                weights=True,
                class_weight=options.weights_by_label,
            ),
            warmup=WARMUP,
            least_weight=("grace_period", options.grace_period),
            rebuilds=False,
            counts=COUNTS,
            stays=_stays(options),
            unused=options.unused,
            reports_within=True,
        )

    def outlook(self, options: ConfidenceTreeOptions, warmup: int) -> str:
        """Return a warning of few first rows for bins that stay, else of a model that cannot be explained."""
        few = options.outlook(warmup)
        return few or (message("learners.unexplained") if options.leaf_prediction != "majority" else "")

    def cases(self) -> Sequence[Case]:
        """Bins that are renewed, leaves of one kind, and sparse features."""
        hasty = {"c": 0.001, "grace_period": 1, "leaf_prediction": "adaptive"}
        slow = {"rule": "hoeffding", "delta": 0.5, "grace_period": 3, "leaf_prediction": "adaptive"}
        normal = hasty | {"leaf_prediction": "adaptive_normal", "max_bins": 32, "renew_bins": 20}
        inherited = normal | {"leaf_prediction": "adaptive_inherited", "grace_period": 3}
        renewing = hasty | {"renew_bins": 3}
        return (
            Case("missing", hasty, missing=True, warmup=6),
            Case("three classes", slow, classes=3, warmup=6),
            Case("weights", renewing, sparse=True, weighted=True, warmup=6, many=renewing),  # steps are rolled back
            Case("balanced", hasty | {"class_weight": "balanced"}, missing=True, warmup=6),
            Case("renewed bins", hasty | {"renew_bins": 3, "max_bins": 32}, missing=True, warmup=6),
            Case("majority leaves", hasty | {"leaf_prediction": "majority", "renew_bins": 3}, sparse=True, warmup=6),
            Case("normal leaves", normal, missing=True, classes=3, warmup=6),
            Case("inherited leaves", inherited, sparse=True, warmup=6),
            Case("exact finder", hasty | {"criterion": "entropy"}, sparse=True, warmup=6),
        )


def _leaves(state: Arrays) -> tuple[Arrays, AnyInts, AnyInts | None]:
    """Return a state as ``check_leaves`` takes it: here examples that weigh 0 are in a leaf, too."""
    if unit_of(state) == 1:
        return state, state["y"], None
    mass, leaf = masses_of(state), state["leaf"]
    require((state["feature"][leaf] < 0).all(), "leaf", "states.inner_leaf")
    return {**state, "leaf": np.where(mass > 0, leaf, -1)}, state["y"], mass


def _stays(options: ConfidenceTreeOptions) -> tuple[Message, ...]:
    """Return what stays in a tree of examples that are deleted."""
    bins = message("learners.stays_renewal" if options.renewal else "learners.stays_bins")
    chosen = (message("learners.stays_choices"),) if options.leaf_prediction in ADAPTIVE else ()
    return message("learners.stays_records"), bins, *chosen


LEARNER = ConfidenceTree()


__all__ = ["LEARNER"]
