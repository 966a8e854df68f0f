"""Stream model ``changelog``: the rows of the source are themselves inserts, deletes, updates and queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from raydt.arrays.types import Bools, Ints
from raydt.examples.updates import CARRIES_ROW, DELETE, INSERT, QUERY, WITH_ID, UpdateBatch
from raydt.sources.base import Rows, Source
from raydt.streams.absent import AbsentRows, restored_ids, saved_ids
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
        #: Says of an id whether a receipt shows it as erased: that its example is not live is no fault then.
        self.erased: Callable[[Any], bool] | None = None
        self._warm: set[Any] | None = set()  # ids that the warm-up has inserted; None: not known, or it is over

    def _next(self, size: int) -> UpdateBatch | None:
        wanted = size
        rows = self._reader.peek(self._reader.available(size))
        while rows.op is not None and self._seq < self.warmup and self._passes_over(rows[:1]):
            rows = self._reader.peek(self._reader.available(size))
        if rows.op is None:
            self._reader.finish()
            self.absent.follow(rows, self._reader.take_spoilt())
            return None
        if self._seq < self.warmup:
            op, _ = self.absent.preview(rows, self._reader.spoilt_ahead())
            if not (size := self._cut_warmup(op)):
                return self._next(wanted)
        rows = self._reader.take(min(size, len(rows)))
        op, tolerated = self.absent.follow(rows, self._reader.take_spoilt())
        if self.erased is not None:
            tolerated = _with_erased(rows, op, tolerated, self.erased)
        ids = rows.id
        if self._text_ids is not None and rows.names is not None:
            names = rows.names.copy()
            names[~WITH_ID[op] & ~((op == QUERY) & self.delayed)] = None
            ids = self._text_ids.give(names, op)
        if self._seq >= self.warmup:
            self._warm = None
        elif self._warm is not None:
            self._warm |= _names(rows)
        carries = CARRIES_ROW[op]
        batch = self._batch(op, ids, rows if carries.all() else rows[carries], rows.row)
        return batch if tolerated is None else replace(batch, tolerated=tolerated)

    def _passes_over(self, row: Rows) -> bool:
        """Pass over a row within the warm-up that takes nothing away, and return True.

        That is one that deletes what is not there, since its newest state was bad, and any operation before the first
        insertion: InputError unless bad rows are skipped.
        """
        op, tolerated = self.absent.preview(row, self._reader.spoilt_ahead())
        if tolerated is not None and self._warm is not None and self._warm.isdisjoint(_names(row)):
            self.absent.follow(self._reader.take(1), self._reader.take_spoilt())
            return True
        if self._seq or op[0] == INSERT:
            return False
        file, line = self.source.where(int(row.row[0]))
        error = self._before_first(int(op[0]), file=file, row=line)
        if not self._skip_refused:
            raise error
        self._reader.skip(error)
        return True

    def state(self) -> dict[str, Any]:
        """As of every stream, the rows that are absent, and ids that an unfinished warm-up has inserted."""
        warm = {"warm": saved_ids(self._warm)} if self._warm and self._seq < self.warmup else {}
        return {**super().state(), **self.absent.state(), **warm}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        super().restore(state)
        self.absent.restore(state)
        self._warm = None if self._seq and "warm" not in state else set(restored_ids(state.get("warm", ())))

    def follow_update(
        self,
        deleted: Ints,
        inserted: Ints,
        updates: int,
        names: Mapping[str, Any],
        n_classes: int,
    ) -> None:
        """Continue after updates from elsewhere, which say what is absent now."""
        gone = self.names_of(deleted)
        super().follow_update(deleted, inserted, updates, names, n_classes)
        self.absent.restore(names)
        if self._warm is not None:
            self._warm = self._warm.difference(gone).union(self.names_of(inserted))


def _with_erased(
    rows: Rows, op: npt.NDArray[np.int8], tolerated: Bools | None, erased: Callable[[Any], bool]
) -> Bools | None:
    """Tolerate also the deletions of erased ids."""
    deleted = np.flatnonzero(op == DELETE)
    names = (rows.id if rows.names is None else rows.names)[deleted].tolist()
    done = deleted[[at for at, name in enumerate(names) if erased(name)]]
    if len(done):
        tolerated = np.zeros(len(op), dtype=np.bool_) if tolerated is None else tolerated
        tolerated[done] = True
    return tolerated


def _names(rows: Rows) -> set[Any]:
    """Return the ids of rows as the source has them."""
    return set(rows.id.tolist() if rows.names is None else rows.names.tolist())
