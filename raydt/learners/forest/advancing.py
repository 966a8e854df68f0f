"""The steps of a batch, in one compiled loop over the trees of a shard."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.learners.forest.growing import change
from raydt.learners.forest.nodes import REBUILDS, REBUILT_DEPTH, REBUILT_NODES, REBUILT_ROWS, has_room
from raydt.learners.forest.voting import vote
from raydt.learners.sequential import ADD, REMOVE

#: Columns of what a step did: nodes counted, subtrees, rows and nodes rebuilt, depth of the topmost.
PATH, SUBTREES, ROWS, NODES, DEPTH = range(5)
#: The depth where nothing was rebuilt.
NOWHERE = 2**31 - 1
#: Why the loop stopped: no room in a pool or in scratch, or a tree has open leaves and votes.
ENDED, ROOM, CLOSED = 0, 1, 2


class Work(NamedTuple):
    """Steps, the rows they bring, and what comes of them.

    Attributes
    ----------
    kind, slot : ndarray of int32, shape (steps,)
    row : ndarray of int32, shape (steps,)
        Of ``X``; -1 of a REMOVE.
    place : ndarray of int32, shape (steps,)
        Row of ``votes``; -1 where none is wanted.
    X : ndarray of float64, shape (rows, d)
    votes : ndarray of int64, shape (predictions, K or 2)
    done : ndarray of int64, shape (steps, 5)
    """

    kind: npt.NDArray[np.int32]
    slot: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    place: npt.NDArray[np.int32]
    X: npt.NDArray[np.float64]
    votes: npt.NDArray[np.int64]
    done: npt.NDArray[np.int64]


@kernel
def advance(
    forest: Any, work: Any, begin: int, first: int, end: int, examples: Any, scratch: Any, rules: Any
) -> tuple[int, int, int]:
    """Take the steps from ``begin`` up to before ``end``; in the first begin at membership ``first`` (-1: the vote).

    Returns
    -------
    step, membership, why : int
        Where it stopped, and why.
    """
    k, d, reg = examples.member.shape[1], len(examples.X), forest.reg
    for i in range(begin, end):
        kind, slot = work.kind[i], np.int64(work.slot[i])
        if first < 0:
            if kind != REMOVE:
                for j in range(d):
                    scratch.row[j] = work.X[work.row[i], j]
            if work.place[i] >= 0:
                for tree in range(len(forest.roots)):
                    if forest.shape[tree, 2] > 0:
                        return i, first, CLOSED
                vote(forest, scratch.row, examples, rules.numeric, work.votes[work.place[i]])
            work.done[i, DEPTH] = NOWHERE
            first = 0
        if kind != ADD and kind != REMOVE:
            first = -1
            continue
        for j in range(d):
            scratch.row[j] = examples.X[j, slot]
        by = 1 if kind == ADD else -1
        for at in range(first, k):
            tree = np.int64(examples.member[slot, at])
            if tree < 0:
                continue
            n = np.int64(forest.nodes[forest.roots[tree]].n) + 1
            if len(scratch.slots) < n + 1 or not has_room(forest, n):
                return i, at, ROOM
            reg[REBUILDS] = reg[REBUILT_ROWS] = reg[REBUILT_NODES] = 0
            reg[REBUILT_DEPTH] = NOWHERE
            work.done[i, PATH] += change(forest, tree, slot, slot * k + at, by, examples, scratch, rules)
            if reg[REBUILDS]:
                work.done[i, SUBTREES] += reg[REBUILDS]
                work.done[i, ROWS] += reg[REBUILT_ROWS]
                work.done[i, NODES] += reg[REBUILT_NODES]
                work.done[i, DEPTH] = min(work.done[i, DEPTH], reg[REBUILT_DEPTH])
        first = -1
    return end, -1, ENDED
