"""A model trained again from the examples that remain, and its digest beside that of the run.

For learners whose model is a function of the live examples (``Traits.retrained``): equal digests prove that nothing of
a deleted example is left in the model, to anyone who holds the remaining ones. The training knows neither the order of
the updates nor what was deleted: the examples are inserted in ascending order of their ids.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipelines.auditing import last_of
from pipelines.run_folder import RunFolder
from pipelines.running.outcome.summary import read_summary
from pipelines.saving import open_state
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.examples.history import History, history_of_live
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.folders.manifest import MANIFEST
from raydt.learners import learners, traits_of
from raydt.learners.base import LearnerOptions
from raydt.sessions.session import InProcessSession


def verify_run(run: str | Path) -> dict[str, Any]:
    """Train a model from nothing on the examples that a run has left, and compare the digests.

    Parameters
    ----------
    run : path or URI
        A finished run, whose examples are read again from the source, or a state, which has its examples in it.

    Returns
    -------
    dict
        ``equal``, the ``digest`` of the run and the one ``rebuilt``, ``examples`` that are live, and how many there
        ever were (``inserted``).

    Raises
    ------
    InputError
        There is no run or state, its source has changed, or the model of its learner depends on the past.
    """
    if RunFolder(run).has(MANIFEST):
        saved, _ = open_state(run)
        _require_retrained(saved.options, str(run))
        session = InProcessSession(saved.learner, saved.options, saved.features)
        session.restore(saved.arrays, saved.groups)
        history = history_of_live(saved.arrays, saved.groups, saved.features)
        digest, rebuilt = (
            session.digest(),
            digest_from_nothing(saved.options, saved.features, history, len(saved.classes)),
        )
    else:
        folder = RunFolder.existing(run)
        ended = last_of(folder)
        _require_retrained(ended.config.learner, folder.location)
        history, digest = ended.history, str(read_summary(folder)["model_digest"])
        rebuilt = digest_from_nothing(ended.config.learner, ended.features, history, len(ended.meta["classes"]))
    live = int((history.deleted == np.iinfo(np.int64).max).sum())
    counts = {"examples": live, "inserted": len(history.id)}
    return {"equal": digest == rebuilt, "digest": digest, "rebuilt": rebuilt, **counts}


def digest_from_nothing(options: LearnerOptions, features: Features, history: History, classes: int) -> str:
    """Digest of the model that the live examples of a history give, inserted at once in ascending order of ids."""
    live = np.flatnonzero(history.deleted == np.iinfo(np.int64).max)
    live = live[np.argsort(history.id[live], kind="stable")]
    n = len(live)
    session = InProcessSession(learners()[options.kind], options, features)
    op, row = np.full(n, INSERT, dtype=np.int8), np.full(n, -1)
    X = np.ascontiguousarray(history.X[live])
    sparse = None if history.sparse is None else history.sparse[live]
    session.apply(UpdateBatch(0, op, history.id[live], X, history.y[live], classes, row, n, sparse=sparse))
    session.finish()
    return session.digest()


def _require_retrained(options: LearnerOptions, place: str) -> None:
    if not traits_of(options).retrained:
        kinds = [kind for kind, learner in learners().items() if learner.traits(learner.Options()).retrained]
        raise InputError(
            f"the model of learner.kind: {options.kind} depends on the order of the updates, not on the live examples "
            "alone, so that training again proves nothing",
            file=place,
            remedy=f"Use raydt audit, or learner.kind: {' or '.join(kinds)}",
        )
