"""The doctor's facts, against what the operating system says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import psutil
import pytest

from pipelines.doctor import examine, listeners, warm_up


def test_facts_are_those_of_this_machine():
    facts = examine()
    assert facts["cpus"] == len(os.sched_getaffinity(0))
    assert facts["memory_bytes"] == psutil.virtual_memory().total
    assert facts["numba_cache_dir"] == os.environ["NUMBA_CACHE_DIR"]
    assert "listeners" not in facts


def test_the_authentication_mode_is_what_ray_would_read(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert examine()["ray_auth_mode"] == "disabled"
    monkeypatch.delenv("RAY_AUTH_MODE")
    assert "token" in examine()["ray_auth_mode"]


@pytest.mark.parametrize(("address", "loopback"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_listeners_are_found_and_judged(address, loopback):
    with socket.socket() as server:
        server.bind((address, 0))
        server.listen()
        found = {entry["port"]: entry for entry in listeners(psutil.Process())}
        assert found[server.getsockname()[1]]["loopback"] is loopback


def test_a_process_that_is_gone_has_no_listeners():
    child = subprocess.Popen([sys.executable, "-c", ""])
    gone = psutil.Process(child.pid)
    child.wait()
    assert listeners(gone) == []


def test_warm_up_times_every_learner():
    assert {"fudyadt", "streams"} <= warm_up()["seconds"].keys()
