"""Updates of one example, and predictions of one row, where coordinator and shard are in one process."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raydt.batches.binning import Bins
from raydt.examples.row_digest import RowDigest
from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.naive_bayes import SharedLogs
from raydt.learners.confidence_tree.row_steps import class_of, forget, learn
from raydt.learners.confidence_tree.shard import ConfidenceTreeShard
from raydt.learners.confidence_tree.statistics import HeldDense, Naive
from raydt.learners.row_updates import RowUpdates
from raydt.trees.records import route
from raydt.trees.row_search import oldest_equal

_NO_NUMBERS = np.empty(0, dtype=np.int64)
_NONE = np.empty((0, 2), dtype=np.int64)


class SingleRows:
    """Buffers of one update, and its way through tree and statistics; ``grace`` is the grace period."""

    def __init__(self, live: LiveConfidenceTree, logs: SharedLogs, grace: int) -> None:
        self._live, self._logs, self._grace = live, logs, grace
        self._one = RowUpdates(len(live.categorical))
        self._codes = np.empty((1, len(live.categorical)), dtype=np.uint16)  # of a row that is only predicted
        self._scores = self._normals = np.empty((1, 0), dtype=np.int64)

    def insert(
        self,
        example: tuple[int, npt.NDArray[np.float64], int, int],
        worker: ConfidenceTreeShard,
        digested: RowDigest | None,
    ) -> bool:
        """Insert an example: id, row, class and number of the update.

        False, and nothing has changed, if it takes a batch: of a new class, or where a check becomes due.
        """
        live, (number, row, code, seq) = self._live, example
        if code >= live.tree.counts.shape[1]:
            return False
        rows = self._one.take(row)
        leaf = int(route(live.tree, live.categorical, rows, 0))
        if live.tree.nodes["since"][leaf] + 1 >= self._grace:
            return False
        live.reserve(1)
        held, bins, naive = self._held(worker)
        slot = self._one.insert(live.store, digested, number, code, seq)
        worker.keep(slot, row)
        learn(live.tree, live.examples, live.right, rows.X, held, bins, naive, leaf, slot, live.adaptive)
        return True

    def forget(
        self, row: npt.NDArray[np.float64], code: int, worker: ConfidenceTreeShard, digested: RowDigest | None
    ) -> bool:
        """Delete the oldest example that equals a row and has a class; False if there is none."""
        live = self._live
        if code >= live.tree.counts.shape[1]:
            return False
        rows = self._one.take(row)
        leaf = route(live.tree, live.categorical, rows, 0)
        slot = int(oldest_equal(live.tree, live.examples, worker.features_by_slot, rows.X, leaf, code))
        if slot < 0:
            return False
        held = self._held(worker)[0]
        self._one.delete(live.store, digested, slot)
        forget(live.tree, live.examples, live.right, held, slot, live.adaptive)
        self._one.release(live.store, slot)
        return True

    def class_of(self, row: npt.NDArray[np.float64], worker: ConfidenceTreeShard) -> int:
        """Return the class that the tree predicts for a row."""
        live = self._live
        held, bins, naive = self._held(worker)
        held = held._replace(codes=self._codes)
        return int(class_of(live.tree, live.categorical, self._one.take(row), held, bins, naive, live.adaptive))

    def _held(self, worker: ConfidenceTreeShard) -> tuple[HeldDense, Bins, Naive]:
        """What the shard has, and the table of naive Bayes, which is empty where leaves predict the majority."""
        live, logs = self._live, self._logs
        held, bins = worker.single(live.store.capacity, live.sites, live.tree.counts.shape[1])
        classes = held.counts.totals.shape[1]
        if self._scores.shape[1] != classes:
            self._scores, self._normals = (np.empty((1, classes), dtype=np.int64) for _ in range(2))
        if live.naive and len(logs.table) <= live.store.live + 1:
            logs.reach(np.array([live.store.live + 1]))
        table = logs.table if live.naive else _NO_NUMBERS
        return held, bins, worker.naive(_NO_NUMBERS, table, self._scores, self._normals if live.normal else _NONE)
