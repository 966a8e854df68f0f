"""Stream model ``deletion_log``: every row of the source is inserted, and a second file says what to delete and when.

Its columns are ``id`` or ``subject``, by these names or the source's, and ``after``: the deletion takes effect when so
many rows of the source, bad ones included, have been passed; null: all (``docs/reference/change-logs.md``). Deletions
due at the same place come in the order of the log, each as one update, which the model refuses if the id is not live
then; a subject without a live row is a bad row of the log. A log that cannot be read completely is an error whatever
``on_error`` says: a request to delete must not be passed over in silence.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from raydt.arrays.types import Ints
from raydt.encoding.columns import (
    beyond_int64,
    id_kind,
    id_values,
    in_words,
    is_text,
    missing,
    numbers,
    parse,
    parse_integers,
    unlike_integers,
    whole_ids,
)
from raydt.errors import ConfigError, InputError, message_of
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.messages import message
from raydt.redaction import quoted, quoted_columns
from raydt.sources.base import Rows, Source
from raydt.sources.files.datafile import DataFile
from raydt.sources.files.formats import USUAL, Dialect, find_kind, open_file
from raydt.streams.base import Skipped
from raydt.streams.row_stream import RowStream, RowStreamOptions

_AT_END = int(np.iinfo(np.int64).max)


class DeletionLog(RowStreamOptions):
    """Rows are inserted; the file ``deletion_log`` says what to delete and when."""

    model: Literal["deletion_log"] = "deletion_log"
    deletion_log: str = Field(
        description="file of the ids, or subjects, to delete: columns id or subject and, optionally, after"
    )

    def make(self, source: Source, base_dir: str | Path = ".") -> DeletionLogStream:
        """The stream over ``source``, which may have its log; the log's path is relative to ``base_dir``."""
        log = getattr(source, "log", None)
        return DeletionLogStream(self, source, log or LoggedDeletions(self.deletion_log, base_dir, LogKeys.of(source)))


class LogKeys(NamedTuple):
    """What a log may name: ids and subjects, each by its kind and by the name of its column in the source."""

    id_kind: str  #: ``row``, ``integer`` or ``text``.
    id: str | None = None
    subject_kind: str | None = None  #: ``integer`` or ``text``; None where no row has a subject.
    subject: str | None = None
    dialect: Dialect = USUAL  #: Of the source's files.

    @classmethod
    def of(cls, source: Source) -> LogKeys:
        """Return those of a source."""
        dialect = getattr(source, "dialect", USUAL)
        return cls(source.id_kind, source.id_column, source.subject_kind, source.subject_column, dialect)

    @property
    def of_ids(self) -> list[str]:
        """Names that a column of ids may have."""
        return ["id"] if self.id in (None, "id") else ["id", str(self.id)]

    @property
    def of_subjects(self) -> list[str]:
        """Names that a column of subjects may have."""
        if self.subject_kind is None:
            return []
        names = dict.fromkeys(["subject", self.subject or "subject"])
        return [name for name in names if name not in self.of_ids or name == self.subject]


class LoggedDeletions:
    """A log in memory, in the order in which it takes effect.

    ``what`` and ``owner`` are what messages call the file, and whose ids it holds. ``ids``, or subjects if the file
    names these (``by_subject``), are by row of the file; ``column`` is the one that holds them. ``after``, shape (n,),
    ascends, the largest int64 for the end; ``row`` is the row of the file of each entry of it.
    """

    def __init__(
        self,
        path: str | DataFile,
        base_dir: str | Path,
        keys: LogKeys,
        what: str = "deletion log",
        owner: str = "source",
    ) -> None:
        self._owner, self._what = owner, what
        self.file = path if isinstance(path, DataFile) else self._opened(path, base_dir, keys)
        self.by_subject, self.column = self._find_column(keys)
        kind = str(keys.subject_kind) if self.by_subject else keys.id_kind
        columns = [self.column, *(["after"] if "after" in self.file.names else [])]
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
            column = self._ids(self._read(batch, self.column, seen), kind, seen)
            if "after" in columns:
                after.append(self._positions(self._read(batch, "after", seen), seen))
            else:
                after.append(np.full(batch.num_rows, _AT_END))
            self.ids += column.to_pylist()
        when = np.concatenate(after)
        self.row = np.argsort(when, kind="stable")
        self.after = when[self.row]

    @cached_property
    def described(self) -> dict[str, Any]:
        """The file, as it was when this was asked for first."""
        return self.file.described(len(self.ids))

    @property
    def name(self) -> str:
        """How messages call the file."""
        return str(self.file.name)

    def _opened(self, path: str, base_dir: str | Path, keys: LogKeys) -> DataFile:
        form, places = find_kind(path, base_dir, dialect=keys.dialect)
        if len(places) > 1:
            raise InputError(message("streams.many_logs", files=len(places), what=self._what), file=path)
        texts = [*(keys.of_ids if keys.id_kind == "text" else ())]
        texts += keys.of_subjects if keys.subject_kind == "text" else ()
        return open_file(form, places[0], as_text=tuple(texts), dialect=keys.dialect)

    def _find_column(self, keys: LogKeys) -> tuple[bool, str]:
        """Return whether the file names subjects, and the column that holds these or the ids."""
        ids, subjects = ([n for n in names if n in self.file.names] for names in (keys.of_ids, keys.of_subjects))
        if ids and subjects:
            raise self._error("ids_and_subjects", subjects[0], ids=quoted_columns(ids[:1]))
        if not ids and not subjects:
            if keys.subject_kind is None and "subject" in self.file.names:
                raise self._error("no_subjects", "subject")
            raise self._error("no_id_column", "id", columns=quoted_columns(self.file.names))
        return bool(subjects), (subjects or ids)[0]

    def _check_ids(self, kind: str) -> None:
        stored = self.file.schema.field(self.column).type
        found = id_kind(stored)
        if found == kind or (found, kind) in (("integer", "row"), ("text", "integer")):
            return
        if self.column in self.file.untyped or not self.file.count():
            return  # there is no id; the error names its row
        wanted = {"text": "text", "integer": "integers", "row": "its row numbers, since source.id is not set"}[kind]
        remedy = f"Correct the {self._what}"
        if kind == "row":
            remedy = "Set source.id to the column of the source that holds these ids"
        raise self._error("other_ids", self.column, found=in_words(stored), wanted=wanted, remedy=remedy)

    def _ids(self, column: pa.Array, kind: str, row: int) -> pa.Array:
        """Ids of the kind of the source's, none missing; ``row`` is that of the first."""
        column = given = id_values(column)
        lost = missing(column)
        if lost is not None:
            raise self._error("no_id", self.column, row + int(np.argmax(lost)))
        if is_text(column.type) and kind == "integer":
            whole, wrong = parse(column, pa.int64())
            # Arrow reads 0x10 as a number; an id is written in decimal digits.
            strange = ~np.asarray(pc.match_substring_regex(column, r"^\s*-?[0-9]+\s*$"))
            if wrong is not None:
                strange |= wrong
            if strange.any():
                position = int(np.argmax(strange))
                text = column[position].as_py()
                raise self._error("not_integer", self.column, row + position, value=quoted(text, 40))
            return whole
        if pa.types.is_floating(column.type):
            column, wrong = whole_ids(column)
            if wrong is not None:
                position = int(np.argmax(wrong))
                raise self._error("not_integer", self.column, row + position, value=given[position].as_py())
        wide = beyond_int64(column)
        if wide is not None:
            raise self._error("wide_id", self.column, row + int(np.argmax(wide)))
        return column

    def _read(self, batch: pa.RecordBatch, name: str, row: int) -> pa.Array:
        column, kind = batch.column(name), self.file.schema.field(name).type
        if not is_text(column.type) or is_text(kind):
            return column
        if name == self.column:  # Arrow reads 0x10 as a number; an id is written in decimal digits
            unlike = unlike_integers(column, padded=True)
            column, wrong = parse_integers(column)
            wrong = wrong if unlike is None else unlike if wrong is None else wrong | unlike
        else:
            column, wrong = parse(column, kind)
        if wrong is not None:
            position = int(np.argmax(wrong))
            text = batch.column(name)[position].as_py()
            what = "not_integer" if name == self.column else "other_kind"
            raise self._error(what, name, row + position, value=quoted(text, 40), kind=in_words(kind))
        return column

    def _positions(self, column: pa.Array, row: int) -> Ints:
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


class Log(Protocol):
    """What a stream asks of a log, which may grow while the stream is read."""

    by_subject: bool
    column: str
    #: Ids, or subjects, by row of the file.
    ids: Any
    #: ``after``, shape (n,), ascends; ``row`` is the row of the file of each entry of it.
    after: Ints
    row: Ints

    @property
    def name(self) -> str:
        """How messages call the file."""

    @property
    def described(self) -> dict[str, Any]:
        """The file, as it was when this was asked for first."""


class DeletionLogStream(RowStream):
    """Inserts the rows in order, and each deletion of the log as soon as ``after`` rows have been passed.

    A log that cannot be read completely is an InputError.
    """

    def __init__(self, options: DeletionLog, source: Source, log: Log) -> None:
        self._log = log
        self.chooses_deletes = self._log.by_subject  # so that an id leads to one row, and to one subject
        super().__init__(options, source)
        self._done = 0

    def _next(self, size: int) -> UpdateBatch | None:
        if self._log.by_subject:
            return self._next_by_subject(size)
        log = self._log
        available = self._reader.available(size)
        while self._seq == 0 < self.warmup and self._is_due():
            self._pass_over(self._before_first(DELETE, file=log.name, row=int(log.row[self._done])))
        rows = self._reader.peek(available)
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
            if not (inserts := self._cut_warmup(op)):
                return self._next(size)
            op = op[:inserts]
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

    def _next_by_subject(self, size: int) -> UpdateBatch | None:
        """Return the next updates: the rows before the next deletion, or of its subject the rows that are left."""
        log, subjects = self._log, self._subjects
        assert subjects is not None
        available = self._available(size)
        while self._is_due():
            row = int(log.row[self._done])
            ids, _, _ = subjects.rows_of([log.ids[row]])
            if len(ids):
                op = np.full(min(size, len(ids)), DELETE, dtype=np.int8)
                if self._seq < self.warmup:
                    self._cut_warmup(op)
                self._done += len(ids) <= size
                return self._spread(op, self._reader.peek(0), ids[:size], -2 - row)
            said = message("streams.no_subject", subject=quoted(log.ids[row], 40))
            self._pass_over(InputError(said, file=log.name, row=row, column=log.column))
            available = self._available(size)
        rows = self._peek(available)
        if self._done < len(log.after):
            rows = rows[: int(np.searchsorted(rows.row, log.after[self._done], side="left"))]
        if not len(rows):
            self._reader.finish()
            return None
        rows = self._take(len(rows))
        return self._batch(np.full(len(rows), INSERT, dtype=np.int8), rows.id, rows, rows.row)

    def _is_due(self) -> bool:
        """Return True if the next deletion comes before the next row; rows have been looked for."""
        return self._done < len(self._log.after) and bool(self._log.after[self._done] <= self._reader.horizon(0))

    def _pass_over(self, error: InputError) -> None:
        """Pass over the next entry of the log, which is bad."""
        if not self._skip_bad:
            raise error
        self._done += 1
        reason = message_of(error.without_skipping())
        self._reader.skipped.append(Skipped(self._reader.position, self._log.name, reason))

    def _deletes_before(self, row: Rows) -> bool:
        """Return True if the log deletes a subject before the next row, whose id is live, is inserted."""
        return self._done < len(self._log.after) and bool(self._log.after[self._done] <= row.row[0])

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it: of the log for its deletions (``row`` = -2 - row of the log), else of the source."""
        return (self._log.name, -2 - row) if row < -1 else super().where(row)

    @property
    def deletions(self) -> int:
        """Entries of the log."""
        return len(self._log.ids)

    def length(self) -> int | None:
        """Rows and deletions: of a subject there are as many as it has rows."""
        n = self.source.n_rows
        return None if n is None else n + (n if self._log.by_subject else len(self._log.ids))

    def inputs(self) -> dict[str, Any]:
        """The log, as it was when this was called first."""
        return {"deletion_log": self._log.described}

    def state(self) -> dict[str, Any]:
        """Position, dictionaries, deletions done, and a hash of the log."""
        return {**super().state(), "deletions": self._done, "log": self.inputs()["deletion_log"]["sha256"]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position; it is a ConfigError if it belongs to another log."""
        if state["log"] != self.inputs()["deletion_log"]["sha256"]:
            raise ConfigError(message("streams.changed_log", file=self._log.name))
        super().restore(state)
        self._done = int(state["deletions"])
