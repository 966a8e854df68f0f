"""Tables and figures of a run with a model for each key: every row names its key.

Invariant: as of :class:`pipelines.running.records.recorder.Recorder`: each update is in the tables once, wherever the
run was cut; counts and scores are sums over all keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config import Config
from pipelines.run_folder import RunFolder
from pipelines.running.records.tables import ALARMS, QUARANTINE, Tables, TableWriter, metrics_schema, time_type
from raydt.arrays.types import AnyArray
from raydt.evaluation.classification import Prequential
from raydt.evaluation.regression import PrequentialErrors
from raydt.evaluation.scoring import CLASS_SCORES
from raydt.examples.targets import NUMBERS
from raydt.keyed.records import TOTALS
from raydt.keyed.scores import pooled
from raydt.keyed.session import KeyedResult
from raydt.keyed.stream import KeyedBatch, KeyedStream
from raydt.learners import traits_of
from raydt.learners.description import Description
from raydt.redaction import text
from raydt.streams.base import Skipped
from raydt.streams.tally import known

_BASELINES = ("no_change", "majority", "mean")
_METRICS_LEFT_OUT = ("rebuilt_rows", "rounds", "bytes_exchanged")


class KeyedRecorder(Tables):
    """Counts, pooled scores and tables of one run.

    ``updates`` are the rows of the source that were applied, by which checkpoints are numbered; ``applied`` the updates
    of all keys that these made.
    """

    def __init__(self, folder: RunFolder, config: Config, stream: KeyedStream) -> None:
        source, output = stream.source, config.output
        self._source, self._quote = source, output.quote_values
        self._counts = traits_of(config.learner).counts
        self._numbers = source.target_dtype == NUMBERS
        kind = pa.int64() if source.key_kind == "integer" else pa.string()
        time = None if stream.times is None else time_type(stream.times)
        columns = (PrequentialErrors if self._numbers else Prequential).columns
        metrics = metrics_schema(columns, traits_of(config.learner).figures, time)
        for name in _METRICS_LEFT_OUT:
            metrics = metrics.remove(metrics.get_field_index(name))
        ids = pa.string() if source.id_kind == "text" else pa.int64()
        target = pa.float64() if self._numbers else pa.string()
        predictions = pa.schema([("seq", pa.int64()), ("id", ids), ("prediction", target), ("truth", target)])
        own = traits_of(config.learner).figures
        of_classes = (*(score.name for score in CLASS_SCORES), "no_change", "majority")
        scores = ("mse", "rmse", "mae", "r2", "no_change", "mean") if self._numbers else of_classes
        counts = (*TOTALS, "active", "nodes", "leaves", "depth", "rebuilds", "rebuilt_rows", *own, "alarms")
        keys = [*((name, pa.int64()) for name in counts), *((name, pa.float64()) for name in ("seconds", *scores))]
        schemas = {
            "keys": pa.schema([*keys, ("digest", pa.string())]),
            "metrics": metrics,
            "predictions": predictions,
            "quarantine": QUARANTINE,
            "alarms": ALARMS,
        }
        self._schemas = {name: pa.schema([pa.field("key", kind), *schema]) for name, schema in schemas.items()}
        self._tables = {name: TableWriter(folder, name, schema) for name, schema in self._schemas.items()}
        self.updates = self._without_key = 0
        self.totals_of_keys: dict[str, int] = dict.fromkeys(TOTALS, 0)
        self.scores: AnyArray = np.zeros(0)
        self.statistics: dict[str, int] = {}
        self.seconds = 0.0

    # -- what the loop asks for ------------------------------------------------------------------------------------

    def record(self, batch: KeyedBatch, result: KeyedResult, seconds: float) -> None:
        """Take one answered batch into account."""
        self.updates, self.seconds = batch.stop, seconds
        self.record_log(result)

    def _append(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        for name, columns in tables.items():
            given = dict(columns)
            if name == "quarantine":
                given["reason"] = [text(reason, self._quote) for reason in given["reason"]]
                if not self._quote:  # a key is a value of the data; file and row are there
                    given["key"] = [None] * len(given["reason"])
            self._tables[name].append({one.name: pa.array(given[one.name], one.type) for one in self._schemas[name]})

    def record_log(self, result: KeyedResult) -> None:
        """Take figures and rows of tables, also those of the end of the stream."""
        self.totals_of_keys = dict(result.totals)
        self.scores = result.scores.sum(axis=0) if len(result.scores) else result.scores
        self.statistics = result.statistics
        self._append(result.tables)

    def record_keys(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Record the table of keys, which has a row for each."""
        self._tables["keys"].renew()
        names = self._schemas["keys"].names
        self._append({"keys": {name: [row[name] for row in rows] for name in names}} if rows else {})

    def record_skipped(self, skipped: list[Skipped]) -> None:
        """Note rows without a key."""
        self._without_key += len(skipped)
        if skipped:
            self._append(
                {
                    "quarantine": {
                        "key": [None] * len(skipped),
                        "seq": [-1] * len(skipped),
                        "source_row": [entry.row for entry in skipped],
                        "file": [entry.file for entry in skipped],
                        "reason": [entry.reason for entry in skipped],
                    }
                }
            )

    def totals(self, statistics: Mapping[str, int]) -> dict[str, int]:
        """Statistics of the present session."""
        return dict(statistics)

    def state(self) -> dict[str, Any]:
        """Counters and committed parts; commits first."""
        self.commit()
        return {
            "updates": self.updates,
            "without_key": self._without_key,
            "totals": dict(self.totals_of_keys),
            "statistics": dict(self.statistics),
            "seconds": float(self.seconds),
            "next_id": 0,
            "prequential": {"sums": np.array(self.scores, dtype=np.float64)},
            "tables": self.states_of_tables(),
        }

    def continue_from(self, before: KeyedRecorder) -> None:
        """Go on from where another recorder is, in the same session, with tables that are empty."""
        self.restore({**before.state(), "tables": {}})

    def _restore_counts(self, state: Mapping[str, Any]) -> None:
        self.updates, self._without_key = int(state["updates"]), int(state["without_key"])
        self.totals_of_keys = {name: int(state["totals"][name]) for name in TOTALS}
        self.statistics, self.seconds = dict(state["statistics"]), float(state["seconds"])
        self.scores = np.array(state["prequential"]["sums"])

    # -- what the summary and the progress show ----------------------------------------------------------------------

    @property
    def prequential(self) -> KeyedRecorder:
        """Where the headline is."""
        return self

    def headline(self) -> tuple[str, float]:
        """Return the pooled score that is shown while a run is under way, and its name."""
        name = "mse" if self._numbers else "accuracy"
        return name, self._pooled(self.scores).get(name, math.nan)

    def _pooled(self, sums: AnyArray) -> dict[str, float]:
        """Return scores over the predictions of all keys."""
        return pooled(sums, numbers=self._numbers)

    def metrics(self) -> dict[str, Any]:
        """Pooled scores."""
        return known({name: one for name, one in self._pooled(self.scores).items() if name not in _BASELINES})

    def baselines(self) -> dict[str, Any]:
        """Pooled scores of the trivial predictors of each key."""
        return known({name: one for name, one in self._pooled(self.scores).items() if name in _BASELINES})

    @property
    def applied(self) -> int:
        """Updates of all keys."""
        return self.totals_of_keys["updates"]

    @property
    def active(self) -> int:
        """Live examples of all keys."""
        return self.totals_of_keys["inserts"] - self.totals_of_keys["deletes"]

    @property
    def skipped(self) -> int:
        """Rows that never became updates."""
        return self.totals_of_keys["skipped"] + self._without_key

    next_id = 0  #: Of no one stream.
    early_warmup = None  #: Each key has a warm-up of its own.

    @property
    def inserts(self) -> int:
        """Examples inserted, of all keys."""
        return self.totals_of_keys["inserts"]

    @property
    def deletes(self) -> int:
        """Examples deleted, of all keys."""
        return self.totals_of_keys["deletes"]

    @property
    def replaced(self) -> int:
        """Updates of examples, each one of ``inserts`` and of ``deletes``."""
        return self.totals_of_keys["replaced"]

    @property
    def queries(self) -> int:
        """Rows that were only predicted."""
        return self.totals_of_keys["queries"]

    @property
    def predictions(self) -> int:
        """Predictions of all keys."""
        return self.totals_of_keys["predictions"]

    @property
    def refused(self) -> int:
        """Updates that were refused and passed over."""
        return self.totals_of_keys["refused"]

    def outcome(self, description: Description, name: Callable[[int], str]) -> dict[str, Any]:
        """Return how many rows were applied, the number of keys, and sums of the counts that their models have."""
        return {"rows": self.updates, **{name: self.statistics.get(name, 0) for name in ("keys", *self._counts)}}

    @property
    def classes(self) -> list[str]:
        """Labels of all keys."""
        return [str(label) for label in self._source.classes]

    def times_read(self) -> None:
        """Of no one stream."""
