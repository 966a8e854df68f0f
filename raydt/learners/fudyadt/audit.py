"""The two verdicts on a FuDyADT tree, from a state and the raw examples.

*Conformance*: every live example lies in the leaf it routes to, all counts and counters equal their
recomputation, and every node is what BUILD makes of the examples it was built from. *Feasibility*: Definition 3.1
of the paper, as ``docs/explanation/guarantees.md`` amends it, at every node on the live examples.

Nothing of the fast path is imported. Not here: a replay of the updates one by one; that a rebuild
happened no earlier, and no higher up, than Algorithm 1 asks for is checked by the tests' twin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Ints
from raydt.audits.best_splits import (
    Best,
    Gini,
    RankedColumn,
    Variance,
    WeightedGini,
    WeightedVariance,
    best_splits,
    ranked_columns,
)
from raydt.audits.bins import counted_weights
from raydt.audits.recorded_tree import (
    FOREVER,
    LEFT,
    RIGHT,
    AuditReport,
    BuildHistory,
    RecordedTree,
    compare_history,
    compare_nodes,
    exceeds,
    found,
    noted,
    report_of,
)
from raydt.examples.updates import UNIT, Features, History
from raydt.messages import Message, message

if TYPE_CHECKING:
    from raydt.learners.fudyadt.options import FuDyADTOptions

#: Cells (rows x features) of build-time sets that are searched for their best split; beyond it nodes are sampled.
REPLAY_CELLS = 100_000_000
#: Gains come from exact integers with errors far below this.
ROUNDING = 1e-12
#: Mass per example by which certificates stay below beta.
MARGIN = 1e-12


@dataclass(frozen=True)
class SplitConditions:
    """Conditions under which BUILD splits: alpha, k + 1, h (the largest int64 for none), and the impurity."""

    alpha: Fraction
    min_samples_split: int
    max_depth: int
    impurity: Gini

    @property
    def half_alpha(self) -> Fraction:
        """Impurity up to which BUILD makes a leaf."""
        return self.impurity.half(self.alpha)

    def may_split(self, statistics: Ints, depth: Ints) -> Bools:
        """Return, for each node, True if neither size nor depth makes it a leaf."""
        return np.asarray(
            (self.impurity.sizes(statistics) >= self.min_samples_split) & (depth != self.max_depth), np.bool_
        )

    def exceeds(self, statistics: Ints, bound: Fraction, *, or_equals: bool = False) -> Bools:
        """Return, for each node, True if g(S) > bound (or >=), exactly."""
        p, q = bound.numerator * self.impurity.square, bound.denominator
        sizes, numerators = self.impurity.sizes(statistics).tolist(), self.impurity.numerators(statistics)
        squares = self.impurity.squares(sizes)
        excess = [numerator * q - p * square for square, numerator in zip(squares, numerators, strict=True)]
        return np.array([e > 0 or (or_equals and e == 0) for e in excess], np.bool_)


class Searched(NamedTuple):
    """The search for the best splits of S at the nodes of one level."""

    rows: Ints  #: Of S.
    nodes: Bools  #: Which were searched.
    best: Best


class Recomputed(BuildHistory):
    """Everything that a history says about a recorded tree, sampled beyond ``budget`` cells. O(depth x cells x log)."""

    def __init__(
        self,
        tree: RecordedTree,
        features: Features,
        rules: SplitConditions,
        history: History,
        budget: int,
        weight: Ints | None = None,
    ) -> None:
        super().__init__(tree, features, history, weight)
        n, self.rules = len(tree), rules
        self.labels = rules.impurity.labels(history.y)
        self.live = np.zeros((n, rules.impurity.width), np.int64)  #: Statistics of S(v).
        self.built = np.zeros_like(self.live)  #: Statistics of S0(v).
        self.m0 = np.zeros(n)  #: Mass that the split of v left on S0(v); that of S0(v) for a leaf.
        self.gone = np.zeros(n, np.int64)  #: Examples of S0(v) that have been deleted.
        self.live_score = np.full(n, -1.0)  #: Best score on S(v); -1 where none was searched or exists.
        self.replayed = np.zeros(n, np.bool_)  #: Nodes whose S0(v) asks for a split and was searched for the best one.
        #: That best split; score -1 where nothing separates S0(v).
        self.built_score, self.built_feature, self.built_threshold = np.full(n, -1.0), np.full(n, -1), np.zeros(n)
        self.built_left = np.zeros(n, np.bool_)  #: Whether missing numbers go left at it.

        sampled = _sample(rules.impurity.in_rows(tree.s).astype(np.int64), len(features), budget)
        place = np.zeros(n, np.int64)
        for depth, (rows, node, right) in enumerate(self.levels()):
            at = np.flatnonzero(tree.depth == depth)
            place[at] = np.arange(len(at))
            best = self._look_at_now(at, rows, place[node])
            if self.complete:
                then = self.look_back(rows, node, right)
                self._look_at_build(at, rows[then], place[node[then]], ~right[then], sampled[at], best)
        self.live_counts = rules.impurity.counts(self.live)
        self.built_counts = rules.impurity.counts(self.built)

    def _look_at_now(self, at: Ints, rows: Ints, local: Ints) -> Searched:
        """Live counts and best scores of the nodes ``at`` one level; ``local`` is each row's place in ``at``."""
        rows, local = rows[self.alive[rows]], local[self.alive[rows]]
        counts = self.live[at] = self._count(local, rows, len(at))
        wanted = self.rules.may_split(counts, self.tree.depth[at])
        wanted &= self.rules.exceeds(counts, self.rules.alpha, or_equals=True)
        wanted |= self.tree.feature[at] >= 0
        best = self._search(wanted, counts, rows, local)
        self.live_score[at] = best[0]
        return Searched(np.bincount(local, minlength=len(at)), wanted, best)

    def _look_at_build(self, at: Ints, rows: Ints, local: Ints, left: Bools, sampled: Bools, now: Searched) -> None:
        """Statistics of S0 and the best splits of it for the nodes ``at`` one level.

        Who lives of S0 is in S: where nobody of it has gone, and both have as many rows, they are one.
        """
        counts = self.built[at] = self._count(local, rows, len(at))
        dead = ~self.alive[rows]
        self.gone[at] = self.added(local[dead], rows[dead], len(at))
        left &= self.tree.feature[at][local] >= 0
        on_left = self._count(local[left], rows[left], len(at))  # nothing of a leaf
        self.m0[at] = self.rules.impurity.mass(on_left) + self.rules.impurity.mass(counts - on_left)
        wanted = sampled & self.rules.may_split(counts, self.tree.depth[at])
        wanted &= self.rules.exceeds(counts, self.rules.half_alpha)
        self.replayed[at] = wanted
        known = wanted & now.nodes & (np.bincount(local[dead], minlength=len(at)) == 0)
        known &= np.bincount(local, minlength=len(at)) == now.rows
        searched = self._search(wanted & ~known, counts, rows, local)
        found = [np.where(known, same, other) for same, other in zip(now.best, searched, strict=True)]
        self.built_score[at], self.built_feature[at], self.built_threshold[at], self.built_left[at] = found

    def _count(self, local: Ints, rows: Ints, nodes: int) -> Ints:
        weight = None if self.weight is None else self.weight[rows]
        return self.rules.impurity.count(local, self.labels[rows], nodes, weight)

    def sides(self) -> Ints:
        """Return the side of missing numbers at each node; where BUILD has chosen it and S0 was searched, the best."""
        by_gain = np.where(self.built_left, LEFT, RIGHT)
        return np.where(self.lacking & self.replayed, by_gain, super().sides())

    def _search(self, wanted: Bools, counts: Ints, rows: Ints, local: Ints) -> Best:
        """Best splits of those nodes of one level that are ``wanted``."""
        rows, local = rows[wanted[local]], local[wanted[local]]
        there = np.where(wanted[:, None], counts, 0)
        weight = None if self.weight is None else self.weight[rows]
        columns = self._columns if len(rows) else []
        return best_splits(columns, self.rules.impurity, rows, self.labels[rows], weight, local, there)

    @cached_property
    def _columns(self) -> list[RankedColumn]:  # no leaf of one class needs them
        return ranked_columns(self)


def _sample(s: Ints, d: int, budget: int) -> Bools:
    """The nodes whose build-time set is searched: all within the budget, else a fixed scattered choice."""
    cells = np.maximum(s, 0) * d
    if cells.sum() <= budget:
        return np.ones(len(s), np.bool_)
    scattered = np.argsort(np.arange(len(s), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    chosen = np.zeros(len(s), np.bool_)
    for v in scattered.tolist():
        if cells[v] <= budget:
            chosen[v] = True
            budget -= int(cells[v])
    return chosen


def audit(
    options: FuDyADTOptions, features: Features, state: Mapping[str, Any], history: History, groups: Any = None
) -> AuditReport:
    """Prove or refute what FuDyADT promises of a state. O(depth x rows x features x log(rows)) time.

    Of an incomplete history counters and build-time splits are not checked. ``FuDyADTDescription.measures`` says what
    ``worst`` holds.
    """
    tree = RecordedTree.read(state, len(features))
    warming = bool(np.any(state["warmup_left"] > 0))
    weight, broken = counted_weights(options, state, history, resolved=not warming)
    unit = 1 if weight is None else UNIT
    classes = max(state["counts"].shape[1], int(history.y.max(initial=0)) + 1)
    impurity: Gini
    if options.numeric:
        impurity = (Variance if unit == 1 else WeightedVariance)(*state["label_range"].tolist())
    else:
        impurity = (Gini if unit == 1 else WeightedGini)(classes)
    rules = SplitConditions(
        Fraction(options.alpha),
        options.min_samples_split * unit,
        FOREVER if options.max_depth is None else options.max_depth,
        impurity,
    )
    truth = Recomputed(tree, features, rules, history, REPLAY_CELLS, weight)
    epsilon = Fraction(options.resolved_epsilon())

    broken += compare_history(truth, state, history, None if options.certified else epsilon, warming)
    if options.numeric:
        broken += compare_nodes("sums", "live labels and their squares", state["sums"], truth.live[:, 1:])
        broken += compare_range(state, truth, history, options.label_range)
    if history.complete:
        broken += _built(truth)
    worst, infeasible = _feasibility(truth, options.beta, "variance" if options.numeric else "gini")
    if options.certified:
        failures, worst["slack"] = compare_certificates(truth, state, options.beta, epsilon, warming)
        broken += failures

    excuse = message("audits.no_tree") if warming else options.excuse()
    feasibility: Literal["proven", "violated", "not_promised"]
    if excuse:
        feasibility, infeasible = "not_promised", []
        reason = noted(excuse, message("audits.measured_gain", gap=worst["gap"]))
    elif infeasible:
        feasibility, reason = "violated", infeasible[0]
    else:
        feasibility = "proven"
        nodes = "the only node is" if len(tree) == 1 else f"all {len(tree)} nodes are"
        reason = message("audits.certified" if options.certified else "audits.scheduled", nodes=nodes)
    replayed = int(((tree.feature >= 0) & truth.replayed).sum())
    return report_of(truth, history, (feasibility, reason), replayed, worst, broken, infeasible)


def _built(truth: Recomputed) -> list[Message]:
    """Every node against BUILD of its S0: leaf or split, and which split."""
    tree, rules = truth.tree, truth.rules
    inner = tree.feature >= 0
    must = rules.may_split(truth.built, tree.depth) & rules.exceeds(truth.built, rules.half_alpha)
    failures = found(inner & ~must, "audits.build_leaf")
    failures += found(~inner & truth.replayed & (truth.built_score >= 0), "audits.build_split")
    other = (tree.feature != truth.built_feature) | (tree.threshold != truth.built_threshold)
    return failures + found(
        inner & truth.replayed & other,
        "audits.build_best",
        feature=tree.feature,
        threshold=tree.threshold,
        best_feature=truth.built_feature,
        best_threshold=truth.built_threshold,
    )


def compare_certificates(
    truth: Recomputed, state: Mapping[str, AnyArray], beta: float, epsilon: Fraction, warming: bool
) -> tuple[list[Message], float]:
    """Compare m0 and gone of every node with the history, and find nodes that have to be rebuilt.

    Return also the largest share of its budget that a certificate has used.
    """
    tree, rules, impurity, counts = truth.tree, truth.rules, truth.rules.impurity, truth.live
    m0, gone, inner, failures = state["m0"], state["gone"], tree.feature >= 0, list[Message]()
    if truth.complete:
        failures += compare_nodes("m0", "mass left at BUILD", m0, truth.m0)
        failures += compare_nodes("gone", "examples deleted since BUILD", gone, truth.gone)
    mass = impurity.mass(counts)
    #: The most mass that the split of an inner node can leave above the best one: M_own - max(0, m0 - 2 gone).
    own, least = mass[tree.left] + mass[tree.right], np.maximum(0.0, m0 - impurity.step * impurity.in_rows(gone))
    lacks = np.where(inner, own - least, 0.0)
    budget = (beta - MARGIN) * impurity.square * impurity.in_rows(impurity.sizes(counts))  # beta n, less the margin
    if not warming:
        small = impurity.sizes(counts) < rules.min_samples_split
        small |= ~rules.exceeds(counts, Fraction(0))
        failures += found(inner & small, "audits.due_leaf")
        failures += found(inner & ~(lacks <= budget), "audits.certificate", lacks=lacks, budget=budget)
        scanned = rules.may_split(counts, tree.depth) & rules.exceeds(counts, rules.half_alpha)
        grown = tree.s < rules.min_samples_split  # though BUILD made it a leaf of few examples
        changed = ~inner & scanned & (exceeds(tree.c, epsilon, tree.s) | grown)
        failures += found(changed, "audits.overdue", c=tree.c, s=tree.s)
    used = np.divide(lacks, budget, out=np.zeros(len(lacks)), where=inner & (budget > 0))
    return failures, float(used.max(initial=0.0))


def compare_range(
    state: Mapping[str, AnyArray], truth: Recomputed, history: History, declared: tuple[float, float] | None
) -> list[Message]:
    """The range of numeric labels against the options or, of a complete history, the examples of the last root."""
    ends = state["label_range"]
    if declared is None:
        if not history.complete:
            return []
        declared = _range_of(history, truth)
    if np.array_equal(ends, declared, equal_nan=True):
        return []
    return [message("audits.value", name="label_range", found=ends.tolist(), expected=list(declared))]


def _range_of(history: History, truth: Recomputed) -> tuple[float, float]:
    """Range of the labels that were live when the root was built, rounded; NaN of none."""
    built = truth.tree.built[0]
    there = (truth.born <= built) & (truth.died > built)
    y = history.y[there if truth.weight is None else there & (truth.weight > 0)]
    if len(y) == 0:
        return math.nan, math.nan
    low, high = float(y.min()), float(y.max())
    if low == high:
        low, high = (low - abs(low), low + abs(low)) if low else (-1.0, 1.0)
    step = 2.0 ** (math.floor(math.log2(high - low)) - 3)
    while 16 * step <= high - low:  # the logarithm is rounded
        step *= 2
    while 8 * step > high - low:
        step /= 2
    return step * (low // step), 0.0 - step * (-high // step)


def _feasibility(truth: Recomputed, beta: float, name: str) -> tuple[dict[str, float], list[Message]]:
    """Worst gaps over all nodes, and where Definition 3.1 does not hold; ``name`` is what impurity is called."""
    tree, rules, counts = truth.tree, truth.rules, truth.live
    inner = tree.feature >= 0
    n = rules.impurity.sizes(counts)
    n2 = np.maximum(n.astype(np.float64) * n, 1.0) * max(rules.impurity.square, 1)
    best = np.maximum(truth.live_score, 0.0) / n2

    v = np.flatnonzero(inner)
    gap = np.zeros(len(tree))
    gap[v] = best[v] - np.maximum(rules.impurity.split_scores(counts[tree.left[v]], counts[v]), 0.0) / n2[v]

    splittable = rules.may_split(counts, tree.depth) & rules.exceeds(counts, Fraction(0))
    impure_leaf = ~inner & splittable & rules.exceeds(counts, rules.alpha, or_equals=True)
    limit = beta + ROUNDING
    failures = found(gap > limit, "audits.gain_gap", gap=gap)
    failures += found(impure_leaf & (best > limit), "audits.leaf_gain", gain=best)
    failures += found(inner & ~splittable, "audits.due_leaf")
    impurity = np.array(rules.impurity.numerators(counts), np.float64) / n2
    worst = {
        "gap": float(gap.max(initial=0.0)),
        f"leaf_{name}": float(impurity[impure_leaf].max(initial=0.0)),
        "leaf_gain": float(best[impure_leaf].max(initial=0.0)),
        "change": float((tree.c / np.maximum(tree.s, 1)).max(initial=0.0)),
    }
    return worst, failures
