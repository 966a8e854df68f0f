"""The work of a FuDyADT shard: keep its columns of every live row, and its half of a spread BUILD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import block, blocks, equal_rows
from raydt.arrays.memory import grown
from raydt.examples.features import Features
from raydt.examples.store import ExampleStore
from raydt.exchange.blocks import FeatureReader
from raydt.exchange.faults import fault
from raydt.exchange.messages import Payload
from raydt.learners.fudyadt.build import NO_NUMBERS
from raydt.learners.fudyadt.build_sharded import (
    LEFT,
    ShardColumns,
    Sorted,
    find_candidates,
    next_level,
    pack_sides,
    side_words,
    unpack_sides,
)
from raydt.learners.fudyadt.presort import DIGITS, label_bits_of, presort
from raydt.learners.fudyadt.split_search import BLOCK


class FuDyADTShard:
    """Owner of whole feature groups.

    With the coordinator's store, when both live in one process and share it, rows are not sent.
    """

    def __init__(self, features: Features, groups: npt.NDArray[np.int64], store: ExampleStore | None = None) -> None:
        self.groups = groups
        group_columns = [features.group_columns(int(g)) for g in groups]
        self.columns = features.columns_of(groups)
        self._group_of = np.repeat(np.arange(len(groups)), [len(c) for c in group_columns])
        self._categorical = features.kinds[self.columns].astype(np.bool_)
        self._store = store
        self._own = np.empty((0, len(self.columns)))  # by slot, where there is no store
        self._columns: ShardColumns | None = None  # of the BUILD that is under way
        self._level: Sorted | None = None
        self.reader: FeatureReader | None = None

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request: ``rows``, ``read``, ``begin``, ``level``, ``end``, ``gather`` or ``equal``."""
        answer: Any = getattr(self, f"_on_{method}")(**payload)
        return answer

    def rows(self, slots: npt.NDArray[np.int32]) -> dict[int, dict[str, Any]]:
        """Columns ``X`` of some rows, by group."""
        X, columns = (self._store.X, self.columns) if self._store else (self._own, np.arange(len(self.columns)))
        owned = [columns[self._group_of == i] for i in range(len(self.groups))]
        return {g: {"X": part} for g, part in zip(self.groups.tolist(), blocks(X, slots, owned), strict=True)}

    def state(self, slots: npt.NDArray[np.int32]) -> dict[int, dict[str, Any]]:
        """Nothing: between two batches a shard knows rows only."""
        return {}

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        self._columns = self._level = None
        for i, g in enumerate(self.groups):  # which may be read one after the other
            X, own = state[int(g)]["X"], self._group_of == i
            if self._store:
                self._store.X[: len(X), self.columns[own]] = X
            else:
                self._own = self._own if i else np.empty((len(X), len(self.columns)))
                self._own[:, own] = X

    def _on_rows(self, slots: Any, X: Any = None) -> None:
        """Keep new rows. A slot of a deleted row is not handed out again before this is acknowledged."""
        if self._store is None and len(self.columns):
            need = int(slots.max()) + 1
            if need > len(self._own):
                self._own = grown(self._own, max(need, len(self._own) + len(self._own) // 2, 64))
            self._own[slots] = X

    def _on_read(self, slots: Any, rows: Any, blocks: Any) -> None:
        """Keep new rows that this shard has read."""
        assert self.reader is not None
        self._on_rows(slots, self.reader.take(rows, blocks)[0])

    def _on_begin(self, slots: Any, labels: Any, counts: Any, sums: Any) -> npt.NDArray[np.int64]:
        """Start a BUILD: sort the columns, answer for the root. Labels are codes or, with one class, units."""
        n, K = len(slots), len(counts)
        width = len(self.columns)
        bits = label_bits_of(K)
        if self._store:
            X, rows = block(self._store.X, slots, self.columns), np.arange(n, dtype=np.int32)
        else:
            X, rows = self._own, np.array(slots, dtype=np.int32)
        E = np.empty((width, n), dtype=np.int64)
        spare = np.empty(n, dtype=np.int64)
        codes, numbers = np.array(labels, dtype=np.int32), NO_NUMBERS
        if K == 1:
            codes, numbers = np.zeros(n, dtype=np.int32), codes
        if width:
            presort(
                X,
                rows,
                codes,
                n,
                bits,
                E,
                spare,
                np.empty(DIGITS, dtype=np.int64),
            )
        last = rows[(E[:, -1] & 0xFFFFFFFF) >> bits] if n else rows
        gaps = np.isnan(X[last, np.arange(width)]) if width else np.zeros(0, dtype=np.bool_)
        columns = X, rows, self.columns, self._group_of, len(self.groups), self._categorical, gaps, numbers
        self._columns = ShardColumns(*columns)
        bounds, side = np.array([[0, n]], dtype=np.int64), np.zeros(n, dtype=np.uint8)
        self._level = Sorted(E, bounds, side, spare, bits)
        return self._candidates(np.array(counts, dtype=np.int64)[None, :], np.array(sums, dtype=np.int64)[None, :])

    def _on_level(self, sides: Any, keep: Any, size_left: Any, counts: Any, sums: Any) -> npt.NDArray[np.int64]:
        """Go one level down: partition by the winning sides, answer for the nodes that stay open."""
        level = self._level
        assert level is not None
        unpack_sides(np.array(sides, dtype=np.int64), len(level.side), level.side)
        bounds = np.empty((2 * len(keep), 2), dtype=np.int64)
        n_open = next_level(level, np.array(keep), np.array(size_left), bounds)
        self._level = level._replace(bounds=bounds[:n_open].copy())
        return self._candidates(np.array(counts, dtype=np.int64), np.array(sums, dtype=np.int64))

    def _on_end(self) -> None:
        """The BUILD is complete: give its memory back."""
        self._columns = self._level = None

    def _on_gather(self, slots: Any) -> npt.NDArray[np.float64]:
        """Columns of rows that the coordinator does not keep."""
        fault("shard.before_columns")
        return self._columns_of(slots)

    def _columns_of(self, slots: Any) -> npt.NDArray[np.float64]:
        """Columns of some rows, shape (rows, columns of this shard)."""
        X: npt.NDArray[np.float64]
        if not len(self.columns):  # more shards than groups
            return np.empty((len(slots), 0))
        X = block(self._store.X, slots, self.columns) if self._store else self._own[slots]
        return X

    def _on_equal(self, slots: Any, x: Any) -> npt.NDArray[np.bool_]:
        """Which of some rows equal ``x`` in every column of this shard."""
        return equal_rows(self._columns_of(slots), np.asarray(x)[self.columns])

    def _candidates(self, counts: npt.NDArray[np.int64], sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        level, columns = self._level, self._columns
        assert level is not None
        n_open, K = counts.shape
        n = len(level.side)
        found = np.zeros((n_open, len(self.groups), LEFT + K + sums.shape[1]), dtype=np.int64)
        if len(self.columns):
            scratch = np.empty((4, max(K, len(self.groups), BLOCK)), dtype=np.int64)
            find_candidates(level, columns, counts, sums, scratch, found)
        words = np.empty(side_words(n), dtype=np.int64)
        pack_sides(level.side, n, words)
        return np.concatenate([found.ravel(), words])
