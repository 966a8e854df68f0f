"""Audits of a GBDT in one process, and divided among processes on Ray: wall time, and the private memory of each.

The run reads a Parquet file of N rows once and trains one model on Ray. Each audit is the command; every tenth of a
second the private pages (RssAnon) of the command and of its processes on Ray are read. Linux only.
Run: python benchmarks/divided_audit.py [--rows N] [--features D] [--iterations T] [--parts P ...] [--raydt FILE]
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from first_model import write
from harness import arguments, print_machine, progress, resident_mib, show

import pipelines


def peaks(command: list[str]) -> tuple[float, dict[str, float], dict[str, object]]:
    """Wall seconds of an audit, peaks in MiB of the command and its largest part, and the report."""
    began, peak = time.perf_counter(), dict[str, float]()
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(command, stdout=out) as process:
        while process.poll() is None:
            children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            for one, name in [(process.pid, "command"), *((child.pid, "part") for child in children)]:
                try:
                    if name == "command" or "AuditPart" in Path(f"/proc/{one}/cmdline").read_text(encoding="utf-8"):
                        peak[name] = max(peak.get(name, 0.0), resident_mib(one, "RssAnon"))
                except (OSError, KeyError, psutil.Error):
                    pass  # it has ended
            time.sleep(0.1)
        seconds = time.perf_counter() - began
        out.seek(0)
        return seconds, peak, json.load(out)


def train(folder: str, rows: int, d: int, iterations: int) -> str:
    """Write a table, and train one model on it; return the run."""
    write(f"{folder}/t.parquet", rows, d)
    source = {"kind": "parquet", "path": f"{folder}/t.parquet", "label": "y"}
    config = {"source": source, "stream": {"model": "training"}, "learner": {"kind": "gbdt", "max_iter": iterations}}
    config |= {"cluster": {"shards": 2, "memory_limit": 0}, "output": {"report": False}}
    return pipelines.replay(config, f"{folder}/run").path


if __name__ == "__main__":
    other = {"default": str(Path(sys.executable).with_name("raydt"))}  # of another version
    sizes = {"rows": {"type": int, "nargs": 2, "default": [200_000, 600_000]}, "features": 10, "iterations": 100}
    given = arguments(__doc__, **sizes, parts=[1, 2, 4], raydt=other)
    print_machine("ray")
    found: dict[int, list[tuple[int, float, float]]] = {parts: [] for parts in given.parts}
    lines = []
    for rows in given.rows:
        with tempfile.TemporaryDirectory() as folder:
            run, reports = train(folder, rows, given.features, given.iterations), list[dict[str, object]]()
            for parts in given.parts:
                divided = ["--shards", str(parts)] if parts > 1 else []
                seconds, peak, report = peaks([given.raydt, "audit", run, *divided, "--json"])
                reports.append(report)
                assert report == reports[0], "another report"
                command, part = peak["command"], peak.get("part", 0.0)
                lines.append([f"{rows:,}", f"{parts}", f"{seconds:.1f}", f"{command:.0f}", f"{part:.0f}"])
                progress(*lines[-1])
                found[parts].append((rows, command, part))
    each = []
    for parts, ((few, *before), (many, *after)) in found.items():
        command, part = ((b - a) * 2**20 / (many - few) for a, b in zip(before, after, strict=True))
        each.append([f"{parts}", f"{command:.0f}", f"{part:.0f}"])
    title = f"{given.features} features, {given.iterations} iterations"
    show(title, ["rows", "parts", "seconds", "MiB of the command", "MiB of a part"], lines)
    show("Bytes of a row of all", ["parts", "in the command", "in a part"], each)
