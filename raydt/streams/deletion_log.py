"""Stream model ``deletion_log``: every row of the source is inserted, and a second file says what to delete and when.

Its columns are ``id`` or ``subject``, by these names or the source's, and ``after``: the deletion takes effect when so
many rows of the source, bad ones included, have been passed; null: all (``docs/reference/change-logs.md``). Deletions
due at the same place come in the order of the log, each as one update, which the model refuses if the id is not live
then; a subject without a live row is a bad row of the log. A log that cannot be read completely is an error whatever
``on_error`` says: a request to delete must not be passed over in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from raydt.arrays.elementary import Bools, Ints, below_at, stream_key, uniform, uniform_at
from raydt.arrays.kernel import kernel
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
from raydt.examples.updates import CARRIES_ROW, DELETE, INSERT, QUERY, WITH_ID, UpdateBatch
from raydt.messages import message, quoted, quoted_columns
from raydt.sources.base import Rows, Source
from raydt.sources.files.datafile import DataFile
from raydt.sources.files.jsonl import USUAL, Dialect, find_kind, open_file
from raydt.streams.base import Skipped
from raydt.streams.row_stream import AbsentRows, RowStream, RowStreamOptions, restored_ids, saved_ids

_AT_END = int(np.iinfo(np.int64).max)


class DeletionLog(RowStreamOptions):
    """Rows are inserted; the file ``deletion_log`` says what to delete and when."""

    in_order = False
    model: Literal["deletion_log"] = "deletion_log"
    deletion_log: str = Field(
        description="file of the ids, or subjects, to delete: columns id or subject and, optionally, after"
    )

    def make(self, source: Source, base_dir: str | Path = ".") -> DeletionLogStream:
        """The stream over ``source``, which may have its log; the log's path is relative to ``base_dir``."""
        log = getattr(source, "log", None)
        return DeletionLogStream(self, source, log or LoggedDeletions(self.deletion_log, base_dir, LogKeys.of(source)))


class LogKeys(NamedTuple):
    """The columns that a log may name: ids and subjects, by their kind and by their name in the source."""

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
        """The name of the file in messages."""
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
    """The questions of a stream to a log, which may grow while the stream is read."""

    by_subject: bool
    column: str
    #: Ids, or subjects, by row of the file.
    ids: Any
    #: ``after``, shape (n,), ascends; ``row`` is the row of the file of each entry of it.
    after: Ints
    row: Ints

    @property
    def name(self) -> str:
        """The name of the file in messages."""

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


# Stream model ``changelog``: the rows of the source are themselves inserts, deletes, updates and queries.


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
    the source no longer (:mod:`raydt.streams.row_stream`).
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
        self._previous.enter(rows, op, ids)
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


# Stream model ``random_updates``: inserts and deletes of random examples, by a coin.
#
# (The program released with the paper always deletes the smallest point; here it is drawn uniformly.)


class RandomUpdates(RowStreamOptions):
    """Insert the next row with ``insert_probability``, else delete a live example drawn uniformly."""

    model: Literal["random_updates"] = "random_updates"
    insert_probability: float = Field(
        0.5, ge=0.0, le=1.0, description="probability that an update is an insert, else it is a delete (p)"
    )
    seed: int = Field(7, description="seed of the draws; any integer")

    def make(self, source: Source, base_dir: str | Path = ".") -> RandomUpdatesStream:
        """The stream over ``source``."""
        return RandomUpdatesStream(self, source)


class Chance(NamedTuple):
    """Keys of the coin and of the choice among active ids, probability of an insert, and where the warm-up ends."""

    coin: np.uint64
    pick: np.uint64
    insert: float
    warmup: int


@kernel
def _draw(chance: Any, seq: int, ids: Any, active: Any, n_active: int, op: Any, deleted: Any) -> tuple[int, int, int]:
    """Draw updates ``seq``, ``seq + 1``, ... while a row remains and ``op`` has room.

    Returns how many updates, how many of them inserts, and how many active ids.

    ``active[:n_active]`` is the list of active ids: an insert appends, a delete moves the last one into the gap.
    """
    taken, m = 0, 0
    while m < len(op) and taken < len(ids):
        t = seq + m
        if n_active == 0 or t < chance.warmup or uniform_at(chance.coin, t) < chance.insert:
            op[m] = INSERT
            active[n_active] = ids[taken]
            n_active += 1
            taken += 1
        else:
            op[m] = DELETE
            drawn = below_at(chance.pick, t, n_active)
            deleted[m - taken] = active[drawn]
            n_active -= 1
            active[drawn] = active[n_active]
        m += 1
    return m, taken, n_active


class RandomUpdatesStream(RowStream):
    """Update t is an insert if nothing is active, t < warmup, or the coin of t says so; else a delete.

    Coin and choice are pure functions of (seed, t). The stream ends with the insert of the last row. O(1) per update.
    """

    chooses_deletes = True

    def __init__(self, options: RandomUpdates, source: Source) -> None:
        super().__init__(options, source)
        self._p = options.insert_probability
        self._coin = stream_key(options.seed, "random_updates coin")
        self._pick = stream_key(options.seed, "random_updates pick")
        self._active = np.empty(0, dtype=np.int64)
        self._n_active = 0

    def _next(self, size: int) -> UpdateBatch | None:
        available = self._available(size)
        if not available:
            self._reader.finish()
            return None
        ids = self._peek(available).id
        if self._live is not None and int(ids[0]) in self._live:
            size = 1  # a delete, after which the row is looked at again
        if self._n_active + available > len(self._active):
            grown = np.empty(2 * (self._n_active + available), dtype=np.int64)
            grown[: self._n_active] = self._active[: self._n_active]
            self._active = grown
        op = np.empty(size, dtype=np.int8)
        deleted = np.empty(size, dtype=np.int64)
        chance = Chance(self._coin, self._pick, self._p, self.warmup)
        drawn = _draw(chance, self._seq - self._foreign, ids, self._active, self._n_active, op, deleted)
        m, taken, self._n_active = drawn
        return self._spread(op[:m], self._take(taken), deleted[: m - taken])

    def _deletes_before(self, row: Rows) -> bool:
        """Return True if the next update is a delete."""
        at = np.array([self._seq - self._foreign])
        return self._n_active > 0 and self._seq >= self.warmup and bool(uniform(self._coin, at)[0] >= self._p)

    def length(self) -> None:
        """Not known in advance."""

    def state(self) -> dict[str, Any]:
        """Position, dictionaries, and the list of active ids in its order."""
        return {**super().state(), "active": self._active[: self._n_active].copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        super().restore(state)
        self._active = state["active"].astype(np.int64)
        self._n_active = len(self._active)


def warmup() -> None:
    """Compile the kernel once, so that processes started later load it from Numba's cache."""
    key = stream_key(0, "warmup")
    ids, op = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int8)
    _draw(Chance(key, key, 0.5, 0), 0, ids, ids.copy(), 0, op, ids.copy())
