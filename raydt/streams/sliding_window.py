"""Stream model ``sliding_window``: delete the oldest example, then insert the next, so that W stay active.

The paper's index would leave W - 1 active after each step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.messages import message
from raydt.sources.base import Rows, Source
from raydt.streams.active import ActiveList
from raydt.streams.row_stream import RowStream, RowStreamOptions


class SlidingWindow(RowStreamOptions):
    """The most recent ``window`` rows are live."""

    model: Literal["sliding_window"] = "sliding_window"
    window: int = Field(1000, ge=1, description="number of live examples once the window is full (W)")

    @model_validator(mode="after")
    def _fits(self) -> SlidingWindow:
        if self.warmup > self.window:
            raise ValueError(message("streams.warmup_beyond_window", warmup=self.warmup, window=self.window))
        return self

    def make(self, source: Source, base_dir: str | Path = ".") -> SlidingWindowStream:
        """The stream over ``source``."""
        return SlidingWindowStream(self, source)


class SlidingWindowStream(RowStream):
    """While fewer than W are active the next row is inserted; then a delete comes before each row."""

    chooses_deletes = True

    def __init__(self, options: SlidingWindow, source: Source) -> None:
        super().__init__(options, source)
        self._window = options.window
        self._active = ActiveList(np.empty(0, dtype=np.int64))

    def _next(self, size: int) -> UpdateBatch | None:
        available = self._available(size)
        if not available:
            self._reader.finish()
            return None
        filling = min(available, self._window - len(self._active))
        length = min(size, filling + 2 * (available - filling))
        op = np.full(length, INSERT, dtype=np.int8)
        op[filling::2] = DELETE
        deletes = (length - filling + 1) // 2 if length > filling else 0
        rows = self._take(length - deletes)
        self._active.push(rows.id)
        return self._spread(op, rows, self._active.take_first(deletes))

    def _deletes_before(self, row: Rows) -> bool:
        """Whether the example with this id is the next to be deleted: any other stays until the row is inserted."""
        return len(self._active) == self._window and bool(self._active.view()[0] == row.id[0])

    def length(self) -> int | None:
        """Rows, and one delete for each beyond the window."""
        n = self.source.n_rows
        return None if n is None else n + max(0, n - self._window)

    def state(self) -> dict[str, Any]:
        """Position, dictionaries, and the active ids, oldest first."""
        return {**super().state(), "active": self._active.array()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        super().restore(state)
        self._active = ActiveList(state["active"])
