"""Build a subtree from its rows, at once or node by node.

Invariant: a subtree is a function of its rows, the key of its root and the rules; ``docs/explanation/guarantees.md``
defines it. An open leaf keeps the list of its rows until it is built.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.learners.forest.candidates import (
    best_of,
    change_category,
    change_number,
    fill_block,
    label_rows,
    measure,
    take_column,
)
from raydt.learners.forest.nodes import (
    LEAF,
    NEAR,
    OPEN,
    REBUILDS,
    REBUILT_DEPTH,
    REBUILT_NODES,
    REBUILT_ROWS,
    count,
    free_below,
    free_block,
    gather,
    has_room,
    lose_hashes,
    mass_at,
    may_split,
    new_block,
    new_child,
)
from raydt.trees.records import goes_left, link, mass_of, next_in_preorder, unlink


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
def grow(forest: Any, tree: int, top: int, examples: Any, scratch: Any, rules: Any) -> int:
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


@inlined_kernel
def come_near(base: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Copy the rows of the node at a place of the stack: until ``NEAR`` is 0 again, slots are those of the copies."""
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


@inner_kernel
def _grow_nearby(forest: Any, tree: int, base: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Build the subtree of the node at a place of the stack from copies of its rows, which lie close together."""
    come_near(base, examples, scratch, rules)
    top = base + 1
    while top > base:
        top -= 1
        top += grow(forest, tree, top, examples, scratch, rules)
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
            top += grow(forest, tree, top, examples, scratch, rules)
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
    lose_hashes(forest, leaf)
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
    while grow(forest, tree, 0, examples, scratch, rules) == 2:
        node = child_of(forest, node, examples, scratch)
        if node == stack[0]:
            put_off(forest, tree, 1, scratch, rules)
        else:
            put_off(forest, tree, 0, scratch, rules)
            stack[0], begins[0], ends[0] = stack[1], begins[1], ends[1]
            for word in range(constant.shape[1]):
                constant[0, word] = constant[1, word]


# Insert a row into a tree or delete it: count it along its path, and rebuild the subtree whose split changes.
#
# Invariant: after :func:`change`, every node, block and leaf of the tree is what :func:`build.build` makes of the rows
# that are in it now, but for open leaves. Which rows were there before leaves no trace.


@inner_kernel
def _note(forest: Any, depth: int, rows: int, nodes: int) -> None:
    """Record a subtree that was rebuilt, or opened."""
    reg = forest.reg
    if reg[REBUILDS] == 0 or depth < reg[REBUILT_DEPTH]:
        reg[REBUILT_DEPTH] = depth
    reg[REBUILDS] += 1
    reg[REBUILT_ROWS] += rows
    reg[REBUILT_NODES] += nodes


@inner_kernel
def _rebuild(forest: Any, tree: int, node: int, n: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Rebuild a subtree from n rows in ``scratch``, or open it. Nothing of what was below the node is kept."""
    free_below(forest, tree, node)
    if forest.nodes[node].block >= 0:
        free_block(forest, np.int64(forest.nodes[node].block))
        forest.nodes[node].block = -1
    made = 1
    if rules.lazy:
        start_stack(node, n, scratch)
        put_off(forest, tree, 0, scratch, rules)
    else:
        made = build(forest, tree, node, n, examples, scratch, rules)
    _note(forest, np.int64(forest.nodes[node].depth), n, made)


@inner_kernel
def _resplit(
    forest: Any, tree: int, node: int, feature: int, threshold: float, n: int, examples: Any, scratch: Any, rules: Any
) -> None:
    """Split the n rows in ``scratch`` by the split now in the block of their node, and build or open the children.

    Nothing of what was below the node is kept.
    """
    free_below(forest, tree, node)
    nodes, made = forest.nodes, 3
    nodes[node].feature, nodes[node].threshold = feature, threshold
    start_stack(node, n, scratch)
    for word in range(scratch.constant.shape[1]):
        scratch.constant[0, word] = forest.blocks.skipped[nodes[node].block, word]
    split_into_children(forest, tree, 0, examples, scratch, rules)
    if rules.lazy:
        put_off(forest, tree, 0, scratch, rules)
        put_off(forest, tree, 1, scratch, rules)
    else:
        made = 1 + build_stacked(forest, tree, 2, examples, scratch, rules)
    _note(forest, np.int64(nodes[node].depth), n, made)


@inner_kernel
def _rows_now(forest: Any, node: int, slot: int, entry: int, by: int, examples: Any, scratch: Any) -> int:
    """List the rows of a node, with the one that is inserted; one that is deleted is unlinked already."""
    n = gather(forest, node, examples.member.shape[1], scratch)
    if by > 0:
        scratch.slots[n], scratch.entries[n] = slot, entry
        n += 1
    return n


@inner_kernel
def _compare(forest: Any, tree: int, examples: Any, scratch: Any) -> bool:
    """Mark the features in which the row differs from a row of the leaf that it reaches; False if there are none.

    The leaf's rows are in every node above, so that a feature that is constant there stays so unless it differs here.
    """
    nodes, node = forest.nodes, np.int64(forest.roots[tree])
    while nodes[node].feature >= 0:
        node = child_of(forest, node, examples, scratch)
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
def change_block(forest: Any, node: int, y: int, row: int, by: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Count the row in (``row`` 1) or out (-1) at the candidates of a node whose counts are right.

    Returns 0: all is counted; 1: features marked ``stale`` must be recounted; 2: the node may have to try others.
    """
    blocks, block, n = forest.blocks, np.int64(forest.nodes[node].block), np.int64(forest.nodes[node].n)
    mass, answer = mass_at(forest, node, rules), 0
    anew = False
    if row > 0:
        for word in range(blocks.skipped.shape[1]):
            anew |= (blocks.skipped[block, word] & scratch.differs[word]) != 0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j = np.int64(tried.feature)
        x, cuts, buckets = scratch.row[j], blocks.cuts[block, place], blocks.buckets[block, place]
        if examples.categorical[j]:
            stale = change_category(tried, cuts, buckets, forest.nodes[node].key, x, y, by, mass, rules)
        else:
            stale = change_number(tried, cuts, buckets, x, y, row, by, n - row - np.int64(tried.missing), rules)
        if stale:
            tried.stale = 1
            answer = 1
    return 2 if anew else answer


@inner_kernel
def recount(forest: Any, node: int, changed: int, n: int, by: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Count stale features, and others that are tried now, from n rows in ``scratch``. O(n S) a feature."""
    blocks, block = forest.blocks, np.int64(forest.nodes[node].block)
    if changed == 1:
        label_rows(forest, node, 0, n, examples, scratch, rules)
        for place in range(blocks.kept[block]):
            if blocks.tried[block, place].stale:
                feature = np.int64(blocks.tried[block, place].feature)
                if not measure(forest, node, block, place, feature, 0, n, examples, scratch, rules):
                    blocks.tried[block, place].stale = 1
                    changed = 2
    if changed == 2:  # what was constant still is, but for features in which the row differs
        for word in range(scratch.constant.shape[1]):
            known = blocks.skipped[block, word]
            scratch.constant[0, word] = known & ~scratch.differs[word] if by > 0 else known
        after = new_block(forest)
        fill_block(forest, node, after, block, 0, n, 0, examples, scratch, rules)
        forest.nodes[node].block = after
        free_block(forest, block)


@inner_kernel
def _at_leaf(
    forest: Any, tree: int, leaf: int, entry: int, by: int, same: bool, examples: Any, scratch: Any, rules: Any
) -> None:
    """End a row's path at its leaf, whose counts are right, and split the leaf where the rules ask for it.

    ``same``: it equals the rows of the leaf in all features, so that no split separates them.
    """
    if by < 0:
        if forest.nodes[leaf].feature == OPEN and not may_split(forest, leaf, rules):
            forest.nodes[leaf].feature = LEAF
            forest.shape[tree, 2] -= 1
        return
    link(forest, forest.members, leaf, entry)
    if same or forest.nodes[leaf].feature == OPEN or not may_split(forest, leaf, rules):
        return
    n = gather(forest, leaf, examples.member.shape[1], scratch)
    _rebuild(forest, tree, leaf, n, examples, scratch, rules)


@inner_kernel
def parts_alike(forest: Any, node: int, feature: int, threshold: float, n: int, examples: Any, scratch: Any) -> bool:
    """Return True if a split sends the first n rows in ``scratch`` to the sides that the split of their node does."""
    had, limit = np.int64(forest.nodes[node].feature), forest.nodes[node].threshold
    kind, had_kind = examples.categorical[feature], examples.categorical[had]
    for i in range(n):
        row = examples.X[scratch.slots[i]]
        if goes_left(row[had], limit, had_kind) != goes_left(row[feature], threshold, kind):
            return False
    return True


@inner_kernel
def change(forest: Any, tree: int, slot: int, entry: int, by: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Insert (``by`` 1) or delete (-1) a row, which is also in ``scratch.row``; how many nodes count it.

    O(depth P S), and what is recounted or rebuilt. The caller has made room.
    """
    forest.touched[tree] = True
    nodes, node, y, path, equal = forest.nodes, np.int64(forest.roots[tree]), examples.y[slot], 0, False
    weight = by * mass_of(examples.weight, slot)
    if by < 0:
        unlink(forest, forest.members, entry)
    else:
        equal = not _compare(forest, tree, examples, scratch)
    while True:
        same = equal and nodes[node].feature == LEAF and may_split(forest, node, rules)
        count(forest, node, y, by, weight, rules.numeric)
        forest.hashed[node] = False
        path += 1
        if nodes[node].feature < 0:
            _at_leaf(forest, tree, node, entry, by, same, examples, scratch, rules)
            return path
        if by < 0 and not may_split(forest, node, rules):
            n = _rows_now(forest, node, slot, entry, by, examples, scratch)
            _rebuild(forest, tree, node, n, examples, scratch, rules)
            return path
        changed, n = change_block(forest, node, y, by, weight, examples, scratch, rules), -1
        if changed:
            n = _rows_now(forest, node, slot, entry, by, examples, scratch)
            recount(forest, node, changed, n, by, examples, scratch, rules)
        block = np.int64(nodes[node].block)
        feature, threshold = best_of(forest, node, block, examples, scratch, rules)
        below = child_of(forest, node, examples, scratch)
        if feature != nodes[node].feature or threshold != nodes[node].threshold:
            if n < 0:
                n = _rows_now(forest, node, slot, entry, by, examples, scratch)
            if feature < 0:
                _rebuild(forest, tree, node, n, examples, scratch, rules)
                return path
            if not parts_alike(forest, node, feature, threshold, n - (by > 0), examples, scratch):
                _resplit(forest, tree, node, feature, threshold, n, examples, scratch, rules)
                return path
            nodes[node].feature, nodes[node].threshold = feature, threshold
            if by > 0:  # one that is deleted is counted where it went
                before, below = below, child_of(forest, node, examples, scratch)
                if below != before:  # among rows that it was not compared with
                    _compare(forest, tree, examples, scratch)
        node = below
