"""Nodes, blocks and the lists of the rows in leaves: taken, given back, linked and counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.arrays.rng import bits_at
from raydt.learners.forest.nodes import BLOCKS_FREE, BLOCKS_SPARE, BLOCKS_USED, FREE, LEAF, OPEN, SPARE, USED
from raydt.learners.forest.weighted_labels import PLAIN, SUMS, WEIGHTED, add_weighted
from raydt.trees.records import next_in_preorder

#: Squares of numeric labels are added up in two words, of which the lower one has so many bits: twice half a label.
SQUARE_BITS, HALF_BITS = 40, 20


@inner_kernel
def has_room(forest: Any, rows: int) -> bool:
    """Whether a tree of so many rows can be built."""
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
    """What the rows of a node count together, in units: their number, or the sum of their weights."""
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
def may_split(forest: Any, node: int, rules: Any) -> bool:
    """Whether a node may be split: enough rows, not all of one label, and not too deep."""
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
    """List the rows below a node in ``slots`` and ``entries``; their number. O(nodes and rows below)."""
    n, node = 0, np.int64(root)
    while node >= 0:
        entry = forest.nodes[node].head  # -1 of an inner node
        while entry >= 0:
            scratch.entries[n] = entry
            n += 1
            entry = forest.members[entry].next
        node = next_in_preorder(forest.nodes, node, root)
    share = 1.0 / k  # of numbers below 2**31, in the middle between two whole ones: exact, and faster than to divide
    for i in range(n):
        scratch.slots[i] = np.int32((np.float64(scratch.entries[i]) + 0.5) * share)
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
