"""A shard's half of growing trees: leaves are opened, searched and split, one after the other or many in a round.

A *job* grows one tree from some open leaves (its roots). It always splits the leaf whose best split gains most (the one
opened first among equals), until the tree may gain no more leaves or no open leaf can be split.

Invariant: the histogram of an open leaf lies in the pool. When the leaf is split, the histogram of the smaller child is
summed up from its rows, and the parent's, less that one, becomes the larger child's: exactly, since sums are integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import is_one
from raydt.learners.gbdt.candidates import Candidates, row_of
from raydt.learners.gbdt.histograms import Codes, add_rows
from raydt.learners.gbdt.split_search import CUT, FEATURE, FIELDS, LEAST_GAIN, LEFT_G, LEFT_H, Units, scan

#: A split that a job has made: its node, children and the number of its histogram in the tree, and the sums of its left
#: side. The feature is a shard's own number where that shard grows alone, and the global one in messages.
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
    """Trees to grow, and from which roots: the request ``grow``.

    Attributes
    ----------
    tree, iteration, budget, room : ndarray of int64, shape (jobs,)
        The tree, its iteration, how many leaves it may gain, and how many leaves shards may split, those that are
        split ahead too.
    first_root : ndarray of int64, shape (jobs + 1,)
        Number of the first root of each job.
    root : ndarray of int64, shape (roots,)
        Their nodes, in preorder.
    histogram : ndarray of int64, shape (roots,)
        Number of the histogram that the tree still has of a root (it was an inner node), -1 if none.
    begin, end : ndarray of int64, shape (roots,)
        The rows of each root, among those of the request.
    totals : ndarray of int64, shape (roots, 2)
        G and H.
    free_nodes : ndarray of int16, shape (jobs, nodes of a tree)
        Nodes to use for children, in this order.
    free_histograms : ndarray of int16, shape (jobs, inner nodes of a tree)
        Numbers to use for histograms, in this order.
    """

    tree: npt.NDArray[np.int64]
    iteration: npt.NDArray[np.int64]
    budget: npt.NDArray[np.int64]
    room: npt.NDArray[np.int64]
    first_root: npt.NDArray[np.int64]
    root: npt.NDArray[np.int64]
    histogram: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]
    free_nodes: npt.NDArray[np.int16]
    free_histograms: npt.NDArray[np.int16]


class JobRows(NamedTuple):
    """The rows of all jobs.

    Attributes
    ----------
    slots, g : ndarray of int32, shape (rows,)
    order : ndarray of int32, shape (rows,)
        Row numbers, leaf after leaf.
    spare : ndarray of int32, shape (rows,)
        Scratch.
    squared : bool
        Whether every second derivative is 1.
    """

    slots: npt.NDArray[np.int32]
    g: npt.NDArray[np.int32]
    order: npt.NDArray[np.int32]
    spare: npt.NDArray[np.int32]
    squared: bool


#: A leaf that was opened: its node, where it is known; its left child, the right one being the next (-1: not split);
#: its rows ``order[begin:end]`` and their sums; the gain of its best split, 0 if there is none or the leaf is split;
#: and the number in the pool of its histogram, or of that of its larger child.
OPEN_LEAF = np.dtype(
    [
        ("node", np.int64),
        ("left", np.int64),
        ("begin", np.int64),
        ("end", np.int64),
        ("G", np.int64),
        ("H", np.int64),
        ("gain", np.float64),
        ("histogram", np.int64),
    ]
)


class Leaves(NamedTuple):
    """Leaves that were opened, job after job; those of one job in the order in which they were opened.

    Attributes
    ----------
    first : ndarray of int64, shape (jobs + 1,)
        Number of the first leaf of each job.
    opened, pooled : ndarray of int64, shape (jobs,)
        Leaves that a job has opened, and histograms of the pool that it uses.
    leaf : ndarray of OPEN_LEAF, shape (leaves,)
    found : ndarray of int64, shape (leaves, FIELDS)
        The best split of each leaf.
    """

    first: npt.NDArray[np.int64]
    opened: npt.NDArray[np.int64]
    pooled: npt.NDArray[np.int64]
    leaf: npt.NDArray[np.void]
    found: npt.NDArray[np.int64]


def new_leaves(roots_of_job: npt.NDArray[np.int64], room: npt.NDArray[np.int64]) -> Leaves:
    """Room for the roots of each job and the children of ``room`` leaves."""
    first = np.concatenate([[0], np.cumsum(roots_of_job + 2 * room)]).astype(np.int64)
    jobs = len(roots_of_job)
    leaf = np.zeros(int(first[-1]), dtype=OPEN_LEAF)
    leaf["left"] = -1
    opened, pooled = np.zeros(jobs, dtype=np.int64), np.zeros(jobs, dtype=np.int64)
    return Leaves(first, opened, pooled, leaf, np.zeros((len(leaf), FIELDS), dtype=np.int64))


class Growth(NamedTuple):
    """All that a shard needs to grow the trees of one request.

    ``pool``, shape (histograms, C + 1, 2), has the histograms of open leaves, those of a job from ``pool_first``, shape
    (jobs,), on.
    """

    jobs: Jobs
    leaves: Leaves
    rows: JobRows
    codes: Codes
    candidates: Candidates
    units: Units
    pool: npt.NDArray[np.int64]
    pool_first: npt.NDArray[np.int64]


@inner_kernel
def sides_of(growth: Any, e: int, on_left: Any) -> None:
    """Which of the rows of an open leaf its best split sends to the left, in the order of its rows. O(its rows)."""
    leaves, rows, codes, candidates = growth.leaves, growth.rows, growth.codes, growth.candidates
    j, cut = leaves.found[e, FEATURE], leaves.found[e, CUT]
    order = rows.order[leaves.leaf[e].begin : leaves.leaf[e].end]
    if j < len(codes.columns):
        column = codes.columns[j]
        if candidates.categorical[j]:
            for i in range(len(order)):
                on_left[i] = column[np.uint32(rows.slots[np.uint32(order[i])])] == cut
        else:
            for i in range(len(order)):
                on_left[i] = column[np.uint32(rows.slots[np.uint32(order[i])])] <= cut
        return
    one = candidates.offsets[j] + 1  # of a sparse feature: its rows without this entry go left
    for i in range(len(order)):
        slot = rows.slots[order[i]]
        on_left[i] = not is_one(codes.values, codes.begin[slot], codes.end[slot], one)


@inner_kernel
def _search(growth: Any, job: int, e: int) -> None:
    """Find the best split of an open leaf."""
    leaf, candidates = growth.leaves.leaf[e], growth.candidates
    sums, row = growth.pool[leaf.histogram], row_of(candidates, growth.jobs.iteration[job])
    _, leaf.gain = scan(sums, leaf.G, leaf.H, candidates, row, growth.units, LEAST_GAIN, 0, growth.leaves.found[e])


@inner_kernel
def _new_histogram(growth: Any, job: int) -> int:
    """Take the next histogram of the pool, all 0."""
    h = growth.pool_first[job] + growth.leaves.pooled[job]
    growth.leaves.pooled[job] += 1
    growth.pool[h] = 0
    return int(h)


@inner_kernel
def _sum_up(growth: Any, job: int, e: int) -> None:
    """Add the rows of a leaf to its histogram."""
    leaf, candidates = growth.leaves.leaf[e], growth.candidates
    segment = candidates.segment[row_of(candidates, growth.jobs.iteration[job])]
    add_rows(growth.rows, leaf.begin, leaf.end, growth.codes, segment, growth.pool[leaf.histogram])


@inner_kernel
def copy_sums(sums: Any, into: Any) -> None:
    """Copy a histogram."""
    for s in range(len(sums)):
        into[s, 0] = sums[s, 0]
        into[s, 1] = sums[s, 1]


@inner_kernel
def open_roots(growth: Any, job: int, sums: Any) -> None:
    """Open the roots of one job, before any histogram in ``sums`` is used for another node."""
    jobs, leaves = growth.jobs, growth.leaves
    leaves.pooled[job] = 0
    for r in range(jobs.first_root[job], jobs.first_root[job + 1]):
        e = leaves.first[job] + leaves.opened[job]
        leaf = leaves.leaf[e]
        leaf.node, leaf.begin, leaf.end = jobs.root[r], jobs.begin[r], jobs.end[r]
        leaf.G, leaf.H = jobs.totals[r, 0], jobs.totals[r, 1]
        leaf.histogram = _new_histogram(growth, job)
        if jobs.histogram[r] >= 0:
            copy_sums(sums[jobs.tree[job], jobs.histogram[r]], growth.pool[leaf.histogram])
        else:
            _sum_up(growth, job, e)
        _search(growth, job, e)
        leaves.opened[job] += 1


@inner_kernel
def best_leaf(leaves: Any, job: int) -> int:
    """The open leaf to split next, -1 if none can be."""
    best, gain = -1, 0.0
    for e in range(leaves.first[job], leaves.first[job] + leaves.opened[job]):
        if leaves.leaf[e].gain > gain:
            best, gain = e, leaves.leaf[e].gain
    return best


@inner_kernel
def split_leaf(growth: Any, job: int, e: int, on_left: Any, left_G: int, left_H: int) -> int:
    """Split an open leaf and open its children; returns the left one, the right one is the next.

    ``on_left``, bool, says of the rows of the leaf, in their order, which go left. The children have no histograms and
    best splits before :func:`search_children`.
    """
    leaves, rows = growth.leaves, growth.rows
    leaf = leaves.leaf[e]
    begin, end = leaf.begin, leaf.end
    n_left, n_right = 0, 0
    for i in range(begin, end):
        row, left_side = rows.order[i], on_left[i - begin]
        rows.order[begin + n_left] = row  # no branch: the side of a row cannot be predicted
        rows.spare[n_right] = row
        n_left += left_side
        n_right += not left_side
    middle = begin + n_left
    for i in range(n_right):
        rows.order[middle + i] = rows.spare[i]
    a = leaves.first[job] + leaves.opened[job]
    leaves.opened[job] += 2
    leaf.gain, leaf.left = 0.0, a
    left, right = leaves.leaf[a], leaves.leaf[a + 1]
    left.begin, left.end, left.G, left.H, left.gain = begin, middle, left_G, left_H, 0.0
    right.begin, right.end, right.G, right.H, right.gain = middle, end, leaf.G - left_G, leaf.H - left_H, 0.0
    return int(a)


@inner_kernel
def search_children(growth: Any, job: int, e: int) -> None:
    """Find the best splits of the children of a leaf that was split, which overwrites the leaf's histogram."""
    leaf = growth.leaves.leaf
    a = leaf[e].left
    b = a + 1
    small, large = (a, b) if leaf[a].end - leaf[a].begin <= leaf[b].end - leaf[b].begin else (b, a)
    leaf[large].histogram = leaf[e].histogram
    leaf[small].histogram = _new_histogram(growth, job)
    _sum_up(growth, job, small)
    little, much = growth.pool[leaf[small].histogram], growth.pool[leaf[large].histogram]
    for s in range(len(little)):
        much[s, 0] -= little[s, 0]
        much[s, 1] -= little[s, 1]
    _search(growth, job, a)
    _search(growth, job, b)


@inner_kernel
def put_split(nodes: Any, tree: int, split: Any) -> None:
    """Make a leaf of a tree an inner node, by a ``SPLIT``."""
    nodes.histogram[tree, split.node] = split.histogram
    nodes.parent[tree, split.left] = nodes.parent[tree, split.right] = split.node
    nodes.histogram[tree, split.left] = nodes.histogram[tree, split.right] = -1


@kernel
def grow_alone(growth: Any, nodes: Any, on_left: Any, splits: Any, leaf_of: Any) -> int:
    """Grow the trees of all jobs where one shard owns every feature; returns how many splits were made.

    ``splits`` takes them (``SPLIT``), ``leaf_of``, int16, shape (rows,), the node of each row; ``on_left``, bool, shape
    (rows,), is scratch.
    """
    jobs, leaves, order = growth.jobs, growth.leaves, growth.rows.order
    made = 0
    for job in range(len(jobs.tree)):
        tree = jobs.tree[job]
        open_roots(growth, job, nodes.sums)
        added = 0
        while added < jobs.budget[job]:
            e = best_leaf(leaves, job)
            if e < 0:
                break
            sides_of(growth, e, on_left)
            split = splits[made]
            split.job, split.node = job, leaves.leaf[e].node
            split.left, split.right = jobs.free_nodes[job, 2 * added], jobs.free_nodes[job, 2 * added + 1]
            split.histogram = jobs.free_histograms[job, added]
            split.feature, split.cut = leaves.found[e, FEATURE], leaves.found[e, CUT]
            split.left_G, split.left_H = leaves.found[e, LEFT_G], leaves.found[e, LEFT_H]
            made += 1
            added += 1
            put_split(nodes, tree, split)
            copy_sums(growth.pool[leaves.leaf[e].histogram], nodes.sums[tree, split.histogram])
            a = split_leaf(growth, job, e, on_left, split.left_G, split.left_H)
            leaves.leaf[a].node, leaves.leaf[a + 1].node = split.left, split.right
            if added < jobs.budget[job]:
                search_children(growth, job, e)
        for e in range(leaves.first[job], leaves.first[job] + leaves.opened[job]):
            leaf = leaves.leaf[e]
            if leaf.left < 0:
                for i in range(leaf.begin, leaf.end):
                    leaf_of[order[i]] = leaf.node
    return made
