"""On Ray everything comes out as in process, and every fault ends in one error that names the actor."""

import os
import signal
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import psutil
import pytest

import actors.session
from actors.cluster import Cluster
from actors.identity import identity
from actors.session import RaySession
from raydt.errors import ConfigError, ExchangeError, InputError, ProcessLostError, RaydtError, UpdateError
from raydt.features import Features
from raydt.learners import learners
from raydt.learners.base import LearnerOptions, WorkPlan
from raydt.session import InProcessSession
from raydt.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from tests.integration.faulty import Faulty, act

pytestmark = pytest.mark.ray

FEATURES = Features(tuple("abcdefg"), (False,) * 6 + (True,), groups=5)
EVENTS = 3000


def events(seed=5, n=EVENTS):
    """Insertions, deletions by id and by value, updates and queries; ``n`` in all."""
    rng = np.random.default_rng(seed)
    op, ids, rows, labels, live = [], [], [], [], {}
    while len(op) < n:
        code = rng.choice([INSERT, DELETE, DELETE_VALUE, UPDATE, QUERY], p=[0.55, 0.25, 0.05, 0.1, 0.05])
        row = np.round(rng.normal(size=7), 1) + 0.0
        row[6] = rng.integers(5)
        label = int((row[0] * row[1] + row[2] > 0) ^ (row[6] == 3) ^ (rng.random() < 0.1)) + 2 * int(row[3] > 1.2)
        key = len(op)
        if code in (DELETE, DELETE_VALUE, UPDATE):
            if not live:
                continue
            key = list(live)[rng.integers(len(live))]
            if code == DELETE_VALUE:
                row, label = live[key]
                key = next(other for other, (r, c) in live.items() if c == label and (r == row).all())
            del live[key]
        if code in (INSERT, UPDATE):
            live[key] = row, label
        op.append(code)
        ids.append(key)
        if code != DELETE:
            rows.append(row)
            labels.append(label)
    return np.array(op, np.int8), np.array(ids), np.array(rows), np.array(labels, np.int32)


def batches(size, n=EVENTS):
    op, ids, X, y = events(n=n)
    taken = 0
    for start in range(0, n, size):
        part = op[start : start + size]
        stop = taken + int((part != DELETE).sum())
        yield UpdateBatch(
            start, part, ids[start : start + size], X[taken:stop], y[taken:stop], 4, np.arange(start, start + len(part))
        )
        taken = stop


def fudyadt():
    learner = learners()["fudyadt"]
    return learner, learner.Options(kind="fudyadt", epsilon=0.6, alpha=0.0, beta=0.0, max_depth=5), FEATURES


def outcome(session, stream):
    """Digest, predictions, log without times, and statistics without traffic."""
    results = [result for _, result in session.process(stream)]
    session.finish()
    predictions = np.concatenate([result.predictions for result in results])
    log = {
        name: np.concatenate([result.log[name] for result in results]).tolist()
        for name in results[0].log
        if name not in ("seconds", "place")
    }
    statistics = {name: n for name, n in session.statistics().items() if name not in ("rounds", "bytes_exchanged")}
    return session.digest(), predictions.tolist(), log, statistics


@contextmanager
def faulty(cluster, shards=2, **kwargs):
    features = Features(("a", "b"), (False, False), groups=2)
    session = RaySession(cluster, Faulty(), LearnerOptions(kind="faulty"), features, shards=shards, **kwargs)
    try:
        yield session
    finally:
        session.close()


@pytest.fixture(scope="module")
def expected():
    return outcome(InProcessSession(*fudyadt()), batches(EVENTS))


# Every pair of values of two settings occurs at least once, but for (7, shards) pairs, which would cost most.
COMBINATIONS = {
    "one shard, everything local": (1, 256, 4_000_000, None),
    "one shard does all": (1, 1000, 0, 0),
    "two shards do all, no cache": (2, 1000, 0, 0),
    "two shards do all, small cache": (2, 256, 0, 20_000),
    "two shards, large rebuilds only": (2, 256, 2000, None),
    "three shards, tiny batches": (3, 7, 4_000_000, 20_000),
    "three shards, gathered columns": (3, 3000, 4_000_000, 0),
    "three shards, large rebuilds only": (3, 1000, 2000, 0),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_same_results_as_in_process(cluster, expected, name):
    shards, size, limit, cache = COMBINATIONS[name]
    session = RaySession(cluster, *fudyadt(), shards=shards, plan=WorkPlan(limit, cache))
    try:
        assert outcome(session, batches(size)) == expected
        work = session.work()
        assert session.statistics()["rounds"] > 0
        assert [entry["requests"] > 0 for entry in work] == [True] * shards
        assert len({entry["pid"] for entry in work} | {os.getpid()}) == shards + 1
        assert sorted(column for entry in work for column in entry["columns"]) == list(range(7))
    finally:
        session.close()


def test_a_state_moves_between_sessions_of_any_kind(cluster, expected):
    stream = list(batches(500))
    first = RaySession(cluster, *fudyadt(), shards=3, plan=WorkPlan(2000, 0))
    try:
        predictions = [result.predictions for _, result in first.process(stream[:2])]
        state = first.state()
    finally:
        first.close()
    second = InProcessSession(*fudyadt())
    second.restore(*state)
    predictions += [result.predictions for _, result in second.process(stream[2:4])]
    third = RaySession(cluster, *fudyadt(), shards=2, plan=WorkPlan(0, None))
    try:
        third.restore(*second.state())
        predictions += [result.predictions for _, result in third.process(stream[4:])]
        assert (third.digest(), np.concatenate(predictions).tolist()) == expected[:2]
        model, theirs = third.model(), InProcessSession(*fudyadt())
        theirs.restore(*third.state())
        assert {k: v.tolist() for k, v in model.items()} == {k: v.tolist() for k, v in theirs.model().items()}
    finally:
        third.close()


def test_nothing_after_a_bad_update_takes_effect(cluster):
    stream = list(batches(100, 1000))
    stream[3].id[50] = 10**9  # unknown to a delete, new to an insert
    stream[3].op[50] = DELETE
    ours = InProcessSession(*fudyadt())
    wanted = [(batch.start, result.applied) for batch, result in ours.process(stream)]
    session = RaySession(cluster, *fudyadt(), shards=2)
    try:
        assert [(batch.start, result.applied) for batch, result in session.process(iter(stream))] == wanted
        assert wanted[-1][0] == 300
        assert session.digest() == ours.digest()
        assert session.statistics()["active"] == ours.statistics()["active"]
    finally:
        session.close()


def test_batches_messages_and_misuse(cluster):
    with faulty(cluster) as session:
        # Results that were computed come before the error that reading the next batch raised.
        def source():
            yield replace(act("report", 0, 2), state=object())
            # 1.6 MB for both shards: goes into the object store once.
            yield act("report", 2, 2, np.zeros((100_000, 2)))
            raise InputError("a bad row", row=4)

        seen = []
        with pytest.raises(InputError, match="row 4: a bad row"):
            seen.extend(session.process(source()))
        assert [batch.state is not None for batch, _ in seen] == [True, False]
        pids = [entry["pid"] for entry in session.work()]
        assert seen[0][1].log["replies"].tolist() == [0, 16, pids[0], 1, 16, pids[1]]
        assert seen[1][1].log["replies"].tolist() == [0, 1_600_000, pids[0], 1, 1_600_000, pids[1]]
        assert all(result.predictions.flags.writeable for _, result in seen)
        assert session.statistics()["rounds"] == 4
        assert session.statistics()["bytes_exchanged"] == 2 * 2 * (16 + 2 * 400_000 + 1_600_000) + 2 * 2 * 24
        # A batch that does not begin where the model is.
        with pytest.raises(ExchangeError, match="batch of update 9 does not begin"):
            next(session.process([act("report", 9)]))
        session.restore(*session.state())
        assert [batch.start for batch, _ in session.process([act("report", 9)])] == [9]
        # A refusal; what was sent ahead of it has no effect.
        taken = list(session.process([act("report", 10), act("refuse", 11), act("report", 12), act("report", 13)]))
        assert [result.applied for _, result in taken] == [1, 0]
        assert session.statistics()["active"] == 6
        # Until the results of batches under way are taken, the model's position is not the caller's.
        running = session.process([act("report", 11), act("report", 12)])
        next(running)
        with pytest.raises(ExchangeError, match="under way"):
            session.digest()
        list(running)
        assert session.statistics()["active"] == 8
    with pytest.raises(ExchangeError, match="closed"):
        session.digest()


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("shard raises", UpdateError, r"^row 7: no live example has this id\. Look at row 7$"),
        ("coordinator raises", UpdateError, r"^row 8: no live example has this id$"),
        ("shard has a defect", RaydtError, r"^shard 1 \(pid \d+ on .+\) failed with KeyError: 'node'"),
        ("shard dies", ProcessLostError, r"^shard 1 \(pid \d+ on .+\) died\. .*start the run again"),
        ("coordinator dies", ProcessLostError, r"^the coordinator \(pid \d+ on .+\) died\. .*start the run again"),
        ("shard waits for ever", ProcessLostError, r"^shard 1 \(pid \d+ on .+\) has shown no progress for 1 seconds"),
    ],
)
def test_an_error_in_an_actor(cluster, name, error, message):
    with faulty(cluster, patience=1.0) as session:
        running = session.process([act("report", 0), act(name, 1), act("report", 2)])
        next(running)
        with pytest.raises(error, match=message) as caught:
            next(running)
        assert type(caught.value) is error
        assert caught.value.exit_code == error.exit_code


def test_a_stopped_shard_is_lost_and_a_busy_one_is_not(cluster):
    with faulty(cluster, patience=0.5) as session:
        assert len(list(session.process([act("shard computes", 0), act("report", 1)]))) == 2
        assert session.work()[1]["seconds"] > 2
        process = psutil.Process(session.work()[1]["pid"])
        assert process.cmdline()[0] == "ray::FeatureShard"
        assert process.environ()["NUMBA_NUM_THREADS"] == "1"
        process.suspend()
        try:
            with pytest.raises(ProcessLostError, match=rf"shard 1 \(pid {process.pid} on .*no progress"):
                list(session.process([act("report", 2)]))
        finally:
            process.resume()


def test_a_closed_session_leaves_no_process(cluster):
    with faulty(cluster) as session:
        processes = [psutil.Process(entry["pid"]) for entry in session.work()]
    assert psutil.wait_procs(processes, timeout=10)[1] == []


def test_processes_with_other_sources_are_refused(cluster, monkeypatch):
    other = replace(identity(), sources="0" * 64, path="/elsewhere")
    monkeypatch.setattr(actors.session, "identity", lambda: other)
    with (
        pytest.raises(RaydtError, match=rf"the coordinator .* from {identity().path} .* from /elsewhere"),
        faulty(cluster),
    ):
        pass


def test_a_cluster_is_asked_for_its_resources_first(cluster):
    joined = Cluster(started=False, connected=False)
    with faulty(joined, resources={"coordinator": {"num_cpus": 0}}) as session:
        assert len(list(session.process([act("report", 0)]))) == 1
        assert psutil.Process(session.work()[0]["pid"]).environ()["NUMBA_NUM_THREADS"] == "1"
    with pytest.raises(ConfigError, match=r"needs 1001 CPUs, the cluster has \d+ "):
        faulty(joined, shards=1000, reserve_seconds=0.5).__enter__()
    with faulty(joined):  # nothing stayed reserved
        pass
    joined.close()


def test_the_drivers_sigterm_handler_survives(cluster):
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
