"""Metrics of a run at the Prometheus endpoint of a private Ray, as an operator reads them."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import raydt
from actors.telemetry import COUNTERS, GAUGES

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ROOT = Path(raydt.__file__).resolve().parents[1]

REPLAY = """
import json, sys, threading, time, urllib.request
import pipelines
import psutil
from pipelines.doctor import listeners, serves_metrics
from pipelines.display import Reporter

def served():
    found = [entry for process in psutil.Process().children(recursive=True) for entry in listeners(process)]
    return sorted({entry["port"] for entry in found if serves_metrics(entry["address"], entry["port"])})

class Reader(Reporter):
    '''Reads the endpoint again and again until all has been sent; a gauge stays there for seconds only.'''
    lines, ended = {}, None

    def start(self, total, unit="updates", done=0):
        super().start(total, unit, done)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while self.ended is None or time.monotonic() < self.ended + 5:  # two intervals
            time.sleep(0.5)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60) as answer:
                    page = answer.read().decode()
            except OSError:  # it is asked while it starts
                continue
            self.lines.update((line.partition("{")[0], line) for line in page.splitlines() if "ray_raydt_" in line)

    def stop(self):
        self.ended = time.monotonic()
        self.thread.join()
        self.served = served()

PORT, ROWS, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
config = {
    "source": {"kind": "synthetic", "generator": "sea", "n": ROWS},
    "learner": {"kind": "fudyadt", "epsilon": 0.2},
    "cluster": {"shards": 2, "batch_size": 50, "memory_limit": 0, "metrics_port": PORT},
    "checkpoint": {"every_seconds": None, "every_updates": 200},
}
if __name__ == "__main__":
    reader = Reader()
    run = pipelines.replay(config, out, progress=reader)
    lines = [line for line in reader.lines.values() if not line.startswith("#")]
    print(json.dumps({"lines": lines, "summary": run.summary, "served": reader.served}))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The metrics that a replay of 800 updates left at the endpoint, and its summary."""
    folder = tmp_path_factory.mktemp("metrics")
    script = folder / "program.py"
    script.write_text(REPLAY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    variables |= {"PYTHONPATH": str(ROOT), "RAY_metrics_report_interval_ms": "2000"}
    ended = subprocess.run(
        [sys.executable, str(script), str(port), "800", str(folder / "first-run")],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    values, labels = {}, {}
    for line in told["lines"]:
        name, tags, value = re.fullmatch(r"ray_raydt_(\w+)\{(.*)\} (\S+)", line).groups()
        values[name], labels[name] = float(value), dict(re.findall(r'(\w+)="([^"]*)"', tags))
    assert told["served"] == [port]  # by no other process of Ray
    return values, labels, told["summary"]


def test_counters_are_those_of_the_summary(measured):
    values, _, summary = measured
    assert summary["rebuilds"] > 0
    assert summary["rounds"] > 0
    for name in ("updates", "rebuilds", "rebuilt_rows", "rounds"):
        assert values[f"{name}_total"] == summary[name], name
    assert summary["checkpoints"]["written"] > 1
    assert values["checkpoints_total"] == summary["checkpoints"]["written"]
    assert values["checkpoint_seconds_total"] == pytest.approx(summary["checkpoints"]["seconds"])
    assert "restarts_total" not in values  # what was never counted is not there


def test_gauges_say_how_it_is_now(measured):
    values, _, summary = measured
    assert values["live_examples"] == summary["active"]
    assert (values["queue_depth"], values["epoch"]) == (0, 1)


def test_every_metric_names_its_run(measured):
    _, labels, _ = measured
    counted = {f"{name}_total" for name in COUNTERS if name != "restarts"}
    assert set(labels) == counted | set(GAUGES) - {"lag", "lag_seconds"}  # of a run that follows
    assert {tags["run"] for tags in labels.values()} == {"first-run"}
