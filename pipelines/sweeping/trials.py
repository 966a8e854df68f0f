"""The sweep: every setting of a grid over rows that are read once, in parallel: on Ray, or in threads here.

Trials (``source.permutation``, ``source.seed``) have rows of their own; what follows is per setting all the same.

Invariant: a setting's metrics and digest are those of a replay with the same config; where it ran, and with which
other settings, does not show in them. What is done when a signal comes is written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import raydt
from actors.cluster import starts_ray
from pipelines.config import Config, load_variants
from pipelines.display import STARTING_RAY, Reporter, sweep_facts, terminal
from pipelines.logs import log_to
from pipelines.receipts import quoting
from pipelines.report.page import document
from pipelines.run_folder import RunFolder
from pipelines.running.ending import Interruption, versions
from pipelines.running.intake import Intake, feed
from pipelines.running.plans import features_of, location_of, with_address
from pipelines.running.records import writing
from pipelines.running.scoring import scored, scored_by_key
from pipelines.saved_runs import inputs_of, keyed_stream, no_rows, require_apart
from pipelines.sweeping.grid import (
    COUNTS,
    CURVE,
    SCORES,
    WINDOWS,
    Axis,
    Grid,
    Row,
    Settings,
    against_baselines,
    best,
    curves_of,
    read_grid,
    settings_of,
    table_of,
    winners,
    written,
)
from raydt.errors import ConfigError, InputError, NotWrittenError, ProcessLostError, message_of
from raydt.evaluation import warmup as warm_up_evaluation
from raydt.examples.updates import BatchResult, Reading, UpdateBatch
from raydt.folders.folder import locked
from raydt.keyed.members import pooled as pooled_scores
from raydt.keyed.session import KeyedSession, KeyFailedError
from raydt.keyed.stream import ROWS
from raydt.learners import description_of, learners, traits_of
from raydt.learners.base import NOTHING_DIVIDED, LearnerOptions
from raydt.messages import message, text
from raydt.parallel import in_order, limited, threads
from raydt.presentation.blocks import pairs
from raydt.presentation.charts import counted
from raydt.sessions.session import BY_KEY, ONE_MODEL, InProcessSession, Use, compile_kernels, compile_missing
from raydt.sources.base import Source
from raydt.sources.divided import open_source
from raydt.sources.file_source import StoredSource
from raydt.streams.base import Tally, known
from raydt.streams.deletion_log import warmup as warm_up_streams
from raydt.streams.windows import Training, TrainingStream

# The rows of a sweep: settings whose learners read the same source in the same way share one reading of it.
#
# Settings of different trials (``source.permutation``, ``source.seed``) have different sources. All are opened before
# anything runs; each is read when its turn comes.


@dataclass(slots=True)
class Trial:
    """Settings with the same rows."""

    settings: list[int]  #: places in the grid
    configs: list[Config]
    opened: Source | None

    def read(self) -> StoredSource:
        """Return all rows, and let go of what was opened.

        ``InputError`` if the source cannot be read to its end, has no rows, or has a bad one that a setting does not
        pass over.
        """
        assert self.opened is not None
        source, self.opened = _stored(self.configs[0], self.opened), None
        if not source.n_rows:
            raise no_rows(self.configs[0])
        bad = source.first_bad()
        if bad is not None and any(config.stream.on_error == "fail" for config in self.configs):
            raise bad
        return source


def by_key(config: Config) -> bool:
    """Return True if a config has a model for each key."""
    return getattr(config.source, "key", None) is not None


def _stored(config: Config, source: Any) -> StoredSource:
    """Read all rows of a source."""
    if not by_key(config):
        return StoredSource(source)
    from raydt.keyed.packing import StoredKeys

    return StoredKeys(source)


def _require_stream(config: Config, source: Any) -> None:
    """Refuse (ConfigError, InputError) a stream that does not fit the source, and have it read what streams need."""
    if by_key(config):
        from pipelines.running.keyed import job_of

        job_of(config, keyed_stream(config, source))
    else:
        config.stream.make(source)


def trials_of(configs: Mapping[int, Config], refuse: Callable[[int, ConfigError | InputError], None]) -> list[Trial]:
    """Group settings by source and reading, in order; ``refuse`` gets the error of each setting that cannot be run."""
    trials: dict[tuple[str, Reading], Trial] = {}
    sources: dict[tuple[str, Reading], Source] = {}
    checked: set[tuple[str, Reading, str]] = set()
    for index, config in configs.items():
        reading = config.reading
        if reading.regression:
            refuse(index, ConfigError(message("sweeps.numbers")))
            continue
        key = config.source.model_dump_json(), reading
        try:
            if key not in sources:
                sources[key] = open_source(config.source, reading=reading)
            own = config.learner.model_dump_json() if by_key(config) else ""  # a job by key is of a learner, too
            if (options := (*key, config.stream.model_dump_json() + own)) not in checked:
                _require_stream(config, sources[key])
                checked.add(options)
        except (ConfigError, InputError) as error:
            refuse(index, error)
            continue
        trials.setdefault(key, Trial([], [], sources[key])).settings.append(index)
        trials[key].configs.append(config)
    return [*trials.values()]


def read_first(
    configs: Mapping[int, Config], values: Sequence[Mapping[str, Any]], refused: dict[int, ConfigError | InputError]
) -> tuple[list[Trial], StoredSource]:
    """Return the trials that can be run, and the rows of the first; the settings of others are ``refused``.

    Raise the error of the first setting if none can be run: a ConfigError names it.
    """
    trials = trials_of(configs, refused.__setitem__)
    while trials:
        try:
            return trials, trials[0].read()
        except InputError as error:
            refused |= dict.fromkeys(trials.pop(0).settings, error)
    first = refused[min(refused)]
    if isinstance(first, ConfigError):
        first = ConfigError(*(problem.at(f"with {named(values[min(refused)])}") for problem in first.args))
    raise first


def named(setting: Mapping[str, Any]) -> str:
    """Return a setting for messages."""
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in setting.items())


def sets_of(first: Config, other: Config, keys: Iterable[str]) -> dict[str, Any]:
    """Return by dotted key what makes the config ``first``, with all its options, the ``other`` one of a sweep.

    These are the ``keys`` of the grid and, as another learner has other defaults, the options that differ.
    """
    found = {key: _value_of(other, key) for key in keys}
    before, after = first.resolved(), other.resolved()
    for section in ("learner", "stream"):
        defaults = type(getattr(other, section)).model_fields
        for name, value in after[section].items():
            if value != before[section].get(name, defaults[name].default):
                found[f"{section}.{name}"] = value
    return found


def _value_of(config: Config, key: str) -> Any:
    """Return the value of a dotted key; its default, where the setting's group does not have the key."""
    found: Any = config.resolved()
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


# One setting of a sweep: its own stream over the stored rows, its own engine, scored as a replay is.


def cached(config: Config) -> None:
    """Compile the kernels of streams and a learner that are not in the cache."""
    warm_up_streams()
    warm_up_evaluation()
    compile_missing(learners()[config.learner.kind], config.learner, BY_KEY if by_key(config) else ONE_MODEL)


def loaded(config: Config) -> None:
    """Compile kernels as :func:`cached` does, and load them, once in this process."""
    cached(config)
    uses = Use.ALONE | Use.KEYS if by_key(config) else Use.ALONE
    compile_kernels(learners()[config.learner.kind], config.learner, uses)


def loaded_all(everything: None, several: Sequence[Config]) -> None:
    """Load the kernels of several settings, as a piece of work for a process of Ray; ``everything`` is not used."""
    for config in several:
        loaded(config)


def run_setting(
    source: StoredSource, config: Config, stopped: Callable[[], bool] = lambda: False
) -> dict[str, Any] | None:
    """Run one setting over the rows of its source, until it is done or ``stopped`` says so.

    Returns columns of the sweep's table, and ``curve``, those of its curves; after an error only ``updates``, ``error``
    and ``exit_code``. None if the setting was ended early.
    """
    loaded(config)
    updates = 0

    def ends(done: int) -> bool:
        nonlocal updates
        updates = done
        return stopped()

    try:
        return (_run_keys if by_key(config) else _run)(source, config, ends)
    except Exception as error:  # one setting's defect must not end the others
        return {"updates": updates, "error": message_of(error), "exit_code": getattr(error, "exit_code", 1)}


def _run(source: StoredSource, config: Config, ends: Callable[[int], bool]) -> dict[str, Any] | None:
    """Run one setting with one model; ``ends`` is asked after each batch, with the updates that are done."""
    moments: list[tuple[int, int, int | None]] = []
    stream = config.stream.make(source)
    features = features_of(source, config.learner)

    def opened() -> InProcessSession:
        return InProcessSession(learners()[config.learner.kind], config.learner, features, 1, NOTHING_DIVIDED)

    holdout: dict[str, Any] = {}
    if isinstance(stream, TrainingStream) and isinstance(config.stream, Training) and config.stream.holdout:
        holdout = scored(config, opened(), stream.rest(), features)
        stream = config.stream.make(source)
    session = opened()
    tally = Tally(stream, weighted=config.output.weighted_metrics)
    intake = Intake(stream, config.cluster.batch_size, config.output.metrics_every)

    def note(batch: UpdateBatch, result: BatchResult) -> None:
        if ends(tally.updates):
            intake.stop()
        if tally.updates % config.output.metrics_every == 0:
            moments.append((tally.updates, tally.predictions, tally.statistics.get("leaves")))
            tally.prequential.mark()

    began = time.thread_time()
    feed(config, session, intake, tally, note)
    cpu_seconds = time.thread_time() - began
    if intake.error is not None:
        raise intake.error
    if intake.stopped:
        return None
    metrics = {**tally.metrics(), **holdout.get("metrics", {})}
    scores = tally.prequential.take_rows()
    columns = [*zip(*moments, strict=True), *(scores[name].tolist() for name in ("accuracy", "f1", *WINDOWS))]

    def name(feature: int) -> str:
        return features.name(feature, source.tokens.to_pylist())

    return {
        **{name: getattr(tally, name) for name in COUNTS},
        **({"predictions": holdout["rows"]} if holdout else {}),
        **{name: metrics[name] for name in (*SCORES, "alarms")},
        **tally.baselines(),
        **holdout.get("baselines", {}),
        "seconds": tally.seconds,
        **_cost(cpu_seconds, tally.updates),
        **_work(config.learner, session, name),
        "curve": dict(zip(CURVE, columns, strict=True)) if moments else {},
    }


def _run_keys(source: StoredSource, config: Config, ends: Callable[[int], bool]) -> dict[str, Any] | None:
    """Run one setting with a model for each key, as :func:`_run`: without a curve, which each key has."""
    from pipelines.running.keyed import job_of

    holdout: dict[str, Any] = {}
    if isinstance(config.stream, Training) and config.stream.holdout:
        holdout = scored_by_key(config, keyed_stream(config, source))
    stream, without_key = keyed_stream(config, source), 0
    with closing(KeyedSession(job_of(config, stream))) as session:
        began, cpu_began = time.perf_counter(), time.thread_time()
        for batch in stream.batches(config.cluster.batch_size * ROWS):
            try:
                if ends(session.apply(batch).totals["updates"]):
                    return None
            except KeyFailedError as error:  # there is no checkpoint to go back to
                raise error.__cause__ or error from None
            without_key += len(stream.take_skipped())
        result = session.finish()
        seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu_began
        totals = result.totals
        if not totals["updates"] and not totals["skipped"] + without_key:
            raise no_rows(config)
        scores = result.scores.sum(axis=0) if len(result.scores) else result.scores
        return {
            **{name: totals[name] for name in ("updates", "inserts", "deletes", "predictions", "refused")},
            "active": totals["inserts"] - totals["deletes"],
            "skipped": totals["skipped"] + without_key,
            "no_change": None,
            "majority": None,
            **known(pooled_scores(scores, numbers=False)),
            **({"predictions": holdout["rows"]} if holdout else {}),
            **{name: one for name, one in holdout.get("metrics", {}).items() if name in SCORES},
            **holdout.get("baselines", {}),
            "alarms": sum(row["alarms"] for row in session.key_rows()),
            "seconds": seconds,
            **_cost(cpu_seconds, totals["updates"]),
            **_work(config.learner, session),
            "curve": {},
        }


def _cost(cpu_seconds: float, updates: int) -> dict[str, float | None]:
    """Return the columns of processor time: settings share the cores, so wall time tells how busy the machine was."""
    return {"cpu_seconds": cpu_seconds, "us_per_update": 1e6 * cpu_seconds / updates if updates else None}


def _work(options: LearnerOptions, session: Any, name: Callable[[int], str] | None = None) -> dict[str, Any]:
    """Return the learner's figures, its promise and the digest; ``name`` names features, None of models by key.

    A learner that never rebuilds has no rebuilds: their count would always be 0.
    """
    statistics, description, learner = session.statistics(), description_of(options), learners()[options.kind]
    outcome = {} if name is None else description.outcome(statistics, name)
    found = description.values({**statistics, **outcome})
    if not traits_of(options).rebuilds:
        found |= dict.fromkeys(found.keys() & {"rebuilds", "rebuilt_rows"})
    return {**found, "promised": learner.promise(options).promised, "digest": session.digest()}


log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
#: Settings for each thread, at most, that have begun while an earlier one is not done: results come in order.
_BEGUN = 4


@dataclass(frozen=True, repr=False)
class SweepResult:
    """Outcome of a sweep."""

    path: str  #: folder: an absolute path or a URI
    table: pa.Table  #: content of ``sweep.parquet``: a row for each setting that was run, in the order of the grid
    curves: pa.Table  #: content of ``curves.parquet``: the logged moments of each setting
    summary: dict[str, Any]  #: content of ``sweep.json``
    lines: list[str]  #: what a terminal shows

    def __repr__(self) -> str:
        return f"SweepResult({self.path!r}, {self.status}, {self.summary['done']:,} settings)"

    @property
    def status(self) -> str:
        """Return ``completed`` or ``interrupted``."""
        return str(self.summary["status"])

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0, 1 or 2 if a setting failed, 130 or 143 after a signal."""
        return int(self.summary["exit_code"])

    @property
    def best(self) -> dict[str, dict[str, Any]]:
        """Return by score the best setting: its number ``setting``, ``values`` by key, and the score as ``value``."""
        return dict(self.summary["best"])


def _of_all_rows(data: dict[str, Any], place: str) -> None:
    """Compare models by their hold-out, as of ``train``, for a config that says of no stream what is learned when."""
    source = data.get("source")
    if not data.get("stream") and isinstance(source, dict) and source.get("op") is None and source.get("key") is None:
        data["stream"] = {"model": Training().model}


def sweep(
    config: Config | Mapping[str, Any] | str | Path,
    grid: Grid,
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    address: str | None = None,
    overwrite: bool = False,
    progress: Reporter | None = None,
) -> SweepResult:
    """Run every setting of a grid.

    Parameters
    ----------
    config : Config, mapping or path of a YAML file
    grid : sequence of str, or mapping
        As :func:`pipelines.sweeping.page.read_grid` takes it: ``["learner.epsilon=0:2:0.1"]``, or
        ``{"learner.epsilon": [0.1, 0.2], "learner.max_depth": [5, None]}``.
    out : path or URI, optional
        Folder, new or empty; ``runs/<UTC>-<config>-sweep`` by default.
    overrides, address, overwrite, progress
        As of :func:`pipelines.running.replay.replay`.

    Returns
    -------
    SweepResult
        Also if settings failed or cannot be run (their rows say why), or a signal came.

    Raises
    ------
    ConfigError
        No setting can be run, the first of them named, or an output folder is not empty. Nothing has been run.
    InputError
        The source cannot be read to its end, or has a bad row and ``stream.on_error`` is not ``skip``, whatever the
        setting. Nothing has been run.
    """
    axes = read_grid(grid)
    values = settings_of(axes)
    refused: dict[int, ConfigError | InputError] = {}
    chosen = {key.partition("=")[0].strip() for key in overrides} | {axis.key for axis in axes}
    of_stream = {key for key in chosen if key.startswith("stream")} - {"stream.on_error", "stream.holdout"}
    prepare = None if of_stream else _of_all_rows
    loaded = load_variants(config, with_address(overrides, address), values, prepare, refuse=refused.__setitem__)
    configs = dict(zip((index for index in range(len(values)) if index not in refused), loaded, strict=True))
    progress = progress or Reporter()
    quote = all(one.output.quote_values for one in loaded)
    with Interruption() as interruption, quoting(quote), limited(loaded[0].cluster.most_threads):
        location = location_of(out, f"{loaded[0].name}-sweep")
        require_apart("--out", location, {read for one in loaded for read in inputs_of(one, config)})
        folder = RunFolder.create(location, overwrite=overwrite)
        try:
            with locked(folder):
                folder.require_untouched()
                interruption.on_cut(folder.discard_beginning)
                progress.stage(message("sweeps.reading"))
                began = time.perf_counter()
                trials, source = read_first(configs, values, refused)
                reading = time.perf_counter() - began
                one = _Sweep(axes, values, configs, folder, interruption)
                try:
                    with log_to(folder, quote):
                        for index in sorted(refused):
                            one.refuse(index, refused[index])
                        return one.run(trials, source, reading, progress)
                except (SystemExit, NotWrittenError):
                    folder.discard_beginning()
                    raise
        except BaseException:
            folder.discard_if_empty()
            raise


class _Sweep:
    """One sweep, from its first setting to its page."""

    def __init__(
        self,
        axes: Sequence[Axis],
        values: Sequence[Mapping[str, Any]],
        configs: Mapping[int, Config],
        folder: RunFolder,
        interruption: Interruption,
    ) -> None:
        self.axes, self.values, self.configs = axes, values, configs  # by setting, if it is a config
        self.folder, self.interruption = folder, interruption
        self.first = next(iter(configs.values()))
        self.cluster = self.first.cluster
        self.started, self.parallel = datetime.now(timezone.utc), 1
        self.rows: list[Row] = []
        self.curves: dict[int, dict[str, Any]] = {}
        self.reading = 0.0

    def run(self, trials: Sequence[Trial], source: StoredSource, reading: float, progress: Reporter) -> SweepResult:
        """Run the settings and write what came out; ``source`` has the rows of the first trial."""
        self.reading = reading
        note = f"{message('sweeps.first_setting', setting=named(self.values[next(iter(self.configs))]))}.\n"
        with writing(self.folder.location):
            self.folder.write_text("config.yaml", note + self.first.to_yaml())
        where = "sweeps.starting_on_ray" if self.cluster.backend == "ray" else "sweeps.starting_here"
        progress.stage(message(where, settings=len(self.values)))
        if self.cluster.backend == "ray" and starts_ray(self.cluster.address):
            progress.stage(STARTING_RAY)
        began = time.perf_counter()
        with self._results(trials, source) as results:
            startup = time.perf_counter() - began
            began = time.perf_counter()

            def times() -> dict[str, float]:
                seconds = time.perf_counter() - began
                return {"seconds": seconds, "read_seconds": self.reading, "startup_seconds": startup}

            def cut_short() -> str:
                with contextlib.suppress(Exception):
                    progress.stop()
                self._write(source, times(), self.interruption.signal)
                settings = counted(len(self.values), "setting")
                return message("sweeps.interrupted", done=len(self.rows), settings=settings)

            self.interruption.arm(lambda: None, cut_short)
            progress.start(len(self.values), "settings")
            try:
                for index, result in results:
                    self._record(index, result)
                    progress.advance(len(self.rows), self._so_far())
            finally:
                progress.stop()
            taken = times()
        complete = len(self.rows) == len(self.values)  # a signal comes when nothing is left to be done
        stop = self.interruption.settle(self._code(None) if complete else None)
        with writing(self.folder.location):
            return self._write(source, taken, None if complete else stop)

    @contextmanager
    def _results(
        self, trials: Sequence[Trial], first: StoredSource
    ) -> Iterator[Iterator[tuple[int, Row | ProcessLostError | None]]]:
        """Yield results by place in the grid as they come; None for a setting that was ended early."""
        if self.cluster.backend == "in_process":
            for config in self.configs.values():
                loaded(config)
            yield self._here(trials, first)
            return
        from actors.cluster import connect, cpus

        for config in self.configs.values():
            cached(config)
        # Ray prints warnings of its raylet to stdout, which belongs to results.
        with redirect_stdout(sys.stderr):
            cluster = connect(self.cluster.address, [{"CPU": 1.0}])
            try:
                from actors.keyed_session import run_tasks

                self.parallel = min(cpus(), len(self.configs))
                order: list[int] = []

                def parts() -> Iterator[tuple[StoredSource, Sequence[Config]]]:
                    for trial, source in self._read(trials, first):
                        order.extend(trial.settings)
                        yield source, trial.configs

                # Settings begin when every process has imported and loaded what they need, as in this process.
                several = [*self.configs.values()]
                for _ in run_tasks(cluster, loaded_all, [(None, [several] * self.parallel)], self._stopped):
                    pass
                answers = run_tasks(cluster, run_setting, parts(), self._stopped)
                yield ((order[place], answer) for place, answer in answers)
            finally:
                cluster.close()

    def _here(
        self, trials: Sequence[Trial], first: StoredSource
    ) -> Iterator[tuple[int, Row | ProcessLostError | None]]:
        """Yield the results of settings in the order of the grid; as many run at once as there are threads."""
        most, self.parallel = max(1, threads() // len(self.configs)), min(threads(), len(self.configs))

        def run(source: StoredSource, index: int, config: Config) -> tuple[int, Row | None]:
            with limited(most):
                return index, run_setting(source, config, self._stopped)

        def settings() -> Iterator[Callable[[], tuple[int, Row | None]]]:
            for trial, source in self._read(trials, first):
                for index, config in zip(trial.settings, trial.configs, strict=True):
                    if self._stopped():
                        return
                    yield partial(run, source, index, config)

        if self.parallel == 1:
            yield from (setting() for setting in settings())
        else:
            with closing(in_order(settings(), self.parallel, _BEGUN * self.parallel)) as results:
                yield from results

    def _stopped(self) -> bool:
        """Return True once a signal has come."""
        return self.interruption.signal is not None

    def _read(self, trials: Sequence[Trial], first: StoredSource) -> Iterator[tuple[Trial, StoredSource]]:
        """Yield each trial with its rows, read when asked for; settings of one that cannot be read have failed."""
        yield trials[0], first
        for trial in trials[1:]:
            began = time.perf_counter()
            try:
                source = trial.read()
            except InputError as error:
                for index in trial.settings:
                    self.refuse(index, error)
                continue
            self.reading += time.perf_counter() - began
            yield trial, source

    def refuse(self, index: int, error: ConfigError | InputError) -> None:
        """Record that a setting cannot be run."""
        self._record(index, {"updates": 0, "error": message_of(error), "exit_code": error.exit_code})

    def _record(self, index: int, result: Row | ProcessLostError | None) -> None:
        if result is None:
            return
        if isinstance(result, ProcessLostError):
            result = {"error": str(result), "exit_code": result.exit_code}
        self.curves[index] = result.pop("curve", {})
        config = self.configs.get(index, self.first)
        kind = self.values[index].get("learner.kind", config.learner.kind)
        row = {"setting": index, "learner": kind, **self.values[index], **result}
        failed = "error" in row
        if failed:
            row["error"] = text(row["error"], config.output.quote_values)
        self.rows.append(row)
        log.log(logging.ERROR if failed else logging.INFO, f"setting {'failed' if failed else 'done'}", extra=row)

    def _so_far(self) -> str:
        """Return the best accuracy for the progress bar."""
        accuracies = [row["accuracy"] for row in self.rows if row.get("accuracy") is not None]
        failed = sum("error" in row for row in self.rows)
        parts = [f"best accuracy {max(accuracies):.3f}" if accuracies else "", f"{failed} failed" if failed else ""]
        return ", ".join(filter(None, parts))

    def _code(self, stop: signal.Signals | None) -> int:
        failures = {row["exit_code"] for row in self.rows if "error" in row}
        return 128 + stop if stop is not None else min(failures, default=0)

    def _write(self, source: StoredSource, times: dict[str, float], stop: signal.Signals | None) -> SweepResult:
        """Write table, summary and page, the most needed first."""
        self.rows.sort(key=itemgetter("setting"))
        table, curves = table_of(self.axes, self.rows), curves_of(self.curves)
        for name, content in (("sweep.parquet", table), ("curves.parquet", curves)):
            buffer = pa.BufferOutputStream()
            pq.write_table(content, buffer, compression="zstd")
            self.folder.publish(name, memoryview(buffer.getvalue()))
        plain = {index: config.resolved() for index, config in self.configs.items()}
        runs = Settings(self.axes, self.rows, plain, self.curves)
        summary: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "name": self.first.name,
            "status": "completed" if stop is None else "interrupted",
            "exit_reason": "end_of_grid" if stop is None else stop.name,
            "exit_code": self._code(stop),
            "grid": {axis.key: list(axis.values) for axis in self.axes},
            "settings": len(self.values),
            "trials": len({config.source.model_dump_json() for config in self.configs.values()}),
            "done": len(self.rows),
            "failed": sum("error" in row for row in self.rows),
            "best": winners(runs.axes, runs.rows),
            "verdict": against_baselines(runs.rows),
            "learner": self.first.learner.kind,
            "rows": source.n_rows,
            "backend": self.cluster.backend,
            "parallel": self.parallel,
            **times,
            "started": self.started.isoformat(timespec="seconds"),
            "raydt_version": raydt.__version__,
            "versions": versions(),
            "source_fingerprint": source.identity().fingerprint,
            "label": getattr(self.first.source, "label", None),
            "positive": source.positive,
        }
        self.folder.write_text("sweep.json", json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        top, command = best(runs.rows).get("accuracy"), ""
        if top is not None:
            sets = sets_of(self.first, self.configs[top["setting"]], (axis.key for axis in runs.axes))
            words = (word for key, value in sets.items() for word in ("--set", f"{key}={written(value)}"))
            command = shlex.join(["raydt", "replay", f"{self.folder.location}/config.yaml", *words])
        facts = sweep_facts(summary, self.folder.location)
        shown = runs.article(summary, facts, command, self.first.to_yaml())
        self.folder.write_text("sweep.html", document(shown.title, "sweep", [shown]))
        lines = terminal(*runs.tables(), pairs([*facts, ("page", f"{self.folder.location}/sweep.html")]))
        return SweepResult(self.folder.location, table, curves, summary, lines.split("\n"))
