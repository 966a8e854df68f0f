"""The sparse fully dynamic tree: every node keeps the structure of ``raydt.finders`` for its sparse features.

Where an exact tree rebuilds a node after epsilon * s updates, because its best split may have changed by then, this
tree knows after every update whether it has: a node is rebuilt when its split is beaten, and not before. Argued in
``docs/explanation/guarantees.md``.

The coordinator's half, in the order to read it: ``coordinator`` (the path of a batch, window by window;
routing and counting; BUILD, level by level). The shard's half: ``shard`` (rows, structures, requests; an update of the
structures along a path, and its return; the exact search beside them). Both use ``build`` (structures of new nodes, the
best sparse split of each, and the rules). On saved models and states: ``audit``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import Arrays
from raydt.examples.updates import Features, Reading
from raydt.finders.pool import buckets_of
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits
from raydt.learners.description import (
    LEAVES_ARE_RESET,
    Presentation,
    RebuildingDescription,
    RunRecords,
    built_note,
    measured,
    rebuild_figures,
    rebuild_section,
    tree_blocks,
    worst_of,
)
from raydt.learners.sparse_tree.coordinator import SparseTreeCoordinator
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.learners.sparse_tree.shard import STATE, SparseTreeShard
from raydt.messages import message
from raydt.presentation.blocks import Section
from raydt.presentation.charts import number
from raydt.presentation.trees import live_tree
from raydt.trees.canonical_arrays import check_tree, state_arrays, tree_arrays
from raydt.trees.packed_trees import TreePredictor
from raydt.trees.records import masses_of
from raydt.trees.state_schema import (
    HELD_OR_MISSING,
    UNIT_ARRAY,
    Array,
    Schema,
    check_classes,
    check_counters,
    check_leaves,
    check_weights,
    depths_of,
    of_weights,
    require,
    routes,
    unit_of,
    weighed,
    weight_arrays,
    weights_of_state,
)

# How the sparse tree presents itself: its tree, its rebuilds, and the gap its audit has measured.

_RULE = (
    "After every update, raydt rebuilds the topmost node of its path whose score is more than beta above that of the "
    "best sparse feature the finder keeps, with its subtree."
)
_SCHEDULE = (
    " It also rebuilds a node built from s examples once more than epsilon s updates have reached it, because of "
    "the features that are not sparse."
)


class SparseTreeDescription(RebuildingDescription):
    """A tree whose splits a finder watches."""

    measures: ClassVar[Mapping[str, str]] = {
        "gap": "Score above (1 + finder_alpha) times the least",
        "lack": "Score above the least",
        "dense_gap": "Gap to the best split by a number or category",
        "leaf_gini": "Gini index of a leaf that may be split",
        "leaf_gain": "Gain that a leaf leaves unused",
        "change": "Updates since the build, c / s",
    }

    def present(self, run: RunRecords) -> Presentation:
        """Return the tree, and the rebuilds."""
        model, gap = run.model, number(worst_of(run.summary), "gap")
        about = ", and at which update it was built, from how many examples"
        drawn = [live_tree(model, run.names, lambda node: built_note(model, node), about)] if model else []
        dense = any(feature.get("kind") != "sparse" for feature in run.names.features)
        title = "Score above (1 + finder_alpha) times the least"
        return Presentation(
            rebuild_figures(run.summary),
            Section("Tree", tree_blocks(run, *drawn)),
            rebuild_section(run.summary, run.events, f"{_RULE}{_SCHEDULE if dense else ''} {LEAVES_ARE_RESET}"),
            gap=None if gap is None else measured(title, gap, number(run.options, "beta")),
        )


class SparseTree(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "sparse_tree"
    Options = SparseTreeOptions
    Coordinator = SparseTreeCoordinator
    Shard = SparseTreeShard
    Description = SparseTreeDescription
    Predictor = TreePredictor
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "threshold": "that of a leaf is not used",
        "rebuilds": COUNTS_WORK,
        "rebuilt_rows": COUNTS_WORK,
        "bucket": "intervals overlap: a feature may be in either of two",
    }

    def schema(self, options: SparseTreeOptions, features: Features, model: Arrays, *, state: bool) -> Schema:
        """A tree by nodes, and counters by node and sparse feature."""
        weighted = UNIT_ARRAY.name in model
        declared, counted = (weighed, of_weights) if weighted else (tuple, tuple)
        if not state:
            return Schema(declared(tree_arrays(model)))
        buckets = len(buckets_of(options.finder, options.finder_alpha, masses=weighted).s)
        counters = (Array(name, np.int32, ("counters",)) for name in STATE[:-1])
        bucket = Array("bucket", np.int16, ("counters",), 0, buckets)
        weights = weight_arrays(model, balanced="class_weight" in model)
        arrays = declared(tree_arrays(model) + state_arrays(False, weighted))
        return Schema((*arrays, *weights), counted((HELD_OR_MISSING, *counters, bucket)))

    def check_relations(
        self, options: Any, features: Features, model: Arrays, groups: Mapping[int, Arrays] | None, n: Mapping[str, int]
    ) -> None:
        """Require a tree of two classes, not too deep, and counters that are those of the rows.

        That a feature lies within its bucket is left to the audit: one that does not is moved with the next update.
        """
        check_tree(model, features)
        require(n["counted"] == 2, "counts", "states.columns", columns=n["counted"])
        check_classes(model, "counts", n["labels"])
        sparse_split = model["feature"] >= len(features.names)
        require((model["threshold"][sparse_split] == 0.5).all(), "threshold", "states.threshold")
        depth = depths_of(model)
        require(
            depth.max() <= options.depth_limit, "left", "states.option", option="max_depth", value=options.max_depth
        )
        if groups is None:
            return
        require(n["warmup_left"] == 0 or n["nodes"] == 1, "warmup_left", "states.warmup")
        weight, mass = weights_of_state(model) if unit_of(model) > 1 else None, masses_of(model)
        check_weights(model, options.class_weight == "balanced" and n["warmup_left"] == 0)
        check_leaves(model, model["y"], weight)
        rows, nodes = routes(model)
        rows, nodes = rows[nodes >= 0], nodes[nodes >= 0]
        counted = (depth[nodes] < options.depth_limit) & (n["warmup_left"] == 0)
        rows, nodes = rows[counted], nodes[counted]
        for group in groups.values():
            ones = SparseRows.of_arrays(group, n["sparse"])[rows]
            check_counters(group, STATE[:-1], nodes, model["y"][rows], ones, mass[rows])

    def traits(self, options: SparseTreeOptions) -> Traits:
        """Sparse features and two classes; dense ones need a schedule, whose theorem is about the Gini index."""
        dense = options.finder != "updent"
        return Traits(
            Reading(
                sparse=True,
                needs_sparse=True,
                dense=dense,
                missing=dense,
                missing_since=3,
                classes=2,
                sparse_classes=2,
                with_dense="" if dense else "finder: updgini",
                weights=True,
                class_weight=options.weights_by_label,
            ),
            warmup=message("learners.needs_classes") if options.class_weight == "balanced" else "",
            least_weight=("min_samples_split", options.min_samples_split),
            reads="columns",
        )

    def cases(self) -> Sequence[Case]:
        """Both finders, with dense features and without, with missing values and without, rebuilt often."""
        often = {"alpha": 0.0, "beta": 0.02, "max_depth": 3}
        return (
            Case("updent", often | {"finder": "updent"}, dense=False, sparse=True),
            Case("updgini", often | {"finder": "updgini", "epsilon": 0.5}, sparse=True, warmup=6),
            Case("updgini, missing", often | {"finder": "updgini", "epsilon": 0.5}, sparse=True, missing=True),
            Case("updent, weights", often | {"finder": "updent"}, dense=False, sparse=True, weighted=True),
            Case(
                "updgini, balanced",
                often | {"finder": "updgini", "epsilon": 0.5, "class_weight": "balanced"},
                sparse=True,
                missing=True,
                weighted=True,
                warmup=6,
            ),
        )


LEARNER = SparseTree()


__all__ = ["LEARNER"]
