"""FuDyADT: a fully dynamic decision tree (Bressan, Damay, Sozio, AAAI 2023).

Read in this order: ``options``, ``coordinator`` (the path of a batch), ``dynamic_tree`` (UPDATE), ``build`` (BUILD in
one process and over shards), ``build_divided`` (BUILD over threads), ``shard``, ``audit``. What all fully dynamic
trees share is outside of this folder: ``counted_tree``, ``canonical_arrays``, ``tree_coordinator``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.elementary import Arrays, Ints
from raydt.examples.updates import Features, Reading
from raydt.exchange.messages import OWNED, ShardWorker
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits, WorkPlan
from raydt.learners.fudyadt.coordinator import FuDyADTCoordinator, OwnedFuDyADTCoordinator
from raydt.learners.fudyadt.describe import FuDyADTDescription
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fudyadt.shard import FuDyADTShard, OwningFuDyADTShard
from raydt.messages import message
from raydt.trees.canonical_arrays import (
    CERTIFICATE,
    CHOICE,
    CHOICE_OF_NUMBERS,
    RANGE,
    check_number_sums,
    check_tree,
    chosen_smoothing,
    number_arrays,
    state_arrays,
    tree_arrays,
)
from raydt.trees.counted_tree import LabelRange
from raydt.trees.packed_trees import NumberPredictor, TreePredictor
from raydt.trees.state_schema import (
    HELD_OR_MISSING,
    UNIT_ARRAY,
    Schema,
    check_classes,
    check_leaves,
    require,
    unit_of,
    weighed,
    weight_arrays,
    weights_of_state,
)


class FuDyADT(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "fudyadt"
    Options = FuDyADTOptions
    Coordinator = FuDyADTCoordinator
    Description = FuDyADTDescription
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "threshold": "that of a leaf is not used",
        CHOICE.name: "predictions of the past cannot be made again from the tree that there is now",
        "rebuilds": COUNTS_WORK,
        "rebuilt_rows": COUNTS_WORK,
    }

    def oldest(self, what: str, options: Mapping[str, Any]) -> int:
        """All but states whose range of labels was found: before format 3 it was that of the warm-up."""
        found = options.get("criterion") == "squared_error" and not options.get("label_range")
        return 3 if what == "state" and found else 1

    def traits(self, options: FuDyADTOptions) -> Traits:
        """Numbers and categories, also missing ones; any number of classes, or numeric labels."""
        every = options.epsilon == 0  # every update builds the whole tree again, from the live examples
        if options.numeric:
            reading = Reading(missing=True, missing_since=3, regression=True, weights=True)
        else:
            reading = Reading(
                missing=True,
                missing_since=3,
                with_numbers="criterion: squared_error",
                weights=True,
                class_weight=options.weights_by_label,
            )
        balanced = options.class_weight == "balanced"
        return Traits(
            reading,
            warmup=message("learners.needs_classes") if balanced else "",
            least_weight=("min_samples_split", options.min_samples_split),
            divided="large",
            divides_weights=False,
            scouts=True,
            stays=(message("learners.stays"), *((message("learners.stays_hits"),) if options.smooths else ())),
            retrained=every,
            reads="columns",
            owns_rows=True,
        )

    def coordinator(
        self, options: FuDyADTOptions, features: Features, shards: int, plan: WorkPlan
    ) -> FuDyADTCoordinator:
        """The coordinator of rows that are in its process or, with stores of their own, at the shards."""
        kind = FuDyADTCoordinator if plan.shared_store else OwnedFuDyADTCoordinator
        return kind(options, features, shards, plan)

    def shard(self, options: FuDyADTOptions, features: Features, groups: Ints, store: Any = None) -> ShardWorker:
        """The worker that owns ``groups``, and rows unless it shares the coordinator's ``store``."""
        if store is None:
            return OwningFuDyADTShard(options, features, groups)
        return FuDyADTShard(features, groups, store)

    def schema(self, options: FuDyADTOptions, features: Features, model: Arrays, *, state: bool) -> Schema:
        """A tree by nodes, with certificates or without, of classes or of numbers."""
        certified = options.certified and "m0" in model
        if state and options.certified and not certified:
            raise ValueError(message("states.published", array="m0"))
        arrays = tree_arrays(model) + (CERTIFICATE if certified else ())
        weights = UNIT_ARRAY.name in model
        arrays += number_arrays(weights) if options.numeric else ()
        arrays += (CHOICE_OF_NUMBERS if options.numeric else CHOICE,) if CHOICE.name in model else ()
        arrays += (
            state_arrays(options.numeric, weights) + weight_arrays(model, balanced="class_weight" in model)
            if state
            else ()
        )
        return Schema(weighed(arrays) if weights else arrays, (HELD_OR_MISSING,))

    def check_relations(
        self, options: Any, features: Features, model: Arrays, groups: Mapping[int, Arrays] | None, n: Mapping[str, int]
    ) -> None:
        """Require one tree whose leaves count their examples."""
        inner = check_tree(model, features)
        if not options.numeric:
            check_classes(model, "counts", n["labels"])
        else:
            require(n["counted"] == 1, "counts", "states.columns", columns=n["counted"])
            unknown = (groups is not None and n["warmup_left"] > 0) or not model["counts"].any()
            unknown = unknown and bool(np.isnan(model[RANGE]).all())
            require(unknown or LabelRange.of(*model[RANGE].tolist()).known, RANGE, "states.range")
            check_number_sums(model, inner)
        if groups is not None:
            require(n["warmup_left"] == 0 or n["nodes"] == 1, "warmup_left", "states.warmup")
            if OWNED in model:  # owners have the rows, and are asked for them one after the other
                leaf = model.get("leaf", np.empty(0, dtype=np.int32))
                require((model["feature"][leaf[leaf >= 0]] < 0).all(), "leaf", "states.inner_leaf")
                return
            weight = weights_of_state(model) if UNIT_ARRAY.name in model else None
            check_leaves(model, np.zeros_like(model["leaf"]) if options.numeric else model["y"], weight)

    def predictor(self, options: FuDyADTOptions, features: Features, model: Arrays) -> TreePredictor:
        """Predictions of a saved model."""
        predictor = NumberPredictor if options.numeric else TreePredictor
        smoothing = chosen_smoothing(options.smoothing * unit_of(model), model.get(CHOICE.name))
        return predictor(features, model, smoothing)

    def cases(self) -> Sequence[Case]:
        """Rebuilds by the shards and by the coordinator; classes and numbers; missing values; both schedules."""
        numbers = {"criterion": "squared_error"}
        often = {"epsilon": 0.3, "alpha": 0.0, "beta": 0.0, "max_depth": 3}
        return (
            # Shards do every rebuild, and the coordinator keeps no features: the most messages there can be.
            Case("spread", often | {"smoothing": 0.0}, plan=WorkPlan(0, 0, shared_store=False)),
            # The coordinator does small rebuilds, keeps the features of four rows and gathers the others.
            Case("cached", often, classes=3, warmup=6, plan=WorkPlan(36, 4 * 4 * 8, shared_store=False)),
            # Certificates, with rebuilds of both.
            Case("certificate", {"alpha": 0.01, "beta": 0.05}, classes=3, plan=WorkPlan(36, shared_store=False)),
            # The same of numeric labels: of a declared range, and of that of the warm-up.
            Case(
                "numbers, spread",
                often | numbers | {"label_range": (0.0, 4.0)},
                classes=0,
                plan=WorkPlan(0, 0, shared_store=False),
            ),
            Case(
                "numbers, certificate",
                numbers | {"alpha": 0.01, "beta": 0.02},
                classes=0,
                warmup=6,
                plan=WorkPlan(36, 4 * 4 * 8, shared_store=False),
            ),
            # Missing values, with rebuilds of both.
            Case("missing", often, classes=3, missing=True, plan=WorkPlan(36, shared_store=False)),
            Case(
                "numbers, missing",
                often | numbers | {"label_range": (0.0, 4.0)},
                classes=0,
                missing=True,
                plan=WorkPlan(36, 4 * 4 * 8, shared_store=False),
            ),
            # Weights, by both schedules, also of numbers; the coordinator keeps the features of four rows.
            Case(
                "weighted",
                often,
                classes=3,
                missing=True,
                weighted=True,
                plan=WorkPlan(36, 4 * 4 * 8, shared_store=False),
            ),
            Case(
                "numbers, weighted",
                numbers | {"alpha": 0.01, "beta": 0.02},
                classes=0,
                missing=True,
                weighted=True,
                warmup=6,
                plan=WorkPlan(36, 4 * 4 * 8, shared_store=False),
            ),
            Case(
                "weighted, balanced",
                {"alpha": 0.01, "beta": 0.05, "class_weight": "balanced"},
                weighted=True,
                warmup=12,
                plan=WorkPlan(36, shared_store=False),
            ),
        )


LEARNER = FuDyADT()


__all__ = ["LEARNER"]
