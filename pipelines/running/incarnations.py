"""One incarnation of a learner after another, wherever the config has it run, and how many of them there may be.

Invariant: incarnations are numbered from 1, each is opened after the one before it was closed, and the number of an
incarnation is never used again in a run: what a late process of an older one says is refused by it. An incarnation on
Ray is opened only on a Ray that answers.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from types import TracebackType
from typing import Any

from actors.cluster import Bundle, Cluster, bundles, connect, free_on_nodes
from pipelines.config import Config
from pipelines.logs import LinesToLog
from raydt.arrays import kernel
from raydt.arrays.kernel import compile_once
from raydt.errors import ConfigError, ProcessLostError, RaydtError, RestartsSpentError
from raydt.evaluation import warmup as warm_up_evaluation
from raydt.examples.features import Features
from raydt.learners import learners
from raydt.messages import message
from raydt.presentation.words import counted
from raydt.sessions.session import InProcessSession, Session
from raydt.sessions.warmup import BY_KEY, DIVIDED, ONE_MODEL, compile_missing
from raydt.streams.random_updates import warmup as warm_up_streams

log = logging.getLogger(__name__)


class _Meanwhile:
    """Work in another thread while Ray starts, which is mostly waiting; what fails is raised when it is needed."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="raydt-warmup", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failed = error

    def require(self) -> None:
        """Wait until the work is done."""
        self._thread.join()
        if self._failed is not None:
            raise self._failed


class Incarnations:
    """Sessions of the learner of a config: a context that ends the last of them, and Ray if it was started for them.

    The run has had ``before`` incarnations in earlier processes; the first one here has the next number. ``place``
    gives a config without a number of shards its number (:mod:`pipelines.placement`), from what is free on each node of
    the cluster; it is called once, as soon as the cluster is joined. ConfigError if there is no cluster at the address,
    RaydtError if a private Ray could not be started.
    """

    def __init__(
        self,
        config: Config,
        features: Features,
        before: int = 0,
        place: Callable[[Sequence[Bundle]], Config] | None = None,
        session: Callable[[Config, int, Cluster | None, Any], Session] | None = None,
    ) -> None:
        self.epoch = self._before = before  #: Number of the incarnation opened last.
        self.config = config  #: With a number of shards.
        self.features, self._learner = features, learners()[config.learner.kind]
        self._session: Session | None = None
        self._make = session  # of models by key
        self._cluster: Cluster | None = None
        with ExitStack() as opening:
            if config.cluster.backend == "in_process":
                self._compile()
            else:
                # Ray prints what its raylet says of lost processes, and has no switch for it. stdout belongs to
                # results, and the run itself reports each loss.
                opening.enter_context(redirect_stdout(LinesToLog(log, "ray")))
                self._compiled = _Meanwhile(self._compile)
                self._resources = config.cluster.resources.model_dump(exclude_none=True)
                self._cluster = self._connect(config.cluster.address)
                opening.callback(self._disconnect)
                if place is not None and config.placement.shards is None:
                    self.config = place(free_on_nodes())
            self._ending = opening.pop_all()

    def _compile(self) -> None:
        """Compile the kernels that this process and the learner need, and have Numba ready for all."""
        uses = BY_KEY if self._make is not None else DIVIDED if self.config.placement.divided else ONE_MODEL
        compile_missing(self._learner, self.config.learner, uses)
        kernel.load()
        compile_once("streams", "raydt.streams", warm_up_streams)
        compile_once("evaluation", "raydt.evaluation", warm_up_evaluation)

    def _connect(self, address: str | None) -> Cluster:
        requested = bundles(self.config.placement.shards or 1, self._resources)
        return connect(address, requested, metrics_port=self.config.cluster.metrics_port)

    def _disconnect(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def open(self) -> Session:
        """Open the next incarnation, empty; only after ProcessLostError is there sense in calling again."""
        self._leave()
        self.epoch += 1
        shards, plan = self.config.placement.shards or 1, self.config.placement.plan
        if self._make is not None:
            self._session = self._by_key(self._make)
        elif self._cluster is None:
            self._session = InProcessSession(self._learner, self.config.learner, self.features, shards, plan)
        else:
            self._compiled.require()
            self._session = self._on_ray(self._answering(self._cluster), shards)
        return self._session

    def _by_key(self, make: Callable[[Config, int, Cluster | None, Any], Session]) -> Session:
        """Open a session of models by key."""
        if self._cluster is None:
            return make(self.config, self.epoch, None, None)
        self._compiled.require()
        return make(self.config, self.epoch, self._answering(self._cluster), self._resources)

    def _answering(self, cluster: Cluster) -> Cluster:
        """Return a Ray that answers: a private one that is gone is replaced, a cluster that is gone is an error."""
        if cluster.answers():
            return cluster
        if not cluster.started:
            raise RaydtError(message("runs.cluster_gone", address=cluster.address))
        cluster.close()
        self._cluster = self._connect("local")
        return self._cluster

    def _on_ray(self, cluster: Cluster, shards: int) -> Session:
        from actors.session import RaySession  # which imports Ray

        try:
            return RaySession(
                cluster,
                self._learner,
                self.config.learner,
                self.features,
                shards=shards,
                plan=self.config.placement.plan,
                resources=self._resources,
                epoch=self.epoch,
                patience=self.config.cluster.patience_seconds,
            )
        except ConfigError as error:
            if self.epoch == self._before + 1:
                raise
            raise RaydtError(message("runs.after_loss", error=str(error))) from error

    def close(self) -> None:
        """End the last incarnation and leave Ray. Returns also if its processes are stopped, or Ray is gone."""
        with self._ending:
            self._leave()

    def __enter__(self) -> Incarnations:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class RestartBudget:
    """Budget of recoveries, ``most`` in any period of ``seconds``: a fault may not go away by itself."""

    def __init__(self, most: int = 5, seconds: float = 600.0) -> None:
        self.most, self.seconds = most, seconds
        self._losses: list[tuple[float, str, str]] = []  # not the errors, whose tracebacks hold a whole incarnation

    def spend(self, lost: ProcessLostError, now: float, *, run: str | None, checkpoint: int | None) -> None:
        """Note a loss, and permit one restart; RestartsSpentError if the period has had its restarts."""
        self._losses = [loss for loss in self._losses if now - loss[0] < self.seconds]
        self._losses.append((now, str(lost), lost.advice))
        if len(self._losses) <= self.most:
            return
        times = Counter(what for _, what, _ in self._losses)
        losses = "; ".join(what if n == 1 else f"{what} ({n} times)" for what, n in times.items())
        remedies = [text for text in dict.fromkeys(advice for _, _, advice in self._losses) if text]
        if run is not None and checkpoint is None:
            remedies.append(message("runs.missing_checkpoint", run=run))
        elif run is not None:
            remedies.append(message("runs.intact_checkpoint", update=checkpoint, run=run))
        minutes, restarts = max(1, round((now - self._losses[0][0]) / 60)), counted(self.most, "restart")
        said = {"restarts": restarts, "minutes": counted(minutes, "minute"), "losses": losses}
        raise RestartsSpentError(message("runs.restarts_spent", **said, remedy=". ".join(remedies)))
