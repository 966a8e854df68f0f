"""What a private Ray leaves on the disk once it has ended: nothing; other sessions are left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

from actors.cluster import connect
from raydt.errors import ConfigError
from tests.refusals import refused

#: In a process of its own, which no other test has connected to a Ray.
PROGRAM = """
import os, pathlib
from actors.cluster import Cluster, connect
cluster = connect("local")
import ray, numpy as np
folder = pathlib.Path(ray._private.worker._global_node.get_session_dir_path())
other = folder.parent / f"session_of_nobody_{os.getpid()}"
other.mkdir()
assert ray.get(ray.put(np.arange(10_000))).sum() == 49_995_000
assert any(folder.iterdir())
assert Cluster(started=False)._session is None
cluster.close()
print("left", folder.exists(), "other", other.exists())
other.rmdir()
"""


@pytest.mark.nightly
def test_the_session_folder_goes_with_its_ray() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.strip() == "left False other True", done.stderr


KILLED = """
import os, signal
from actors.cluster import connect
cluster = connect("local")
import psutil
agents = [one.pid for one in psutil.Process().children(recursive=True) if "agent" in " ".join(one.cmdline()).lower()]
print(*agents, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_agents_of_a_private_ray_end_with_a_driver_that_is_killed() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, check=False, timeout=300)
    agents = [int(word) for word in done.stdout.split()]
    assert done.returncode == -signal.SIGKILL
    assert len(agents) >= 2
    until = time.monotonic() + 10.0  # without the process that follows the driver they take a minute
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in agents):
        assert time.monotonic() < until, agents
        time.sleep(0.05)


@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_a_folder_for_temporary_files_with_a_long_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would end with "AF_UNIX path length cannot exceed 107 bytes", or wait for a raylet that is not there."""
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv(name, folder := "/tmp/" + "x" * 60)
    monkeypatch.setattr("actors.cluster._is_connected", lambda: False)  # whatever other tests have left
    with refused("cluster.long_tmpdir", ConfigError, name=name, folder=folder):
        connect("local")
