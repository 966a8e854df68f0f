"""The log of a run: whole lines of JSON that say where the run was, whoever was killed, on every file system."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stdout

import numpy as np
import pytest
from crashing import Dying
from pyarrow import fs as pafs

from pipelines import logs
from pipelines.logs import FIELDS, LinesToLog, log_to
from pipelines.run_folder import RunFolder
from raydt.errors import InputError
from raydt.messages import message
from raydt.redaction import quoted

log = logging.getLogger("raydt.test")


@pytest.fixture(params=["local", "appending", "object store"])
def folder(tmp_path, request):
    """A run folder of each kind; ``Dying`` cannot append, as object stores cannot."""
    folder = RunFolder.create(tmp_path / "my-run")
    if request.param != "local":
        folder.filesystem = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
        folder.root, folder.is_local = "my-run", False
    if request.param == "object store":
        folder.filesystem = pafs.PyFileSystem(Dying(tmp_path))
    return folder


def entries(tmp_path):
    return [json.loads(line) for line in (tmp_path / "my-run" / "log.jsonl").read_text().splitlines()]


def test_a_record_is_a_line_with_its_extras_and_the_log_ends_with_the_run(folder, tmp_path):
    with log_to(folder):
        log.info("rebuilt %d", 3, extra={"rows": 17})
        try:
            raise ValueError("x\ny")
        except ValueError:
            log.exception("failed")
    log.warning("after the run")
    assert [(e["level"], e["message"]) for e in entries(tmp_path)] == [("info", "rebuilt 3"), ("error", "failed")]
    assert entries(tmp_path)[0]["rows"] == 17
    assert "ValueError: x" in entries(tmp_path)[1]["traceback"]
    assert logging.getLogger("raydt").level == logging.NOTSET


def test_what_other_packages_add_to_a_record_is_left_out(folder, tmp_path):
    """As Ray does with ``_ray_timestamp_ns``: its factory stamps every record of a process that has imported it."""
    with log_to(folder):
        log.info("x", extra={"_stamp_of_another": 1, "rows": 17})
    assert entries(tmp_path)[0].keys() == {"time", "level", "logger", "message", *FIELDS, "rows"}


def test_a_run_that_forbids_values_withholds_them_from_every_log(folder, tmp_path):
    """Whatever else logs in the process, and whichever run began first."""
    with log_to(RunFolder.create(tmp_path / "other")), log_to(folder, quote=False):
        log.warning("%s: %s", InputError(f"{quoted('v1')} is bad"), OSError("v2"), extra={"why": quoted("v3")})
        value = f"v{4}"  # a traceback shows the line of code
        try:
            raise ValueError(value)
        except ValueError:
            log.exception("failed")
    for run in ("my-run", "other"):
        text = (tmp_path / run / "log.jsonl").read_text()
        assert re.search(r"\(a value\) is bad: OSError.*, in test_a_run.*ValueError", text, re.DOTALL)
        assert not re.search(r"v[1-4]", text)


def test_every_record_says_where_the_run_is(folder, tmp_path):
    with log_to(folder) as context:
        log.info("run started", extra={"event": "run_started"})
        context.seq, context.epoch = 500, 2
        log.info("lost", extra={"event": "process_lost", "actor": "shard", "shard": 1})
        logging.getLogger("actors.session").warning("of another module")
    assert [tuple(entry[name] for name in FIELDS) for entry in entries(tmp_path)] == [
        ("my-run", None, None, "driver", None, "run_started"),
        ("my-run", 500, 2, "shard", 1, "process_lost"),
        ("my-run", 500, 2, "driver", None, None),
    ]


def test_a_record_is_written_at_once_and_the_log_goes_on_without_half_a_line(folder, tmp_path):
    for begin in (0, 3):
        with log_to(folder):
            for i in range(begin, begin + 3):
                assert [entry["message"] for entry in entries(tmp_path)] == [str(k) for k in range(i)]
                log.info("%d", i)
        file = tmp_path / "my-run" / "log.jsonl"
        file.write_bytes(file.read_bytes() + b'{"time": "2026-11-2')
    with log_to(folder):
        assert len(entries(tmp_path)) == 6


def test_a_long_log_is_not_rewritten_for_every_record_but_is_for_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_SHORT_BYTES", 1000)
    folder = RunFolder.create(tmp_path / "my-run")
    folder.filesystem, folder.root, folder.is_local = pafs.PyFileSystem(Dying(tmp_path)), "my-run", False
    with log_to(folder):
        for i in range(100):
            log.info("%d", i)
        assert len(entries(tmp_path)) < 10
        log.warning("look")
        assert len(entries(tmp_path)) == 101
        log.info("end")
    assert len(entries(tmp_path)) == 102


def test_a_killed_driver_has_lost_no_line(tmp_path):
    program = (
        "import logging, os, signal\n"
        "from pipelines.logs import log_to\n"
        "from pipelines.run_folder import RunFolder\n"
        f"with log_to(RunFolder({str(tmp_path / 'my-run')!r})):\n"
        "    for i in range(1000):\n"
        "        logging.getLogger('raydt').info('%d', i)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "my-run").mkdir()
    ended = subprocess.run([sys.executable, "-c", program], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [entry["message"] for entry in entries(tmp_path)] == [str(i) for i in range(1000)]


def test_numbers_stay_numbers_and_lines_stay_json(tmp_path):
    with log_to(RunFolder.create(tmp_path / "my-run")):
        log.info("x", extra={"seq": np.int64(3), "share": np.float32("nan"), "cost": float("inf"), "where": tmp_path})
    [entry] = entries(tmp_path)
    assert (entry["seq"], entry["share"], entry["cost"], entry["where"]) == (3, None, None, str(tmp_path))


def test_a_log_that_cannot_be_written_says_so_once_and_harms_nobody(folder, tmp_path, monkeypatch, capfd):
    def full(*_):
        raise OSError(28, "No space left on device")

    with log_to(folder):
        log.info("before")
        with monkeypatch.context() as patched:
            patched.setattr(logs.JsonFormatter, "format", full)
            log.info("lost")
            log.warning("lost too")
        log.info("after")
    err = capfd.readouterr().err
    problem = "[Errno 28] No space left on device"
    assert err.count(message("outputs.log_records", file=f"{folder.location}/log.jsonl", reason=problem)) == 1
    assert "Traceback" not in err
    assert "Logging error" not in err
    assert [entry["message"] for entry in entries(tmp_path)] == ["before", "after"]


def test_what_another_package_prints_becomes_records(caplog):
    """Line by line, without colours; empty lines are left out."""
    stream = LinesToLog(logging.getLogger("pipelines.ray"), "ray")
    with caplog.at_level(logging.INFO, "pipelines.ray"), redirect_stdout(stream):
        print("\x1b[33m(raylet)\x1b[0m a worker died")
        print("half", end=" ")
        print("a line\n\nand one")
        print("not ended", end="")
    assert [(record.event, record.message) for record in caplog.records] == [
        ("ray", "(raylet) a worker died"),
        ("ray", "half a line"),
        ("ray", "and one"),
    ]
