"""Checks of leaves within batches of many trees: what they find is known before a step of the batch is taken.

Most checks come to nothing, and then the batch is counted as any other. So the counts that decide are made ahead, each
check notes its candidates, and the counts are taken back. The rule decides once for the checks of all trees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inlined_kernel
from raydt.arrays.types import Ints
from raydt.batches.binning import code_of
from raydt.finders.scores import table_of, xlogx_table
from raydt.learners.confidence_tree.bounds import SplitRule
from raydt.learners.confidence_tree.impurity import COUNTS, CRITERIA
from raydt.learners.confidence_tree.split_decisions import Decider, StepWindow, Times
from raydt.learners.confidence_tree.statistics import Search, count_dense, scan_group
from raydt.learners.confidence_tree.tree import CHECK, ENTRY, CountedRows, Path, is_mixed
from raydt.learners.sequential import ADD, LOOK, STEP
from raydt.trees.records import route

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
