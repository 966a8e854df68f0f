"""Leaf-wise growth of one tree, replayed by the coordinator on the answers of the shards.

The next leaf to split is always the one whose split gains most (the one opened first among equals). Only the shards
know the gains of its children, so leaves that may be split later are *split ahead*, in the same round: a leaf whose
children are known costs no round. An unknown child can only push known leaves back, so these leaves are found by
growing as if no unknown child could be split; with all of them together a tree costs as many rounds as it is deep.

Invariant: what was split ahead changes no result. Only :meth:`LeafwiseGrowth.advance` makes splits.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.learners.gbdt.growth import Jobs
from raydt.learners.gbdt.split_search import CUT, FEATURE, FIELDS, LEFT_G, LEFT_H, Units, gain_of


def split_ahead(budget: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many leaves shards may have split ahead of the coordinator, of trees that may gain ``budget`` leaves."""
    return budget


def room(budget: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many leaves shards may have to split of such trees; the children of the last split are never needed."""
    return np.where(budget > 1, budget - 1 + split_ahead(budget), 0)


class OpenLeaf:
    """A leaf that the shards have opened, or would open.

    Attributes
    ----------
    number : int
        Among the leaves of the request at the shards.
    begin, end : int
        Its rows, among those of the request in the order of leaves.
    G, H : int
    gain : float
        Of its best split, 0 if there is none.
    found : ndarray of int64
        That split.
    sides : ndarray of uint8
        Which of the rows it sends to the left, a bit each.
    left : int
        How many these are.
    children : tuple of OpenLeaf
        Empty unless the shards have split it, maybe ahead.
    node : int
        In the tree; -1 if it is not a leaf of it, or not any more.
    """

    __slots__ = ("G", "H", "begin", "children", "end", "found", "gain", "left", "node", "number", "sides")

    def __init__(self, number: int, begin: int, end: int, G: int, H: int, node: int = -1) -> None:
        self.number, self.begin, self.end, self.G, self.H, self.node = number, begin, end, G, H, node
        self.gain, self.left = 0.0, 0
        self.found = np.full(FIELDS, -1)
        self.sides = np.empty(0, dtype=np.uint8)
        self.children: tuple[OpenLeaf, ...] = ()

    def part(self, number: int) -> tuple[OpenLeaf, ...]:
        """The children by its best split, numbered from ``number`` on."""
        G, H = int(self.found[LEFT_G]), int(self.found[LEFT_H])
        middle = self.begin + self.left
        left = OpenLeaf(number, self.begin, middle, G, H)
        return left, OpenLeaf(number + 1, middle, self.end, self.G - G, self.H - H)


#: Open leaves, the next one to split first: by falling gain, then in the order in which they were opened.
Queue = list[tuple[float, int, OpenLeaf]]


class LeafwiseGrowth:
    """One tree that grows in rounds.

    Parameters
    ----------
    jobs : Jobs
    index : int
        Of the job of this tree.
    first : int
        Number of its first leaf at the shards.
    """

    def __init__(self, jobs: Jobs, index: int, first: int) -> None:
        self.index, self._budget = index, int(jobs.budget[index])
        self._ahead = int(split_ahead(jobs.budget[index : index + 1])[0])
        roots = range(jobs.first_root[index], jobs.first_root[index + 1])
        #: Leaves of the tree in the order in which they were opened, those that were split too.
        self.leaves = [
            OpenLeaf(
                first + i,
                int(jobs.begin[r]),
                int(jobs.end[r]),
                int(jobs.totals[r, 0]),
                int(jobs.totals[r, 1]),
                int(jobs.root[r]),
            )
            for i, r in enumerate(roots)
        ]
        self._number = first + len(self.leaves)
        self._queue: Queue = []
        self._queued = 0
        self._nodes = iter(jobs.free_nodes[index].tolist())
        self._histograms = iter(jobs.free_histograms[index].tolist())
        #: Fields of the splits made (``growth.SPLIT``), and which leaves were split, by number.
        self.splits: list[tuple[int, ...]] = []
        self.made: list[int] = []
        #: The leaf of the last split, whose rows the shards have not parted: its children are not searched.
        self.last: list[OpenLeaf] = []

    def advance(self) -> None:
        """Make all splits that are known: until the tree is grown, or the children of the next leaf are needed."""
        while True:
            for order in range(self._queued, len(self.leaves)):
                _push(self._queue, order, self.leaves[order])
            self._queued = len(self.leaves)
            if not self._budget or not self._queue or not (self._queue[0][-1].children or self._budget == 1):
                return
            self._split(heapq.heappop(self._queue)[-1])

    def _split(self, leaf: OpenLeaf) -> None:
        """Split a leaf of the tree."""
        left, right, found = next(self._nodes), next(self._nodes), leaf.found
        tree = self.index, leaf.node, left, right, next(self._histograms)
        self.splits.append((*tree, found[FEATURE], found[CUT], found[LEFT_G], found[LEFT_H]))
        self.made.append(leaf.number)
        self._budget -= 1
        self._ahead += len(leaf.children) > 0
        leaf.node = -1
        if not leaf.children:
            self.last.append(leaf)
        for child, node in zip(leaf.children or leaf.part(-1), (left, right), strict=True):
            child.node = node
            self.leaves.append(child)

    def open_next(self) -> list[OpenLeaf]:
        """Give children to the leaves that the shards are to split now, and return these, the most urgent one first."""
        queue, order, leaves = list(self._queue), len(self.leaves), []
        for _ in range(self._budget - 1):
            if not queue:
                break
            leaf = heapq.heappop(queue)[-1]
            if not leaf.children:
                leaves.append(leaf)
            for child in leaf.children:
                _push(queue, order, child)
                order += 1
        del leaves[1 + max(0, self._ahead) :]
        for leaf in leaves:
            leaf.children = leaf.part(self._number)
            self._number += 2
        self._ahead -= len(leaves)
        return leaves


def growths_of(jobs: Jobs) -> list[LeafwiseGrowth]:
    """The trees of a request; their leaves are numbered as in :func:`raydt.learners.gbdt.growth.new_growth`."""
    first = jobs.first_root[:-1] + 2 * (np.cumsum(jobs.room) - jobs.room)
    return [LeafwiseGrowth(jobs, index, int(number)) for index, number in enumerate(first)]


def _push(queue: Queue, order: int, leaf: OpenLeaf) -> None:
    if leaf.gain > 0:
        heapq.heappush(queue, (-leaf.gain, order, leaf))


def merge(opened: list[OpenLeaf], replies: list[Any], units: Units) -> None:
    """The best split of each opened leaf over all shards: largest gain, then the smaller feature."""
    found = np.stack([reply["found"] for reply in replies])
    totals = np.array([(leaf.G, leaf.H) for leaf in opened], dtype=np.int64)
    gain, winner = np.zeros(len(opened)), np.full(len(opened), -1)
    _best_of_shards(found, totals, units, gain, winner)
    ends = [np.cumsum(_bytes_of(opened, reply["found"])) for reply in replies]
    for i, leaf in enumerate(opened):
        shard = winner[i]
        if shard >= 0:
            reply, end = replies[shard], ends[shard]
            leaf.gain, leaf.found, leaf.left = float(gain[i]), found[shard, i], int(reply["left"][i])
            leaf.sides = reply["sides"][end[i - 1] if i else 0 : end[i]]


def _bytes_of(opened: list[OpenLeaf], found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many bytes the sides of each leaf take in an answer: none where the shard has no split."""
    rows = np.array([leaf.end - leaf.begin for leaf in opened], dtype=np.int64)
    return np.where(found[:, FEATURE] >= 0, (rows + 7) >> 3, 0)


@kernel
def _best_of_shards(found: Any, totals: Any, units: Any, gain: Any, winner: Any) -> None:
    """The largest gain of each leaf, and the shard whose split has it; unchanged where no shard has a split."""
    for shard in range(len(found)):
        for i in range(len(totals)):
            split = found[shard, i]
            if split[FEATURE] < 0:
                continue
            one = gain_of(split[LEFT_G], split[LEFT_H], totals[i, 0], totals[i, 1], units)
            if one > gain[i] or (one == gain[i] and split[FEATURE] < found[winner[i], i, FEATURE]):
                gain[i], winner[i] = one, shard
