"""The README's cluster command: the same job through ``ray job submit``, with and without token authentication."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import pipelines
from raydt.messages import message

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
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
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
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
