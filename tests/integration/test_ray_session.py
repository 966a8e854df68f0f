"""The session on Ray: batches and messages arrive as sent, and every fault ends in one error that names the actor."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import ray

import actors.session
from actors.cluster import Cluster, connect
from actors.liveness import Watch
from actors.session import RaySession
from actors.shard import identity
from raydt.errors import (
    ConfigError,
    ExchangeError,
    InputError,
    ProcessLostError,
    RaydtError,
    StaleEpochError,
    UpdateError,
)
from raydt.examples.updates import Features
from raydt.exchange.messages import Barrier
from raydt.learners.base import LearnerOptions
from tests.integration.faulty import ON_SHARDS, SLOW_SECONDS, Faulty, act
from tests.refusals import refused

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


@contextmanager
def faulty(cluster, shards=2, **kwargs):
    features = Features(("a", "b"), (False, False), groups=2)
    kwargs = {"plan": ON_SHARDS, **kwargs}
    session = RaySession(cluster, Faulty(), LearnerOptions(kind="faulty"), features, shards=shards, **kwargs)
    try:
        yield session
    finally:
        session.close()


def test_batches_messages_and_misuse(cluster):
    with faulty(cluster) as session:
        # Results that were computed come before the error that reading the next batch raised.
        def source():
            yield replace(act("report", 0, 2), barrier=Barrier({"seq": 2}))
            # 1.6 MB for both shards: goes into the object store once.
            yield act("report", 2, 2, np.zeros((100_000, 2)))
            raise InputError("a bad row", row=4)

        seen = []
        with pytest.raises(InputError, match="row 4: a bad row"):
            seen.extend(session.process(source()))
        assert [result.snapshot is not None for _, result in seen] == [True, False]
        groups = {number: group for part in seen[0][1].snapshot.parts for number, group in part.items()}
        assert {number: group.state["group"].tolist() for number, group in groups.items()} == {0: [0], 1: [1]}
        pids = [entry["pid"] for entry in session.work()]
        assert seen[0][1].log["replies"].tolist() == [0, 16, pids[0], 1, 16, pids[1]]
        assert seen[1][1].log["replies"].tolist() == [0, 1_600_000, pids[0], 1, 1_600_000, pids[1]]
        assert all(result.predictions.flags.writeable for _, result in seen)
        assert session.statistics()["rounds"] == 5  # one of them for the snapshot
        # An interpreter with NumPy and Ray takes tens of megabytes.
        peaks = [session.statistics()["peak_rss_bytes"], *(entry["peak_rss_bytes"] for entry in session.work())]
        assert all(20 * 2**20 < peak < 4 * 2**30 for peak in peaks)
        assert session.statistics()["bytes_exchanged"] == 2 * 2 * (16 + 2 * 400_000 + 1_600_000) + 2 * 2 * 24
        # A batch that does not start at the model's next update.
        with refused("cluster.turn", ExchangeError, update=9):
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
        with refused("cluster.busy", ExchangeError, batches=1):
            session.digest()
        list(running)
        assert session.statistics()["active"] == 8
    with refused("cluster.closed", ExchangeError):
        session.digest()


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("shard raises", UpdateError, r"^row 7: no such example\. Look at row 7$"),
        ("coordinator raises", UpdateError, r"^row 8: no such example$"),
        ("shard has a defect", RaydtError, r"^shard 1 \(pid \d+ on .+\) failed with KeyError: 'node'"),
        ("shard dies", ProcessLostError, r"^shard 1 \(pid \d+ on .+\) died$"),
        ("coordinator dies", ProcessLostError, r"^the coordinator \(pid \d+ on .+\) died$"),
        ("shard waits for ever", ProcessLostError, r"^shard 1 \(pid \d+ on .+\) .*shown no progress"),
    ],
)
def test_an_error_in_an_actor(cluster, name, error, message):
    with faulty(cluster, patience=2.0) as session:
        done = []
        with pytest.raises(error, match=message) as caught:
            done.extend(session.process([act("report", 0), act(name, 1), act("report", 2)]))
        assert type(caught.value) is error
        assert caught.value.exit_code == error.exit_code
        if error is ProcessLostError:
            whose = ("coordinator", None) if name == "coordinator dies" else ("shard", 1)
            assert (caught.value.actor, caught.value.shard) == whose
        # A coordinator that dies may take with it the reply it has just given.
        assert len(done) == 1 or (name == "coordinator dies" and not done)


def test_a_stopped_shard_is_lost_and_a_busy_one_is_not(cluster):
    with faulty(cluster, patience=2.0) as session:
        assert len(list(session.process([act("shard computes", 0), act("report", 1)]))) == 2
        assert session.work()[1]["seconds"] > 2
        process = psutil.Process(session.work()[1]["pid"])
        assert process.cmdline()[0] == "ray::FeatureShard"
        assert process.environ()["NUMBA_NUM_THREADS"] == "1"
        process.suspend()
        with pytest.raises(ProcessLostError, match=rf"shard 1 \(pid {process.pid} on .*no progress"):
            list(session.process([act("report", 2)]))
        began = time.monotonic()
    # Ray alone takes five seconds, in which the successor waits for its share of the processors.
    assert psutil.wait_procs([process], timeout=4)[1] == []
    assert time.monotonic() - began < 4


def test_a_process_that_reserves_two_cpus_has_two_shards_and_progress_of_each_is_seen(cluster):
    """While one thread waits for the other, which takes longer than the patience."""
    with faulty(cluster, shards=1, resources={"shard": {"num_cpus": 2}}, patience=2.0) as session:
        ((_, result),) = session.process([replace(act("report", 0, 2), barrier=Barrier({"seq": 2}))])
        (entry,) = session.work()
        assert result.log["replies"].tolist() == [0, 16, entry["pid"], 1, 16, entry["pid"]]
        assert (entry["shard"], entry["columns"]) == (0, [0, 1])
        (part,) = result.snapshot.parts
        assert {number: group.state["group"].tolist() for number, group in part.items()} == {0: [0], 1: [1]}
        assert len(list(session.process([act("helper computes", 2)]))) == 1
        assert session.work()[0]["seconds"] > 2 * SLOW_SECONDS
        session.restore(*session.state())
        with pytest.raises(UpdateError, match="row 7"):
            list(session.process([act("shard raises", 3)]))


def test_a_part_that_takes_longer_than_the_patience_to_hand_over(cluster):
    with faulty(cluster, patience=2.0) as session, ThreadPoolExecutor(1) as background:
        list(session.process([act("slow part", 0)]))
        assert [set(part) for part in session.snapshot().parts] == [{0}, {1}]
        # Beside the work of the same shard, for which the coordinator waits.
        handing_over = background.submit(list, session.snapshot().parts)
        assert len(list(session.process([act("shard computes", 1), act("report", 2)]))) == 2
        first, second = handing_over.result()
        assert (first[0].rows, second[1].rows["slow"].tolist()) == ({}, [0])


def test_a_pause_of_the_one_who_waits_is_not_held_against_the_other(cluster, monkeypatch):
    """As if this process had been stopped for an hour between two looks at the shard."""
    clock, offset = time.monotonic, 0.0

    def look(watch, peer, signs):
        nonlocal offset
        if peer.name in signs:
            offset += 3600.0
        original(watch, peer, signs)

    with faulty(cluster, patience=2.0) as session:
        original = Watch._look
        monkeypatch.setattr("actors.liveness.time", SimpleNamespace(monotonic=lambda: clock() + offset))
        monkeypatch.setattr(Watch, "_look", look)
        shard = session._peers[1]
        monkeypatch.setattr(session._watch, "_interval", 0.3)
        reply = shard.handle.receive.remote(1, 1, "shard computes", {}, [{}])
        assert session._watch.collect([reply], [shard])[0][0].tolist() == [0]
        assert offset == 0  # the first shard does not misbehave
        shard = session._peers[2]
        reply = shard.handle.receive.remote(1, 1, "shard computes", {}, [{}])
        assert session._watch.collect([reply], [shard])[0][0].tolist() == [0]
        assert offset >= 3600


def test_messages_of_an_earlier_incarnation_are_refused(cluster):
    with faulty(cluster, epoch=2) as session:
        shard = session._peers[1]
        for epoch, seq in ((1, 1), (3, 1)):
            late = shard.handle.receive.remote(epoch, seq, "report", {}, [{}])
            with refused("exchange.other_epoch", StaleEpochError, shard=0, epoch=2, sent=epoch):
                session._watch.collect([late], [shard])
        assert len(list(session.process([act("report", 0)]))) == 1


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


def test_a_cluster_is_asked_for_its_resources_first(cluster, monkeypatch):
    joined = Cluster(started=False, connected=False)
    with faulty(joined, resources={"coordinator": {"num_cpus": 0}}) as session:
        assert len(list(session.process([act("report", 0)]))) == 1
        assert psutil.Process(session.work()[0]["pid"]).environ()["NUMBA_NUM_THREADS"] == "1"
    with monkeypatch.context() as patch:
        patch.setattr(joined, "reserve_seconds", 0.5)
        with pytest.raises(ConfigError, match=r"needs 1001 CPUs"):
            faulty(joined, shards=1000).__enter__()
    with faulty(joined):  # nothing stayed reserved
        pass
    joined.close()


def test_an_address_must_be_that_of_the_connection(cluster):
    here = ray.get_runtime_context().gcs_address
    host, _, port = here.rpartition(":")
    for address in (None, "auto", "local", here, f"localhost:{port}"):
        connection = connect(address)
        assert not connection.started
        connection.close()
    assert ray.is_initialized()
    for address in ("other.invalid:6379", f"{host}:{int(port) + 1}", f"203.0.113.7:{port}", port, "http://x:8265"):
        with refused("cluster.other_cluster", ConfigError, here=here, address=address):
            connect(address)


def test_the_drivers_sigterm_handler_survives(cluster):
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
