"""The steps of growing trees that several shards take together, each driven by a round of the coordinator.

Invariant: what is split, maybe ahead, changes the leaves of the request only. The forest is changed at the end, by the
splits that the coordinator has made.
"""

from __future__ import annotations

from typing import Any

from raydt.arrays.kernel import kernel
from raydt.learners.gbdt.growth import (
    JOB,
    LEFT,
    NODE,
    PLACE,
    RIGHT,
    copy_sums,
    open_roots,
    put_node,
    split_leaf,
    which_side,
)
from raydt.learners.gbdt.split_search import CUT, FEATURE

#: Columns of a leaf to split: job, leaf, sums of its left side.
STEP_JOB, STEP_LEAF, STEP_G, STEP_H, STEP = 0, 1, 2, 3, 4


@kernel
def open_all(
    jobs: Any, leaves: Any, rows: Any, codes: Any, c: Any, pool: Any, pool_first: Any, units: Any, sums: Any
) -> None:
    """Open the roots of all jobs, whose sums lie beside each other in the pool from ``pool_first`` on."""
    for job in range(len(jobs.tree)):
        open_roots(jobs, job, leaves, rows, codes, c, pool, pool_first[job], units, sums)


@kernel
def split_each(
    jobs: Any,
    steps: Any,
    on_left: Any,
    leaves: Any,
    rows: Any,
    codes: Any,
    c: Any,
    pool: Any,
    pool_first: Any,
    units: Any,
    children: Any,
) -> None:
    """Split some open leaves (``steps``); ``children`` takes the left and the right child of each.

    ``on_left`` has a byte for each row of these leaves, one leaf after the other.
    """
    used = 0
    for i in range(len(steps)):
        job, e = steps[i, STEP_JOB], steps[i, STEP_LEAF]
        n = leaves.end[e] - leaves.begin[e]
        left = split_leaf(
            job,
            e,
            on_left[used : used + n],
            steps[i, STEP_G],
            steps[i, STEP_H],
            True,
            leaves,
            rows,
            codes,
            c,
            jobs.row[job],
            pool,
            pool_first[job],
            units,
        )
        children[i, 0], children[i, 1] = left, left + 1
        used += n


@kernel
def sides(which: Any, leaves: Any, rows: Any, codes: Any, c: Any, out: Any) -> int:
    """On which side of the best split of each of some leaves its rows are, one leaf after the other; how many bytes."""
    used = 0
    for e in which:
        j, cut = leaves.found[e, FEATURE], leaves.found[e, CUT]
        n = leaves.end[e] - leaves.begin[e]
        if j >= 0:
            which_side(rows.order[leaves.begin[e] : leaves.end[e]], rows.slots, codes, c, j, cut, out[used : used + n])
        used += n
    return used


@kernel
def keep_splits(jobs: Any, records: Any, place: Any, leaves: Any, pool: Any, forest: Any) -> None:
    """Put the splits that were made into the forest; ``place``: where it keeps the sums of a leaf, -1 for nowhere.

    The sums of a leaf that was split are those of its children together: the pool is taken back to before each split.
    """
    for i in range(len(records)):
        tree, node = jobs.tree[records[i, JOB]], records[i, NODE]
        put_node(forest, tree, node, records[i, LEFT], records[i, RIGHT], records[i, PLACE])
    for job in range(len(jobs.tree)):
        first = leaves.first[job]
        for e in range(first + leaves.opened[job] - 1, first - 1, -1):
            sums, left = pool[leaves.pool[e]], leaves.left[e]
            if left >= 0:
                small = left if leaves.pool[left] != leaves.pool[e] else left + 1
                less = pool[leaves.pool[small]]
                for s in range(len(sums)):
                    sums[s, 0] += less[s, 0]
                    sums[s, 1] += less[s, 1]
            if place[e] >= 0:
                copy_sums(sums, forest.sums[jobs.tree[job], place[e]])
