"""The coordinator's half of the trials of ``drift``: which examples they count, and when they are compared.

New examples wait for the next comparison; deleted ones leave the trials at once. In one round of a comparison the
shards score the examples that wait by the trials on their routes, then count them there. With drift a run has two to
four rounds more for each comparison: it ends a window, deleted examples are counted out in a round of their own, and
the shards forget the statistics of trials that end in another.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import Ints, Slots
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.learners.confidence_tree import drift_kernels as drift
from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.log import Logged, restarted
from raydt.learners.confidence_tree.naive_bayes import SharedLogs
from raydt.learners.confidence_tree.statistics import LABEL, SIGN, SITE, SLOT
from raydt.learners.sequential import ADD, REMOVE
from raydt.trees.records import preorder


class Trials:
    """The examples that wait to be compared, every ``period`` insertions (0: never), with the trials of ``live``."""

    def __init__(self, live: LiveConfidenceTree, period: int, logs: SharedLogs) -> None:
        self._live, self._period, self._logs = live, period, logs
        self.compared = 0  #: Stamp of the last comparison, or of the last row of the warm-up.
        self._waiting = np.empty(0, dtype=np.int32)  # slots of live examples that came after it, the oldest first

    def begin(self, stamp: int) -> None:
        """End the warm-up, whose last row has this stamp."""
        self.compared, self._waiting = stamp, self._waiting[:0]

    def restore(self, compared: int) -> None:
        """Continue after a comparison; the tree is restored already."""
        stamp = 2 * self._live.store.born[: self._live.store.live] + 1
        waiting = np.flatnonzero(stamp > compared).astype(np.int32)
        self.compared, self._waiting = compared, waiting[np.argsort(stamp[waiting])]

    def follow(self, steps: npt.NDArray[np.void]) -> Exchange[None]:
        """After some steps: note what waits to be compared, and take what they have deleted out of the trials."""
        removed = steps["slot"][steps["kind"] == REMOVE]
        self._waiting = np.concatenate([self._waiting, steps["slot"][steps["kind"] == ADD]])
        if not len(removed):
            return
        self._waiting = self._waiting[~np.isin(self._waiting, removed)]
        live = self._live
        pairs = drift.in_trials(live.tree, live.examples, removed, self.compared, live.deepest)
        slots = removed[pairs.example]
        np.subtract.at(live.tree.fresh, (pairs.node, live.store.y[slots]), live.masses(slots))
        if len(pairs.node):
            yield from self._count(pairs, removed, -1)

    def compare(self, stamp: int) -> Exchange[list[Logged]]:
        """Compare all trials with the tree just after an insertion; returns an entry for each node restarted."""
        live, slots = self._live, self._waiting
        self.compared, self._waiting = stamp, slots[:0]
        least, period = self._period // 2 * live.unit, self._period * live.unit
        pairs = drift.meet(live.tree, live.examples, live.right, slots, least, live.deepest)
        replies = (yield from self._count(pairs, slots, 1)) if len(pairs.node) else []
        scores = sum((reply[1] for reply in replies), np.zeros((len(pairs.scored), 1), dtype=np.int64))
        drift.judge(live.tree, live.examples, live.right, slots, pairs, scores, self._logs.table)
        order = preorder(live.tree)[0].astype(np.int64)
        verdicts = np.empty(len(order), dtype=np.int64)
        drift.decide(live.tree, order, period, live.unit, verdicts)
        nodes = {what: order[verdicts == what].tolist() for what in (drift.BEGIN, drift.END, drift.RESTART)}
        log = [restarted(stamp, int(live.tree.nodes["depth"][node])) for node in nodes[drift.RESTART]]
        gone = [site for node in nodes[drift.RESTART] for site in live.restart(node, stamp)]
        gone += [live.end_trial(node) for node in nodes[drift.END]]
        if gone:
            yield Tell("forget", {"gone": live.whole(np.array(gone, dtype=np.int32))})
            live.free(gone)
        if nodes[drift.RESTART] and live.inherits:
            yield Ask("count", live.to_count(live.inherited(np.array(nodes[drift.RESTART]))))
        for node in nodes[drift.BEGIN]:
            live.begin_trial(node, stamp)
        return log

    def _count(self, pairs: drift.Pairs, slots: Slots, sign: int) -> Exchange[list[tuple[Ints, Ints, Ints]]]:
        """Have the shards score examples by trials, then count them in or out."""
        tree, at = self._live.tree, slots[pairs.example]
        deltas = np.empty((4, len(pairs.node)), dtype=self._live.delta)
        deltas[SLOT], deltas[SITE] = at, tree.trials["site"][pairs.node]
        deltas[SIGN], deltas[LABEL] = sign * self._live.masses(at), self._live.store.y[at]
        asks = deltas[:, pairs.scored]
        asks[SIGN] = 0  # all are scored by what was counted before
        logs = self._logs.unsent(tree.fresh[pairs.node])
        both = np.concatenate([asks, deltas], axis=1)
        return (yield Ask("count", self._live.to_count(both, np.arange(len(pairs.scored)), logs)))
