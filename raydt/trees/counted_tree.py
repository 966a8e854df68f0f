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

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import grown
from raydt.arrays.elementary import Floats, Int32s, Ints
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.examples.updates import BITS, UNIT
from raydt.trees.records import LEAF, NODES, USED, floor_product, majority, rest_of_product, total

# Numeric labels of a tree as whole numbers: their range, the unit they are counted in, and the mass of a node.
#
# A label y of the range [low, high] counts as ``q = floor((y - low) / unit + 1/2)`` units, from 0 to ``top``; one
# outside as the nearer end. The unit is the power of two for which ``top`` is at most 65536, so that whole numbers, and
# fractions of them by powers of two, are counted exactly. All a node keeps of its labels are n, the sum of q, and the
# sum of q^2: integers, which do not depend on the order of insertions and deletions.
#
# Mass of a node, h = sum (q - mean)^2 in units squared. Its variance is h / n, and h / (n top^2) in units of the range
# squared, in which alpha and beta are given.
#
# Invariant: up to ``MOST_EXAMPLES`` examples, every sum and the numerator of every gain fit into 64 bits.

#: A label has at most so many units.
MOST_UNITS = 65536
#: |l n - n_left q| <= n^2 / 4 * 65536 is below 2**63, and n^2 * 65536^2 / 4 as sum of squares.
MOST_EXAMPLES = 2**24
#: No node has a greater mass, with classes or with numbers.
LARGEST_MASS = 2.0**56
#: Of a power of two: a range below its inverse is none, and no end of one lies beyond it.
LARGEST_EXPONENT = 900
#: Stand for the units of a label that waits for another range, as it lies below or above.
BELOW, ABOVE = -1, MOST_UNITS + 1


class LabelRange(NamedTuple):
    """The range that labels are counted in; NaN while it is not known."""

    low: float
    high: float
    unit: float  #: A power of two.
    top: int  #: Units of ``high``.

    @classmethod
    def of(cls, low: float, high: float) -> LabelRange:
        """Return the range from ``low`` to ``high``, with its unit; of NaN or infinity the range that is not known."""
        if not 2.0**-LARGEST_EXPONENT <= high - low < math.inf:
            return cls(math.nan, math.nan, math.nan, 0)
        mantissa, exponent = math.frexp(high - low)
        unit = math.ldexp(1.0, exponent - (mantissa == 0.5) - 16)
        return cls(low, high, unit, math.floor((high - low) / unit + 0.5))

    @classmethod
    def seen(cls, y: Floats) -> LabelRange:
        """A range around the labels of a tree, whose ends no label can be read from; of none there is none. O(n).

        The ends are multiples of a step, the power of two for which the labels extend over 8 to 16 steps; a label that
        they all have counts as if they extended from 0 to twice as far.
        """
        if len(y) == 0:
            return cls.of(math.nan, math.nan)
        low, high = float(y.min()), float(y.max())
        room = (abs(low) or 1.0) if low == high else 0.0
        low, high = low - room, high + room
        step = math.ldexp(1.0, math.frexp(high - low)[1] - 4)
        return cls.of(low // step * step, 0.0 - -high // step * step)

    @property
    def known(self) -> bool:
        """True if there is a range."""
        return self.top > 0

    def units(self, y: Floats) -> Int32s:
        """Labels in units, shape (n,); 0 of a range that is not known."""
        if not self.known:
            return np.zeros(len(y), dtype=np.int32)
        near = np.clip(y, self.low, self.high)
        units: Int32s = np.floor((near - self.low) / self.unit + 0.5).astype(np.int32)
        return units

    def converted(self, saved: Ints, before: LabelRange) -> list[int]:
        """Squares in units of another range, rounded down and limited (``MOST_SAVED``); 0 if one is not known."""
        if not (self.known and before.known):
            return [0] * len(saved)
        bits = 2 * (math.frexp(before.unit)[1] - math.frexp(self.unit)[1])
        exact = [some << bits if bits >= 0 else some >> -bits for some in saved.tolist()]
        return [min(max(some, -MOST_SAVED), MOST_SAVED) for some in exact]

    def numbers(self, mean: Floats) -> Floats:
        """Predictions, shape (n,), of means in units; of a negative one, where there is no example, 0."""
        numbers: Floats = np.where(mean < 0.0, 0.0, self.low + self.unit * mean)
        return numbers


@inner_kernel
def mass_ceiling(n: int, q: int, squares: int) -> int:
    """The mass of n labels with these sums, rounded up to whole units squared; exact, and 0 only if all are equal."""
    if n == 0:
        return 0
    mean = q // n
    rest = q - mean * n
    ceiling: int = squares - 2 * mean * q + n * mean * mean - rest * rest // n
    return ceiling


@inner_kernel
def number_mass(n: int, q: int, squares: int) -> float:
    """The mass of n labels with these sums: around the whole part of their mean, exact integers; then one division."""
    if n == 0:
        return 0.0
    mean = q // n
    rest = q - mean * n
    mass: float = np.float64(squares - 2 * mean * q + n * mean * mean) - np.float64(rest * rest) / np.float64(n)
    return mass


@kernel
def _mass_ceilings(n: Any, sums: Any, out: Any) -> None:
    for i in range(len(n)):
        out[i] = mass_ceiling(n[i], sums[i, 0], sums[i, 1])


def mass_ceilings(n: Ints, sums: Ints) -> Ints:
    """:func:`mass_ceiling` of each row of ``sums``, shape (nodes, 2)."""
    out = np.empty(len(n), dtype=np.int64)
    _mass_ceilings(np.ascontiguousarray(n), np.ascontiguousarray(sums), out)
    return out


# Sums of numeric labels with weights at the nodes of a tree, in units of 2**-16, and masses made of these sums.
#
# A node has n, the sum of the weights w; in ``sums``, of the labels q in units of their range, the sum of w q, and that
# of w q^2, which 64 bits do not hold: ``sums[:, 1]`` has its whole rows, ``sums[:, 2]`` the rest, from 0 to below
# 2**16. Where weights are whole numbers the rest is 0, and the whole rows are the sum of squares of repeated rows.
#
# Invariant: up to ``LARGEST_SUM`` units of weight all sums are exact, and so is every difference that decides; a mass
# is the one of repeated rows, to the last bit, where weights are whole (``regression_sums.number_mass``).

#: Largest sum of weights in units: that of as many rows of weight 1 as there may be.
LARGEST_SUM = MOST_EXAMPLES << BITS
#: Columns of ``sums`` with weights.
COLUMNS = 3
_REST = UNIT - 1


@inner_kernel
def add_number(sums: Any, node: int, q: int, weight: int) -> None:
    """Add a label to the sums of a node; a negative weight takes it away."""
    product = weight * q
    rest = sums[node, 2] + (product & _REST) * q
    sums[node, 0] += product
    sums[node, 1] += (product >> BITS) * q + (rest >> BITS)
    sums[node, 2] = rest & _REST


@inner_kernel
def subtract_sums(sums: Any, node: int, less: int, out: int) -> None:
    """Write the sums of one node less those of another to a third."""
    rest = sums[node, 2] - sums[less, 2]
    sums[out, 0] = sums[node, 0] - sums[less, 0]
    sums[out, 1] = sums[node, 1] - sums[less, 1] + (rest >> BITS)
    sums[out, 2] = rest & _REST


@inner_kernel
def _around_mean(n: int, sums: Any, node: int) -> tuple[int, int, int]:
    """Sum of w (q - mean)^2, in rows and a rest, around the whole part of the mean; and what that part leaves of q."""
    q = sums[node, 0]
    mean = q // n
    rest = sums[node, 2] - 2 * mean * (q & _REST) + mean * mean * (n & _REST)
    rows = sums[node, 1] - 2 * mean * (q >> BITS) + mean * mean * (n >> BITS) + (rest >> BITS)
    return rows, rest & _REST, q - mean * n


@inner_kernel
def weighted_number_mass(n: int, sums: Any, node: int) -> float:
    """The mass of labels whose weights add up to n, in units squared and rows of weight 1."""
    if n == 0:
        return 0.0
    rows, rest, left = _around_mean(n, sums, node)
    high, low = rows >> 20, ((rows & 0xFFFFF) << BITS) | rest  # so that their sum is rounded once
    around = np.float64(high) * 1048576.0 + np.float64(low) / np.float64(UNIT)
    mass: float = around - np.float64(left) * np.float64(left) / np.float64(n) / np.float64(UNIT)
    return mass


@inner_kernel
def are_equal(n: int, sums: Any, node: int) -> bool:
    """Return True if all labels of a node that is not empty are equal."""
    rows, rest, left = _around_mean(n, sums, node)
    equal: bool = rows == 0 and rest == 0 and left == 0
    return equal


@inner_kernel
def are_close(n: int, sums: Any, node: int, limit: int) -> bool:
    """Return True if the mass of a node that is not empty is at most ``limit`` a row; exact."""
    rows, rest, left = _around_mean(n, sums, node)
    rest -= limit * (n & _REST)
    rows += (rest >> BITS) - limit * (n >> BITS)
    rest &= _REST
    if rows < 0 or rows >= LARGEST_SUM >> BITS:  # left^2 / n is below n
        close: bool = rows < 0
        return close
    # (rows, rest) n <= left^2, by the rounded products and, if these are equal, by what rounding took.
    above, size, square = np.float64((rows << BITS) | rest), np.float64(n), np.float64(left) * np.float64(left)
    product = above * size
    if product == square:
        close = rest_of_product(above, size, product) <= rest_of_product(np.float64(left), np.float64(left), square)
        return close
    close = product < square
    return close


@kernel
def add_numbers(sums: Any, node: int, units: Any, weight: Any, slots: Any) -> None:
    """Add the labels in some slots to the sums of a node; of weight 1 where ``sums`` have no column for a rest."""
    for slot in slots:
        q = np.int64(units[slot])
        if sums.shape[1] == COLUMNS:
            add_number(sums, node, q, np.int64(weight[slot]))
        else:
            sums[node, 0] += q
            sums[node, 1] += q * q


def in_units(sums: Ints) -> Ints:
    """Return the ``sums`` of nodes, shape (nodes, 2), whose rows all have weight 1, as those with weights."""
    return np.column_stack([sums[:, 0] * UNIT, sums[:, 1], np.zeros(len(sums), dtype=np.int64)])


# What a tree counts where rows have weights: sums of weights in units of 2**-16, and masses made of them.
#
# ``counts``, ``n``, ``s``, ``c``, ``allowed`` and ``gone`` of ``counted_tree`` are then sums of weights: an update of
# weight w is one step that changes them by w. ``pairs``, which would not fit into 64 bits, is the number of rows
# instead, and masses, in rows of weight 1, are made of the counts when they are needed.
#
# Invariant: counts are exact, and so are their products with rates that decide something. Products of two counts are
# rounded to float64. Where weights are whole, all products are exact up to 9.4e7 rows, as those of numbers of rows are:
# everything is decided as for repeated rows that are taken in one step.


@inner_kernel
def weighted_pairs(counts: Any, node: int) -> float:
    """Sum of c_k (n - c_k) of sums of weights, in units squared: ``pairs`` of repeated rows where weights are whole."""
    n = np.float64(total(counts, node))
    pairs = 0.0
    for k in range(counts.shape[1]):
        pairs += np.float64(counts[node, k]) * (n - np.float64(counts[node, k]))
    return pairs


@inner_kernel
def weighted_mass(counts: Any, node: int) -> float:
    """As :func:`gini_mass` of sums of weights, in rows of weight 1."""
    n = np.float64(total(counts, node))
    mass: float = weighted_pairs(counts, node) / n / np.float64(UNIT) if n > 0 else 0.0
    return mass


@inner_kernel
def is_pure(counts: Any, node: int, n: int) -> bool:
    """Return True if one class has all n units of a node that is not empty."""
    k = 0
    while counts[node, k] == 0:
        k += 1
    pure: bool = counts[node, k] == n
    return pure


@inner_kernel
def is_pure_enough(counts: Any, node: int, rate: float) -> bool:
    """Return True if ``weighted_pairs <= rate n^2``; n^2 is rounded to float64, the product not at all."""
    pairs, n = weighted_pairs(counts, node), np.float64(total(counts, node))
    product = rate * (n * n)
    pure: bool = pairs < product or (pairs == product and rest_of_product(rate, n * n, product) >= 0.0)
    return pure


@inlined_kernel
def in_rows(size: int, rules: Any) -> float:
    """A size in rows of weight 1."""
    rows: float = np.float64(size)
    if rules.unit > 1:
        rows /= np.float64(UNIT)
    return rows


@inlined_kernel
def rows_at(tree: Any, node: int, rules: Any) -> int:
    """Number of rows below a node, whatever their weights."""
    rows: int = tree.statistics[node].n if rules.unit == 1 else tree.statistics[node].pairs
    return rows


@kernel
def weigh(tree: Any, rules: Any) -> None:
    """Count the rows of a tree, all of weight 1, in units of weights from now on; ``rules`` are those with weights."""
    for node in range(tree.reg[USED]):
        for k in range(tree.counts.shape[1]):
            tree.counts[node, k] *= UNIT
        tree.statistics[node].pairs = tree.statistics[node].n
        tree.statistics[node].n *= UNIT
        tree.statistics[node].s *= UNIT
        tree.statistics[node].c *= UNIT
        tree.statistics[node].gone *= UNIT
        tree.statistics[node].allowed *= UNIT
        if tree.nodes[node].feature < 0 or not rules.certified:
            tree.statistics[node].allowed = floor_product(rules.epsilon, tree.statistics[node].s)


#: Registers of the tree behind those of all trees (``records``): subtrees rebuilt so far, rows in them, and insertions
#: that a warm-up still waits for.
REBUILDS, REBUILT_ROWS, WARMUP_LEFT = 4, 5, 6
#: Multiples of ``smoothing`` among which a stream chooses, and the position of the given one.
MULTIPLES, GIVEN = (0.0, 0.1, 1.0, 10.0, 100.0), 2
#: The last registers, one for each multiple: its faded count of right predictions. One of weight 1 counts ``HIT``, and
#: each prediction takes the share 2**-FADING from every count: 1024 predictions is the memory. Of numeric labels, the
#: squared errors in units that it has saved against the mean of all examples, whose sum stays below ``MOST_SAVED``.
HITS, HIT, FADING, MOST_SAVED = 7, 1 << 20, 10, 1 << 60
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
    smoothing: float = 0.0  #: Weight of a parent's shares or mean (``refine``) in units; 0: a leaf predicts by its own.


def new_tree(capacity: int, classes: int) -> CountedTree:
    """An empty tree: one leaf without rows. With one class its labels are numbers."""
    nodes = np.zeros(capacity, dtype=NODE)
    for name in ("feature", "left", "right", "parent", "head"):
        nodes[name] = -1
    statistics = np.zeros(capacity, dtype=STATISTICS)
    statistics["built"] = -1
    counts = np.zeros((capacity, classes), dtype=np.int64)
    sums = np.zeros((capacity, 2 if classes == 1 else 0), dtype=np.int64)
    reg = np.zeros(HITS + len(MULTIPLES), dtype=np.int64)
    reg[:HITS] = 1, -1, 1, 1, 0, 0, 0
    return CountedTree(nodes, statistics, counts, reg, sums)


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
    """Return True if a node is too small or pure, at which the definition of feasibility allows no split."""
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
    """Return True if a split may leave more mass than beta n above the best one: M_own - max(0, m0 - 2 |D|) > beta n.

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
    """Return True if a node whose counts, and those of its children, are right has to be rebuilt."""
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
