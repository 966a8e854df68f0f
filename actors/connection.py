"""One connection to Ray on which incarnations of a learner follow one another.

Invariant: an incarnation is opened only on a Ray that answers. A private Ray that is gone is replaced by another;
a cluster that is gone is an error, since its successor has another address and it is not ours to start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from actors.cluster import Bundle, bundles, connect, free_on_nodes
from raydt.errors import ConfigError, RaydtError

if TYPE_CHECKING:
    from actors.session import RaySession
    from raydt.examples.features import Features
    from raydt.learners.base import Learner, LearnerOptions, WorkPlan


class Connection:
    """Connects to Ray and compiles the learner's kernels meanwhile; a context that ends what it began.

    Parameters
    ----------
    learner, options, features
        What to run.
    shards : int or callable
        Number of shard actors, at least 1; or what chooses it once Ray is there, from what is free on each node. A
        private Ray has to know the number before.
    plan : WorkPlan, optional
    address : str, optional
        See :func:`actors.cluster.connect`.
    resources : mapping, optional
        ``{"coordinator": {"num_cpus": 1}, "shard": {"num_cpus": 1}}``; also ``memory`` (bytes) and ``resources``.
    patience : float, optional
        Seconds without progress after which an actor is given up.
    metrics_port : int, optional
        See :func:`actors.cluster.connect`.
    meanwhile : callable, optional
        Called in another thread while Ray starts, which is mostly waiting.

    Raises
    ------
    ConfigError
        There is no cluster at the address.
    RaydtError
        A private Ray could not be started.
    """

    def __init__(
        self,
        learner: Learner,
        options: LearnerOptions,
        features: Features,
        *,
        shards: int | Callable[[Sequence[Bundle]], int],
        plan: WorkPlan | None = None,
        address: str | None = None,
        resources: Mapping[str, Mapping[str, Any]] | None = None,
        patience: float | None = None,
        metrics_port: int | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        self._what = learner, options, features
        self._how: dict[str, Any] = {"plan": plan, "resources": resources}
        if patience is not None:
            self._how["patience"] = patience
        self._address, self._metrics_port = address, metrics_port
        self._requested: list[Bundle] = bundles(1 if callable(shards) else shards, resources)
        self._meanwhile = meanwhile
        # Kernels are compiled while Ray starts; a session does it again, at no cost by then.
        self._failed: BaseException | None = None
        self._compiling = threading.Thread(target=self._compile, name="raydt-warmup", daemon=True)
        self._compiling.start()
        self._cluster = connect(address, self._requested, metrics_port=metrics_port)
        try:
            self._how["shards"] = shards(free_on_nodes()) if callable(shards) else shards
        except BaseException:
            self._cluster.close()
            raise

    def _compile(self) -> None:
        from raydt.sessions.warmup import compile_missing  # importing this module must not import Numba

        learner, options, _ = self._what
        try:
            compile_missing(learner, options)
            if self._meanwhile is not None:
                self._meanwhile()
        except BaseException as error:  # a thread of its own: open() raises it
            self._failed = error

    def open(self, epoch: int = 1) -> RaySession:
        """Start the actors of incarnation ``epoch``; the caller closes the session before it opens the next.

        Raises
        ------
        ConfigError
            The cluster has too few resources.
        ProcessLostError
            An actor died or fell silent meanwhile: another incarnation may do better.
        RaydtError
            The actors cannot be started or have loaded other sources than this process; the cluster is gone, or has
            lost resources it had for the first incarnation. Another incarnation will not do better.
        Exception
            What failed while kernels were compiled, or in ``meanwhile``.
        """
        from actors.session import RaySession

        self._compiling.join()
        if self._failed is not None:
            raise self._failed
        if not self._cluster.answers():
            if not self._cluster.started:
                raise RaydtError(
                    f"the Ray cluster at {self._cluster.address} no longer answers. Start it again, or name "
                    "another one with --address, then run raydt resume"
                )
            self._cluster.close()
            self._cluster = connect("local", self._requested, metrics_port=self._metrics_port)
        try:
            return RaySession(self._cluster, *self._what, epoch=epoch, **self._how)
        except ConfigError as error:
            if epoch == 1:
                raise
            raise RaydtError(f"after the loss of a process, {error}; then run raydt resume") from error

    def close(self) -> None:
        """Leave Ray, and end it if it is private."""
        self._cluster.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
