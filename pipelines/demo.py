"""The demo: a job that needs no input, on a local Ray whose shards do part of the work, audited at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.auditing import audit_run
from pipelines.display import share
from pipelines.progress import Reporter
from pipelines.run_folder import RunFolder
from pipelines.running.ending import read_summary
from pipelines.running.job import RunResult, replay

CONFIG = Path(__file__).with_name("demo.yaml")


def run_demo(out: str | Path | None = None, progress: Reporter | None = None, *, overwrite: bool = False) -> RunResult:
    """Replay the demo's stream and audit what came out."""
    result = replay(CONFIG, out, overwrite=overwrite, progress=progress)
    audit_run(result.path)
    return RunResult(result.path, read_summary(RunFolder(result.path)))


def story(summary: dict[str, Any], path: str) -> str:
    """Describe the demo in a few sentences."""
    audit, metrics, baselines = summary["audit"], summary["metrics"], summary["baselines"]
    shards = sum(shard["requests"] for shard in summary["work"])
    return f"""\
A decision tree on Ray inserted {summary["inserts"]:,} examples and deleted {summary["deletes"]:,} of them,
at {summary["updates_per_second"]:,.0f} updates per second. The tree now holds {summary["active"]:,} examples.

  accuracy     {share(metrics["accuracy"])}, each example predicted just before its insertion
  no change    {share(baselines["no_change"])}, if one always predicts the last label
  majority     {share(baselines["majority"])}, if one always predicts the most frequent label
  tree         {summary["nodes"]} nodes, depth {summary["depth"]}, after {summary["rebuilds"]:,} rebuilds
  shards       {summary["shards"]}, in {summary["rounds"]:,} message rounds ({shards:,} requests)
  audit        conformance {audit["conformance"]}, feasibility {audit["feasibility"]}
  model        {summary["model_digest"]}

The report is at {path}/report.html
Next: a longer stream, raydt replay configs/fudyadt.yaml; then your own data, see docs/tutorials/own-data.md"""
