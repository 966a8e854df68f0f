"""The exact forest: after any updates, bit for bit the forest trained from nothing on the live examples.

Read in this order: ``options``, ``candidates`` (the best split of some rows), ``build`` (a tree, and the insertion or
deletion of one row), ``trees`` (which trees an example lives in, and a batch), ``shard``, ``coordinator`` (the path of
a batch), ``model``, ``audit``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.elementary import Ints
from raydt.examples.digest import DIGEST_2, DIGEST_3
from raydt.examples.updates import LARGEST_SUM, Features, Reading
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits
from raydt.learners.forest.coordinator import ForestCoordinator
from raydt.learners.forest.describe import ForestDescription
from raydt.learners.forest.labels import (
    COARSE_BITS,
    LABEL_BITS,
    LEAST_EXPONENT,
    MOST_WEIGHT,
    PLAIN,
    SUMS,
    canonical_sums,
)
from raydt.learners.forest.model import ForestPredictor, depths_of
from raydt.learners.forest.options import ForestOptions
from raydt.learners.forest.shard import ForestShard
from raydt.messages import message
from raydt.trees.state_schema import (
    EXAMPLES,
    HELD_OR_MISSING,
    UNIT_ARRAY,
    Array,
    Arrays,
    Schema,
    check_classes,
    check_trees,
    counter,
    finite,
    require,
    row_arrays,
    unit_of,
    weighed,
    weight_arrays,
)

_TREES = (
    Array("tree_nodes", np.int64, ("trees",), 1, EXAMPLES),
    Array("feature", np.int32, ("nodes",), -1, "features"),
    finite("threshold", "nodes"),
    Array("left", np.int32, ("nodes",), -1, "nodes"),
    Array("right", np.int32, ("nodes",), -1, "nodes"),
    Array("totals", np.int64, ("nodes", "counted")),
)
_ORDER = Array("order", np.int64, ("counted",), 0, "counted", unique=True)
_EXPONENT = counter("exponent", LEAST_EXPONENT, 1025)


class Forest(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "forest"
    Options = ForestOptions
    Coordinator = ForestCoordinator
    Description = ForestDescription
    Predictor = ForestPredictor
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "warmup": "nothing is left of it once it has ended",
        "rebuilds": COUNTS_WORK,
        "rebuilt_rows": COUNTS_WORK,
    }

    def oldest(self, what: str, options: Mapping[str, Any]) -> int:
        """All but states of numeric labels, which format 1 rounds to fewer bits."""
        return 2 if what == "state" and options.get("criterion") == "squared_error" else 1

    def schema(self, options: ForestOptions, features: Features, model: Arrays, *, state: bool) -> Schema:
        """Trees by nodes; the trees of a state follow from its rows."""
        numeric = options.numeric
        arrays: tuple[Array, ...] = _TREES + ((_EXPONENT,) if numeric else (_ORDER,))
        totals = tuple(map(counter, ("seq", "warmup", "rebuilds", "rebuilt_rows")))
        rows = row_arrays(numeric, "counted") + weight_arrays(model, balanced="class_weight" in model)
        arrays += totals + rows if state else ()
        return Schema(weighed(arrays) if UNIT_ARRAY.name in model else arrays, (HELD_OR_MISSING,))

    def check_relations(
        self, options: Any, features: Features, model: Arrays, groups: Mapping[int, Arrays] | None, n: Mapping[str, int]
    ) -> None:
        """Require trees in preorder, not too deep, with sums and counts by which predictions stay finite."""
        nodes, totals = model["tree_nodes"], model["totals"]
        trees, depth = options.n_estimators, options.max_depth
        require(len(nodes) == trees, "tree_nodes", "states.option", option="n_estimators", value=trees)
        inner = check_trees(model, nodes)
        fits = depths_of(model).max(initial=0) <= depth
        require(fits, "right", "states.option", option="max_depth", value=depth)
        numeric, weights = options.numeric, unit_of(model) > 1
        counts = totals[:, :1] if numeric else totals
        limit = (MOST_WEIGHT if numeric else LARGEST_SUM) + 1 if weights else EXAMPLES
        require(((counts >= 0) & (counts < limit)).all(), "totals", "states.impossible")
        first = np.repeat(np.cumsum(nodes) - nodes, nodes)[inner]
        both, above = totals[inner + 1] + totals[first + model["right"][inner]], totals[inner]
        if numeric and weights and n["counted"] == SUMS:
            both = canonical_sums(both)
        require(np.array_equal(above, both), "totals", "states.children")
        children = np.setdiff1d(np.arange(len(counts)), np.cumsum(nodes) - nodes)
        require(counts[children].any(axis=1).all(), "totals", "states.empty")
        if numeric:
            columns = (2, SUMS) if weights else (3, PLAIN)
            require(n["counted"] in columns, "totals", "states.columns", columns=n["counted"])
            fine = not weights and n["counted"] == PLAIN
            most = counts[:, 0] * 2.0 ** (LABEL_BITS if fine else COARSE_BITS)
            possible = (np.abs(totals[:, 1]) <= most) & (not weights or (totals[:, 2:] >> COARSE_BITS == 0).all(axis=1))
            require(possible.all(), "totals", "states.impossible")
        else:
            check_classes(model, "totals", n["labels"])

    def traits(self, options: ForestOptions) -> Traits:
        """Numbers and categories, also missing ones; any number of classes, or numeric labels."""
        return Traits(
            Reading(
                regression=options.numeric,
                missing=True,
                by_value=True,
                with_numbers="" if options.numeric else "criterion: squared_error",
                weights=True,
                class_weight=options.weights_by_label,
            ),
            warmup=message("learners.needs_classes") if options.class_weight == "balanced" else "",
            least_weight=("min_samples_split", options.min_samples_split),
            retrained=True,
            reads="rows",
            parts=options.n_estimators,
            shard_threads=True,
            erases=True,
            digests=(DIGEST_3, DIGEST_2),
            divided="always",
            rebuilds=options.rebuild == "eager",
            stays=(),
        )

    def describe(self, options: Mapping[str, Any]) -> ForestDescription:
        """The trees in numbers, and their rebuilds."""
        return ForestDescription(
            lazy=options.get("rebuild") in ("auto", "lazy"), trees=int(options.get("n_estimators", 0))
        )

    def outlook(self, options: ForestOptions, warmup: int) -> str:
        """In how many trees an example lives."""
        return message("learners.copies", copies=options.copies, trees=options.n_estimators)

    def shard(self, options: ForestOptions, features: Features, groups: Ints, store: Any = None) -> ForestShard:
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
            Case("weighted", small, classes=3, missing=True, weighted=True),
            Case(
                "weighted, balanced", small | {"class_weight": "balanced", "rebuild": "lazy"}, weighted=True, warmup=12
            ),
            Case("numbers", small | {"criterion": "squared_error"}, classes=0, missing=True, warmup=6),
            Case("numbers, weighted", small | {"criterion": "squared_error"}, classes=0, missing=True, weighted=True),
        )


LEARNER = Forest()


__all__ = ["LEARNER"]
