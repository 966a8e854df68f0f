"""Four hosts, each in a network namespace with an address of its own: the shards of a GBDT meet over the network.

One host of a shard is cut off in the middle of the run. The fourth takes its place, and the model is that of one
process. Hosts share a file system, as those of a cluster do.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pipelines
from tests import namespaces
from tests.nets.test_nodes import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

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
    namespaces.run(START + there, ROOT, network=HOSTS, seconds=1700)
    assert facts.read_text() == "3\n", "the actors were not on three hosts"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["shards"]) == ("completed", 2)
    assert [entry["kind"] for entry in summary["recoveries"]] == ["lost"]
    expected = pipelines.replay(config, tmp_path / "here", overrides=["cluster.backend=in_process"])
    assert summary["model_digest"] == expected.digest
