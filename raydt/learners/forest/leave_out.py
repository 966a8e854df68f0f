"""Votes of a forest as they would be without some of its rows, for rows that are known; no tree is changed.

A subtree is a function of its rows and of the key of its root (``build``). So whoever asks what a tree would be without
some rows walks down the paths of these rows with a copy of one node at a time, takes the rows out of the copy by the
code that deletes them (``build.change``), and sees if the split stays. Where it does, only totals change. Where another
split parts the remaining rows alike, the subtrees below stay, and the known rows go by the new split. Else the subtree
is built from the remaining rows in a *workspace* of a few nodes, depth first, and only where a known row arrives.

The known rows are sorted once by the way down each tree, so that those below a node are a range. What changes are
votes, whole numbers that add up in any order: groups of rows divide over threads without a message, and the bits are
those of one thread.

Invariant: a forest is read and never written here. Votes with the changes are those of the forest after a deletion of
the rows, bit for bit; ``tests/property/test_leave_one_out.py`` compares them with training anew.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.blocks import empty
from raydt.arrays.elementary import Bools, Floats, Int32s, Ints, Slots
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.examples.updates import Targets
from raydt.learners.batch_coordinator import ADD, REMOVE, PredictionsWithout
from raydt.learners.forest.build import (
    change_block,
    come_near,
    grow,
    parts_alike,
    recount,
    split_into_children,
    start_stack,
)
from raydt.learners.forest.candidates import best_of, copy_candidates
from raydt.learners.forest.labels import LabelScale
from raydt.learners.forest.model import add_vote, merged_votes, predictions_of
from raydt.learners.forest.nodes import (
    BLOCKS_FREE,
    BLOCKS_SPARE,
    BLOCKS_USED,
    FREE,
    NEAR,
    SPARE,
    USED,
    ForestArrays,
    ForestRules,
    ForestScratch,
    count,
    free_block,
    free_node,
    may_split,
    most_rows,
    new_forest,
    new_scratch,
    with_room,
)
from raydt.learners.forest.shard import ForestStore
from raydt.learners.forest.trees import TreePool
from raydt.parallel import run, threads
from raydt.trees.records import MEMBER, goes_left, mass_of, next_in_preorder

#: Changes of votes that one task holds, and most groups of a task: half a second of work for large trees.
MOST_CHANGES, MOST_GROUPS = 1 << 19, 64


class KnownRows(NamedTuple):
    """Rows to predict, and where they are in the trees of a pool.

    ``order``, shape (trees, m), has the rows of ``X`` by their way down each tree; ``place`` is where each row is in
    it, ``leaf`` the leaf of each row. Below a node are those from ``begins`` to before ``ends``, by node. ``slots`` are
    those of the rows that the trees hold, in the order of their leaves, and ``firsts`` where those of each node begin.
    """

    X: Floats
    order: Int32s
    place: Int32s
    leaf: Int32s
    begins: Int32s
    ends: Int32s
    slots: Int32s
    firsts: Int32s


class TreeWalk(NamedTuple):
    """Scratch of a walk down a tree.

    The stack has nodes, a range of the rows ``gone`` there, and a range of the known rows, which are ``listed`` in
    ``rows`` if they are not those that the node has in the forest. ``below`` and ``above`` are ranges of known rows by
    place of the stack of a build. ``is_gone`` marks slots; ``first`` is where the rows of each tree begin in
    ``by_tree``; ``other`` is for partitions, ``row`` the known row at hand, ``old`` and ``new`` votes.
    """

    node: Int32s
    gone_begin: Int32s
    gone_end: Int32s
    begin: Int32s
    end: Int32s
    listed: Bools
    gone: Int32s
    rows: Int32s
    other: Int32s
    below: Int32s
    above: Int32s
    is_gone: Bools
    first: Ints
    by_tree: Int32s
    old: Ints
    new: Ints


@inlined_kernel
def part_rows(
    rows: Any, begin: int, end: int, X: Any, feature: int, threshold: float, category: bool, other: Any
) -> int:
    """Partition row numbers from ``begin`` to before ``end``, left ones first, stably; where the right ones begin."""
    middle, rest = begin, 0
    for i in range(begin, end):
        row = rows[i]
        if goes_left(X[np.int64(row), feature], threshold, category):
            rows[middle] = row
            middle += 1
        else:
            other[rest] = row
            rest += 1
    for i in range(rest):
        rows[middle + i] = other[i]
    return middle


@kernel
def sort_known(forest: Any, known: Any, categorical: Any, k: int, other: Any) -> None:
    """Fill in where the rows are, each of which is in k trees. O(nodes + rows depth) a tree."""
    nodes, at = forest.nodes, 0
    for tree in range(len(forest.roots)):
        order, root = known.order[tree], np.int64(forest.roots[tree])
        for i in range(len(order)):
            order[i] = i
        known.begins[root], known.ends[root] = 0, len(order)
        node = root
        while node >= 0:
            begin, end = np.int64(known.begins[node]), np.int64(known.ends[node])
            j = np.int64(nodes[node].feature)
            known.firsts[node] = at
            if j >= 0:
                middle = part_rows(order, begin, end, known.X, j, nodes[node].threshold, categorical[j], other)
                left, right = np.int64(nodes[node].left), np.int64(nodes[node].right)
                known.begins[left], known.ends[left] = begin, middle
                known.begins[right], known.ends[right] = middle, end
            else:
                for i in range(begin, end):
                    known.leaf[tree, order[i]] = node
                    known.place[tree, order[i]] = i
                entry = np.int64(nodes[node].head)
                while entry >= 0:
                    known.slots[at] = entry // k
                    at += 1
                    entry = np.int64(forest.members[entry].next)
            node = next_in_preorder(nodes, node, root)


@inlined_kernel
def vote_of(totals: Any, node: int, rules: Any, votes: Any) -> None:
    """Put the vote of one leaf into ``votes``."""
    for k in range(len(votes)):
        votes[k] = 0
    add_vote(totals, node, rules.numeric, votes)


@inner_kernel
def _vote_anew(
    forest: Any, tree: int, totals: Any, leaf: int, begin: int, end: int, rows: Any, known: Any, walk: Any, rules: Any,
    changes: Any
) -> None:  # fmt: skip
    """Change the votes of known rows from those of their leaves to that of another leaf, which has ``totals``."""
    old, new, former = walk.old, walk.new, np.int64(-1)
    vote_of(totals, leaf, rules, new)
    for i in range(begin, end):
        row = np.int64(rows[i])
        had = np.int64(known.leaf[tree, row])
        if had != former:  # neighbours in the order often have one leaf
            vote_of(forest.totals, had, rules, old)
            former = had
        for k in range(len(new)):
            changes[row, k] += new[k] - old[k]


@inlined_kernel
def _take_node(forest: Any, node: int, work: Any) -> None:
    """Make a copy of a node, without its block, the only node of the workspace."""
    reg = work.reg
    reg[USED], reg[FREE], reg[SPARE] = 1, -1, 0
    reg[BLOCKS_USED], reg[BLOCKS_FREE], reg[BLOCKS_SPARE] = 1, -1, 0
    work.shape[0, 1] = 1
    work.nodes[0] = forest.nodes[node]
    work.nodes[0].parent = work.nodes[0].left = work.nodes[0].right = work.nodes[0].head = -1
    work.nodes[0].block = 0
    for m in range(forest.totals.shape[1]):
        work.totals[0, m] = forest.totals[node, m]


@inlined_kernel
def _take_block(forest: Any, node: int, work: Any) -> None:
    """Copy the candidates of a node into the first block of the workspace. O(P S K)."""
    blocks, own, block = forest.blocks, work.blocks, np.int64(forest.nodes[node].block)
    kept = np.int64(blocks.kept[block])
    own.kept[0] = kept
    for word in range(own.skipped.shape[1]):
        own.skipped[0, word] = blocks.skipped[block, word]
    for place in range(kept):
        copy_candidates(blocks, block, place, own, 0, place)


@inner_kernel
def _rows_left(forest: Any, node: int, known: Any, walk: Any, scratch: Any) -> int:
    """List the rows of a node that are not gone, which are numbered as entries of the workspace; how many."""
    first, left = np.int64(known.firsts[node]), 0
    for i in range(first, first + np.int64(forest.nodes[node].n)):
        slot = known.slots[i]
        if not walk.is_gone[slot]:
            scratch.slots[left], scratch.entries[left] = slot, left
            left += 1
    return left


@inner_kernel
def _build_known(
    forest: Any, tree: int, begin: int, end: int, known: Any, walk: Any, work: Any, examples: Any, scratch: Any,
    rules: Any, changes: Any
) -> None:  # fmt: skip
    """Build what lies below the node of the workspace, whose split and rows are known, where known rows go.

    These are listed from ``begin`` to before ``end``. Nodes and blocks are given back as soon as their children have
    what they need of them.
    """
    nodes, stack, below, above, rows = work.nodes, scratch.stack, walk.below, walk.above, walk.rows
    category = examples.categorical
    feature, threshold = np.int64(nodes[0].feature), nodes[0].threshold
    middle = part_rows(rows, begin, end, known.X, feature, threshold, category[feature], walk.other)
    split_into_children(work, 0, 0, examples, scratch, rules)
    below[0], above[0], below[1], above[1] = middle, end, begin, middle
    top, near = 2, -1
    while top > 0:
        top -= 1
        node, begin, end = np.int64(stack[top]), np.int64(below[top]), np.int64(above[top])
        if begin < end:
            if near < 0 and scratch.ends[top] - scratch.begins[top] <= len(scratch.near.y):
                near = top
                come_near(top, examples, scratch, rules)
            if grow(work, 0, top, examples, scratch, rules) == 2:
                free_block(work, np.int64(nodes[node].block))
                feature, threshold = np.int64(nodes[node].feature), nodes[node].threshold
                middle = part_rows(rows, begin, end, known.X, feature, threshold, category[feature], walk.other)
                below[top], above[top], below[top + 1], above[top + 1] = middle, end, begin, middle
                free_node(work, 0, node)
                top += 2
                continue
            _vote_anew(forest, tree, work.totals, node, begin, end, rows, known, walk, rules, changes)
        free_node(work, 0, node)
        if top == near:
            scratch.column.reg[NEAR], near = 0, -1


@inner_kernel
def _move(
    forest: Any, tree: int, node: int, begin: int, end: int, known: Any, walk: Any, examples: Any, scratch: Any,
    rules: Any, changes: Any
) -> None:  # fmt: skip
    """Send listed known rows down from a node below which nothing is gone; those that came here before stay."""
    X, category, nodes = known.X, examples.categorical, forest.nodes
    for i in range(begin, end):
        row = np.int64(walk.rows[i])
        if known.begins[node] <= known.place[tree, row] < known.ends[node]:
            continue
        at = np.int64(node)
        j = np.int64(nodes[at].feature)
        while j >= 0:
            left = goes_left(X[row, j], nodes[at].threshold, category[j])
            at = np.int64(nodes[at].left) if left else np.int64(nodes[at].right)
            j = np.int64(nodes[at].feature)
        _vote_anew(forest, tree, forest.totals, at, i, i + 1, walk.rows, known, walk, rules, changes)


@inlined_kernel
def _take_out(
    forest: Any, node: int, begin: int, end: int, walk: Any, work: Any, examples: Any, scratch: Any, rules: Any
) -> int:
    """Take the gone rows out of a copy of a node, an inner one with its candidates; what changed (``change_block``)."""
    _take_node(forest, node, work)
    inner, changed = forest.nodes[node].feature >= 0, 0
    if inner:
        _take_block(forest, node, work)
    for i in range(begin, end):
        slot = np.int64(walk.gone[i])
        y, weight = examples.y[slot], -mass_of(examples.weight, slot)
        count(work, 0, y, -1, weight, rules.numeric)
        if inner:
            for j in range(examples.X.shape[1]):
                scratch.row[j] = examples.X[slot, j]
            changed = max(changed, change_block(work, 0, y, -1, weight, examples, scratch, rules))
    return changed


@inner_kernel
def _leave_out(
    forest: Any, tree: int, n_gone: int, known: Any, walk: Any, work: Any, examples: Any, scratch: Any, rules: Any,
    changes: Any
) -> None:  # fmt: skip
    """Add the changes of one tree without the first rows that are ``gone``, which are in it."""
    nodes, category = forest.nodes, examples.categorical
    walk.node[0], walk.gone_begin[0], walk.gone_end[0] = forest.roots[tree], 0, n_gone
    walk.begin[0], walk.end[0], walk.listed[0] = 0, len(known.X), False
    top = 1
    while top > 0:
        top -= 1
        node, gone, gone_end = np.int64(walk.node[top]), np.int64(walk.gone_begin[top]), np.int64(walk.gone_end[top])
        begin, end, listed = np.int64(walk.begin[top]), np.int64(walk.end[top]), walk.listed[top]
        if begin == end:
            continue
        if gone == gone_end:
            if listed:
                _move(forest, tree, node, begin, end, known, walk, examples, scratch, rules, changes)
            continue
        changed = _take_out(forest, node, gone, gone_end, walk, work, examples, scratch, rules)
        feature, threshold, n = np.int64(-1), 0.0, -1
        if nodes[node].feature >= 0 and may_split(work, 0, rules):
            if changed:
                n = _rows_left(forest, node, known, walk, scratch)
                recount(work, 0, changed, n, -1, examples, scratch, rules)
            feature, threshold = best_of(work, 0, np.int64(work.nodes[0].block), examples, scratch, rules)
        if feature < 0:
            rows = walk.rows if listed else known.order[tree]
            _vote_anew(forest, tree, work.totals, 0, begin, end, rows, known, walk, rules, changes)
            continue
        had, limit = np.int64(nodes[node].feature), nodes[node].threshold
        stays = feature == had and threshold == limit
        if not (stays or listed):
            listed = True
            for i in range(begin, end):
                walk.rows[i] = known.order[tree, i]
        if not stays:
            if n < 0:
                n = _rows_left(forest, node, known, walk, scratch)
            if not parts_alike(forest, node, feature, threshold, n, examples, scratch):
                work.nodes[0].feature, work.nodes[0].threshold = feature, threshold
                start_stack(0, n, scratch)
                for word in range(scratch.constant.shape[1]):
                    scratch.constant[0, word] = work.blocks.skipped[work.nodes[0].block, word]
                _build_known(forest, tree, begin, end, known, walk, work, examples, scratch, rules, changes)
                continue
        left, right = np.int64(nodes[node].left), np.int64(nodes[node].right)
        if listed:
            middle = part_rows(walk.rows, begin, end, known.X, feature, threshold, category[feature], walk.other)
        else:
            middle = np.int64(known.ends[left])
        between = part_rows(walk.gone, gone, gone_end, examples.X, had, limit, category[had], walk.other)
        walk.node[top], walk.gone_begin[top], walk.gone_end[top] = right, between, gone_end
        walk.begin[top], walk.end[top], walk.listed[top] = middle, end, listed
        top += 1
        walk.node[top], walk.gone_begin[top], walk.gone_end[top] = left, gone, between
        walk.begin[top], walk.end[top], walk.listed[top] = begin, middle, listed
        top += 1


@kernel
def leave_out(
    forest: Any, begins: Any, slots: Any, known: Any, walk: Any, work: Any, examples: Any, scratch: Any, rules: Any,
    changes: Any
) -> None:  # fmt: skip
    """Add, for each group of rows, the changes of the votes of known rows in all trees without the group.

    ``begins``, shape (groups + 1,), are where the groups begin in ``slots``; ``changes`` has shape (groups, m, K or 2).
    O(depth P S) for each row and tree, and what is counted again or built, of which parts without known rows are not.
    """
    first, by_tree, gone, k = walk.first, walk.by_tree, walk.gone, examples.member.shape[1]
    for group in range(len(begins) - 1):
        begin, end = np.int64(begins[group]), np.int64(begins[group + 1])
        for tree in range(len(first)):
            first[tree] = 0
        for i in range(begin, end):
            walk.is_gone[slots[i]] = True
            for m in range(k):
                tree = np.int64(examples.member[slots[i], m]) - forest.first
                if 0 <= tree < len(forest.roots):
                    first[tree + 2] += 1
        for tree in range(2, len(first)):
            first[tree] += first[tree - 1]
        for i in range(begin, end):
            for m in range(k):
                tree = np.int64(examples.member[slots[i], m]) - forest.first
                if 0 <= tree < len(forest.roots):
                    by_tree[first[tree + 1]] = slots[i]
                    first[tree + 1] += 1
        for tree in range(len(forest.roots)):
            n = first[tree + 1] - first[tree]
            for i in range(n):
                gone[i] = by_tree[first[tree] + i]
            if n > 0:
                _leave_out(forest, tree, n, known, walk, work, examples, scratch, rules, changes[group])
        for i in range(begin, end):
            walk.is_gone[slots[i]] = False


# Room for the kernels, and groups of rows in tasks of threads.


def known_rows(pool: TreePool, X: Floats, categorical: Bools, k: int) -> KnownRows:
    """Return where rows, shape (m, d), are in the trees of a pool, which are built. O(nodes + rows + trees m depth)."""
    forest, m = pool.forest, len(X)
    trees, nodes = len(forest.roots), len(forest.nodes)
    order, place, leaf = (np.empty((trees, m), dtype=np.int32) for _ in range(3))
    held = int(forest.nodes["n"][forest.roots].sum())
    begins, ends, slots, firsts = (empty(n, np.int32) for n in (nodes, nodes, held, nodes))
    known = KnownRows(X, order, place, leaf, begins, ends, slots, firsts)
    sort_known(forest, known, categorical, k, np.empty(m, dtype=np.int32))
    return known


def _walk(rules: ForestRules, slots: int, trees: int, known: int, gone: int, copies: int, votes: int) -> TreeWalk:
    """Return scratch for so many slots, trees, known rows, rows of a group, trees of a row, and votes of a row."""
    depth = rules.max_depth + 3

    def ints(n: int) -> Int32s:
        return np.empty(n, dtype=np.int32)

    node, gone_begin, gone_end, begin, end, below, above = (ints(2 * depth) for _ in range(7))
    return TreeWalk(
        node=node,
        gone_begin=gone_begin,
        gone_end=gone_end,
        begin=begin,
        end=end,
        listed=np.empty(2 * depth, dtype=np.bool_),
        gone=ints(gone),
        rows=ints(known),
        other=ints(max(known, gone)),
        below=below,
        above=above,
        is_gone=np.zeros(slots, dtype=np.bool_),
        first=np.empty(trees + 2, dtype=np.int64),
        by_tree=ints(gone * copies),
        old=np.empty(votes, dtype=np.int64),
        new=np.empty(votes, dtype=np.int64),
    )


def _workspace(forest: ForestArrays, rules: ForestRules, rows: int) -> ForestArrays:
    """Return one tree with room for the nodes that are at hand while so many rows are built."""
    work = new_forest(np.zeros(1, dtype=np.uint64), rules, forest.totals.shape[1], forest.blocks.skipped.shape[1])
    work = with_room(work, rules.max_depth + 3)
    return work._replace(members=np.zeros(rows, dtype=MEMBER), order=forest.order)


class ForestKnown:
    """Predictions of rows by the trees of all shards in the process, with and without examples.

    ``X`` has shape (m, d); no tree has an open leaf. Of classes ``order`` has the codes in ascending order of their
    labels. Numeric labels have a ``scale`` instead: without examples that decide its unit all trees are others, and
    such groups are untold.
    """

    def __init__(self, store: ForestStore, X: Floats, n_classes: int, order: Ints, scale: LabelScale | None) -> None:
        self._store, self._trees, self._X = store, store.parts, np.ascontiguousarray(X, dtype=np.float64)
        self._n_classes, self._order, self._scale = n_classes, order, scale
        #: With all examples, shape (m, K), or (m, 2) of numbers.
        self.votes: Ints = merged_votes([part.votes(self._X) for part in self._trees])
        self.predicted, self.shares = self._predictions(self.votes)
        pools = [(pool, part.examples) for part in self._trees for pool in part.pools]
        self._known = run(
            [partial(known_rows, pool, self._X, rows.categorical, rows.member.shape[1]) for pool, rows in pools]
        )
        #: Scratch that no thread uses: the rows of a group that it has room for, and what each shard's trees take.
        self._rooms: list[tuple[int, list[tuple[TreeWalk, ForestArrays, ForestScratch]]]] = []

    def _predictions(self, votes: Ints) -> tuple[Targets, Floats]:
        return predictions_of(votes, self._n_classes, self._order, None if self._scale is None else self._scale.scale)

    def without(self, begins: Ints, slots: Slots) -> Iterator[PredictionsWithout]:
        """Yield what changes without groups of examples, some groups at a time. Memory: ``MOST_CHANGES`` a thread."""
        rescaled = self._rescaled(begins, slots)
        for first, changes in self._changes(begins, slots):
            group, row = np.nonzero(changes.any(axis=2))
            changed = self._predictions(self.votes[row] + changes[group, row])
            here = (first <= rescaled) & (rescaled < first + len(changes))
            yield PredictionsWithout(first + group, row, *changed, rescaled[here])

    def _rescaled(self, begins: Ints, slots: Slots) -> Ints:
        """Return the groups without which numeric labels would be counted in another unit."""
        found: list[int] = []
        if self._scale is None:
            return np.empty(0, dtype=np.int64)
        scale, former = copy.deepcopy(self._scale), self._scale.scale
        for group, (begin, end) in enumerate(pairwise(begins.tolist())):
            labels, weights = self._store.y[slots[begin:end]], self._store.weights(slots[begin:end])
            scale.follow(np.full(end - begin, REMOVE, dtype=np.int32), labels, weights)
            if scale.scale != former:
                found.append(group)
            scale.follow(np.full(end - begin, ADD, dtype=np.int32), labels, weights)
        return np.array(found, dtype=np.int64)

    def _changes(self, begins: Ints, slots: Slots) -> Iterator[tuple[int, Ints]]:
        """Yield the number of the first of some groups, and how votes change, (groups, m, K or 2)."""
        groups, largest = len(begins) - 1, int(np.diff(begins).max(initial=0))
        each = max(1, min(MOST_GROUPS, MOST_CHANGES // max(1, self.votes.size), -(-groups // threads())))
        starts = range(0, groups, each)
        for first in range(0, len(starts), threads()):
            some = starts[first : first + threads()]
            tasks = [partial(self._of_groups, begins[at : at + each + 1], slots, largest) for at in some]
            yield from zip(some, run(tasks), strict=True)

    def _of_groups(self, begins: Ints, slots: Slots, largest: int) -> Ints:
        changes, known = np.zeros((len(begins) - 1, *self.votes.shape), dtype=np.int64), iter(self._known)
        room = self._room(largest)
        for part, (walk, work, scratch) in zip(self._trees, room[1], strict=True):
            for pool in part.pools:
                own = walk._replace(first=walk.first[: len(pool.forest.roots) + 2])
                more = own, work, part.examples, scratch, part.rules
                leave_out(pool.forest, begins, slots, next(known), *more, changes)
        self._rooms.append(room)
        return changes

    def _room(self, largest: int) -> tuple[int, list[tuple[TreeWalk, ForestArrays, ForestScratch]]]:
        """Return scratch for groups of so many rows, for one thread."""
        with suppress(IndexError):  # other threads took the last
            if (room := self._rooms.pop())[0] >= largest:
                return room
        rooms = []
        for part in self._trees:
            pools, rules = part.pools, part.rules
            rows = max(int(most_rows(pool.forest)) for pool in pools) + 1
            trees, sizes = max(len(pool.forest.roots) for pool in pools), (largest, part.options.copies)
            walk = _walk(rules, len(part.examples.y), trees, len(self._X), *sizes, self.votes.shape[1])
            scratch = new_scratch(rows, part.width, rules, part.examples.categorical)
            rooms.append((walk, _workspace(pools[0].forest, rules, rows), scratch))
        return largest, rooms
