"""The coordinator's half of an update: rows are routed, counted along their paths, and listed in their leaves.

A window of steps is taken as if no node had to be rebuilt, and rolled back after the first that shows otherwise
(``speculation``). It ends with a step that decides sides of missing numbers, which are provisional until it is final.
Class counts are kept at all nodes, not only at leaves. Where they are masses (``raydt.trees.masses``), ``pairs`` counts
the rows of a node, and a row that weighs 0 is in no leaf (-1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import is_one
from raydt.arrays.types import Bools
from raydt.learners.sequential import ADD, LOOK, REMOVE
from raydt.learners.sparse_tree.rules import WatchRules, must_be_leaf
from raydt.trees.counted_tree import TO_RIGHT, UNDECIDED
from raydt.trees.masses import mass_of
from raydt.trees.records import count_path, level_at, link, majority, unlink
from raydt.trees.routes import passes_left, side_of_missing

#: What a provisional side of missing numbers adds to the side.
PROVISIONAL = 2


class WeighedRows(NamedTuple):
    """What rows count."""

    weight: npt.NDArray[np.uint32]  #: By slot, in units; empty while counts are numbers of rows.
    #: Size below which nodes are leaves, if a node has to be rebuilt, too, that has passed it since BUILD; 0: not.
    size: int


class StepRules(NamedTuple):
    """How steps are taken."""

    categorical: Bools  #: Shape (dense features,).
    watch: WatchRules
    scheduled: bool  #: Whether a node must be rebuilt that took more than epsilon * s updates, too.
    weighed: WeighedRows
    watched: bool  #: Otherwise (in a warm-up) nothing is predicted or tested, and c stays.


@kernel
def route(tree: Any, categorical: Any, rows: Any, row: int) -> int:
    """Leaf of one row of ``Rows``. A sparse feature that is 0 goes left. O(depth log ones)."""
    node, dense = 0, len(categorical)
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        if j < dense:
            left = passes_left(tree, node, rows.X[row, j], categorical[j])
        else:
            left = not is_one(rows.indices, rows.indptr[row], rows.indptr[row + 1], j - dense)
        node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
    return node


@inner_kernel
def _decide(tree: Any, dense: int, rows: Any, row: int, leaf: int) -> bool:
    """Decide the sides of missing numbers that a row is the first to lack; whether there are any."""
    decided = False
    node = np.int64(tree.nodes[leaf].parent)
    while node >= 0:
        j = tree.nodes[node].feature
        if j < dense and tree.nodes[node].missing == UNDECIDED and rows.X[row, j] != rows.X[row, j]:
            tree.nodes[node].missing = side_of_missing(tree, node) + PROVISIONAL
            decided = True
        node = np.int64(tree.nodes[node].parent)
    return decided


@inner_kernel
def _end_decision(tree: Any, leaf: int, stays: bool) -> None:
    """Make the provisional sides of a path final, or undecided."""
    node = np.int64(tree.nodes[leaf].parent)
    while node >= 0:
        side = np.int64(tree.nodes[node].missing)
        if side > TO_RIGHT:
            tree.nodes[node].missing = side - PROVISIONAL if stays else UNDECIDED
        node = np.int64(tree.nodes[node].parent)


@kernel
def walk(
    tree: Any, examples: Any, rows: Any, steps: Any, leaf_of: Any, begin: int, stop: int, rules: Any
) -> tuple[int, int]:
    """Take steps from ``begin`` to before ``stop``, or through the first after which a node must be rebuilt.

    That is an inner node that must be a leaf, or one that is due by the schedule. A step that decides a side of missing
    numbers is the last, too. ``leaf_of`` takes the leaf of each
    step. Returns the step after the last that was taken, and the root-most such node, -1 if there is none.
    """
    for i in range(begin, stop):
        kind, slot = steps[i].kind, steps[i].slot
        if kind == REMOVE:
            leaf = np.int64(examples.members[slot].leaf)
        else:
            leaf = route(tree, rules.categorical, rows, np.int64(steps[i].row))
            if rules.watched or kind == LOOK:
                steps[i].prediction, steps[i].level = majority(tree.counts, leaf), level_at(tree.counts, leaf)
            if kind == ADD:
                if mass_of(rules.weighed.weight, slot) == 0:
                    leaf = np.int64(-1)
                examples.members[slot].leaf = leaf
        leaf_of[i] = leaf
        if kind == LOOK or leaf < 0:
            continue
        mass = mass_of(rules.weighed.weight, slot)
        by, row = (mass, 1) if kind == ADD else (-mass, -1)
        decided = kind == ADD and _decide(tree, len(rules.categorical), rows, np.int64(steps[i].row), leaf)
        count_path(tree, leaf, examples.y[slot], by)
        broken = -1  # the last one found is the root-most, as the path is taken from the leaf up
        node = leaf
        while node >= 0:
            if len(rules.weighed.weight) > 0:
                tree.statistics[node].pairs += row
            if rules.watched:
                tree.statistics[node].c += mass
                n1 = tree.counts[node, 1]
                n = tree.counts[node, 0] + n1
                if tree.nodes[node].feature >= 0 and must_be_leaf(rules.watch, n, n1):
                    broken = node
                size = rules.weighed.size
                if rules.scheduled and size > 0 and (tree.statistics[node].s >= size) != (n >= size):
                    broken = node
                if rules.scheduled and tree.statistics[node].c > tree.statistics[node].allowed:
                    broken = node
            node = tree.nodes[node].parent
        if broken >= 0 or decided:
            return i + 1, broken
    return stop, -1


@kernel
def roll_back(tree: Any, y: Any, weight: Any, steps: Any, leaf_of: Any, keep: int, stop: int) -> None:
    """Roll back the counts of the steps from ``keep`` to before ``stop``; ``weight`` is as in ``WeighedRows``."""
    for i in range(keep, stop):
        kind = steps[i].kind
        if kind == LOOK or leaf_of[i] < 0:
            continue
        mass = mass_of(weight, steps[i].slot)
        count_path(tree, leaf_of[i], y[steps[i].slot], mass if kind == REMOVE else -mass)
        _end_decision(tree, leaf_of[i], False)
        node = leaf_of[i]
        while node >= 0:
            tree.statistics[node].c -= mass
            if len(weight) > 0:
                tree.statistics[node].pairs += 1 if kind == REMOVE else -1
            node = tree.nodes[node].parent


@kernel
def list_steps(tree: Any, members: Any, steps: Any, leaf_of: Any, begin: int, stop: int) -> None:
    """Put the examples of steps that are final into the lists of their leaves, or take them out; note their paths."""
    if begin < stop and steps[stop - 1].kind == ADD and leaf_of[stop - 1] >= 0:
        _end_decision(tree, leaf_of[stop - 1], True)
    for i in range(begin, stop):
        kind, slot = steps[i].kind, steps[i].slot
        if kind == LOOK or leaf_of[i] < 0:
            continue
        if kind == ADD:
            link(tree, members, leaf_of[i], slot)
        else:
            unlink(tree, members, slot)
        steps[i].path = tree.nodes[leaf_of[i]].depth + 1
