"""A private Ray as a user starts it, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import raydt
from actors.shard import identity

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ROOT = Path(raydt.__file__).resolve().parents[1]

PRIVATE = """
import json, os, signal, sys, time
handler = lambda *_: None
signal.signal(signal.SIGTERM, handler)
from pathlib import Path
import psutil
from types import SimpleNamespace
from actors.placement import Placement
from pipelines.config import Cluster
from pipelines.running import incarnations
from pipelines.doctor import listeners, serves_metrics
from raydt.errors import ProcessLostError
from raydt.examples.updates import Features
from raydt.learners.base import LearnerOptions, WorkPlan
from tests.integration.faulty import Faulty, act
features = Features(("a", "b", "c"), (False,) * 3, groups=3)
incarnations.learners = lambda: {"faulty": Faulty()}
cluster = Cluster(shards=3, memory_limit=0, patience_seconds=5)
options = LearnerOptions(kind="faulty")
config = SimpleNamespace(learner=options, cluster=cluster, placement=Placement(3, "on Ray", plan=WorkPlan(0, 0)))
connection = incarnations.Incarnations(config, features)
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
