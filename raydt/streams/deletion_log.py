"""Stream model ``deletion_log``: every row of the source is inserted, and a second file says what to delete and when.

The log is a Parquet, Arrow or CSV file with these columns; others are ignored, and so is the order of the columns.

========  ==================================================================================================
column    meaning
========  ==================================================================================================
id        Id of the example to delete: text if ``source.id`` is text; integers, also written as text, if it is
          integers; the row number where it is not set
after     Optional. The deletion takes effect when so many rows of the source have been passed (counted over
          all files, bad rows included): after row ``after`` - 1, before row ``after``. Null, an absent
          column, or a number beyond the end: after all rows
========  ==================================================================================================

Deletions due at the same place come in the order of the log. Each is one update. An id that is not live then, because
it was never inserted, is already deleted, or comes later, is an update that the model refuses (unknown id).

A log that cannot be read completely is an error whatever ``on_error`` says: a request to delete must not be passed
over in silence.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from raydt.encoding.columns import beyond_int64, id_kind, id_values, in_words, is_text, missing, numbers, parse
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.messages import message
from raydt.redaction import quoted, quoted_columns
from raydt.sources.base import Source
from raydt.sources.files.formats import find_kind, open_file
from raydt.streams.row_stream import RowStream, RowStreamOptions

_AT_END = int(np.iinfo(np.int64).max)


class DeletionLog(RowStreamOptions):
    """Rows are inserted; the file ``deletion_log`` says what to delete and when."""

    model: Literal["deletion_log"] = "deletion_log"
    deletion_log: str = Field(description="file of the ids to delete: columns id and, optionally, after")

    def make(self, source: Source, base_dir: str | Path = ".") -> DeletionLogStream:
        """The stream over ``source``; the log's path is relative to ``base_dir``."""
        return DeletionLogStream(self, source, base_dir)


class LoggedDeletions:
    """A log in memory, in the order in which it takes effect.

    ``kind`` is that of the ids: ``row``, ``integer`` or ``text``; ``what`` and ``owner`` are what messages call the
    file, and whose ids it holds. ``ids`` are by row of the file. ``after``, shape (n,), ascends, the largest int64 for
    the end; ``row`` is the row of the file of each entry of it.
    """

    def __init__(
        self, path: str, base_dir: str | Path, kind: str, what: str = "deletion log", owner: str = "source"
    ) -> None:
        self._owner, self._what = owner, what
        form, places = find_kind(path, base_dir)
        if len(places) > 1:
            raise InputError(message("streams.many_logs", files=len(places), what=what), file=path)
        self.file = open_file(form, places[0], as_text=("id",) if kind == "text" else ())
        columns = [name for name in ("id", "after") if name in self.file.names]
        if "id" not in columns:
            raise self._error("no_id_column", "id", columns=quoted_columns(self.file.names))
        for name in columns:
            if self.file.names.count(name) > 1:
                raise self._error("repeated_column", name)
        self._check_ids(kind)
        self.ids: list[Any] = []
        after = [np.empty(0, dtype=np.int64)]
        for batch in self.file.batches(columns, 0, 1 << 16):
            seen = len(self.ids)
            if self.file.flaws:
                flaw = self.file.flaws[min(self.file.flaws)]
                raise flaw.but(remedy=f"Correct the {what}")
            column = self._ids(self._read(batch, "id", seen), kind, seen)
            if "after" in columns:
                after.append(self._positions(self._read(batch, "after", seen), seen))
            else:
                after.append(np.full(batch.num_rows, _AT_END))
            self.ids += column.to_pylist()
        when = np.concatenate(after)
        self.row = np.argsort(when, kind="stable")
        self.after = when[self.row]

    def _check_ids(self, kind: str) -> None:
        stored = self.file.schema.field("id").type
        found = id_kind(stored)
        if found == kind or (found, kind) in (("integer", "row"), ("text", "integer")):
            return
        if "id" in self.file.untyped or not self.file.count():
            return  # there is no id; the error names its row
        wanted = {"text": "text", "integer": "integers", "row": "its row numbers, since source.id is not set"}[kind]
        remedy = f"Correct the {self._what}"
        if kind == "row":
            remedy = "Set source.id to the column of the source that holds these ids"
        raise self._error("other_ids", "id", found=in_words(stored), wanted=wanted, remedy=remedy)

    def _ids(self, column: pa.Array, kind: str, row: int) -> pa.Array:
        """Ids of the kind of the source's, none missing; ``row`` is that of the first."""
        column = id_values(column)
        lost = missing(column)
        if lost is not None:
            raise self._error("no_id", "id", row + int(np.argmax(lost)))
        if is_text(column.type) and kind == "integer":
            whole, wrong = parse(column, pa.int64())
            # Arrow reads 0x10 as a number; an id is written in decimal digits.
            strange = ~np.asarray(pc.match_substring_regex(column, r"^\s*-?[0-9]+\s*$"))
            if wrong is not None:
                strange |= wrong
            if strange.any():
                position = int(np.argmax(strange))
                text = column[position].as_py()
                raise self._error("not_integer", "id", row + position, value=quoted(text, 40))
            return whole
        wide = beyond_int64(column)
        if wide is not None:
            raise self._error("wide_id", "id", row + int(np.argmax(wide)))
        return column

    def _read(self, batch: pa.RecordBatch, name: str, row: int) -> pa.Array:
        column, kind = batch.column(name), self.file.schema.field(name).type
        if not is_text(column.type) or is_text(kind):
            return column
        column, wrong = parse(column, kind)
        if wrong is not None:
            position = int(np.argmax(wrong))
            text = batch.column(name)[position].as_py()
            raise self._error("other_kind", name, row + position, value=quoted(text, 40), kind=in_words(kind))
        return column

    def _positions(self, column: pa.Array, row: int) -> npt.NDArray[np.int64]:
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            raise self._error("no_positions", "after", kind=in_words(kind))
        value = numbers(column)
        absent = np.isnan(value)
        wrong = ~absent & ((value < 0) | (value != np.floor(value)))
        if wrong.any():
            raise self._error("not_position", "after", row + int(np.argmax(wrong)))
        return np.where(absent, _AT_END, np.minimum(np.where(absent, 0, value), 2.0**62).astype(np.int64))

    def _error(self, name: str, column: str, row: int | None = None, **parameters: Any) -> InputError:
        said = message(f"streams.{name}", what=self._what, owner=self._owner, **parameters)
        return InputError(said, file=self.file.name, column=column, row=row)


class DeletionLogStream(RowStream):
    """Inserts the rows in order, and each deletion of the log as soon as ``after`` rows have been passed.

    A log that cannot be read completely, or begins in the warm-up, is an InputError.
    """

    def __init__(self, options: DeletionLog, source: Source, base_dir: str | Path = ".") -> None:
        super().__init__(options, source)
        self._log = LoggedDeletions(options.deletion_log, base_dir, source.id_kind)
        self._done = 0
        self._described: dict[str, Any] = {}
        self._require_after_warmup()

    def _next(self, size: int) -> UpdateBatch | None:
        log = self._log
        rows = self._reader.peek(self._reader.available(size))
        # Everything due before the row that follows these: a deletion sorts before the first row >= its `after`.
        due = int(np.searchsorted(log.after, self._reader.horizon(len(rows)), side="right"))
        after = log.after[self._done : min(due, self._done + size)]
        length = min(size, len(rows) + len(after))
        if not length:
            self._reader.finish()
            return None
        op = np.full(len(rows) + len(after), INSERT, dtype=np.int8)
        op[np.searchsorted(rows.row, after, side="left") + np.arange(len(after))] = DELETE
        op = op[:length]
        if self._seq < self.warmup and len(after):
            op = op[: self._inserts_first(op, log.file.name, int(log.row[self._done]))]
        deletes = int(np.count_nonzero(op))
        done, self._done = self._done, self._done + deletes
        row = log.row[done : self._done]
        names = np.array([*(log.ids[i] for i in row.tolist()), None], dtype=np.object_)[:-1]
        rows = self._reader.take(len(op) - deletes)
        if self._text_ids is None or rows.names is None:
            return self._spread(op, rows, names.astype(np.int64), -2 - row)
        every = np.empty(len(op), dtype=np.object_)
        every[op == INSERT], every[op == DELETE] = rows.names, names
        ids = self._text_ids.give(every, op, logged=True)
        batch = self._spread(op, replace(rows, id=ids[op == INSERT]), ids[op == DELETE], -2 - row)
        return replace(batch, names=every.tolist())

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it: of the log for its deletions (``row`` = -2 - row of the log), else of the source."""
        return (self._log.file.name, -2 - row) if row < -1 else super().where(row)

    def _require_after_warmup(self) -> None:
        """Raise an InputError about the first deletion that is surely due in the warm-up, before any row is read.

        Bad rows that are passed over make the warm-up longer: a deletion that only they move into it is refused by
        :meth:`_next`, when they have been read.
        """
        if len(self._log.after) and self._log.after[0] < self.warmup:
            after = quoted(int(self._log.after[0]))
            raise InputError(
                message("streams.early_deletion", after=after, warmup=self.warmup),
                file=self._log.file.name,
                column="after",
                row=int(self._log.row[0]),
            )

    @property
    def deletions(self) -> int:
        """Entries of the log."""
        return len(self._log.ids)

    def length(self) -> int | None:
        """Rows and deletions."""
        n = self.source.n_rows
        return None if n is None else n + len(self._log.ids)

    def inputs(self) -> dict[str, Any]:
        """The log, as it was when this was called first."""
        if not self._described:
            self._described = self._log.file.described(len(self._log.ids))
        return {"deletion_log": self._described}

    def state(self) -> dict[str, Any]:
        """Position, dictionaries, deletions done, and a hash of the log."""
        return {**super().state(), "deletions": self._done, "log": self.inputs()["deletion_log"]["sha256"]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position; it is a ConfigError if it belongs to another log."""
        if state["log"] != self.inputs()["deletion_log"]["sha256"]:
            raise ConfigError(message("streams.changed_log", file=self._log.file.name))
        super().restore(state)
        self._done = int(state["deletions"])
