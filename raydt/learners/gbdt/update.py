"""An update in place (Algorithms 2 and 3): one pass of a batch D' through all trees.

The batch passes through a *window* of iterations as if no tree had to be retrained: one round with the shards. Where
derivatives do not depend on earlier trees (deletions whose effect on other rows is not followed), all trees that must
be retrained are retrained together. Else the first change, the first iteration with such a tree, ends the window: its
trees are retrained, later iterations are rolled back, and the next window processes them again. The width of a window
changes the number of rounds and the work that is rolled back, never a result.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.batches.rows_on_shards import RowBlock
from raydt.exchange.messages import Ask, Exchange
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.histograms import SumChange
from raydt.learners.gbdt.regrowth import Roots, collapse
from raydt.learners.gbdt.split_search import RANKED
from raydt.learners.gbdt.trees import LEAF, add_scores
from raydt.learners.gbdt.window import (
    DELETED,
    INSERTED,
    REFRESHED,
    Batch,
    Window,
    growing_trees,
    move_leaves,
    new_window,
    process_window,
    roll_back,
    row_moves,
    touched_splits,
)

#: Entries (trees x rows) of a window, at most: 14 bytes each.
_LARGEST_WINDOW = 1 << 22


@dataclass(slots=True)
class Counts:
    """Costs of an update: trees checked and retrained, subtrees and rows of these, nodes built, rows refreshed.

    ``trained``: rows that all trees were trained on instead, 0 if they were updated.
    """

    trees_checked: int = 0
    trees_retrained: int = 0
    subtrees: int = 0
    rows: int = 0
    nodes: int = 0
    depth: int = -1
    refreshed: int = 0
    rounds: int = 0
    trained: int = 0

    def work(self, ensemble: Ensemble, changes: int) -> int:
        """Work of an update of so many rows, in rows that a tree is trained on.

        The weights are those of kernels on one core: a derivative is compared in a quarter of the time in which a tree
        is trained on a row, a candidate of a node judged in a twentieth.
        """
        trees, inner = len(ensemble.leaf), ensemble.options.max_leaf_nodes - 1
        judged = self.trees_checked * inner * ensemble.candidates
        return self.rows + (self.refreshed * trees) // 4 + 2 * changes * trees + judged // 20

    def add(self, other: Counts) -> None:
        """Add the counts of another pass; the depth is the smaller one."""
        for field in fields(self):
            if field.name != "depth":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        self.depth = min([d for d in (self.depth, other.depth) if d >= 0], default=-1)


class PassGrowth(NamedTuple):
    """The rows below the roots from which trees of a window have grown."""

    tree: npt.NDArray[np.int64]  #: Shape (rows,).
    slots: npt.NDArray[np.int32]  #: Shape (rows,).
    before: npt.NDArray[np.float64]  #: Shape (rows,): value of the row's leaf before the batch.
    #: ``above``, ``below``: Shape (rows,): ``Trees.above`` and ``Trees.below`` of that leaf.
    above: npt.NDArray[np.uint16]
    below: npt.NDArray[np.uint16]
    #: Shape (trees, nodes): the leaves, before the growth, that are no roots; None where nothing has grown. The last
    #: trees are those of the last iteration with one that has grown.
    kept: npt.NDArray[np.bool_] | None
    changed_rows: npt.NDArray[np.int32]  #: Slots of those rows below roots that were subtrees, or have become some.


_NO_GROWTH = PassGrowth(
    np.empty(0, dtype=np.int64),
    np.empty(0, dtype=np.int32),
    np.empty(0),
    *(np.empty(0, dtype=np.uint16), np.empty(0, dtype=np.uint16)),
    None,
    np.empty(0, dtype=np.int32),
)


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
    rows : RowBlock
        Features of the inserted rows.
    anew : ndarray of int32
        Rows whose derivatives are all computed anew.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        y: npt.NDArray[Any],
        slots: npt.NDArray[np.int32],
        role: int,
        rows: RowBlock,
        anew: npt.NDArray[np.int32],
    ) -> None:
        self._ensemble = ensemble
        self._mode = ensemble.options.derivatives
        self._bounded, self._stale = ensemble.options.bounded, ensemble.stale
        refreshed, self._compares = ensemble.others(slots, anew)
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
        m, width = 0, 1 if self._bounded else e.iterations
        keep = len(e.trees.feature)  # the shards keep all that earlier passes changed
        while m < e.iterations:
            most = max(1, _LARGEST_WINDOW // (per * max(1, len(self._batch.slots))))
            window = new_window(e.arrays(), m, min(m + min(width, most), e.iterations), len(self._batch.slots))
            before = self._batch.F.copy()
            failed, needs = yield from self._process(window, keep)
            stop = self._first_change(window, needs) if self._chained else window.stop
            keep = stop * per
            if stop < window.stop:  # the shards roll back with the next change
                roll_back(e.arrays(), self._batch, window, keep)
            which = np.flatnonzero(needs[: keep - m * per])
            self.counts.trees_checked += keep - m * per
            growth = yield from self._retrain(window, which, failed[which])
            if self._bounded:
                joining = self._follow(window, stop, growth)
            else:
                joining = self._joining(np.unique(growth.changed_rows))
            if len(which) or stop < window.stop:
                self._score_again(before, m, stop)
            if self._mode != "never":
                self._refresh(joining, stop)
            if self._bounded:
                width = 1 if stop < window.stop else 2 * width
            m = stop
        return self.counts

    @property
    def taken(self) -> npt.NDArray[np.int32]:
        """Slots of the rows that were taken through the trees."""
        return self._batch.slots

    def _first_change(self, window: Window, needs: npt.NDArray[np.bool_]) -> int:
        """End of the first iteration of a window that changes which rows are in the batch, or that has to grow."""
        e, per = self._ensemble, self._ensemble.per
        grows = np.asarray(needs.reshape(-1, per).any(axis=1))
        if not self._bounded:
            return window.first + int(np.flatnonzero(grows)[0]) + 1 if grows.any() else window.stop
        trees = slice(window.first * per, window.stop * per)
        kept = np.asarray(e.trees.feature[trees] == LEAF)
        for m in range(window.first, window.stop):
            # The last iteration of a window is judged again, with what its trees have grown.
            if grows[m - window.first] or self._move_leaves(window, m, kept[(m - window.first) * per :][:per])[1].any():
                return m + 1
        return window.stop

    def _move_leaves(
        self, window: Window, m: int, kept: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """What :func:`move_leaves` finds for one iteration, and which leaves move by more than a step."""
        e, per = self._ensemble, self._ensemble.per
        part, trees = slice((m - window.first) * per, (m - window.first + 1) * per), slice(m * per, (m + 1) * per)
        moved = np.empty((2, *kept.shape), dtype=np.int32)
        move_leaves(e.trees, m * per, window.touched[part], window.value[part], kept, self._stale, moved)
        far = moved.sum(axis=0) > e.trees.above[trees].astype(np.int64) + e.trees.below[trees] + self._stale.step
        return moved, np.asarray(far)

    def _follow(self, window: Window, stop: int, growth: PassGrowth) -> npt.NDArray[np.int32]:
        """Note how far the scores of rows move by the iterations of a window; returns those that join the batch."""
        e, per = self._ensemble, self._ensemble.per
        joining = [growth.slots[:0]]
        for m in range(window.first, min(stop, e.iterations - 1)):
            part = slice(m * per, (m + 1) * per)
            grown = growth.kept if m + 1 == stop else None
            kept = np.asarray(e.trees.feature[part] == LEAF) if grown is None else grown[-per:]
            moved, far = self._move_leaves(window, m, kept)
            charged = np.where(far, moved.sum(axis=0), 0)
            e.trees.above[part], e.trees.below[part] = np.where(far, 0, moved)
            for k in range(per):
                t = m * per + k
                if grown is not None:
                    mine = np.flatnonzero(growth.tree == t)
                    joining.append(self._charge(growth.slots[mine], self._row_moves(t, growth, mine)))
                if far[k].any():
                    units = np.append(charged[k], np.zeros(e.absent, dtype=np.int64))[e.leaf[t]]
                    slots = np.flatnonzero(units).astype(np.int32)
                    joining.append(self._charge(slots, units[slots]))
        return np.concatenate(joining)

    def _row_moves(self, t: int, growth: PassGrowth, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How far the scores of some rows below roots of a tree have moved."""
        moves = np.empty(len(which), dtype=np.int64)
        before, above, below = growth.before[which], growth.above[which], growth.below[which]
        row_moves(self._ensemble.arrays(), t, growth.slots[which], before, above, below, self._stale, moves)
        return moves

    def _charge(self, slots: npt.NDArray[np.int32], units: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Add moves to the drift of rows outside the batch; returns those that join it, where it grew too large."""
        drift = self._ensemble.drift
        outside = ~self._in_batch[slots]
        slots, moved = slots[outside], drift[slots[outside]] + units[outside]
        fits = moved <= self._ensemble.most_drift
        drift[slots[fits]] = moved[fits]
        return self._joining(slots[~fits])

    def _joining(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Those of some rows, each once, that are not in the batch; they are noted as in it."""
        new = slots[~self._in_batch[slots]]
        self._in_batch[new] = True
        return new

    def _process(self, window: Window, keep: int) -> Exchange[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]]:
        """Process a window, after the shards have rolled back the trees from ``keep`` on.

        Returns which nodes fail, uint8, shape (trees, nodes), and which trees have to grow, bool, shape (trees,).
        """
        e, trees, batch = self._ensemble, self._ensemble.trees, self._batch
        first, last = window.first * e.per, window.stop * e.per
        process_window(e.arrays(), batch, window, self._stale, self._compares, np.empty(e.per))
        most = int(window.touched.sum())
        splits, valid = np.empty(most, dtype=RANKED), np.empty(most, dtype=np.bool_)
        count = int(touched_splits(trees, first, window.touched, e.units, splits, valid))
        splits, valid = splits[:count], valid[:count]
        change = SumChange(first, last, batch.slots, window.leaf, window.dg, window.dh)
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
    ) -> Exchange[PassGrowth]:
        """Grow trees of a window again below the nodes that failed."""
        e, o = self._ensemble, self._ensemble.options
        if not len(which):
            return _NO_GROWTH
        trees = which + window.first * e.per
        sigma, most = o.robustness_tolerance, o.max_leaf_nodes
        roots = collapse(e.trees, trees, window.touched[which], failed, sigma, most, e.leaf)
        if not len(roots.tree):
            return _NO_GROWTH
        kept = e.trees.feature[window.first * e.per : (int(which[-1]) // e.per + window.first + 1) * e.per] == LEAF
        kept[roots.tree - window.first * e.per, roots.node] = False
        spans = [(t, *span) for t, span in _spans(roots)]
        g = np.concatenate([e.gradients(t, roots.slots[begin:end], self._batch.y) for t, begin, end in spans])
        slots, tree = roots.slots.copy(), np.repeat(roots.tree, roots.end - roots.begin)
        leaf = e.leaf[tree, slots]
        before = window.value[tree - window.first * e.per, leaf]
        above, below = e.trees.above[tree, leaf], e.trees.below[tree, leaf]
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
        again = roots.slots[np.repeat(changed, roots.end - roots.begin)]
        return PassGrowth(tree, slots, before, above, below, kept, again)

    def _score_again(self, before: npt.NDArray[np.float64], first: int, stop: int) -> None:
        """Compute F before iteration ``stop`` again, from that before ``first``: trees between were retrained."""
        stay = np.flatnonzero(self._batch.role != DELETED)
        F = before[stay]
        add_scores(self._ensemble.trees, first, stop, self._ensemble.leaf, self._batch.slots[stay], F)
        self._batch.F[stay] = F

    def _refresh(self, new: npt.NDArray[np.int32], stop: int) -> None:
        """Add rows to the batch whose derivatives are computed again from iteration ``stop`` on."""
        if not len(new) or stop == self._ensemble.iterations:
            return
        F = self._ensemble.origins(len(new))
        add_scores(self._ensemble.trees, 0, stop, self._ensemble.leaf, new, F)
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
