"""Insert a row into a tree or delete it: count it along its path, and rebuild the subtree whose split changes.

Invariant: after :func:`change`, every node, block and leaf of the tree is what :func:`build.build` makes of the rows
that are in it now, but for open leaves. Which rows were there before leaves no trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel
from raydt.learners.forest.build import build, build_stacked, child_of, put_off, split_into_children, start_stack
from raydt.learners.forest.candidates import change_category, change_number
from raydt.learners.forest.count_candidates import fill_block, label_rows, measure
from raydt.learners.forest.node_pool import count, free_below, free_block, gather, mass_at, may_split, new_block
from raydt.learners.forest.nodes import LEAF, OPEN, REBUILDS, REBUILT_DEPTH, REBUILT_NODES, REBUILT_ROWS
from raydt.learners.forest.scoring import best_of
from raydt.trees.masses import mass_of
from raydt.trees.records import goes_left, link, unlink


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
def _change_block(forest: Any, node: int, y: int, row: int, by: int, examples: Any, scratch: Any, rules: Any) -> int:
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
def _recount(forest: Any, node: int, changed: int, n: int, by: int, examples: Any, scratch: Any, rules: Any) -> None:
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
def _parts_alike(forest: Any, node: int, feature: int, threshold: float, n: int, examples: Any, scratch: Any) -> bool:
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
        path += 1
        if nodes[node].feature < 0:
            _at_leaf(forest, tree, node, entry, by, same, examples, scratch, rules)
            return path
        if by < 0 and not may_split(forest, node, rules):
            n = _rows_now(forest, node, slot, entry, by, examples, scratch)
            _rebuild(forest, tree, node, n, examples, scratch, rules)
            return path
        changed, n = _change_block(forest, node, y, by, weight, examples, scratch, rules), -1
        if changed:
            n = _rows_now(forest, node, slot, entry, by, examples, scratch)
            _recount(forest, node, changed, n, by, examples, scratch, rules)
        block = np.int64(nodes[node].block)
        feature, threshold = best_of(forest, node, block, examples, scratch, rules)
        below = child_of(forest, node, examples, scratch)
        if feature != nodes[node].feature or threshold != nodes[node].threshold:
            if n < 0:
                n = _rows_now(forest, node, slot, entry, by, examples, scratch)
            if feature < 0:
                _rebuild(forest, tree, node, n, examples, scratch, rules)
                return path
            if not _parts_alike(forest, node, feature, threshold, n - (by > 0), examples, scratch):
                _resplit(forest, tree, node, feature, threshold, n, examples, scratch, rules)
                return path
            nodes[node].feature, nodes[node].threshold = feature, threshold
            if by > 0:  # one that is deleted is counted where it went
                before, below = below, child_of(forest, node, examples, scratch)
                if below != before:  # among rows that it was not compared with
                    _compare(forest, tree, examples, scratch)
        node = below
