"""The replay job: a stream goes through a learner, and a run folder says what happened.

Invariant: whatever ends the job, every update before that point has taken effect exactly once, and tables, model,
state and summary describe the same update number. Only if the learner itself is lost there is no model or state.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import actors
from pipelines.config import Cluster, Config, load_config
from pipelines.logs import log_to
from pipelines.progress import Reporter, Silent
from pipelines.report.formatting import counted
from pipelines.reporting import publish_report
from pipelines.run_folder import RunFolder, default_location
from pipelines.running.feeding import feed
from pipelines.running.intake import Intake
from pipelines.running.interruption import Interruption
from pipelines.running.recorder import Recorder
from pipelines.running.summary import run_summary, write_summary
from pipelines.saving import open_stream, save_run, stream_at
from raydt.errors import ConfigError, InputError, RaydtError, UpdateError
from raydt.features import Features
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.session import InProcessSession, Session
from raydt.sources.base import Source
from raydt.streams.base import Stream
from raydt.streams.random_updates import warmup as warm_up_streams

log = logging.getLogger(__name__)

#: Messages read ahead of a session on Ray.
READ_AHEAD = 3

#: Shards that a private Ray may start for each CPU of the machine.
SHARDS_PER_CPU = 4

#: Least time between two updates of the progress shown.
SHOW_SECONDS = 0.2


@dataclass(frozen=True, repr=False)
class RunResult:
    """What a run left behind.

    Attributes
    ----------
    path : str
        The run folder: an absolute path or a URI.
    summary : dict
        Content of ``summary.json``.
    """

    path: str
    summary: dict[str, Any]

    def __repr__(self) -> str:
        return f"RunResult({self.path!r}, {self.status}, {self.summary['updates']:,} updates)"

    @property
    def status(self) -> str:
        """``completed`` or ``interrupted``."""
        return str(self.summary["status"])

    @property
    def exit_code(self) -> int:
        """What the command line returns: 0, 130 or 143."""
        return int(self.summary["exit_code"])

    @property
    def digest(self) -> str:
        """Digest of the final model."""
        return str(self.summary["model_digest"])

    @property
    def metrics(self) -> dict[str, Any]:
        """Prequential metrics of the whole run."""
        return dict(self.summary["metrics"])


def replay(
    config: Config | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    address: str | None = None,
    overwrite: bool = False,
    progress: Reporter | None = None,
) -> RunResult:
    """Run a stream of insertions and deletions through a learner.

    Parameters
    ----------
    config : Config, mapping or path of a YAML file
    out : path or URI, optional
        Run folder, new or empty; ``runs/<UTC>-<config>`` by default.
    overrides : sequence of str
        ``dotted.key=value``, as ``--set`` on the command line.
    address : str, optional
        Ray cluster to use, instead of ``cluster.address``.
    overwrite : bool
        Remove the run that ``out`` holds.
    progress : Reporter, optional

    Returns
    -------
    RunResult
        Of a run that reached the end of its stream, or was interrupted by a signal.

    Raises
    ------
    ConfigError
        A config that cannot be run, or an output folder that is not empty. Nothing has been written.
    SystemExit
        A signal came before there was anything to keep. Nothing has been written.
    InputError
        A bad row or update. The run folder holds everything before it, with status ``failed``.
    """
    config = load_config(config, overrides)
    if address is not None:
        require_ray(config, address)
        config = load_config(config, [f"cluster.address={address}"])
    progress = progress or Silent()
    began = time.perf_counter()
    with Interruption() as interruption:
        folder = RunFolder.create(location_of(out, config.name), overwrite=overwrite)
        try:
            source, stream = open_stream(config)
            features = features_of(source, config)
            require_useful_shards(config.cluster, features)
            where = "on Ray" if config.cluster.backend == "ray" else "in this process"
            progress.stage(f"starting {config.learner.kind} with {config.cluster.shards} shards {where}")
            with open_session(config, features) as session:
                run = _Run(config, folder, session, stream, interruption)
                run.startup_seconds = time.perf_counter() - began
                with log_to(folder):
                    return run.run(progress)
        except BaseException:
            folder.discard_if_empty()
            raise


def require_ray(config: Config, address: str) -> None:
    """Refuse an address for a config that runs without Ray."""
    if config.cluster.backend == "in_process":
        raise ConfigError(
            f"--address {address}: the config runs in this process, without Ray. "
            "Leave --address out, or add --set cluster.backend=ray"
        )


def require_useful_shards(cluster: Cluster, features: Features) -> None:
    """Refuse more shards than can have work, or than a private Ray on this machine can carry.

    Raises
    ------
    ConfigError
        With the largest number that makes sense.
    """
    useful = features.groups
    if cluster.shards > max(useful, Cluster().shards):  # the default suits every source
        cause = f"{len(features)} features" if useful == len(features) else f"learner.feature_groups = {useful}"
        raise ConfigError(
            f"cluster.shards = {cluster.shards}: with {cause}, only {useful} shards can have work. "
            f"Set cluster.shards to at most {useful}"
        )
    private = cluster.backend == "ray" and (cluster.address or os.environ.get("RAY_ADDRESS") or "local") == "local"
    cpus = len(os.sched_getaffinity(0))
    if private and cluster.shards > SHARDS_PER_CPU * cpus:
        raise ConfigError(
            f"cluster.shards = {cluster.shards}: each is a process of a private Ray on this machine, which has {cpus} "
            f"CPUs. Set cluster.shards to at most {SHARDS_PER_CPU * cpus}, or name a cluster in cluster.address"
        )


@contextmanager
def open_session(config: Config, features: Features) -> Iterator[Session]:
    """The learner of a config, compiled and running where the config says; closed at the end of the block."""
    learner, cluster = learners()[config.learner.kind], config.cluster
    plan = WorkPlan(cluster.local_work_limit, cluster.row_cache_bytes)
    warm_up_streams()
    session: Session
    with ExitStack() as stack:
        if cluster.backend == "in_process":
            learner.warmup()
            session = InProcessSession(learner, config.learner, features, cluster.shards, plan)
        else:
            # Ray prints warnings of its raylet to stdout, which belongs to results.
            stack.enter_context(redirect_stdout(sys.stderr))
            session = actors.open_session(
                learner,
                config.learner,
                features,
                shards=cluster.shards,
                plan=plan,
                address=cluster.address,
                resources=cluster.resources.model_dump(exclude_none=True),
            )
        stack.callback(session.close)
        yield session


def features_of(source: Source, config: Config) -> Features:
    """The features of a source, dealt into the groups that the learner's options ask for."""
    return dataclasses.replace(source.features, groups=config.learner.feature_groups)


def location_of(out: str | Path | None, name: str) -> str | Path:
    """Where the run folder goes."""
    if out is None:
        out = default_location(name)
    # A job's working directory is a copy of the submitted one that Ray deletes afterwards.
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ and "://" not in str(out) and not os.path.isabs(out):
        raise ConfigError(f"--out {out}: inside a Ray job the run folder must be an absolute path or a URI")
    return out


class _Run:
    """One run, from its first update to its summary."""

    def __init__(
        self, config: Config, folder: RunFolder, session: Session, stream: Stream, interruption: Interruption
    ) -> None:
        self.config, self.folder, self.session, self.stream = config, folder, session, stream
        self.interruption = interruption
        self.started, self.startup_seconds = datetime.now(timezone.utc), 0.0
        self.fingerprint = stream.source.fingerprint()
        self.recorder = Recorder(folder, config.output, stream)
        self.intake = Intake(
            stream,
            config.cluster.batch_size,
            config.output.metrics_every,
            READ_AHEAD if config.cluster.backend == "ray" else 0,
        )

    def run(self, progress: Reporter) -> RunResult:
        """Apply the stream, save what came out, and raise what stopped it, if it was an error."""
        self.interruption.arm(self.intake.stop)
        self.folder.write_text("config.yaml", self.config.to_yaml())
        log.info("run started", extra={"run": self.folder.location, "config_hash": self.config.model_hash()})
        error: Exception | None = None
        try:
            progress.start(self.stream.length())
            self._apply(progress)
        except Exception as raised:
            error = raised
        finally:
            progress.stop()
        error = error or self.intake.error
        # An error of the stream or a refused update leaves the learner sound; any other may have taken it along.
        lost = error is not None and not isinstance(error, InputError)
        summary, error = self._finish(error, lost)
        if error is not None:
            log.error("run failed", exc_info=error)
            if isinstance(error, RaydtError):
                what = "model and state" if summary["model_digest"] is not None else "tables, but no model"
                error.kept = f"{counted(summary['updates'], 'update')} in {self.folder.location} ({what})"
            raise error
        log.info("run ended", extra={"status": summary["status"], "digest": summary["model_digest"]})
        return RunResult(self.folder.location, summary)

    def _apply(self, progress: Reporter) -> None:
        """Feed the session, and show now and then how far it is."""
        recorder, show_at = self.recorder, time.perf_counter()

        def show() -> None:
            nonlocal show_at
            if time.perf_counter() >= show_at:
                accuracy, _, _ = recorder.prequential.snapshot().shares()
                progress.update(recorder.updates, recorder.active, recorder.statistics["leaves"], accuracy)
                show_at = time.perf_counter() + SHOW_SECONDS

        feed(self.config, self.session, self.intake, recorder, show)

    def _finish(self, error: Exception | None, lost: bool) -> tuple[dict[str, Any], Exception | None]:
        """Write tables, model, state, summary and report; an error while saving is the run's, if it had none."""
        recorder, stop = self.recorder, self.interruption.signal
        recorder.close()
        digest: str | None = None
        statistics, work = recorder.statistics, []
        try:
            if not lost:
                statistics, work = self.session.statistics(), self.session.work()
                digest = self.session.digest()
                if isinstance(error, UpdateError):
                    # The stream has gone on beyond the refused update.
                    _, self.stream = stream_at(self.config, recorder.updates)
                save_run(self.config, self.folder, self.session, self.stream, recorder, self.fingerprint)
        except Exception as raised:  # the summary has to say what happened, whatever it was
            error = error or raised
        code = error.exit_code if isinstance(error, RaydtError) else 1 if error is not None else 0
        summary = run_summary(
            config=self.config,
            source=self.stream.source,
            recorder=recorder,
            status="failed" if error is not None else "interrupted" if stop is not None else "completed",
            exit_reason=type(error).__name__
            if error is not None
            else stop.name
            if stop is not None
            else "end_of_stream",
            exit_code=128 + stop if error is None and stop is not None else code,
            error=str(error) if error is not None else None,
            digest=digest,
            fingerprint=self.fingerprint,
            statistics=statistics,
            work=work,
            started=self.started,
            startup_seconds=self.startup_seconds,
        )
        write_summary(self.folder, summary)
        if self.config.output.report:
            began = time.perf_counter()
            publish_report(self.folder)
            summary["report_seconds"] = time.perf_counter() - began
            write_summary(self.folder, summary)
        return summary, error
