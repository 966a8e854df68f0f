"""An update in place (Algorithms 2 and 3): one pass of a batch D' through all trees.

The trees are taken a *window* of iterations at a time, as if none had to be retrained: one round with the shards.
Where derivatives do not depend on the trees before (deletions whose effect on other rows is not followed), all trees
that must be retrained are, together. Else the window is kept up to the first iteration with such a tree, what was
assumed of later ones is taken back, and the pass goes on behind it. The width of a window changes the number of rounds
and the work that is taken back, never a result.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.exchange.messages import Ask, Exchange
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.passes import AGAIN, IN, OUT, advance, growing_leaves, take_back, visits_of
from raydt.learners.gbdt.roots import Roots, collapse
from raydt.learners.gbdt.trees import LEAF, add_scores
from raydt.learners.rows import Rows

#: Entries (trees x rows) of a window, at most: 14 bytes each.
_LARGEST_WINDOW = 1 << 22


@dataclass(slots=True)
class Counts:
    """What an update took: trees looked at and retrained, subtrees and rows of these, nodes built, rows refreshed."""

    trees_checked: int = 0
    trees_retrained: int = 0
    subtrees: int = 0
    rows: int = 0
    nodes: int = 0
    depth: int = -1
    refreshed: int = 0
    rounds: int = 0

    def add(self, other: Counts) -> None:
        """Add what another pass took; the depth is the smaller one."""
        for field in fields(self):
            if field.name != "depth":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        self.depth = min([d for d in (self.depth, other.depth) if d >= 0], default=-1)


class Window:
    """Some iterations that a pass has advanced through: what was there before, and what changed."""

    def __init__(self, ensemble: Ensemble, first: int, stop: int, rows: int) -> None:
        per = ensemble.per
        self.first, self.stop, self.trees = first, stop, slice(first * per, stop * per)
        shape = (stop - first) * per, rows
        self.dG, self.dH = np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.int32)
        self.at, self.old = np.empty(shape, dtype=np.int16), np.empty(shape, dtype=np.int32)
        self.touched = np.zeros((shape[0], ensemble.trees.feature.shape[1]), dtype=np.uint8)
        t = ensemble.trees
        self._before = {name: getattr(t, name)[self.trees].copy() for name in ("G", "H", "value")}

    def restore(self, ensemble: Ensemble, keep: int) -> None:
        """Take back sums and values of the trees from ``keep`` on."""
        for name, array in self._before.items():
            getattr(ensemble.trees, name)[keep : self.trees.stop] = array[keep - self.trees.start :]

    def changed_values(self, ensemble: Ensemble) -> npt.NDArray[np.bool_]:
        """Which leaves have another value than before, by tree and node."""
        changed: npt.NDArray[np.bool_] = ensemble.trees.value[self.trees] != self._before["value"]
        return changed


class Pass:
    """One pass: rows that leave, or rows that come.

    Parameters
    ----------
    ensemble : Ensemble
    y : ndarray, by slot
    slots : ndarray of int32
        Rows that leave or come.
    role : int
        OUT or IN.
    rows : Rows
        Features of the rows that come.
    again : ndarray of int32
        Rows whose derivatives are computed anew from the first iteration on.
    patient : bool
        Rounds are dear: take all iterations that are left as one window.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        y: npt.NDArray[Any],
        slots: npt.NDArray[np.int32],
        role: int,
        rows: Rows,
        again: npt.NDArray[np.int32],
        patient: bool,
    ) -> None:
        self.e, self._y, self._rows, self._patient = ensemble, y, rows, patient
        self._mode = ensemble.options.derivatives
        self.slots = np.concatenate([slots, again]).astype(np.int32)
        self.role = np.concatenate([np.full(len(slots), role), np.full(len(again), AGAIN)]).astype(np.int8)
        self._among = np.zeros(ensemble.leaf.shape[1], dtype=np.bool_)
        self._among[self.slots] = True
        self.F = ensemble.origins(len(self.slots))
        self._follows = role == IN or self._mode != "never" or len(again) > 0
        self.counts = Counts(refreshed=len(again))

    def run(self) -> Exchange[Counts]:
        """Take the batch through all trees."""
        e, per = self.e, self.e.per
        m, width = 0, 1 if self._mode == "changed_leaves" else e.iterations
        keep = len(e.trees.feature)  # of what was changed before this pass, all
        while m < e.iterations:
            most = max(1, _LARGEST_WINDOW // (per * max(1, len(self.slots))))
            window = Window(e, m, min(m + min(width, most), e.iterations), len(self.slots))
            before = self.F.copy()
            failed, needs = yield from self._try(window, keep)
            stop = window.stop
            if self._follows and needs.any():
                stop = m + int(np.flatnonzero(needs)[0]) // per + 1
            keep = stop * per
            self._take_back(window, keep)
            which = np.flatnonzero(needs[: keep - m * per])
            self.counts.trees_checked += keep - m * per
            new = yield from self._retrain(window, which, failed[which])
            if self._mode == "changed_leaves":
                new = np.concatenate([new, self._of_changed_leaves(window)])
            if len(which):
                self._scores(before, m, stop)
            if self._mode != "never":
                self._join(np.unique(new), stop)
            if not self._patient and self._mode != "changed_leaves":
                width = stop - m if len(which) else 2 * width
            m = stop
        return self.counts

    def _try(self, window: Window, keep: int) -> Exchange[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]]:
        """Advance through a window; which nodes fail, by tree and node, and which trees have to grow."""
        e, t, per = self.e, self.e.trees, self.e.per
        first, w = window.trees.start, window
        scratch = np.empty(per)
        advance(
            t,
            e.loss,
            e.rates,
            w.first,
            w.stop,
            self.slots,
            self.role,
            *self._rows,
            e.bins,
            self._y,
            self.F,
            e.ledger,
            e.leaf,
            e.nowhere,
            w.dG,
            w.dH,
            w.at,
            w.old,
            w.touched,
            scratch,
        )
        most = int(w.touched.sum())
        visits, limits = np.empty((most, 4), dtype=np.int64), np.empty(most)
        valid = np.empty(most, dtype=np.bool_)
        count = int(visits_of(t, first, w.touched, e.units, visits, limits, valid))
        visits, limits, valid = visits[:count], limits[:count], valid[:count]
        changes = {"slots": self.slots, "leaf": w.at, "dG": w.dG, "dH": w.dH}
        trees = [first, w.trees.stop]
        self.counts.rounds += 1
        replies = yield Ask("change", {"trees": trees, "keep": keep, **changes, "visits": visits, "limits": limits})
        fails = ~valid | (np.sum(replies, axis=0) + 1 > e.tolerance)
        failed = np.zeros(w.touched.shape, dtype=np.uint8)
        failed[visits[fails, 0] - first, visits[fails, 1]] = 1
        needs = np.asarray(failed.any(axis=1))
        growing_leaves(t, first, w.touched, e.options.robustness_tolerance, e.options.max_leaf_nodes, needs)
        return failed, needs

    def _take_back(self, window: Window, keep: int) -> None:
        """Undo what was assumed of the trees from ``keep`` on; the shards do it with the next change."""
        if keep < window.trees.stop:
            window.restore(self.e, keep)
            take_back(
                window.trees.start, keep, self.slots, self.role, window.at, window.old, self.e.ledger, self.e.leaf
            )

    def _retrain(
        self, window: Window, which: npt.NDArray[np.int64], failed: npt.NDArray[np.uint8]
    ) -> Exchange[npt.NDArray[np.int32]]:
        """Grow trees of a window anew below what failed; the rows below that."""
        e, o = self.e, self.e.options
        if not len(which):
            return np.empty(0, dtype=np.int32)
        trees = which + window.trees.start
        sigma, most = o.robustness_tolerance, o.max_leaf_nodes
        roots = collapse(e.trees, trees, window.touched[which], failed, sigma, most, e.leaf)
        if not len(roots.tree):
            return np.empty(0, dtype=np.int32)
        spans = [(t, *span) for t, span in _spans(roots)]
        g = np.concatenate([e.gradients(t, roots.slots[begin:end], self._y) for t, begin, end in spans])
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

    def _of_changed_leaves(self, window: Window) -> npt.NDArray[np.int32]:
        """Rows in leaves of a window of one iteration whose value has changed."""
        e = self.e
        changed = np.zeros((len(window.dG), e.nowhere + 1), dtype=np.bool_)
        values = window.changed_values(e) & (e.trees.feature[window.trees] == LEAF)
        changed[:, : values.shape[1]] = values
        rows = np.take_along_axis(changed, e.leaf[window.trees].astype(np.int64), axis=1).any(axis=0)
        return np.flatnonzero(rows).astype(np.int32)

    def _scores(self, before: npt.NDArray[np.float64], first: int, stop: int) -> None:
        """F of the rows that stay, behind trees that were retrained."""
        stay = np.flatnonzero(self.role != OUT)
        F = before[stay]
        add_scores(self.e.trees, first, stop, self.e.leaf, self.slots[stay], F)
        self.F[stay] = F

    def _join(self, new: npt.NDArray[np.int32], stop: int) -> None:
        """Let rows join whose derivatives are computed anew from iteration ``stop`` on."""
        new = new[~self._among[new]]
        if not len(new) or stop == self.e.iterations:
            return
        F = self.e.origins(len(new))
        add_scores(self.e.trees, 0, stop, self.e.leaf, new, F)
        self._among[new] = True
        self.slots = np.concatenate([self.slots, new])
        self.role = np.concatenate([self.role, np.full(len(new), AGAIN, dtype=np.int8)])
        self.F = np.concatenate([self.F, F])
        self.counts.refreshed += len(new)


def _spans(roots: Roots) -> list[tuple[int, tuple[int, int]]]:
    """Of each tree its rows among those of all roots."""
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
