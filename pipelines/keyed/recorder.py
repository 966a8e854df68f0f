"""Tables and figures of a run with a model for each key: every row names its key.

Invariant: as of :class:`pipelines.running.records.Recorder`: each update is in the tables once, wherever the
run was cut; counts and scores are sums over all keys.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config import Config
from pipelines.id_check import MOST_UPDATES, IdSearch, without_remedy
from pipelines.run_folder import RunFolder
from pipelines.running.plans import features_of
from pipelines.running.records import ALARMS, QUARANTINE, OneModel, Tables, TableWriter, metrics_schema, time_type
from raydt.arrays.elementary import AnyArray
from raydt.errors import InputError
from raydt.evaluation.classification import Prequential
from raydt.evaluation.regression import PrequentialErrors
from raydt.evaluation.scoring import CLASS_SCORES
from raydt.examples.updates import DELETE, DELETE_VALUE, DUPLICATE_ID, INSERT, NUMBERS, QUERY, UNKNOWN_ID, UPDATE
from raydt.folders.checkpoint import Copies
from raydt.keyed.groups import Key
from raydt.keyed.members import KeyedJob, pooled
from raydt.keyed.packing import KeyedStore, Member, SavedKeys
from raydt.keyed.session import TOTALS, KeyedResult, KeyedSession
from raydt.keyed.source import KeySource, SentSource, SharedSource
from raydt.keyed.stream import ROWS, KeyedBatch, KeyedStream
from raydt.learners import learners, traits_of
from raydt.learners.description import Description
from raydt.redaction import text
from raydt.streams.base import Skipped, Stream, known, update_error

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

#: Refused updates that a check describes.
_MOST_DESCRIBED = 10


class StreamsOfKeys:
    """The stream of each key, while the rows of a source are read; ``only`` names the one key that is wanted."""

    stream: Any  #: Of the rows of all keys.

    def __init__(self, config: Config, stream: KeyedStream, only: Key | None = None) -> None:
        self.stream = stream
        self._config, self._only = config, only
        self._shared = SharedSource(stream.source, traits_of(config.learner).reading, stream.log)
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


def search_keys(config: Config, stream: KeyedStream, skip: bool) -> IdSearch | None:
    """Find the updates of any key whose ids its model refuses; as :func:`pipelines.id_check.search`.

    Updates are numbered within their key.
    """
    if stream.source.id_kind == "row":
        return None
    live: defaultdict[Key, set[int]] = defaultdict(set)
    found = IdSearch(0, complete=True)
    try:
        for key, own, _ in StreamsOfKeys(config, stream).read():
            for batch in own.batches(config.cluster.batch_size):
                for place, (op, code) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
                    if op in (QUERY, DELETE_VALUE):
                        found.complete &= op == QUERY
                    elif (op == INSERT) == (code in live[key]):
                        if batch.tolerated is not None and batch.tolerated[place]:
                            continue
                        reason = DUPLICATE_ID if op == INSERT else UNKNOWN_ID
                        error = update_error(own, batch, place, reason)
                        found.refused += 1
                        if len(found.errors) < _MOST_DESCRIBED:
                            found.errors.append(without_remedy(error) if skip else error)
                        if not skip and found.stops_at is None:
                            found.stops_at = batch.start + place
                    elif op != UPDATE:
                        (live[key].remove if op == DELETE else live[key].add)(code)
                found.updates = (found.updates or 0) + len(batch)
            own.take_skipped()
            if (found.updates or 0) >= MOST_UPDATES:
                found.complete = False
                break
    except InputError as error:
        found.errors.append(without_remedy(error) if skip else error)
        found.stops_at = found.updates if found.stops_at is None else found.stops_at
    return found


# Parts of a run with a model for each key; see :mod:`pipelines.running.checkpoint`.


class ModelsByKey(OneModel):
    """A session, a recorder and checkpoints of models by key."""

    unit = "row"

    def session(self, config: Config, stream: Any) -> Any:
        """Return what makes sessions in this process, each at the beginning."""

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

    def reports_within(self, config: Config) -> bool:
        """Return True: keys record their figures themselves."""
        return True

    def message_size(self, config: Config) -> int:
        """Return rows for many updates of each key."""
        return config.cluster.batch_size * ROWS

    def store(self, folder: RunFolder, keep: int, copies: Copies | None = None) -> KeyedStore:
        """Make the store of the checkpoints."""
        return KeyedStore(folder, keep, copies)

    def recorder(self, folder: RunFolder, config: Config, stream: Any) -> Any:
        """Make the recorder of counts, scores and tables."""
        assert isinstance(stream, KeyedStream)
        return KeyedRecorder(folder, config, stream)

    def understood(self, meta: dict[str, Any], components: Mapping[str, dict[str, Any]], place: str) -> Any:
        """Return the contents of a checkpoint; each key is checked when it is restored."""
        return SavedKeys(meta, components, place)

    def complete(self, session: Any, recorder: Any) -> None:
        """Record the table of keys."""
        recorder.record_keys(session.key_rows())

    def model(self, session: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the components of the model folder."""
        models: Mapping[str, Mapping[str, Any]] = session.models()
        return models


def job_of(config: Config, stream: Any, source: SentSource | None = None, *, predicting: bool = False) -> KeyedJob:
    """Return what the models of all keys of a run have in common; elsewhere ``source`` stands for the stream's."""
    return KeyedJob(
        SharedSource(source or stream.source, traits_of(config.learner).reading, stream.log),
        learners()[config.learner.kind],
        config.learner,
        features_of(stream.source, config.learner),
        config.stream,
        weighted=config.output.weighted_metrics,
        every=config.output.metrics_every,
        size=config.cluster.batch_size,
        predicting=predicting,
    )
