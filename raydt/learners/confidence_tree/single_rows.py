"""Updates of one example, and predictions of one row, where coordinator and shard are in one process."""

from __future__ import annotations

from operator import is_not
from typing import Any

import numpy as np

from raydt.arrays.kernel import Repeated
from raydt.arrays.types import Floats
from raydt.examples.row_digest import RowDigest
from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.naive_bayes import SharedLogs
from raydt.learners.confidence_tree.row_steps import class_of, find, forget, learn
from raydt.learners.confidence_tree.shard import ConfidenceTreeShard
from raydt.learners.confidence_tree.split_decisions import StepWindow
from raydt.learners.confidence_tree.statistics import SITE, SLOT
from raydt.learners.confidence_tree.tree import CHECK, ENTRY, CountedRows, Path
from raydt.learners.row_updates import RowUpdates
from raydt.learners.sequential import STEP

_NO_NUMBERS = np.empty(0, dtype=np.int64)


class SingleRows:
    """Buffers of one update, and its way through tree and statistics; ``grace`` is the grace period."""

    def __init__(self, live: LiveConfidenceTree, logs: SharedLogs, grace: int) -> None:
        self._live, self._logs, self._grace = live, logs, grace
        self._one = RowUpdates(len(live.categorical))
        self._codes = np.empty((1, len(live.categorical)), dtype=np.uint16)  # of a row that is only predicted
        self._known: tuple[Any, ...] = ()  # the arrays of which the arguments were made
        self._sites = 0
        self._arguments: tuple[Any, ...] = ()
        self._repeat()

    def _repeat(self) -> None:
        self._learn, self._class_of = Repeated(learn), Repeated(class_of)

    def rest(self) -> None:
        """Let go of the arrays of the last row, until the next."""
        self._known, self._arguments, self._sites = (), (), 0

    def insert(
        self, example: tuple[int, Floats, int, int], worker: ConfidenceTreeShard, digested: RowDigest | None
    ) -> tuple[int, int] | None:
        """Insert an example: id, row, class and number of the update; its slot, and the leaf to check (-1: none).

        None, and nothing has changed, if its class is new: that takes a batch.
        """
        live, (number, row, code, seq) = self._live, example
        if code >= live.tree.counts.shape[1]:
            return None
        rows = self._one.take(row)
        live.reserve(1)
        examples, held, bins, naive, _ = self._held(worker)
        slot = self._one.insert(live.store, digested, number, code, seq)
        worker.keep(slot)
        rules = slot, self._grace, live.adaptive, live.inherits
        by_slot = live.right, worker.features_by_slot
        return slot, int(self._learn(live.tree, live.categorical, examples, by_slot, rows, held, bins, naive, rules))

    def forget(self, row: Floats, code: int, worker: ConfidenceTreeShard, digested: RowDigest | None) -> bool:
        """Delete the oldest example that equals a row and has a class; False if there is none."""
        live = self._live
        if code >= live.tree.counts.shape[1]:
            return False
        examples, held, *_ = self._held(worker)
        rows = self._one.take(row)
        slot = int(find(live.tree, live.categorical, examples, worker.features_by_slot, rows, code))
        if slot < 0:
            return False
        self._one.delete(live.store, digested, slot)
        forget(live.tree, examples, live.right, held, slot, live.adaptive, live.inherits)
        self._one.release(live.store, slot)
        return True

    def class_of(self, row: Floats, worker: ConfidenceTreeShard) -> int:
        """Return the class that the tree predicts for a row."""
        live, (_, _, bins, naive, scratch) = self._live, self._held(worker)
        rows = self._one.take(row)
        return int(
            self._class_of(live.tree, live.categorical, rows, scratch, bins, naive, live.adaptive, live.inherits)
        )

    def _held(self, worker: ConfidenceTreeShard) -> tuple[Any, ...]:
        """Return examples, what the shard has, bins, what rows are scored by, and what it has with codes as scratch.

        All are kept until one of the arrays is another.
        """
        live, logs = self._live, self._logs
        if live.naive and len(logs.table) <= live.store.live + 1:
            logs.reach(np.array([live.store.live + 1]))
        known = live.tree, live.members, live.bins, logs.table, *worker.arrays
        if self._sites != live.sites or any(map(is_not, known, self._known)):
            held, bins = worker.single(live.store.capacity, live.sites, live.tree.counts.shape[1])
            classes = held.counts.totals.shape[1]
            # The table is empty where leaves predict the majority.
            table, normals = logs.table if live.naive else _NO_NUMBERS, live.normal + live.inherits
            scores = (np.empty((n, classes), dtype=np.int64) for n in (1, normals))
            naive = worker.naive(_NO_NUMBERS, table, *scores)
            self._arguments = live.examples, held, bins, naive, held._replace(codes=self._codes)
            self._repeat()
            self._sites, self._known = live.sites, (*known[:4], *worker.arrays)  # room may have been made
        return self._arguments


def window_of_check(live: LiveConfidenceTree, leaf: int, slot: int) -> StepWindow:
    """Return the window of a check just after an example was counted: as of a step, which counts nothing more."""
    steps, checks = np.zeros(1, dtype=STEP), np.zeros(1, dtype=CHECK)
    steps["stamp"] = 2 * live.store.born[slot] + 1
    checks["node"], checks["depth"] = leaf, live.tree.nodes["depth"][leaf]
    deltas: Any = np.zeros((4, 1), dtype=live.delta)
    deltas[SLOT], deltas[SITE] = slot, live.tree.nodes["site"][leaf]
    own = live.tree.own[[leaf]]
    counted = CountedRows(np.zeros(1, dtype=ENTRY), deltas, checks, own, _NO_NUMBERS, own[:0])
    return StepWindow(Path(steps, np.zeros(1, np.int64), np.array([leaf]), 1), counted)
