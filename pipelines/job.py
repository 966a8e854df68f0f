"""The replay job: a stream goes through a learner, and a run folder says what happened.

Invariant: whatever ends the job, every update before that point has taken effect exactly once, and tables, model,
state and summary describe the same update number. Only if the learner itself is lost there is no model or state.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pipelines.config import Config, load_config
from pipelines.intake import Intake
from pipelines.interruption import Interruption
from pipelines.logs import log_to
from pipelines.progress import Reporter, Silent
from pipelines.recorder import Recorder
from pipelines.report import write_report
from pipelines.run_folder import RunFolder, default_location
from pipelines.saving import save_run
from pipelines.summary import run_summary, write_summary
from raydt.errors import ConfigError, InputError, RaydtError
from raydt.features import Features
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.session import InProcessSession, Session
from raydt.sources.base import Source
from raydt.sources.options import open_source
from raydt.streams.base import Stream
from raydt.streams.options import make_stream

log = logging.getLogger(__name__)

#: Messages read ahead of a session on Ray.
READ_AHEAD = 3


@dataclass(frozen=True)
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
    progress : Reporter, optional

    Returns
    -------
    RunResult
        Of a run that reached the end of its stream, or was interrupted by a signal.

    Raises
    ------
    ConfigError
        A config that cannot be run, or an output folder that is not empty. Nothing has been written.
    InputError
        A bad row or update. The run folder holds everything before it, with status ``failed``.
    """
    config = load_config(config, overrides)
    if address is not None:
        cluster = config.cluster.model_copy(update={"address": address})
        config = load_config({**config.resolved(), "cluster": cluster.model_dump()}).named(config.name)
    folder = RunFolder.create(_location(out, config.name))
    with Interruption() as interruption, log_to(folder):
        return _Run(config, folder, progress or Silent(), interruption).run()


@contextmanager
def open_session(config: Config, features: Features) -> Iterator[Session]:
    """The learner of a config, running where the config says; compiled, closed at the end."""
    learner, cluster = learners()[config.learner.kind], config.cluster
    plan = WorkPlan(cluster.local_work_limit, cluster.row_cache_bytes)
    session: Session
    if cluster.backend == "in_process":
        learner.warmup()
        session = InProcessSession(learner, config.learner, features, cluster.shards, plan)
    else:
        raise NotImplementedError
    try:
        yield session
    finally:
        session.close()


def features_of(source: Source, config: Config) -> Features:
    """The features of a source, dealt into the groups the learner's options ask for."""
    return dataclasses.replace(source.features, groups=config.learner.feature_groups)


class _Run:
    """One run from start to summary."""

    def __init__(self, config: Config, folder: RunFolder, progress: Reporter, interruption: Interruption) -> None:
        self.config, self.folder, self.progress, self.interruption = config, folder, progress, interruption
        self.started, self.began = datetime.now(timezone.utc), time.perf_counter()

    def run(self) -> RunResult:
        config, folder = self.config, self.folder
        folder.write_text("config.yaml", config.to_yaml())
        source = open_source(config.source, Path.cwd())
        stream = make_stream(config.stream, source)
        with open_session(config, features_of(source, config)) as session:
            ...
