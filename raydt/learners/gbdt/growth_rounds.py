"""The steps of growing trees that several shards take together, each driven by a round of the coordinator."""

from __future__ import annotations

from typing import Any

from raydt.kernel import kernel
from raydt.learners.gbdt.growth import (
    JOB,
    LEFT,
    NODE,
    PLACE,
    RIGHT,
    SPLIT_G,
    SPLIT_H,
    open_roots,
    put_node,
    split_leaf,
    which_side,
)
from raydt.learners.gbdt.split_search import CUT, FEATURE


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
    which: Any,
    steps: Any,
    on_left: Any,
    leaves: Any,
    rows: Any,
    codes: Any,
    c: Any,
    pool: Any,
    pool_first: Any,
    forest: Any,
    units: Any,
) -> None:
    """Split one open leaf of each of the jobs ``which``; ``steps`` has its fields of a record, but the leaf
    as NODE, and as JOB whether its children are to be searched.

    ``on_left`` has a byte for each row of these leaves, one leaf after the other.
    """
    used = 0
    for i in range(len(which)):
        job, step = which[i], steps[i]
        tree, e = jobs.tree[job], step[NODE]
        place = step[PLACE]
        n = leaves.end[e] - leaves.begin[e]
        put_node(forest, tree, leaves.node[e], step[LEFT], step[RIGHT], place)
        split_leaf(
            job,
            e,
            on_left[used : used + n],
            step[LEFT],
            step[RIGHT],
            step[SPLIT_G],
            step[SPLIT_H],
            step[JOB] != 0,
            leaves,
            rows,
            codes,
            c,
            jobs.row[job],
            pool,
            pool_first[job],
            forest.sums[tree, place],
            units,
        )
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
