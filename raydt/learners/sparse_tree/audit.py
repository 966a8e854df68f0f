"""The two verdicts on a sparse fully dynamic tree, from a state and the raw examples.

*Conformance*: every live example lies in the leaf it routes to, all counts and counters equal their recomputation,
every node is what BUILD makes of the examples it was built from, and the structures hold the features of each node,
each within the limits of its bucket. *Feasibility*: the promise of ``docs/explanation/guarantees.md`` at every node,
by brute force.

Nothing of the fast path is imported (``recompute``). Not here: that a rebuild happened no earlier, and no higher up,
than it had to; that is compared with a slow twin in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.audits.best_splits import Gini, WeightedGini, best_splits, ranked_columns
from raydt.audits.bins import BucketLimits, compare_groups, counted_weights, score_of_counts
from raydt.audits.recorded_tree import (
    FOREVER,
    AuditReport,
    BuildHistory,
    RecordedTree,
    compare_history,
    found,
    noted,
    report_of,
)
from raydt.examples.updates import UNIT, CountedOnes, Features, History
from raydt.messages import Message, message

# Values that the audit of the sparse tree compares, recomputed from raw examples by routing and counting.
#
# Nothing of the fast path is imported. Times and the sets S(v) and S0(v) are those of
# ``raydt.audits.recorded_tree``.


@dataclass
class Sets:
    """Of one set of rows for every node, shape (nodes,): now, or at BUILD."""

    counts: Ints  #: Shape (nodes, 2).
    #: ``impurity``, ``score``: Of the rows, and of the node's split of them; both are equal at leaves.
    impurity: Floats
    score: Floats
    least: Floats  #: Smallest score of all sparse features; infinite where none is seen.
    dense: Floats  #: Smallest score of all dense splits; infinite without one.

    @classmethod
    def none(cls, nodes: int) -> Sets:
        """Nothing yet."""
        zero = np.zeros(nodes)
        return cls(np.zeros((nodes, 2), np.int64), zero, zero.copy(), np.full(nodes, np.inf), np.full(nodes, np.inf))


class RecountedSparseTree(BuildHistory):
    """All that a history says about a recorded tree."""

    def __init__(
        self, tree: RecordedTree, features: Features, entropy: bool, history: History, weight: Ints | None = None
    ) -> None:
        super().__init__(tree, features, history, weight)
        self.unit = 1 if weight is None else UNIT  #: A row is so many units of a count.
        self.y = history.y.astype(np.int64)
        self._entropy, self._columns = entropy, ranked_columns(self)
        self._gini = (Gini if weight is None else WeightedGini)(2)
        self.now = Sets.none(len(tree))  #: Of S(v).
        self.then = Sets.none(len(tree))  #: Of S0(v), of a complete history.
        #: Features of S(v), one part for each level of the tree, after one without any.
        self.counted = [CountedOnes(*np.empty((4, 0), np.int64))]
        for rows, node, right in self.levels():
            live = self.alive[rows]
            self.counted.append(self._look(self.now, rows[live], node[live], right[live]))
            if self.complete:
                old = self.look_back(rows, node, right)
                self._look(self.then, rows[old], node[old], right[old])
        self.live_counts, self.built_counts = self.now.counts, self.then.counts

    def _look(self, sets: Sets, rows: Ints, node: Ints, right: Bools) -> CountedOnes:
        """Count the rows of the nodes of one level."""
        at, local = np.unique(node, return_inverse=True)
        y = self.y[rows]
        n = self.added(local, rows, len(at))
        c1 = self.added(local[y == 1], rows[y == 1], len(at))
        sets.counts[at, 0], sets.counts[at, 1] = n - c1, c1
        n1 = self.added(local[right], rows[right], len(at))
        ones = right & (y == 1)
        c11 = self.added(local[ones], rows[ones], len(at))
        zero = np.zeros(len(at), np.int64)
        sets.impurity[at] = score_of_counts(self._entropy, n, c1, zero, zero, self.unit)
        sets.score[at] = score_of_counts(self._entropy, n, c1, n1, c11, self.unit)
        if self._columns and len(at):
            weight = None if self.weight is None else self.weight[rows]
            counts = np.stack([n - c1, c1], axis=1)
            gain = best_splits(self._columns, self._gini, rows, y, weight, local, counts)[0]
            square = np.maximum(n.astype(np.float64) * n, 1.0)
            sets.dense[at] = np.where(gain >= 0, sets.impurity[at] - gain / square, np.inf)
        mass = np.ones(len(rows), np.int64) if self.weight is None else self.weight[rows]
        counted = CountedOnes.of(self.sparse[rows], local, y, mass)
        of_nodes = n[counted.node], c1[counted.node], counted.n1, counted.c11
        scores = score_of_counts(self._entropy, *of_nodes, self.unit)
        np.minimum.at(sets.least, at[counted.node], scores)
        return replace(counted, node=at[counted.node])


if TYPE_CHECKING:
    from raydt.learners.sparse_tree.options import SparseTreeOptions

Arrays = Mapping[str, AnyArray]

#: Scores and keys come from exact integers with errors far below this.
ROUNDING = 1e-9


def audit(
    options: SparseTreeOptions, features: Features, state: Arrays, history: History, groups: Mapping[int, Arrays]
) -> AuditReport:
    """Prove or refute what the sparse tree promises of a state. O(depth x (ones + rows x dense features) x log) time.

    Of an incomplete history counters and build-time splits are not checked. ``SparseTreeDescription.measures`` says
    what ``worst`` holds.
    """
    tree = RecordedTree.read(state, len(features))
    warming, scheduled = bool(np.any(state["warmup_left"] > 0)), len(features.names) > 0
    weight, broken = counted_weights(options, state, history, resolved=not warming)
    truth = RecountedSparseTree(tree, features, options.finder == "updent", history, weight)
    epsilon = Fraction(options.resolved_epsilon()) if scheduled else None
    broken += compare_history(truth, state, history, epsilon, warming)
    if history.complete:
        broken += _built(options, truth, warming)
    broken += _structures(options, features, truth, groups, warming)
    worst, infeasible = _feasibility(options, truth)

    excuse = message("audits.no_tree") if warming else None
    if excuse is None and epsilon is not None:
        excuse = options.excuse()
        excuse = excuse and excuse.at("dense features")
    feasibility: Literal["proven", "violated", "not_promised"]
    if infeasible and not warming and (not excuse or worst["gap"] > options.beta + ROUNDING):
        feasibility, reason = "violated", infeasible[0]
    elif excuse:
        feasibility, infeasible = "not_promised", []
        reason = noted(excuse, message("audits.measured_score", lack=worst["lack"]))
    else:
        feasibility = "proven"
        shown = {"finder_alpha": options.finder_alpha, "gap": worst["gap"]}
        reason = message("audits.scores", nodes=len(tree), **shown)
    replayed = int((tree.feature >= 0).sum()) if history.complete else 0
    entries = sum(len(part.node) for part in truth.counted)
    return report_of(truth, history, (feasibility, reason), replayed, worst, broken, infeasible, entries=entries)


def _may_split(options: SparseTreeOptions, truth: RecountedSparseTree, sets: Sets) -> Bools:
    """Return, for each node, True if neither size, nor depth, nor purity makes it a leaf."""
    n, depth = sets.counts.sum(axis=1), FOREVER if options.max_depth is None else options.max_depth
    impure = (sets.counts > 0).all(axis=1)
    return np.asarray((n >= options.min_samples_split * truth.unit) & (truth.tree.depth < depth) & impure, np.bool_)


def _built(options: SparseTreeOptions, truth: RecountedSparseTree, warming: bool) -> list[Message]:
    """Every node against BUILD of its S0: leaf or split, and that the split is the best."""
    inner, sets = truth.tree.feature >= 0, truth.then
    least = np.minimum(sets.least, sets.dense)
    may = _may_split(options, truth, sets)
    half = options.alpha / 2
    failures = found(inner & ~(may & (sets.impurity > half - ROUNDING)), "audits.build_leaf")
    beaten = inner & (sets.score > least + ROUNDING)
    failures += found(beaten, "audits.build_score", score=sets.score, least=least)
    if warming:
        return failures
    must = may & (sets.impurity > half + ROUNDING) & (least < sets.impurity - ROUNDING)
    return failures + found(~inner & must, "audits.build_split")


def _structures(
    options: SparseTreeOptions,
    features: Features,
    truth: RecountedSparseTree,
    groups: Mapping[int, Arrays],
    warming: bool,
) -> list[Message]:
    """The features and buckets of every group at every node against the live examples."""
    parts = ((part.node, part.feature, part.n1, part.c11) for part in truth.counted)
    counted = CountedOnes(*map(np.concatenate, zip(*parts, strict=True)))
    kept = (truth.tree.depth[counted.node] < (FOREVER if options.max_depth is None else options.max_depth)) & (
        not warming
    )
    order = np.lexsort((counted.feature, counted.node))
    buckets = BucketLimits.of(options.finder, options.finder_alpha, truth.unit)
    names = ("node", "feature", "n1", "c11")
    return compare_groups(features, groups, counted[order[kept[order]]], names, truth.live_counts, buckets)


def _feasibility(options: SparseTreeOptions, truth: RecountedSparseTree) -> tuple[dict[str, float], list[Message]]:
    """Worst gaps over all nodes, and where the promise does not hold."""
    sets, inner = truth.now, truth.tree.feature >= 0
    may = _may_split(options, truth, sets)
    asked = inner | (may & (sets.impurity >= options.alpha + ROUNDING))
    empty = sets.counts.sum(axis=1) == 0
    lack = np.where(asked & ~empty, sets.score - sets.least, 0.0)
    gap = np.where(asked & ~empty, sets.score - (1 + options.finder_alpha) * sets.least, 0.0)
    dense = np.where(asked & ~empty, sets.score - sets.dense, 0.0)
    limit = options.beta + ROUNDING
    failures = found(gap > limit, "audits.score_gap", gap=gap)
    failures += found(dense > limit, "audits.dense_gap", gap=dense)
    failures += found(inner & ~may, "audits.due_leaf")
    worst = {
        "gap": float(gap.max(initial=0.0)),
        "lack": float(lack.max(initial=0.0)),
        "dense_gap": float(dense.max(initial=0.0)),
        "depth": float(truth.tree.depth.max()),
    }
    return worst, failures
