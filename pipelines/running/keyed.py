"""Tables and figures of a run with a model for each key: every row names its key.

Invariant: as of :class:`pipelines.running.records.Recorder`: each update is in the tables once, wherever the
run was cut; counts and scores are sums over all keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config import Config
from pipelines.run_folder import RunFolder
from pipelines.running.plans import features_of
from pipelines.running.records import (
    ALARMS,
    QUARANTINE,
    Recorder,
    Tables,
    metrics_schema,
    predictions_schema,
    time_type,
)
from raydt.arrays.elementary import AnyArray
from raydt.evaluation.classification import Prequential
from raydt.evaluation.regression import PrequentialErrors
from raydt.evaluation.scoring import CLASS_SCORES
from raydt.examples.updates import NUMBERS
from raydt.keyed.groups import Key
from raydt.keyed.members import KeyedJob, pooled
from raydt.keyed.packing import Member
from raydt.keyed.session import TOTALS, KeyedResult, KeyedSession
from raydt.keyed.source import KeySource, SentSource, SharedSource
from raydt.keyed.stream import ROWS, KeyedBatch, KeyedStream
from raydt.learners import learners, traits_of
from raydt.learners.description import Description
from raydt.streams.base import Skipped, Stream, known

_BASELINES = ("no_change", "majority", "mean")
_METRICS_LEFT_OUT = ("rebuilt_rows", "rounds", "bytes_exchanged")


class KeyedRecorder(Tables):
    """Counts, pooled scores and tables of one run.

    ``updates`` are the rows of the source that were applied, by which checkpoints are numbered; ``applied`` the updates
    of all keys that these made.
    """

    def __init__(self, folder: RunFolder, config: Config, stream: KeyedStream) -> None:
        source, learner = stream.source, traits_of(config.learner)
        self._source, self._counts = source, learner.counts
        self._numbers = source.target_dtype == NUMBERS
        time = None if stream.times is None else time_type(stream.times)
        metrics = metrics_schema((PrequentialErrors if self._numbers else Prequential).columns, learner.figures, time)
        of_classes = (*(score.name for score in CLASS_SCORES), "no_change", "majority")
        scores = ("mse", "rmse", "mae", "r2", "no_change", "mean") if self._numbers else of_classes
        counts = (*TOTALS, "active", "nodes", "leaves", "depth", "rebuilds", "rebuilt_rows", *learner.figures, "alarms")
        keys = [*((name, pa.int64()) for name in counts), *((name, pa.float64()) for name in ("seconds", *scores))]
        schemas = {
            "keys": pa.schema([*keys, ("digest", pa.string())]),
            "metrics": [column for column in metrics if column.name not in _METRICS_LEFT_OUT],
            "predictions": predictions_schema(source.id_kind == "text", source.target_dtype),
            "quarantine": QUARANTINE,
            "alarms": ALARMS,
        }
        key = pa.field("key", pa.int64() if source.key_kind == "integer" else pa.string())
        self._schemas = {name: pa.schema([key, *schema]) for name, schema in schemas.items()}
        super().__init__(folder, self._schemas, quote=config.output.quote_values)
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

    def _append(self, table: str, columns: Mapping[str, Any]) -> None:
        """Add rows to a table as in the base class; the key is a value of the data, too."""
        if "key" not in columns or (table == "quarantine" and not self._quote):
            columns = {**columns, "key": [None] * len(columns["seq"])}
        super()._append(table, columns)

    def record_log(self, result: KeyedResult) -> None:
        """Take figures and rows of tables, also those of the end of the stream."""
        self.totals_of_keys = dict(result.totals)
        self.scores = result.scores.sum(axis=0) if len(result.scores) else result.scores
        self.statistics = result.statistics
        for table, columns in result.tables.items():
            self._append(table, columns)

    def complete(self, session: Any, of_keys: Sequence[Mapping[str, Any]] = ()) -> None:
        """Record the table of keys, which has a row for each; with scores of a training run on the rows held out."""
        self._tables["keys"].renew()
        held_out = {one["key"]: one for one in of_keys}
        if rows := [{**row, **held_out.get(row["key"], {})} for row in session.key_rows()]:
            self._append("keys", {name: [row[name] for row in rows] for name in self._schemas["keys"].names})

    def record_skipped(self, skipped: list[Skipped]) -> None:
        """Note rows without a key."""
        self._without_key += len(skipped)
        super().record_skipped(skipped)

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

    def _restore_counts(self, state: Mapping[str, Any]) -> None:
        self.updates, self._without_key = int(state["updates"]), int(state["without_key"])
        self.totals_of_keys = {name: int(state["totals"][name]) for name in TOTALS}
        self.statistics, self.seconds = dict(state["statistics"]), float(state["seconds"])
        self.scores = np.array(state["prequential"]["sums"])

    # -- what the summary and the progress show ----------------------------------------------------------------------

    @property
    def prequential(self) -> KeyedRecorder:
        """The position of the headline."""
        return self

    def headline(self) -> tuple[str, float]:
        """Return the pooled score that is shown while a run is under way, and its name."""
        name = "mse" if self._numbers else "accuracy"
        return name, pooled(self.scores, numbers=self._numbers).get(name, math.nan)

    def metrics(self, *, baselines: bool = False) -> dict[str, Any]:
        """Scores over the predictions of all keys, or those of the trivial predictors of each key."""
        scores = pooled(self.scores, numbers=self._numbers)
        return known({name: one for name, one in scores.items() if (name in _BASELINES) == baselines})

    def baselines(self) -> dict[str, Any]:
        """Pooled scores of the trivial predictors of each key."""
        return self.metrics(baselines=True)

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

    def __getattr__(self, name: str) -> int:
        """Return a count of all keys."""
        if name not in TOTALS:
            raise AttributeError(name)
        return self.totals_of_keys[name]

    def outcome(self, description: Description, name: Callable[[int], str]) -> dict[str, Any]:
        """Return how many rows were applied, the number of keys, and sums of the counts that their models have."""
        return {"rows": self.updates, **{name: self.statistics.get(name, 0) for name in ("keys", *self._counts)}}

    @property
    def classes(self) -> list[str]:
        """Labels of all keys."""
        return [str(label) for label in self._source.classes]

    def times_read(self) -> None:
        """Of no one stream."""


# The stream of each key while the rows of a source are read, without models: for checks and audits.


class StreamsOfKeys:
    """The stream of each key, while the rows of a source are read; ``only`` names the one key that is wanted."""

    stream: Any  #: Of the rows of all keys.

    def __init__(self, config: Config, stream: KeyedStream, only: Key | None = None) -> None:
        self.stream = stream
        self._config, self._only = config, only
        self._shared = SharedSource(stream.source, config.reading, stream.log)
        config.stream.make(KeySource(self._shared))  # which has the source read event times, if it needs some
        self._found: dict[Key, tuple[KeySource, Stream]] = {}
        self._batches = stream.batches(config.cluster.batch_size * ROWS)
        self._rest: KeyedBatch | None = None  # the rows of the last batch that were not wanted yet

    def of(self, key: Member) -> Stream:
        """Return the stream of a key, which may begin."""
        return self._of(key)[1]

    def _of(self, key: Key) -> tuple[KeySource, Stream]:
        if key not in self._found:
            source = KeySource(self._shared)
            self._found[key] = source, self._config.stream.make(source)
        return self._found[key]

    def begin(self, key: Member, at: Mapping[str, Any]) -> Stream:
        """Return the stream of a key, at the place of a saved state of it."""
        source, own = self._of(key)
        source.restore(at["source"])
        source.go_to(int(at["row"]), int(at.get("deletions", 0)))
        own.restore(dict(at))
        return own

    def forget(self, key: Key) -> None:
        """Have a key begin anew with its next row."""
        self._found.pop(key, None)

    def read(self, stop: int | None = None, deletions: int = 0) -> Iterator[tuple[Member, Stream, int | None]]:
        """Read rows up to ``stop`` (None: all) and yield each key whenever its stream has new updates: all are due.

        Its batches are to be read then. ``deletions`` are the entries of a log that belong to the rows before ``stop``.
        """
        done = 0
        while stop is None or done < stop or self.stream.deletions < deletions:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                return
            part, self._rest = (batch, None) if stop is None else batch.cut(stop)
            done = part.stop
            for key, rows, due in self._shared.split(part.rows, part.due):
                if key is not None and self._only in (None, key):
                    source, own = self._of(key)
                    source.give(rows, due)
                    yield key, own, None
            if self._rest is not None:
                return


class StreamOfOne(StreamsOfKeys):
    """The stream of a run without keys."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def of(self, key: Member) -> Stream:
        """Return the stream."""
        own: Stream = self.stream
        return own

    def begin(self, key: Member, at: Mapping[str, Any]) -> Stream:
        """Return the stream, which is there already."""
        return self.of(key)

    def read(self, stop: int | None = None, deletions: int = 0) -> Iterator[tuple[Member, Stream, int | None]]:
        """Yield the stream, whose updates are due up to ``stop``."""
        yield None, self.of(None), stop


def streams_of(config: Config, stream: Any, only: Member = None) -> StreamsOfKeys:
    """Return the streams of the members of a run, or of the one that is wanted."""
    return StreamsOfKeys(config, stream, only) if isinstance(stream, KeyedStream) else StreamOfOne(stream)


# What records and makes the models of a run, one or one for each key. The loop, its end and its resume are the same.


def recorder_of(folder: RunFolder, config: Config, stream: Any) -> Any:
    """Make the recorder of counts, scores and tables of a run."""
    if isinstance(stream, KeyedStream):
        return KeyedRecorder(folder, config, stream)
    return Recorder(folder, config.output, stream, traits_of(config.learner).figures)


def sessions_of(config: Config, stream: Any) -> Callable[[Config, int, Any, Any], Any] | None:
    """Return what makes sessions of models by key, each at the beginning; None of one model, whose learner does."""
    if not isinstance(stream, KeyedStream):
        return None

    def make(config: Config, epoch: int, cluster: Any, resources: Any) -> Any:
        predicting, source = config.output.predictions, stream.source
        if cluster is None:
            return KeyedSession(job_of(config, stream, predicting=predicting))
        from actors.keyed_session import RayKeyedSession  # which imports Ray

        return RayKeyedSession(
            cluster,
            job_of(config, stream, SentSource.of(source), predicting=predicting),
            source,
            shards=config.placement.shards or 1,
            resources=resources,
            epoch=epoch,
            patience=config.cluster.patience_seconds,
        )

    return make


def job_of(config: Config, stream: Any, source: SentSource | None = None, *, predicting: bool = False) -> KeyedJob:
    """Return what the models of all keys of a run have in common; elsewhere ``source`` stands for the stream's."""
    return KeyedJob(
        SharedSource(source or stream.source, config.reading, stream.log),
        learners()[config.learner.kind],
        config.learner,
        features_of(stream.source, config.learner),
        config.stream,
        weighted=config.output.weighted_metrics,
        every=config.output.metrics_every,
        size=config.cluster.batch_size,
        predicting=predicting,
    )
