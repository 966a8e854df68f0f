"""The work of a FuDyADT shard: keep its columns of every live row, and its half of a spread BUILD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raydt.arrays.blocks import block, blocks, equal_rows
from raydt.arrays.memory import empty, grown
from raydt.arrays.types import AnyArray, Bools, Floats, Int32s, Ints
from raydt.examples.features import Features
from raydt.examples.store import ExampleStore
from raydt.exchange.blocks import FeatureReader
from raydt.exchange.faults import fault
from raydt.exchange.meeting import Meeting
from raydt.exchange.messages import MET, Payload
from raydt.learners.fudyadt.build import NO_NUMBERS
from raydt.learners.fudyadt.build_sharded import BuildOrder, ShardColumns, Sorted, build_steps, flags_of
from raydt.learners.fudyadt.presort import DIGITS, label_bits_of, presort
from raydt.trees.regression_sums import LabelRange


class FuDyADTShard:
    """Owner of whole feature groups; with the coordinator's store in one process nothing is sent."""

    def __init__(self, features: Features, groups: Ints, store: ExampleStore | None = None) -> None:
        self.groups = groups
        group_columns = [features.group_columns(int(g)) for g in groups]
        self.columns = features.columns_of(groups)
        self._group_of = np.repeat(np.arange(len(groups)), [len(c) for c in group_columns])
        self._categorical = features.kinds[self.columns].astype(np.bool_)
        self._store = store
        self._own = np.empty((0, len(self.columns)))  # by slot, where there is no store
        self._labels: AnyArray = np.empty(0, dtype=np.int32)  # the same
        self._meeting = Meeting()
        self.reader: FeatureReader | None = None

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request: ``rows``, ``read``, ``labels``, ``build`` and its meetings, ``gather`` or ``equal``."""
        if method == MET:
            return self._meeting.receive(**payload)
        answer: Any = getattr(self, f"_on_{method}")(**payload)
        return answer

    def rows(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Columns ``X`` of some rows, by group."""
        X, columns = (self._store.X, self.columns) if self._store else (self._own, np.arange(len(self.columns)))
        owned = [columns[self._group_of == i] for i in range(len(self.groups))]
        return {g: {"X": part} for g, part in zip(self.groups.tolist(), blocks(X, slots, owned), strict=True)}

    def state(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Nothing: between two batches a shard knows rows only."""
        return {}

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        self._meeting, self._labels = Meeting(), self._labels[:0]
        for i, g in enumerate(self.groups):  # which may be read one after the other
            X, own = state[int(g)]["X"], self._group_of == i
            if self._store:
                self._store.X[: len(X), self.columns[own]] = X
            else:
                self._own = self._own if i else np.empty((len(X), len(self.columns)))
                self._own[:, own] = X

    def _on_rows(self, slots: Any, y: Any, X: Any) -> None:
        """Keep new rows. A slot of a deleted row is not handed out again before this is acknowledged."""
        if self._store is None and len(self.columns):
            need = int(slots.max()) + 1
            if need > len(self._own):
                self._own = grown(self._own, max(need, len(self._own) + len(self._own) // 2, 64))
            self._own[slots] = X
            if need > len(self._labels):
                self._labels = grown(np.asarray(self._labels, dtype=y.dtype), len(self._own))
            self._labels[slots] = y

    def _on_read(self, slots: Any, y: Any, rows: Any, blocks: Any) -> None:
        assert self.reader is not None
        self._on_rows(slots, y, self.reader.take(rows, blocks)[0])

    def _on_labels(self, y: Any) -> None:
        """Take the labels of all rows after a restore, in slots 0, 1, ..."""
        self._labels = np.array(y)

    def _on_build(self, order: BuildOrder, place: tuple[int, int]) -> Any:
        """Make a BUILD with the other shards: sort the columns of its rows."""
        slots = np.flatnonzero(flags_of(np.array(order.rows)).view(np.bool_)).astype(np.int32)
        n, width, bits = len(slots), len(self.columns), int(label_bits_of(len(order.counts)))
        labels: Any = (self._store.y if self._store else self._labels)[slots if width else slots[:0]]
        numbers = NO_NUMBERS
        if order.label_range is not None:
            labels, numbers = np.zeros(len(labels), dtype=np.int32), LabelRange.of(*order.label_range).units(labels)
        if self._store:
            X, rows = block(self._store.X, slots, self.columns), np.arange(n, dtype=np.int32)
        else:
            X, rows = self._own, slots
        E, spare = empty((width, n), dtype=np.int64), empty(n, dtype=np.int64)
        gaps = np.zeros(width, dtype=np.bool_)
        if width:
            presort(X, rows, labels, n, bits, E, spare, np.empty(DIGITS, dtype=np.int64))
            gaps = np.isnan(X[rows[(E[:, -1] & 0xFFFFFFFF) >> bits], np.arange(width)])
        columns = ShardColumns(X, rows, self.columns, self._categorical, gaps, numbers)
        level = Sorted(E, np.array([[0, n]], dtype=np.int64), np.zeros(n, dtype=np.uint8), spare, bits)
        return self._meeting.begin(build_steps(level, columns, order, place))

    def _on_gather(self, slots: Any) -> Floats:
        fault("shard.before_columns")
        return self._columns_of(slots)

    def _columns_of(self, slots: Any) -> Floats:
        """Columns of some rows, shape (rows, columns of this shard)."""
        X: Floats
        if not len(self.columns):  # more shards than groups
            return np.empty((len(slots), 0))
        X = block(self._store.X, slots, self.columns) if self._store else self._own[slots]
        return X

    def _on_equal(self, slots: Any, x: Any) -> Bools:
        """Which of some rows equal ``x`` in every column of this shard."""
        return equal_rows(self._columns_of(slots), np.asarray(x)[self.columns])
