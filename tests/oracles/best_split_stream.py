"""The sparse best split over a stream, slow and obvious: one dictionary of rows, and a node of plain Python a group.

What is searched when, what is predicted and what is refused is decided here update by update; the fast path has to give
the same, however it is cut into batches, spread over shards, or saved and restored.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    UPDATE,
    Features,
    History,
    UpdateBatch,
)
from raydt.learners.best_split.options import BestSplitOptions
from tests.oracles.confidence_tree import round_half_up
from tests.oracles.sparse_splits import BruteForce, BucketTwin

LIVE = np.iinfo(np.int64).max
Row = tuple[int, ...]


def majority(ones: int, size: int, tie: int) -> int:
    return tie if 2 * ones == size else int(2 * ones > size)


class BestSplitTwin:
    """The learner, one update after another."""

    def __init__(self, options: BestSplitOptions, features: Features, unit: int = 1) -> None:
        self.options, self.features, self.unit = options, features, unit
        self.weights: dict[int, int] = {}  # in units, by the update that inserted a row
        self.factors: list[int] = []  # of balanced classes, in units
        self.live: dict[int, tuple[Row, int, int]] = {}  # by id: row, label, birth
        self.finder: str | None = None if options.finder == "auto" else options.finder
        self.nodes: list[BruteForce | BucketTwin] = []
        self.split = (-1, 0, 0, 0, 0)  # feature, n, c1, n1, c11 of the last search
        self.searched = 0
        self.changes: list[tuple[int, int]] = []  # update and feature
        self.predictions: list[int] = []
        self.refused: list[int] = []
        self.past: list[list[Any]] = []  # id, row, label, inserted, deleted
        self.seq = 0

    # ------------------------------------------------------------ updates

    def process(self, batch: UpdateBatch) -> None:
        assert batch.start == self.seq
        carried = np.cumsum(CARRIES_ROW[batch.op]) - 1
        for at, (op, key) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
            row: Row = ()
            label = -1
            if CARRIES_ROW[op]:
                row, label = tuple(batch.sparse.row(carried[at]).tolist()), int(batch.y[carried[at]])  # type: ignore[union-attr]
                self.weights[self.seq] = 2**16 if batch.weight is None else int(batch.weight[carried[at]])
            self._update(op, key, row, label, batch.warmup)
            self.seq += 1
            if self.seq == batch.warmup:
                self._build()
            elif self.seq > batch.warmup and self.seq % self.options.query_every == 0:
                self._search()
        self.warmup = batch.warmup

    def _update(self, op: int, key: int, row: Row, label: int, warmup: int) -> None:
        if op == DELETE_VALUE:
            equal = [(born, i) for i, (other, y, born) in self.live.items() if (other, y) == (row, label)]
            key = min(equal)[1] if equal else -1
        known = key in self.live
        if op != QUERY and known != (op != INSERT):
            self.refused.append(self.seq)
            self.predictions.append(-1)
            return
        looked = op in (INSERT, UPDATE, QUERY) and (op == QUERY or self.seq >= warmup)
        self.predictions.append(self._predict(row) if looked else -1)
        if op in (DELETE, DELETE_VALUE, UPDATE):
            self._remove(key, warmup)
        if op in (INSERT, UPDATE):
            self.live[key] = row, label, self.seq
            self.past.append([key, row, label, self.seq, LIVE])
            if self.seq >= warmup:
                self._count(row, label, 1, self.seq)

    def _remove(self, key: int, warmup: int) -> None:
        row, label, born = self.live.pop(key)
        next(entry for entry in self.past if entry[3] == born)[4] = self.seq
        if self.seq >= warmup:
            self._count(row, label, -1, born)

    def mass(self, label: int, born: int) -> int:
        """How much a row counts."""
        factor = self.factors[label] if label < len(self.factors) else 2**16
        return min(2**32 - 1, (self.weights[born] * factor + 2**15) // 2**16) * self.unit // 2**16

    # ------------------------------------------------------------ the split

    def finish(self) -> None:
        if self.seq < self.warmup:
            self.warmup = self.seq
            self._build()

    def _build(self) -> None:
        """The end of the warm-up: its rows in their order."""
        entries = sorted(self.live.values(), key=lambda entry: entry[2])
        if self.options.class_weight == "balanced":
            sums = [sum(self.mass(y, born) for _, y, born in entries if y == k) for k in range(2)]
            occurring = sum(n > 0 for n in sums)
            self.factors = [round_half_up(2**16 * Fraction(sum(sums), occurring * n)) if n else 2**16 for n in sums]
        rows = [(row, y) for row, y, _ in entries]
        if self.finder is None:
            ones = sum(len(row) for row, _ in rows)
            seen = len({j for row, _ in rows for j in row})
            structure = "updent" if self.options.criterion == "entropy" else "updgini"
            self.finder = structure if ones and seen * len(rows) / ones >= 50 else "scan"
        for row, y, born in entries:
            self._count(row, y, 1, born)
        self._search()

    def _count(self, row: Row, label: int, by: int, born: int) -> None:
        if not self.nodes:
            assert self.finder is not None
            criterion = "entropy" if self.options.entropy else "gini"
            for _ in range(self.features.groups):
                scan = self.finder == "scan"
                unit = self.unit
                self.nodes.append(
                    BruteForce(criterion, unit) if scan else BucketTwin(self.finder, self.options.alpha, unit)
                )
        mass = self.mass(label, born)
        if not mass:
            return
        groups = self.features.groups_of(np.array(row, dtype=np.int32)).tolist()
        for number, node in enumerate(self.nodes):
            mine = [j for j, group in zip(row, groups, strict=True) if group == number]
            (node.add if by > 0 else node.remove)(mine, label, mass)

    def _search(self) -> None:
        self.searched = self.seq
        if self.nodes:
            found = [(best.score, best.feature, node) for node in self.nodes if (best := node.best()).feature >= 0]
            first = self.nodes[0]
            counts = (-1, first.n, first.c1, 0, 0)
            if found:
                _, feature, node = min(found, key=lambda entry: entry[:2])
                counts = (feature, node.n, node.c1, *node.ones[feature])
            if counts[0] != self.split[0]:
                self.changes.append((self.seq - 1, counts[0]))
            self.split = counts

    def _predict(self, row: Row) -> int:
        feature, n, c1, n1, c11 = self.split
        both = majority(c1, n, 0)
        if feature < 0:
            return both
        return majority(c11, n1, both) if feature in row else majority(c1 - c11, n - n1, both)

    # ------------------------------------------------------------ what is left

    def counters(self) -> dict[int, tuple[int, int, int]]:
        """n1, c11 and bucket of every feature; -1 of a scan."""
        found = {}
        for node in self.nodes:
            buckets = getattr(node, "bucket", {})
            found |= {j: (*counts, buckets.get(j, -1)) for j, counts in node.ones.items()}
        return found

    def filled(self) -> int:
        """Buckets with features, of all groups; none of a scan."""
        return sum(len(set(getattr(node, "bucket", {}).values())) for node in self.nodes)

    def moved(self) -> int:
        """Features that the tests have moved."""
        return sum(getattr(node, "moves", 0) for node in self.nodes)

    def history(self) -> History:
        rows = [entry[1] for entry in self.past]
        sparse = SparseRows.of_lengths(
            np.array([len(row) for row in rows], dtype=np.int64),
            np.array([j for row in rows for j in row], dtype=np.int32),
            self.features.sparse,
        )
        key, _, label, inserted, deleted = ([entry[i] for entry in self.past] for i in range(5))
        return History(
            np.array(key, dtype=np.int64),
            np.empty((len(rows), 0)),
            np.array(label, dtype=np.int32),
            np.array(inserted, dtype=np.int64),
            np.array(deleted, dtype=np.int64),
            self.warmup,
            sparse=sparse,
            weight=np.array([self.weights[born] for born in inserted], np.uint32),
        )
