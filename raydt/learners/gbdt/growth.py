"""A shard's half of growing trees: leaves are opened, searched and split, many in a round of the coordinator.

A *job* grows one tree from some open leaves (its roots). It always splits the leaf whose best split gains most (the one
opened first among equals), until the tree may gain no more leaves or no open leaf can be split; the coordinator decides
which one that is (``leafwise``).

Invariant: a split, made or ahead, changes the leaves of the request only. The trees are changed at the end, by the
splits that the coordinator has made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import is_one
from raydt.learners.gbdt.binned_rows import Places, no_places
from raydt.learners.gbdt.candidates import row_of
from raydt.learners.gbdt.leaf_search import OPEN_LEAF, copy_sums, search, sum_up_leaf
from raydt.learners.gbdt.split_search import CUT, FEATURE, FIELDS

#: A split that a job has made: its node, children and the number of its histogram in the tree, and the sums of its left
#: side.
SPLIT = np.dtype(
    [
        ("job", np.int32),
        ("node", np.int16),
        ("left", np.int16),
        ("right", np.int16),
        ("histogram", np.int16),
        ("feature", np.int32),
        ("cut", np.int32),
        ("left_G", np.int64),
        ("left_H", np.int64),
    ]
)


class Jobs(NamedTuple):
    """Trees to grow, and from which roots: the request ``grow``."""

    #: ``tree``, ``iteration``, ``budget``, ``room``: Shape (jobs,): the tree, its iteration, how many leaves it may
    #: gain, and how many leaves shards may split, those that are split ahead too.
    tree: npt.NDArray[np.int64]
    iteration: npt.NDArray[np.int64]
    budget: npt.NDArray[np.int64]
    room: npt.NDArray[np.int64]
    first_root: npt.NDArray[np.int64]  #: Shape (jobs + 1,): number of the first root of each job.
    root: npt.NDArray[np.int64]  #: Shape (roots,): their nodes, in preorder.
    #: Shape (roots,): number of the histogram that the tree still has of a root (it was an inner node), -1 if none.
    histogram: npt.NDArray[np.int64]
    #: ``begin``, ``end``: Shape (roots,): the rows of each root, among those of the request.
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]  #: Shape (roots, 2): g and H.
    free_nodes: npt.NDArray[np.int16]  #: Shape (jobs, nodes of a tree): nodes to use for children, in this order.
    #: Shape (jobs, inner nodes of a tree): numbers to use for histograms, in this order.
    free_histograms: npt.NDArray[np.int16]


#: A leaf to split: its job, its number, and the sums of its left side.
STEP = np.dtype([("job", np.int64), ("leaf", np.int64), ("left_G", np.int64), ("left_H", np.int64)])


class Growth(NamedTuple):
    """A request to grow, and the leaves opened for it: job after job, those of one job in the order of opening."""

    jobs: Jobs
    slots: npt.NDArray[np.int32]  #: ``slots``, ``g``: Shape (rows,): rows leaf after leaf, and their first derivatives.
    g: npt.NDArray[np.int32]
    spare_slots: npt.NDArray[np.int32]  #: ``spare_slots``, ``spare_g``: Shape (rows,): scratch.
    spare_g: npt.NDArray[np.int32]
    squared: bool  #: Whether every second derivative is 1.
    first: npt.NDArray[np.int64]  #: Shape (jobs + 1,): number of the first leaf of each job.
    #: ``opened``, ``pooled``: Shape (jobs,): leaves that a job has opened, and histograms of the pool that it uses.
    opened: npt.NDArray[np.int64]
    pooled: npt.NDArray[np.int64]
    leaf: npt.NDArray[np.void]  #: Shape (leaves,).
    found: npt.NDArray[np.int64]  #: Shape (leaves, FIELDS): the best split of each leaf.
    best: npt.NDArray[np.float64]  #: Shape (1,): scratch: the gain of one.
    pool: npt.NDArray[np.int64]  #: Shape (histograms, S + 1, 2).
    pool_first: npt.NDArray[np.int64]  #: Shape (jobs,): first histogram of each job.
    places: Places  #: Of no rows: what is looked up would serve one tree only.


def new_growth(
    jobs: Jobs, slots: npt.NDArray[np.int32], g: npt.NDArray[np.int32], squared: bool, segments: int
) -> Growth:
    """Room for the roots of each job and the children of ``jobs.room`` leaves, over histograms of ``segments``."""
    roots, n = np.diff(jobs.first_root), len(slots)
    first = np.concatenate([[0], np.cumsum(roots + 2 * jobs.room)]).astype(np.int64)
    histograms = roots + jobs.room
    leaf = np.zeros(int(first[-1]), dtype=OPEN_LEAF)
    leaf["left"] = -1
    opened, pooled = (np.zeros(len(roots), dtype=np.int64) for _ in range(2))
    return Growth(
        jobs,
        *(np.array(slots), np.array(g), np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)),
        squared,
        *(first, opened, pooled),
        leaf,
        np.full((len(leaf), FIELDS), -1),
        np.empty(1),
        np.empty((int(histograms.sum()), segments + 1, 2), dtype=np.int64),
        np.cumsum(histograms) - histograms,
        no_places(segments),
    )


@inner_kernel
def _new_histogram(growth: Any, job: int) -> int:
    """Take the next histogram of the pool."""
    h = growth.pool_first[job] + growth.pooled[job]
    growth.pooled[job] += 1
    return int(h)


@kernel
def open_roots(growth: Any, local: Any) -> None:
    """Open the roots of all jobs."""
    jobs = growth.jobs
    for job in range(len(jobs.tree)):
        row = row_of(local.candidates, jobs.iteration[job])
        for r in range(jobs.first_root[job], jobs.first_root[job + 1]):
            e = growth.first[job] + growth.opened[job]
            leaf = growth.leaf[e]
            leaf.node, leaf.begin, leaf.end = jobs.root[r], jobs.begin[r], jobs.end[r]
            leaf.G, leaf.H = jobs.totals[r, 0], jobs.totals[r, 1]
            leaf.histogram = _new_histogram(growth, job)
            if jobs.histogram[r] >= 0:
                copy_sums(local.sums[jobs.tree[job], jobs.histogram[r]], growth.pool[leaf.histogram])
            else:
                sum_up_leaf(local, row, growth, e, growth.squared)
            search(local, row, growth, e)
            growth.opened[job] += 1


@inner_kernel
def _part(growth: Any, begin: int, end: int, on_left: Any) -> int:
    """Part the rows of a leaf; ``on_left`` has a bit for each. Returns where those on the right begin."""
    slots, g, spare_slots, spare_g = growth.slots, growth.g, growth.spare_slots, growth.spare_g
    n_left, n_right = np.uint64(begin), np.uint64(0)
    one = np.uint64(1)
    for i in range(np.uint64(end - begin)):
        slot, of_slot = slots[np.uint64(begin) + i], g[np.uint64(begin) + i]
        left = (np.uint64(on_left[i >> np.uint64(3)]) >> (i & np.uint64(7))) & one
        slots[n_left], g[n_left] = slot, of_slot  # no branch: the side of a row cannot be predicted
        spare_slots[n_right], spare_g[n_right] = slot, of_slot
        n_left += left
        n_right += one - left
    for i in range(n_right):
        slots[n_left + i], g[n_left + i] = spare_slots[i], spare_g[i]
    return int(n_left)


@kernel
def split_leaves(growth: Any, local: Any, steps: Any, on_left: Any, children: Any) -> None:
    """Split some open leaves (``STEP``); ``children``, shape (steps, 2), takes the left and right child of each.

    ``on_left``, uint8, has a bit for each row of these leaves, one leaf after the other, each from a new byte on. The
    histogram of a leaf is overwritten by that of its larger child. O(rows x features).
    """
    used = 0
    for i in range(len(steps)):
        job, e = steps[i].job, steps[i].leaf
        row = row_of(local.candidates, growth.jobs.iteration[job])
        leaf = growth.leaf[e]
        begin, end = leaf.begin, leaf.end
        middle = _part(growth, begin, end, on_left[used:])
        used += (end - begin + 7) >> 3
        a = growth.first[job] + growth.opened[job]
        b = a + 1
        growth.opened[job] += 2
        leaf.gain, leaf.left = 0.0, a
        left, right = growth.leaf[a], growth.leaf[b]
        left.begin, left.end, left.G, left.H = begin, middle, steps[i].left_G, steps[i].left_H
        right.begin, right.end, right.G, right.H = middle, end, leaf.G - left.G, leaf.H - left.H
        small, large = (a, b) if middle - begin <= end - middle else (b, a)
        growth.leaf[large].histogram = leaf.histogram
        growth.leaf[small].histogram = _new_histogram(growth, job)
        sum_up_leaf(local, row, growth, small, growth.squared)
        _subtract(growth.pool[leaf.histogram], growth.pool[growth.leaf[small].histogram])
        search(local, row, growth, a)
        search(local, row, growth, b)
        children[i, 0], children[i, 1] = a, b


@kernel
def part_rows(growth: Any, which: Any, on_left: Any) -> None:
    """Part the rows of some leaves, as :func:`split_leaves` does, but open no children."""
    used = 0
    for e in which:
        begin, end = growth.leaf[e].begin, growth.leaf[e].end
        _part(growth, begin, end, on_left[used:])
        used += (end - begin + 7) >> 3


@inner_kernel
def _subtract(sums: Any, less: Any) -> None:
    """Subtract a histogram from another one."""
    for s in range(len(sums)):
        sums[s, 0] -= less[s, 0]
        sums[s, 1] -= less[s, 1]


@kernel
def sides(growth: Any, local: Any, which: Any, out: Any, left: Any) -> int:
    """Which rows of some leaves their best splits send to the left, as the bits that :func:`split_leaves` takes.

    ``out``, uint8, takes them of those leaves that have a split, ``left``, int64, shape (leaves,), how many there are;
    returns how many bytes are used.
    """
    cells, candidates = local.cells, local.candidates
    used = np.uint64(0)
    one, eight = np.uint64(1), np.uint64(8)
    for w in range(len(which)):
        leaf, j, cut = growth.leaf[which[w]], growth.found[which[w], FEATURE], growth.found[which[w], CUT]
        left[w] = 0
        if j < 0:
            continue
        slots = growth.slots[leaf.begin : leaf.end]
        n, n_left = np.uint64(len(slots)), np.uint64(0)
        dense, exact = j < len(cells.columns), candidates.categorical[j] != 0
        entry = candidates.offsets[j] + 1  # of a sparse feature: its rows without this entry go left
        for first in range(np.uint64(0), n, eight):
            bits = np.uint64(0)
            for i in range(first, min(first + eight, n)):
                slot = np.uint32(slots[i])
                if dense:
                    code = cells.columns[j, slot]
                    one_left = np.uint64(code == cut if exact else code <= cut)
                else:
                    one_left = np.uint64(not is_one(cells.values, cells.begin[slot], cells.end[slot], entry))
                bits |= one_left << (i - first)
                n_left += one_left
            out[used] = bits
            used += one
        left[w] = n_left
    return int(used)


@kernel
def keep_splits(growth: Any, local: Any, splits: Any, histogram: Any, parent: Any, of_node: Any) -> None:
    """Put the splits that were made (``SPLIT``) into the trees: ``parent`` and ``of_node``, shape (trees, nodes).

    ``histogram``, shape (leaves,), has the number of the histogram that the trees keep of a leaf, -1 for none. That
    of a leaf that was split is the sum of its children's: the pool is rolled back to before each split.
    """
    jobs, pool = growth.jobs, growth.pool
    for i in range(len(splits)):
        split, tree = splits[i], jobs.tree[splits[i].job]
        of_node[tree, split.node] = split.histogram
        for child in (split.left, split.right):
            parent[tree, child], of_node[tree, child] = split.node, -1
    for job in range(len(jobs.tree)):
        first = growth.first[job]
        for e in range(first + growth.opened[job] - 1, first - 1, -1):
            leaf = growth.leaf[e]
            sums, left = pool[leaf.histogram], leaf.left
            if left >= 0:
                small = left if growth.leaf[left].histogram != leaf.histogram else left + 1
                less = pool[growth.leaf[small].histogram]
                for s in range(len(sums)):
                    sums[s, 0] += less[s, 0]
                    sums[s, 1] += less[s, 1]
            if histogram[e] >= 0:
                copy_sums(sums, local.sums[jobs.tree[job], histogram[e]])
