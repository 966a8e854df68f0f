"""``cluster.shards: auto`` on a cluster that the job joins: it takes what other jobs have left free on each node.

The case has a process and a cluster of its own: a head without CPUs, and three nodes with three CPUs each. The actors
of another job have two CPUs on two of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.display import Reporter
from raydt.messages import message
from tests.nets.test_nodes import Nodes, of_a_process

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

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

CONFIG: dict[str, Any] = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 300},
    "stream": {"model": "sliding_window", "window": 100},
    "learner": {"kind": "forest", "n_estimators": 12},
    "cluster": {"shards": "auto", "patience_seconds": 60},
    "output": {"report": False},
}


def test_auto_takes_what_is_free_on_the_nodes(tmp_path: Path) -> None:
    facts = of_a_process("tests.integration.test_ray_auto", str(tmp_path))
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
    here = pipelines.replay(CONFIG, folder / "here", overrides=["cluster.backend=in_process"])
    nodes = Nodes(3, cpus=3)
    command = [sys.executable, "-c", OTHER, nodes.address]
    facts: dict[str, Any] = {"equal": True}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "there\n"
        for name, cpus in {"ones": 1, "twos": 2}.items():
            first = FirstLine()
            each = [f"cluster.resources.shard.num_cpus={cpus}", f"cluster.address={nodes.address}"]
            run = pipelines.replay(CONFIG, folder / name, overrides=each, progress=first)
            assert all(entry["requests"] for entry in run.summary["work"])
            facts[name] = {"first line": first.text, "shards": run.summary["shards"]}
            facts["equal"] &= run.digest == here.digest
        other.communicate()
    nodes.close()
    return facts


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
