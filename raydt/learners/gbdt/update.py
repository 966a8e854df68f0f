"""An update in place (Algorithms 2 and 3): one pass of a batch D' through all trees.

The batch passes through a *window* of iterations as if no tree had to be retrained: one round with the shards. Where
derivatives do not depend on earlier trees (deletions whose effect on other rows is not followed), all trees that must
be retrained are retrained together. Else the first change, the first iteration with such a tree, ends the window: its
trees are retrained, later iterations are rolled back, and the next window processes them again. The width of a window
changes the number of rounds and the work that is rolled back, never a result.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.exchange.messages import Ask, Exchange
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.histograms import Change
from raydt.learners.gbdt.roots import Roots, collapse
from raydt.learners.gbdt.split_search import RANKED
from raydt.learners.gbdt.trees import LEAF, add_scores
from raydt.learners.gbdt.window import (
    DELETED,
    INSERTED,
    REFRESHED,
    Batch,
    Window,
    growing_trees,
    new_window,
    process_window,
    roll_back,
    touched_splits,
)
from raydt.learners.rows import Rows

#: Entries (trees x rows) of a window, at most: 14 bytes each.
_LARGEST_WINDOW = 1 << 22


@dataclass(slots=True)
class Counts:
    """Costs of an update: trees checked and retrained, subtrees and rows of these, nodes built, rows refreshed."""

    trees_checked: int = 0
    trees_retrained: int = 0
    subtrees: int = 0
    rows: int = 0
    nodes: int = 0
    depth: int = -1
    refreshed: int = 0
    rounds: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of another pass; the depth is the smaller one."""
        for field in fields(self):
            if field.name != "depth":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        self.depth = min([d for d in (self.depth, other.depth) if d >= 0], default=-1)


class InPlaceUpdate:
    """One pass through all trees: rows are deleted, or rows are inserted.

    Parameters
    ----------
    ensemble : Ensemble
    y : ndarray, by slot
    slots : ndarray of int32
        Rows to delete or insert.
    role : int
        DELETED or INSERTED.
    rows : Rows
        Features of the inserted rows.
    refreshed : ndarray of int32
        Rows whose derivatives are computed again from the first iteration on.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        y: npt.NDArray[Any],
        slots: npt.NDArray[np.int32],
        role: int,
        rows: Rows,
        refreshed: npt.NDArray[np.int32],
    ) -> None:
        self._ensemble = ensemble
        self._mode = ensemble.options.derivatives
        every = np.concatenate([slots, refreshed]).astype(np.int32)
        roles = np.concatenate([np.full(len(slots), role), np.full(len(refreshed), REFRESHED)]).astype(np.int8)
        self._batch = Batch(every, roles, rows, ensemble.origins(len(every)), y)
        self._in_batch = np.zeros(ensemble.leaf.shape[1], dtype=np.bool_)
        self._in_batch[every] = True
        self._chained = role == INSERTED or self._mode != "never" or len(refreshed) > 0
        self.counts = Counts(refreshed=len(refreshed))

    def run(self) -> Exchange[Counts]:
        """Take the batch through all trees."""
        e, per = self._ensemble, self._ensemble.per
        m, width = 0, 1 if self._mode == "changed_leaves" else e.iterations
        keep = len(e.trees.feature)  # the shards keep all that earlier passes changed
        while m < e.iterations:
            most = max(1, _LARGEST_WINDOW // (per * max(1, len(self._batch.slots))))
            window = new_window(e.arrays(), m, min(m + min(width, most), e.iterations), len(self._batch.slots))
            before = self._batch.F.copy()
            failed, needs = yield from self._process(window, keep)
            stop = window.stop
            if self._chained and needs.any():
                stop = m + int(np.flatnonzero(needs)[0]) // per + 1
            keep = stop * per
            if stop < window.stop:  # the shards roll back with the next change
                roll_back(e.arrays(), self._batch, window, keep)
            which = np.flatnonzero(needs[: keep - m * per])
            self.counts.trees_checked += keep - m * per
            refreshed = yield from self._retrain(window, which, failed[which])
            if self._mode == "changed_leaves":
                refreshed = np.concatenate([refreshed, self._rows_of_changed_leaves(window)])
            if len(which):
                self._score_again(before, m, stop)
            if self._mode != "never":
                self._refresh(np.unique(refreshed), stop)
            m = stop
        return self.counts

    def _process(self, window: Window, keep: int) -> Exchange[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]]:
        """Process a window, after the shards have rolled back the trees from ``keep`` on.

        Returns which nodes fail, uint8, shape (trees, nodes), and which trees have to grow, bool, shape (trees,).
        """
        e, trees, batch = self._ensemble, self._ensemble.trees, self._batch
        first, last = window.first * e.per, window.stop * e.per
        process_window(e.arrays(), batch, window, np.empty(e.per))
        most = int(window.touched.sum())
        splits, valid = np.empty(most, dtype=RANKED), np.empty(most, dtype=np.bool_)
        count = int(touched_splits(trees, first, window.touched, e.units, splits, valid))
        splits, valid = splits[:count], valid[:count]
        change = Change(first, last, batch.slots, window.leaf, window.dg, window.dh)
        self.counts.rounds += 1
        replies = yield Ask("change", {"change": change, "keep": keep, "splits": splits})
        fails = ~valid | (np.sum(replies, axis=0) + 1 > e.tolerance)
        failed = np.zeros(window.touched.shape, dtype=np.uint8)
        failed[splits["tree"][fails] - first, splits["node"][fails]] = 1
        needs = np.asarray(failed.any(axis=1))
        growing_trees(trees, first, window.touched, e.options.robustness_tolerance, e.options.max_leaf_nodes, needs)
        return failed, needs

    def _retrain(
        self, window: Window, which: npt.NDArray[np.int64], failed: npt.NDArray[np.uint8]
    ) -> Exchange[npt.NDArray[np.int32]]:
        """Grow trees of a window again below the nodes that failed; returns the slots of the rows below these."""
        e, o = self._ensemble, self._ensemble.options
        if not len(which):
            return np.empty(0, dtype=np.int32)
        trees = which + window.first * e.per
        sigma, most = o.robustness_tolerance, o.max_leaf_nodes
        roots = collapse(e.trees, trees, window.touched[which], failed, sigma, most, e.leaf)
        if not len(roots.tree):
            return np.empty(0, dtype=np.int32)
        spans = [(t, *span) for t, span in _spans(roots)]
        g = np.concatenate([e.gradients(t, roots.slots[begin:end], self._batch.y) for t, begin, end in spans])
        grower = e.grower()
        splits = yield from grower.grow(roots, g, e.leaf)
        changed = roots.collapsed | (splits > 0)
        rows = (roots.end - roots.begin)[changed]
        c = self.counts
        c.rounds += grower.rounds
        c.trees_retrained += len(np.unique(roots.tree[changed]))
        c.subtrees += int(changed.sum())
        c.rows += int(rows.sum())
        depths = [_depth(e.trees.parent, t, v) for t, v in zip(roots.tree[changed], roots.node[changed], strict=True)]
        c.depth = min([d for d in [c.depth, *depths] if d >= 0], default=-1)
        c.nodes += int((2 * splits + roots.collapsed)[changed].sum())
        if self._mode == "never":
            return np.empty(0, dtype=np.int32)
        return roots.slots[np.repeat(changed, roots.end - roots.begin)]

    def _rows_of_changed_leaves(self, window: Window) -> npt.NDArray[np.int32]:
        """Slots of the rows in leaves of a window, which has one iteration, whose value has changed."""
        e = self._ensemble
        part = slice(window.first * e.per, window.stop * e.per)
        changed = np.zeros((len(window.dg), e.absent + 1), dtype=np.bool_)
        values = (e.trees.value[part] != window.value) & (e.trees.feature[part] == LEAF)
        changed[:, : values.shape[1]] = values
        rows = np.take_along_axis(changed, e.leaf[part].astype(np.int64), axis=1).any(axis=0)
        return np.flatnonzero(rows).astype(np.int32)

    def _score_again(self, before: npt.NDArray[np.float64], first: int, stop: int) -> None:
        """Compute F before iteration ``stop`` again, from that before ``first``: trees between were retrained."""
        stay = np.flatnonzero(self._batch.role != DELETED)
        F = before[stay]
        add_scores(self._ensemble.trees, first, stop, self._ensemble.leaf, self._batch.slots[stay], F)
        self._batch.F[stay] = F

    def _refresh(self, new: npt.NDArray[np.int32], stop: int) -> None:
        """Add rows to the batch whose derivatives are computed again from iteration ``stop`` on."""
        new = new[~self._in_batch[new]]
        if not len(new) or stop == self._ensemble.iterations:
            return
        F = self._ensemble.origins(len(new))
        add_scores(self._ensemble.trees, 0, stop, self._ensemble.leaf, new, F)
        self._in_batch[new] = True
        batch = self._batch
        self._batch = batch._replace(
            slots=np.concatenate([batch.slots, new]),
            role=np.concatenate([batch.role, np.full(len(new), REFRESHED, dtype=np.int8)]),
            F=np.concatenate([batch.F, F]),
        )
        self.counts.refreshed += len(new)


def _spans(roots: Roots) -> list[tuple[int, tuple[int, int]]]:
    """Each tree of some roots, and the range of its rows among those of all."""
    trees, first = np.unique(roots.tree, return_index=True)
    last = np.append(first[1:], len(roots.tree)) - 1
    ranges = zip(roots.begin[first].tolist(), roots.end[last].tolist(), strict=True)
    return list(zip(trees.tolist(), ranges, strict=True))


def _depth(parent: npt.NDArray[np.int16], tree: int, node: int) -> int:
    """Edges from the root to a node."""
    depth = 0
    while parent[tree, node] >= 0:
        node, depth = int(parent[tree, node]), depth + 1
    return depth
