"""Learners to be simulated, with features in four groups, and what comes out of them if nothing goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.learners import learners
from raydt.learners.base import LearnerOptions, WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sessions.snapshots import whole
from raydt.streams.history import history_of
from tests.simulation.chain import Chain
from tests.simulation.simulator import Record, Setup, outcome
from tests.simulation.streams import Workload

_FUDYADT = learners()["fudyadt"]
_BEST_SPLIT = learners()["best_split"]
_SPARSE_TREE = learners()["sparse_tree"]
_OPTIONS = _FUDYADT.Options(kind="fudyadt", epsilon=0.3, alpha=0.0, beta=0.0, max_depth=3)
_CONFIDENCE = learners()["confidence_tree"]
_HASTY = {"c": 0.001, "grace_period": 1, "revisit": True, "feature_groups": 4}
_EAGER = {"alpha": 0.0, "beta": 0.02, "max_depth": 3, "feature_groups": 4}
_MIXED = {**_EAGER, "epsilon": 0.5}

SETUPS = {
    setup.name: setup
    for setup in (
        Setup("chain", Chain(), LearnerOptions(kind="chain"), WorkPlan(shared_store=False)),
        # Every rebuild is done by the shards, and the coordinator keeps no features: the most messages there can be.
        Setup("spread", _FUDYADT, _OPTIONS, WorkPlan(0, 0, shared_store=False)),
        # Small rebuilds are done by the coordinator, which keeps the features of four rows and gathers the others.
        Setup("cached", _FUDYADT, _OPTIONS, WorkPlan(36, 4 * 4 * 8, shared_store=False)),
        # Sparse features, and what is searched now and then; a third class is not taken.
        Setup("best split", _BEST_SPLIT, _BEST_SPLIT.Options(query_every=2), WorkPlan(shared_store=False)),
        # Structures at every node, with and without columns beside them, rebuilt often.
        Setup(
            "sparse tree", _SPARSE_TREE, _SPARSE_TREE.Options(finder="updent", **_EAGER), WorkPlan(shared_store=False)
        ),
        # Splits that are looked at again, so that steps are taken back at the shards and subtrees replaced.
        Setup("confidence tree", _CONFIDENCE, _CONFIDENCE.Options.model_validate(_HASTY), WorkPlan(shared_store=False)),
        Setup(
            "mixed tree", _SPARSE_TREE, _SPARSE_TREE.Options(finder="updgini", **_MIXED), WorkPlan(shared_store=False)
        ),
    )
}


def undisturbed(setup: Setup, workload: Workload) -> dict[str, Any]:
    """The outcome in one process: one shard, which shares the coordinator's rows, and other batches.

    The live ids are compared with those of a plain replay, which knows no learner.
    """
    stream = workload.open()
    session = InProcessSession(setup.learner, setup.options, stream.source.features, 1, WorkPlan())
    record = Record()
    for batch, result in session.process(stream.batches(6), skip_refused=True):
        record.add(batch, result)
    session.finish()
    history = history_of(workload.open())
    alive = history.id[history.deleted == np.iinfo(np.int64).max]
    whole_state = whole(session.snapshot())
    assert sorted(whole_state[0]["id"].tolist()) == sorted(alive.tolist())
    return outcome(session.digest(), record, whole_state)
