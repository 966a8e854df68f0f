"""Build a subtree from its rows, at once or node by node.

Invariant: a subtree is a function of its rows, the key of its root and the rules; ``docs/explanation/guarantees.md``
defines it. An open leaf keeps the list of its rows until it is built.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.learners.forest.count_candidates import fill_block, take_column
from raydt.learners.forest.node_pool import (
    count,
    free_block,
    gather,
    has_room,
    may_split,
    new_block,
    new_child,
)
from raydt.learners.forest.nodes import LEAF, NEAR, OPEN
from raydt.learners.forest.scoring import best_of
from raydt.trees.masses import mass_of
from raydt.trees.records import goes_left, link, next_in_preorder


@inlined_kernel
def _make_leaf(forest: Any, node: int, begin: int, end: int, scratch: Any) -> None:
    """Link the rows of a leaf."""
    for i in range(begin, end):
        link(forest, forest.members, node, scratch.entries[i])


@inlined_kernel
def _partition(forest: Any, node: int, begin: int, end: int, examples: Any, scratch: Any) -> int:
    """Partition the rows of a split node, left ones first, stably; returns where the right ones begin."""
    feature, threshold = np.int64(forest.nodes[node].feature), forest.nodes[node].threshold
    category, slots, entries, column = examples.categorical[feature], scratch.slots, scratch.entries, scratch.column
    if column.reg[NEAR]:
        take_column(column.values, slots[begin:end], scratch.near.X[:, feature])
    else:
        take_column(column.values, slots[begin:end], examples.X[:, feature])
    middle, rest = begin, 0
    for i in range(begin, end):
        slot, entry = slots[i], entries[i]
        if goes_left(column.values[i - begin], threshold, category):
            slots[middle], entries[middle] = slot, entry
            middle += 1
        else:
            scratch.other_slots[rest], scratch.other_entries[rest] = slot, entry
            rest += 1
    for i in range(rest):
        slots[middle + i], entries[middle + i] = scratch.other_slots[i], scratch.other_entries[i]
    return middle


@inlined_kernel
def _count_children(forest: Any, node: int, begin: int, middle: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Count the rows of the children of a new split."""
    nodes, totals = forest.nodes, forest.totals
    left, right = np.int64(nodes[node].left), np.int64(nodes[node].right)
    nodes[left].n = 0
    for m in range(totals.shape[1]):
        totals[left, m] = 0
    y, weight = examples.y, examples.weight
    if scratch.column.reg[NEAR]:
        y, weight = scratch.near.y, scratch.near.weight
    for i in range(begin, middle):
        slot = np.int64(scratch.slots[i])
        count(forest, left, y[slot], 1, mass_of(weight, slot), rules.numeric)
    nodes[right].n = nodes[node].n - nodes[left].n
    for m in range(totals.shape[1]):
        totals[right, m] = totals[node, m] - totals[left, m]


@inner_kernel
def _grow(forest: Any, tree: int, top: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Make a leaf or a split of the node at a place of the stack; how many children follow it there."""
    nodes, stack, begins, ends = forest.nodes, scratch.stack, scratch.begins, scratch.ends
    node, begin, end = np.int64(stack[top]), np.int64(begins[top]), np.int64(ends[top])
    if not may_split(forest, node, rules):
        _make_leaf(forest, node, begin, end, scratch)
        return 0
    block = new_block(forest)
    if fill_block(forest, node, block, -1, begin, end - begin, top, examples, scratch, rules) == 0:
        free_block(forest, block)
        _make_leaf(forest, node, begin, end, scratch)
        return 0
    feature, threshold = best_of(forest, node, block, examples, scratch, rules)
    nodes[node].feature, nodes[node].threshold, nodes[node].block = feature, threshold, block
    split_into_children(forest, tree, top, examples, scratch, rules)
    return 2


@inlined_kernel
def split_into_children(forest: Any, tree: int, top: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Replace a node at a place of the stack, whose split is known, by its children: the right one, then the left."""
    nodes, stack, begins, ends = forest.nodes, scratch.stack, scratch.begins, scratch.ends
    node, begin, end = np.int64(stack[top]), np.int64(begins[top]), np.int64(ends[top])
    left, right = new_child(forest, tree, node, 0), new_child(forest, tree, node, 1)
    nodes[node].left, nodes[node].right = left, right
    forest.shape[tree, 1] += 1
    middle = _partition(forest, node, begin, end, examples, scratch)
    _count_children(forest, node, begin, middle, examples, scratch, rules)
    stack[top], begins[top], ends[top] = right, middle, end
    stack[top + 1], begins[top + 1], ends[top + 1] = left, begin, middle
    for word in range(scratch.constant.shape[1]):
        scratch.constant[top + 1, word] = scratch.constant[top, word]


@inner_kernel
def _grow_nearby(forest: Any, tree: int, base: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Build the subtree of the node at a place of the stack from copies of its rows, which lie close together."""
    begin, end = np.int64(scratch.begins[base]), np.int64(scratch.ends[base])
    near, slots, n = scratch.near, scratch.slots[begin:end], end - begin
    for j in range(examples.X.shape[1] if n > 0 else 0):
        word, bit = j >> 6, np.uint64(1) << np.uint64(j & 63)
        if scratch.constant[base, word] & bit:
            continue
        first, column, differs = examples.X[slots[0], j], near.X[:, j], False
        for i in range(n):
            x = examples.X[np.uint64(slots[i]), j]
            column[i] = x
            differs |= x != first
        if not differs:
            scratch.constant[base, word] |= bit
    for i in range(n):
        near.y[i] = examples.y[slots[i]]
        if rules.unit > 1:
            near.weight[i] = examples.weight[slots[i]]
    for i in range(n):
        slots[i] = i
    scratch.column.reg[NEAR] = 1
    top = base + 1
    while top > base:
        top -= 1
        top += _grow(forest, tree, top, examples, scratch, rules)
    scratch.column.reg[NEAR] = 0


@inner_kernel
def build(forest: Any, tree: int, root: int, n: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Build the subtree of a leaf without a list from n rows in ``scratch``; its nodes. O(n P S) a level.

    Counts of the root are right already.
    """
    start_stack(root, n, scratch)
    return build_stacked(forest, tree, 1, examples, scratch, rules)


@inlined_kernel
def start_stack(root: int, n: int, scratch: Any) -> None:
    """Put a node with n rows, of which nothing is known, on the empty stack."""
    scratch.stack[0], scratch.begins[0], scratch.ends[0] = root, 0, n
    for word in range(scratch.constant.shape[1]):
        scratch.constant[0, word] = 0


@inner_kernel
def build_stacked(forest: Any, tree: int, top: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Build the subtrees of the leaves on the stack; how many nodes they have."""
    before = forest.shape[tree, 0] - top
    while top > 0:
        top -= 1
        if scratch.ends[top] - scratch.begins[top] <= len(scratch.near.y):
            _grow_nearby(forest, tree, top, examples, scratch, rules)
        else:
            top += _grow(forest, tree, top, examples, scratch, rules)
    made: int = forest.shape[tree, 0] - before
    return made


@inlined_kernel
def put_off(forest: Any, tree: int, place: int, scratch: Any, rules: Any) -> None:
    """Leave the leaf at a place of the stack open, unless the rules make it a leaf."""
    node = np.int64(scratch.stack[place])
    if may_split(forest, node, rules):
        forest.nodes[node].feature = OPEN
        forest.shape[tree, 2] += 1
    _make_leaf(forest, node, np.int64(scratch.begins[place]), np.int64(scratch.ends[place]), scratch)


@inlined_kernel
def _close(forest: Any, tree: int, leaf: int, examples: Any, scratch: Any) -> int:
    """List the rows of an open leaf, which is about to be built; their number."""
    n = gather(forest, leaf, examples.member.shape[1], scratch)
    forest.nodes[leaf].feature = LEAF
    forest.nodes[leaf].head = -1
    forest.shape[tree, 2] -= 1
    forest.touched[tree] = True
    return n


@inlined_kernel
def child_of(forest: Any, node: int, examples: Any, scratch: Any) -> int:
    """The child of a split that the row in ``scratch.row`` reaches."""
    j = np.int64(forest.nodes[node].feature)
    left = goes_left(scratch.row[j], forest.nodes[node].threshold, examples.categorical[j])
    child: int = np.int64(forest.nodes[node].left) if left else np.int64(forest.nodes[node].right)
    return child


@kernel
def resolve(forest: Any, tree: int, examples: Any, scratch: Any, rules: Any) -> bool:
    """Build the open leaves of a tree; False, and nothing of the next one is done, if there is no room."""
    nodes, root = forest.nodes, np.int64(forest.roots[tree])
    node = root
    while node >= 0 and forest.shape[tree, 2] > 0:
        if nodes[node].feature == OPEN:
            if not has_room(forest, np.int64(nodes[root].n)) or len(scratch.slots) <= nodes[root].n:
                return False
            n = _close(forest, tree, node, examples, scratch)
            build(forest, tree, node, n, examples, scratch, rules)
        node = next_in_preorder(nodes, node, root)
    return True


@inner_kernel
def open_path(forest: Any, tree: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Build the nodes that the row in ``scratch.row`` passes, and leave the others open. The caller has made room.

    O(n P S) for an open leaf of n rows whose splits halve them.
    """
    nodes, node = forest.nodes, np.int64(forest.roots[tree])
    while nodes[node].feature >= 0:
        node = child_of(forest, node, examples, scratch)
    if nodes[node].feature != OPEN:
        return
    start_stack(node, _close(forest, tree, node, examples, scratch), scratch)
    stack, begins, ends, constant = scratch.stack, scratch.begins, scratch.ends, scratch.constant
    while _grow(forest, tree, 0, examples, scratch, rules) == 2:
        node = child_of(forest, node, examples, scratch)
        if node == stack[0]:
            put_off(forest, tree, 1, scratch, rules)
        else:
            put_off(forest, tree, 0, scratch, rules)
            stack[0], begins[0], ends[0] = stack[1], begins[1], ends[1]
            for word in range(constant.shape[1]):
                constant[0, word] = constant[1, word]
