"""A shard's half of growing trees: leaves are opened, searched and split, one after the other or many in a round.

A *job* grows one tree from some open leaves (its roots), always at the leaf whose best split gains most (the one
opened first among equals), until the tree has no leaf left to give or no open leaf can be split.

Invariant: the sums of an open leaf lie in the pool. When it is split the smaller child is summed up from its rows, and
the larger one is what remains, exactly, since sums are integers; it takes the place of its parent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.gbdt.histograms import add_rows
from raydt.learners.gbdt.split_search import CUT, FEATURE, FIELDS, LEAST_GAIN, LEFT_G, LEFT_H, scan

#: Columns of the record of a split.
JOB, NODE, SPLIT_FEATURE, SPLIT_CUT, LEFT, RIGHT, PLACE, SPLIT_G, SPLIT_H, RECORD = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9


class Leaves(NamedTuple):
    """Leaves that were opened, job after job; those of one job in the order in which they were opened.

    ``first`` (jobs + 1): where those of a job begin; ``opened``: how many it has; ``node``, where it is known;
    ``left``: the left child, the right one being the next, -1 if the leaf is not split; ``begin`` and ``end`` of its
    rows in ``order``; ``G``, ``H``; ``gain`` of its best split, 0 if there is none or the leaf is split; ``found`` that
    split; ``pool``: where its sums lie, or those of its larger child; ``pooled``: places of it that a job has taken.
    """

    first: npt.NDArray[np.int64]
    opened: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    G: npt.NDArray[np.int64]
    H: npt.NDArray[np.int64]
    gain: npt.NDArray[np.float64]
    found: npt.NDArray[np.int64]
    pool: npt.NDArray[np.int64]
    pooled: npt.NDArray[np.int64]


def new_leaves(roots_of_job: npt.NDArray[np.int64], room: npt.NDArray[np.int64]) -> Leaves:
    """Room for the roots of each job and the children of so many leaves."""
    first = np.concatenate([[0], np.cumsum(roots_of_job + 2 * room)]).astype(np.int64)
    total, jobs = int(first[-1]), len(roots_of_job)
    node, begin, end, G, H, pool = (np.zeros(total, dtype=np.int64) for _ in range(6))
    opened, pooled = np.zeros(jobs, dtype=np.int64), np.zeros(jobs, dtype=np.int64)
    left, found = np.full(total, -1), np.zeros((total, FIELDS), dtype=np.int64)
    return Leaves(first, opened, node, left, begin, end, G, H, np.zeros(total), found, pool, pooled)


class JobRows(NamedTuple):
    """The rows of all jobs: ``slots`` and ``g``, and ``order``, the places of them by leaf (``spare`` is scratch)."""

    slots: npt.NDArray[np.int32]
    g: npt.NDArray[np.int32]
    order: npt.NDArray[np.int32]
    spare: npt.NDArray[np.int32]
    squared: bool


class Forest(NamedTuple):
    """What a shard knows of the trees: the parent of each node (-1: none), the place of the sums of each inner one."""

    parent: npt.NDArray[np.int16]
    place: npt.NDArray[np.int16]
    sums: npt.NDArray[np.int64]


class Jobs(NamedTuple):
    """Trees to grow, and where from.

    Attributes
    ----------
    tree, row, budget, room : ndarray of int64, shape (jobs,)
        The tree, the row of the candidates of its iteration, how many leaves it may gain, and how many may be split,
        those that are split ahead too.
    first_root : ndarray of int64, shape (jobs + 1,)
        Where the roots of each job begin.
    root : ndarray of int64, shape (roots,)
        Their nodes, in preorder.
    kept : ndarray of int64, shape (roots,)
        Where the tree still has the sums of a root (it was an inner node), -1 if nowhere.
    begin, end : ndarray of int64, shape (roots,)
        Which of the rows are theirs.
    totals : ndarray of int64, shape (roots, 2)
        G and H.
    free_nodes : ndarray of int16, shape (jobs, nodes of a tree)
        Nodes to use for children, in this order.
    free_places : ndarray of int16, shape (jobs, inner nodes of a tree)
        Places to use for sums, in this order.
    """

    tree: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    budget: npt.NDArray[np.int64]
    room: npt.NDArray[np.int64]
    first_root: npt.NDArray[np.int64]
    root: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]
    free_nodes: npt.NDArray[np.int16]
    free_places: npt.NDArray[np.int16]


class Codes(NamedTuple):
    """The rows of a shard as bins: ``begin``, ``end``, ``values`` as in :class:`raydt.arrays.ragged.RaggedRows`,
    without default bins; and ``columns``, the codes of the dense features by slot, for splitting."""

    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint32]
    columns: npt.NDArray[np.uint16]


@inner_kernel
def which_side(order: Any, slots: Any, codes: Any, c: Any, j: int, cut: int, on_left: Any) -> None:
    """Which of the rows at the places ``order`` are on the left of a cut of feature ``j``."""
    if j < len(codes.columns):
        column = codes.columns[j]
        if c.categorical[j]:
            for i in range(len(order)):
                on_left[i] = column[np.uint32(slots[np.uint32(order[i])])] == cut
        else:
            for i in range(len(order)):
                on_left[i] = column[np.uint32(slots[np.uint32(order[i])])] <= cut
        return
    one = c.offsets[j] + 1  # a sparse feature: on the left is what has no entry
    for i in range(len(order)):
        slot = slots[order[i]]
        low, high = codes.begin[slot], codes.end[slot]
        while low < high:
            middle = (low + high) >> 1
            if codes.values[middle] < one:
                low = middle + 1
            else:
                high = middle
        on_left[i] = not (low < codes.end[slot] and codes.values[low] == one)


@inner_kernel
def _look(leaves: Any, e: int, pool: Any, c: Any, row: int, units: Any) -> None:
    """Find the best split of an open leaf."""
    sums, G, H = pool[leaves.pool[e]], leaves.G[e], leaves.H[e]
    _, leaves.gain[e] = scan(sums, G, H, c, row, units, LEAST_GAIN, False, leaves.found[e])


@inner_kernel
def _new_sums(leaves: Any, job: int, pool: Any, pool_first: int) -> int:
    """A place of the pool, all 0."""
    at = pool_first + leaves.pooled[job]
    leaves.pooled[job] += 1
    pool[at] = 0
    return int(at)


@inner_kernel
def copy_sums(sums: Any, into: Any) -> None:
    """Copy the sums of a node."""
    for s in range(len(sums)):
        into[s, 0] = sums[s, 0]
        into[s, 1] = sums[s, 1]


@inner_kernel
def open_roots(
    jobs: Any, job: int, leaves: Any, rows: Any, codes: Any, c: Any, pool: Any, pool_first: int, units: Any, sums: Any
) -> None:
    """Open the roots of one job, before any place of ``sums`` is used for another node."""
    leaves.pooled[job] = 0
    row = jobs.row[job]
    for r in range(jobs.first_root[job], jobs.first_root[job + 1]):
        e = leaves.first[job] + leaves.opened[job]
        leaves.node[e], leaves.begin[e], leaves.end[e] = jobs.root[r], jobs.begin[r], jobs.end[r]
        leaves.G[e], leaves.H[e] = jobs.totals[r, 0], jobs.totals[r, 1]
        leaves.pool[e] = _new_sums(leaves, job, pool, pool_first)
        into = pool[leaves.pool[e]]
        if jobs.kept[r] >= 0:
            copy_sums(sums[jobs.tree[job], jobs.kept[r]], into)
        else:
            places = rows.order[jobs.begin[r] : jobs.end[r]]
            add_rows(places, rows.slots, rows.g, rows.squared, codes, c.segment[row], into)
        _look(leaves, e, pool, c, row, units)
        leaves.opened[job] += 1


@inner_kernel
def best_leaf(leaves: Any, job: int) -> int:
    """The open leaf to split next, -1 if none can be."""
    best, gain = -1, 0.0
    for e in range(leaves.first[job], leaves.first[job] + leaves.opened[job]):
        if leaves.gain[e] > gain:
            best, gain = e, leaves.gain[e]
    return best


@inner_kernel
def split_leaf(
    job: int,
    e: int,
    on_left: Any,
    left_G: int,
    left_H: int,
    search: bool,
    leaves: Any,
    rows: Any,
    codes: Any,
    c: Any,
    row: int,
    pool: Any,
    pool_first: int,
    units: Any,
) -> int:
    """Split an open leaf: ``on_left`` (by place in ``order`` from its first row) says which rows go left.

    The children are opened, and if ``search`` they are searched, which takes the sums of the leaf; returns the left
    one, the right one is the next.
    """
    begin, end = leaves.begin[e], leaves.end[e]
    n_left, n_right = 0, 0
    for i in range(begin, end):
        place, left_side = rows.order[i], on_left[i - begin]
        rows.order[begin + n_left] = place  # no branch: which side it is cannot be foretold
        rows.spare[n_right] = place
        n_left += left_side
        n_right += not left_side
    middle = begin + n_left
    for i in range(n_right):
        rows.order[middle + i] = rows.spare[i]
    a = leaves.first[job] + leaves.opened[job]
    b = a + 1
    leaves.opened[job] += 2
    leaves.gain[e], leaves.left[e] = 0.0, a
    leaves.begin[a], leaves.end[a], leaves.G[a], leaves.H[a] = begin, middle, left_G, left_H
    leaves.begin[b], leaves.end[b] = middle, end
    leaves.G[b], leaves.H[b] = leaves.G[e] - left_G, leaves.H[e] - left_H
    leaves.gain[a] = leaves.gain[b] = 0.0
    if not search:
        return int(a)
    small, large = (a, b) if n_left <= n_right else (b, a)
    leaves.pool[large] = leaves.pool[e]
    leaves.pool[small] = _new_sums(leaves, job, pool, pool_first)
    places = rows.order[leaves.begin[small] : leaves.end[small]]
    little = pool[leaves.pool[small]]
    add_rows(places, rows.slots, rows.g, rows.squared, codes, c.segment[row], little)
    much = pool[leaves.pool[large]]
    for s in range(len(little)):
        much[s, 0] -= little[s, 0]
        much[s, 1] -= little[s, 1]
    _look(leaves, a, pool, c, row, units)
    _look(leaves, b, pool, c, row, units)
    return int(a)


@inner_kernel
def put_node(forest: Any, tree: int, node: int, left: int, right: int, place: int) -> None:
    """Make a leaf of a tree an inner node."""
    forest.place[tree, node] = place
    forest.parent[tree, left] = forest.parent[tree, right] = node
    forest.place[tree, left] = forest.place[tree, right] = -1


@kernel
def grow_alone(
    jobs: Any,
    leaves: Any,
    rows: Any,
    codes: Any,
    c: Any,
    pool: Any,
    units: Any,
    forest: Any,
    on_left: Any,
    records: Any,
    leaf_of: Any,
) -> int:
    """Grow the trees of all jobs where one shard owns every feature; returns the number of splits recorded.

    ``leaf_of`` takes the node of each row.
    """
    n_records = 0
    for job in range(len(jobs.tree)):
        tree, row = jobs.tree[job], jobs.row[job]
        open_roots(jobs, job, leaves, rows, codes, c, pool, 0, units, forest.sums)
        added = 0
        while added < jobs.budget[job]:
            e = best_leaf(leaves, job)
            if e < 0:
                break
            j, cut = leaves.found[e, FEATURE], leaves.found[e, CUT]
            which_side(rows.order[leaves.begin[e] : leaves.end[e]], rows.slots, codes, c, j, cut, on_left)
            left, right = jobs.free_nodes[job, 2 * added], jobs.free_nodes[job, 2 * added + 1]
            place = jobs.free_places[job, added]
            record = records[n_records]
            record[JOB], record[NODE], record[SPLIT_FEATURE], record[SPLIT_CUT] = job, leaves.node[e], j, cut
            record[LEFT], record[RIGHT], record[PLACE] = left, right, place
            record[SPLIT_G], record[SPLIT_H] = leaves.found[e, LEFT_G], leaves.found[e, LEFT_H]
            n_records += 1
            added += 1
            put_node(forest, tree, leaves.node[e], left, right, place)
            copy_sums(pool[leaves.pool[e]], forest.sums[tree, place])
            a = split_leaf(
                job,
                e,
                on_left,
                record[SPLIT_G],
                record[SPLIT_H],
                added < jobs.budget[job],
                leaves,
                rows,
                codes,
                c,
                row,
                pool,
                0,
                units,
            )
            leaves.node[a], leaves.node[a + 1] = left, right
        for e in range(leaves.first[job], leaves.first[job] + leaves.opened[job]):
            if leaves.left[e] < 0:
                for i in range(leaves.begin[e], leaves.end[e]):
                    leaf_of[rows.order[i]] = leaves.node[e]
    return n_records
