"""Whatever the network does and whichever machine crashes when, digest and predictions are those of a quiet run."""

from collections import Counter

import numpy as np
import pytest

from raydt.exchange import FeatureShard
from raydt.features import Features
from raydt.learners import learners
from raydt.learners.base import LearnerOptions, WorkPlan
from raydt.session import InProcessSession
from raydt.updates import DELETE, INSERT, UpdateBatch
from tests.simulation.chain import Chain
from tests.simulation.simulator import Faults, Simulation

ROUGH = Faults(loss=0.1, duplicate=0.2, late=0.1, crash=0.01)
FEATURES = Features(("a", "b", "c", "d"), (False, False, False, True), groups=4)


def stream(n, window, size, seed=0):
    """Insertions and, beyond ``window``, deletions of the oldest, in batches of ``size``."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, (n, 4)).astype(float)
    y = ((X[:, 0] > X[:, 1]) ^ (rng.random(n) < 0.1)).astype(np.int32)
    steps = []
    for i in range(n):
        steps += [(DELETE, i - window)] if i >= window else []
        steps.append((INSERT, i))
    batches = []
    for start in range(0, len(steps), size):
        op, ids = (np.array(column) for column in zip(*steps[start : start + size], strict=True))
        rows = ids[op == INSERT]
        batches.append(UpdateBatch(start, op.astype(np.int8), ids, X[rows], y[rows], 2, np.full(len(op), -1)))
    return batches


def chain(shards, batches, **kwargs):
    insertions = [batch for batch in batches if len(batch.X) == len(batch)]
    return Simulation(Chain(), LearnerOptions(kind="chain"), FEATURES, shards, WorkPlan(), **kwargs), insertions


def fudyadt(shards, batches, *, local_work_limit=0, row_cache_bytes=0, **kwargs):
    """Every rebuild is done by the shards, and the coordinator keeps no features: the most messages there can be."""
    learner = learners()["fudyadt"]
    options = learner.Options(kind="fudyadt", epsilon=0.2, alpha=0.0, beta=0.0)
    plan = WorkPlan(local_work_limit, row_cache_bytes, shared_store=False)
    return Simulation(learner, options, FEATURES, shards, plan, **kwargs), batches


def cached(shards, batches, **kwargs):
    """Small rebuilds are done by the coordinator, which keeps the features of ten rows and gathers the others."""
    return fudyadt(shards, batches, local_work_limit=40, row_cache_bytes=10 * 4 * 8, **kwargs)


def outcome(make, shards, batches, **kwargs):
    simulation, batches = make(shards, batches, **kwargs)
    digest, results = simulation.run(batches)
    return (digest, np.concatenate([result.predictions for result in results]).tolist()), simulation.events


@pytest.mark.parametrize("make", [chain, fudyadt, cached])
def test_a_quiet_network_is_the_in_process_session(make):
    batches = stream(40, 40 if make is chain else 20, 4)
    simulation, batches = make(2, batches)
    learner = Chain() if make is chain else learners()["fudyadt"]
    options = learner.Options(kind=learner.kind, **({} if make is chain else {"epsilon": 0.2, "alpha": 0, "beta": 0}))
    session = InProcessSession(learner, options, FEATURES, 3, WorkPlan())
    predictions = [result.predictions.tolist() for _, result in session.process(batches)]
    session.finish()
    digest, results = simulation.run(batches)
    assert digest == session.digest()
    assert [result.predictions.tolist() for result in results] == predictions
    assert len({value for row in predictions for value in row}) > 1


@pytest.mark.parametrize(("make", "seeds"), [(chain, 100), (fudyadt, 50), (cached, 50)])
def test_a_rough_network_changes_nothing(make, seeds):
    batches = stream(40, 40 if make is chain else 20, 4)
    quiet, _ = outcome(make, 1, batches)
    events = Counter()
    for seed in range(seeds):
        rough, seen = outcome(make, 1 + seed % 3, batches, seed=seed, faults=ROUGH, save_every=1 + seed % 4)
        assert rough == quiet, f"seed {seed}: {dict(seen)}"
        events += seen
    # The faults that were to be survived have happened.
    for kind in (
        "loss",
        "duplicate",
        "late",
        "resent",
        "reply ignored",
        "crash",
        "StaleEpochError",
        "SequenceGapError",
    ):
        assert events[kind] >= 5, (kind, events)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("make", [chain, fudyadt, cached])
def test_a_crash_at_every_place(make, shards):
    batches = stream(12, 12 if make is chain else 8, 3)
    quiet, events = outcome(make, shards, batches)
    assert events["handled"] > 20
    for place in range(events["handled"]):
        crashed, seen = outcome(make, shards, batches, faults=Faults(crash_at=place), save_every=2)
        assert seen["crash"] == 1
        assert crashed == quiet, f"crash at place {place}"


def test_a_shard_that_applies_repetitions_is_found_out():
    class Forgetful(FeatureShard):
        def receive(self, epoch, seq, method, payload):
            self.seq -= seq == self.seq
            return super().receive(epoch, seq, method, payload)

    batches = stream(40, 40, 4)
    quiet, _ = outcome(chain, 2, batches)
    faults = Faults(loss=0.1, duplicate=0.2)
    assert outcome(chain, 2, batches, faults=faults)[0] == quiet
    assert outcome(chain, 2, batches, faults=faults, machine=Forgetful)[0] != quiet


def test_a_restore_that_leaves_something_is_found_out(monkeypatch):
    batches = stream(40, 40, 4)
    quiet, _ = outcome(chain, 2, batches)
    monkeypatch.setattr("tests.simulation.chain.ChainShard.restore", lambda self, state: None)
    assert outcome(chain, 2, batches, faults=Faults(crash_at=200))[0] != quiet
