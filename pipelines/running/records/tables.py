"""The tables of a run folder: column buffers that become Parquet parts.

Memory is bounded: a table holds at most :data:`ROWS_PER_GROUP` rows before they are written as one row group.
A part is hidden (its name begins with a dot, which dataset readers pass over) until it is complete.
:meth:`TableWriter.commit` ends it, and the next row begins another (:mod:`pipelines.running.records.table_parts`).
"""

from __future__ import annotations

import base64
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.run_files import TIME
from pipelines.run_folder import RunFolder
from pipelines.running.records.table_parts import ROWS_PER_GROUP, Parts, writing
from raydt.arrays.arrow import arrow_column
from raydt.encoding.times import TimeColumn
from raydt.errors import NotWrittenError
from raydt.examples.targets import CODES, NUMBERS
from raydt.messages import message

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
            self._pending.append(columns)
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

    _tables: Mapping[str, TableWriter]

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
