"""The coordinator's half of growing trees: requests to grow from some roots, and the rounds with the shards.

The shards answer with the best split of each open leaf among their features, and the side of each of its rows. The
coordinator names the leaves to split next, maybe ahead (``leafwise``), in all trees of the request: one round for the
roots, one for each level of the deepest tree, and one that names the splits that were made. It passes on the sides of
rows as they are, and learns the leaf of each row at the end, so that it does no work for a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.exchange.messages import Ask, Exchange
from raydt.learners.gbdt.best_first import OpenLeaf, growths_of, merge, room
from raydt.learners.gbdt.growth import SPLIT, STEP, Jobs
from raydt.learners.gbdt.regrowth import Roots
from raydt.learners.gbdt.split_search import LEFT_G, LEFT_H, Units
from raydt.learners.gbdt.trees import FREE, LEAF, Rates, Trees, set_values

#: Memory that the sums of open leaves may take in one request, in numbers.
_LARGEST_POOL = 1 << 25


def _free(trees: Trees, which: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """Free nodes and free histogram numbers of some trees, ascending, -1 after the last."""
    width = trees.feature.shape[1]
    free_node = trees.feature[which] == FREE
    used = np.zeros((len(which), width // 2 + 1), dtype=np.bool_)
    np.put_along_axis(used, np.where(trees.feature[which] >= 0, trees.histogram[which], width // 2), True, axis=1)
    return _numbers(free_node), _numbers(~used[:, : width // 2])


def _numbers(marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.int16]:
    """Columns that are marked in each row, ascending, -1 after the last."""
    width = marked.shape[1]
    numbers = np.where(marked, np.arange(width), width)
    numbers.sort(axis=1)
    return np.where(numbers < width, numbers, -1).astype(np.int16)


class Grower:
    """Grows trees together with the shards.

    Parameters
    ----------
    trees : Trees
        Changed in place.
    units : Units
    rates : Rates
    per : int
        Trees of an iteration.
    candidates : int
        Candidates of an iteration, of all features.
    """

    def __init__(self, trees: Trees, units: Units, rates: Rates, per: int, candidates: int) -> None:
        self.trees, self.units, self.rates, self._per = trees, units, rates, per
        self._candidates = candidates
        self._most = trees.feature.shape[1] // 2 + 1
        self.rounds = 0

    def grow(self, roots: Roots, g: npt.NDArray[np.int32], leaf: npt.NDArray[Any]) -> Exchange[npt.NDArray[np.int64]]:
        """Grow trees from some roots.

        Parameters
        ----------
        roots : Roots
        g : ndarray of int32
            First derivatives of the rows ``roots.slots``.
        leaf : ndarray, shape (trees, capacity)
            Takes the leaves of these rows.

        Returns
        -------
        ndarray of int64, shape (roots,)
            How many splits each root led to.
        """
        splits = np.zeros(len(roots.tree), dtype=np.int64)
        which, first = np.unique(roots.tree, return_index=True)
        ends = np.append(first[1:], len(roots.tree))
        histograms = self._most + int(room(np.array([self._most]))[0])
        at_once = max(1, _LARGEST_POOL // (2 * histograms * (self._candidates + 1)))
        for begin in range(0, len(which), at_once):
            a, b = first[begin], ends[min(begin + at_once, len(which)) - 1]
            c, d = int(roots.begin[a]), int(roots.end[b - 1])
            ends_of = roots.begin[a:b] - c, roots.end[a:b] - c
            part = Roots(roots.tree[a:b], roots.node[a:b], roots.histogram[a:b], *ends_of, roots.slots[c:d])
            splits[a:b] = yield from self._grow(part, g[c:d], leaf)
        return splits

    def _grow(self, roots: Roots, g: npt.NDArray[np.int32], leaf: npt.NDArray[Any]) -> Exchange[npt.NDArray[np.int64]]:
        jobs = self._jobs(roots)
        splits = yield from self._rounds(jobs, roots.slots, g, leaf)
        made = np.zeros(len(roots.tree), dtype=np.int64)
        root_of = np.empty(self.trees.feature.shape[1], dtype=np.int64)
        _put(self.trees, jobs, splits, self.rates, root_of, made)
        return made

    def _jobs(self, roots: Roots) -> Jobs:
        """The request to grow from some roots."""
        which, first = np.unique(roots.tree, return_index=True)
        budget = self._most - self.trees.leaves[which].astype(np.int64)
        totals = np.stack([self.trees.G[roots.tree, roots.node], self.trees.H[roots.tree, roots.node]], axis=1)
        first_root = np.append(first, len(roots.tree))
        free = _free(self.trees, which)
        of_root = roots.node, roots.histogram, roots.begin, roots.end
        return Jobs(which, which // self._per, budget, room(budget), first_root, *of_root, totals, *free)

    def _rounds(
        self, jobs: Jobs, slots: npt.NDArray[np.int32], g: npt.NDArray[np.int32], leaf_of: npt.NDArray[Any]
    ) -> Exchange[npt.NDArray[np.void]]:
        """Grow the trees of all jobs; the splits made. ``leaf_of`` takes the leaves of the rows."""
        self.rounds += 1
        replies = yield Ask("grow", {"jobs": jobs, "slots": slots, "g": g})
        growths = growths_of(jobs)
        opened = [leaf for growth in growths for leaf in growth.leaves]
        while True:
            merge(opened, replies, self.units)
            for growth in growths:
                growth.advance()
            parted = [(growth.index, leaf) for growth in growths for leaf in growth.open_next()]
            if not parted:
                break
            opened = [child for _, leaf in parted for child in leaf.children]
            steps = [(index, leaf.number, leaf.found[LEFT_G], leaf.found[LEFT_H]) for index, leaf in parted]
            self.rounds += 1
            sides = _sides([leaf for _, leaf in parted])
            replies = yield Ask("split", {"steps": np.array(steps, dtype=STEP), "on_left": sides})
        splits = np.array([split for growth in growths for split in growth.splits], dtype=SPLIT)
        made = np.array([number for growth in growths for number in growth.made], dtype=np.int64)
        self.rounds += 1
        last = [leaf for growth in growths for leaf in growth.last]
        told = {
            "splits": splits,
            "leaves": made,
            "last": np.array([leaf.number for leaf in last], dtype=np.int64),
            "on_left": _sides(last),
        }
        # All shards have the same rows in each leaf, so that one of them tells.
        replies = yield Ask("end", told, [{"tells": shard == 0} for shard in range(len(replies))])
        for growth in growths:
            of_row = leaf_of[jobs.tree[growth.index]]
            for leaf in growth.leaves:
                if leaf.node >= 0:
                    of_row[replies[0][leaf.begin : leaf.end]] = leaf.node
        return splits


def _sides(leaves: list[OpenLeaf]) -> npt.NDArray[np.uint8]:
    """The sides of the rows of some leaves, one leaf after the other."""
    return np.concatenate([leaf.sides for leaf in leaves]) if leaves else np.empty(0, dtype=np.uint8)


@kernel
def _put(trees: Any, jobs: Any, splits: Any, rates: Any, root_of: Any, made: Any) -> None:
    """Put splits (``SPLIT``) into the trees, record the leaves that could not be split, and set the values.

    ``made``, shape (roots,), counts the splits of each root; ``root_of``, shape (nodes,), is scratch.
    """
    next_split = 0
    for job in range(len(jobs.tree)):
        t = jobs.tree[job]
        root_of[:] = -1
        for r in range(jobs.first_root[job], jobs.first_root[job + 1]):
            root_of[jobs.root[r]] = r
            trees.tried_h[t, jobs.root[r]] = -1
        count = 0
        while next_split < len(splits) and splits[next_split].job == job:
            split = splits[next_split]
            node, left, right = split.node, split.left, split.right
            trees.feature[t, node], trees.cut[t, node] = split.feature, split.cut
            trees.left[t, node], trees.right[t, node], trees.histogram[t, node] = left, right, split.histogram
            trees.G[t, left], trees.H[t, left] = split.left_G, split.left_H
            trees.G[t, right] = trees.G[t, node] - split.left_G
            trees.H[t, right] = trees.H[t, node] - split.left_H
            for child in (left, right):
                trees.feature[t, child], trees.parent[t, child] = LEAF, node
                trees.histogram[t, child] = trees.tried_h[t, child] = -1
                root_of[child] = root_of[node]
            made[root_of[node]] += 1
            trees.value[t, node] = 0.0
            count += 1
            next_split += 1
        trees.leaves[t] += count
        if count < jobs.budget[job]:
            for node in range(len(root_of)):
                if root_of[node] >= 0 and trees.feature[t, node] == LEAF:
                    trees.tried_g[t, node], trees.tried_h[t, node] = trees.G[t, node], trees.H[t, node]
        set_values(trees, t, rates)
