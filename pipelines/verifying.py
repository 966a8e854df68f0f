"""Train a model again from the examples that remain, and compare its digest with that of the run.

For learners whose model is a function of the live examples (``Traits.retrained``): equal digests prove that nothing of
a deleted example is left in the trees, to anyone who holds the remaining ones. The names of categories and classes that
only deleted examples had stay in the manifests of models and states. The training knows neither the order of the
updates nor what was deleted: the examples are inserted in ascending order of their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.auditing import last_of
from pipelines.run_folder import RunFolder
from pipelines.running.outcome.summary import read_summary
from pipelines.saved_runs import load_model, open_state
from raydt.arrays.digest import digest
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.examples.history import History, history_of_live
from raydt.folders.manifest import MANIFEST, newest
from raydt.learners import learners, traits_of
from raydt.learners.base import LearnerOptions
from raydt.sessions.retraining import trained_from_nothing
from raydt.sessions.saved_model import groups_of
from raydt.sessions.session import InProcessSession

Arrays = dict[str, "npt.NDArray[Any]"]


def verify_run(run: str | Path) -> dict[str, Any]:
    """Train a model from nothing on the examples that a run has left, and compare the digests.

    Parameters
    ----------
    run : path or URI
        A finished run, whose examples are read again from the source, or a state, which has its examples in it.

    Returns
    -------
    dict
        ``equal``, ``different`` (what differs from the model trained from nothing: the run's digest, its state or its
        saved model, which is compared if the state is right), the ``digest`` of the run or state and the one
        ``rebuilt``, ``examples`` that are live, and how many there ever were (``inserted``; None of a state).

    Raises
    ------
    InputError
        There is no run or state, its source has changed, or the model of its learner depends on the past.
    """
    if newest(RunFolder(run)).has(MANIFEST):
        saved, _ = open_state(run)
        _require_retrained(saved.options, str(run))
        history = history_of_live(saved.arrays, saved.groups, saved.features)
        options = saved.learner.fixed_by(saved.options, saved.arrays)
        rebuilt = trained_from_nothing(options, saved.features, history, saved.class_order).digest()
        stated = _restored(saved.options, saved.features, saved.arrays, saved.groups).digest()
        return _found(["the state"] * (stated != rebuilt), stated, rebuilt, history) | {"inserted": None}
    folder = RunFolder.existing(run)
    ended = last_of(folder)
    options, features, history = ended.config.learner, ended.features, ended.history
    _require_retrained(options, folder.location)
    fixed = learners()[options.kind].fixed_by(options, ended.components["coordinator"])
    trained = trained_from_nothing(fixed, features, history, ended.class_order)
    stated, rebuilt = str(read_summary(folder)["model_digest"]), trained.digest()
    state = _restored(options, features, ended.components["coordinator"], groups_of(ended.components))
    saved, meta = load_model(folder.location), ended.meta
    same_names = saved.classes == meta["classes"] and saved.categories == meta["categories"]
    different = ["the digest in summary.json"] * (stated != rebuilt)
    if state.digest() != rebuilt:
        different.append("the state in checkpoints/")
    elif not same_names or not _same(saved.arrays, state.model()):  # the state is right, and gives this model
        different.append("the model in model/")
    return _found(different, stated, rebuilt, history)


def _found(different: list[str], stated: str, rebuilt: str, history: History) -> dict[str, Any]:
    """What :func:`verify_run` returns."""
    live = int((history.deleted == np.iinfo(np.int64).max).sum())
    found = {"equal": not different, "different": different, "digest": stated, "rebuilt": rebuilt}
    return found | {"examples": live, "inserted": len(history.id)}


def _same(one: Mapping[str, npt.NDArray[Any]], other: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether two models have the same arrays, bit for bit."""
    return one.keys() == other.keys() and digest(sorted(one.items())) == digest(sorted(other.items()))


def _restored(
    options: LearnerOptions, features: Features, state: Arrays, groups: Mapping[int, Arrays]
) -> InProcessSession:
    """A session with the model of a state."""
    session = InProcessSession(learners()[options.kind], options, features)
    session.restore(state, groups)
    return session


def _require_retrained(options: LearnerOptions, place: str) -> None:
    if not traits_of(options).retrained:
        kinds = [kind for kind, learner in learners().items() if learner.traits(learner.Options()).retrained]
        raise InputError(
            f"the model of learner.kind: {options.kind} with these options depends on the order of the updates, not "
            "only on the live examples, so training again proves nothing",
            file=place,
            remedy=f"Use raydt audit, or learner.kind: {' or '.join(kinds)} with its default options",
        )
