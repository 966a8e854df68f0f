"""Audits of training runs in one process and, of a GBDT, divided among processes on Ray: time, and private memory.

The run reads a Parquet file of N rows once and trains one model. Each audit is the command: wall seconds, processor
seconds and, read every tenth of a second, the private pages (RssAnon) of the command and of its processes on Ray. With
another checkout, audits of one process are also those of its code, in turn. Linux only.
Run: python benchmarks/divided_audit.py [--learner KIND ...] [--rows N N] [--features D] [--iterations T] [--parts P .]
[--before CHECKOUT]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from first_model import write
from harness import ROOT, arguments, print_machine, progress, resident_mib, show

import pipelines


def peaks(run: str, parts: int, checkout: Path) -> tuple[float, float, dict[str, float], dict[str, object]]:
    """Wall and processor seconds of an audit, peaks in MiB of the command and its largest part, and the report."""
    divided = ["--shards", str(parts)] if parts > 1 else []
    command = [sys.executable, "-m", "pipelines.cli", "audit", run, *divided, "--json"]
    began, before, peak = time.perf_counter(), os.times(), dict[str, float]()
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(command, stdout=out, cwd=checkout) as process:
        while process.poll() is None:
            children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            for one, name in [(process.pid, "command"), *((child.pid, "part") for child in children)]:
                try:
                    if name == "command" or "AuditPart" in Path(f"/proc/{one}/cmdline").read_text(encoding="utf-8"):
                        peak[name] = max(peak.get(name, 0.0), resident_mib(one, "RssAnon"))
                except (OSError, KeyError, psutil.Error):
                    pass  # it has ended
            time.sleep(0.1)
        wall, after = time.perf_counter() - began, os.times()
        out.seek(0)
        taken = after.children_user + after.children_system - before.children_user - before.children_system
        return wall, taken, peak, json.load(out)


def train(folder: str, kind: str, rows: int, d: int, iterations: int, shards: int) -> str:
    """Write a table, and train one model on it; return the run."""
    write(f"{folder}/t.parquet", rows, d)
    learner = {"kind": kind} | ({"max_iter": iterations} if kind == "gbdt" else {})
    learner |= {"n_estimators": 10} if kind == "forest" else {}
    source = {"kind": "parquet", "path": f"{folder}/t.parquet", "label": "y"}
    config = {"source": source, "stream": {"model": "training"}, "learner": learner, "output": {"report": False}}
    config |= {"cluster": {"shards": 2, "memory_limit": 0} if shards > 1 else {"backend": "in_process"}}
    return pipelines.replay(config, f"{folder}/run").path


if __name__ == "__main__":
    other = {"default": None, "help": "a checkout of another version"}
    sizes = {"rows": {"type": int, "nargs": "*", "default": [200_000, 600_000]}, "features": 10, "iterations": 100}
    given = arguments(__doc__, learner=["gbdt"], **sizes, parts=[1, 2, 4], before=other)
    print_machine("ray")
    sides = {"now": ROOT} | ({"before": Path(given.before)} if given.before else {})
    found: dict[tuple[str, int, str], list[tuple[int, float, float]]] = {}
    lines = []
    for kind in given.learner:
        all_parts = given.parts if kind == "gbdt" else [1]
        for rows in given.rows:
            with tempfile.TemporaryDirectory() as folder:
                run = train(folder, kind, rows, given.features, given.iterations, max(all_parts))
                first: dict[str, object] | None = None
                for parts, (side, checkout) in ((p, one) for p in all_parts for one in sides.items()):
                    if parts > 1 and side == "before":
                        continue
                    if parts == 1:
                        peaks(run, parts, checkout)  # which compiles
                    wall, taken, peak, report = peaks(run, parts, checkout)
                    first = first or report
                    assert report == first, "another report"
                    command, part = peak["command"], peak.get("part", 0.0)
                    who = [kind, f"{rows:,}", f"{parts}", side]
                    lines.append([*who, f"{wall:.1f}", f"{taken:.1f}", f"{command:.0f}", f"{part:.0f}"])
                    progress(*lines[-1])
                    found.setdefault((kind, parts, side), []).append((rows, command, part))
    head = ["learner", "rows", "parts", "side", "wall s", "processor s", "MiB of the command", "MiB of a part"]
    show(f"{given.features} features, {given.iterations} iterations", head, lines)
    each = []
    for (kind, parts, side), ((few, *least), *_, (many, *most)) in found.items():
        if many > few:
            slopes = [f"{(b - a) * 2**20 / (many - few):.0f}" for a, b in zip(least, most, strict=True)]
            each.append([kind, f"{parts}", side, *slopes])
    show("Bytes of a row of all", ["learner", "parts", "side", "in the command", "in a part"], each)
