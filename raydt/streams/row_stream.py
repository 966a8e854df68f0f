"""Base of the stream models: numbering, class counts, warm-up, bad rows, and the state they share.

Invariant: between two batches the state is a function of the updates handed out so far, not of how they were cut into
batches, how the source is chunked or how far it was read ahead. A model that chooses itself what to delete inserts no
id that is live, so that what it deletes is what it inserted: a row with such an id is bad. What ``on_error`` says about
bad rows decides how far the updates go, and none of them: up to where a stream stops or waits, they are those of a
stream that skips. So it may change whenever a run is resumed, and whoever reads a run again skips.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import Bools, Floats, Ints
from raydt.encoding.columns import number_of
from raydt.encoding.labels import IGNORED, RETRACTION
from raydt.errors import ConfigError, InputError, message_of
from raydt.examples.store import Subjects
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    DUPLICATE_ID,
    INSERT,
    MOST_PREVIOUS,
    NUMBERS,
    OP_NAMES,
    QUERY,
    REFUSALS,
    UPDATE,
    UpdateBatch,
    classes_in,
    in_order,
    no_targets,
    unless_equal,
)
from raydt.messages import message, quoted
from raydt.sources.base import Rows, Source
from raydt.streams.base import Skipped, Stream
from raydt.streams.id_dictionary import IdParts, TextIds

# Rows that a source has and the model cannot: their newest state is bad, and was passed over.
#
# Invariant: the set depends on the rows before alone, not on how these were cut into batches or read ahead. With it the
# live examples are the good rows of the source. Of one row, id 7, that comes to be good, bad, bad, good and is deleted:
#
#     ====================  ==================  =====================
#     row of the log        update              absent afterwards
#     ====================  ==================  =====================
#     insert 7              insert              no
#     update 7, no label    delete              yes
#     update 7, no label    delete (tolerated)  yes
#     update 7              insert              no
#     delete 7              delete              no
#     ====================  ==================  =====================
#
# A tolerated deletion may find no live example, which is no fault then. It is an update all the same, and not left out,
# so that a log that inserts an id twice loses no deletion.


class Spoilt(NamedTuple):
    """A bad row of an insertion."""

    row: int  #: Its number over all files.
    id: Any


class AbsentRows:
    """The ids of such rows, as the source names them; O(1) for each row of the log."""

    def __init__(self) -> None:
        self._ids = set[Any]()

    def follow(self, rows: Rows, spoilt: Sequence[Spoilt]) -> tuple[npt.NDArray[np.int8], Bools | None]:
        """Take the next rows of a log and the bad insertions before the last of them, or at the end, into account.

        Return the operations as updates of the model, and which deletions are tolerated (None: none).
        """
        if rows.op is None:  # the end
            self._ids.update(one.id for one in spoilt)
            return np.empty(0, dtype=np.int8), None
        op = rows.op
        retracted = np.flatnonzero(op == RETRACTION).tolist()
        if not self._ids and not spoilt and not retracted:
            return op, None
        names = rows.id.tolist() if rows.names is None else rows.names.tolist()
        new = {one.id for one in spoilt}.union(names[at] for at in retracted)
        op, tolerated, waiting = op.copy(), np.zeros(len(op), dtype=np.bool_), deque(spoilt)
        for at in [at for at, name in enumerate(names) if name in self._ids or name in new]:
            while waiting and waiting[0].row < rows.row[at]:
                self._ids.add(waiting.popleft().id)
            name, kind = names[at], int(op[at])
            if kind == RETRACTION:
                op[at], tolerated[at] = DELETE, True
                self._ids.add(name)
            elif kind in (INSERT, UPDATE, DELETE) and name in self._ids:
                self._ids.remove(name)
                op[at], tolerated[at] = (DELETE, True) if kind == DELETE else (INSERT, False)
        self._ids.update(one.id for one in waiting)
        return op, tolerated if tolerated.any() else None

    def preview(self, rows: Rows, spoilt: Sequence[Spoilt]) -> tuple[npt.NDArray[np.int8], Bools | None]:
        """Return what :meth:`follow` would, and take nothing into account."""
        then = AbsentRows()
        then._ids = set(self._ids)
        return then.follow(rows, spoilt)

    def forget(self, erases: Callable[[Any], bool]) -> None:
        """Forget ids; an update of one of them is then refused."""
        self._ids = {id for id in self._ids if not erases(id)}

    def bring(self, ids: Iterable[Any]) -> None:
        """Note examples that somebody else has inserted."""
        self._ids.difference_update(ids)

    def state(self) -> dict[str, Any]:
        """Return the ids, ascending, as part of the state of a stream; nothing if there are none."""
        return {"absent": saved_ids(self._ids)} if self._ids else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave."""
        self._ids = set(restored_ids(state.get("absent", ())))


def saved_ids(ids: Iterable[Any]) -> Any:
    """Return ids, ascending, as values of a state."""
    ordered = sorted(ids)
    return ordered if not ordered or isinstance(ordered[0], str) else np.array(ordered, dtype=np.int64)


def restored_ids(saved: Any) -> list[Any]:
    """Return the ids of :func:`saved_ids`, ascending."""
    return list(saved.tolist() if isinstance(saved, np.ndarray) else saved)


# A cursor over the good rows of a source: reads chunks ahead, hands out any number of rows at a time.
#
# Invariant: what was read ahead does not show. ``position`` is the row after the last one handed out or passed, and a
# bad row counts as passed only when a later row is handed out or the source has ended. Rows that are no update are
# dropped and leave no trace.

#: A row number after every row.
END = int(np.iinfo(np.int64).max)

_NO_ROWS = np.empty(0, dtype=np.int64)


class RowReader:
    """Reads good rows of ``source`` from row ``start`` on.

    With ``skip_bad``, bad rows are passed over and recorded in ``skipped``, but for those before row ``recorded``,
    which have a record; else reading ends before the first one. A bad update of a change log is recorded, and handed
    out as a ``RETRACTION`` of its old row. Rows ``without``, ascending, are passed over.
    ``position`` is the row after the last one handed out or, at the end of the source, passed over.
    """

    def __init__(self, source: Source, start: int, skip_bad: bool, without: Ints = _NO_ROWS, recorded: int = 0) -> None:
        self._source, self._skip_bad = source, skip_bad
        self._without, self._recorded = without, recorded
        self.position = start
        self.skipped: list[Skipped] = []
        self._chunks: deque[Rows] = deque()
        self._used = 0  # rows of the first chunk that were handed out
        self._buffered = 0
        self._bad: deque[tuple[Skipped, Spoilt | None]] = deque()
        self._spoilt: list[Spoilt] = []
        self._rows: Iterator[Rows] | None = None
        self._divided = False  # whether the first rows may come without features
        self._read_to = start
        self._error: InputError | None = None

    def _none(self) -> Rows:
        source = self._source
        width = source.features.sparse
        return Rows(
            _NO_ROWS,
            np.empty((0, len(source.features.names))),
            no_targets(0, source.target_dtype),
            _NO_ROWS,
            sparse=SparseRows.empty(width) if width else None,
            names=np.empty(0, dtype=np.object_) if source.id_kind == "text" else None,
        )

    def available(self, n: int) -> int:
        """Return how many of the next ``n`` rows can be taken: fewer before a bad row and at the end of the source.

        Also less where rows without features, which shards have read themselves, end or begin: none if ``n`` is 0.
        """
        while self._buffered < n and self._read_to != END and self._error is None:
            if self._rows is None:
                self._rows = self._source.rows(self._read_to)
            try:
                chunk = next(self._rows, None)
            except InputError as error:  # the file breaks off: what was read before it is still good
                self._error = error
                break
            if chunk is None and not self._source.complete:  # more may come, but not now
                self._rows = None
                break
            if chunk is None:
                self._read_to = END
            elif len(chunk):
                self._append(chunk)
        return min(n, self._alike(n))

    def begin_with(self, rows: Iterator[Rows]) -> None:
        """Take the rows of the source, from the first one on, from here; nothing has been read yet."""
        self._rows, self._divided = rows, True

    def _alike(self, n: int) -> int:
        """Return how many of the first ``n`` rows at hand have features, or have none, as the first."""
        alike = -self._used
        for chunk in self._chunks:
            if alike >= n or chunk.has_features != self._chunks[0].has_features:
                break
            alike += len(chunk)
        return max(0, alike)

    def _append(self, chunk: Rows) -> None:
        rows = chunk
        self._read_to = chunk.start + len(chunk)
        if chunk.bad and not self._skip_bad:
            first = min(chunk.bad)
            self._error = chunk.bad[first]
            self._read_to = chunk.start + first
            rows = rows[:first]
        begin, end = np.searchsorted(self._without, (chunk.start, chunk.start + len(rows)))
        passed = self._without[begin:end]
        if len(passed) or (chunk.bad and self._skip_bad):
            good = np.ones(len(rows), dtype=np.bool_)
            good[passed - chunk.start] = False
            op = None if rows.op is None else rows.op.copy()
            for place in sorted(chunk.bad) if self._skip_bad else ():
                good[place] = False
                row = chunk.start + place
                if row >= self._recorded:
                    why = message_of(chunk.bad[place].without_skipping())
                    skipped, spoilt = Skipped(row, self._source.where(row)[0], why), None
                    if op is not None and op[place] == INSERT:
                        spoilt = Spoilt(row, rows.id[place].item() if rows.names is None else rows.names[place])
                    self._bad.append((skipped, spoilt))
                if op is not None and op[place] == UPDATE:
                    op[place], good[place] = RETRACTION, True
            rows = (rows if op is None else replace(rows, op=op))[good]
        if rows.op is not None and (rows.op == IGNORED).any():
            rows = rows[rows.op != IGNORED]
        if len(rows):
            self._chunks.append(rows)
            self._buffered += len(rows)

    def horizon(self, k: int) -> int:
        """Return the row before which everything is known after ``k`` more rows, the largest int64 at the end."""
        if k >= self._buffered:
            return self._read_to
        k += self._used
        for chunk in self._chunks:
            if k < len(chunk):
                break
            k -= len(chunk)
        return int(chunk.row[k])

    def peek(self, k: int) -> Rows:
        """The next ``k`` rows, which must be available, without handing them out. Views where they lie in one chunk."""
        if not k:
            return self._none()
        parts = []
        begin = self._used
        for chunk in self._chunks:
            parts.append(chunk[begin : begin + k] if begin or k < len(chunk) else chunk)
            k -= len(parts[-1])
            begin = 0
            if not k:
                break
        return Rows.joined(parts)

    def take(self, k: int) -> Rows:
        """Hand out the next ``k`` rows, which must be available."""
        taken = self.peek(k)
        self._buffered -= k
        self._used += k
        while self._chunks and self._used >= len(self._chunks[0]):
            self._used -= len(self._chunks.popleft())
        if k:
            self.position = int(taken.row[-1]) + 1
            self._pass_bad(self.position)
        return taken

    def take_spoilt(self) -> list[Spoilt]:
        """Return the bad insertions passed over since the last call."""
        spoilt, self._spoilt = self._spoilt, []
        return spoilt

    def spoilt_ahead(self) -> list[Spoilt]:
        """Return the bad insertions that :meth:`take_spoilt` has still to give, as far as rows were read ahead."""
        return [*self._spoilt, *(spoilt for _, spoilt in self._bad if spoilt is not None)]

    def skip(self, error: InputError) -> None:
        """Pass over the next row, which must be available, and record it as bad."""
        row = int(self.take(1).row[0])
        if row >= self._recorded:
            self.skipped.append(Skipped(row, self._source.where(row)[0], message_of(error.without_skipping())))

    def with_features(self, read_from: Callable[[int], RowReader]) -> RowReader:
        """Return a reader of the same rows in which none lacks features: this one, or one that reads them again."""
        if not self._divided:
            return self
        self.close()
        again = read_from(self.position)
        again.skipped, again._spoilt = self.skipped, self._spoilt
        return again

    def close(self) -> None:
        """Let go of the source, which can then be restored; what was read ahead of the stream stays."""
        rows, self._rows = self._rows, None
        if isinstance(rows, Generator):
            rows.close()

    def finish(self) -> None:
        """Say why no row is available: return at the end of the source, raise the error of a bad row."""
        if self._error is not None:
            raise self._error
        self._pass_bad(END)

    def _pass_bad(self, before: int) -> None:
        while self._bad and self._bad[0][0].row < before:
            skipped, spoilt = self._bad.popleft()
            self.skipped.append(skipped)
            self._spoilt += [] if spoilt is None else [spoilt]
            self.position = max(self.position, self.skipped[-1].row + 1)  # a resume from here does not meet it again


# Labels of the rows before, as features of a row (``stream.previous_labels``).
#
# Invariant: the features of a row depend on the rows that the stream took before it, in their order, alone, and stay
# as they are: the label of a row that is deleted later remains a feature of the rows after it. Of two labels, where
# those of queries are delayed:
#
#     ========  ===  =====  ================  ================
#     row       id   label  previous_label_1  previous_label_2
#     ========  ===  =====  ================  ================
#     insert    1    a      missing           missing
#     insert    2    b      a                 missing
#     query     3           b                 a
#     insert    4    c      b                 a
#     insert    3    a      b, as asked       a, as asked
#     update    1    b      a                 c
#     ========  ===  =====  ================  ================


class PreviousLabels:
    """The last ``k`` labels of a stream of ``source``; with ``delayed`` labels also those known at each query."""

    def __init__(self, k: int, source: Source, *, delayed: bool) -> None:
        self._source, self._delayed = source, delayed
        self._last = np.full(k, np.nan)  # codes of classes, or numbers; the newest is the last
        self._asked: dict[int, Floats] = {}  # by the id of a query

    def enter(self, rows: Rows, op: npt.NDArray[np.int8], ids: Ints) -> None:
        """Enter the labels before each of the next rows into its last features, in place. O(rows k).

        InputError for a deletion by value: no row says which labels were before the example that it means.
        """
        k = len(self._last)
        if not k:
            return
        if (by_value := op == DELETE_VALUE).any():
            file, row = self._source.where(int(rows.row[np.argmax(by_value)]))
            raise InputError(message("streams.previous_by_value"), file=file, row=row)
        brings = (op == INSERT) | (op == UPDATE)
        labels = np.append(self._last, rows.y[brings])
        newest = k - 1 + np.cumsum(brings) - brings
        before = labels[newest[:, None] - np.arange(k)]
        if self._delayed:
            for at in np.flatnonzero((op == QUERY) | (op == INSERT)).tolist():
                if op[at] == QUERY:
                    self._asked[int(ids[at])] = before[at].copy()
                elif (then := self._asked.pop(int(ids[at]), None)) is not None:
                    before[at] = then
        self._last = labels[-k:]
        rows.X[:, -k:] = before if rows.y.dtype == NUMBERS else self._categories(before)

    def _categories(self, codes: Floats) -> Floats:
        """Return class codes as categories are entered; -1 without a label."""
        whole = np.where(np.isnan(codes), -1.0, codes)
        if not self._source.reading.by_value:
            return whole
        numbers = np.array([*map(number_of, self._source.classes), -1], dtype=np.float64)
        return numbers[whole.astype(np.int64)]

    def state(self) -> dict[str, Any]:
        """Return the labels, and those of queries that wait, as part of the state of a stream; nothing if k is 0."""
        if not len(self._last):
            return {}
        asked = {
            "asked_ids": np.array([*self._asked], dtype=np.int64),
            "asked_labels": np.array([*self._asked.values()]),
        }
        return {"previous": self._last.copy(), **(asked if self._asked else {})}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave."""
        if len(self._last):
            self._last = np.array(state["previous"])
            ids = state.get("asked_ids", _NO_IDS).tolist()
            self._asked = dict(zip(ids, state.get("asked_labels", ()), strict=True))


def labels_before(state: Mapping[str, Any], classes: Sequence[Any]) -> dict[str, list[Any]]:
    """Return entry ``previous_labels`` of a model: those in the state of a stream, the newest first, None if missing.

    Nothing if the stream keeps no labels, or is that of many keys, each of which has its own.
    """
    if "previous" not in state:
        return {}
    last = reversed(state["previous"].tolist())
    return {
        "previous_labels": [None if label != label else classes[int(label)] if classes else label for label in last]
    }


_NO_IDS = np.empty(0, dtype=np.int64)


def _spelled_now(policy: Any) -> Any:
    """Return a policy for bad rows as it is spelled now: earlier versions wrote ``error`` for ``fail``."""
    return "fail" if policy == "error" else policy


class RowStreamOptions(BaseModel):
    """Options all stream models share; each model's own options extend this one and name the stream."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    stream: ClassVar[type[RowStream]]  #: What :meth:`make` opens.
    reads_features: ClassVar[bool] = False  #: The stream itself needs the features of all rows.
    in_order: ClassVar[bool] = True  #: Each row comes once, after the rows before it, and a request deletes none.
    warmup: int = Field(
        0,
        ge=0,
        description="number of first updates that build the model in one step (W); fewer where one that is no insert "
        "comes earlier",
    )
    on_error: Annotated[Literal["fail", "skip", "wait"], BeforeValidator(_spelled_now)] = Field(
        "fail",
        description="fail: stop before a bad row; skip: record it and go to the next; wait, of a source that is "
        "followed: go to the next once a newer row of its id is good, or deletes it",
    )
    previous_labels: int = Field(
        0,
        ge=0,
        le=MOST_PREVIOUS,
        description="how many labels of the rows before, of the same key, become features of a row: previous_label_1 "
        "is that of the last row",
    )

    def make(self, source: Source, base_dir: str | Path = ".") -> Stream:
        """Return the stream over ``source``; relative paths are relative to ``base_dir``."""
        return self.stream(self, source)


class RowStream(ABC):
    """Updates made from the good rows of a fresh source, in order; ConfigError if it does not fit the model."""

    changelog = False
    chooses_deletes = False
    delayed: bool = False

    def __init__(self, options: RowStreamOptions, source: Source) -> None:
        if source.is_changelog and not self.changelog:
            raise ConfigError(message("streams.changelog_source"))
        if self.changelog and not source.is_changelog:
            raise ConfigError(message("streams.no_changelog"))
        if not source.has_labels:
            raise ConfigError(message("streams.no_label_column"))
        self.source, self.times = source, source.times()
        #: Leading insertions that build the model at once. Fewer than planned once the warm-up has ended early: then
        #: everything from there on is as if this had been planned.
        self.warmup = options.warmup
        self.planned_warmup = options.warmup
        self._skip_bad = options.on_error != "fail"  # a source that waits has said that it is to be passed over
        self._skip_refused = options.on_error == "skip"
        self._seq = 0
        self._foreign = 0  # updates before ``_seq`` that came from outside of the stream
        self._foreign_ids: set[int] = set()  # live ids that the stream did not insert
        self._n_classes = source.known_classes
        self._class_order = _NO_IDS  # the codes of so many classes in ascending order of their labels
        self._live: set[int] | None = set() if self.chooses_deletes and source.id_kind != "row" else None
        self._reader = RowReader(source, 0, self._skip_bad)
        self._previous = PreviousLabels(
            options.previous_labels, source, delayed=getattr(options, "delayed_labels", False)
        )
        self._text_ids = TextIds(source.rules) if source.id_kind == "text" else None
        self._subjects = Subjects() if source.subject_kind is not None else None

    def batches(self, size: int) -> Iterator[UpdateBatch]:
        """Yield updates from the current position on, ``size`` to a batch; less before a bad row and at the end.

        Under ``on_error: fail`` the step after the batch that ends before a bad row is its InputError.
        """
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        while (batch := self._next(size)) is not None:
            if self._live is not None:
                inserted = batch.op == INSERT
                last = dict(
                    zip(
                        batch.id.tolist(),
                        zip(inserted.tolist(), np.cumsum(inserted).tolist(), strict=True),
                        strict=True,
                    )
                )
                deleted = {id_: rows for id_, (is_live, rows) in last.items() if not is_live}
                self._live.update(last.keys() - deleted.keys())
                self._live.difference_update(deleted)
                if self._text_ids is not None:
                    self._text_ids.end(batch.id[inserted], deleted)
            yield batch

    def divide_ids(self, parts: IdParts) -> None:
        """Have other processes keep the codes of text ids from now on; :meth:`restore` comes next."""
        if self._text_ids is not None:
            self._text_ids.divide(parts)

    def begin_with(self, rows: Iterator[Rows]) -> None:
        """Take the rows of the source, from the first one on, from here; see :meth:`raydt.streams.base.Stream`."""
        self._reader.begin_with(rows)

    @abstractmethod
    def _next(self, size: int) -> UpdateBatch | None:
        """The next at most ``size`` updates; None at the end, which calls ``finish`` of the reader."""

    def _available(self, size: int) -> int:
        """Return how many of the next ``size`` rows can be taken without inserting a live id; 1 if that may go."""
        while (n := self._reader.available(size)) and self._live is not None:
            row = self._peek(1)
            if int(row.id[0]) not in self._live:
                return _before_collision(self._peek(n).id, self._live)
            if self._deletes_before(row):
                return 1
            self._refuse(row)
        return n

    def _peek(self, k: int) -> Rows:
        """The next ``k`` rows, which must be available, with the ids they will have if they are inserted next."""
        rows = self._reader.peek(k)
        if self._text_ids is None or rows.names is None:
            return rows
        return replace(rows, id=self._text_ids.look(rows.names))

    def _take(self, k: int) -> Rows:
        """Hand out the next ``k`` rows, which must be available, as inserts."""
        rows, op = self._reader.take(k), np.full(k, INSERT, dtype=np.int8)
        self._previous.enter(rows, op, rows.id)
        if self._text_ids is None or rows.names is None:
            return rows
        return replace(rows, id=self._text_ids.give(rows.names, op))

    def _deletes_before(self, row: Rows) -> bool:
        """Return True if this model deletes something before it inserts the next row, whose id is live."""
        return False

    def _refuse(self, row: Rows) -> None:
        """Make the next row bad, because its id is live."""
        name = int(row.id[0]) if row.names is None else row.names[0]
        file, line = self.source.where(int(row.row[0]))
        error = InputError(
            message("streams.live_id", id=quoted(name), problem=REFUSALS[DUPLICATE_ID][0]),
            file=file,
            row=line,
            column=self.source.id_column,
        )
        if not self._skip_refused:
            raise error
        self._reader.skip(error)

    def _cut_warmup(self, op: npt.NDArray[np.int8]) -> int:
        """End the warm-up before an update that is no insert; return how many updates come before the first of those.

        If none does, the warm-up ends here. The next updates are then to be looked for again, since rows that the
        shards have read for it lack features.
        """
        wrong = np.flatnonzero(op[: max(0, self.warmup - self._seq)] != INSERT)
        if not len(wrong):
            return len(op)
        if not wrong[0]:
            self.warmup = self._seq
            self._reader = self._reader.with_features(self._read_from)
        return int(wrong[0])

    def _read_from(self, row: int) -> RowReader:
        """Return a reader of the rows from one on, after those that were handed out."""
        return RowReader(self.source, row, self._skip_bad)

    def _before_first(self, op: int, **place: Any) -> InputError:
        """Return the error of an operation in a warm-up that has inserted nothing."""
        return InputError(message("streams.nothing_live", op=OP_NAMES[op]), **place)

    def _batch(self, op: npt.NDArray[np.int8], ids: Ints, rows: Rows, row: Ints) -> UpdateBatch:
        """Number a batch and count its classes; ``rows`` are those of its updates that carry features."""
        names = None if self._text_ids is None else self._text_ids.names_of(ids)
        start = self._seq
        if self._subjects is not None:
            self._note_subjects(self._subjects, op, ids, rows)
        self._n_classes = max(self._n_classes, classes_in(rows.y))
        self._seq += len(op)
        if len(self._class_order) != self._n_classes:
            self._class_order = in_order(self.source.classes[: self._n_classes], self.source.positive is not None)
        return UpdateBatch(
            start,
            op,
            ids,
            rows.X,
            rows.y,
            self._n_classes,
            row,
            self.warmup,
            sparse=rows.sparse,
            class_order=self._class_order,
            names=names,
            time=rows.ts,
            weight=unless_equal(rows.weight),
        )

    def _note_subjects(self, subjects: Subjects, op: npt.NDArray[np.int8], ids: Ints, rows: Rows) -> None:
        """Note whose rows the next updates insert, and which ids they delete; arguments as of :meth:`_batch`."""
        seq = self._seq + np.arange(len(op))
        ends, begins = (op == DELETE) | (op == UPDATE), (op == INSERT) | (op == UPDATE)
        subjects.end(ids[ends], seq[ends])
        if rows.subject is not None:
            subjects.add(ids[begins], seq[begins], rows.subject[begins[CARRIES_ROW[op]]])

    def _spread(self, op: npt.NDArray[np.int8], rows: Rows, deleted: Ints, deleted_row: Ints | int = -1) -> UpdateBatch:
        """Return a batch of inserts (``rows``) and deletes (ids ``deleted``), each in order, as ``op`` says."""
        insert = op == INSERT
        ids = np.empty(len(op), dtype=np.int64)
        ids[insert] = rows.id
        ids[~insert] = deleted
        row = np.empty(len(op), dtype=np.int64)
        row[insert] = rows.row
        row[~insert] = deleted_row
        return self._batch(op, ids, rows, row)

    def state(self) -> dict[str, Any]:
        """Position and dictionaries; see :meth:`raydt.streams.base.Stream.state`."""
        row = self._reader.position
        state = {"seq": self._seq, "row": row, "n_classes": self._n_classes, "source": self.source.state(row)}
        if self.warmup < self.planned_warmup:
            state["warmup"] = self.warmup
        state |= self._previous.state()
        if self._text_ids is not None:
            state |= self._text_ids.state()
        if self._subjects is not None:
            state |= self._subjects.state()
        if self._foreign:
            state |= {"foreign": self._foreign, "foreign_ids": np.array(sorted(self._foreign_ids), dtype=np.int64)}
        return state

    def follow_update(
        self, deleted: Ints, inserted: Ints, updates: int, names: Mapping[str, Any], n_classes: int
    ) -> None:
        """Continue after updates from outside of the stream; see :meth:`raydt.streams.base.Stream.follow_update`."""
        state = self.state()
        if updates and self._seq < self.warmup:  # they ended it or, if nothing was inserted before, are all of it
            state["warmup"] = min(self.warmup, self._seq or updates)
        if "active" in state:
            kept = ~np.isin(state["active"], deleted)
            state |= {name: state[name][kept] for name in state if name.startswith("active")}
        foreign = np.union1d(np.setdiff1d(state.get("foreign_ids", _NO_IDS), deleted), inserted)
        self.restore(
            {
                **state,
                **names,
                "source": {**state["source"], **names["source"]},
                "seq": self._seq + updates,
                "n_classes": max(self._n_classes, n_classes),
                "foreign": self._foreign + updates,
                "foreign_ids": foreign,
            }
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._seq, self._n_classes, self._class_order = int(state["seq"]), int(state["n_classes"]), _NO_IDS
        self.warmup = int(state.get("warmup", self.planned_warmup))
        self._reader.close()
        self.source.restore(state["source"])
        self._reader = self._read_from(int(state["row"]))
        self._foreign, self._foreign_ids = int(state.get("foreign", 0)), set(state.get("foreign_ids", _NO_IDS).tolist())
        if self._live is not None:
            active = state["active"] if "active" in state else state["subject_ids"]
            self._live = set(active.tolist()) | self._foreign_ids
        self._previous.restore(state)
        if self._text_ids is not None:
            self._text_ids.restore(state)
        if self._subjects is not None:
            self._subjects.restore(state)

    def names_of(self, ids: Ints) -> list[Any]:
        """Return ids of updates handed out as the user knows them."""
        return ids.tolist() if self._text_ids is None else self._text_ids.names_of(ids)

    def subjects_since(self, seq: int) -> dict[int, Any]:
        """Return whose rows the updates from ``seq`` on have inserted, by their numbers; of the newest batch only."""
        return {} if self._subjects is None else self._subjects.since(seq)

    def inputs(self) -> dict[str, Any]:
        """No file other than the source."""
        return {}

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it of an update; see :meth:`raydt.streams.base.Stream.where`."""
        return self.source.where(row)

    def figures(self) -> dict[str, Any]:
        """Return what the summary says of this stream at its position."""
        return {}

    def let_go(self) -> None:  # noqa: B027 - most streams keep no copies
        """Let go of copies of examples; see :meth:`raydt.streams.base.Stream.let_go`."""

    def length(self) -> int | None:
        """At most so many updates, where the source's number of rows is known: bad and ignored rows are among them."""
        return self.source.n_rows

    def take_skipped(self) -> list[Skipped]:
        """Bad rows passed over since the last call, up to the current position."""
        skipped, self._reader.skipped = self._reader.skipped, []
        return skipped


def _before_collision(ids: Ints, live: set[int]) -> int:
    """Return the number of ids before the first that is live or was among them already; O(1) for each of these."""
    seen: set[int] = set()
    for begin in range(0, len(ids), 64):  # by parts, since the first collision may be near
        for place, id_ in enumerate(ids[begin : begin + 64].tolist(), begin):
            if id_ in seen or id_ in live:
                return place
            seen.add(id_)
    return len(ids)
