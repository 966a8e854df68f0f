"""Seconds from a signal to the end of the process, whatever it is doing: ``python -m benchmarks.interruption [ray]``.

Goal: under 2.5 s, since ``ray job stop`` kills after 3. Each line is one process, held at a place by
``tests/integration/held_command.py`` or at a BUILD of its own that takes longer; the figures are those of an otherwise
idle machine only if it is one (the load is printed).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from pipelines.operation import dump_yaml

HELD = Path(__file__).parents[1] / "tests" / "integration" / "held_command.py"

SMALL: dict[str, Any] = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 1_000_000, "drift": 2, "seed": 3},
    "stream": {"model": "sliding_window", "window": 2000, "warmup": 2000},
    "learner": {"kind": "fudyadt", "epsilon": 0.5, "max_depth": 8},
    "cluster": {"backend": "in_process", "shards": 2},
    "checkpoint": {"every_updates": 20_000},
}
LARGE = {
    **SMALL,
    "source": {**SMALL["source"], "n": 3_000_000},
    "stream": {"model": "sliding_window", "window": 1_500_000, "warmup": 1_500_000},
}
RAY = {**SMALL, "cluster": {**SMALL["cluster"], "backend": "ray", "memory_limit": 0}}
TERM, INT = signal.SIGTERM, signal.SIGINT

#: What the process does: config, places held, where and at which pass, seconds later, signals.
CASES: dict[str, tuple[dict[str, Any], str, str, int, float, list[signal.Signals]]] = {
    "compiling": (SMALL, "coordinator.local_rebuild@1=kernel", "coordinator.local_rebuild", 1, 0.0, [TERM]),
    "in the stream": (SMALL, "driver.recorded@*=mark", "driver.recorded", 60, 0.0, [TERM]),
    "in the stream, SIGINT twice": (SMALL, "driver.recorded@30=kernel", "driver.recorded", 1, 0.0, [INT, INT]),
    "in compiled code": (SMALL, "driver.recorded@30=kernel", "driver.recorded", 1, 0.0, [TERM]),
    "in a BUILD of 1,500,000 rows": (LARGE, "driver.recorded@*=mark", "driver.recorded", 1499, 1.0, [TERM]),
    "live with 1,500,000 rows": (LARGE, "driver.recorded@*=mark", "driver.recorded", 1520, 0.0, [TERM]),
    "writing a checkpoint": (
        SMALL, "checkpoint.before_manifest@2=kernel", "checkpoint.before_manifest", 1, 0.0, [TERM],
    ),
    "compaction": (
        {**SMALL, "source": {**SMALL["source"], "n": 30_000}}, "run.before_compaction@1=kernel",
        "run.before_compaction", 1, 0.0, [TERM],
    ),
    "writing the report": (
        {**SMALL, "source": {**SMALL["source"], "n": 30_000}}, "report@1=kernel", "report", 1, 0.0, [TERM],
    ),
}  # fmt: skip
ON_RAY: dict[str, tuple[dict[str, Any], str, str, int, float, list[signal.Signals]]] = {
    "starting Ray": (RAY, "coordinator.local_rebuild@1=mark", "coordinator.local_rebuild", 1, 0.5, [TERM]),
    "in the stream on Ray": (RAY, "driver.recorded@*=mark", "driver.recorded", 10, 0.0, [TERM]),
    "in the stream on Ray, SIGINT twice": (RAY, "driver.recorded@*=mark", "driver.recorded", 10, 0.0, [INT, INT]),
}


def seconds(
    job: dict[str, Any], places: str, place: str, times: int, later: float, signals: list[signal.Signals]
) -> tuple[float, float, int, str]:
    """From the last signal to the end, and to the end of the processes it had started; exit code; the last line."""
    with tempfile.TemporaryDirectory() as folder:
        config, marks = Path(folder) / "job.yaml", Path(folder) / "marks"
        config.write_text(dump_yaml(job), encoding="utf-8")
        marks.mkdir()
        command = [sys.executable, HELD, places, marks, "replay", config, "--out", Path(folder) / "run"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        mark = marks / place
        while not mark.exists() or mark.read_text(encoding="utf-8").count("\n") < times:
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        time.sleep(later)
        others = psutil.Process(process.pid).children(recursive=True)
        for place_in_row, number in enumerate(signals):
            time.sleep(0.2 if place_in_row else 0.0)
            began = time.perf_counter()
            process.send_signal(number)
        code = process.wait()
        ended = time.perf_counter() - began
        psutil.wait_procs(others, timeout=30)
        gone = time.perf_counter() - began
        errors = process.communicate()[1].splitlines()
        return ended, gone, code, errors[-1].partition(";")[0]


def main() -> None:
    cases = CASES | (ON_RAY if "ray" in sys.argv[1:] else {})
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'the process is':<36}{'ended s':>8}{'its own s':>10}  code  last line")
    for name, case in cases.items():
        ended, gone, code, line = seconds(*case)
        print(f"{name:<36}{ended:>8.2f}{gone:>10.2f}  {code}  {line}", flush=True)


if __name__ == "__main__":
    main()
