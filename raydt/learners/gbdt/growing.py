"""The coordinator's half of growing trees: what is collapsed, where growth begins, and its rounds with the shards.

One shard that owns every feature grows the trees of a request by itself, in one round. Several answer with the best
split of each open leaf among their features, and on which side of it the rows are; the coordinator splits, in every
tree that still grows, the leaf whose split gains most: one round for a leaf of each tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.exchange import Ask, Exchange, Tell
from raydt.kernel import kernel
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
from raydt.learners.gbdt.roots import Roots
from raydt.learners.gbdt.split_search import CUT, FEATURE, LEAST_GAIN, LEFT_G, LEFT_H, Units, gain_of
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
        at_once = max(1, _LARGEST_POOL // (2 * self._most * (self._candidates + 1)))
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
        jobs = {
            "tree": which,
            "iteration": which // self._per,
            "budget": budget,
            "first_root": np.append(first, len(roots.tree)),
            "root": roots.node,
            "kept": roots.place,
            "begin": roots.begin,
            "end": roots.end,
            "totals": np.stack([self.trees.G[roots.tree, roots.node], self.trees.H[roots.tree, roots.node]], axis=1),
            "free_nodes": free_nodes,
            "free_places": free_places,
        }
        alone = self._shards == 1
        self.rounds += 1
        replies = yield Ask("grow", {"jobs": jobs, "slots": roots.slots, "g": g, "alone": alone})
        if alone:
            records, at = replies[0]["records"], replies[0]["leaf"]
        else:
            records, at = yield from self._rounds(jobs, replies)
            self.rounds += 1
            yield Tell("end", {})
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

    def _rounds(self, jobs: dict[str, Any], replies: list[Any]) -> Exchange[tuple[npt.NDArray[np.int64], Any]]:
        """Split one leaf of every tree per round, as long as one can be split; records, and the node of each row."""
        open_jobs = [_OpenJob(jobs, i) for i in range(len(jobs["tree"]))]
        records: list[list[npt.NDArray[np.int64]]] = [[] for _ in open_jobs]
        at = np.empty(int(jobs["end"].max(initial=0)), dtype=np.int16)
        opened = [(job, e) for job in open_jobs for e in range(len(job.leaves))]
        while True:
            self._merge(opened, replies)
            steps, sides, growing = [], [], []
            for i, job in enumerate(open_jobs):
                e = job.best()
                if job.budget and e >= 0:
                    sides.append(job.leaves[e].sides)
                    step = job.split(e)
                    records[i].append(step)
                    sent = step.copy()
                    sent[[0, NODE]] = job.budget > 0, job.offset + e
                    steps.append(sent)
                    growing.append(job)
                    step[0] = i
            if not growing:
                break
            opened = [(job, len(job.leaves) + child) for job in growing if job.budget for child in (-2, -1)]
            which = np.array([job.index for job in growing])
            bits = np.packbits(np.concatenate(sides))
            self.rounds += 1
            replies = yield Ask("split", {"which": which, "steps": np.array(steps), "on_left": bits})
        for job in open_jobs:
            for open_leaf in job.leaves:
                if open_leaf.node >= 0:
                    at[open_leaf.rows] = open_leaf.node
        made = [record for of_job in records for record in of_job]
        return np.array(made, dtype=np.int64).reshape(-1, RECORD), at

    def _merge(self, opened: list[tuple[_OpenJob, int]], replies: list[Any]) -> None:
        """The best split of each opened leaf over all shards: largest gain, then the smaller feature."""
        sizes = [len(job.leaves[e].rows) for job, e in opened]
        ends = np.cumsum(sizes)
        bits = [np.unpackbits(reply["sides"]).view(np.bool_) for reply in replies]
        for i, (job, e) in enumerate(opened):
            leaf = job.leaves[e]
            leaf.gain = 0.0
            for shard, reply in enumerate(replies):
                found = reply["found"][i]
                if found[FEATURE] < 0:
                    continue
                gain = float(gain_at(found[LEFT_G], found[LEFT_H], leaf.G, leaf.H, self.units))
                if gain > max(leaf.gain, LEAST_GAIN) or (gain == leaf.gain and found[FEATURE] < leaf.found[FEATURE]):
                    leaf.gain, leaf.found = gain, found
                    leaf.sides = bits[shard][ends[i] - sizes[i] : ends[i]]


@kernel
def gain_at(left_G: int, left_H: int, G: int, H: int, units: Any) -> float:
    """:func:`raydt.learners.gbdt.split_search.gain_of`, for Python."""
    gain: float = gain_of(left_G, left_H, G, H, units)
    return gain


class _OpenLeaf:
    """A leaf of a tree that grows in rounds: node, rows (places in the request), sums, and its best split."""

    def __init__(self, node: int, rows: npt.NDArray[np.int64], G: int, H: int) -> None:
        self.node, self.rows, self.G, self.H = node, rows, G, H
        self.gain = 0.0
        self.found = np.full(4, -1)
        self.sides = np.empty(0, dtype=np.bool_)


class _OpenJob:
    """One tree that grows in rounds: its leaves in the order in which they were opened."""

    def __init__(self, jobs: dict[str, Any], index: int) -> None:
        self.index, self.budget = index, int(jobs["budget"][index])
        a, b = jobs["first_root"][index], jobs["first_root"][index + 1]
        self.leaves = [
            _OpenLeaf(int(jobs["root"][r]), np.arange(jobs["begin"][r], jobs["end"][r]), *jobs["totals"][r].tolist())
            for r in range(a, b)
        ]
        # Where the shards keep the leaves of this job: after those of the jobs before.
        self.offset = int(a + 2 * jobs["budget"][:index].sum())
        self._nodes, self._places = iter(jobs["free_nodes"][index].tolist()), iter(jobs["free_places"][index].tolist())

    def best(self) -> int:
        """The open leaf to split next, -1 if none can be."""
        gains = [leaf.gain for leaf in self.leaves]
        return int(np.argmax(gains)) if max(gains) > 0 else -1

    def split(self, e: int) -> npt.NDArray[np.int64]:
        """Split a leaf by its best split; the record."""
        leaf = self.leaves[e]
        left, right, place = next(self._nodes), next(self._nodes), next(self._places)
        G, H = int(leaf.found[LEFT_G]), int(leaf.found[LEFT_H])
        step = np.zeros(RECORD, dtype=np.int64)
        step[[NODE, SPLIT_FEATURE, SPLIT_CUT]] = leaf.node, leaf.found[FEATURE], leaf.found[CUT]
        step[[LEFT, RIGHT, PLACE, SPLIT_G, SPLIT_H]] = left, right, place, G, H
        self.leaves.append(_OpenLeaf(left, leaf.rows[leaf.sides], G, H))
        self.leaves.append(_OpenLeaf(right, leaf.rows[~leaf.sides], leaf.G - G, leaf.H - H))
        leaf.gain, leaf.node = 0.0, -1
        self.budget -= 1
        return step


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
