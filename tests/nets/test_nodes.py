"""Every learner on a cluster of several nodes on this machine: nodes are lost, then the whole cluster.

Each case has a process and a cluster of its own (Ray's cluster utility): a head without CPUs, and four nodes with one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import raydt
from tests.cases import CASES, Trial, every_case, first_cases

pytestmark = pytest.mark.ray

ROOT = Path(raydt.__file__).resolve().parents[1]

#: Nodes are found dead in about a second.
HEALTH = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 2,
}


def the_first(trial: Trial) -> bool:
    """Whether every test run takes a case: one of all learners, since a cluster takes long to start."""
    return trial == first_cases()[0]


@every_case("nodes lost", the_first)
def test_lost_nodes_do_not_show(trial: Trial, tmp_path: Path) -> None:
    """A shard's node is lost, and there is a spare one; then the coordinator's, and there is none; then the cluster."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.nets.test_nodes", str(CASES.index(trial)), str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    facts = json.loads(ended.stdout.splitlines()[-1])
    assert facts["nodes of actors"] == 3, "the actors are not spread over the nodes"
    assert "the job needs 3 CPUs, the cluster has 2" in facts["without a spare"]
    assert "raydt resume" in facts["without a spare"]
    assert facts["losses"] == ["shard", "coordinator"]
    assert facts["equal"]


class Nodes:
    """A cluster of this process."""

    def __init__(self, workers: int) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": 10**8, "include_dashboard": False, "_system_config": HEALTH}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(workers):
            self._cluster.add_node(num_cpus=1, object_store_memory=10**8)
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

    def close(self) -> None:
        """Lose all of it."""
        self._cluster.shutdown()


def main(number: int, folder: Path) -> dict[str, Any]:
    """Run a case; what the test checks."""
    import ray

    import pipelines
    from actors import session as ray_session
    from actors.cluster import Cluster
    from actors.session import RaySession
    from pipelines.running.loop import run as running
    from pipelines.running.records.checkpointing import Checkpointer
    from raydt.errors import RaydtError
    from raydt.exchange.faults import injected
    from tests.nets.test_runs import results

    trial, facts, actors = CASES[number], dict[str, Any](), list[int]()
    expected = results(pipelines.replay(trial.config(folder), folder / "here"))
    opened, write = RaySession._start, Checkpointer.write

    def start(session: Any, *arguments: Any) -> None:
        opened(session, *arguments)
        actors[:] = [int(peer.name.split("pid ")[1].split(" ")[0]) for peer in session._peers]

    def write_and_wait(checkpointer: Any, *arguments: Any) -> None:
        write(checkpointer, *arguments)
        checkpointer.settle()

    RaySession._start = start  # type: ignore[method-assign]
    Checkpointer.write = write_and_wait  # type: ignore[method-assign]
    ray_session.TOGETHER, running.READ_AHEAD = 1, 0  # as few batches as possible are under way
    Cluster.reserve_seconds = 20.0
    nodes, recorded = Nodes(4), 0

    def strike(point: str) -> None:
        nonlocal recorded
        if point != "driver.recorded":
            return
        recorded += 1
        if recorded == 4:
            facts["nodes of actors"] = len({nodes.of(pid).raylet_socket_name for pid in actors})
            nodes.lose(actors[-1])
        elif recorded == 9:
            Cluster.reserve_seconds = 3.0
            nodes.lose(actors[0])

    config = trial.config(
        folder, cluster={"backend": "ray", "shards": 2, "patience_seconds": 60, "address": nodes.address}
    )
    try:
        with injected(strike):
            pipelines.replay(config, folder / "ray")
    except RaydtError as error:
        facts["without a spare"] = str(error)
    nodes.close()
    ray.shutdown()
    nodes = Nodes(3)
    Cluster.reserve_seconds = 60.0
    run = pipelines.resume(folder / "ray", address=nodes.address)
    facts["equal"] = results(run) == expected
    facts["losses"] = [
        "shard" if entry["what"].startswith("shard") else "coordinator"
        for entry in run.summary["recoveries"]
        if entry["kind"] == "lost"
    ]
    nodes.close()
    return facts


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), Path(sys.argv[2]))))
