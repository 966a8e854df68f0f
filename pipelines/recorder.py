"""What a run writes while it runs: metrics, events, predictions and rows passed over.

Invariant: everything written at an update number depends on the stream and the model only, except the columns
that count time and traffic (``seconds``, ``rounds``, ``bytes_exchanged``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.config import Output
from pipelines.run_folder import RunFolder
from pipelines.tables import METRICS, QUARANTINE, TableWriter, predictions_schema
from raydt.errors import UpdateError
from raydt.metrics import Hits, Prequential
from raydt.streams.base import Skipped, Stream
from raydt.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    REFUSALS,
    UPDATE,
    BatchResult,
    Refusal,
    UpdateBatch,
)

_INSERTS = np.zeros(len(CARRIES_ROW), dtype=bool)
_INSERTS[[INSERT, UPDATE]] = True
_DELETES = np.zeros(len(CARRIES_ROW), dtype=bool)
_DELETES[[DELETE, DELETE_VALUE, UPDATE]] = True

_METRIC_ROWS = 256


class Recorder:
    """Counts, scores and tables of one run.

    Parameters
    ----------
    folder : RunFolder
    output : Output
    stream : Stream
        For the names of classes and examples, and the places of updates.

    Attributes
    ----------
    updates, inserts, deletes, predictions, refused, skipped : int
        So far. An update of an example counts as one of ``inserts`` and one of ``deletes``.
    replaced, queries : int
        Updates of examples, and rows that were only predicted.
    n_classes : int
        Classes that the updates so far have shown; what was only read ahead does not count.
    """

    def __init__(self, folder: RunFolder, output: Output, stream: Stream) -> None:
        self._every, self._stream, self._source = output.metrics_every, stream, stream.source
        self.prequential = Prequential(self._source.positive is not None)
        self.updates = self.inserts = self.deletes = self.predictions = self.refused = self.skipped = 0
        self.replaced = self.queries = 0
        self.n_classes = self._source.known_classes
        self.statistics: dict[str, int] = {}
        self.seconds = 0.0
        self._metrics = TableWriter(folder, "metrics", METRICS)
        self._events = TableWriter(folder, "events")
        self._predictions: TableWriter | None = None
        if output.predictions:
            schema = predictions_schema(self._source.id_kind == "text")
            self._predictions = TableWriter(folder, "predictions", schema)
        self._quarantine = TableWriter(folder, "quarantine", QUARANTINE)
        self._rows: list[dict[str, float]] = []
        self._row_at = -1
        self._window_start = Hits()
        self._labels = pa.array([], pa.string())

    @property
    def active(self) -> int:
        """Live examples: inserted and not deleted."""
        return self.inserts - self.deletes

    def record(self, batch: UpdateBatch, result: BatchResult, seconds: float) -> None:
        """Take one answered batch into account.

        Parameters
        ----------
        batch : UpdateBatch
        result : BatchResult
            May answer a part from the front of the batch only.
        seconds : float
            Processing time of the run so far.
        """
        n = result.applied
        op, prediction = batch.op[:n], result.predictions[:n]
        carries = CARRIES_ROW[op]
        truth = np.full(n, -1, dtype=np.int32)
        truth[carries] = batch.y[: np.count_nonzero(carries)]
        self.n_classes = max(self.n_classes, int(truth.max(initial=-1)) + 1, int(prediction.max(initial=-1)) + 1)
        inserted, deleted, queried = _INSERTS[op], _DELETES[op], op == QUERY
        if result.refused:
            passed_over = [refusal for refusal in result.refused if refusal.position < n]
            positions = [refusal.position for refusal in passed_over]
            inserted[positions] = deleted[positions] = queried[positions] = False
            self.refused += len(positions)
            self._quarantine_refused(batch, passed_over)
        self.prequential.update(truth[inserted], prediction[inserted])
        self.updates = batch.start + n
        self.inserts += int(np.count_nonzero(inserted))
        self.deletes += int(np.count_nonzero(deleted))
        self.replaced += int(np.count_nonzero(inserted & deleted))
        self.queries += int(np.count_nonzero(queried))
        predicted = prediction >= 0
        self.predictions += int(np.count_nonzero(predicted))
        self.statistics, self.seconds = result.statistics, seconds
        if any(len(column) for column in result.log.values()):
            self._events.append(result.log)
        if self._predictions is not None:
            self._predictions.append(
                {
                    "seq": np.arange(batch.start, batch.start + n)[predicted],
                    "id": self._ids(batch.id[:n][predicted]),
                    "prediction": self._names(prediction[predicted]),
                    "truth": self._names(truth[predicted]),
                }
            )
        if self.updates % self._every == 0:
            self._metrics_row()

    def record_skipped(self, skipped: list[Skipped]) -> None:
        """Note rows that never became updates."""
        self.skipped += len(skipped)
        if skipped:
            self._quarantine.append(
                {
                    "seq": [-1] * len(skipped),
                    "source_row": [entry.row for entry in skipped],
                    "file": [entry.file for entry in skipped],
                    "reason": [entry.reason for entry in skipped],
                }
            )

    def update_error(self, batch: UpdateBatch, refusal: Refusal) -> UpdateError:
        """The error of a refused update: its place, its id and the remedy."""
        problem, remedy = REFUSALS[refusal.reason]
        row = int(batch.row[refusal.position])
        file, line = self._stream.where(row) if row != -1 else (None, None)
        by_value = batch.op[refusal.position] == DELETE_VALUE
        key = "" if by_value else f" (id {self._stream.id_of(int(batch.id[refusal.position]), row)!r})"
        seq = batch.start + refusal.position
        remedy = f"{remedy}; or set stream.on_error: skip"
        return UpdateError(f"update {seq}: {problem}{key}", file=file, row=line, remedy=remedy)

    def close(self) -> None:
        """Complete the tables: everything recorded is in them."""
        if self._row_at != self.updates:
            self._metrics_row()
        self._flush_metrics()
        for table in (self._metrics, self._events, self._predictions, self._quarantine):
            if table is not None:
                table.close()

    @property
    def classes(self) -> list[str]:
        """Labels that the updates so far have shown, in the order of their codes."""
        return [str(label) for label in self._source.classes[: self.n_classes]]

    def metrics(self) -> dict[str, Any]:
        """The ``metrics`` mapping of the summary; shares as fractions, null where undefined."""
        confusion = self.prequential.confusion
        missing = max(0, self.n_classes - len(confusion))
        scores = {name: _number(value) for name, value in self.prequential.scores().items()}
        return {**scores, "confusion": np.pad(confusion, (0, missing)).tolist()}

    def baselines(self) -> dict[str, float | None]:
        """Accuracy of the trivial predictors on the same predictions."""
        _, no_change, majority = self.prequential.snapshot().shares()
        return {"no_change": _number(no_change), "majority": _number(majority)}

    def _metrics_row(self) -> None:
        hits = self.prequential.snapshot()
        window, window_no_change, window_majority = hits.since(self._window_start).shares()
        _, no_change, majority = hits.shares()
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
                "seconds": self.seconds,
                **self.prequential.scores(),
                "window_accuracy": window,
                "no_change": no_change,
                "majority": majority,
                "window_no_change": window_no_change,
                "window_majority": window_majority,
            }
        )
        self._window_start, self._row_at = hits, self.updates
        if len(self._rows) >= _METRIC_ROWS:
            self._flush_metrics()

    def _flush_metrics(self) -> None:
        if self._rows:
            self._metrics.append({name: [row[name] for row in self._rows] for name in METRICS.names})
            self._rows = []

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
                "reason": [error.problem for error in errors],
            }
        )

    def _ids(self, codes: npt.NDArray[np.int64]) -> Any:
        """Ids as the user knows them; null for a query, which need not have one, where they are strings."""
        if self._source.id_kind != "text":
            return codes
        return [self._source.id_of(code) if code >= 0 else None for code in codes.tolist()]

    def _names(self, codes: npt.NDArray[np.int32]) -> pa.Array:
        """Labels of class codes; null for -1, and for the guess of a model before any label is known."""
        if len(self._labels) < self.n_classes:
            self._labels = pa.array(self.classes, pa.string())
        return self._labels.take(pa.array(codes, mask=(codes < 0) | (codes >= len(self._labels))))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
