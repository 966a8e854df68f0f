"""In-place online GBDT: boosted trees that examples are inserted into and deleted from (Lin et al., ICML 2025).

Read in this order: ``options``, ``derivatives`` (fixed point), ``candidates`` (what is stored, and rows as
bins), ``coordinator`` (the path of a batch), ``shard`` (columns, bins and rows of its own), ``row_shard`` (a
pass, alone or with other shards: Algorithms 1 to 3 as printed). Then the stages of a pass: ``histograms`` (what a batch
changes, and how a tree grows), ``split_search``, ``update`` (D', which splits fail, which rows join), ``staleness``
(the promise about derivatives). Last ``model`` and ``audit``.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from raydt.arrays.elementary import AnyArray, Arrays, Bools, Ints
from raydt.batches.binning import Bins
from raydt.examples.digest import DIGEST_2, DIGEST_3
from raydt.examples.row_owners import rows_of_parts
from raydt.examples.updates import MOST_CLASSES, Features, Reading
from raydt.exchange.messages import Buckets
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits, WorkPlan
from raydt.learners.gbdt.coordinator import GBDTCoordinator, LocalGBDTCoordinator
from raydt.learners.gbdt.describe import GBDTDescription
from raydt.learners.gbdt.ensemble import LARGEST_EXPONENT, start_of, trees_each, trees_of
from raydt.learners.gbdt.model import SLOPE, saved_predictor
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.shard import GBDTShard
from raydt.learners.gbdt.update import RECORD, TO_DELETE, TO_INSERT, outlook
from raydt.messages import message
from raydt.trees.state_schema import (
    BINS,
    EXAMPLES,
    HELD_OR_MISSING,
    SPARSE_BINS,
    Array,
    Schema,
    all_differ,
    check_arrays,
    check_bins,
    check_trees,
    counter,
    finite,
    require,
    row_arrays,
    weight_arrays,
)

_TREES = (
    Array("tree_nodes", np.int32, ("trees",), 1),
    Array("node_feature", np.int32, ("nodes",), -1, "features"),
    Array("node_cut", np.int32, ("nodes",), 0),
    Array("node_left", np.int32, ("nodes",), -1, "nodes"),
    Array("node_right", np.int32, ("nodes",), -1, "nodes"),
    finite("node_value", "nodes"),
)
_SUMS = (
    Array("node_G", np.int64, ("nodes",), -(2**62), 2**62),
    Array("node_H", np.int64, ("nodes",), 0, 2**62),
    Array("node_tried_g", np.int64, ("nodes",)),
    Array("node_tried_h", np.int64, ("nodes",)),
    Array("node_above", np.uint16, ("nodes",)),
    Array("node_below", np.uint16, ("nodes",)),
)
#: Of sums of weights (regression), units that are no whole weight; not where all are whole.
_RESTS = (Array("node_H_rest", np.uint16, ("nodes",)), Array("node_tried_h_rest", np.uint16, ("nodes",)))
_GAINS = (Array("node_gain", np.float64, ("nodes",)), counter("per", 1))
_COUNT = Array("node_count", np.int64, ("nodes",), 0, EXAMPLES)
_CLASSES, _ORIGIN, _ONLY = counter("classes", -1), finite("origin", 1), finite("only", 1)
_TOTALS = (
    *map(counter, ("seq", "warmup", "rebuilds", "rebuilt_rows", *RECORD)),
    counter("exponent", -LARGEST_EXPONENT, LARGEST_EXPONENT + 1),
)
_BEGUN, _SLOPE = counter("begun"), finite(SLOPE, 3)
#: Rows whose leaves are checked at once.
_CHECKED = 1 << 14
_PENDING = Array("pending", np.int8, ("rows",), 0, TO_DELETE + 1)


def _by_row(options: GBDTOptions) -> tuple[Array, ...]:
    """Arrays of a trained model by row."""
    leaf = Array("leaf", (np.uint8, np.uint16), ("rows", "trees"))
    ledger = Array("ledger", np.int32 if options.regression else np.uint16, ("rows", "trees"))
    return leaf, ledger, Array("drift", np.uint16, ("rows",))


def _check_leaves(leaf: AnyArray, pending: AnyArray, nodes: AnyArray, inner: Bools) -> None:
    """Require rows of the model in leaves, and the others in none."""
    for begin in range(0, len(leaf), _CHECKED):
        rows, in_model = leaf[begin : begin + _CHECKED], pending[begin : begin + _CHECKED] != TO_INSERT
        require((rows[~in_model] == np.iinfo(leaf.dtype).max).all(), "leaf", "states.nodes")
        held = rows[in_model].astype(np.int64)
        require((held < nodes).all(), "leaf", "states.unknown", what="node")
        require(not inner[np.cumsum(nodes) - nodes + held].any(), "leaf", "states.inner_leaf")


class GBDT(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "gbdt"
    Options = GBDTOptions
    Coordinator = GBDTCoordinator
    Description = GBDTDescription
    audit_divides = True
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "warmup": "nothing is left of it once it has ended",
        "begun": "another beginning of a batch of which the same rows wait: it decides when the batch ends",
        "rebuilds": COUNTS_WORK,
        "rebuilt_rows": COUNTS_WORK,
        "bins_ranks": "those of numbers are not used",
        "bins_default": "any bin may be the one whose sums are not stored",
        "node_feature": "another split that parts the rows alike is as good",
        "node_cut": "that of a leaf is not used, and another that parts the rows alike is as good",
        "node_tried_h_rest": "of an earlier time: it decides when a leaf that could not grow is tried again",
        "node_tried_g": "of an earlier time: it decides when a leaf that could not grow is tried again",
        "node_tried_h": "of an earlier time: it decides when a leaf that could not grow is tried again",
        "trained": "another end of the last training that leaves the same rows gives the same bins",
        "trained_rows": "of an earlier time: it decides when the trees are trained again",
        "changes": "counted since then: it decides when the trees are trained again",
        "work": "of the last update in place: it decides when the trees are trained again",
        "work_changes": "of the last update in place: it decides when the trees are trained again",
        "trainings": COUNTS_WORK,
        "drift": "of earlier times: it decides when derivatives are compared with the scores, which the audit does",
        SLOPE: "predictions of the past cannot be made again from the trees that there are now",
        "node_above": "of earlier times, as drift",
        "node_below": "of earlier times, as drift",
    }

    since: ClassVar[dict[str, int]] = {"begun": 3}

    def completed(self, options: GBDTOptions, state: Arrays) -> Arrays:
        """Say where the present batch D' began."""
        return {**state, "begun": np.array([options.begun(state)], dtype=np.int64)}

    def oldest(self, what: str, options: Mapping[str, Any]) -> int:
        """All models, and states with the bins of format 2."""
        return 2 if what == "state" else 1

    def coordinator(self, options: Any, features: Features, shards: int, plan: WorkPlan) -> GBDTCoordinator:
        """Make the coordinator of rows that are in its process or, with stores of their own, at the shards."""
        kind = LocalGBDTCoordinator if plan.shared_store else GBDTCoordinator
        return kind(options, features, shards, plan)

    def shard(self, options: Any, features: Features, groups: Ints, store: Any = None) -> GBDTShard:
        """Make the worker that owns ``groups``, and rows: all of them, if it shares the coordinator's."""
        return GBDTShard(options, features, groups, store)

    def schema(self, options: GBDTOptions, features: Features, model: Arrays, *, state: bool) -> Schema:
        """Trees and bins, or before the first training none; rows with their leaves and ledger."""
        trained = "tree_nodes" in model
        trees = _TREES + BINS + ((SPARSE_BINS,) if "bins_sparse" in model else ()) + (_CLASSES, _ORIGIN)
        trees += (_SLOPE,) if options.regression and SLOPE in model else ()
        if not state:
            counts = (_COUNT,) if "node_count" in model else ()  # an earlier version did not save it
            return Schema((*trees, *_GAINS, *counts) if trained else (_ONLY,))
        by_row = _by_row(options) if "leaf" in model else ()  # else in buckets
        begun = (_BEGUN,) if "begun" in model else ()  # see ``since``
        rows = (*_TOTALS, *begun, *row_arrays(options.regression), _PENDING)
        # An id may have two rows, one of which waits to be deleted.
        rows = tuple(of._replace(unique=False) if of.name == "id" else of for of in rows)
        rows += weight_arrays(model, balanced=trained and options.class_weight == "balanced")
        rests = tuple(of for of in _RESTS if of.name in model)
        of_trees = (*trees, *_SUMS, *rests, *by_row)
        return Schema((*rows, *of_trees) if trained else (*rows, _CLASSES), (HELD_OR_MISSING,))

    def check_relations(
        self, options: Any, features: Features, model: Arrays, groups: Mapping[int, Arrays] | None, n: Mapping[str, int]
    ) -> None:
        """Require trees over the cuts of the bins, not too large, and rows in leaves of them."""
        trained, labels = "tree_nodes" in model, n["labels"]
        if groups is not None and "id" in model:  # else owners have the rows
            live = model["id"][model["pending"] != TO_DELETE]
            require(all_differ(live), "id", "states.repeated")
            require(trained or (model["pending"] == TO_INSERT).all(), "pending", "states.warmup")
        elif groups is None and not trained:
            require(labels == 0 or 0 <= model["only"][0] < labels, "only", "states.unknown", what="class")
        if not trained:
            return
        bins, nodes = check_bins(model, features.kinds), model["tree_nodes"]
        most = options.max_leaf_nodes
        require((nodes < 2 * most).all(), "tree_nodes", "states.option", option="max_leaf_nodes", value=most)
        check_trees(model, nodes, "node_")
        feature, cut = model["node_feature"], model["node_cut"]
        inner = feature >= 0
        place = bins.places(feature[inner])
        require((place < len(bins)).all(), "node_feature", "states.unknown", what="feature with a cut")
        require((cut[inner] < bins.cuts()[place]).all(), "node_cut", "states.unknown", what="cut")
        require(not cut[~inner].any(), "node_cut", "states.nodes")
        classes = n["classes"]
        require(
            classes == 0 if labels == 0 else 2 <= classes <= max(2, labels), "classes", "states.number", what="classes"
        )
        per = trees_each(options, classes)
        require(n["trees"] % per == 0, "tree_nodes", "states.iteration")
        if groups is None:
            require(n["per"] == per, "per", "states.number", what="trees of an iteration")
            return
        if "leaf" in model:
            _check_leaves(model["leaf"], model["pending"], nodes, inner)

    def check_buckets(
        self, options: Any, model: Arrays, buckets: Mapping[Buckets, Arrays], n: Mapping[str, int]
    ) -> None:
        """Require leaves, ledger and drift of all rows, once, part by part."""
        if "id" not in model or "leaf" in model or "tree_nodes" not in model:
            require(not buckets, "leaf", "states.unknown", what="component")
            return
        if not buckets:
            raise KeyError("leaf")
        for rows, part in rows_of_parts(model["id"], buckets):
            check_arrays(part, _by_row(options), {"rows": len(rows), "trees": n["trees"]})
            _check_leaves(part["leaf"], model["pending"][rows], model["tree_nodes"], model["node_feature"] >= 0)

    def traits(self, options: GBDTOptions) -> Traits:
        """Dense and sparse features, missing values, classes or numbers; a batch D' at a time."""
        binary = options.objective == "binary"
        most = 2 if binary else MOST_CLASSES
        return Traits(
            Reading(
                regression=options.regression,
                missing=True,
                sparse=True,
                weights=True,
                class_weight=options.weights_by_label,
                classes=most,
                sparse_classes=most,
                with_numbers="" if options.regression else "objective: squared_error",
                with_classes="objective: multiclass" if binary else "",
            ),
            warmup=message("learners.needs_model"),
            collects_updates=True,
            reads="columns",
            owns_rows=True,
            digests=(DIGEST_3, DIGEST_2),
            divided="large",
            counts=("trainings",),
            unused=options.unused,
            stays=(
                message("learners.stays_boosted"),
                *((message("learners.stays_slope"),) if options.calibrates else ()),
            ),
        )

    def outlook(self, options: GBDTOptions, warmup: int) -> str:
        """Return the cost of a batch D', and how often all trees are trained again, in words."""
        return outlook(options, warmup)

    def predictor(self, options: GBDTOptions, features: Features, model: Arrays) -> Any:
        """Predictions of a saved model."""
        return saved_predictor(model, options, features)

    def model_within(self, options: GBDTOptions, features: Features, state: Arrays) -> Arrays | None:
        """Return the trees, whose gains no prediction needs; None before the first training: labels decide then."""
        if "tree_nodes" not in state:
            return None
        classes = int(state["classes"][0])
        trees = trees_of(state, Bins.from_arrays(state), options.max_leaf_nodes)
        added = {
            "node_gain": np.zeros(len(state["node_feature"])),
            "per": np.array([trees_each(options, classes)], dtype=np.int64),
            "origin": np.array([start_of(trees, float(state["origin"][0]), classes == 0)]),
        }
        together = cast("Arrays", ChainMap(added, state))  # nothing of the rows is read
        return super().model_within(options, features, together)

    def cases(self) -> Sequence[Case]:
        """Classes and numbers, every kind of derivatives, trained again or not, dense and sparse, many bins."""
        small = {"max_iter": 3, "max_leaf_nodes": 4, "update_every": 5, "max_bins": 8, "candidate_fraction": 0.5}
        numbers = small | {"objective": "squared_error"}
        outgrown = WorkPlan(row_cache_bytes=150 * 8, shared_store=False)  # the coordinator begins, shards go on
        updated = {"retrain": "never"}
        retrained, changed = updated | {"derivatives": "retrained"}, updated | {"derivatives": "changed_leaves"}
        never = updated | {"derivatives": "never", "robustness_tolerance": 0.0}
        balanced, wide = updated | {"class_weight": "balanced"}, {"max_bins": 1024}
        return (
            Case("two classes", small | {"early_stopping": True}, missing=True, warmup=20, plan=outgrown),
            Case(
                "two classes, updated", small | retrained | {"early_stopping": True}, missing=True, warmup=20, many=wide
            ),
            Case("three classes", small | {"derivative_tolerance": 0.5} | updated, sparse=True, classes=3, warmup=12),
            Case("three classes, updated", small | changed, sparse=True, classes=3, warmup=12),
            Case("numbers", numbers | {"update_every": "auto"}, classes=0, warmup=12),
            Case("numbers, updated", numbers | never, classes=0, warmup=12, many=wide),
            Case("two classes, weighted", small | balanced, weighted=True, warmup=16),
            Case("numbers, weighted", numbers | updated, classes=0, weighted=True, warmup=12),
        )

    def concerns(self, case: Case, options: GBDTOptions) -> bool:
        """Kernels are compiled again for more than 256 bins."""
        return super().concerns(case, options) and (not case.many or options.max_bins > 256)


LEARNER = GBDT()


__all__ = ["LEARNER"]
