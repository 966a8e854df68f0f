"""Counts of a shard at every node that gathers statistics, and the candidates it finds there.

A node that counts has a *site* at the shards: class counts by bin of every dense column, and for sparse features (two
classes) the rows in which they are 1, in the pool of a finder: a *unit* is one feature group at one site. All counts
are integers, so that whatever is counted in can be counted out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty, group_of
from raydt.arrays.elementary import Int32s, Ints
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.batches.binning import Bins
from raydt.evaluation.scoring import LEVELS
from raydt.examples import updates as weights
from raydt.examples.updates import CATEGORICAL
from raydt.finders.finder import count
from raydt.finders.pool import find
from raydt.learners.batch_coordinator import ADD, REMOVE
from raydt.learners.confidence_tree.bounds import CUT, FEATURE, offer, phi
from raydt.learners.confidence_tree.naive_bayes import UNIT, log_count, score_normal
from raydt.trees.records import mass_of, total

#: Rows of an array of deltas, what shards count: slot of the example, site of the node that counts it, sign (1: in, -1:
#: out, 0: the example is only scored), class. ``[[7], [2], [-1], [0]]``: example 7, of class 0, leaves site 2. Where
#: counts are masses (``raydt.trees.records``) deltas are int64, and the sign is times the example's mass.
SLOT, SITE, SIGN, LABEL = range(4)


class BinnedColumns(NamedTuple):
    """The dense columns of a shard."""

    feature: Ints  #: Shape (columns,): their numbers, ascending.
    kinds: npt.NDArray[np.int8]  #: Shape (columns,).
    #: Shape (columns,): a numeric column has the cuts 0, 1, ...: bins up to the cut go left. Of a categorical one a bin
    #: against the rest: so many bins have a cut.
    cuts: Ints
    first: Ints  #: Shape (columns + 1,): where the bins of each column begin.
    group: Ints  #: Shape (groups + 1,): where the columns of each of the shard's feature groups begin.

    @classmethod
    def of(cls, bins: Bins, feature: Ints, group: Ints) -> BinnedColumns:
        """Columns whose bins are known."""
        sizes = np.diff(bins.starts)
        cuts = np.where(bins.kinds == CATEGORICAL, sizes, sizes + bins.seen)
        return cls(feature, bins.kinds, cuts, np.concatenate([[0], np.cumsum(bins.counts())]), group)


class Statistics(NamedTuple):
    """Counts by site."""

    totals: Ints  #: Shape (sites, K).
    #: Shape (sites, bins of all columns, K): int32, of masses int64.
    bins: Int32s | Ints

    @classmethod
    def none(cls) -> Statistics:
        """No sites."""
        return cls(np.zeros((0, 2), dtype=np.int64), np.zeros((0, 0, 2), dtype=np.int32))

    def with_room(self, sites: int, bins: int, classes: int) -> Statistics:
        """The same counts with room for more sites and classes; new ones are 0."""
        have, _, known = self.bins.shape
        if sites <= have and classes <= known:
            return self
        capacity, classes = (max(sites, have * 3 // 2) if sites > have else have), max(classes, known)
        by_bin = empty((capacity, bins, classes), self.bins.dtype)
        grown = Statistics(np.zeros((capacity, classes), dtype=np.int64), by_bin)
        grown.bins[:] = 0
        grown.totals[:have, :known] = self.totals
        if have:
            grown.bins[:have, :, :known] = self.bins
        return grown

    def weighed(self) -> Statistics:
        """Make the counts masses."""
        return Statistics(self.totals * weights.UNIT, self.bins.astype(np.int64) * weights.UNIT)

    def without_room(self) -> Statistics:
        """The same counts up to the last place and class that counts something, two classes at least; views.

        How much room there is beyond depends on how the stream was cut, and must not show in a state.
        """
        counted = self.totals != 0
        places = int(np.flatnonzero(counted.any(axis=1)).max(initial=-1)) + 1
        classes = max(2, int(np.flatnonzero(counted.any(axis=0)).max(initial=-1)) + 1)
        return Statistics(self.totals[:places, :classes], self.bins[:places, :, :classes])


class Naive(NamedTuple):
    """Rows to score by naive Bayes, just before they are counted."""

    asked: Any  #: Shape (rows,): their deltas, ascending.
    table: Any  #: T of ``naive_bayes``, up to the largest count.
    low: Any  #: ``low``, ``stop``: Shape (bins of all columns,): the group of each bin.
    stop: Any
    found: Any  #: Shape (rows, K): takes sum_j (T(n_jk) - T(n_k)) over the shard's features.
    normal: Any  #: Shape (columns,): whether a column is scored as a normal one, too (``normal_bayes``).
    score: Any  #: Shape (bins of all columns,): its score in each bin.
    halves: Any  #: Logarithms, for its variance.
    sums: Any  #: Shape (2, K): scratch.
    found_normal: Any  #: Shape (rows, K): takes the scores with normal columns; without rows if nobody wants them.


class Sparse(NamedTuple):
    """The sparse features of a shard: rows by slot, and which groups it owns (``first`` on, of ``of``)."""

    rows: Any
    first: int
    of: int
    dense: int


class Held(NamedTuple):
    """State of a shard."""

    counts: Any
    columns: Any
    codes: Any  #: Shape (slots, columns): bin of every row in every dense column.
    sparse: Any
    pool: Any  #: Of the sparse features.


class HeldDense(NamedTuple):
    """State of a shard without sparse features."""

    counts: Any
    columns: Any
    codes: Any


class Search(NamedTuple):
    """The rule by which candidates are compared, and scratch."""

    criterion: int
    by_feature: bool  #: Whether the rival of a candidate is on another feature.
    table: Any  #: k log k, for entropy.
    left: Any  #: Shape (K,): scratch: class counts on the left of a candidate.
    scores: Any  #: Shape (2,): scratch: scores of the best candidate and its rival.


class Checks(NamedTuple):
    """Questions that come up while rows are counted, and their answers."""

    asked: Any  #: Shape (checks, 2): after which delta, at which site.
    found: Any  #: Shape (checks, groups, 2, 2 + K): takes the candidates of each feature group.


@kernel
def recount(by_bin: Any, first: Any, codes: Any, counted: Any) -> None:
    """Count rows by bin, shape (sites, bins, K); ``counted`` are deltas."""
    for i in range(counted.shape[1]):
        slot, site, label = counted[SLOT, i], counted[SITE, i], counted[LABEL, i]
        for j in range(codes.shape[1]):
            by_bin[site, first[j] + codes[slot, j], label] += counted[SIGN, i]


@inlined_kernel
def count_dense(held: Any, site: int, slot: int, sign: int, label: int) -> None:
    """Count one row in or out at one site, in everything but its sparse features."""
    columns = held.columns
    held.counts.totals[site, label] += sign
    bins = held.counts.bins[site]
    for j in range(len(columns.feature)):
        bins[columns.first[j] + held.codes[slot, j], label] += sign


@inlined_kernel
def count_row(held: Any, site: int, slot: int, sign: int, label: int) -> None:
    """Count one row in or out at one site, in everything but the buckets of a structure."""
    count_dense(held, site, slot, sign, label)
    sparse = held.sparse
    if sparse.of:
        per = len(held.columns.group) - 1
        for k in range(sparse.rows.begin[slot], sparse.rows.end[slot]):
            index = sparse.rows.values[k]
            count(held.pool, site * per + group_of(index, sparse.of) - sparse.first, index, sign, label)


@inlined_kernel
def score_dense(held: Any, naive: Any, site: int, slot: int, scores: Any, sites: int) -> None:
    """Naive Bayes scores of one row into ``scores``, shape (K,), by its dense features. O(features x K).

    By what is counted at one site or, of 2 ``sites``, at that after it, too.
    """
    columns, table, totals, bins = held.columns, naive.table, held.counts.totals, held.counts.bins
    classes = totals.shape[1]
    for k in range(classes):
        n = totals[site, k]
        if sites > 1:
            n += totals[site + 1, k]
        scores[k] = -log_count(table, n) * len(columns.feature)
    for j in range(len(columns.feature)):
        code = columns.first[j] + held.codes[slot, j]
        low, stop = naive.low[code], naive.stop[code]
        for k in range(classes):
            n = np.int64(0)
            for b in range(low, stop):
                n += bins[site, b, k]
                if sites > 1:
                    n += bins[site + 1, b, k]
            scores[k] += log_count(table, n)


@inlined_kernel
def score_row(held: Any, naive: Any, site: int, slot: int, scores: Any, sites: int) -> None:
    """Naive Bayes scores of one row at one or two sites into ``scores``, shape (K,). O((features + ones) x K)."""
    score_dense(held, naive, site, slot, scores, sites)
    sparse, table, totals = held.sparse, naive.table, held.counts.totals
    if sparse.of:
        per = len(held.columns.group) - 1
        for i in range(sparse.rows.begin[slot], sparse.rows.end[slot]):
            index = sparse.rows.values[i]
            n1 = c11 = all0 = all1 = np.int64(0)
            for at in range(site, site + sites):
                all0, all1 = all0 + totals[at, 0], all1 + totals[at, 1]
                e = find(held.pool, at * per + group_of(index, sparse.of) - sparse.first, index)
                if e >= 0:
                    n1, c11 = n1 + np.int64(held.pool.n1[e]), c11 + np.int64(held.pool.c11[e])
            scores[0] += log_count(table, n1 - c11) - log_count(table, all0)
            scores[1] += log_count(table, c11) - log_count(table, all1)


@inner_kernel
def _scan_column(bins: Any, columns: Any, j: int, search: Any, totals: Any, m: int, found: Any) -> None:
    """Offer the cuts of one column."""
    left, first, category = search.left, columns.first[j], columns.kinds[j] == CATEGORICAL
    left[:] = 0
    n_left = before = offered = 0
    for t in range(columns.cuts[j]):
        inside = 0
        for k in range(len(left)):
            counted = np.int64(bins[first + t, k])
            left[k] = counted if category else left[k] + counted
            inside += counted
        n_left = inside if category else n_left + inside
        if n_left == m or (category and offered == 1 and before + inside == m):
            return  # nothing is on the right, or there are two categories, which part the same
        if inside > 0:  # else it parts as the cut before
            score = phi(search.criterion, search.table, left, totals)
            offer(found, search.scores, search.by_feature, score, columns.feature[j], t, left)
            before, offered = before + inside, offered + 1


@inner_kernel
def scan_group(held: Any, search: Any, site: int, group: int, m: int, found: Any) -> None:
    """Start the candidates of one group, shape (2, 2 + K), with those of its dense columns."""
    columns, totals = held.columns, held.counts.totals[site]
    found[:, FEATURE] = -1
    found[:, CUT:] = 0
    search.scores[:] = np.inf
    for j in range(columns.group[group], columns.group[group + 1]):
        _scan_column(held.counts.bins[site], columns, j, search, totals, m, found)


@inner_kernel
def _scan_unit(held: Any, search: Any, unit: int, totals: Any, m: int, found: Any) -> None:
    """Offer the sparse features of one unit that have both values among m rows. O(its entries)."""
    pool, left = held.pool, search.left
    e = pool.first[unit]
    while e >= 0:
        if 0 < pool.n1[e] < m:
            left[1] = totals[1] - pool.c11[e]
            left[0] = totals[0] - (pool.n1[e] - pool.c11[e])
            score, feature = phi(search.criterion, search.table, left, totals), held.sparse.dense + pool.feature[e]
            offer(found, search.scores, search.by_feature, score, feature, np.int64(0), left)
        e = pool.next[e]


@inner_kernel
def _candidates(held: Any, search: Any, site: int, found: Any) -> None:
    """The best and its rival of each group at one site into ``found``, shape (groups, 2, 2 + K)."""
    totals, per = held.counts.totals[site], len(held.columns.group) - 1
    m = np.int64(0)  # a plain 0 would have all that is called below compiled for the literal, too
    for k in range(len(totals)):
        m += totals[k]
    for g in range(per):
        scan_group(held, search, site, g, m, found[g])
        if held.sparse.of:
            _scan_unit(held, search, site * per + g, totals, m, found[g])


@kernel
def take(
    held: Any, search: Any, deltas: Any, begin: int, stop: int, checks: Any, check: int, naive: Any, scored: int
) -> tuple[int, int]:
    """Count the deltas, shape (4, deltas), from ``begin`` to before ``stop``; answer the checks from ``check`` on.

    Rows to score are those from ``scored`` on. Returns the first check that was not answered, and the first row that
    was not scored.
    """
    asked = checks.asked
    for i in range(begin, stop):
        if scored < len(naive.asked) and naive.asked[scored] == i:
            site, slot, found = deltas[SITE, i], deltas[SLOT, i], naive.found[scored]
            score_row(held, naive, site, slot, found, 1)
            if len(naive.found_normal):
                inherits = len(naive.found_normal) > len(naive.asked)
                of_all = naive.found_normal[scored + len(naive.asked) if inherits else 0]
                if inherits:
                    score_row(held, naive, site, slot, of_all, 2)
                score_normal(held, naive, site, slot, found, naive.found_normal[scored], of_all, inherits)
            scored += 1
        # Scored before it is counted: a prediction must not know the label of its own row.
        if deltas[SIGN, i] != 0:
            count_row(held, deltas[SITE, i], deltas[SLOT, i], deltas[SIGN, i], deltas[LABEL, i])
        while check < len(asked) and asked[check, 0] <= i:
            _candidates(held, search, asked[check, 1], checks.found[check])
            check += 1
    return check, scored


# The statistics of a confidence tree at moments within a batch.
#
# Windows are processed as if no leaf were split, and steps after a split again: changes do not come to light in the
# order of the stream. Each is therefore noted with the stamp of its step, and the moments are put together at the end
# of the batch, from what the tree was at its beginning.
#
# Invariant: the statistics at a moment are those of a batch that ends there.


@dataclass(slots=True)
class _Period:
    """Changes after a step at which the statistics are known."""

    stamp: int
    statistics: Mapping[str, int]
    splits: list[tuple[int, int, bool]] = field(default_factory=list)  #: Stamp, depth, and whether for a tie.
    checks: list[Ints] = field(default_factory=list)


class StatisticsHistory:
    """Changes of one batch by the stamps of their steps, from the statistics before it on."""

    def __init__(self, statistics: Mapping[str, int]) -> None:
        self._periods = [_Period(-1, statistics)]

    def split(self, stamp: int, depth: int, *, tie: bool) -> None:
        """Note that a leaf of this depth was split, for a tie or because the rule holds."""
        self._periods[-1].splits.append((stamp, depth, tie))

    def checked(self, stamps: Ints) -> None:
        """Note checks of leaves."""
        self._periods[-1].checks.append(stamps)

    def know(self, stamp: int, statistics: Mapping[str, int], *, at_once: bool = False) -> None:
        """Note the statistics after a step; nothing after it has been processed.

        ``at_once``: whatever was noted since the last such step has taken effect with this one only.
        """
        if at_once:
            self._periods[-1].splits, self._periods[-1].checks = [], []
        self._periods.append(_Period(stamp, statistics))

    def after(self, updates: int) -> dict[str, int]:
        """Statistics of the tree once so many updates of the stream had been applied. O(changes)."""
        bound = 2 * updates  # stamps of later steps are not below it
        period = next(period for period in reversed(self._periods) if period.stamp < bound)
        splits = [(depth, tie) for stamp, depth, tie in period.splits if stamp < bound]
        was = period.statistics
        return {
            "nodes": was["nodes"] + 2 * len(splits),
            "leaves": was["leaves"] + len(splits),
            "depth": max([was["depth"], *(depth + 1 for depth, _ in splits)]),
            "checks": was["checks"] + sum(int(np.count_nonzero(stamps < bound)) for stamps in period.checks),
            "splits": was["splits"] + len(splits),
            "ties": was["ties"] + sum(tie for _, tie in splits),
        }


# What leaves predict: the majority, naive Bayes, or whichever of the two has been right more often.
#
# The coordinator knows the majority of each row's leaf at once, and the scores of naive Bayes once the shards have
# answered; then it goes through the window once more, in the order of the steps. Which of the two was right about an
# example is kept with it (``MAJORITY_RIGHT``, ``NAIVE_RIGHT``): the tallies of a node sum up the live examples that the
# node has counted, so that a deleted example leaves them as it leaves all counts.

#: What is kept of an example: who was right about it when it came.
MAJORITY_RIGHT, NAIVE_RIGHT, NORMAL_RIGHT, INHERITED_RIGHT = 1, 2, 8, 16
#: What predicts at a leaf.
MAJORITY, NAIVE, NORMAL, INHERITED = range(4)


@inner_kernel
def naive_class(prior: Any, scores: Any, table: Any) -> int:
    """Class of the highest score, the smaller on a tie; -1 of a leaf that has counted nothing."""
    best = -1
    highest = np.int64(0)
    for k in range(len(prior)):
        if prior[k] > 0:
            score = log_count(table, prior[k]) + scores[k]
            if best < 0 or score > highest:
                best, highest = k, score
    return best


def level_odds() -> Ints:
    """Log-odds of class 1, in units of T, from which on its share is at level 1, 2, ..., int64, shape (LEVELS,).

    Whole numbers, so that a level does not depend on a processor's logarithm.
    """
    half = np.arange(1, LEVELS + 1) - 0.5
    odds: Ints = np.rint(UNIT * np.log(half / (LEVELS - half))).astype(np.int64)
    return odds


@inner_kernel
def naive_level(prior: Any, scores: Any, table: Any, odds: Any) -> int:
    """The share of class 1 among the first two classes, as a level; one of them has examples."""
    if prior[0] == 0 or prior[1] == 0:
        return LEVELS if prior[1] > 0 else 0
    difference = log_count(table, prior[1]) + scores[1] - log_count(table, prior[0]) - scores[0]
    level: int = np.searchsorted(odds, difference, side="right")
    return level


@inner_kernel
def tally(tree: Any, leaf: int, stamp: int, right: int, by: int) -> None:
    """Count in or out at a leaf, if it has counted an example, who was right about that; ``by`` is the mass of it."""
    here = tree.nodes[leaf]
    if stamp > here.created:
        here.majority_right += by * (right & 1)
        here.naive_right += by * ((right >> 1) & 1)
        here.normal_right += by * ((right >> 3) & 1)
        here.inherited_right += by * ((right >> 4) & 1)


@inner_kernel
def chosen(node: Any, adaptive: bool, normal: bool, inherits: bool) -> int:
    """Return what predicts at a leaf: what has been right most often, of equals the last of the three.

    With all live examples of the leaf only if that has been right more often than all of the three.
    """
    if not adaptive:
        return NAIVE
    best = NAIVE if node.naive_right >= node.majority_right else MAJORITY
    right = max(node.naive_right, node.majority_right)
    if normal and node.normal_right >= right:
        best, right = NORMAL, node.normal_right
    return INHERITED if inherits and node.inherited_right > right else best


@kernel
def choose(tree: Any, some: Any, adaptive: bool, normal: bool, inherits: bool, found: Any) -> None:
    """Find what predicts at some nodes; ``found`` is that of inner nodes and of leaves that have counted nothing."""
    for i in range(len(some)):
        node = tree.nodes[some[i]]
        if node.feature < 0 and total(tree.own, some[i]) > 0:
            found[i] = chosen(node, adaptive, normal, inherits)


@inlined_kernel
def predict(step: Any, node: Any, priors: Any, scores: Any, tables: Any, label: int, rules: Any) -> int:
    """Let a leaf choose the prediction of a step that has the majority's; return who is right about a label.

    ``priors`` are what the leaf has counted, and all its live examples; ``scores`` are those of naive Bayes and the row
    there, and those with normal features and the rows there of what the leaf has counted and of all (without rows if no
    leaf chooses these). ``rules``: adaptive, and whether leaves inherit.
    """
    (own, present), (counts, row, normals, of_all), (table, odds), (adaptive, inherits) = priors, scores, tables, rules
    normal, majority = len(normals) > 0, np.int64(step.prediction)
    k = naive_class(own, counts[row], table)
    by_normal = naive_class(own, normals[row], table) if normal else k
    by_all = naive_class(present, normals[of_all], table) if inherits else k
    choice = chosen(node, adaptive, normal, inherits)
    if choice != MAJORITY:
        best = by_all if choice == INHERITED else by_normal if choice == NORMAL else k
        step.prediction = majority if best < 0 else np.int64(best)
        if best == 0 or best == 1:
            if choice == INHERITED:
                step.level = naive_level(present, normals[of_all], table, odds)
            else:
                step.level = naive_level(own, normals[row] if choice == NORMAL else counts[row], table, odds)
    who = (MAJORITY_RIGHT if majority == label else 0) | (NAIVE_RIGHT if (majority if k < 0 else k) == label else 0)
    if normal and (majority if by_normal < 0 else by_normal) == label:
        who |= NORMAL_RIGHT
    if inherits and (majority if by_all < 0 else by_all) == label:
        who |= INHERITED_RIGHT
    return who


@kernel
def settle(
    tree: Any, examples: Any, right: Any, path: Any, counted: Any, scores: Any, tables: Any, void: Any, rules: Any
) -> None:
    """Make the predictions of the steps of a window that were not rolled back (``void``), and tally who was right.

    ``right`` says by slot who was right about each live example; ``scores``, shape (rows scored, K), are those of naive
    Bayes, summed over the shards, on counts and with normal features (without rows if no leaf chooses these; behind
    them those with all live examples of the leaf, where leaves inherit); ``tables`` are T of ``naive_bayes`` and
    :func:`level_odds`. ``rules``: adaptive, else naive Bayes always; and whether leaves inherit.
    """
    (adaptive, inherits), (counts, normals), known = rules, scores, tree.own.shape[1]
    row = 0
    for i in path.pending:
        step = path.steps[i]
        if step.kind == REMOVE:
            if adaptive and not void[i]:
                stamp = 2 * examples.born[step.slot] + 1
                mass = mass_of(examples.weight, step.slot)
                tally(tree, np.int64(path.leaves[i]), stamp, np.int64(right[step.slot]), -mass)
            continue
        # Steps that were rolled back were scored, too: they take their row of ``scores`` and nothing else.
        entry, of_row = counted.scored[row], (counts, row, normals, row + len(counts) if inherits else row)
        leaf, prior = np.int64(counted.entries[entry].node), counted.priors[row, :known]
        priors = prior, counted.priors[row, known:]
        row += 1
        if void[i]:
            continue
        # The leaf chooses by what it has tallied before this step, as the step itself is tallied below.
        label = np.int64(examples.y[step.slot]) if step.kind == ADD else np.int64(-1)
        who = predict(step, tree.nodes[leaf], priors, of_row, tables, label, (adaptive, inherits))
        if adaptive and step.kind == ADD:
            right[step.slot] = who
            tally(tree, leaf, 2 * examples.born[step.slot] + 1, who, mass_of(examples.weight, step.slot))


@kernel
def tally_rows(tree: Any, examples: Any, right: Any, slots: Any) -> None:
    """Tally at their leaves who was right about some examples. O(examples)."""
    for slot in slots:
        stamp = 2 * examples.born[slot] + 1
        mass = mass_of(examples.weight, slot)
        tally(tree, np.int64(examples.members[slot].leaf), stamp, np.int64(right[slot]), mass)
