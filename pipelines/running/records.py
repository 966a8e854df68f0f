"""The tables of a run folder: column buffers that become Parquet parts.

Memory is bounded: a table holds at most :data:`ROWS_PER_GROUP` rows before they are written as one row group.
A part is hidden (its name begins with a dot, which dataset readers pass over) until it is complete.
:meth:`TableWriter.commit` ends it, and the next row begins another (:mod:`pipelines.running.records`).
"""

from __future__ import annotations

import base64
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.operation import Output
from pipelines.run_folder import MERGING, PART, TIME, RunFolder
from raydt.arrays.blocks import arrow_column
from raydt.arrays.elementary import Ints
from raydt.encoding.columns import NO_TIME, TimeColumn
from raydt.errors import STORAGE_REMEDIES, InputError, NotWrittenError
from raydt.examples.updates import CARRIES_ROW, CODES, NUMBERS, BatchResult, Log, Refusal, Targets, UpdateBatch, there
from raydt.messages import message, text
from raydt.streams.base import Skipped, Stream, Tally, truths

# The committed parts of a table: numbered Parquet files, listed by a checkpoint.
#
# Invariant: the rows of a table are those of the listed parts, in the order of the list. A part that is not listed is
# deleted on restore, so that what is written again is there once. A listed part is complete; the result of a
# compaction, which lies under its hidden name (a dot in front, which dataset readers pass over), gets the visible one
# on restore.

#: Rows of a row group, and so the most that a table keeps in memory.
ROWS_PER_GROUP = 65_536


@contextmanager
def writing(place: str) -> Iterator[None]:
    """Context in which a failure of the storage is a :class:`~raydt.errors.NotWrittenError` of ``place``."""
    try:
        yield
    except OSError as error:
        remedy = STORAGE_REMEDIES.get(error.errno or 0)
        raise NotWrittenError(message("machine.not_written", reason=str(error)), file=place, remedy=remedy) from error


class Parts:
    """The parts of one table, whose folder is made with the first; ``names`` are committed when listed."""

    def __init__(self, folder: RunFolder, table: str) -> None:
        self._here = folder.inside(table)
        self.location = self._here.location
        self.names: list[str] = []
        self._sizes: list[int] = []
        self._replaced: list[str] = []

    def begin(self) -> str:
        """Path of the next part while it is written; the table's folder exists."""
        self._here.make()
        return self._here.path("." + self._next())

    def publish(self) -> None:
        """Let the part that :meth:`begin` named appear: it is complete, and on the disk before its name is."""
        name = self._next()
        self._here.move("." + name, name)
        self.names.append(name)
        self._sizes.append(self._here.size(name) or 0)

    def state(self) -> dict[str, Any]:
        """Names and sizes in bytes, plain JSON values."""
        return {"parts": list(self.names), "bytes": list(self._sizes)}

    def missing(self, state: Mapping[str, Any]) -> InputError | None:
        """The error of the first part that a state lists and that is not there in its full size."""
        return self._missing(state, self._found())

    def _missing(self, state: Mapping[str, Any], sizes: Mapping[str, int]) -> InputError | None:
        for name, size in zip(state["parts"], state["bytes"], strict=True):
            if size not in (sizes.get(name), sizes.get("." + name)):
                found = sizes.get(name, sizes.get("." + name))
                said = "runs.missing_part" if found is None else "runs.other_size"
                return InputError(message(said, found=found, size=size), file=f"{self.location}/{name}")
        return None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Make the listed parts the only ones; can be repeated. InputError, first, if one is missing or damaged."""
        sizes = self._found()
        error = self._missing(state, sizes)
        if error is not None:
            raise error
        self.names, self._sizes, self._replaced = list(state["parts"]), list(state["bytes"]), []
        with writing(self.location):
            for name, size in zip(self.names, self._sizes, strict=True):
                if sizes.get(name) != size:  # only its hidden twin is whole: the crash came before the last step
                    self._here.move("." + name, name)
                    del sizes["." + name]
            for file in sorted(sizes.keys() - set(self.names)):
                self._here.delete(file)

    def renew(self) -> None:
        """List no part any more; those until now stay until :meth:`finish`, for the checkpoint that lists them."""
        self._replaced += self.names
        self.names, self._sizes = [], []

    def merge(self) -> None:
        """Write all parts into one, hidden, and list it in their stead; they stay until :meth:`finish`.

        Nothing happens where there is at most one part. At most about two row groups are in memory. After
        NotWrittenError the parts are as they were.
        """
        if len(self.names) > 1:
            with writing(self.location):
                self._merge(lambda batch: batch)

    def rewrite(self, choose: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Write ``choose`` of all batches of rows into one part, as :meth:`merge` does; none without rows."""
        with writing(self.location):
            self._merge(choose)

    def changed_by(self, state: Mapping[str, Any], choose: Callable[[pa.RecordBatch], pa.RecordBatch]) -> bool:
        """Return True if ``choose`` changes a batch in the parts of a state; InputError for a damaged part."""
        sizes = self._found()
        error = self._missing(state, sizes)
        if error is not None:
            raise error
        for name, size in zip(state["parts"], state["bytes"], strict=True):
            place = self._here.path(name if sizes.get(name) == size else "." + name)
            with pq.ParquetFile(place, filesystem=self._here.filesystem) as file:
                if any(choose(batch) is not batch for batch in file.iter_batches(ROWS_PER_GROUP)):
                    return True
        return False

    def _merge(self, choose: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        whole, sources = self._next(), [self._here.path(name) for name in self.names]
        filesystem, temporary = self._here.filesystem, self._here.path(MERGING)
        schema = pq.read_schema(sources[-1], filesystem=filesystem)
        with pq.ParquetWriter(temporary, schema, filesystem=filesystem, compression="zstd") as writer:
            waiting: list[pa.RecordBatch] = []
            rows = 0
            for source in sources:
                with pq.ParquetFile(source, filesystem=filesystem) as file:
                    for batch in map(choose, file.iter_batches(ROWS_PER_GROUP)):
                        rows += len(batch)
                        waiting.append(_conformed(batch, schema))
                        if sum(len(piece) for piece in waiting) >= ROWS_PER_GROUP:
                            writer.write_table(pa.Table.from_batches(waiting, schema=schema))
                            waiting = []
            if waiting:
                writer.write_table(pa.Table.from_batches(waiting, schema=schema))
        if not rows:
            self._here.delete(MERGING)
            self.renew()
            return
        self._here.move(MERGING, "." + whole)
        self.renew()
        self.names, self._sizes = [whole], [self._here.size("." + whole) or 0]

    def finish(self) -> None:
        """Put new parts in place of the others, after a checkpoint that lists them; a restore does so, too."""
        if self._replaced:
            with writing(self.location):
                if self.names and self._here.size("." + self.names[0]) is not None:  # a merged one
                    self._here.move("." + self.names[0], self.names[0])
                for name in self._replaced:
                    self._here.delete(name)
            self._replaced = []

    def _next(self) -> str:
        known = [*self._replaced, *self.names]
        last = PART.fullmatch(known[-1]) if known else None
        return f"part-{int(last[1]) + 1 if last else 0:05d}.parquet"

    def _found(self) -> dict[str, int]:
        """Sizes of all files that were written here, visible or hidden."""
        ours = [name for name in self._here.names() if PART.fullmatch(name) or name == MERGING]
        found = self._here.filesystem.get_file_info([self._here.path(name) for name in ours])
        return {entry.base_name: entry.size for entry in found if entry.is_file}


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under another schema: a column that an earlier version did not write is null."""
    if batch.schema.names == schema.names:
        return batch
    columns = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_BATCHES_PENDING = 512

_COUNTS = ("seq", "inserts", "deletes", "predictions", "active", "nodes", "leaves", "depth")
_WORK = ("rebuilds", "rebuilt_rows", "rounds", "bytes_exchanged")
QUARANTINE = pa.schema(
    [("seq", pa.int64()), ("source_row", pa.int64()), ("file", pa.string()), ("reason", pa.string())]
)
ALARMS = pa.schema(
    [("seq", pa.int64()), ("predictions", pa.int64()), ("error_before", pa.float64()), ("error_after", pa.float64())]
)

#: State of a table that nothing was written to.
NO_ROWS: dict[str, Any] = {"parts": [], "bytes": [], "schema": None}


def time_type(column: TimeColumn) -> pa.DataType:
    """Return the type of event times in a table: points in time in UTC, or integers of the user's unit."""
    return pa.timestamp("us", "UTC") if column.kind == "timestamp" else pa.int64()


def with_time(schema: pa.Schema, time: pa.DataType | None) -> pa.Schema:
    """Return a schema with the column :data:`TIME`, the latest event time at an update, if the stream has times."""
    return schema if time is None else schema.append(pa.field(TIME, time))


def metrics_schema(scores: Sequence[str], own: Sequence[str] = (), time: pa.DataType | None = None) -> pa.Schema:
    """Columns of the metrics: counts, the learner's ``own`` among them, seconds, scores by these names, event times."""
    columns = pa.schema(
        [(name, pa.int64()) for name in (*_COUNTS, *_WORK, *own, "alarms")]
        + [(name, pa.float64()) for name in ("seconds", *scores)]
    )
    return with_time(columns, time)


def predictions_schema(text_ids: bool, target_dtype: np.dtype[Any] = CODES) -> pa.Schema:
    """Columns of the predictions; ids are the user's, and classes are called by their labels."""
    kind = pa.string() if text_ids else pa.int64()
    target = pa.float64() if target_dtype == NUMBERS else pa.string()
    return pa.schema([("seq", pa.int64()), ("id", kind), ("prediction", target), ("truth", target)])


class TableWriter:
    """One table of a run, written by one owner from its first row on, which may give the ``schema``."""

    def __init__(self, folder: RunFolder, name: str, schema: pa.Schema | None = None) -> None:
        self._filesystem, self._schema = folder.filesystem, schema
        self.parts = Parts(folder, name)
        self._pending: list[Mapping[str, Any]] = []  # as they were given: to convert each takes longer than all at once
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def append(self, columns: Mapping[str, Any]) -> None:
        """Add rows by the same columns each time; NotWrittenError loses those not committed."""
        if self._schema is None:
            self._schema = pa.schema([(name, arrow_column(values).type) for name, values in columns.items()])
        rows = len(columns[self._schema.names[0]])
        if rows:
            given = ((one, columns[one.name]) for one in self._schema)
            # Lists weigh more than columns.
            self._pending.append({o.name: arrow_column(v, o.type) if isinstance(v, list) else v for o, v in given})
            self._rows += rows
        if self._rows >= ROWS_PER_GROUP:
            self._flush()
        elif len(self._pending) >= _BATCHES_PENDING:
            # Into one: many small batches weigh more than their rows, and each may be a view of something large.
            self._pending = [{name: _joined([rows[name] for rows in self._pending]) for name in self._schema.names}]

    def commit(self) -> None:
        """Write what is pending and let the part appear, if it has any rows; NotWrittenError as of :meth:`append`."""
        self._flush()
        if self._writer is not None:
            with self._whole_or_abandoned():
                self._writer.close()
                self._writer = None
                self.parts.publish()

    def state(self) -> dict[str, Any]:
        """Committed parts, and the schema as Arrow's own bytes in base64: plain JSON values. Commits first."""
        self.commit()
        schema = None if self._schema is None else base64.b64encode(self._schema.serialize()).decode("ascii")
        return {**self.parts.state(), "schema": schema}

    def renew(self) -> None:
        """Begin without rows; the parts until now stay until those that take their place are in a checkpoint."""
        self.abandon()
        self.parts.renew()

    def require(self, state: Mapping[str, Any]) -> None:
        """Refuse a state that cannot be restored; errors as of :meth:`Tables.require`."""
        error = self.parts.missing(state)
        if error is not None:
            raise error
        _schema_of(state)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on after the parts of a state; whatever else was written is deleted (:meth:`Parts.restore`)."""
        self.abandon()
        self.parts.restore(state)
        if self._schema is None:
            self._schema = _schema_of(state)

    def abandon(self) -> None:
        """Let go of what is not committed. Nothing is deleted: :meth:`restore` does that."""
        self._pending, self._rows = [], 0
        if self._writer is not None:
            # On an object store a file appears when it is closed, which must not happen after the next owner began.
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
            self._writer = None

    def _flush(self) -> None:
        schema = self._schema
        if not self._pending or schema is None:
            return
        with self._whole_or_abandoned():
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self.parts.begin(), schema, filesystem=self._filesystem, compression="zstd"
                )
            columns = [arrow_column(_joined([rows[f.name] for rows in self._pending]), f.type) for f in schema]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            self._pending, self._rows = [], 0

    @contextlib.contextmanager
    def _whole_or_abandoned(self) -> Iterator[None]:
        """A step that writes: a part of which a piece is missing must never be completed, nor a piece written twice."""
        try:
            with writing(self.parts.location):
                yield
        except NotWrittenError:
            self.abandon()
            raise


class Tables(ABC):
    """The tables of a run, written by one recorder, and committed, restored and compacted together."""

    def __init__(self, folder: RunFolder, schemas: Mapping[str, pa.Schema | None], *, quote: bool) -> None:
        self._tables = {name: TableWriter(folder, name, schema) for name, schema in schemas.items()}
        self._quote = quote

    def record_skipped(self, skipped: list[Skipped]) -> None:
        """Note rows that never became updates."""
        if skipped:
            self._append("quarantine", quarantined((-1, entry.row, entry.file, entry.reason) for entry in skipped))

    def _append(self, table: str, columns: Mapping[str, Any]) -> None:
        """Add rows to a table; reasons in the quarantine quote values, or not."""
        if table == "quarantine":
            columns = {**columns, "reason": [text(reason, self._quote) for reason in columns["reason"]]}
        self._tables[table].append(columns)

    def commit(self) -> None:
        """Let appear what is recorded so far, as parts that will not be written to again.

        They are kept if a checkpoint with the state of now is restored. NotWrittenError if a table cannot be written.
        """
        for table in self._tables.values():
            table.commit()

    def states_of_tables(self) -> dict[str, Any]:
        """Return the committed parts of each table."""
        return {name: table.state() for name, table in self._tables.items()}

    def require(self, state: Mapping[str, Any]) -> None:
        """Refuse a state that is incomplete, or lacks its tables; no file is changed."""
        for name, table in self._tables.items():
            table.require(state["tables"].get(name, NO_ROWS))
        self._restore_counts(state)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that :meth:`require` has accepted: the tables hold what they held then.

        Can be repeated after a crash. InputError if a part is gone since, NotWrittenError if a table cannot be changed.
        """
        for name, table in self._tables.items():
            table.restore(state["tables"].get(name, NO_ROWS))
        self._restore_counts(state)

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return counters and committed parts, of one update number: plain JSON values and NumPy arrays."""

    def continue_from(self, before: Any) -> None:
        """Go on from where another recorder is, in the same session, with tables that are empty."""
        self.restore({**before.state(), "tables": {}})

    @abstractmethod
    def _restore_counts(self, state: Mapping[str, Any]) -> None:
        """Take what the recorder has counted from a state."""

    def clear(self) -> None:
        """Delete whatever the tables of the folder hold. Of a recorder that has recorded nothing."""
        for table in self._tables.values():
            table.restore(NO_ROWS)

    def abandon(self) -> None:
        """Let go of the tables, to be restored by another recorder. What is not committed is lost."""
        for table in self._tables.values():
            table.abandon()

    def close(self) -> None:
        """Complete the tables: everything recorded is in them."""
        self.commit()

    def compact(self) -> None:
        """Write every table of several parts as one new file, still hidden, in the same folder.

        Then comes a checkpoint with the state of now, then :meth:`finish_compaction`. A crash anywhere, and a
        checkpoint that failed, leave tables that can be restored.
        """
        self.commit()
        for table in self._tables.values():
            table.parts.merge()

    def finish_compaction(self) -> None:
        """Put the compacted parts in place of what they were made of."""
        for table in self._tables.values():
            table.parts.finish()


def quarantined(rows: Iterable[tuple[int, int, str | None, str]]) -> dict[str, Any]:
    """Return the columns of the quarantine, by update, row of the source, file and reason."""
    return dict(zip(QUARANTINE.names, map(list, zip(*rows, strict=True)), strict=True))


def _joined(pieces: Sequence[Any]) -> Any:
    """Pieces of one column as one: Arrow arrays, NumPy arrays, or lists."""
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(pieces[0], pa.Array):
        return pa.concat_arrays(pieces)
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    return [value for piece in pieces for value in piece]


def _schema_of(state: Mapping[str, Any]) -> pa.Schema | None:
    """The schema of a table's state; None if nothing was written to the table."""
    if state["schema"] is None:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(state["schema"])))
    except (OSError, pa.ArrowException) as error:  # OSError: the bytes end too early
        raise ValueError(message("runs.table_schema", error=str(error))) from error


# Tables written during a run: metrics, events, predictions and skipped rows.
#
# Invariant: everything written at an update number depends on the stream and the model only, except the columns
# that count time and traffic (``seconds``, ``rounds``, ``bytes_exchanged``). It stays so across :meth:`Recorder.state`
# and :meth:`Recorder.restore`: each update is in the tables once, wherever the run was cut.

_METRIC_ROWS = 256


class Recorder(Tables, Tally):
    """Counts, scores and tables of one run; the metrics have the learner's ``own`` statistics, too."""

    def __init__(self, folder: RunFolder, output: Output, stream: Stream, own: Sequence[str] = ()) -> None:
        Tally.__init__(self, stream, weighted=output.weighted_metrics)
        self._every, self._own, self._predicting = output.metrics_every, own, output.predictions
        time = None if stream.times is None else time_type(stream.times)
        self._metric_columns = metrics_schema(self.prequential.columns, own, time)
        schemas = {
            "metrics": self._metric_columns,
            "events": None,
            "predictions": predictions_schema(self._source.id_kind == "text", self._source.target_dtype),
            "quarantine": QUARANTINE,
            "alarms": with_time(ALARMS, time),
        }
        Tables.__init__(self, folder, schemas, quote=output.quote_values)
        self._rows: list[dict[str, Any]] = []
        self._row_at = -1
        self._labels = arrow_column([], pa.string())

    def record(self, batch: UpdateBatch, result: BatchResult, seconds: float) -> None:
        """Take one answered batch into account; see :meth:`Tally.record`."""
        before = self.time
        super().record(batch, result, seconds)
        n = result.applied
        passed_over = [refusal for refusal in batch.faults(result.refused) if refusal.position < n]
        if passed_over:
            self._append("quarantine", quarantined(self._refused_rows(batch, passed_over)))
        self.record_log(result.log)
        if self._predicting:
            prediction = result.predictions[:n]
            predicted = there(prediction)
            columns = {
                "seq": np.arange(batch.start, batch.start + n)[predicted],
                "id": self._ids(batch, np.flatnonzero(predicted)),
                "prediction": self._names(prediction[predicted]),
                "truth": self._names(truths(batch, n)[predicted]),
            }
            self._append("predictions", columns)
        alarms = self.prequential.take_alarms()
        if alarms:
            found: dict[str, Any] = dict(zip(ALARMS.names, zip(*alarms, strict=True), strict=True))
            if TIME in self._metric_columns.names:
                found[TIME] = self._times([_time_of(batch, before, seq) for seq in found["seq"]])
            self._append("alarms", found)
        if self.updates % self._every == 0:
            self._metrics_row()

    def record_log(self, log: Log) -> None:
        """Write the learner's own record of what it did."""
        if any(len(column) for column in log.values()):
            self._append("events", log)

    def record_skipped(self, skipped: list[Skipped]) -> None:
        """Note rows that never became updates."""
        Tally.record_skipped(self, skipped)
        Tables.record_skipped(self, skipped)

    def commit(self) -> None:
        """Let appear what is recorded so far; see :meth:`Tables.commit`."""
        self._flush_metrics()
        super().commit()

    def state(self) -> dict[str, Any]:
        """Counters and committed parts, of one update number: plain JSON values and NumPy arrays. Commits first.

        Of a run that may be resumed it is taken before :meth:`close`, which may add a row at an odd place.
        """
        self.commit()
        return {
            **Tally.state(self),
            "row_at": self._row_at,
            "tables": self.states_of_tables(),
        }

    def continue_from(self, before: Recorder) -> None:
        """Go on from where another recorder is; see :meth:`Tables.continue_from`."""
        super().continue_from(before)
        self._earlier = dict(before._earlier)

    def complete(self, session: Any, of_keys: Sequence[Mapping[str, Any]] = ()) -> None:
        """Record nothing: the tables have it all."""

    def _restore_counts(self, state: Mapping[str, Any]) -> None:
        Tally.restore(self, state)
        self._rows, self._row_at = [], int(state["row_at"])

    def close(self) -> None:
        """Complete the tables: everything recorded is in them, and a row of metrics of the very end."""
        if self._row_at != self.updates:
            self._metrics_row()
        super().close()

    def _metrics_row(self) -> None:
        structure = {name: self.statistics.get(name, 0) for name in ("nodes", "leaves", "depth", "rebuilds")}
        traffic = {name: self.statistics.get(name, 0) for name in ("rebuilt_rows", "rounds", "bytes_exchanged")}
        self._rows.append(
            {
                "seq": self.updates,
                "inserts": self.inserts,
                "deletes": self.deletes,
                "predictions": self.predictions,
                "active": self.active,
                **structure,
                **traffic,
                **{name: self.statistics.get(name, 0) for name in self._own},
                "seconds": self.seconds,
                "alarms": self.prequential.alarms,
                **({TIME: self.time} if TIME in self._metric_columns.names else {}),
            }
        )
        self.prequential.mark()
        self._row_at = self.updates
        if len(self._rows) >= _METRIC_ROWS:
            self._flush_metrics()

    def _flush_metrics(self) -> None:
        if self._rows:
            rows = {name: [row[name] for row in self._rows] for name in self._rows[0]}
            counted = {name: self._times(v) if name == TIME else np.array(v) for name, v in rows.items()}
            self._append("metrics", {**counted, **self.prequential.take_rows()})
            self._rows = []

    def _times(self, times: list[int | None]) -> pa.Array:
        """Return event times as a column, null where there is none."""
        none = np.array([time is None for time in times])
        values = np.array([0 if time is None else time for time in times], dtype=np.int64)
        return arrow_column(values, self._metric_columns.field(TIME).type, none)

    def _refused_rows(self, batch: UpdateBatch, refused: list[Refusal]) -> Iterator[tuple[int, int, str | None, str]]:
        """Yield what the quarantine says of updates; their rows are counted over all files, or of the deletion log."""
        for refusal in refused:
            error, row = self.update_error(batch, refusal), int(batch.row[refusal.position])
            row = row if row >= -1 else self._stream.where(row)[1]
            yield batch.start + refusal.position, row, error.file, error.parts["problem"]

    def _ids(self, batch: UpdateBatch, places: Ints) -> Any:
        """Ids as the user knows them; null for a query, which need not have one, where they are strings."""
        names = batch.names
        return batch.id[places] if names is None else [names[place] for place in places.tolist()]

    def _names(self, codes: Targets) -> pa.Array:
        """Return labels of class codes, null for -1 or before any label is known; numbers as they are."""
        if codes.dtype == NUMBERS:
            return arrow_column(codes, mask=~there(codes))
        if len(self._labels) < self.n_classes:
            self._labels = arrow_column(self.classes, pa.string())
        return self._labels.take(arrow_column(codes, mask=(codes < 0) | (codes >= len(self._labels))))


def _time_of(batch: UpdateBatch, before: int | None, seq: int) -> int | None:
    """Return the latest event time at an update of a batch; ``before`` is the one before the batch."""
    latest = NO_TIME if before is None else before
    if batch.time is not None:
        rows = int(np.count_nonzero(CARRIES_ROW[batch.op[: max(0, seq + 1 - batch.start)]]))
        latest = max(int(batch.time[:rows].max(initial=NO_TIME)), latest)
    return None if latest == NO_TIME else latest


# The losses and resumes of a run: the cost of each, for the summary and for the next resume.
#
# Invariant: an entry is in the log before anything is done about it, and again when it is complete, so that a process
# that is killed meanwhile leaves it to the next one (:mod:`pipelines.running.ending`).

log = logging.getLogger(__name__)

#: Event of an entry that does not count: whoever began it has changed nothing.
WITHDRAWN = "recovery_withdrawn"


class Recoveries:
    """Each return to a checkpoint or the beginning, after those of ``earlier`` processes; for the summary."""

    def __init__(self, earlier: Sequence[Mapping[str, Any]] = ()) -> None:
        self.entries: list[dict[str, Any]] = [dict(entry) for entry in earlier]
        self._earlier = len(self.entries)
        self._began: float | None = None

    def begin(self, kind: Literal["lost", "resumed"], what: str, epoch: int, at_update: int | None) -> None:
        """Something has ended incarnation ``epoch`` after ``at_update`` (None: nobody can say), and is made good."""
        self._began = time.perf_counter()
        unknown = {"from_update": None, "seconds": None}
        self.entries.append({"kind": kind, "what": what, "epoch": epoch, "at_update": at_update, **unknown})
        log.info("going back", extra={"event": "recovery_begun", "recovery": dict(self.entries[-1])})

    def restored(self, updates: int) -> None:
        """The next incarnation resumes here."""
        self.entries[-1]["from_update"] = updates

    def has_result(self) -> dict[str, Any] | None:
        """The incarnation has answered a batch: with the first one the recovery is over, and its entry returned."""
        if self._began is None:
            return None
        self.entries[-1]["seconds"] = time.perf_counter() - self._began
        self._began = None
        log.info("recovered", extra={"event": "recovered", "recovery": dict(self.entries[-1])})
        return self.entries[-1]

    def withdraw(self) -> None:
        """Forget what this process began: it has applied no update, and has changed nothing."""
        for entry in self.entries[self._earlier :]:
            log.info("not recovered", extra={"event": WITHDRAWN, "recovery": dict(entry)})
        del self.entries[self._earlier :]
        self._began = None


# Records of a run: scores, the five tables and their parts, checkpoints, recoveries.
