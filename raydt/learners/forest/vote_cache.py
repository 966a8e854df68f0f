"""Votes for some rows that follow the trees as rows are inserted and deleted: only what has changed is walked.

A subtree that no update has come to votes as it did. The cache keeps, tree by tree, the known rows in the order of
their leaves and the vote for each, and walks from the roots down through nodes without a mark: marks are those of the
digest, which whoever changes a node takes away from it and from all nodes above. Where a node has another split, or
other children, than at the last walk, the known rows below are sorted again; elsewhere they are where they were.

Invariant: after a walk the votes are those of the trees, bit for bit, and all nodes have marks. The digest has all
nodes hashed again after a walk, and a walk sorts all rows again after a digest, so that neither misses a change.
``tests/property/test_data_values.py`` compares the votes with those of the forest.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.blocks import grown
from raydt.arrays.elementary import Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import kernel
from raydt.learners.forest.leave_out import part_rows, vote_of
from raydt.learners.forest.model import merged_votes
from raydt.learners.forest.shard import ForestStore
from raydt.learners.forest.trees import TreePool
from raydt.parallel import run


class RowOrder(NamedTuple):
    """Known rows in the trees of a pool, and the nodes as they were walked last.

    ``order``, shape (trees, m), has the rows by their way down each tree; those of a node are from ``begins`` to before
    ``ends``. ``votes``, shape (trees, m, K or 2), is what each tree gives each row.
    """

    order: Int32s
    votes: Ints
    begins: Int32s
    ends: Int32s
    feature: Int32s
    threshold: Floats
    left: Int32s
    right: Int32s


@kernel
def walk_changed(
    forest: Any, known: Any, X: Any, anew: bool, categorical: Any, rules: Any, stack: Any, sorts: Any, other: Any,
    new: Any, change: Any
) -> None:  # fmt: skip
    """Add to ``change``, shape (m, K or 2), how the votes for known rows have changed since the last walk.

    O(nodes without a mark, and rows below those that have changed, times their depth).
    """
    nodes = forest.nodes
    for tree in range(len(forest.roots)):
        order, votes, top = known.order[tree], known.votes[tree], 1
        stack[0], sorts[0] = forest.roots[tree], anew
        while top > 0:
            top -= 1
            node, sort = np.int64(stack[top]), sorts[top]
            begin, end = np.int64(known.begins[node]), np.int64(known.ends[node])
            if begin == end or (forest.hashed[node] and not sort):
                continue
            j = np.int64(nodes[node].feature)
            left, right = np.int64(nodes[node].left), np.int64(nodes[node].right)
            threshold = nodes[node].threshold
            if j < 0:
                known.feature[node] = j
                vote_of(forest.totals, node, rules, new)
                for i in range(begin, end):
                    row = np.int64(order[i])
                    for k in range(len(new)):
                        change[row, k] += new[k] - votes[row, k]
                        votes[row, k] = new[k]
                continue
            same_split = known.feature[node] == j and known.threshold[node] == threshold
            if sort or not same_split or known.left[node] != left or known.right[node] != right:
                sort = True
                middle = part_rows(order, begin, end, X, j, threshold, categorical[j], other)
                known.begins[left], known.ends[left] = begin, middle
                known.begins[right], known.ends[right] = middle, end
                known.feature[node], known.threshold[node] = j, threshold
                known.left[node], known.right[node] = left, right
            stack[top], sorts[top] = left, sort
            stack[top + 1], sorts[top + 1] = right, sort
            top += 2


class VoteCache:
    """Votes for rows, shape (m, d), by the trees of all shards in the process."""

    def __init__(self, store: ForestStore, X: Floats) -> None:
        self._store, self._X = store, np.ascontiguousarray(X, dtype=np.float64)
        self._pools: list[TreePool] = []
        self._known: list[RowOrder] = []
        self._votes: Ints = np.empty((0, 0), dtype=np.int64)

    def votes(self) -> Ints:
        """Return the votes of the trees as they are, shape (m, K), or (m, 2) of numbers."""
        self._store.resolve()
        pools = [(pool, part) for part in self._store.parts for pool in part.pools]
        width = max(2 if part.rules.numeric else part.width for part in self._store.parts)
        same = [pool for pool, _ in pools] == self._pools and width == self._votes.shape[1]
        if not same:
            self._pools = [pool for pool, _ in pools]
            self._known = [_sorted_by_nothing(pool, len(self._X), width) for pool in self._pools]
            self._votes = np.zeros((len(self._X), width), dtype=np.int64)
        anew = [not pool.take_marks(self) or not same for pool in self._pools]
        self._known = [
            _with_room(known, len(pool.forest.nodes)) for known, pool in zip(self._known, self._pools, strict=True)
        ]
        tasks = [
            partial(self._walked, pool, known, part.rules, part.examples.categorical, new)
            for (pool, part), known, new in zip(pools, self._known, anew, strict=True)
        ]
        self._votes = merged_votes([self._votes, *run(tasks)])
        return self._votes

    def _walked(self, pool: TreePool, known: RowOrder, rules: Any, categorical: Bools, anew: bool) -> Ints:
        """Return how the votes of a pool have changed."""
        change, depth = np.zeros_like(self._votes), 2 * (rules.max_depth + 3)
        stack, sorts = np.empty(depth, dtype=np.int32), np.empty(depth, dtype=np.bool_)
        other, new = np.empty(len(self._X), dtype=np.int32), np.empty(change.shape[1], dtype=np.int64)
        if anew:
            known.begins[pool.forest.roots], known.ends[pool.forest.roots] = 0, len(self._X)
        walk_changed(pool.forest, known, self._X, anew, categorical, rules, stack, sorts, other, new, change)
        pool.forest.hashed[:] = True
        return change


def _sorted_by_nothing(pool: TreePool, m: int, width: int) -> RowOrder:
    """Return rows in any order, for which no tree has voted."""
    trees, none = len(pool.forest.roots), np.empty(0, dtype=np.int32)
    order = np.repeat(np.arange(m, dtype=np.int32)[None], trees, axis=0)
    votes = np.zeros((trees, m, width), dtype=np.int64)
    return RowOrder(order, votes, none, none, none, np.empty(0), none, none)


def _with_room(known: RowOrder, nodes: int) -> RowOrder:
    """Return the same with room for so many nodes."""
    if len(known.begins) >= nodes:
        return known
    by_node = ("begins", "ends", "feature", "threshold", "left", "right")
    return known._replace(**{name: grown(getattr(known, name), nodes) for name in by_node})
