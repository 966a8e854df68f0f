"""Trees in flat arrays: nodes, the candidates of each split, and the lists of the rows in each leaf.

Invariants: the rows of a leaf form a doubly linked list of *entries* (``MEMBER`` records); entry ``slot * k + i`` is
the membership ``i`` of the example in ``slot``. ``n`` and ``totals`` of a node count the rows below it. A leaf that is
``OPEN`` waits to be built. Every inner node has a *block* with its candidates, every leaf has none.

A block holds, of each of up to P features that are not constant on the rows of the node: what the thresholds follow
from, the thresholds, and the rows that fall between them, so that one row changes one entry for each feature. What is
left of threshold j are the rows of buckets 0 to j, of value j of a category those of bucket j; what is right is the
rest of the node, rows without a value too.

Weights: totals and buckets then add up weights in units (``weighted_labels``: of numeric labels, too); ``n`` of a node,
and the rows that have the extremes, are still rows. A row of weight 0 is in no tree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty, grown, trimmed
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints, bits_at
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.examples.updates import DTYPE, NO_WEIGHTS, UNIT, Weights
from raydt.learners.forest.labels import PLAIN, SUMS, WEIGHTED, add_weighted
from raydt.trees.records import MEMBER, next_in_preorder

#: ``feature`` of a leaf, and of a leaf that is to be built.
LEAF, OPEN = -1, -2

#: Entries, slots times the trees of each example, are numbered in 32 bits.
MOST_ENTRIES = 2**31 - 1

#: Registers: nodes and blocks ever used, heads of the free lists (-1: none), free ones in the lists; what was rebuilt
#: by the update at work: subtrees, rows, nodes, and the depth of the topmost.
USED, FREE, SPARE, BLOCKS_USED, BLOCKS_FREE, BLOCKS_SPARE, REBUILDS, REBUILT_ROWS, REBUILT_NODES, REBUILT_DEPTH = range(
    10
)

NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("key", np.uint64),
        ("feature", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("head", np.int32),
        ("block", np.int32),
        ("n", np.int32),
        ("depth", np.int32),
        ("parent", np.int32),
    ],
    align=True,
)

#: One tried feature of a block. ``lows`` and ``highs`` are how many rows have the extremes, ``missing`` how many no
#: value; ``used`` candidates there are. ``two``: no row lies between the extremes.
TRIED = np.dtype(
    [
        ("low", np.float64),
        ("high", np.float64),
        ("lows", np.int32),
        ("highs", np.int32),
        ("missing", np.int32),
        ("feature", np.int32),
        ("used", np.int16),
        ("two", np.int16),
        ("stale", np.int32),
    ],
    align=True,
)


class ForestRules(NamedTuple):
    """The options as numbers: P, S, the depth of the deepest node, and how few rows are a leaf.

    ``numeric``: labels are numbers. ``lazy``: a subtree is opened where it would be rebuilt, and a vote builds the
    nodes that it passes. ``unit``: what a row of weight 1 counts: 1, or ``raydt.examples.updates.UNIT`` where rows have
    weights; ``min_samples_split`` is in these units.
    """

    features: int
    thresholds: int
    max_depth: int
    min_samples_split: int
    numeric: bool
    lazy: bool
    unit: int = 1

    def weighed(self) -> ForestRules:
        """Return the rules where rows have weights."""
        return self._replace(unit=UNIT, min_samples_split=self.min_samples_split * UNIT)

    @property
    def label_columns(self) -> int:
        """Columns of ``totals`` of numeric labels."""
        return WEIGHTED if self.unit > 1 else PLAIN


class Blocks(NamedTuple):
    """Candidates: ``tried`` (``TRIED``), shape (blocks, P); ``cuts``, (blocks, P, S), ascending or categories;

    ``buckets``, (blocks, P, S + 1, K) class counts, or n and the sum of numeric labels (W, A, B); ``skipped``, (blocks,
    words), a bit for each feature that was passed over since it is constant; ``kept``, how many features are tried.
    """

    tried: npt.NDArray[np.void]
    cuts: Floats
    buckets: AnyArray
    skipped: npt.NDArray[np.uint64]
    kept: Int32s


class ForestRows(NamedTuple):
    """By slot: rows ``X``, shape (slots, d); ``y``, class codes or units; ``member``, (slots, k), trees or -1.

    ``weight``: units that each row counts; it is empty where all count 1.
    """

    X: Floats
    y: Ints
    member: Int32s
    categorical: Bools
    weight: Weights = NO_WEIGHTS


#: Columns of what a step did: nodes counted; subtrees, rows and nodes rebuilt; depth of the topmost rebuild.
PATH, SUBTREES, ROWS, NODES, DEPTH = range(5)
#: The depth where nothing was rebuilt.
NOWHERE = 2**31 - 1


class ForestSteps(NamedTuple):
    """Steps, the rows that the steps bring, and the results.

    ``kind`` and ``slot``, shape (steps,); ``row``, the row of ``X`` of a step, -1 of a REMOVE; ``place``, the row of
    ``votes`` that takes the prediction before the step, -1 if none is wanted. ``votes`` has shape (predictions, K or
    2), ``done`` (steps, 5).
    """

    kind: Int32s
    slot: Int32s
    row: Int32s
    place: Int32s
    X: Floats
    votes: Ints
    done: Ints


class TreeArrays(NamedTuple):
    """Trees in preorder, one after the other: the left child of an inner node is the next node."""

    nodes: Ints  #: Shape (trees,): how many each tree has.
    feature: Int32s  #: -1 of a leaf.
    threshold: Floats
    right: Int32s  #: Place of the right child within its tree; -1 of a leaf.
    #: Shape (nodes, K, 4 or 6): class counts (weights in units), or n, sum and sum of squares, in two words, of numeric
    #: labels in units; those with weights as in ``weighted_labels``.
    totals: Ints


#: Cells up to which rows are copied before a subtree is built from them: half a megabyte.
NEAR_CELLS = 1 << 16

#: Rows of so many classes are counted in one word, of a byte each; from more words on, one row at a time is faster.
PACKED, MOST_WORDS = 8, 3
#: Values are counted so many at once; the last time some of them may be of no row.
STEP = 16


#: Registers of :class:`ForestColumn`.
CLASSES, NEAR = 0, 1


class ForestColumn(NamedTuple):
    """Room to count one column of some rows: their values, labels and weights.

    ``classes`` are those of the rows, in ascending order of their labels; ``words``, (words, rows), has a 1 in the byte
    of each row's class. ``hashes`` and ``met`` are for categories. ``reg`` says how many classes there are, and whether
    slots are those of the copies in ``near``.
    """

    values: Floats
    labels: Ints
    weights: Weights
    classes: Ints
    words: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]
    met: Floats
    reg: Ints


class ForestScratch(NamedTuple):
    """Room for a build: slots and entries of its rows, twice, a column of them, the order of features, and stacks.

    ``constant`` has, for each entry of the stack, a bit for each feature that is known to be constant there; ``row`` is
    the row at hand, and ``differs`` a bit for each feature in which it differs from the rows where it goes. ``near``
    has copies of rows, column by column; ``field`` is the place of a class among those of the ``column``.
    """

    slots: Int32s
    entries: Int32s
    other_slots: Int32s
    other_entries: Int32s
    order: Int32s
    swaps: Int32s
    stack: Int32s
    begins: Int32s
    ends: Int32s
    row: Floats
    differs: npt.NDArray[np.uint64]
    constant: npt.NDArray[np.uint64]
    left: Ints
    field: Ints
    near: ForestRows
    column: ForestColumn


class ForestArrays(NamedTuple):
    """Everything that kernels need of neighbouring trees of a shard.

    ``members`` are the lists, by entry; ``roots`` are nodes by tree; ``shape``, (trees, 3), counts nodes, leaves and
    open leaves; ``levels``, (trees, depths), nodes by depth; ``order`` has the class codes in ascending order of their
    labels; ``touched`` says which trees have changed, and ``hashed``, by node, which subtrees have not since they were
    hashed: of a node without a hash, no node above has one.
    """

    nodes: npt.NDArray[np.void]
    totals: Ints
    blocks: Blocks
    members: npt.NDArray[np.void]
    roots: Int32s
    shape: Int32s
    levels: Int32s
    order: Ints
    touched: Bools
    hashed: Bools
    reg: Ints
    first: int  #: Place of the first tree among those of the shard.


def new_forest(keys: npt.NDArray[np.uint64], rules: ForestRules, classes: int, words: int) -> ForestArrays:
    """Trees with these keys of their roots: one open leaf each, without rows."""
    trees = len(keys)
    nodes = np.zeros(trees, dtype=NODE)
    nodes["feature"], nodes["head"], nodes["block"] = OPEN, -1, -1
    nodes["left"] = nodes["right"] = nodes["parent"] = -1
    nodes["key"] = keys
    levels = np.zeros((trees, rules.max_depth + 1), dtype=np.int32)
    levels[:, 0] = 1
    P, S = rules.features, rules.thresholds
    width = (SUMS if rules.unit > 1 else 2) if rules.numeric else classes
    counted = np.int64 if rules.numeric or rules.unit > 1 else np.int32
    blocks = Blocks(
        np.zeros((0, P), dtype=TRIED),
        np.zeros((0, P, S)),
        np.zeros((0, P, S + 1, width), dtype=counted),
        np.zeros((0, words), dtype=np.uint64),
        np.zeros(0, dtype=np.int32),
    )
    members = np.zeros(0, dtype=MEMBER)
    reg = np.array([trees, -1, 0, 0, -1, 0, 0, 0, 0, 0], dtype=np.int64)
    shape = np.ones((trees, 3), dtype=np.int32)
    totals = np.zeros((trees, rules.label_columns if rules.numeric else classes), dtype=np.int64)
    roots, touched = np.arange(trees, dtype=np.int32), np.ones(trees, dtype=np.bool_)
    order, hashed = np.arange(totals.shape[1]), np.zeros(trees, dtype=np.bool_)
    return ForestArrays(nodes, totals, blocks, members, roots, shape, levels, order, touched, hashed, reg, 0)


def with_room(forest: ForestArrays, rows: int) -> ForestArrays:
    """Return the trees with room for the nodes of one more tree of so many rows.

    If more room is needed, there is some for all trees with open leaves: as much as the others take, in proportion. So
    a forest that is built is copied once, when few of its trees are; room that is not used costs no memory.
    """
    nodes, inner = 2 * rows + 2, rows + 1
    reg, waiting = forest.reg, np.count_nonzero(forest.shape[:, 2])
    built = len(forest.roots) - waiting
    each = 1.25 * (waiting + 1) / built if built else 0.0
    capacity, blocks = len(forest.nodes), len(forest.blocks.kept)
    used, used_blocks = int(reg[USED]), int(reg[BLOCKS_USED])
    if capacity - used + int(reg[SPARE]) < nodes:
        capacity = max(used + nodes, capacity + capacity // 2, nodes + used + int(used * each))
        by_node: dict[str, Any] = {
            name: grown(getattr(forest, name), capacity, used) for name in ("nodes", "totals", "hashed")
        }
        forest = forest._replace(**by_node)
    if blocks - used_blocks + int(reg[BLOCKS_SPARE]) < inner:
        blocks = max(blocks + blocks // 2, inner + used_blocks + int(used_blocks * each))
        forest = forest._replace(blocks=Blocks(*(grown(array, blocks, used_blocks) for array in forest.blocks)))
    return forest


def without_room(forest: ForestArrays) -> ForestArrays:
    """Return the trees of a forest without room for more nodes."""
    used, blocks = int(forest.reg[USED]), int(forest.reg[BLOCKS_USED])
    return forest._replace(
        nodes=trimmed(forest.nodes, used),
        totals=trimmed(forest.totals, used),
        hashed=trimmed(forest.hashed, used),
        blocks=Blocks(*(trimmed(array, blocks) for array in forest.blocks)),
    )


def with_classes(forest: ForestArrays, order: Ints) -> ForestArrays:
    """The same trees with counts of more classes, whose codes are in ascending order of their labels."""
    classes, forest = len(order), forest._replace(order=order)
    known = forest.totals.shape[1]
    if classes <= known:
        return forest
    totals = np.zeros((len(forest.totals), classes), dtype=np.int64)
    totals[:, :known] = forest.totals
    had = forest.blocks.buckets
    buckets = empty((*had.shape[:3], classes), had.dtype)
    buckets[: int(forest.reg[BLOCKS_USED])] = 0
    buckets[..., :known][: int(forest.reg[BLOCKS_USED])] = had[: int(forest.reg[BLOCKS_USED])]
    return forest._replace(totals=totals, blocks=forest.blocks._replace(buckets=buckets))


def new_scratch(rows: int, width: int, rules: ForestRules, categorical: Bools) -> ForestScratch:
    """Room for builds of so many rows."""
    d = len(categorical)
    few = min(rows, NEAR_CELLS // max(1, d))
    weighed = int(rules.unit > 1)
    near = ForestRows(
        # Columns that begin in different lines of a cache; two at least, or Numba compiles all for rows as well.
        np.empty((few | 40, max(2, d)), order="F"),
        np.empty(few, dtype=np.int64),
        np.empty((0, 1), dtype=np.int32),
        categorical,
        np.empty(few * weighed, dtype=DTYPE),
    )
    flags, depth = (d + 63) // 64, rules.max_depth + 3

    def ints(size: int) -> Int32s:
        array: Int32s = empty(size, np.int32)
        return array

    words = 0 if rules.numeric or weighed else min(MOST_WORDS, -(-width // PACKED))
    column = ForestColumn(
        values=empty(rows + STEP, np.float64),
        labels=empty(rows, np.int64),
        weights=empty(rows * weighed, DTYPE),
        classes=np.empty(width, dtype=np.int64),
        words=empty((words, rows + STEP), np.uint64),
        hashes=np.empty(rules.thresholds, dtype=np.uint64),
        met=np.empty(64),
        reg=np.zeros(2, dtype=np.int64),
    )
    return ForestScratch(
        slots=ints(rows),
        entries=ints(rows),
        other_slots=ints(rows),
        other_entries=ints(rows),
        order=np.arange(d, dtype=np.int32),
        swaps=ints(d),
        stack=ints(2 * depth),
        begins=ints(2 * depth),
        ends=ints(2 * depth),
        row=np.empty(d),
        differs=np.zeros(flags, dtype=np.uint64),
        constant=np.zeros((2 * depth, flags), dtype=np.uint64),
        left=np.empty(width, dtype=np.int64),
        field=np.empty(width, dtype=np.int64),
        near=near,
        column=column,
    )


# Nodes, blocks and the lists of the rows in leaves: taken, given back, linked and counted.

#: Squares of numeric labels are added up in two words, of which the lower one has so many bits: twice half a label.
SQUARE_BITS, HALF_BITS = 40, 20


@inner_kernel
def has_room(forest: Any, rows: int) -> bool:
    """Return True if a tree of so many rows can be built."""
    reg = forest.reg
    nodes = len(forest.nodes) - reg[USED] + reg[SPARE]
    blocks = len(forest.blocks.kept) - reg[BLOCKS_USED] + reg[BLOCKS_SPARE]
    enough: bool = nodes >= 2 * rows + 2 and blocks >= rows + 1
    return enough


@inlined_kernel
def new_child(forest: Any, tree: int, parent: int, side: int) -> int:
    """Take a node, without rows yet, as the left (``side`` 0) or right (1) child of another."""
    reg, nodes = forest.reg, forest.nodes
    node: int = reg[FREE]
    if node >= 0:
        reg[FREE] = nodes[node].left
        reg[SPARE] -= 1
    else:
        node = reg[USED]
        reg[USED] += 1
    depth = np.int64(nodes[parent].depth) + 1
    nodes[node].key, nodes[node].parent = bits_at(nodes[parent].key, side), parent
    nodes[node].threshold = 0.0
    nodes[node].feature = LEAF
    nodes[node].left = nodes[node].right = nodes[node].head = nodes[node].block = -1
    nodes[node].depth = depth
    forest.hashed[node] = False
    forest.shape[tree, 0] += 1
    forest.levels[tree, depth] += 1
    return node


@inlined_kernel
def free_node(forest: Any, tree: int, node: int) -> None:
    """Give back a node that has neither rows nor a block."""
    forest.levels[tree, forest.nodes[node].depth] -= 1
    forest.shape[tree, 0] -= 1
    forest.nodes[node].left = forest.reg[FREE]
    forest.reg[FREE] = node
    forest.reg[SPARE] += 1


@inlined_kernel
def new_block(forest: Any) -> int:
    """Take a block; what it held before is still there."""
    reg = forest.reg
    block: int = reg[BLOCKS_FREE]
    if block >= 0:
        reg[BLOCKS_FREE] = forest.blocks.kept[block]
        reg[BLOCKS_SPARE] -= 1
    else:
        block = reg[BLOCKS_USED]
        reg[BLOCKS_USED] += 1
    forest.blocks.kept[block] = 0
    return block


@inlined_kernel
def free_block(forest: Any, block: int) -> None:
    """Give a block back."""
    forest.blocks.kept[block] = forest.reg[BLOCKS_FREE]
    forest.reg[BLOCKS_FREE] = block
    forest.reg[BLOCKS_SPARE] += 1


@inlined_kernel
def square_of(y: int) -> Any:
    """The square of a label of up to 42 bits, in two words: its bits above the lowest ``SQUARE_BITS``, and these."""
    high, low = y >> HALF_BITS, y & ((1 << HALF_BITS) - 1)
    cross = 2 * high * low
    rest = low * low + ((cross & ((1 << HALF_BITS) - 1)) << HALF_BITS)
    return high * high + (cross >> HALF_BITS) + (rest >> SQUARE_BITS), rest & ((1 << SQUARE_BITS) - 1)


@inlined_kernel
def all_equal(n: int, total: int, squares: Any) -> bool:
    """Return True if n numeric labels are equal: exactly then their ``squares``, in two words, add up to n mean^2."""
    mean = total // n
    if mean * n != total:
        return False
    upper, lower = square_of(mean)
    upper, lower = n * upper, n * lower
    # Both are sums of words; what the lower ones have beyond their bits belongs to the upper ones.
    same_above = upper + (lower >> SQUARE_BITS) == squares[0] + (squares[1] >> SQUARE_BITS)
    same: bool = same_above and (lower - squares[1]) & ((1 << SQUARE_BITS) - 1) == 0
    return same


@inlined_kernel
def mass_at(forest: Any, node: int, rules: Any) -> int:
    """Return the units of the rows of a node: their number, or the sum of their weights."""
    mass: int = np.int64(forest.nodes[node].n)
    if rules.unit > 1:
        mass = forest.totals[node, 0]
        for k in range(1, np.int64(1) if rules.numeric else forest.totals.shape[1]):
            mass += forest.totals[node, k]
    return mass


@inlined_kernel
def list_classes(forest: Any, node: int, classes: Any) -> int:
    """List the ``classes`` that a node has rows of, in ascending order of their labels; their number. O(K)."""
    n: int = np.int64(0)
    for place in range(len(forest.order)):
        k = forest.order[place]
        classes[n] = k
        n += forest.totals[node, k] > 0
    return n


@inlined_kernel
def count(forest: Any, node: int, y: int, rows: int, by: int, numeric: bool) -> None:
    """Count a row of class y, or of y units, in (``rows`` 1) or out (-1) at a node; ``by`` is its weight, signed."""
    forest.nodes[node].n += rows
    if numeric:
        upper, lower = square_of(y)
        squares = np.int64(2)
        if forest.totals.shape[1] == PLAIN:
            forest.totals[node, 0] += rows
            forest.totals[node, 1] += rows * y
        else:
            squares = np.int64(SUMS)
            add_weighted(forest.totals[node], y, by)
            forest.totals[node, WEIGHTED - 1] += rows * y
        forest.totals[node, squares] += rows * upper
        forest.totals[node, squares + 1] += rows * lower
    else:
        forest.totals[node, y] += by


@inlined_kernel
def lose_hashes(forest: Any, node: int) -> None:
    """Take the hashes of a node, and of those above it, away."""
    while node >= 0 and forest.hashed[node]:
        forest.hashed[node] = False
        node = np.int64(forest.nodes[node].parent)


@inlined_kernel
def may_split(forest: Any, node: int, rules: Any) -> bool:
    """Return True if a node may be split: enough rows, not all of one label, and not too deep."""
    n = mass_at(forest, node, rules)
    if n < rules.min_samples_split or forest.nodes[node].depth >= rules.max_depth:
        return False
    if rules.numeric:
        totals = forest.totals[node]
        if rules.unit == 1:
            impure: bool = not all_equal(n, totals[1], totals[2:])
            return impure
        mixed: bool = not all_equal(np.int64(forest.nodes[node].n), totals[WEIGHTED - 1], totals[SUMS:])
        return mixed
    pure = False
    for k in range(forest.totals.shape[1]):
        pure = pure or forest.totals[node, k] == n
    return not pure


@inner_kernel
def gather(forest: Any, root: int, k: int, scratch: Any) -> int:
    """List the rows below a node in ``slots`` and ``entries``; their number. O(nodes and rows below).

    First come the heads of the lists of all leaves, then what follows each entry that is listed: the processor waits
    for many lists at once instead of for one entry after the other, most of which are in no cache.
    """
    n, node, entries = 0, np.int64(root), scratch.entries
    while node >= 0:
        if forest.nodes[node].head >= 0:  # -1 of an inner node
            entries[n] = forest.nodes[node].head
            n += 1
        node = next_in_preorder(forest.nodes, node, root)
    share, at = 1.0 / k, 0  # of numbers below 2**31, in the middle between two whole ones: exact, and no division
    while at < n:
        entry = entries[at]
        scratch.slots[at] = np.int32((np.float64(entry) + 0.5) * share)
        after = forest.members[entry].next
        if after >= 0:
            entries[n] = after
            n += 1
        at += 1
    return n


@inner_kernel
def free_below(forest: Any, tree: int, root: int) -> None:
    """Free everything below a node, which becomes a leaf without a list but keeps its block.

    Its rows must have been listed.
    """
    nodes, node = forest.nodes, np.int64(root)
    while node >= 0:
        after = next_in_preorder(nodes, node, root)
        if nodes[node].feature < 0:
            forest.shape[tree, 1] -= 1
            if nodes[node].feature == OPEN:
                forest.shape[tree, 2] -= 1
        if node != root:
            if nodes[node].feature >= 0:
                free_block(forest, np.int64(nodes[node].block))
            free_node(forest, tree, node)
        node = after
    nodes[root].feature = LEAF
    nodes[root].threshold = 0.0
    nodes[root].left = nodes[root].right = nodes[root].head = -1
    forest.shape[tree, 1] += 1


@kernel
def most_rows(forest: Any) -> int:
    """Rows of the largest tree."""
    most = 0
    for tree in range(len(forest.roots)):
        most = max(most, np.int64(forest.nodes[forest.roots[tree]].n))
    return most
