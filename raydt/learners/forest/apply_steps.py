"""The steps of a batch, in one compiled loop over neighbouring trees of a shard."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.learners.forest.build import open_path
from raydt.learners.forest.node_pool import has_room
from raydt.learners.forest.nodes import (
    DEPTH,
    NODES,
    NOWHERE,
    PATH,
    REBUILDS,
    REBUILT_DEPTH,
    REBUILT_NODES,
    REBUILT_ROWS,
    ROWS,
    SUBTREES,
)
from raydt.learners.forest.update_tree import change
from raydt.learners.forest.voting import vote
from raydt.learners.sequential import ADD, REMOVE

#: Why the loop stopped: all steps are taken, or there is no room in a pool or in scratch.
ENDED, ROOM = 0, 1


@inlined_kernel
def _may_build(forest: Any, tree: int, scratch: Any) -> bool:
    """Whether there is room to build a tree of one row more."""
    n = np.int64(forest.nodes[forest.roots[tree]].n) + 1
    enough: bool = len(scratch.slots) > n and has_room(forest, n)
    return enough


@inner_kernel
def _open_and_vote(forest: Any, examples: Any, scratch: Any, rules: Any, votes: Any) -> bool:
    """Add the votes for the row at hand, before which what it passes is built; False, and no votes, without room."""
    for tree in range(len(forest.roots)):
        if forest.shape[tree, 2] > 0:
            if not _may_build(forest, tree, scratch):
                return False
            open_path(forest, tree, examples, scratch, rules)
    vote(forest, scratch.row, examples, rules.numeric, votes)
    return True


@kernel
def look(forest: Any, X: Any, begin: int, examples: Any, scratch: Any, rules: Any, votes: Any) -> int:
    """Add the votes for the rows of ``X`` from ``begin`` on; where there is no room, or the number of rows."""
    for i in range(begin, len(X)):
        for j in range(X.shape[1]):
            scratch.row[j] = X[i, j]
        if not _open_and_vote(forest, examples, scratch, rules, votes[i]):
            return i
    return len(X)


@kernel
def advance(
    forest: Any, work: Any, begin: int, first: int, end: int, examples: Any, scratch: Any, rules: Any
) -> tuple[int, int, int]:
    """Take the steps from ``begin`` up to before ``end``; in the first begin at membership ``first`` (-1: the vote).

    Returns the step and membership at which it stopped, and why.
    """
    k, d, reg = examples.member.shape[1], examples.X.shape[1], forest.reg
    for i in range(begin, end):
        kind, slot = work.kind[i], np.int64(work.slot[i])
        if first < 0:
            if kind != REMOVE:
                for j in range(d):
                    scratch.row[j] = work.X[work.row[i], j]
            # The vote comes before any tree knows the row; where there was no room the step is taken up again here.
            at = np.int64(work.place[i])
            if at >= 0 and not _open_and_vote(forest, examples, scratch, rules, work.votes[at]):
                return i, first, ROOM
            work.done[i, DEPTH] = NOWHERE
            first = 0
        if kind != ADD and kind != REMOVE:
            first = -1
            continue
        for j in range(d):
            scratch.row[j] = examples.X[slot, j]
        by = 1 if kind == ADD else -1
        for m in range(first, k):
            tree = np.int64(examples.member[slot, m]) - forest.first
            if tree < 0 or tree >= len(forest.roots):
                continue
            # Asked before anything changes: a rebuild that ran out of room half-way could not be repeated.
            if not _may_build(forest, tree, scratch):
                return i, m, ROOM
            reg[REBUILDS] = reg[REBUILT_ROWS] = reg[REBUILT_NODES] = 0
            reg[REBUILT_DEPTH] = NOWHERE
            work.done[i, PATH] += change(forest, tree, slot, slot * k + m, by, examples, scratch, rules)
            if reg[REBUILDS]:
                work.done[i, SUBTREES] += reg[REBUILDS]
                work.done[i, ROWS] += reg[REBUILT_ROWS]
                work.done[i, NODES] += reg[REBUILT_NODES]
                work.done[i, DEPTH] = min(work.done[i, DEPTH], reg[REBUILT_DEPTH])
        first = -1
    return end, -1, ENDED
