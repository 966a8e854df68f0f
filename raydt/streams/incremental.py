"""Stream model ``incremental``: every row is inserted, nothing is deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from raydt.examples.updates import INSERT, UpdateBatch
from raydt.sources.base import Source
from raydt.streams.row_stream import RowStream, RowStreamOptions


class Incremental(RowStreamOptions):
    """Every row is inserted."""

    model: Literal["incremental"] = "incremental"

    def make(self, source: Source, base_dir: str | Path = ".") -> IncrementalStream:
        """The stream over ``source``."""
        return IncrementalStream(self, source)


class IncrementalStream(RowStream):
    """Update t inserts the t-th good row."""

    def _next(self, size: int) -> UpdateBatch | None:
        rows = self._take(self._reader.available(size))
        if not len(rows):
            self._reader.finish()
            return None
        return self._batch(np.full(len(rows), INSERT, dtype=np.int8), rows.id, rows, rows.row)
