"""Seconds from a signal to the end of the process, whatever it is doing: ``python -m benchmarks.interruption [ray]``.

Goal: under 2.5 s, since ``ray job stop`` kills after 3. Each line is one process, held at a place by
``tests/integration/held_command.py`` or at a BUILD of its own that takes longer; the figures are those of an otherwise
idle machine only if it is one (the load is printed).
"""

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
TERM, INT = [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]


def job(n: int = 1_000_000, window: int = 2000, **cluster: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "synthetic", "generator": "sea", "n": n, "drift": 2, "seed": 3},
        "stream": {"model": "sliding_window", "window": window, "warmup": window},
        "learner": {"kind": "fudyadt", "epsilon": 0.5, "max_depth": 8},
        "cluster": {"backend": "in_process", "shards": 2, **cluster},
        "checkpoint": {"every_updates": 20_000},
    }


SMALL, LARGE, SHORT = job(), job(3_000_000, 1_500_000), job(30_000)
RAY = job(backend="ray", memory_limit=0)
REBUILD, RECORDED, MANIFEST = "coordinator.local_rebuild", "driver.recorded", "checkpoint.before_manifest"
#: What the process does: config, place and how it is held, at which pass, seconds later, signals.
Case = tuple[dict[str, Any], str, str, int, float, list[signal.Signals]]
CASES: dict[str, Case] = {
    "compiling": (SMALL, REBUILD, "@1=kernel", 1, 0.0, TERM),
    "in the stream": (SMALL, RECORDED, "@*=mark", 60, 0.0, TERM),
    "in the stream, SIGINT twice": (SMALL, RECORDED, "@30=kernel", 1, 0.0, INT),
    "in compiled code": (SMALL, RECORDED, "@30=kernel", 1, 0.0, TERM),
    "in a BUILD of 1,500,000 rows": (LARGE, RECORDED, "@*=mark", 1499, 1.0, TERM),
    "live with 1,500,000 rows": (LARGE, RECORDED, "@*=mark", 1520, 0.0, TERM),
    "writing a checkpoint": (SMALL, MANIFEST, "@2=kernel", 1, 0.0, TERM),
    "compaction": (SHORT, "run.before_compaction", "@1=kernel", 1, 0.0, TERM),
    "writing the report": (SHORT, "report", "@1=kernel", 1, 0.0, TERM),
}
ON_RAY: dict[str, Case] = {
    "starting Ray": (RAY, REBUILD, "@1=mark", 1, 0.5, TERM),
    "in the stream on Ray": (RAY, RECORDED, "@*=mark", 10, 0.0, TERM),
    "in the stream on Ray, SIGINT twice": (RAY, RECORDED, "@*=mark", 10, 0.0, INT),
}


def seconds(
    config: dict[str, Any], place: str, held: str, times: int, later: float, signals: list[signal.Signals]
) -> tuple[float, float, int, str]:
    """From the last signal to the end, and to the end of the processes it had started; exit code; the last line."""
    with tempfile.TemporaryDirectory() as folder:
        file, marks = Path(folder) / "job.yaml", Path(folder) / "marks"
        file.write_text(dump_yaml(config), encoding="utf-8")
        marks.mkdir()
        command = [sys.executable, HELD, place + held, marks, "replay", file, "--out", Path(folder) / "run"]
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, encoding="utf-8", **pipes)
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
        return ended, gone, code, process.communicate()[1].splitlines()[-1].partition(";")[0]


if __name__ == "__main__":
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'the process is':<36}{'ended s':>8}{'its own s':>10}  code  last line")
    for name, case in (CASES | (ON_RAY if "ray" in sys.argv[1:] else {})).items():
        ended, gone, code, line = seconds(*case)
        print(f"{name:<36}{ended:>8.2f}{gone:>10.2f}  {code}  {line}", flush=True)
