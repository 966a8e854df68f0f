"""Tables written during a run: metrics, events, predictions and skipped rows.

Invariant: everything written at an update number depends on the stream and the model only, except the columns
that count time and traffic (``seconds``, ``rounds``, ``bytes_exchanged``). It stays so across :meth:`Recorder.state`
and :meth:`Recorder.restore`: each update is in the tables once, wherever the run was cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.operation import Output
from pipelines.run_files import TIME
from pipelines.run_folder import RunFolder
from pipelines.running.records.tables import (
    ALARMS,
    QUARANTINE,
    Tables,
    TableWriter,
    metrics_schema,
    predictions_schema,
    time_type,
    with_time,
)
from raydt.arrays.arrow import arrow_column
from raydt.arrays.types import Ints
from raydt.encoding.times import NO_TIME
from raydt.examples.targets import NUMBERS, Targets, there
from raydt.examples.updates import CARRIES_ROW, BatchResult, Log, Refusal, UpdateBatch
from raydt.redaction import text
from raydt.streams.base import Skipped, Stream
from raydt.streams.tally import Tally, truths

_METRIC_ROWS = 256


class Recorder(Tables, Tally):
    """Counts, scores and tables of one run; the metrics have the learner's ``own`` statistics, too."""

    def __init__(self, folder: RunFolder, output: Output, stream: Stream, own: Sequence[str] = ()) -> None:
        super().__init__(stream, weighted=output.weighted_metrics)
        self._every, self._own = output.metrics_every, own
        time = None if stream.times is None else time_type(stream.times)
        self._metric_columns = metrics_schema(self.prequential.columns, own, time)
        self._metrics = TableWriter(folder, "metrics", self._metric_columns)
        self._events = TableWriter(folder, "events")
        self._predictions = TableWriter(
            folder, "predictions", predictions_schema(self._source.id_kind == "text", self._source.target_dtype)
        )
        self._predicting, self._quote = output.predictions, output.quote_values
        self._alarms = TableWriter(folder, "alarms", with_time(ALARMS, time))
        self._quarantine = TableWriter(folder, "quarantine", QUARANTINE)
        self._tables = {
            "metrics": self._metrics,
            "events": self._events,
            "predictions": self._predictions,
            "quarantine": self._quarantine,
            "alarms": self._alarms,
        }
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
            self._quarantine_refused(batch, passed_over)
        self.record_log(result.log)
        if self._predicting:
            prediction = result.predictions[:n]
            predicted = there(prediction)
            self._predictions.append(
                {
                    "seq": np.arange(batch.start, batch.start + n)[predicted],
                    "id": self._ids(batch, np.flatnonzero(predicted)),
                    "prediction": self._names(prediction[predicted]),
                    "truth": self._names(truths(batch, n)[predicted]),
                }
            )
        alarms = self.prequential.take_alarms()
        if alarms:
            found: dict[str, Any] = dict(zip(ALARMS.names, zip(*alarms, strict=True), strict=True))
            if TIME in self._metric_columns.names:
                found[TIME] = self._times([_time_of(batch, before, seq) for seq in found["seq"]])
            self._alarms.append(found)
        if self.updates % self._every == 0:
            self._metrics_row()

    def record_log(self, log: Log) -> None:
        """Write the learner's own record of what it did."""
        if any(len(column) for column in log.values()):
            self._events.append(log)

    def record_skipped(self, skipped: list[Skipped]) -> None:
        """Note rows that never became updates."""
        super().record_skipped(skipped)
        if skipped:
            self._quarantine.append(
                {
                    "seq": [-1] * len(skipped),
                    "source_row": [entry.row for entry in skipped],
                    "file": [entry.file for entry in skipped],
                    "reason": [text(entry.reason, self._quote) for entry in skipped],
                }
            )

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
            **super().state(),
            "row_at": self._row_at,
            "tables": self.states_of_tables(),
        }

    def continue_from(self, before: Recorder) -> None:
        """Go on from where another recorder is, in the same session, with tables that are empty."""
        self.restore({**before.state(), "tables": {}})
        self._earlier = dict(before._earlier)

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
            self._metrics.append({**counted, **self.prequential.take_rows()})
            self._rows = []

    def _times(self, times: list[int | None]) -> pa.Array:
        """Return event times as a column, null where there is none."""
        none = np.array([time is None for time in times])
        values = np.array([0 if time is None else time for time in times], dtype=np.int64)
        return arrow_column(values, self._metric_columns.field(TIME).type, none)

    def _quarantine_refused(self, batch: UpdateBatch, refused: list[Refusal]) -> None:
        errors = [self.update_error(batch, refusal) for refusal in refused]
        self._quarantine.append(
            {
                "seq": [batch.start + refusal.position for refusal in refused],
                # A row of the source, counted over all its files, or of the deletion log.
                "source_row": [
                    row if row >= -1 else self._stream.where(row)[1]
                    for row in (int(batch.row[refusal.position]) for refusal in refused)
                ],
                "file": [error.file for error in errors],
                "reason": [text(error.parts["problem"], self._quote) for error in errors],
            }
        )

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
