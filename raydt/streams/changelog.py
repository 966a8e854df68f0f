"""Stream model ``changelog``: the rows of the source are themselves inserts, deletes, updates and queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from raydt.arrays.types import Ints
from raydt.encoding.operations import RETRACTION
from raydt.examples.updates import CARRIES_ROW, DELETE, QUERY, WITH_ID, UpdateBatch
from raydt.sources.base import Source
from raydt.streams.absent import AbsentRows
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

    An update is both halves or none. Under ``on_error: skip`` one whose new row is bad deletes its old row, which is in
    the source no longer (:mod:`raydt.streams.absent`).
    """

    changelog = True

    def __init__(self, options: Changelog, source: Source) -> None:
        super().__init__(options, source)
        self.delayed = options.delayed_labels
        self.absent = AbsentRows()

    def _next(self, size: int) -> UpdateBatch | None:
        rows = self._reader.peek(self._reader.available(size))
        if rows.op is None:
            self._reader.finish()
            self.absent.follow(rows, self._reader.take_spoilt())
            return None
        if self._seq < self.warmup:
            op = np.where(rows.op == RETRACTION, np.int8(DELETE), rows.op)
            size = self._inserts_first(op, *self.source.where(int(rows.row[0])))
        rows = self._reader.take(min(size, len(rows)))
        op, tolerated = self.absent.follow(rows, self._reader.take_spoilt())
        ids = rows.id
        if self._text_ids is not None and rows.names is not None:
            names = rows.names.copy()
            names[~WITH_ID[op] & ~((op == QUERY) & self.delayed)] = None
            ids = self._text_ids.give(names, op)
        carries = CARRIES_ROW[op]
        batch = self._batch(op, ids, rows if carries.all() else rows[carries], rows.row)
        return batch if tolerated is None else replace(batch, tolerated=tolerated)

    def state(self) -> dict[str, Any]:
        """As of every stream, and the rows that are absent."""
        return {**super().state(), **self.absent.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        super().restore(state)
        self.absent.restore(state)

    def follow_update(
        self,
        deleted: Ints,
        inserted: Ints,
        updates: int,
        names: Mapping[str, Any],
        n_classes: int,
    ) -> None:
        """Continue after updates from elsewhere, which say what is absent now."""
        super().follow_update(deleted, inserted, updates, names, n_classes)
        self.absent.restore(names)
