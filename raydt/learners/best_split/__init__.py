"""The best split over sparse binary features, kept under insertions and deletions (Tatti).

Read in this order: ``options``, ``coordinator`` (the path of a batch, when the split is searched, and the shard),
``raydt.finders`` (the search), ``audit``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import Features, Reading
from raydt.finders.pool import buckets_of
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits
from raydt.learners.best_split.coordinator import (
    FINDERS,
    SCALARS,
    UNDECIDED,
    BestSplitCoordinator,
    BestSplitPredictor,
    BestSplitShard,
)
from raydt.learners.best_split.describe import BestSplitDescription
from raydt.learners.best_split.options import BestSplitOptions
from raydt.messages import message
from raydt.trees.records import masses_of
from raydt.trees.state_schema import (
    EXAMPLES,
    HELD,
    UNIT_ARRAY,
    Array,
    Arrays,
    Schema,
    check_counters,
    check_weights,
    counter,
    of_weights,
    require,
    row_arrays,
    unit_of,
    weighed,
    weight_arrays,
)

#: Counters of a feature group, by feature.
_COUNTERS = (
    *(Array(name, np.int32, ("counters",)) for name in ("feature", "n1", "c11")),
    Array("bucket", np.int16, ("counters",)),
)


class BestSplit(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "best_split"
    Options = BestSplitOptions
    Coordinator = BestSplitCoordinator
    Shard = BestSplitShard
    Description = BestSplitDescription
    Predictor = BestSplitPredictor
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "warmup": "nothing is left of it once it has ended",
        "measured": COUNTS_WORK,
        "changes": COUNTS_WORK,
        "searched": COUNTS_WORK,
        "moves": COUNTS_WORK,
        "bucket": "intervals overlap: a feature may be in either of two",
    }

    def schema(self, options: BestSplitOptions, features: Features, model: Arrays, *, state: bool) -> Schema:
        """The split, and counters by sparse feature."""
        declared, masses = (weighed, of_weights) if UNIT_ARRAY.name in model else (tuple, tuple)
        split = (Array("split", np.int64, (5,), -1, EXAMPLES),)
        if not state:
            return Schema(declared(split))
        lows = {"finder": UNDECIDED}
        totals = (counter(name, lows.get(name, 0)) for name in SCALARS)
        arrays = (*split, *totals, Array("measured", np.int64, (3,), 0), *row_arrays(False))
        group = (HELD, *_COUNTERS, Array("node", np.int64, (3,), UNDECIDED, EXAMPLES))
        weights = weight_arrays(model, balanced="class_weight" in model)
        return Schema((*declared(arrays), *weights), masses(group))

    def check_relations(
        self, options: Any, features: Features, model: Arrays, groups: Mapping[int, Arrays] | None, n: Mapping[str, int]
    ) -> None:
        """Require a split by a sparse feature or by none, a finder of the options, and counters of the rows."""
        require(not features.names, "split", "states.sparse_only")
        feature, rows, c1, n1, c11 = model["split"].tolist()
        fits = 0 <= c11 <= n1 <= rows and 0 <= c1 - c11 <= rows - n1 and feature < n["sparse"]
        require(fits and (n1 > 0) == (feature >= 0), "split", "states.impossible")
        if groups is None:
            return
        waits, finder = n["seq"] < n["warmup"], n["finder"]
        require(n["searched"] <= n["seq"], "searched", "states.exceeds", other="'seq'")
        allowed = (options.structure, "scan") if options.finder == "auto" else (options.finder,)
        undecided = finder == UNDECIDED and options.finder == "auto" and waits
        require(
            undecided or finder in map(FINDERS.index, allowed),
            "finder",
            "states.option",
            option="finder",
            value=options.finder,
        )
        require((model["y"] < 2).all(), "y", "states.unknown", what="class")
        taken, mass = (rows[: 0 if waits else None] for rows in (model["y"], masses_of(model)))
        weighted = unit_of(model) > 1
        check_weights(model, None if waits else options.class_weight == "balanced")
        buckets = 0
        if FINDERS[finder] != "scan" and not undecided:
            buckets = len(buckets_of(FINDERS[finder], options.alpha, masses=weighted).s)
        filled = 0
        for group in groups.values():
            ones = SparseRows.of_arrays(group, n["sparse"])[: len(taken)]
            check_counters(group, ("feature", "n1", "c11"), np.zeros(len(taken), np.int64), taken, ones, mass)
            node = group["node"].tolist()
            undecided_node = not len(taken) and node == [UNDECIDED, 0, 0]
            at_work = node == [finder, int(mass.sum()), int(mass[taken == 1].sum())]
            require(at_work or undecided_node, "node", "states.counts")
            bucket = group["bucket"]
            there = (bucket >= 0) & (bucket < buckets) if buckets else bucket == -1
            require(there.all(), "bucket", "states.unknown", what="bucket")
            filled += len(np.unique(bucket)) if buckets else 0
        require(n["buckets"] == filled, "buckets", "states.number", what="buckets with features")

    def traits(self, options: BestSplitOptions) -> Traits:
        """Sparse features only, and two classes: a finder compares two."""
        return Traits(
            Reading(
                sparse=True,
                needs_sparse=True,
                dense=False,
                classes=2,
                sparse_classes=2,
                weights=True,
                class_weight=options.weights_by_label,
            ),
            warmup=options.warmup,
            rebuilds=False,
            counts=("changes", "moves"),
            levels=("buckets",),
            reads="columns",
            stays=(message("learners.stays_split"),),
        )

    def cases(self) -> Sequence[Case]:
        """Every finder, and weights."""
        weighted: tuple[dict[str, Any], ...] = (
            {"finder": "updgini"},
            {"finder": "auto", "class_weight": "balanced"},
        )
        return (
            *(
                Case(finder, {"finder": finder, "query_every": 2}, False, True, warmup=6 * (finder == "auto"))
                for finder in ("updgini", "updent", "scan", "auto")
            ),
            *(
                Case(f"{kind['finder']}, weights", kind | {"query_every": 2}, False, True, weighted=True, warmup=6)
                for kind in weighted
            ),
        )


LEARNER = BestSplit()


__all__ = ["LEARNER"]
