"""The sweep: every setting of a grid over rows that are read once, in parallel: on Ray, or in threads here.

Trials (``source.permutation``, ``source.seed``) have rows of their own; what follows is per setting all the same.

Invariant: a setting's metrics and digest are those of a replay with the same config; where it ran, and with which
other settings, does not show in them. What is done when a signal comes is written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from pipelines.config import Config, load_config, load_variants
from pipelines.logs import log_to
from pipelines.outputs import inputs_of, require_apart
from pipelines.progress import STARTING_RAY, Reporter
from pipelines.redaction import quoting
from pipelines.report.document import document
from pipelines.run_folder import RunFolder
from pipelines.running.ending import versions
from pipelines.running.interruption import Interruption
from pipelines.running.preflight import location_of, require_ray
from pipelines.running.records.table_parts import writing
from pipelines.sweeping.grid import Axis, Grid, read_grid, settings_of
from pipelines.sweeping.page import article, tables
from pipelines.sweeping.rows import Trial, named, read_first, sets_of
from pipelines.sweeping.setting import cached, loaded, loaded_all, run_setting
from pipelines.sweeping.table import Row, against_baselines, best, curves_of, pooled, table_of, winners
from pipelines.terminal import terminal
from raydt.errors import ConfigError, InputError, NotWrittenError, ProcessLostError, message_of
from raydt.folders.lock import locked
from raydt.messages import message
from raydt.parallel.ahead import in_order
from raydt.parallel.threads import limited, threads
from raydt.presentation.words import counted
from raydt.redaction import text
from raydt.sources.stored import StoredSource

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
    lines: list[str]  #: the table for a terminal

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
        As :func:`pipelines.sweeping.grid.read_grid` takes it: ``["learner.epsilon=0:2:0.1"]``, or
        ``{"learner.epsilon": [0.1, 0.2], "learner.max_depth": [5, None]}``.
    out : path or URI, optional
        Folder, new or empty; ``runs/<UTC>-<config>-sweep`` by default.
    overrides, address, overwrite, progress
        As of :func:`pipelines.running.job.replay`.

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
    loaded = load_variants(config, overrides, values, refuse=refused.__setitem__)
    if address is not None:
        require_ray(loaded[0], address)
        loaded = [load_config(one, [f"cluster.address={address}"]) for one in loaded]
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
                from actors.tasks import run_tasks

                self.parallel = min(cpus(), len(self.configs))
                order: list[int] = []

                def stopped() -> bool:
                    return self.interruption.signal is not None

                def parts() -> Iterator[tuple[StoredSource, Sequence[Config]]]:
                    for trial, source in self._read(trials, first):
                        order.extend(trial.settings)
                        yield source, trial.configs

                # Settings begin when every process has imported and loaded what they need, as in this process.
                several = [*self.configs.values()]
                for _ in run_tasks(cluster, loaded_all, [(None, [several] * self.parallel)], stopped):
                    pass
                answers = run_tasks(cluster, run_setting, parts(), stopped)
                yield ((order[place], answer) for place, answer in answers)
            finally:
                cluster.close()

    def _here(
        self, trials: Sequence[Trial], first: StoredSource
    ) -> Iterator[tuple[int, Row | ProcessLostError | None]]:
        """Yield the results of settings in the order of the grid; as many run at once as there are threads."""
        most, self.parallel = max(1, threads() // len(self.configs)), min(threads(), len(self.configs))
        stops: list[Callable[[], None]] = []

        def run(source: StoredSource, index: int, config: Config) -> tuple[int, Row | None]:
            armed: list[Callable[[], None]] = []

            def arm(stop: Callable[[], None]) -> None:
                armed.append(stop)
                stops.append(stop)
                if self.interruption.signal is not None:
                    stop()

            try:
                with limited(most):
                    return index, run_setting(source, config, arm)
            finally:
                for stop in armed:
                    stops.remove(stop)

        def stop_all() -> None:
            for stop in [*stops]:
                stop()

        self.interruption.arm(stop_all)

        def settings() -> Iterator[Callable[[], tuple[int, Row | None]]]:
            for trial, source in self._read(trials, first):
                for index, config in zip(trial.settings, trial.configs, strict=True):
                    if self.interruption.signal is not None:
                        return
                    yield partial(run, source, index, config)

        if self.parallel == 1:
            yield from (setting() for setting in settings())
        else:
            with closing(in_order(settings(), self.parallel, _BEGUN * self.parallel)) as results:
                yield from results

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
        axes, rows = pooled(self.axes, self.rows)
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
            "best": winners(axes, rows),
            "verdict": against_baselines(rows),
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
        top = best(rows).get("accuracy")
        keys = (axis.key for axis in axes)
        sets = {} if top is None else sets_of(self.first, self.configs[top["setting"]], keys)
        shown = article(self.axes, self.rows, summary, sets, self.first.to_yaml(), self.folder.location)
        self.folder.write_text("sweep.html", document(shown.title, "sweep", [shown]))
        shown_here = terminal(*tables([axis.key for axis in axes], rows, summary["trials"], brief=True))
        return SweepResult(self.folder.location, table, curves, summary, shown_here.split("\n"))
