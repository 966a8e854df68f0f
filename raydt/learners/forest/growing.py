"""Trees are built and changed here: a subtree from its rows, and the path of one row that comes or goes.

Invariant: after :func:`change`, every node, block and leaf of a tree is what :func:`build` makes of the rows that are
in it now, but for open leaves, which :func:`resolve` builds. Which rows were there before leaves no trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.arrays.rng import bits_at
from raydt.learners.forest.candidates import (
    best_of,
    change_category,
    change_number,
    fill_block,
    label_rows,
    measure,
)
from raydt.learners.forest.nodes import (
    LEAF,
    OPEN,
    REBUILDS,
    REBUILT_DEPTH,
    REBUILT_NODES,
    REBUILT_ROWS,
    count,
    dissolve,
    free_block,
    gather,
    has_room,
    link,
    may_be_parted,
    new_block,
    new_child,
    unlink,
)
from raydt.learners.nodes import goes_left


@inlined_kernel
def _make_leaf(forest: Any, node: int, begin: int, end: int, scratch: Any) -> None:
    """Link the rows of a leaf."""
    for i in range(begin, end):
        link(forest, node, scratch.entries[i])


@inlined_kernel
def _part(forest: Any, node: int, begin: int, end: int, examples: Any, scratch: Any) -> int:
    """Bring the rows of a split node in order, left ones first; where the right ones begin. Stable."""
    feature, threshold = np.int64(forest.nodes[node].feature), forest.nodes[node].threshold
    category, slots, entries = examples.categorical[feature], scratch.slots, scratch.entries
    middle, rest = begin, 0
    for i in range(begin, end):
        slot, entry = slots[i], entries[i]
        if goes_left(examples.X[slot, feature], threshold, category):
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
    """Count the rows of the children of a fresh split."""
    nodes, totals = forest.nodes, forest.totals
    left, right = np.int64(nodes[node].left), np.int64(nodes[node].right)
    nodes[left].n = 0
    for m in range(totals.shape[1]):
        totals[left, m] = 0
    for i in range(begin, middle):
        count(forest, left, examples.y[scratch.slots[i]], 1, rules.numeric)
    nodes[right].n = nodes[node].n - nodes[left].n
    for m in range(totals.shape[1]):
        totals[right, m] = totals[node, m] - totals[left, m]


@inner_kernel
def _grow(forest: Any, tree: int, top: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Make a leaf or a split of the node at a place of the stack; how many children follow it there."""
    nodes, stack, begins, ends = forest.nodes, scratch.stack, scratch.begins, scratch.ends
    node, begin, end = np.int64(stack[top]), np.int64(begins[top]), np.int64(ends[top])
    if not may_be_parted(forest, node, rules):
        _make_leaf(forest, node, begin, end, scratch)
        return 0
    block = new_block(forest)
    if fill_block(forest, node, block, begin, end - begin, top, examples, scratch, rules) == 0:
        free_block(forest, block)
        _make_leaf(forest, node, begin, end, scratch)
        return 0
    feature, threshold = best_of(forest, node, block, examples, scratch, rules)
    nodes[node].feature, nodes[node].threshold, nodes[node].block = feature, threshold, block
    _split(forest, tree, top, examples, scratch, rules)
    return 2


@inlined_kernel
def _split(forest: Any, tree: int, top: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Replace a node at a place of the stack, whose split is known, by its children: the right one, then the left."""
    nodes, stack, begins, ends = forest.nodes, scratch.stack, scratch.begins, scratch.ends
    node, begin, end = np.int64(stack[top]), np.int64(begins[top]), np.int64(ends[top])
    key, depth = nodes[node].key, np.int64(nodes[node].depth) + 1
    left = new_child(forest, tree, depth, bits_at(key, 0))
    right = new_child(forest, tree, depth, bits_at(key, 1))
    nodes[node].left, nodes[node].right = left, right
    forest.shape[tree, 1] += 1
    middle = _part(forest, node, begin, end, examples, scratch)
    _count_children(forest, node, begin, middle, examples, scratch, rules)
    stack[top], begins[top], ends[top] = right, middle, end
    stack[top + 1], begins[top + 1], ends[top + 1] = left, begin, middle
    for word in range(scratch.constant.shape[1]):
        scratch.constant[top + 1, word] = scratch.constant[top, word]


@inner_kernel
def _grow_nearby(forest: Any, tree: int, base: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Build the subtree of the node at a place of the stack from copies of its rows, which lie close together."""
    begin, end = np.int64(scratch.begins[base]), np.int64(scratch.ends[base])
    near, slots = scratch.near, scratch.slots
    for i in range(begin, end):
        for j in range(examples.X.shape[1]):
            near.X[i - begin, j] = examples.X[slots[i], j]
        near.y[i - begin] = examples.y[slots[i]]
    for i in range(begin, end):
        slots[i] = i - begin
    top = base + 1
    while top > base:
        top -= 1
        top += _grow(forest, tree, top, near, scratch, rules)


@inner_kernel
def build(forest: Any, tree: int, root: int, n: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Build the subtree of a leaf without a list from n rows in ``scratch``; its nodes. O(n P S) a level.

    Counts of the root are right already.
    """
    _begin(root, n, scratch)
    return _build_stacked(forest, tree, 1, examples, scratch, rules)


@inlined_kernel
def _begin(root: int, n: int, scratch: Any) -> None:
    """Put a node with n rows, of which nothing is known, on the empty stack."""
    scratch.stack[0], scratch.begins[0], scratch.ends[0] = root, 0, n
    for word in range(scratch.constant.shape[1]):
        scratch.constant[0, word] = 0


@inner_kernel
def _build_stacked(forest: Any, tree: int, top: int, examples: Any, scratch: Any, rules: Any) -> int:
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
def _put_off(forest: Any, tree: int, place: int, scratch: Any, rules: Any) -> None:
    """Leave the leaf at a place of the stack open, unless it stays a leaf anyway."""
    node = np.int64(scratch.stack[place])
    if may_be_parted(forest, node, rules):
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


@inner_kernel
def _note(forest: Any, depth: int, rows: int, nodes: int) -> None:
    """Note what was rebuilt, or opened."""
    reg = forest.reg
    if reg[REBUILDS] == 0 or depth < reg[REBUILT_DEPTH]:
        reg[REBUILT_DEPTH] = depth
    reg[REBUILDS] += 1
    reg[REBUILT_ROWS] += rows
    reg[REBUILT_NODES] += nodes


@inner_kernel
def _rebuild(forest: Any, tree: int, node: int, n: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Make a subtree anew of n rows in ``scratch``, or open it. What was below the node is gone at once."""
    dissolve(forest, tree, node, scratch)
    if forest.nodes[node].block >= 0:
        free_block(forest, np.int64(forest.nodes[node].block))
        forest.nodes[node].block = -1
    made = 1
    if rules.lazy:
        _begin(node, n, scratch)
        _put_off(forest, tree, 0, scratch, rules)
    else:
        made = build(forest, tree, node, n, examples, scratch, rules)
    _note(forest, np.int64(forest.nodes[node].depth), n, made)


@inner_kernel
def _resplit(
    forest: Any, tree: int, node: int, feature: int, threshold: float, n: int, examples: Any, scratch: Any, rules: Any
) -> None:
    """Part the n rows in ``scratch`` by another split, which the block of their node has already; build or open the
    children. What was below the node is gone at once."""
    dissolve(forest, tree, node, scratch)
    nodes, made = forest.nodes, 3
    nodes[node].feature, nodes[node].threshold = feature, threshold
    _begin(node, n, scratch)
    for word in range(scratch.constant.shape[1]):
        scratch.constant[0, word] = forest.blocks.skipped[nodes[node].block, word]
    _split(forest, tree, 0, examples, scratch, rules)
    if rules.lazy:
        _put_off(forest, tree, 0, scratch, rules)
        _put_off(forest, tree, 1, scratch, rules)
    else:
        made = 1 + _build_stacked(forest, tree, 2, examples, scratch, rules)
    _note(forest, np.int64(nodes[node].depth), n, made)


@inner_kernel
def _rows_now(forest: Any, node: int, slot: int, entry: int, by: int, examples: Any, scratch: Any) -> int:
    """List the rows of a node, with the one that comes; the one that goes is unlinked already."""
    n = gather(forest, node, examples.member.shape[1], scratch)
    if by > 0:
        scratch.slots[n], scratch.entries[n] = slot, entry
        n += 1
    return n


@inlined_kernel
def _child(forest: Any, node: int, examples: Any, scratch: Any) -> int:
    """The child of a split to which the row at hand goes."""
    j = np.int64(forest.nodes[node].feature)
    left = goes_left(scratch.row[j], forest.nodes[node].threshold, examples.categorical[j])
    child: int = np.int64(forest.nodes[node].left) if left else np.int64(forest.nodes[node].right)
    return child


@inner_kernel
def _compare(forest: Any, tree: int, examples: Any, scratch: Any) -> bool:
    """Note in which features the row at hand differs from one that is in the leaf it goes to; False if in none.

    The leaf's rows are in every node above, so that a feature that is constant there stays so unless it differs here.
    """
    nodes, node = forest.nodes, np.int64(forest.roots[tree])
    while nodes[node].feature >= 0:
        node = _child(forest, node, examples, scratch)
    differs = scratch.differs
    for word in range(len(differs)):
        differs[word] = 0
    if nodes[node].head < 0:
        return True
    other, any_differs = nodes[node].head // examples.member.shape[1], False
    for j in range(len(scratch.row)):
        a, b = scratch.row[j], examples.X[other, j]
        if a != b and (a == a or b == b):
            differs[j >> 6] |= np.uint64(1) << np.uint64(j & 63)
            any_differs = True
    return any_differs


@inlined_kernel
def _change_block(forest: Any, node: int, y: int, by: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Count the row at hand in or out of the candidates of a node whose counts are right.

    Returns
    -------
    int
        0: all is counted; 1: features marked ``stale`` have to be counted anew; 2: other features may be tried.
    """
    blocks, block, n = forest.blocks, np.int64(forest.nodes[node].block), np.int64(forest.nodes[node].n)
    if by > 0:
        for word in range(blocks.skipped.shape[1]):
            if blocks.skipped[block, word] & scratch.differs[word]:
                return 2
    answer = 0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j = np.int64(tried.feature)
        x, cuts, buckets = scratch.row[j], blocks.cuts[block, place], blocks.buckets[block, place]
        if examples.categorical[j]:
            stale = change_category(tried, cuts, buckets, forest.nodes[node].key, x, y, by, n, rules)
        else:
            stale = change_number(tried, cuts, buckets, x, y, by, n - by - np.int64(tried.missing), rules)
        if stale:
            tried.stale = 1
            answer = 1
    return answer


@inner_kernel
def _count_anew(forest: Any, node: int, changed: int, n: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Count stale features, or choose and count all, from n rows in ``scratch``. O(n S) a feature."""
    blocks, block = forest.blocks, np.int64(forest.nodes[node].block)
    if changed == 1:
        label_rows(0, n, examples, scratch)
        for place in range(blocks.kept[block]):
            if blocks.tried[block, place].stale:
                feature = np.int64(blocks.tried[block, place].feature)
                if not measure(forest, node, block, place, feature, 0, n, examples, scratch, rules):
                    changed = 2
    if changed == 2:
        for word in range(scratch.constant.shape[1]):
            scratch.constant[0, word] = 0
        fill_block(forest, node, block, 0, n, 0, examples, scratch, rules)


@inner_kernel
def _at_leaf(
    forest: Any, tree: int, leaf: int, entry: int, by: int, same: bool, examples: Any, scratch: Any, rules: Any
) -> None:
    """End a row's path: its leaf, whose counts are right, gets it, and may have to be parted.

    ``same``: it equals the rows of the leaf in all features, and these could not be parted for that reason.
    """
    if by < 0:
        if forest.nodes[leaf].feature == OPEN and not may_be_parted(forest, leaf, rules):
            forest.nodes[leaf].feature = LEAF
            forest.shape[tree, 2] -= 1
        return
    link(forest, leaf, entry)
    if same or forest.nodes[leaf].feature == OPEN or not may_be_parted(forest, leaf, rules):
        return
    n = gather(forest, leaf, examples.member.shape[1], scratch)
    _rebuild(forest, tree, leaf, n, examples, scratch, rules)


@inner_kernel
def change(forest: Any, tree: int, slot: int, entry: int, by: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Insert (``by`` 1) or delete (-1) a row, which is also in ``scratch.row``; how many nodes count it.

    O(depth P S) and what must be counted anew or rebuilt. The caller has made room.
    """
    forest.touched[tree] = True
    nodes, node, y, path, equal = forest.nodes, np.int64(forest.roots[tree]), examples.y[slot], 0, False
    if by < 0:
        unlink(forest, entry)
    else:
        equal = not _compare(forest, tree, examples, scratch)
    while True:
        same = equal and nodes[node].feature == LEAF and may_be_parted(forest, node, rules)
        count(forest, node, y, by, rules.numeric)
        path += 1
        if nodes[node].feature < 0:
            _at_leaf(forest, tree, node, entry, by, same, examples, scratch, rules)
            return path
        if by < 0 and not may_be_parted(forest, node, rules):
            n = _rows_now(forest, node, slot, entry, by, examples, scratch)
            _rebuild(forest, tree, node, n, examples, scratch, rules)
            return path
        changed, n = _change_block(forest, node, y, by, examples, scratch, rules), -1
        if changed:
            n = _rows_now(forest, node, slot, entry, by, examples, scratch)
            _count_anew(forest, node, changed, n, examples, scratch, rules)
        block = np.int64(nodes[node].block)
        feature, threshold = best_of(forest, node, block, examples, scratch, rules)
        if feature != nodes[node].feature or threshold != nodes[node].threshold:
            if n < 0:
                n = _rows_now(forest, node, slot, entry, by, examples, scratch)
            if feature < 0:
                _rebuild(forest, tree, node, n, examples, scratch, rules)
            else:
                _resplit(forest, tree, node, feature, threshold, n, examples, scratch, rules)
            return path
        node = _child(forest, node, examples, scratch)


@kernel
def resolve(forest: Any, tree: int, examples: Any, scratch: Any, rules: Any) -> bool:
    """Build the open leaves of a tree; False, and nothing of the next one is done, if there is no room."""
    nodes, waiting, top = forest.nodes, scratch.waiting, 1
    root = np.int64(forest.roots[tree])
    waiting[0] = root
    while top > 0 and forest.shape[tree, 2] > 0:
        top -= 1
        node = np.int64(waiting[top])
        if nodes[node].feature >= 0:
            waiting[top] = nodes[node].right
            waiting[top + 1] = nodes[node].left
            top += 2
        elif nodes[node].feature == OPEN:
            if not has_room(forest, np.int64(nodes[root].n)) or len(scratch.slots) <= nodes[root].n:
                return False
            n = _close(forest, tree, node, examples, scratch)
            build(forest, tree, node, n, examples, scratch, rules)
    return True


@inner_kernel
def open_path(forest: Any, tree: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Build the nodes that the row at hand passes; what lies beside its path stays open. The caller has made room.

    O(n P S) for an open leaf of n rows whose splits halve them.
    """
    nodes, node = forest.nodes, np.int64(forest.roots[tree])
    while nodes[node].feature >= 0:
        node = _child(forest, node, examples, scratch)
    if nodes[node].feature != OPEN:
        return
    _begin(node, _close(forest, tree, node, examples, scratch), scratch)
    stack, begins, ends, constant = scratch.stack, scratch.begins, scratch.ends, scratch.constant
    while _grow(forest, tree, 0, examples, scratch, rules) == 2:
        node = _child(forest, node, examples, scratch)
        if node == stack[0]:
            _put_off(forest, tree, 1, scratch, rules)
        else:
            _put_off(forest, tree, 0, scratch, rules)
            stack[0], begins[0], ends[0] = stack[1], begins[1], ends[1]
            for word in range(constant.shape[1]):
                constant[0, word] = constant[1, word]
