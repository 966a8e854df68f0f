"""Stream model ``changelog``: the rows of the source are themselves inserts, deletes, updates and queries."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from raydt.examples.updates import CARRIES_ROW, QUERY, WITH_ID, UpdateBatch
from raydt.sources.base import Source
from raydt.streams.row_stream import RowStream, RowStreamOptions


class Changelog(RowStreamOptions):
    """Each row is an operation (``source.op``) on an example (``source.id``)."""

    model: Literal["changelog"] = "changelog"
    delayed_labels: bool = Field(
        False,
        description="score an example by the last query of its id before its insertion; every query needs an id then",
    )

    def make(self, source: Source, base_dir: str | Path = ".") -> ChangelogStream:
        """The stream over ``source``."""
        return ChangelogStream(self, source)


class ChangelogStream(RowStream):
    """Update t is the t-th good row that has an operation; those to be ignored are passed over (``source.op_values``).

    A delete needs the id only; its other columns are ignored and may be null. A query needs the features only, a
    delete by value (``delete_value``: the oldest live example equal to the row) the features and the label.
    """

    changelog = True

    def __init__(self, options: Changelog, source: Source) -> None:
        super().__init__(options, source)
        self.delayed = options.delayed_labels

    def _next(self, size: int) -> UpdateBatch | None:
        rows = self._reader.peek(self._reader.available(size))
        if rows.op is None:
            self._reader.finish()
            return None
        if self._seq < self.warmup:
            size = self._inserts_first(rows.op, *self.source.where(int(rows.row[0])))
        rows = self._reader.take(min(size, len(rows)))
        op, ids = np.asarray(rows.op), rows.id
        if self._text_ids is not None and rows.names is not None:
            names = rows.names.copy()
            names[~WITH_ID[op] & ~((op == QUERY) & self.delayed)] = None
            ids = self._text_ids.give(names, op)
        carries = CARRIES_ROW[op]
        return self._batch(op, ids, rows if carries.all() else rows[carries], rows.row)
