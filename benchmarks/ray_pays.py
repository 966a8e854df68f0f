"""Ray beside one process: every shipped config, a long stream, and a sweep. Wall time.

Each replay is a command of its own, with kernels from the cache; its seconds are those of the stream, as it reports
them. Ray is a private one on this machine, with 2 shards.

Run: python benchmarks/ray_pays.py [--repeats 3] [--part configs|long|sweep]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from harness import arguments, print_machine, progress, show

CONFIGS = Path(__file__).parents[1] / "configs"
PARTS = ("configs", "long", "sweep")
#: Settings of the sweep.
GRID = "learner.beta=0.01,0.02,0.05,0.1,0.15,0.2,0.3,0.4"


def shipped() -> list[str]:
    return [
        path.stem
        for path in sorted(CONFIGS.glob("*.yaml"))
        if (source := yaml.safe_load(path.read_text(encoding="utf-8")).get("source")) and source["kind"] == "synthetic"
    ]


def command(*arguments: str, summary_of: str = "summary.json") -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        called = [sys.executable, "-m", "pipelines.cli", *arguments, "--out", f"{folder}/run"]
        done = subprocess.run(called, capture_output=True, text=True, encoding="utf-8", check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(called)} failed:\n{done.stderr}")
        summary: dict[str, Any] = json.loads(Path(folder, "run", summary_of).read_text(encoding="utf-8"))
    return summary


def pair(name: str, config: str, repeats: int, *settings: str) -> list[str]:
    """One row: median seconds of the stream in process and on Ray."""
    medians, digests = {}, set()
    for backend in ("in_process", "ray"):
        given = [f"--set=cluster.backend={backend}", *(f"--set={one}" for one in settings)]
        runs = [command("replay", str(CONFIGS / f"{config}.yaml"), *given) for _ in range(repeats)]
        medians[backend] = statistics.median(run["seconds"] for run in runs)
        starts = statistics.median(run["startup_seconds"] for run in runs)
        digests |= {run["model_digest"] for run in runs}
        updates, rounds = runs[0]["updates"], runs[0]["rounds"]
    assert len(digests) == 1, f"{config}: the digests differ"
    here, ray = medians["in_process"], medians["ray"]
    row = [name, f"{updates:,}", f"{here:.2f}", f"{ray:.2f}", f"{ray / here:.2f}", f"{rounds:,}", f"{starts:.1f}"]
    progress(*row)
    return row


def sweep(repeats: int) -> list[str]:
    """A sweep of eight settings, one after another in process and two at a time on Ray: seconds without the start."""
    taken = {}
    for backend in ("in_process", "ray"):
        given = ["--grid", GRID, f"--set=cluster.backend={backend}", "--set=source.n=200000"]
        called = "sweep", str(CONFIGS / "fudyadt.yaml"), *given
        runs = [command(*called, summary_of="sweep.json") for _ in range(repeats)]
        taken[backend] = statistics.median(run["seconds"] for run in runs)
    here, ray = taken["in_process"], taken["ray"]
    return ["sweep of 8 settings", f"{here:.2f}", f"{ray:.2f}", f"{here / ray:.2f}"]


if __name__ == "__main__":
    asked = arguments(__doc__, repeats=3, part={"choices": PARTS, "action": "append"})
    parts = asked.part or PARTS
    print_machine("ray")
    header = ["stream", "updates", "in process s", "Ray s", "Ray / in process", "rounds", "start of Ray s"]
    if "configs" in parts:
        show("Shipped configs", header, [pair(name, name, asked.repeats) for name in shipped()])
    if "long" in parts:
        rows = [pair("SEA, fudyadt", "fudyadt", asked.repeats, "source.n=1_000_000")]
        rows.append(pair("SEA, confidence_tree", "confidence_tree", asked.repeats, "source.n=1_000_000"))
        show("1,000,000 examples", header, rows)
    if "sweep" in parts:
        show("Sweep", ["work", "in process s", "Ray s", "in process / Ray"], [sweep(asked.repeats)])
    print(f"\nLoad average of the last 15 minutes: {os.getloadavg()[2]:.1f}, of {os.cpu_count()} cores.")
