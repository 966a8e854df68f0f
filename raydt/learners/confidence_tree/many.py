"""Batches of many confidence trees by one compiled call: all of it but splits, and new bins.

The steps are taken one by one, with what the kernels of a window find in passes: the prediction just before the step,
who was right, and the counts. Batches after which a leaf might be checked wait once they are admitted, for what the
rule decides (``many_checks``): a second call takes those without a split, and the others go on the usual way.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raydt.arrays.addresses import WORDS, Addresses, array_at, fit
from raydt.arrays.elementary import Ints
from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.batches.binning import Bins, code_of
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.store import LIVE, USED, Index
from raydt.examples.updates import NO_WEIGHTS, BatchResult, Features, UpdateBatch
from raydt.finders.finder import table_of, xlogx_table
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE, STEP, Many
from raydt.learners.confidence_tree.bounds import COUNTS, CRITERIA, SplitRule
from raydt.learners.confidence_tree.dynamic_tree import Decider, LiveConfidenceTree, StepWindow, Times
from raydt.learners.confidence_tree.leaf_predictions import ODDS
from raydt.learners.confidence_tree.naive_bayes import SharedLogs, half_logs, score_normal
from raydt.learners.confidence_tree.statistics import (
    INHERITED,
    INHERITED_RIGHT,
    MAJORITY,
    MAJORITY_RIGHT,
    NAIVE,
    NAIVE_RIGHT,
    NORMAL,
    NORMAL_RIGHT,
    TRIAL,
    BinnedColumns,
    HeldDense,
    Naive,
    Search,
    Statistics,
    chosen,
    count_dense,
    naive_class,
    naive_level,
    scan_group,
    score_dense,
    tally,
)
from raydt.learners.confidence_tree.tree import (
    CHECK,
    ENTRY,
    NODE,
    ConfidenceTreeArrays,
    CountedRows,
    Path,
    WeighedExamples,
    is_mixed,
)
from raydt.learners.tree_coordinator import NOTES, STEPS, ManyBatches, admit_batch, deepest, end_batch
from raydt.trees.records import (
    LEAVES,
    MEMBER,
    NODES,
    count_path,
    level_at,
    link,
    majority,
    oldest_equal,
    route,
    total,
    unlink,
)

# Checks of leaves within batches of many trees: what they find is known before a step of the batch is taken.
#
# Most checks come to nothing, and then the batch is counted as any other. So the counts that decide are made ahead,
# each check notes its candidates, and the counts are taken back. The rule decides once for the checks of all trees.

#: Columns of ``NotedChecks.of``: the tree; the examples that its batch has brought by then, and one more than the
#: largest class of these; the depth of the leaf.
_TREE, _CAME, _CLASSES, _DEPTH = range(4)


class NotedChecks(NamedTuple):
    """Room for the checks of batches that have so many updates."""

    of: Ints  #: Shape (checks, 4).
    owns: Ints  #: Shape (checks, K): what the leaf has counted.
    found: Ints  #: Shape (checks, 1, 2, 2 + K): the candidates of all features.
    before: Ints  #: Scratch, for the longest batch.

    @classmethod
    def room(cls, updates: int, longest: int, classes: int) -> NotedChecks:
        """Nothing noted yet."""
        found = np.empty((updates, 1, 2, COUNTS + classes), dtype=np.int64)
        owns = np.zeros((updates, classes), dtype=np.int64)
        return cls(np.empty((updates, 4), dtype=np.int64), owns, found, np.empty(longest, dtype=np.int64))


@inlined_kernel
def may_check(tree: Any, categorical: Any, rows: Any, grace: int) -> bool:
    """Return True if a leaf might be checked once some rows are counted. O(rows x depth)."""
    for row in range(len(rows.X)):
        if tree.nodes[route(tree, categorical, rows, np.int64(row))].since + len(rows.X) >= grace:
            return True
    return False


@inlined_kernel
def _count(tree: Any, examples: Any, held: Any, leaf: int, slot: int, by: int) -> None:
    tree.own[leaf, examples.y[slot]] += by
    count_dense(held, np.int64(tree.nodes[leaf].site), slot, by, np.int64(examples.y[slot]))


@inlined_kernel
def note_checks(
    tree: Any, categorical: Any, examples: Any, rows: Any, held: Any, bins: Any, steps: Any, grace: int, search: Any,
    k: int, noted: Any, have: int,
) -> int:  # fmt: skip
    """Note the checks that are due in the steps of tree ``k`` behind the ``have`` before; return the number of all.

    The tree and its statistics are as before. O(steps x (depth + d) + checks x bins x K).
    """
    came = classes = np.int64(0)
    for s in range(len(steps)):
        step, slot = steps[s], np.int64(steps[s].slot)
        noted.before[s] = -1
        if step.kind == LOOK:
            continue
        if step.kind == ADD:
            for j in range(rows.X.shape[1]):
                held.codes[slot, j] = code_of(rows.X[step.row, j], bins, j)
            examples.members[slot].leaf = route(tree, categorical, rows, np.int64(step.row))
            came, classes = came + 1, max(classes, np.int64(examples.y[slot]) + 1)
        leaf = np.int64(examples.members[slot].leaf)
        if 2 * examples.born[slot] + 1 <= tree.nodes[leaf].created:
            continue
        noted.before[s] = tree.nodes[leaf].since
        _count(tree, examples, held, leaf, slot, np.int64(1 if step.kind == ADD else -1))
        if step.kind == ADD:
            tree.nodes[leaf].since += 1
            if tree.nodes[leaf].since >= grace:
                tree.nodes[leaf].since = 0
                if is_mixed(tree.own, leaf):
                    of = noted.of[have]
                    of[_TREE], of[_CAME], of[_CLASSES], of[_DEPTH] = k, came, classes, tree.nodes[leaf].depth
                    m = np.int64(0)
                    for label in range(tree.own.shape[1]):
                        noted.owns[have, label] = tree.own[leaf, label]
                        m += tree.own[leaf, label]
                    scan_group(held, search, np.int64(tree.nodes[leaf].site), np.int64(0), m, noted.found[have, 0])
                    have += 1
    for s in range(len(steps) - 1, -1, -1):
        if noted.before[s] >= 0:
            slot = np.int64(steps[s].slot)
            leaf = np.int64(examples.members[slot].leaf)
            _count(tree, examples, held, leaf, slot, np.int64(-1 if steps[s].kind == ADD else 1))
            tree.nodes[leaf].since = noted.before[s]
    return have


class SharedRule:
    """The rule of some trees, and what their candidates are compared by."""

    def __init__(self, rule: SplitRule, *, by_feature: bool) -> None:
        self._rule, self._by_feature, self._table = rule, by_feature, xlogx_table(0)

    def search(self, rows: int, classes: int) -> Search:
        """Return a search in leaves of up to so many rows."""
        criterion, scratch = self._rule.criterion, (np.empty(classes, dtype=np.int64), np.empty(2))
        table = self._table = table_of(criterion == "entropy", rows, self._table)
        return Search(CRITERIA.index(criterion), self._by_feature, table, *scratch)

    def splits(self, noted: NotedChecks, checks: int, examples: Ints, classes: Ints) -> Ints:
        """Return the trees that one of the first ``checks`` splits.

        Before its batch a tree had taken so many ``examples``, and known so many ``classes``.
        """
        of = noted.of[:checks]
        trees, which = of[:, _TREE], np.arange(checks)
        due = np.zeros(checks, dtype=CHECK)
        due["step"], due["node"], due["depth"] = which, trees, of[:, _DEPTH]  # a node for all leaves of a tree
        counted = CountedRows(np.empty(0, ENTRY), which[:0], due, noted.owns[:checks], which[:0], which[:0])
        window = StepWindow(Path(np.zeros(checks, dtype=STEP), which, trees, checks), counted)
        times = Times(examples[trees] + of[:, _CAME], np.maximum(classes[trees], of[:, _CLASSES]))
        decider = Decider(self._rule, by_feature=self._by_feature)  # of this call: it grows a table
        changes = decider.decide(window, times, [noted.found[:checks]], 1)
        return np.array([change.node for change in changes], dtype=np.int64)


# One example at a time, where coordinator and shard are in one process: a compiled call for each.
#
# The kernels of a window do the same in passes: walk, count, settle. Nothing here splits a leaf, renews bins or
# compares trials: the coordinator checks the leaf that is due, and an example that makes the others due is taken as a
# batch.


@inlined_kernel
def _encode(held: Any, bins: Any, X: Any, slot: int) -> None:
    """Find the bins of the first row of ``X``."""
    for j in range(X.shape[1]):
        held.codes[slot, j] = code_of(X[0, j], bins, j)


@inlined_kernel
def _majority_at(tree: Any, leaf: int) -> int:
    """Majority of a leaf or, where it has no examples, of the nearest node above that has some."""
    node = leaf
    while total(tree.counts, node) == 0 and tree.nodes[node].parent >= 0:
        node = np.int64(tree.nodes[node].parent)
    best: int = majority(tree.counts, node)
    return best


@kernel
def class_of(
    tree: Any, categorical: Any, rows: Any, held: Any, bins: Any, naive: Any, adaptive: bool, inherits: bool
) -> int:
    """Class that the tree predicts for a row, whose bins go into slot 0: the codes of ``held`` are scratch.

    ``naive`` has room for one score, shape (1, K), and two normal ones if leaves inherit; a table of length 0 is that
    of a tree whose leaves predict the majority. O(depth + d K).
    """
    leaf = route(tree, categorical, rows, np.int64(0))
    best: int = np.int64(_majority_at(tree, leaf))
    if len(naive.table) == 0 or total(tree.own, leaf) == 0:
        return best
    choice = chosen(tree.nodes[leaf], adaptive, len(naive.found_normal) > 0, inherits)
    if choice == MAJORITY:
        return best
    _encode(held, bins, rows.X, np.int64(0))
    site = np.int64(tree.nodes[leaf].site)
    score_dense(held, naive, site, np.int64(0), naive.found[0], 1)
    if choice == NAIVE:
        best = np.int64(naive_class(tree.own[leaf], naive.found[0], naive.table))
        return best
    of_all = naive.found_normal[1 if inherits else 0]
    if choice == INHERITED:
        score_dense(held, naive, site, np.int64(0), of_all, 2)
    score_normal(held, naive, site, np.int64(0), naive.found[0], naive.found_normal[0], of_all, choice == INHERITED)
    if choice == INHERITED:
        best = np.int64(naive_class(tree.counts[leaf], of_all, naive.table))
    else:
        best = np.int64(naive_class(tree.own[leaf], naive.found_normal[0], naive.table))
    return best


@inlined_kernel
def _who_is_right(tree: Any, held: Any, naive: Any, leaf: int, slot: int, label: int, inherits: bool) -> int:
    """Who is right about an example that its leaf has not counted yet."""
    site, most = np.int64(tree.nodes[leaf].site), np.int64(_majority_at(tree, leaf))
    score_dense(held, naive, site, slot, naive.found[0], 1)
    k = np.int64(naive_class(tree.own[leaf], naive.found[0], naive.table))
    who = (MAJORITY_RIGHT if most == label else 0) | (NAIVE_RIGHT if (most if k < 0 else k) == label else 0)
    if len(naive.found_normal):
        of_all = naive.found_normal[1 if inherits else 0]
        if inherits:
            score_dense(held, naive, site, slot, of_all, 2)
        score_normal(held, naive, site, slot, naive.found[0], naive.found_normal[0], of_all, inherits)
        k = np.int64(naive_class(tree.own[leaf], naive.found_normal[0], naive.table))
        who |= NORMAL_RIGHT if (most if k < 0 else k) == label else 0
        if inherits:
            k = np.int64(naive_class(tree.counts[leaf], of_all, naive.table))
            who |= INHERITED_RIGHT if (most if k < 0 else k) == label else 0
    return who


@kernel
def learn(
    tree: Any, categorical: Any, examples: Any, by_slot: Any, rows: Any, held: Any, bins: Any, naive: Any, rules: Any
) -> int:
    """Take a new example, whose class and birth are known; return its leaf if a check of that is due, else -1.

    ``by_slot``: who was right, and the features, of all examples; ``rules``: slot, grace period, whether leaves are
    adaptive, and whether they inherit. O(depth + d K).
    """
    (right, X), (slot, grace, adaptive, inherits) = by_slot, rules
    for j in range(X.shape[1]):
        X[slot, j] = rows.X[0, j]
    leaf = np.int64(route(tree, categorical, rows, np.int64(0)))
    _encode(held, bins, rows.X, slot)
    label = np.int64(examples.y[slot])
    if adaptive:
        who = _who_is_right(tree, held, naive, leaf, slot, label, inherits)
        right[slot] = who
        tally(tree, leaf, 2 * examples.born[slot] + 1, who, 1)
    count_path(tree, leaf, label, 1)
    link(tree, examples.members, leaf, slot)
    tree.own[leaf, label] += 1
    tree.nodes[leaf].since += 1
    count_dense(held, np.int64(tree.nodes[leaf].site), slot, 1, label)
    due: int = np.int64(-1)
    if tree.nodes[leaf].since >= grace:
        tree.nodes[leaf].since = 0
        if is_mixed(tree.own, leaf):
            due = leaf
    return due


@kernel
def find(tree: Any, categorical: Any, examples: Any, X: Any, rows: Any, code: int) -> int:
    """Slot of the oldest live example that equals a row and has a class; -1 of none. O(depth + examples x d)."""
    leaf = np.int64(route(tree, categorical, rows, np.int64(0)))
    oldest: int = np.int64(oldest_equal(tree, examples, X, rows.X, leaf, code))
    return oldest


@kernel
def forget(tree: Any, examples: Any, right: Any, held: Any, slot: int, adaptive: bool, inherits: bool) -> None:
    """Take a live example out of its leaf. O(depth + d)."""
    leaf, label, stamp = np.int64(examples.members[slot].leaf), np.int64(examples.y[slot]), 2 * examples.born[slot] + 1
    if adaptive:
        tally(tree, leaf, stamp, np.int64(right[slot]), -1)
    count_path(tree, leaf, label, -1)
    unlink(tree, examples.members, slot)
    site = np.int64(tree.nodes[leaf].site)
    if stamp > tree.nodes[leaf].created:
        tree.own[leaf, label] -= 1
        count_dense(held, site, slot, -1, label)
    elif inherits:
        count_dense(held, site + 1, slot, -1, label)


if TYPE_CHECKING:
    from raydt.learners.confidence_tree.shard import ConfidenceTreeShard

_BYTES, _SMALL = np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int32)
_INTS, _FLOATS = np.empty(0, dtype=np.int64), np.empty(0)
_COUNTS = np.empty((0, 0), dtype=np.int64)
_LIKE = (
    ConfidenceTreeArrays(np.empty(0, NODE), _COUNTS, _COUNTS, _INTS, np.empty(0, TRIAL), _COUNTS),
    np.empty(0, MEMBER),
    np.empty((0, 0, 0), np.int32),
    np.empty((0, 0), np.uint16),
    np.empty((0, 0)),
    Bins(np.empty(0, np.int8), _FLOATS, _SMALL, _INTS, _BYTES, _SMALL, _SMALL),
    _SMALL,
    _BYTES,
    _COUNTS,
)
#: The arrays of a list, in its order: of what type they are.
_FLAT = (
    *_LIKE[0],
    *(np.empty(0, MEMBER), _SMALL, _INTS, _SMALL, _INTS, _INTS, _BYTES),  # examples, store, who was right
    *(_COUNTS, _LIKE[2]),  # statistics
    *(_INTS, _LIKE[5].kinds, _INTS, _INTS),  # columns
    *(_LIKE[3], _LIKE[4]),  # codes and rows
    *_LIKE[5],
    *(_SMALL, _SMALL, _BYTES, _SMALL),  # groups of bins; normal columns and their scores
)
#: Behind them: for how many nodes the depth of the tree is known, and the depth.
_KNOWN = WORDS * len(_FLAT)
_HALVES = half_logs()
#: What is noted of a tree; behind that, from ``_USED`` on, slots that have been used, and one more than the largest
#: class that came.
_NOTED = ("active", "nodes", "leaves", "depth")
_USED = len(_NOTED)
_TOTALS = ("rebuilds", "rebuilt_rows", "checks", "splits", "ties", "restarted")


@inlined_kernel
def _come(
    tree: Any, examples: Any, right: Any, rows: Any, held: Any, scratch: Any, bins: Any, naive: Any, odds: Any,
    step: Any, categorical: Any, grace: int, adaptive: bool, inherits: bool,
) -> None:  # fmt: skip
    """Predict the row of a step and, unless it is a query, take its example into its leaf. O(depth + d K).

    A check of the leaf has come to nothing.
    """
    leaf = route(tree, categorical, rows, np.int64(step.row))
    above = leaf
    while total(tree.counts, above) == 0 and tree.nodes[above].parent >= 0:
        above = np.int64(tree.nodes[above].parent)
    most = np.int64(majority(tree.counts, above))
    step.prediction, step.level = most, level_at(tree.counts, above)
    adds = step.kind == ADD
    slot = np.int64(step.slot) if adds else np.int64(0)
    site = np.int64(tree.nodes[leaf].site)
    codes = held.codes if adds else scratch
    if adds or len(naive.table) > 0:
        for j in range(rows.X.shape[1]):
            codes[slot, j] = code_of(rows.X[step.row, j], bins, j)
    if len(naive.table) > 0:  # a prediction must not know the label of its own row
        at, found, normals = HeldDense(held.counts, held.columns, codes), naive.found[0], naive.found_normal
        score_dense(at, naive, site, slot, found, 1)
        k = np.int64(naive_class(tree.own[leaf], found, naive.table))
        by_normal = by_all = k
        if len(normals):
            of_all = normals[1 if inherits else 0]
            if inherits:
                score_dense(at, naive, site, slot, of_all, 2)
            score_normal(at, naive, site, slot, found, normals[0], of_all, inherits)
            by_normal = np.int64(naive_class(tree.own[leaf], normals[0], naive.table))
            if inherits:
                by_all = np.int64(naive_class(tree.counts[leaf], of_all, naive.table))
        choice = chosen(tree.nodes[leaf], adaptive, len(normals) > 0, inherits)
        if choice != MAJORITY:
            best = by_all if choice == INHERITED else by_normal if choice == NORMAL else k
            step.prediction = most if best < 0 else best
            if best == 0 or best == 1:
                if choice == INHERITED:
                    step.level = naive_level(tree.counts[leaf], normals[1], naive.table, odds)
                else:
                    scores = normals[0] if choice == NORMAL else found
                    step.level = naive_level(tree.own[leaf], scores, naive.table, odds)
        if adaptive and adds:
            label = np.int64(examples.y[slot])
            who = np.int64(MAJORITY_RIGHT if most == label else 0)
            if (most if k < 0 else k) == label:
                who |= NAIVE_RIGHT
            if len(normals) and (most if by_normal < 0 else by_normal) == label:
                who |= NORMAL_RIGHT
            if inherits and (most if by_all < 0 else by_all) == label:
                who |= INHERITED_RIGHT
            right[slot] = who
            tally(tree, leaf, 2 * examples.born[slot] + 1, who, 1)
    if adds:
        label = np.int64(examples.y[slot])
        step.path = count_path(tree, leaf, label, 1)
        link(tree, examples.members, leaf, slot)
        tree.own[leaf, label] += 1
        tree.nodes[leaf].since += 1
        if tree.nodes[leaf].since >= grace:
            tree.nodes[leaf].since = 0
        count_dense(held, site, slot, 1, label)


@kernel
def _take_many(directory: Any, like: Any, batches: Any, out: Any, shared: Any, trees: Any, admits: bool) -> int:
    """Take the batches of some trees but those that go the usual way; returns how many checks are due.

    Batches with checks wait, admitted; those that have waited are taken as they are, where it ``admits`` nothing.
    """
    like_tree, like_members, like_counts, like_codes, like_X, like_bins, smalls, bytes_, ints2 = like
    categorical, (grace, adaptive, inherits), scratch, scores, tables, rows_of, (group, search, noted) = shared
    found, sums, normals = scores
    table, odds, halves = tables
    indptr, indices, weight = rows_of
    ints = batches.start
    due: int = np.int64(0)
    for k in trees:
        words = array_at(ints, directory, k)
        tree = ConfidenceTreeArrays(
            array_at(like_tree.nodes, words, 0),
            array_at(ints2, words, 1),
            array_at(ints2, words, 2),
            array_at(ints, words, 3),
            array_at(like_tree.trials, words, 4),
            array_at(ints2, words, 5),
        )
        y, born = array_at(smalls, words, 7), array_at(ints, words, 8)
        examples = WeighedExamples(array_at(like_members, words, 6), y, born, weight)
        slots, ids = array_at(smalls, words, 9), array_at(ints, words, 10)
        bits = 0
        while (1 << bits) < len(slots):
            bits += 1
        index, reg, right = Index(slots, bits, ids), array_at(ints, words, 11), array_at(bytes_, words, 12)
        rows = RowBlock(batches.X[batches.rows[k] : batches.rows[k + 1]], indptr, indices)
        if admits and not admit_batch(batches, out, k, index, reg, y, born):
            continue
        kinds = array_at(like_bins.kinds, words, 16)
        columns = BinnedColumns(
            array_at(ints, words, 15), kinds, array_at(ints, words, 17), array_at(ints, words, 18), group
        )  # fmt: skip
        counts = Statistics(array_at(ints2, words, 13), array_at(like_counts, words, 14))
        held, X = HeldDense(counts, columns, array_at(like_codes, words, 19)), array_at(like_X, words, 20)
        bins = Bins(
            array_at(like_bins.kinds, words, 21), array_at(like_bins.values, words, 22), array_at(smalls, words, 23),
            array_at(ints, words, 24), array_at(bytes_, words, 25), array_at(smalls, words, 26),
            array_at(smalls, words, 27),
        )  # fmt: skip
        low, stop = array_at(smalls, words, 28), array_at(smalls, words, 29)
        normal, score = array_at(bytes_, words, 30), array_at(smalls, words, 31)
        naive = Naive(ints[:0], table, low, stop, found, normal, score, halves, sums, normals)
        first = batches.room * batches.begin[k]
        steps = out.steps[first : first + out.numbers[k, STEPS]]
        if admits and may_check(tree, categorical, rows, grace):
            before = due
            due = note_checks(tree, categorical, examples, rows, held, bins, steps, grace, search, k, noted, due)
            if due > before:
                continue
        for i in range(batches.begin[k], batches.begin[k + 1]):
            if out.new[i] >= 0:
                for j in range(X.shape[1]):
                    X[out.new[i], j] = rows.X[out.row[i], j]
        for s in range(len(steps)):
            step = steps[s]
            if step.kind == REMOVE:
                slot = np.int64(step.slot)
                step.path = tree.nodes[examples.members[slot].leaf].depth + 1
                forget(tree, examples, right, held, slot, adaptive, inherits)
            else:
                _come(
                    tree, examples, right, rows, held, scratch, bins, naive, odds, step, categorical, grace,
                    adaptive, inherits,
                )  # fmt: skip
        end_batch(batches, out, k, index, reg)
        if words[_KNOWN] != tree.reg[NODES]:
            words[_KNOWN], words[_KNOWN + 1] = tree.reg[NODES], deepest(tree.nodes)
        notes = out.numbers[k, NOTES:]
        notes[0], notes[1], notes[2], notes[3] = reg[LIVE], tree.reg[NODES], tree.reg[LEAVES], words[_KNOWN + 1]
        classes = 0
        for i in range(batches.begin[k], batches.begin[k + 1]):
            if out.new[i] >= 0:
                classes = max(classes, 1 + np.int64(y[out.new[i]]))
        notes[_USED], notes[_USED + 1] = reg[USED], classes
    return due


class WalkedBy(NamedTuple):
    """The properties that trees taken together have in common, beside classes and features (``LiveConfidenceTree``)."""

    grace: int
    naive: bool
    adaptive: bool
    normal: bool
    inherits: bool
    split_rule: SplitRule
    by_feature: bool


class ListedConfidenceTree:
    """The arrays of a tree, its examples and its shard, for the call that takes many; as long as they are these."""

    def __init__(self, live: LiveConfidenceTree, worker: ConfidenceTreeShard, decider: Decider) -> None:
        store, tree = live.store, live.tree
        held, bins = worker.single(store.capacity, live.sites, tree.counts.shape[1])
        naive, X = worker.naive(_INTS, _INTS, _COUNTS, _COUNTS), worker.features_by_slot
        arrays = (
            *(*tree, live.members, store.y, store.born, store.table, store.id, store.reg, live.right, *held.counts),
            *(*held.columns[:-1], held.codes, X, *bins, naive.low, naive.stop, naive.normal, naive.score),
        )
        self._tree, self._members, self._table, self._id = tree, live.members, store.table, store.id
        self._bins, self._held = live.bins, worker.arrays
        self.rows = store.capacity
        whole = min(map(len, (live.members, live.right, held.codes, X))) >= store.capacity == len(store.id)
        fits = whole and fit(arrays, _FLAT)
        self.addresses = Addresses(arrays, (-1, 0)) if fits else Addresses()
        self._sites, classes = held.counts.totals.shape
        self.classes = tree.counts.shape[1]
        rules = WalkedBy(
            live.grace, live.naive, live.adaptive, live.normal, live.inherits, decider.rule, decider.by_feature
        )
        self.group = _group(rules, classes, live.categorical.tobytes()) if fits else None

    def is_current(self, live: LiveConfidenceTree, worker: ConfidenceTreeShard) -> bool:
        """Return whether the arrays are those of the tree and the shard, with room for all that it counts."""
        store = live.store
        return (
            self._tree is live.tree
            and self._members is live.members
            and self._table is store.table
            and self._id is store.id
            and self._bins is live.bins
            and all(map(is_, self._held, worker.arrays))
            and live.sites <= self._sites
            and live.unit == 1
            and self.addresses.entry[1] > 0  # of a copy there is none
        )


def group_of(
    live: LiveConfidenceTree,
    features: Features,
    worker: ConfidenceTreeShard,
    decider: Decider,
    batch: UpdateBatch,
    listed: ListedConfidenceTree | None,
) -> tuple[ListedConfidenceTree | None, Many | None]:
    """Return the list of a tree's arrays, if it has one, and the group of trees whose batches are taken with this one.

    None if the batch goes the usual way: in the warm-up, with weights, trials or sparse features.
    """
    if listed is None or not listed.is_current(live, worker):
        if live.bins is None or live.unit > 1 or live.period > 0 or features.sparse or not features.names:
            return listed, None
        live.reserve(len(batch.op))
        listed = ListedConfidenceTree(live, worker, decider)
    weighted = batch.weight is not None or live.store.weight is not None
    if weighted or not batch.start or batch.n_classes > listed.classes:
        return listed, None
    return listed, listed.group


class _ManyConfidenceTrees:
    """Trees of the same options, features and number of classes."""

    def __init__(self, rules: WalkedBy, classes: int, categorical: bytes) -> None:
        self._rules, self._classes = rules, classes
        self._categorical = np.frombuffer(bytearray(categorical), dtype=np.bool_)
        self._rule = SharedRule(rules.split_rule, by_feature=rules.by_feature)

    def take(self, sessions: Sequence[Any], batches: ManyBatches) -> list[BatchResult | None]:
        """Take the batches of some sessions; None of those that go the usual way."""
        coordinators = [session.coordinator for session in sessions]
        stores = [one.live.store for one in coordinators]
        for store in stores:
            store.changes += 1  # before, so that a change that is broken off is counted
        classes, table, longest = self._classes, _INTS, batches.longest
        most = max(one.listed.rows for one in coordinators)
        if self._rules.naive:
            table = _LOGS.reach(np.array([most]))
        directory = np.array([one.listed.addresses.entry for one in coordinators], dtype=np.int64)
        rules, normals = self._rules, self._rules.normal + self._rules.inherits
        found, of_normals = (np.empty((n, classes), dtype=np.int64) for n in (1, normals))
        scores = found, np.empty((2, classes)), of_normals
        scratch = np.empty((1, len(self._categorical)), dtype=np.uint16)
        rows = np.zeros(longest + 1, dtype=np.int64), _SMALL, NO_WEIGHTS
        options = rules.grace, rules.adaptive, rules.inherits
        noted = NotedChecks.room(len(batches.given.op), longest, classes)
        checked = np.array([0, len(self._categorical)]), self._rule.search(most, classes), noted
        shared = self._categorical, options, scratch, scores, (table, ODDS, _HALVES), rows, checked
        rest = directory, _LIKE, batches.given, batches.taken, shared
        due = _take_many(*rest, np.arange(len(sessions)), True)
        checks, split = np.zeros(len(sessions), dtype=np.int64), _INTS
        if due:
            checks = np.bincount(noted.of[:due, 0], minlength=len(sessions))
            now = np.array([one.examples_and_classes for one in coordinators]).T
            split = self._rule.splits(noted, due, *now)
            _take_many(*rest, np.setdiff1d(np.flatnonzero(checks), split), False)
        admitted = [(k, *batches.withdraw(k)) for k in split.tolist()]
        results = batches.results(_NOTED, [{} for _ in sessions])
        noted_of = batches.taken.numbers[:, NOTES + _USED :].tolist()
        counted = zip(coordinators, batches.batches, results, checks.tolist(), strict=True)
        for k, (one, batch, result, of) in enumerate(counted):
            if result is not None:
                used, came = noted_of[k][:2]
                sessions[k].shards[0].worker.keep(used - 1)
                one.took(batch.start + result.applied, batches, k)
                totals = one.took_rows(result.inserts, came, of)
                result.statistics.update(zip(_TOTALS, (0, 0, *totals), strict=True))
        for k, *admission in admitted:
            one = coordinators[k]
            result = results[k] = sessions[k].driver.run(one.take_admitted(batches.batches[k], *admission))
            result.statistics = one.statistics()
        return results


_LOGS = SharedLogs()


@functools.lru_cache(64)
def _group(rules: WalkedBy, classes: int, categorical: bytes) -> _ManyConfidenceTrees:
    return _ManyConfidenceTrees(rules, classes, categorical)
