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

from raydt.arrays.addresses import WORDS, Addresses, array_at, fit, flat
from raydt.arrays.elementary import Ints
from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.batches.binning import Bins, code_of
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.store import LIVE, USED
from raydt.examples.updates import NO_WEIGHTS, BatchResult, Features, UpdateBatch
from raydt.finders.finder import table_of, xlogx_table
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE, Many
from raydt.learners.confidence_tree.bounds import COUNTS, CRITERIA, SplitRule
from raydt.learners.confidence_tree.dynamic_tree import Decider, LiveConfidenceTree, Times
from raydt.learners.confidence_tree.leaf_predictions import ODDS
from raydt.learners.confidence_tree.naive_bayes import SharedLogs, half_logs, score_normal
from raydt.learners.confidence_tree.statistics import (
    MAJORITY,
    BinnedColumns,
    HeldDense,
    Naive,
    Search,
    Statistics,
    chosen,
    count_dense,
    predict,
    scan_group,
    score_dense,
    tally,
)
from raydt.learners.confidence_tree.tree import (
    CHECK,
    NODE,
    ConfidenceTreeArrays,
    WeighedExamples,
    is_mixed,
)
from raydt.learners.tree_coordinator import NOTES, STEPS, ManyBatches, admit_batch, deepest, end_batch, index_of
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
        times = Times(examples[trees] + of[:, _CAME], np.maximum(classes[trees], of[:, _CLASSES]))
        decider = Decider(self._rule, by_feature=self._by_feature)  # of this call: it grows a table
        changes = decider.decide(due, noted.owns[:checks], which, times, [noted.found[:checks]], 1)
        return np.array([change.node for change in changes], dtype=np.int64)


# One example at a time, where coordinator and shard are in one process: a compiled call for each.
#
# The kernels of a window do the same in passes: walk, count, settle. Nothing here splits a leaf, renews bins: the
# coordinator checks the leaf that is due, and an example that makes new bins due is taken as a batch.


@inlined_kernel
def _come(
    tree: Any, categorical: Any, examples: Any, by_slot: Any, rows: Any, held: Any, scratch: Any, bins: Any, naive: Any,
    odds: Any, step: Any, rules: Any,
) -> int:  # fmt: skip
    """Predict the row of a step and, unless it is a query, take its example into its leaf. O(depth + d K).

    Return the leaf if a check of that is due, else -1. The naive ``table`` has length 0 where leaves predict the
    majority; ``scratch`` has room for the bins of a query.
    """
    (right, X), (grace, adaptive, inherits) = by_slot, rules
    leaf = np.int64(route(tree, categorical, rows, np.int64(step.row)))
    above = leaf
    while total(tree.counts, above) == 0 and tree.nodes[above].parent >= 0:
        above = np.int64(tree.nodes[above].parent)
    step.prediction, step.level = np.int64(majority(tree.counts, above)), level_at(tree.counts, above)
    adds = step.kind == ADD
    due: int = np.int64(-1)
    slot = np.int64(step.slot) if adds else np.int64(0)
    label = np.int64(examples.y[slot]) if adds else np.int64(-1)
    site, stamp = np.int64(tree.nodes[leaf].site), np.int64(2 * examples.born[slot] + 1 if adds else 0)
    normals = naive.found_normal
    scores = len(naive.table) > 0 and (
        (adds and adaptive) or chosen(tree.nodes[leaf], adaptive, len(normals) > 0, inherits) != MAJORITY
    )
    codes = held.codes if adds else scratch
    if adds:
        for j in range(rows.X.shape[1]):
            X[slot, j] = rows.X[step.row, j]
    if adds or scores:
        for j in range(rows.X.shape[1]):
            codes[slot, j] = code_of(rows.X[step.row, j], bins, j)
    if scores:  # a prediction must not know the label of its own row
        at, found, of_all = HeldDense(held.counts, held.columns, codes), naive.found[0], np.int64(1 if inherits else 0)
        score_dense(at, naive, site, slot, found, 1)
        if len(normals):
            if inherits:
                score_dense(at, naive, site, slot, normals[of_all], 2)
            score_normal(at, naive, site, slot, found, normals[0], normals[of_all], inherits)
        of_row = naive.found, np.int64(0), normals, of_all
        priors, tables = (tree.own[leaf], tree.counts[leaf]), (naive.table, odds)
        who = np.int64(predict(step, tree.nodes[leaf], priors, of_row, tables, label, (adaptive, inherits)))
        if adaptive and adds:
            right[slot] = who
            tally(tree, leaf, stamp, who, 1)
    if adds:
        step.path = count_path(tree, leaf, label, 1)
        link(tree, examples.members, leaf, slot)
        tree.own[leaf, label] += 1
        tree.nodes[leaf].since += 1
        if tree.nodes[leaf].since >= grace:
            tree.nodes[leaf].since = 0
            if is_mixed(tree.own, leaf):
                due = leaf
        count_dense(held, site, slot, 1, label)
    return due


@kernel
def come(
    tree: Any, categorical: Any, examples: Any, by_slot: Any, rows: Any, held: Any, scratch: Any, bins: Any, naive: Any,
    odds: Any, steps: Any, rules: Any,
) -> int:  # fmt: skip
    """Take the only step of ``steps``, an insertion or a query, as those of many trees are taken.

    ``by_slot``: who was right, and the features, of all examples; ``rules``: grace period, whether leaves are adaptive,
    and whether they inherit. Return the leaf if a check of that is due, else -1. O(depth + d K).
    """
    due: int = _come(
        tree, categorical, examples, by_slot, rows, held, scratch, bins, naive, odds, steps[0], rules
    )  # fmt: skip
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
#: The arrays of a list, in its order: of what type they are.
_LIKE = (
    ConfidenceTreeArrays(np.empty(0, NODE), _COUNTS, _COUNTS, _INTS),
    *(np.empty(0, MEMBER), _SMALL, _INTS, (_SMALL, _INTS), _INTS, _BYTES),  # examples, store, who was right
    Statistics(_COUNTS, np.empty((0, 0, 0), np.int32)),
    (_INTS, np.empty(0, np.int8), _INTS, _INTS),  # columns
    *(np.empty((0, 0), np.uint16), np.empty((0, 0))),  # codes and rows
    Bins(np.empty(0, np.int8), _FLOATS, _SMALL, _INTS, _BYTES, _SMALL, _SMALL),
    (_SMALL, _SMALL, _BYTES, _SMALL),  # groups of bins; normal columns and their scores
)
#: Behind them: for how many nodes the depth of the tree is known, and the depth.
_KNOWN = WORDS * len(flat(_LIKE))
_HALVES = half_logs()
#: What is noted of a tree; behind that, from ``_USED`` on, slots that have been used, and one more than the largest
#: class that came.
_NOTED = ("active", "nodes", "leaves", "depth")
_USED = len(_NOTED)
_TOTALS = ("rebuilds", "rebuilt_rows", "checks", "splits", "ties")


@kernel
def _take_many(directory: Any, like: Any, batches: Any, out: Any, shared: Any, trees: Any, admits: bool) -> int:
    """Take the batches of some trees but those that go the usual way; returns how many checks are due.

    Batches with checks wait, admitted; those that have waited are taken as they are, where it ``admits`` nothing.
    """
    categorical, (grace, adaptive, inherits), scratch, scores, tables, rows_of, (group, search, noted) = shared
    found, sums, normals = scores
    table, odds, halves = tables
    indptr, indices, weight = rows_of
    ints = batches.start
    due: int = np.int64(0)
    for k in trees:
        words = array_at(ints, directory, k)
        (
            tree, members, y, born, (slots, ids), reg, right, counts, (feature, kinds, cuts, starts), codes, X, bins,
            (low, stop, normal, score),
        ) = array_at(like, words, 0)  # fmt: skip
        examples, index = WeighedExamples(members, y, born, weight), index_of(slots, ids)
        rows = RowBlock(batches.X[batches.rows[k] : batches.rows[k + 1]], indptr, indices)
        if admits and not admit_batch(batches, out, k, index, reg, y, born):
            continue
        held = HeldDense(counts, BinnedColumns(feature, kinds, cuts, starts, group), codes)
        naive = Naive(ints[:0], table, low, stop, found, normal, score, halves, sums, normals)
        first = batches.room * batches.begin[k]
        steps = out.steps[first : first + out.numbers[k, STEPS]]
        if admits and may_check(tree, categorical, rows, grace):
            before = due
            due = note_checks(tree, categorical, examples, rows, held, bins, steps, grace, search, k, noted, due)
            if due > before:
                continue
        for s in range(len(steps)):
            step = steps[s]
            if step.kind == REMOVE:
                slot = np.int64(step.slot)
                step.path = tree.nodes[examples.members[slot].leaf].depth + 1
                forget(tree, examples, right, held, slot, adaptive, inherits)
            else:
                _come(
                    tree, categorical, examples, (right, X), rows, held, scratch, bins, naive, odds, step,
                    (grace, adaptive, inherits),
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
            *(tree, live.members, store.y, store.born, (store.table, store.id), store.reg, live.right, held.counts),
            *(held.columns[:-1], held.codes, X, bins, (naive.low, naive.stop, naive.normal, naive.score)),
        )
        self._tree, self._members, self._table, self._id = tree, live.members, store.table, store.id
        self._bins, self._held = live.bins, worker.arrays
        self.rows = store.capacity
        whole = min(map(len, (live.members, live.right, held.codes, X))) >= store.capacity == len(store.id)
        fits = whole and fit(arrays, _LIKE)
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

    None if the batch goes the usual way: in the warm-up, with weights or sparse features.
    """
    if listed is None or not listed.is_current(live, worker):
        if live.bins is None or live.unit > 1 or features.sparse or not features.names:
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
