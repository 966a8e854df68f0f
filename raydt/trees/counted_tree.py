"""The tree of fully dynamic learners: nodes, the rows of each leaf, and when a rebuild is due, by counts.

Invariants: node 0 is the root; the rows of a leaf form a doubly linked list through the ``MEMBER`` records of their
slots. Of each node:

- ``counts``: class counts of the rows below it; with numeric labels one class, and ``sums`` of the labels and of their
  squares, in the units of ``regression_sums``.
- ``n``, ``pairs``: rows, and ordered pairs of rows of different classes, n^2 - sum c_k^2; of numeric labels the mass,
  rounded up.
- ``s``, ``c``, ``built``: rows when it was built, updates since, stamp of the update that built it.
- ``allowed``: the largest c at which nothing has to be tested. By schedule exactly the floor of epsilon s.
- ``missing``: the side of a missing number, if it is decided: by BUILD where the rows have one, else when the first one
  is learned.
- ``m0``, ``gone``: of a certificate (``docs/explanation/guarantees.md``): mass that the split left when it was built,
  and rows of that time that were deleted since.

*Schedule, in numbers.* With epsilon = 0.1 a node built from s = 25 rows has ``allowed`` = 2: the third update rebuilds
it.

*Certificate, in numbers.* A split is built from 50 rows of each class and leaves 40 | 10 and 10 | 40. A side has 800
pairs, so its mass is 800 / 50 = 16 and ``m0`` = 32. With beta = 0.2 it may lack 0.2 * 100 = 20, of which one update
takes at most 2.2: ``allowed`` = floor(20 / 2.2) - 1 = 8, one less for rounding. Say that 9 updates later ``gone`` = 3,
n = 103 and the sides have mass 35. No split can leave less than 32 - 2 * 3 = 26, so this one lacks at most 9 of 20.6.
It stays, and ``allowed`` = 9 + floor(11.6 / 2.2) - 1 = 13.

*Reach of a rebuild, in numbers.* Of a path with s = 70, 30 and 20 from the root down the node of 20 is due. The next
power of two is 32: the node of 30 is rebuilt with it, the root is not.

Symbols: s(v) = ``s``, c(v) = ``c``, h = ``max_depth``, k = ``min_samples_split - 1`` (paper); |S| = ``n``, D = the
``gone`` rows, h(S) = :func:`gini_mass`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.arrays.memory import grown
from raydt.arrays.types import Ints
from raydt.trees.exact_products import floor_product
from raydt.trees.records import LEAF, NODES, majority, total
from raydt.trees.regression_sums import mass_ceiling, number_mass
from raydt.trees.weighted_counts import in_rows, is_pure, is_pure_enough, weighted_mass
from raydt.trees.weighted_numbers import add_number, are_close, are_equal, weighted_number_mass

#: Registers of the tree behind those of all trees (``records``): subtrees rebuilt so far, rows in them, and insertions
#: that a warm-up still waits for.
REBUILDS, REBUILT_ROWS, WARMUP_LEFT = 4, 5, 6
#: Birth of an example that :func:`climb` inserts: after every BUILD.
UNBORN = 2**62
#: Side of a missing number at a split: that of more examples now, as none has been there since BUILD; left; right.
UNDECIDED, TO_LEFT, TO_RIGHT = range(3)


#: One node, as routes and lists need it.
NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("feature", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("parent", np.int32),
        ("depth", np.int32),
        ("head", np.int32),
        ("label", np.int32),
        ("missing", np.int8),
    ],
    align=True,
)
#: The statistics of one node: a cache line of its own, so that routes read few.
STATISTICS = np.dtype(
    [
        ("n", np.int64),
        ("pairs", np.int64),
        ("c", np.int64),
        ("allowed", np.int64),
        ("built", np.int64),
        ("gone", np.int64),
        ("m0", np.float64),
        ("s", np.int64),
    ]
)


class CountedTree(NamedTuple):
    """Nodes, their statistics and class counts, and registers; ``left`` of a free node is the next free one.

    ``sums``, of numeric labels, has a row per node, and no column with classes; with weights (``weighted_numbers``)
    it has a third column.
    """

    nodes: npt.NDArray[np.void]
    statistics: npt.NDArray[np.void]
    counts: Ints
    reg: Ints
    sums: Ints


class TreeRules(NamedTuple):
    """The options as numbers."""

    epsilon: float
    half_alpha: float  #: Impurity up to which BUILD makes a leaf.
    min_samples_split: int  #: ``min_samples_split``, ``max_depth``: k + 1 and h.
    max_depth: int
    #: Whether an inner node is rebuilt when its certificate runs out, not after epsilon * s updates.
    certified: bool = False
    slack: float = 0.0  #: Beta less a margin for rounding: mass per example that a certificate may lack.
    step: float = 2.0  #: What one deletion may take from the mass that a split leaves.
    #: Of numeric labels, half_alpha in whole units squared; masses, slack and step are in these units, too.
    half_alpha_units: int = 0
    #: What a row of weight 1 counts: 1 or, where rows have weights, ``UNIT``; ``min_samples_split`` is in these units.
    unit: int = 1
    #: With weights, whether a node is rebuilt once its size has passed ``min_samples_split``: a fraction of a row may
    #: do that before more than epsilon s has changed; a whole one may not, where epsilon is below 1 / (k + 1).
    by_size: bool = False


def new_tree(capacity: int, classes: int) -> CountedTree:
    """An empty tree: one leaf without rows. With one class its labels are numbers."""
    nodes = np.zeros(capacity, dtype=NODE)
    for name in ("feature", "left", "right", "parent", "head"):
        nodes[name] = -1
    statistics = np.zeros(capacity, dtype=STATISTICS)
    statistics["built"] = -1
    counts = np.zeros((capacity, classes), dtype=np.int64)
    sums = np.zeros((capacity, 2 if classes == 1 else 0), dtype=np.int64)
    return CountedTree(nodes, statistics, counts, np.array([1, -1, 1, 1, 0, 0, 0], dtype=np.int64), sums)


def with_room(tree: CountedTree, nodes: int, classes: int) -> CountedTree:
    """The same tree with room for ``nodes`` more nodes and counts of ``classes`` classes."""
    capacity, known = tree.counts.shape
    need = int(tree.reg[NODES]) + nodes
    if need <= capacity and classes <= known:
        return tree
    if need > capacity:
        capacity = max(need, capacity + capacity // 2)
    counts = np.zeros((capacity, max(classes, known)), dtype=np.int64)
    counts[: len(tree.counts), :known] = tree.counts
    sums = np.zeros((capacity, tree.sums.shape[1]), dtype=np.int64)
    sums[: len(tree.sums)] = tree.sums
    return CountedTree(grown(tree.nodes, capacity), grown(tree.statistics, capacity), counts, tree.reg, sums)


@kernel
def stays_leaf(tree: Any, node: int, rules: Any) -> bool:
    """Line 3 of BUILD: |S| <= k, or g(S) <= alpha / 2 (compared exactly), or depth = h; of a node that is counted."""
    n = tree.statistics[node].n
    if n < rules.min_samples_split or tree.nodes[node].depth >= rules.max_depth:
        return True
    if rules.unit > 1:
        if tree.counts.shape[1] == 1:
            pure: bool = are_close(n, tree.sums, node, rules.half_alpha_units)
        else:
            pure = is_pure_enough(tree.counts, node, rules.half_alpha)
        return pure
    limit = rules.half_alpha_units * n if tree.counts.shape[1] == 1 else floor_product(rules.half_alpha, n * n)
    stays: bool = tree.statistics[node].pairs <= limit
    return stays


@kernel
def most_nodes(n: int, depth: int, rules: Any) -> int:
    """Bound on the nodes of a subtree built at ``depth`` from n rows."""
    levels = rules.max_depth - depth
    return min(2 * n, 2 << levels) if levels < 40 else 2 * n


@inlined_kernel
def gini_mass(n: int, pairs: int) -> float:
    """Mass h(S) = n g(S) of n rows of which so many ordered pairs, n^2 - sum c_k^2, differ in class. O(1)."""
    mass: float = np.float64(pairs) / np.float64(n) if n > 0 else 0.0
    return mass


@inner_kernel
def mass_by_weight(tree: Any, node: int) -> float:
    """Mass of a node whose rows have weights, in rows of weight 1."""
    if tree.counts.shape[1] == 1:
        mass: float = weighted_number_mass(tree.counts[node, 0], tree.sums, node)
    else:
        mass = weighted_mass(tree.counts, node)
    return mass


@inner_kernel
def mass_left(tree: Any, node: int, rules: Any) -> float:
    """Mass that the split of an inner node leaves: that of its two sides together."""
    left, right = tree.nodes[node].left, tree.nodes[node].right
    if rules.unit > 1:
        on_sides: float = mass_by_weight(tree, left) + mass_by_weight(tree, right)
        return on_sides
    if tree.counts.shape[1] == 1:
        of_left: float = number_mass(tree.counts[left, 0], tree.sums[left, 0], tree.sums[left, 1])
        return of_left + number_mass(tree.counts[right, 0], tree.sums[right, 0], tree.sums[right, 1])
    on_left: float = gini_mass(tree.statistics[left].n, tree.statistics[left].pairs)
    return on_left + gini_mass(tree.statistics[right].n, tree.statistics[right].pairs)


@kernel
def start_node(tree: Any, node: int, stamp: int, rules: Any) -> None:
    """Lines 2 and 4-7 of BUILD: a fresh leaf; ``counts[node]`` is already right, and the number of its rows. O(K)."""
    n = total(tree.counts, node)
    if rules.unit > 1:
        pairs, mass = tree.statistics[node].pairs, mass_by_weight(tree, node)
    elif tree.counts.shape[1] == 1:
        pairs = mass_ceiling(n, tree.sums[node, 0], tree.sums[node, 1])
        mass = number_mass(n, tree.sums[node, 0], tree.sums[node, 1])
    else:
        pairs = n * n
        for k in range(tree.counts.shape[1]):
            pairs -= tree.counts[node, k] * tree.counts[node, k]
        mass = gini_mass(n, pairs)
    tree.nodes[node].feature = LEAF
    tree.nodes[node].left = tree.nodes[node].right = -1
    tree.nodes[node].head = -1
    tree.nodes[node].threshold = 0.0
    tree.nodes[node].missing = UNDECIDED
    tree.statistics[node].n = n
    tree.statistics[node].pairs = pairs
    tree.statistics[node].s = n
    tree.statistics[node].c = 0
    tree.statistics[node].allowed = floor_product(rules.epsilon, n)
    tree.statistics[node].built = stamp
    tree.statistics[node].m0 = mass
    tree.statistics[node].gone = 0
    tree.nodes[node].label = majority(tree.counts, node)


@inner_kernel
def start_children(tree: Any, node: int, stamp: int, rules: Any) -> None:
    """Start both children of a fresh split, whose counts are right, and its certificate."""
    start_node(tree, np.int64(tree.nodes[node].left), stamp, rules)
    start_node(tree, np.int64(tree.nodes[node].right), stamp, rules)
    if rules.certified:
        tree.statistics[node].m0 = mass_left(tree, node, rules)
        tree.statistics[node].allowed = edits_left(rules.slack * in_rows(tree.statistics[node].n, rules), rules)


@kernel
def target_of(tree: Any, node: int) -> int:
    """Lines 7-9 of UPDATE: the root-most ancestor not larger, when built, than the next power of two of ``node``."""
    s = tree.statistics[node].s
    bound = 0
    if s > 0:
        bound = 1
        while bound < s:
            bound *= 2
    target = node
    node = tree.nodes[node].parent
    while node >= 0:
        if tree.statistics[node].s <= bound:
            target = node
        node = tree.nodes[node].parent
    return target


@inner_kernel
def count_example(tree: Any, node: int, k: int, by: int, rules: Any) -> None:
    """Count an example of class k, or of k units, in (``by`` 1 or its weight) or out (-1 or less) at one node."""
    if rules.unit > 1:
        tree.statistics[node].pairs += 1 if by > 0 else -1
        tree.statistics[node].n += by
        if tree.counts.shape[1] == 1:
            tree.counts[node, 0] += by
            add_number(tree.sums, node, k, by)
        else:
            tree.counts[node, k] += by
        return
    if tree.counts.shape[1] == 1:
        tree.statistics[node].n += by
        tree.counts[node, 0] += by
        tree.sums[node, 0] += by * k
        tree.sums[node, 1] += by * k * k
        tree.statistics[node].pairs = mass_ceiling(tree.counts[node, 0], tree.sums[node, 0], tree.sums[node, 1])
        return
    tree.statistics[node].pairs += 2 * by * (tree.statistics[node].n - tree.counts[node, k])
    tree.statistics[node].n += by
    tree.counts[node, k] += by


@inner_kernel
def mean_at(tree: Any, leaf: int) -> float:
    """Mean label of a leaf or, if it is empty, of the nearest node above it that is not; -1 without any row."""
    node = leaf
    while tree.counts[node, 0] == 0:
        node = np.int64(tree.nodes[node].parent)
        if node < 0:
            return -1.0
    mean: float = np.float64(tree.sums[node, 0]) / np.float64(tree.counts[node, 0])
    return mean


@inner_kernel
def must_be_leaf(tree: Any, node: int, rules: Any) -> bool:
    """Whether a node is too small or pure, at which the definition of feasibility allows no split."""
    n = tree.statistics[node].n
    if rules.unit > 1:
        light: bool = n < rules.min_samples_split
        if not light and tree.counts.shape[1] == 1:
            light = are_equal(n, tree.sums, node)
        elif not light:
            light = is_pure(tree.counts, node, n)
        return light
    unfit: bool = n < rules.min_samples_split or tree.statistics[node].pairs == 0
    return unfit


@inner_kernel
def edits_left(mass: float, rules: Any) -> int:
    """Edits that a certificate outlasts surely, by its mass to spare: one takes at most 2 + beta. With weights, theirs.

    One less, and thus the mass of an edit, than that are left to the rounding of the test itself.
    """
    edits: int = max(0, int(mass / (rules.step + rules.slack)) - 1) * np.int64(rules.unit)
    return edits


@inner_kernel
def runs_out(tree: Any, node: int, rules: Any) -> bool:
    """Whether a split may leave more mass than beta n above the best one: M_own - max(0, m0 - 2 |D|) > beta n.

    If it does not, ``allowed`` says when to ask again.
    """
    least = max(0.0, tree.statistics[node].m0 - rules.step * in_rows(tree.statistics[node].gone, rules))
    lacks, budget = mass_left(tree, node, rules) - least, rules.slack * in_rows(tree.statistics[node].n, rules)
    if lacks > budget:
        return True
    tree.statistics[node].allowed = tree.statistics[node].c + edits_left(budget - lacks, rules)
    return False


@inner_kernel
def is_due(tree: Any, node: int, rules: Any) -> bool:
    """Whether a node whose counts, and those of its children, are right has to be rebuilt."""
    exhausted: bool = tree.statistics[node].c > tree.statistics[node].allowed
    if rules.by_size:
        least = rules.min_samples_split
        exhausted = exhausted or (tree.statistics[node].s >= least) != (tree.statistics[node].n >= least)
    if not rules.certified:
        return exhausted
    if tree.nodes[node].feature < 0:
        return exhausted and not stays_leaf(tree, node, rules)
    return must_be_leaf(tree, node, rules) or (exhausted and runs_out(tree, node, rules))


@inner_kernel
def climb(tree: Any, leaf: int, k: int, by: int, birth: int, rules: Any) -> int:
    """Lines 5-9 of UPDATE: count an example of class k on its path and return the node to rebuild, or -1.

    ``by`` is 1 or, where rows have weights, its weight; negative where it is being deleted.
    ``birth`` is the stamp of its insertion, ``UNBORN`` where it is being inserted. O(1) a node, O(K) at the leaf.

    Counting goes from the leaf up: counters below the root-most node that is due are one ahead of the paper's, but
    that node's subtree is rebuilt, which sets them to 0.
    """
    due = -1
    node = leaf
    while node >= 0:
        count_example(tree, node, k, by, rules)
        tree.statistics[node].c += abs(by)
        if birth <= tree.statistics[node].built:
            tree.statistics[node].gone += abs(by)
        if is_due(tree, node, rules):
            due = node
        node = tree.nodes[node].parent
    if due < 0:
        return -1
    if rules.certified and (tree.nodes[due].feature < 0 or must_be_leaf(tree, due, rules)):
        return due
    return target_of(tree, due)
