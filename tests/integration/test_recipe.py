"""The recipe of the cluster's guide, several hosts, and a number of shards that follows the cluster."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.display import Reporter
from raydt.messages import message
from tests import pages
from tests.nets.test_ray import ROOT, Nodes, of_a_process

# -- recipe ----------------------------------------------------------------------------------------------------------
# The recipe of ``docs/how-to/cluster.md`` as printed, on a machine of its own as far as it can tell.
#
# The commands run in namespaces of their own: of processes, so that ``ray stop`` ends no other Ray; and of the
# network, so that no port is taken. The network has an address beside loopback, on which nothing may listen.

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

PAGE = ROOT / "docs" / "how-to" / "cluster.md"
#: What is asked between the blocks of the recipe: who listens, and on which address.
LISTENERS = """
{python} -c 'import json, psutil
print(json.dumps(sorted({{c.laddr.ip for c in psutil.net_connections("tcp") if c.status == "LISTEN"}})))' >> {out}
"""
#: A job that asks for more CPUs than the head has.
TOO_LARGE = """
ray job submit --working-dir . -- python -m pipelines.cli replay configs/cluster.yaml --out {out}/large \
    --set cluster.shards=4 > {out}/said 2>&1 && exit 1
"""
#: The run is stopped at work: the first incarnation of the coordinator comes no further than the end of the warm-up,
#: whose messages end where a checkpoint is due.
HELD = "export RAYDT_FAULTS=coordinator.before_batch@5#1=hang\n"
KEPT = "\ncheckpoint: {every_updates: 30000}\n"


def recipe() -> list[str]:
    """The blocks of the section, in their order."""
    return [block.text for block in pages.blocks(PAGE) if "test_recipe.py" in block.reason]


def clone(folder: Path) -> Path:
    """A clone without what git ignores."""
    ignored = shutil.ignore_patterns(".*", "runs", "__pycache__", "tests", "docs", "benchmarks", "*.egg-info")
    return Path(shutil.copytree(ROOT, folder, ignore=ignored))


@pytest.mark.timeout(1800)
def test_the_recipe_as_printed(tmp_path: Path) -> None:
    start, submit, resume = recipe()
    here = clone(tmp_path / "clone")
    config = here / "configs" / "cluster.yaml"
    config.write_text(config.read_text().replace("cluster:", "cluster:\n  patience_seconds: 600") + KEPT)
    asked = LISTENERS.format(python=sys.executable, out=tmp_path / "listeners")
    large = TOO_LARGE.format(out=tmp_path)
    in_namespaces(HELD + "\n".join([start, submit, asked, large, asked, resume]), here, seconds=1700)

    for line in (tmp_path / "listeners").read_text().splitlines():
        addresses = json.loads(line)
        assert addresses
        assert all(address.removeprefix("::ffff:").startswith("127.") for address in addresses), addresses
    said = (tmp_path / "said").read_text()
    lacking = message("cluster.lack", needed=5, resource="CPUs", there=3, free=0)
    assert str(message("cluster.too_small", lacking=lacking)).partition(" (")[0] in said
    assert message("cluster.too_small", lacking=lacking).remedy in said

    summary = json.loads((here / "runs" / "first" / "summary.json").read_text())
    assert (summary["status"], summary["backend"], summary["shards"]) == ("completed", "ray", 2)
    assert [entry["kind"] for entry in summary["recoveries"]] == ["resumed"], "it was not stopped at work"
    assert [entry["requests"] > 0 for entry in summary["work"]] == [True, True]
    expected = pipelines.replay(
        config, tmp_path / "here", overrides=["cluster.backend=in_process"], progress=Reporter()
    )
    assert summary["model_digest"] == expected.digest


# -- hosts -----------------------------------------------------------------------------------------------------------
# Four hosts, each in a network namespace with an address of its own: the shards of a GBDT meet over the network.
#
# One host of a shard is cut off in the middle of the run. The fourth takes its place, and the model is that of one
# process. Hosts share a file system, as those of a cluster do.

#: Hosts 10.77.0.10 to 13, joined by a bridge; ``on HOST COMMAND`` runs a command there.
HOSTS = """
ip link set lo up
ip link add name hub type bridge
ip link set hub up
hosts=()
for i in 0 1 2 3; do
    unshare --net sleep infinity & hosts+=($!)
    while [ "$(readlink /proc/${hosts[i]}/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
    ip link add cable$i type veth peer name eth0 netns ${hosts[i]}
    ip link set cable$i master hub up
    nsenter --target ${hosts[i]} --net bash -ec "
        ip link set lo up; ip address add 10.77.0.1$i/24 dev eth0; ip link set eth0 up
        ip route add default via 10.77.0.10"
done
on() { nsenter --target ${hosts[$1]} --net -- "${@:2}"; }
"""

#: A head and three nodes with one CPU each. A node that does not answer is dead after some seconds.
START = """
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_USAGE_STATS_ENABLED=0
health='{"health_check_period_ms": 1000, "health_check_timeout_ms": 2000, "health_check_failure_threshold": 3}'
each="--num-cpus 1 --object-store-memory 100000000"
on 0 ray start --head $each --node-ip-address 10.77.0.10 --include-dashboard false --system-config "$health"
for i in 1 2 3; do
    on $i ray start $each --node-ip-address 10.77.0.1$i --address 10.77.0.10:6379
done
"""

#: Shard 0 comes no further in the first incarnation, after so many answers, until a host of a shard is cut off.
RUN = """
export RAYDT_FAULTS=shard.before_answer/0@12#1=hang
on 0 python -m pipelines.cli replay {config} --address 10.77.0.10:6379 --out {run} & driver=$!
until compgen -G "{run}/checkpoints/*/manifest.json" > /dev/null; do sleep 0.5; kill -0 $driver; done
networks() {{ for p in $(pgrep -f "^ray::$1"); do readlink /proc/$p/ns/net; done; }}
{{ networks Coordinator; networks FeatureShard; }} | sort -u | wc -l > {facts}
for i in 1 2 3; do
    if networks FeatureShard | grep -qF "$(readlink /proc/${{hosts[i]}}/ns/net)"; then cut=$i; fi
done
ip link set cable$cut down
wait $driver
"""

CONFIG = """\
source: {kind: synthetic, generator: hyperplane, n: 6000, n_features: 6, seed: 4}
stream: {model: sliding_window, window: 2000, warmup: 2000}
learner: {kind: gbdt, max_iter: 5, update_every: 500}
cluster: {shards: 2, memory_limit: 0, batch_size: 500, patience_seconds: 200}
checkpoint: {every_updates: 1000}
output: {report: false}
"""


@pytest.mark.timeout(1800)
def test_four_hosts_of_which_one_is_cut_off(tmp_path: Path) -> None:
    config, run, facts = tmp_path / "job.yaml", tmp_path / "run", tmp_path / "facts"
    config.write_text(CONFIG)
    there = RUN.format(config=config, run=run, facts=facts)
    in_namespaces(START + there, ROOT, network=HOSTS, seconds=1700)
    assert facts.read_text() == "3\n", "the actors were not on three hosts"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["shards"]) == ("completed", 2)
    assert [entry["kind"] for entry in summary["recoveries"]] == ["lost"]
    expected = pipelines.replay(config, tmp_path / "here", overrides=["cluster.backend=in_process"])
    assert summary["model_digest"] == expected.digest


# -- ray auto --------------------------------------------------------------------------------------------------------
# ``cluster.shards: auto`` on a cluster that the job joins: it takes what other jobs have left free on each node.
#
# The case has a process and a cluster of its own: a head without CPUs, and three nodes with three CPUs each. The
# actors of another job have two CPUs on two of them.

#: Another job: it takes two CPUs on each of two nodes, and says so.
OTHER = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False)
class Other:
    def there(self):
        return True
others = [ray.remote(num_cpus=2)(Other).remote() for _ in range(2)]
ray.get([other.there.remote() for other in others])
print("there", flush=True)
sys.stdin.read()
"""

CONFIG_AUTO: dict[str, Any] = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 300},
    "stream": {"model": "sliding_window", "window": 100},
    "learner": {"kind": "forest", "n_estimators": 12},
    "cluster": {"shards": "auto", "patience_seconds": 60},
    "output": {"report": False},
}


def test_auto_takes_what_is_free_on_the_nodes(tmp_path: Path) -> None:
    facts = of_a_process("tests.integration.test_recipe", str(tmp_path))
    ones, twos = facts["ones"], facts["twos"]
    assert ones["shards"] == 4
    assert f"4 shards (auto: {message('runs.full_cluster')})" in ones["first line"]
    # One node has room for a shard of two CPUs. The sum of the free CPUs would allow two.
    assert twos["shards"] == 1
    assert facts["equal"]


class FirstLine(Reporter):
    """Keeps the first line of a job."""

    text = ""

    def stage(self, text: str) -> None:
        """Keep it."""
        self.text = self.text or text


def main(folder: Path) -> dict[str, Any]:
    """Run the config beside another job; what the test checks."""
    from actors.cluster import Cluster

    Cluster.reserve_seconds = 20.0
    here = pipelines.replay(CONFIG_AUTO, folder / "here", overrides=["cluster.backend=in_process"])
    nodes = Nodes(3, cpus=3)
    command = [sys.executable, "-c", OTHER, nodes.address]
    facts: dict[str, Any] = {"equal": True}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "there\n"
        for name, cpus in {"ones": 1, "twos": 2}.items():
            first = FirstLine()
            each = [f"cluster.resources.shard.num_cpus={cpus}", f"cluster.address={nodes.address}"]
            run = pipelines.replay(CONFIG_AUTO, folder / name, overrides=each, progress=first)
            assert all(entry["requests"] for entry in run.summary["work"])
            facts[name] = {"first line": first.text, "shards": run.summary["shards"]}
            facts["equal"] &= run.digest == here.digest
        other.communicate()
    nodes.close()
    return facts


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))


# -- namespaces --------------------------------------------------------------------------------------------------------
# Namespaces of Linux: commands on a machine of their own, and several hosts on one machine.
#
# Root has the rights for it; others have them where the system lets users make namespaces.


#: A network that has loopback and one more address, as that of a laptop; nobody is at the other end.
NETWORK = """
ip link set lo up
ip link add outside type veth peer name nowhere
ip address add 10.77.0.9/24 dev outside
ip link set outside up && ip link set nowhere up
ip route add default via 10.77.0.1
"""


def unshared() -> list[str]:
    """The beginning of a command in namespaces of its own: of processes, mounts and the network."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


@functools.cache
def _are_permitted() -> bool:
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "curl"))):
        return False
    return subprocess.run([*unshared(), "bash", "-ec", NETWORK], capture_output=True, check=False).returncode == 0


def in_namespaces(script: str, folder: Path, *, network: str = NETWORK, seconds: float) -> str:
    """Run commands of the shell in namespaces of their own; what they print. The first that fails ends them.

    The test is skipped where nobody may make namespaces.
    """
    if not _are_permitted():
        pytest.skip("namespaces are not permitted here, or their commands are missing")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Names of sockets are short, and Ray notes the address of the last cluster there.
    with tempfile.TemporaryDirectory(prefix="n", dir="/tmp") as own, tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen(
            [*unshared(), "bash", "-ec", network + script],
            cwd=folder,
            env=environment | {"RAY_TMPDIR": own, "RAY_worker_niceness": "0", "RAY_raylet_start_wait_time_s": "300"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            code: int | None = running.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            running.kill()  # and with it all processes of its namespace
            running.wait()
        said.seek(0)
        text = said.read()
    assert code == 0, f"{'no end' if code is None else f'exit code {code}'} of\n{script}\n{text[-8000:]}"
    return text
