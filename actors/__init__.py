"""The Ray edge: shard and coordinator actors, and the session that runs a learner on them.

Invariant: what comes out is what :class:`raydt.session.InProcessSession` gives, bit for bit; Ray decides where
work is done. Importing this package imports neither Ray nor Numba: both read their environment when they are
imported, and :mod:`actors.environment` sets it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from actors.connection import Connection

if TYPE_CHECKING:
    from actors.session import RaySession
    from raydt.features import Features
    from raydt.learners.base import Learner, LearnerOptions, WorkPlan

__all__ = ["Connection", "open_session"]


def open_session(
    learner: Learner,
    options: LearnerOptions,
    features: Features,
    *,
    shards: int,
    plan: WorkPlan | None = None,
    address: str | None = None,
    resources: Mapping[str, Mapping[str, Any]] | None = None,
) -> RaySession:
    """Connect to Ray, start the actors and return their session; its ``close`` ends all that was started.

    Parameters
    ----------
    learner, options, features
        What to run.
    shards : int
        Number of shard actors, at least 1.
    plan : WorkPlan, optional
    address : str, optional
        See :func:`actors.cluster.connect`.
    resources : mapping, optional
        ``{"coordinator": {"num_cpus": 1}, "shard": {"num_cpus": 1}}``; also ``memory`` (bytes) and ``resources``.

    Raises
    ------
    ConfigError
        There is no cluster at the address, or it has too few resources.
    RaydtError
        The actors could not be started, or loaded other sources than this process.
    """
    connection = Connection(learner, options, features, shards=shards, plan=plan, address=address, resources=resources)
    try:
        return connection.open(closes_connection=True)
    except BaseException:
        connection.close()
        raise
