"""Learners to be simulated, with features in four groups, and their outcome if nothing goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.learners.base import LearnerOptions, WorkPlan
from raydt.sessions.session import InProcessSession, whole
from raydt.streams.base import history_of
from tests.cases import CASES, GROUPS
from tests.simulation.chain import Chain
from tests.simulation.outcomes import outcome
from tests.simulation.simulator import Record, Setup, Simulation
from tests.simulation.streams import Workload

#: The learner in which every fault shows, and every case of all others.
SETUPS = {
    setup.name: setup
    for setup in (
        Setup("chain", Chain(), LearnerOptions(kind="chain", feature_groups=GROUPS), WorkPlan(shared_store=False)),
        *(Setup(trial.name, trial.learner, trial.options, trial.case.plan, trial) for trial in CASES),
    )
}


def fitted(setup: Setup, workload: Workload) -> Workload:
    """The stream as the learner takes it."""
    return workload if setup.trial is None else workload.fit(setup.trial)


def undisturbed(setup: Setup, workload: Workload | Simulation) -> dict[str, Any]:
    """The outcome in one process: one shard, which shares the coordinator's rows, and other batches.

    The live ids are compared with those of a plain replay, which knows no learner.
    """
    stream = workload.open()
    session = InProcessSession(setup.learner, setup.options, setup.features(stream.source), 1, WorkPlan())
    record = Record()
    for batch, result in session.process(stream.batches(6), skip_refused=True):
        record.add(batch, result)
    session.finish()
    history = history_of(workload.open())
    alive = history.id[history.deleted == np.iinfo(np.int64).max]
    whole_state = whole(session.snapshot())
    assert sorted(whole_state[0]["id"].tolist()) == sorted(alive.tolist())
    return outcome(session.digest(), record, whole_state, setup.options)
