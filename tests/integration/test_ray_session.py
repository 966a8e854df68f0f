"""Sessions, clusters, jobs, metrics and tasks on Ray."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import ray

import actors.starting
import pipelines
import raydt
from actors.cluster import Cluster, connect, cpus
from actors.keyed_session import run_tasks
from actors.liveness import Watch
from actors.session import RaySession
from actors.shard import identity
from actors.telemetry import COUNTERS, GAUGES
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
from raydt.messages import message
from tests.integration.faulty import ON_SHARDS, SLOW_SECONDS, Faulty, act
from tests.refusals import refused

# -- ray session -----------------------------------------------------------------------------------------------------
# The session on Ray: batches and messages arrive as sent, and every fault ends in one error that names the actor.

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
    monkeypatch.setattr(actors.starting, "identity", lambda: other)
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


# -- ray cluster -----------------------------------------------------------------------------------------------------
# A private Ray as a user starts it, in a process of its own.

ROOT = Path(raydt.__file__).resolve().parents[1]

PRIVATE = """
import json, os, signal, sys, time
handler = lambda *_: None
signal.signal(signal.SIGTERM, handler)
from pathlib import Path
import psutil
from types import SimpleNamespace
from actors.placement import Placement
from pipelines.operation import ClusterOptions
from pipelines.running import intake
from pipelines.doctor import listeners, serves_metrics
from raydt.errors import ProcessLostError
from raydt.examples.updates import Features
from raydt.learners.base import LearnerOptions, WorkPlan
from tests.integration.faulty import Faulty, act
features = Features(("a", "b", "c"), (False,) * 3, groups=3)
intake.learners = lambda: {"faulty": Faulty()}
intake.compile_missing = lambda *_: None  # it has no kernels
cluster = ClusterOptions(shards=3, memory_limit=0, patience_seconds=5)
options = LearnerOptions(kind="faulty")
placement = Placement(3, "on Ray", plan=WorkPlan(0, 0))
config = SimpleNamespace(source=None, learner=options, cluster=cluster, placement=placement)
connection = intake.Incarnations(config, features)
session = connection.open()
processes = psutil.Process().children(recursive=True)
facts = {
    "rows": [result.applied for _, result in session.process([act("report", 0), act("report", 1)])],
    "sources": sys.modules["actors.shard"].identity().sources,
    "commands": [" ".join(process.cmdline()) for process in processes],
    "handler": signal.getsignal(signal.SIGTERM) is handler,
    "directory": os.getcwd(),
    "usage": os.environ["RAY_USAGE_STATS_ENABLED"],
    "mode": os.environ["RAY_AUTH_MODE"],
    "threads": os.environ.get("NUMBA_NUM_THREADS"),
}
time.sleep(3)  # Ray's monitor is the last to listen
listening = [entry for process in psutil.Process().children(recursive=True) for entry in listeners(process)]
facts["listeners"] = len(listening)
facts["metrics"] = [entry for entry in listening if serves_metrics(entry["address"], entry["port"])]
# The private Ray is lost; the next incarnation gets another.
next(process for process in processes if process.name() == "raylet").kill()
try:
    for number in range(2, 1000):  # its actors may answer for a while
        list(session.process([act("report", number)]))
        time.sleep(0.1)
except ProcessLostError as error:
    facts["lost"] = str(error)
session.close()
session = connection.open()
facts["rows again"] = [result.applied for _, result in session.process([act("report", 0)])]
processes += psutil.Process().children(recursive=True)
session.close()
connection.close()
facts["left"] = [process.pid for process in psutil.wait_procs(processes, timeout=10)[1]]
facts["home"] = [str(path) for path in Path.home().glob("*") if path.name != ".cache"]  # of kernels
print(json.dumps(facts))
"""


def run(program, tmp_path):
    """Run a program from a directory with a decoy copy of the package, as a user with an empty home."""
    (tmp_path / "raydt").mkdir()
    (tmp_path / "raydt" / "__init__.py").write_text("raise ImportError('the decoy was imported')")
    (tmp_path / "home").mkdir()
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "program.py"
    script.write_text(program)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "NUMBA_"))}
    variables = {**inherited, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_a_private_ray(tmp_path):
    facts = run(PRIVATE, tmp_path)
    assert facts["rows"] == [1, 1]
    assert facts["sources"] == identity().sources
    commands = facts["commands"]
    assert sum(command.startswith("ray::FeatureShard") for command in commands) == 3
    assert sum(command.startswith("ray::Coordinator") for command in commands) == 1
    # Ray runs this program in any case; without its front end it serves no page and takes no jobs.
    assert all("--disable-frontend" in command for command in commands if "dashboard/dashboard.py" in command)
    assert facts["listeners"] > 5
    assert facts["metrics"] == []  # no endpoint that asks for no token, unless cluster.metrics_port wants one
    assert facts["handler"]
    assert facts["directory"] == str(tmp_path)
    assert (facts["usage"], facts["mode"], facts["threads"]) == ("0", "token", None)
    assert facts["lost"]
    assert facts["rows again"] == [1]
    assert facts["left"] == []
    assert facts["home"] == []  # no token file, which would change how later clusters start


# -- ray job ---------------------------------------------------------------------------------------------------------
# The README's cluster command: the same job through ``ray job submit``, with and without token authentication.

ROOT_JOB = Path(__file__).parents[2]
RAY = Path(sys.executable).with_name("ray")
CONFIG = """\
source: {kind: synthetic, generator: sea, n: 4000, drift: 2, seed: 3}
stream: {model: sliding_window, window: 800, warmup: 800}
learner: {kind: fudyadt, epsilon: 0.5, max_depth: 6}
cluster: {shards: 2, memory_limit: 12000}
output: {report: false}
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(params=["disabled", "token"])
def head(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A head of its own on loopback: the dashboard's URL and the environment of those who talk to it."""
    token = tmp_path / "token"
    token.write_text("a" * 64)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {
        "RAY_AUTH_MODE": request.param,
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{RAY.parent}{os.pathsep}{os.environ['PATH']}",
    }
    port, dashboard = free_port(), free_port()
    # The command returns while its processes stay; a shared marker in their environment finds them again.
    environment["RAYDT_TEST_HEAD"] = f"{os.getpid()}-{port}"
    start = [RAY, "start", "--head", "--num-cpus", "4", "--node-ip-address", "127.0.0.1", "--port", str(port)]
    start += ["--dashboard-host", "127.0.0.1", "--dashboard-port", str(dashboard), "--object-store-memory", "100000000"]
    start += ["--ray-client-server-port", str(free_port()), "--dashboard-agent-listen-port", str(free_port())]
    subprocess.run(start, env=environment, check=True, capture_output=True, text=True)
    try:
        yield f"http://127.0.0.1:{dashboard}", environment
    finally:
        for process in psutil.process_iter():
            try:
                if process.environ().get("RAYDT_TEST_HEAD") == environment["RAYDT_TEST_HEAD"]:
                    process.send_signal(signal.SIGKILL)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue


def submit(
    url: str, environment: dict[str, str], config: Path, out: str, *settings: str
) -> subprocess.CompletedProcess[str]:
    """Submit a replay; wait for the head's agent, which comes up some seconds after the head."""
    command = [RAY, "job", "submit", "--address", url, "--working-dir", ".", "--"]
    command += ["python", "-m", "pipelines.cli", "replay", str(config), "--out", out, *settings]
    for _ in range(20):
        done = subprocess.run(command, cwd=ROOT_JOB, env=environment, check=False, capture_output=True, text=True)
        if "No available agent" not in done.stderr + done.stdout:
            break
        time.sleep(2)
    return done


def test_the_submitted_job_gives_the_same_model(head: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    url, environment = head
    config = tmp_path / "job.yaml"
    config.write_text(CONFIG)
    done = submit(url, environment, config, str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["backend"], summary["shards"]) == ("completed", "ray", 2)
    assert summary["rounds"] > 0
    assert all(entry["requests"] > 0 for entry in summary["work"])
    here = pipelines.replay(config, tmp_path / "here", overrides=["cluster.backend=in_process"])
    assert summary["model_digest"] == here.summary["model_digest"]

    listed = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from ray.util.state import list_actors; print([a.class_name for a in list_actors({url!r})])",
        ],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert listed.stdout.count("FeatureShard") == 2, "the actors were not on this cluster"
    assert listed.stdout.count("'Coordinator'") == 1

    if environment["RAY_AUTH_MODE"] == "disabled":  # the number of shards does not depend on who asks
        # Ray deletes the job's working directory as soon as its process leaves the cluster for the first time.
        auto = submit(url, environment, config, str(tmp_path / "auto"), "--set", "cluster.shards=auto")
        assert auto.returncode == 0, auto.stdout + auto.stderr
        assert f"3 shards (auto: {message('runs.idle_shards')})" in auto.stdout + auto.stderr
        summary = json.loads((tmp_path / "auto" / "summary.json").read_text())
        assert (summary["shards"], summary["model_digest"]) == (3, here.summary["model_digest"])

    if environment["RAY_AUTH_MODE"] == "token":  # who asks makes no difference to what follows
        refused = submit(url, environment, config, "relative/run")
        assert refused.returncode == 1
        assert "absolute path" in refused.stdout + refused.stderr


# -- ray metrics -----------------------------------------------------------------------------------------------------
# Metrics of a run at the Prometheus endpoint of a private Ray, as an operator reads them.

REPLAY = """
import json, sys, threading, time, urllib.request
import pipelines
import psutil
from pipelines.doctor import listeners, serves_metrics
from pipelines.display import Reporter

def served():
    found = [entry for process in psutil.Process().children(recursive=True) for entry in listeners(process)]
    return sorted({entry["port"] for entry in found if serves_metrics(entry["address"], entry["port"])})

class Reader(Reporter):
    '''Reads the endpoint again and again until all has been sent; a gauge stays there for seconds only.'''
    lines, ended = {}, None

    def start(self, total, unit="updates", done=0):
        super().start(total, unit, done)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while self.ended is None or time.monotonic() < self.ended + 5:  # two intervals
            time.sleep(0.5)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60) as answer:
                    page = answer.read().decode()
            except OSError:  # it is asked while it starts
                continue
            self.lines.update((line.partition("{")[0], line) for line in page.splitlines() if "ray_raydt_" in line)

    def stop(self):
        self.ended = time.monotonic()
        self.thread.join()
        self.served = served()

PORT, ROWS, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
config = {
    "source": {"kind": "synthetic", "generator": "sea", "n": ROWS},
    "learner": {"kind": "fudyadt", "epsilon": 0.2},
    "cluster": {"shards": 2, "batch_size": 50, "memory_limit": 0, "metrics_port": PORT},
    "checkpoint": {"every_seconds": None, "every_updates": 200},
}
if __name__ == "__main__":
    reader = Reader()
    run = pipelines.replay(config, out, progress=reader)
    lines = [line for line in reader.lines.values() if not line.startswith("#")]
    print(json.dumps({"lines": lines, "summary": run.summary, "served": reader.served}))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The metrics that a replay of 800 updates left at the endpoint, and its summary."""
    folder = tmp_path_factory.mktemp("metrics")
    script = folder / "program.py"
    script.write_text(REPLAY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    variables |= {"PYTHONPATH": str(ROOT), "RAY_metrics_report_interval_ms": "2000"}
    ended = subprocess.run(
        [sys.executable, str(script), str(port), "800", str(folder / "first-run")],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    values, labels = {}, {}
    for line in told["lines"]:
        name, tags, value = re.fullmatch(r"ray_raydt_(\w+)\{(.*)\} (\S+)", line).groups()
        values[name], labels[name] = float(value), dict(re.findall(r'(\w+)="([^"]*)"', tags))
    assert told["served"] == [port]  # by no other process of Ray
    return values, labels, told["summary"]


def test_counters_are_those_of_the_summary(measured):
    values, _, summary = measured
    assert summary["rebuilds"] > 0
    assert summary["rounds"] > 0
    for name in ("updates", "rebuilds", "rebuilt_rows", "rounds"):
        assert values[f"{name}_total"] == summary[name], name
    assert summary["checkpoints"]["written"] > 1
    assert values["checkpoints_total"] == summary["checkpoints"]["written"]
    assert values["checkpoint_seconds_total"] == pytest.approx(summary["checkpoints"]["seconds"])
    assert "restarts_total" not in values  # what was never counted is not there


def test_gauges_say_how_it_is_now(measured):
    values, _, summary = measured
    assert values["live_examples"] == summary["active"]
    assert (values["queue_depth"], values["epoch"]) == (0, 1)


def test_every_metric_names_its_run(measured):
    _, labels, _ = measured
    counted = {f"{name}_total" for name in COUNTERS if name != "restarts"}
    assert set(labels) == counted | set(GAUGES) - {"lag", "lag_seconds"}  # of a run that follows
    assert {tags["run"] for tags in labels.values()} == {"first-run"}


# -- ray tasks -------------------------------------------------------------------------------------------------------
# Independent tasks on Ray: every result with its place, losses apart, nothing left running.


def total(shared, item):
    if item == "die":
        os._exit(1)
    if item == "raise":
        raise InputError("a bad thing", file="f", row=3)
    if item == "sleep":
        time.sleep(600)
    return item * int(shared["x"].sum()), shared["x"].flags.writeable


SHARED = {"x": np.arange(200_000)}
SUM = int(SHARED["x"].sum())


def test_results_with_their_places_and_a_lost_process_apart(cluster):
    results = dict(run_tasks(cluster, total, [(SHARED, [1, 2, "die", 4])]))
    lost = results.pop(2)
    assert results == {0: (SUM, False), 1: (2 * SUM, False), 3: (4 * SUM, False)}
    assert isinstance(lost, ProcessLostError)
    assert str(lost) == message("cluster.task_lost", error="WorkerCrashedError")
    assert cpus() >= 2


def test_what_the_work_raises_is_raised(cluster):
    with pytest.raises(InputError, match="f, row 3: a bad thing"):
        list(run_tasks(cluster, total, [(SHARED, ["raise"])]))


def test_what_is_under_way_is_ended(cluster):
    """The sleepers hold every CPU; the next piece can run only once they are gone."""
    seen = []
    for answer in run_tasks(cluster, total, [(SHARED, [1, *["sleep"] * cpus()])], lambda: bool(seen)):
        seen.append(answer)
    assert seen == [(0, (SUM, False))]
    assert list(run_tasks(cluster, total, [(SHARED, [5])])) == [(0, (5 * SUM, False))]


def test_a_part_is_asked_for_when_there_are_cpus_for_it(cluster):
    asked, answered = [], []

    def parts():
        for number in range(6):
            asked.append((number, len(answered)))
            yield {"x": np.full(3, number)}, [10] * number

    for answer in run_tasks(cluster, total, parts()):
        answered.append(answer)
    expected = [(30 * number, False) for number in range(6) for _ in range(number)]
    assert [result for _, result in sorted(answered)] == expected
    assert [index for index, _ in sorted(answered)] == list(range(15))
    for number, done in asked:
        assert done > sum(range(number)) - cpus()
