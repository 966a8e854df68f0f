"""The doctor's facts, against what the operating system says."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import psutil
import pytest

from pipelines.display import doctor_lines
from pipelines.doctor import compile_all, examine, listeners, probe, serves_metrics
from raydt.errors import STORAGE_REMEDIES, ConfigError
from raydt.folders.folder import Folder
from raydt.messages import message
from tests.refusals import refused

STEPS = ("_make", "_open_to_write", "_rename", "_list", "_open_to_read", "_delete_file")


def contents(folder):
    return sorted(str(path) for path in folder.rglob("*"))


def test_facts_are_those_of_this_machine():
    facts = examine()
    assert facts["cpus"] == len(os.sched_getaffinity(0))
    assert facts["memory_bytes"] == psutil.virtual_memory().total
    assert facts["numba_cache_dir"] == os.environ["NUMBA_CACHE_DIR"]
    assert "listeners" not in facts


def test_it_lists_where_copies_may_be(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    place = message("verdicts.copy_sessions", folder=f"{tmp_path}/ray", sessions=2)
    assert place not in examine()["copies"]
    for name in ("session_2026-01-01_a", "session_2026-01-02_b"):
        (tmp_path / "ray" / name).mkdir(parents=True)
    facts = examine()
    assert place in facts["copies"]
    assert f"copies of rows may be in  {place}" in doctor_lines(facts)
    swap = any("swap" in place for place in facts["copies"])
    assert swap == (psutil.swap_memory().total > 0)


def test_the_authentication_mode_is_what_ray_would_read(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert examine()["ray_auth_mode"] == "disabled"
    monkeypatch.delenv("RAY_AUTH_MODE")
    assert "token" in examine()["ray_auth_mode"]


@pytest.mark.parametrize(("address", "loopback"), [("127.0.0.1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False)])
def test_listeners_are_found_and_judged(address, loopback):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        server.bind((address, 0))
        server.listen()
        found = {entry["port"]: entry for entry in listeners(psutil.Process())}
        assert found[server.getsockname()[1]]["loopback"] is loopback


def test_a_process_that_is_gone_has_no_listeners():
    child = subprocess.Popen([sys.executable, "-c", ""])
    gone = psutil.Process(child.pid)
    child.wait()
    assert listeners(gone) == []


@pytest.mark.parametrize("status", [200, 401])
def test_metrics_that_ask_for_no_token_are_told(status):
    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("0.0.0.0", 0), Endpoint) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert serves_metrics("0.0.0.0", server.server_port) is (status == 200)
        thread.join()


def test_what_speaks_another_protocol_serves_no_metrics():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer():
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(bytes(9))
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert not serves_metrics(*server.getsockname())
        thread.join()
    assert not serves_metrics("127.0.0.1", 1)


def test_listeners_with_metrics_are_named():
    entry = {"address": "0.0.0.0", "port": 44217, "process": "python", "loopback": False}
    lines = doctor_lines({"listeners": [{**entry, "metrics": True}, {**entry, "metrics": False}]}).splitlines()
    assert [line.endswith("0.0.0.0:44217 python  (reachable)  (/metrics without a token)") for line in lines] == [1, 0]


def test_compilation_times_every_learner():
    assert {"fudyadt", "streams"} <= compile_all().keys()


@pytest.mark.parametrize("uri", [False, True])
def test_a_probe_times_every_step_and_leaves_nothing_behind(tmp_path, uri):
    place = tmp_path / "new" / "deeper"
    found = probe(place.as_uri() if uri else str(place))
    assert found["location"] == str(place)
    assert list(found["seconds"]) == ["write", "replace", "list", "read", "rename", "delete"]
    assert all(seconds >= 0 for seconds in found["seconds"].values())
    assert found["free_bytes"] > found["bytes"] > 0
    assert contents(tmp_path) == []


def test_a_probe_leaves_what_was_there_alone(tmp_path):
    (tmp_path / "4096").mkdir()
    (tmp_path / "4096" / "manifest.json").write_text("{}")
    before = contents(tmp_path)
    probe(str(tmp_path))
    assert contents(tmp_path) == before


def test_a_folder_on_another_filesystem_can_be_probed():
    found = probe("mock:///bucket/checkpoints")
    assert found["location"] == "mock:///bucket/checkpoints"
    assert found["free_bytes"] is None


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO], ids=errno.errorcode.__getitem__
)
def test_a_step_that_fails_is_named_with_a_remedy(tmp_path, monkeypatch, step, number):
    remedy = STORAGE_REMEDIES.get(number, message("verdicts.other_folder"))
    place, real, failed = tmp_path / "new", getattr(Folder, step), []

    def fail_once(self, *arguments):
        if failed:
            return real(self, *arguments)
        failed.append(step)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Folder, step, fail_once)
    said = {"folder": str(place), "reason": os.strerror(number), "remedy": remedy}
    with refused("verdicts.probe_step", ConfigError, **said) as caught:
        probe(str(place))
    assert caught.value.exit_code == 2
    assert contents(tmp_path) == []


@pytest.mark.parametrize(
    ("method", "lie", "said"),
    [
        ("read", lambda *_: b"other", "probe_read"),
        ("names", lambda *_: [], "probe_list"),
        ("has", lambda *_: True, "probe_still"),
    ],
)
def test_storage_that_does_not_show_what_was_written_is_refused(tmp_path, monkeypatch, method, lie, said):
    monkeypatch.setattr(Folder, method, lie)
    with refused(f"verdicts.{said}", ConfigError):
        probe(str(tmp_path / "new"))
    assert contents(tmp_path) == []


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("", "probe_no_name"),
        ("s3://", "probe_no_name"),
        ("nfs3://host/x", "probe_uri"),
        (__file__, "probe_file"),
        (f"{__file__}/below", "probe_step"),
    ],
)
def test_what_is_no_folder_is_refused(location, said):
    with refused(f"verdicts.{said}", ConfigError, folder=location):
        probe(location)


def test_the_command_says_it_in_a_line(raydt, tmp_path):
    code, out, _ = raydt("doctor", "--probe", tmp_path / "new")
    line = next(line for line in out.splitlines() if line.startswith("probe "))
    assert f"{tmp_path / 'new'} can hold checkpoints: 1.05 MB: write " in line
    assert code == 0
    code, out, err = raydt("doctor", "--probe", __file__)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: --probe {__file__}: is a file.")
