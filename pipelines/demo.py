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
from raydt.messages import message

#: Scores of the story.
_SCORES = ("accuracy", "no_change", "majority")

CONFIG = Path(__file__).with_name("demo.yaml")


def run_demo(out: str | Path | None = None, progress: Reporter | None = None, *, overwrite: bool = False) -> RunResult:
    """Replay the demo's stream and audit what came out."""
    result = replay(CONFIG, out, overwrite=overwrite, progress=progress)
    audit_run(result.path)
    return RunResult(result.path, read_summary(RunFolder(result.path)))


def story(summary: dict[str, Any], path: str) -> str:
    """Describe the demo in a few sentences."""
    scores = {
        name: share(value) for name, value in (summary["baselines"] | summary["metrics"]).items() if name in _SCORES
    }
    requests = sum(shard["requests"] for shard in summary["work"])
    return message("commands.demo", run=summary, scores=scores, requests=requests, path=path)
