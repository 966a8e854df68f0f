"""Every learner on Ray, with and without keys, and on several nodes of which some are lost."""

from __future__ import annotations

import functools
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import pipelines
import raydt
from actors.cluster import without_idle_services
from pipelines.auditing import audit_run
from pipelines.running.ending import RunResult
from raydt.errors import RaydtError
from tests.cases import CASES, Trial, a_third, every_case, first_cases, never, one_of_each
from tests.keyed_runs import KEYS_CASES as KEYS
from tests.keyed_runs import config, files
from tests.keyed_runs import rows_of_cases as rows_of
from tests.nets.test_runs import results

# -- ray -------------------------------------------------------------------------------------------------------------
# Every learner on real Ray: the outcome is that of the run in this process, also when processes are killed.

pytestmark = pytest.mark.ray


def on_ray(trial: Trial, path: Path, shards: int, *, folder: str = "ray", **where: Any) -> pipelines.RunResult:
    """A run of the case on the Ray that is there."""
    config = trial.config(path, cluster={"backend": "ray", "shards": shards, "patience_seconds": 60, **where})
    return pipelines.replay(config, path / folder)


def of_each_learner(trial: Trial) -> int:
    """Return the number of a case among those of its learner."""
    return [other for other in CASES if other.learner is trial.learner].index(trial)


def compared_often(trial: Trial) -> bool:
    """Return True if every test run compares a case: learners that divide trees and counts.

    That of rows is compared where a process is killed, and one of features is audited in ``test_replay.py``.
    """
    return one_of_each(trial) and trial.learner.kind in ("forest", "best_split")


@every_case("identity on Ray", compared_often, a_third("identity on Ray"))
def test_the_outcome_on_ray_is_that_in_this_process(trial: Trial, cluster, run_of, tmp_path: Path) -> None:
    """Processes of one, two or three CPUs, each with as many shards or threads: the first case of a learner has two."""
    expected = results(run_of(trial))
    processes, cpus = ((2, 1), (1, 3), (3, 1), (1, 2))[of_each_learner(trial) % 4]
    run = on_ray(trial, tmp_path, processes, resources={"shard": {"num_cpus": cpus}})
    assert results(run) == expected
    assert run.summary["rounds"] > 0
    assert [entry["requests"] > 0 for entry in run.summary["work"]] == [True] * processes


@every_case("outgrown on Ray", never, a_third("outgrown on Ray"))
def test_a_model_that_outgrows_the_coordinator_does_not_show(trial: Trial, cluster, run_of, tmp_path: Path) -> None:
    """Its first rows stay with the coordinator; the shards go on, and later incarnations begin where they left."""
    expected = results(run_of(trial))
    where = {"memory_limit": 20 * 8}
    run = on_ray(trial, tmp_path, 2, **where)
    assert results(run) == expected
    assert all(entry["requests"] > 0 for entry in run.summary["work"])
    whole = on_ray(trial, tmp_path, 2, memory_limit=None, folder="whole")
    assert results(whole) == expected
    divides_all = trial.learner.traits(trial.options).divided == "always"
    assert (whole.summary["rounds"] > 0) == divides_all


#: A shard dies while its part of the second checkpoint is fetched.
SHARD = "shard.before_parts/1@2#1=kill"
#: The coordinator dies before a batch; then a shard between doing and answering.
BOTH = "coordinator.before_batch@6#1=kill,shard.after_answer/1@3#2=kill"


def killed_often(trial: Trial) -> bool:
    """Return True if every test run kills a process of a case: of a learner whose shards own rows.

    With models by key it is one that divides features; the simulator kills machines of all.
    """
    return one_of_each(trial) and trial.learner.kind == "gbdt"


def require_unseen(trial: Trial, expected: pipelines.RunResult, folder: Path, lost: list[str]) -> None:
    """A run in which processes are lost has the expected outcome."""
    run = on_ray(trial, folder, 2)
    assert results(run) == results(expected)
    assert run.summary["recoveries"][0]["from_update"] > 0
    assert [recovery["what"].split(" (")[0] for recovery in run.summary["recoveries"]] == lost


@every_case("a kill on Ray", killed_often, a_third("a kill on Ray"))
@pytest.mark.usefixtures("in_step")
def test_a_killed_shard_does_not_show(trial: Trial, cluster, run_of, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("RAYDT_FAULTS", SHARD)
    require_unseen(trial, run_of(trial), tmp_path, ["shard 1"])


@every_case("kills on Ray", never, a_third("kills on Ray"))
@pytest.mark.usefixtures("in_step")
def test_killed_processes_do_not_show(trial: Trial, cluster, run_of, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("RAYDT_FAULTS", BOTH)
    require_unseen(trial, run_of(trial), tmp_path, ["the coordinator", "shard 1"])


# -- keyed ray -------------------------------------------------------------------------------------------------------
# Models by key on real Ray: the outcome is that in this process, whoever is killed, with any number of actors.

TABLES = ("metrics", "predictions", "quarantine", "alarms")


def outcome(run: pipelines.RunResult) -> dict[str, Any]:
    """What two runs have in common, tables by key: their rows come in any order of the keys."""
    counts = ("updates", "inserts", "deletes", "predictions", "refused", "skipped", "active", "metrics", "baselines")
    tables = {f"{name} {key}": repr(rows_of(run.path, name, key)) for name in TABLES for key in KEYS}
    return {"digest": run.digest, **{name: run.summary[name] for name in counts}, **tables}


def settings(trial: Trial, path: Path, **cluster: Any) -> dict[str, Any]:
    made = config(trial, path, key="key")
    return {**made, "cluster": {**made["cluster"], **cluster}}


def often(trial: Trial) -> bool:
    return one_of_each(trial) and trial.learner.kind == "fudyadt"


@pytest.fixture(scope="module")
def by_key(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Trial], tuple[Path, dict[str, Any]]]:
    """The change log of several keys of a case, and the outcome of its run in this process."""

    @functools.cache
    def run(name: str) -> tuple[Path, dict[str, Any]]:
        trial, folder = next(trial for trial in CASES if trial.name == name), tmp_path_factory.mktemp("keys")
        whole, _ = files(trial, folder)
        return whole, outcome(pipelines.replay(settings(trial, whole), folder / "run"))

    return lambda trial: run(trial.name)


@every_case("a kill of keys on Ray", often, a_third("a kill of keys on Ray"))
@pytest.mark.usefixtures("in_step")
def test_a_killed_actor_does_not_show(trial: Trial, cluster: object, by_key, tmp_path: Path, monkeypatch) -> None:
    """While it answers, and while it writes its part of a checkpoint; resumed then with another number of actors."""
    whole, expected = by_key(trial)
    monkeypatch.setenv("RAYDT_FAULTS", "shard.after_answer/1@5#1=kill,shard.before_parts/0@2#2=kill")
    on_ray = settings(trial, whole, backend="ray", shards=2, patience_seconds=60)
    run = pipelines.replay(on_ray, tmp_path / "ray")
    assert outcome(run) == expected
    assert [entry["what"].split(" (")[0] for entry in run.summary["recoveries"]][:1] == ["shard 1"]
    assert audit_run(run.path).ok


@every_case("keys on Ray", never, a_third("keys on Ray"))
def test_any_number_of_actors_has_the_same_outcome(trial: Trial, cluster: object, by_key, tmp_path: Path) -> None:
    whole, expected = by_key(trial)
    for shards in (1, 3):
        on_ray = settings(trial, whole, backend="ray", shards=shards)
        assert outcome(pipelines.replay(on_ray, tmp_path / f"{shards}")) == expected


# -- nodes -----------------------------------------------------------------------------------------------------------
# Every learner on a cluster of several nodes on this machine: a node is lost, the head, or the whole cluster.
#
# Each case has a process and a cluster of its own (Ray's cluster utility): a head without CPUs, and nodes with one
# CPU.

ROOT = Path(raydt.__file__).resolve().parents[1]
#: This module, as the processes of cases name it.
MODULE = f"tests.nets.{Path(__file__).stem}"

#: Nodes are found dead in about a second, and a head that is gone is waited for ten.
HEALTH = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 2,
    "gcs_rpc_server_reconnect_timeout_s": 10,
}

#: Updates of a run, and of one that is stopped at work: it has to last for as long as it takes to stop it.
UPDATES, MANY_UPDATES = 120, 600


def facts_of(scenario: str, trial: Trial, folder: Path) -> dict[str, Any]:
    """What the process of a case has found."""
    return of_a_process(MODULE, scenario, str(CASES.index(trial)), str(folder))


def of_a_process(module: str, *arguments: str) -> dict[str, Any]:
    """What a process of its own has found."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    environment["RAY_worker_niceness"] = "0"
    # Ray notes the address of the last cluster in a file there, and says so if it finds one.
    with tempfile.TemporaryDirectory(prefix="n", dir="/tmp") as own:
        ended = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment | {"TMPDIR": own},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-4000:]
    *others, last = ended.stdout.splitlines()
    facts: dict[str, Any] = json.loads(last)
    return facts | {"said": [*others, *ended.stderr.splitlines()]}


@pytest.mark.nightly
def test_a_lost_node_does_not_show(tmp_path: Path) -> None:
    """What Ray says of it is not on the terminal, either. Every learner loses such a node below, and then others."""
    facts = facts_of("spare", first_cases()[0], tmp_path)
    assert facts == {"nodes of actors": 2, "losses": ["shard"], "equal": True, "said": []}


@every_case("nodes lost", never, first_cases())
def test_lost_nodes_do_not_show(trial: Trial, tmp_path: Path) -> None:
    """A shard's node is lost, and there is a spare one; then the coordinator's, and there is none; then the cluster."""
    facts = facts_of("all", trial, tmp_path)
    assert facts["nodes of actors"] == 3, "the actors are not spread over the nodes"
    assert "the job needs 3 CPUs, the cluster has 2" in facts["without a spare"]
    assert "raydt resume" in facts["without a spare"]
    assert facts["losses"] == ["shard", "coordinator"]
    assert facts["equal"]


@every_case("the head lost", never, first_cases())
def test_a_run_whose_head_is_lost_resumes_on_another_cluster(trial: Trial, tmp_path: Path) -> None:
    """Ray ends a driver whose head is gone, if the run does not end before; its checkpoints remain."""
    facts = facts_of("head", trial, tmp_path)
    assert facts["ended"] != 0
    assert facts["checkpoints"] >= 1
    assert facts["equal"]


@every_case("a submitted job", never, first_cases())
def test_a_submitted_job_is_stopped_and_resumed(trial: Trial, tmp_path: Path) -> None:
    """``ray job submit``, ``ray job stop``, and another job that resumes; the actors are on the nodes."""
    facts = facts_of("job", trial, tmp_path)
    assert facts["stopped"] == ["STOPPED", "interrupted"]
    assert facts["updates"] > 0
    assert facts["resumed"] == ["SUCCEEDED", "completed"]
    assert facts["equal"]


class Nodes:
    """A cluster of this process."""

    def __init__(self, workers: int, *, cpus: int = 1, jobs: bool = False) -> None:
        """Start a head and so many nodes; ``jobs`` can be submitted to it, for which it starts more slowly."""
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": 10**8, "include_dashboard": jobs, "_system_config": HEALTH}
        if jobs:
            head["dashboard_port"] = free_port()
            self.url = f"http://127.0.0.1:{head['dashboard_port']}"
        with nullcontext() if jobs else without_idle_services(metrics=False):
            self._cluster = Cluster(initialize_head=True, head_node_args=head)
            for _ in range(workers):
                self._cluster.add_node(num_cpus=cpus, object_store_memory=10**8)
            self._cluster.wait_for_nodes()
        self.address = self._cluster.address

    def of(self, pid: int) -> Any:
        """The node that a process of an actor is on: that of the raylet that started it."""
        parents = {parent.pid for parent in psutil.Process(pid).parents()}
        for node in self._cluster.list_all_nodes():
            raylets = {info.process.pid for info in node.all_processes["raylet"]}
            if raylets & parents:
                return node
        raise AssertionError(f"process {pid} is on no node")

    def lose(self, pid: int) -> None:
        """Lose the node of an actor: all its processes end at once."""
        node = self.of(pid)
        for info in node.all_processes["raylet"]:
            for process in psutil.Process(info.process.pid).children(recursive=True):
                process.kill()
        self._cluster.remove_node(node, allow_graceful=False)

    def lose_head(self) -> None:
        """Lose the process that all others ask where everything is."""
        for info in self._cluster.head_node.all_processes["gcs_server"]:
            psutil.Process(info.process.pid).kill()

    def close(self) -> None:
        """Lose all of it."""
        self._cluster.shutdown()


def in_steps() -> None:
    """Checkpoints are waited for, and as few batches as possible are under way."""
    import pipelines.running.loop as running
    from actors import session as ray_session
    from pipelines.running.checkpoint import Checkpointer

    write = Checkpointer.write

    def write_and_wait(checkpointer: Any, *arguments: Any) -> None:
        write(checkpointer, *arguments)
        checkpointer.settle()

    Checkpointer.write = write_and_wait  # type: ignore[method-assign]
    ray_session.TOGETHER, running.READ_AHEAD = 1, 0


def on(nodes: Nodes | None, trial: Trial, folder: Path, shards: int = 2, updates: int = UPDATES) -> dict[str, Any]:
    """A config of the case on the cluster, or on that of the job."""
    where = {"backend": "ray", "shards": shards, "patience_seconds": 60}
    return trial.config(folder, updates, cluster=where | ({"address": nodes.address} if nodes else {}))


def lost(run: Any) -> list[str]:
    """Who was lost."""
    return [
        "shard" if entry["what"].startswith("shard") else "coordinator"
        for entry in run.summary["recoveries"]
        if entry["kind"] == "lost"
    ]


def watched(nodes: Nodes, *strikes: tuple[int, Callable[[list[int]], None]]) -> Any:
    """Call one strike in each incarnation, after so many recorded batches of it, with the processes of the actors.

    So a second loss comes after the first was found, however rarely a learner asks its shards anything.
    """
    from actors.session import RaySession
    from raydt.exchange.messages import injected

    opened, actors, recorded, left = RaySession._start, list[int](), 0, [*strikes]

    def start(session: Any, *arguments: Any) -> None:
        nonlocal recorded
        opened(session, *arguments)
        recorded, struck = 0, bool(actors) and bool(left)
        del left[: 1 if struck else 0]
        actors[:] = [int(peer.name.split("pid ")[1].split(" ")[0]) for peer in session._peers]

    def strike(point: str) -> None:
        nonlocal recorded
        if point == "driver.recorded":
            recorded += 1
            if left and recorded == left[0][0]:
                left[0][1](actors)

    RaySession._start = start  # type: ignore[method-assign]
    return injected(strike)


def spare(trial: Trial, folder: Path, facts: dict[str, Any]) -> Any:
    """The node of the shard is lost."""
    nodes = Nodes(3)

    def strike(actors: list[int]) -> None:
        facts["nodes of actors"] = len({nodes.of(pid).raylet_socket_name for pid in actors})
        nodes.lose(actors[-1])

    with watched(nodes, (4, strike)):
        run = pipelines.replay(on(nodes, trial, folder, shards=1), folder / "ray")
    nodes.close()
    facts["losses"] = lost(run)
    return run


def all_of_them(trial: Trial, folder: Path, facts: dict[str, Any]) -> Any:
    """One after the other, until nothing is left."""
    import ray

    from actors.cluster import Cluster

    nodes = Nodes(4)
    Cluster.reserve_seconds = 20.0

    def of_shard(actors: list[int]) -> None:
        facts["nodes of actors"] = len({nodes.of(pid).raylet_socket_name for pid in actors})
        nodes.lose(actors[-1])

    def of_coordinator(actors: list[int]) -> None:
        Cluster.reserve_seconds = 3.0
        nodes.lose(actors[0])

    try:
        with watched(nodes, (4, of_shard), (2, of_coordinator)):  # the second long before the last batch
            pipelines.replay(on(nodes, trial, folder), folder / "ray")
    except RaydtError as error:
        facts["without a spare"] = str(error)
    nodes.close()
    ray.shutdown()
    nodes = Nodes(3)
    Cluster.reserve_seconds = 60.0
    run = pipelines.resume(folder / "ray", address=nodes.address)
    nodes.close()
    facts["losses"] = lost(run)
    return run


def head(trial: Trial, folder: Path, facts: dict[str, Any]) -> Any:
    """The head is lost while a driver of its own waits at its work: Ray may end that without a word."""
    nodes = Nodes(3)
    arguments = ["replay", write(on(nodes, trial, folder), folder), "--out", str(folder / "ray")]
    with (folder / "driver").open("w") as words:
        driver = subprocess.Popen(held("driver.recorded@5=sleep", folder, arguments), stdout=words, stderr=words)
        wait_for(lambda: checkpoints(folder), lambda: driver.poll() is not None)
        nodes.lose_head()
        facts["ended"] = driver.wait(120)
    facts["checkpoints"] = checkpoints(folder)
    nodes.close()
    # A process whose Ray has lost its head starts no other one.
    program = f"import pathlib, sys; from {MODULE} import resume; resume(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, str(folder)], cwd=ROOT, check=True)
    return RunResult(str(folder / "ray"), summary(folder))


def resume(folder: Path) -> None:
    """Resume the run on a cluster of its own."""
    nodes = Nodes(3)
    pipelines.resume(folder / "ray", address=nodes.address)
    nodes.close()


def job(trial: Trial, folder: Path, facts: dict[str, Any]) -> Any:
    """Submitted, stopped at work, and resumed by another job."""
    from ray.job_submission import JobSubmissionClient

    nodes, out = Nodes(3, jobs=True), str(folder / "ray")
    client = JobSubmissionClient(nodes.url)
    config = write(on(None, trial, folder, updates=MANY_UPDATES), folder)
    first = submitted(client, held("driver.recorded@*=pause", folder, ["replay", config, "--out", out]))
    wait_for(lambda: checkpoints(folder), lambda: client.get_job_status(first).is_terminal())
    client.stop_job(first)
    facts["stopped"] = [ended(client, first), summary(folder)["status"]]
    facts["updates"] = summary(folder)["updates"]
    second = submitted(client, [sys.executable, "-m", "pipelines.cli", "resume", out])
    facts["resumed"] = [ended(client, second), summary(folder)["status"]]
    nodes.close()
    return RunResult(out, summary(folder))


def held(places: str, folder: Path, arguments: list[str]) -> list[str]:
    """A command that waits at its work."""
    (folder / "marks").mkdir()
    return [sys.executable, "-m", "tests.integration.held_command", places, str(folder / "marks"), *arguments]


def write(config: dict[str, Any], folder: Path) -> str:
    """Write a config; where it is."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return str(folder / "config.yaml")


def checkpoints(folder: Path) -> int:
    """Complete checkpoints."""
    return len(list((folder / "ray" / "checkpoints").glob("*/manifest.json")))


def summary(folder: Path) -> dict[str, Any]:
    """What the run says of itself."""
    found: dict[str, Any] = json.loads((folder / "ray" / "summary.json").read_text())
    return found


def wait_for(there: Callable[[], object], over: Callable[[], object], seconds: float = 120) -> None:
    """Wait until something is there, which has to be before the process that makes it is over."""
    until = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < until, "nothing came"
        assert not over(), "it has ended"
        time.sleep(0.02)


def submitted(client: Any, command: list[str]) -> str:
    """Submit a job; its name. The agent of the head comes up some seconds after it."""
    for _ in range(60):
        with suppress(RuntimeError):
            name: str = client.submit_job(entrypoint=shlex.join(command))
            return name
        time.sleep(1)
    raise AssertionError("the cluster takes no jobs")


def ended(client: Any, name: str) -> str:
    """Ray's word for how a job has ended."""
    wait_for(lambda: client.get_job_status(name).is_terminal(), lambda: False)
    return str(client.get_job_status(name).value)


def free_port() -> int:
    """A port nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


SCENARIOS = {"spare": spare, "all": all_of_them, "head": head, "job": job}


def main(scenario: str, number: int, folder: Path) -> dict[str, Any]:
    """Run a case; what the test checks."""
    from tests.nets.test_runs import results

    trial, facts = CASES[number], dict[str, Any]()
    updates = MANY_UPDATES if scenario == "job" else UPDATES
    expected = results(pipelines.replay(trial.config(folder, updates), folder / "here"))
    in_steps()
    run = SCENARIOS[scenario](trial, folder, facts)
    return facts | {"equal": results(run) == expected}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
