"""The coordinator's half of growing trees: what is collapsed, where growth begins, and its rounds with the shards.

One shard that owns every feature grows the trees of a request by itself, in one round. Several answer with the best
split of each open leaf among their features, and on which side of it the rows are; the coordinator says which leaves to
split next, maybe ahead (``leafwise``), in all trees of the request: as many rounds as the deepest of them is deep, one
for the roots before, and one after them that tells the shards which splits were made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.learners.gbdt.growth import (
    LEFT,
    NODE,
    PLACE,
    RECORD,
    RIGHT,
    SPLIT_CUT,
    SPLIT_FEATURE,
    SPLIT_G,
    SPLIT_H,
)
from raydt.learners.gbdt.leafwise import growths_of, merge, room
from raydt.learners.gbdt.roots import Roots
from raydt.learners.gbdt.split_search import LEFT_G, LEFT_H, Units
from raydt.learners.gbdt.trees import FREE, LEAF, Trees, set_values

#: Memory that the sums of open leaves may take in one request, in numbers.
_LARGEST_POOL = 1 << 25


def _free(trees: Trees, which: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """Free nodes and free places of sums of some trees, ascending, -1 after the last."""
    width = trees.feature.shape[1]
    free = trees.feature[which] == FREE
    nodes = np.where(free, np.arange(width), width)
    nodes.sort(axis=1)
    used = np.zeros((len(which), width // 2 + 1), dtype=np.bool_)
    np.put_along_axis(used, np.where(trees.feature[which] >= 0, trees.place[which], width // 2), True, axis=1)
    places = np.where(used[:, : width // 2], width, np.arange(width // 2))
    places.sort(axis=1)
    return (np.where(a < width, a, -1).astype(np.int16) for a in (nodes, places))  # type: ignore[return-value]


class Grower:
    """Grows trees together with the shards.

    Parameters
    ----------
    trees : Trees
        Changed in place.
    units : Units
    rates : Rates
    shards : int
    per : int
        Trees of an iteration.
    candidates : int
        Candidates of an iteration, of all features.
    """

    def __init__(self, trees: Trees, units: Units, rates: Any, shards: int, per: int, candidates: int) -> None:
        self.trees, self.units, self.rates, self._shards, self._per = trees, units, rates, shards, per
        self._candidates = candidates
        self._most = trees.feature.shape[1] // 2 + 1
        self.rounds = 0

    def grow(self, roots: Roots, g: npt.NDArray[np.int32], leaf: npt.NDArray[Any]) -> Exchange[npt.NDArray[np.int64]]:
        """Grow trees from some roots; ``g`` is that of ``roots.slots``. Returns how many splits each root led to."""
        splits = np.zeros(len(roots.tree), dtype=np.int64)
        which, first = np.unique(roots.tree, return_index=True)
        ends = np.append(first[1:], len(roots.tree))
        places = self._most + int(room(np.array([self._most]))[0])
        at_once = max(1, _LARGEST_POOL // (2 * places * (self._candidates + 1)))
        for begin in range(0, len(which), at_once):
            a, b = int(first[begin]), int(ends[min(begin + at_once, len(which)) - 1])
            c, d = int(roots.begin[a]), int(roots.end[b - 1])
            ends_of = roots.begin[a:b] - c, roots.end[a:b] - c
            part = Roots(roots.tree[a:b], roots.node[a:b], roots.place[a:b], *ends_of, roots.slots[c:d])
            splits[a:b] = yield from self._grow(part, g[c:d], leaf)
        return splits

    def _grow(self, roots: Roots, g: npt.NDArray[np.int32], leaf: npt.NDArray[Any]) -> Exchange[npt.NDArray[np.int64]]:
        which, first = np.unique(roots.tree, return_index=True)
        free_nodes, free_places = _free(self.trees, which)
        budget = self._most - self.trees.leaves[which].astype(np.int64)
        alone = self._shards == 1
        jobs = {
            "tree": which,
            "iteration": which // self._per,
            "budget": budget,
            "room": budget if alone else room(budget),
            "first_root": np.append(first, len(roots.tree)),
            "root": roots.node,
            "kept": roots.place,
            "begin": roots.begin,
            "end": roots.end,
            "totals": np.stack([self.trees.G[roots.tree, roots.node], self.trees.H[roots.tree, roots.node]], axis=1),
            "free_nodes": free_nodes,
            "free_places": free_places,
        }
        self.rounds += 1
        replies = yield Ask("grow", {"jobs": jobs, "slots": roots.slots, "g": g, "alone": alone})
        if alone:
            records, at = replies[0]["records"], replies[0]["leaf"]
        else:
            records, at = yield from self._rounds(jobs, replies)
        for t in range(len(which)):
            begin, end = roots.begin[first[t]], roots.end[jobs["first_root"][t + 1] - 1]
            leaf[which[t], roots.slots[begin:end]] = at[begin:end]
        return self._apply(which, jobs, roots, np.asarray(records))

    def _apply(
        self, which: npt.NDArray[np.int64], jobs: dict[str, Any], roots: Roots, records: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Put the splits into the trees; how many each root led to."""
        splits = np.zeros(len(roots.tree), dtype=np.int64)
        _put(
            self.trees,
            which,
            jobs["first_root"],
            jobs["budget"],
            roots.node,
            records,
            self.rates,
            np.empty(self.trees.feature.shape[1], dtype=np.int64),
            splits,
        )
        return splits

    def _rounds(self, jobs: dict[str, Any], roots: list[Any]) -> Exchange[tuple[Any, Any]]:
        """Grow the trees of all jobs together with the shards; records, and the node of each row."""
        growths = growths_of(jobs)
        opened, replies = [leaf for growth in growths for leaf in growth.leaves], roots
        while True:
            merge(opened, replies, self.units)
            for growth in growths:
                growth.advance()
            parted = [(growth.index, leaf) for growth in growths for leaf in growth.open_next()]
            if not parted:
                break
            opened = [child for _, leaf in parted for child in leaf.children]
            steps = [(index, leaf.number, leaf.found[LEFT_G], leaf.found[LEFT_H]) for index, leaf in parted]
            on_left = np.packbits(np.concatenate([leaf.sides for _, leaf in parted]))
            self.rounds += 1
            replies = yield Ask("split", {"steps": np.array(steps, dtype=np.int64), "on_left": on_left})
        records = np.array([record for growth in growths for record in growth.records], dtype=np.int64)
        records = records.reshape(-1, RECORD)
        made = np.array([number for growth in growths for number in growth.made], dtype=np.int64)
        self.rounds += 1
        yield Tell("end", {"records": records, "leaves": made})
        at = np.empty(int(jobs["end"].max(initial=0)), dtype=np.int16)
        for growth in growths:
            for leaf in growth.leaves:
                if leaf.node >= 0:
                    at[leaf.rows] = leaf.node
        return records, at


@kernel
def _put(
    trees: Any,
    which: Any,
    first_root: Any,
    budget: Any,
    nodes: Any,
    records: Any,
    rates: Any,
    root_of: Any,
    splits: Any,
) -> None:
    """Put recorded splits into the trees, record the leaves that could not be split, and set the values."""
    at = 0
    for job in range(len(which)):
        t = which[job]
        root_of[:] = -1
        for r in range(first_root[job], first_root[job + 1]):
            root_of[nodes[r]] = r
            trees.tried_h[t, nodes[r]] = -1
        made = 0
        while at < len(records) and records[at, 0] == job:
            node, left, right = records[at, NODE], records[at, LEFT], records[at, RIGHT]
            trees.feature[t, node], trees.cut[t, node] = records[at, SPLIT_FEATURE], records[at, SPLIT_CUT]
            trees.left[t, node], trees.right[t, node], trees.place[t, node] = left, right, records[at, PLACE]
            trees.G[t, left], trees.H[t, left] = records[at, SPLIT_G], records[at, SPLIT_H]
            trees.G[t, right] = trees.G[t, node] - records[at, SPLIT_G]
            trees.H[t, right] = trees.H[t, node] - records[at, SPLIT_H]
            for child in (left, right):
                trees.feature[t, child], trees.parent[t, child] = LEAF, node
                trees.place[t, child] = trees.tried_h[t, child] = -1
                root_of[child] = root_of[node]
            splits[root_of[node]] += 1
            trees.value[t, node] = 0.0
            made += 1
            at += 1
        trees.leaves[t] += made
        if made < budget[job]:
            for node in range(len(root_of)):
                if root_of[node] >= 0 and trees.feature[t, node] == LEAF:
                    trees.tried_g[t, node], trees.tried_h[t, node] = trees.G[t, node], trees.H[t, node]
        set_values(trees, t, rates)
