"""Whole runs over streams that read rows again or work by event time: what is recorded, audited and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import replay
from pipelines.auditing import audit_run

N = 600
STREAMS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "batches": (
        {"permutation": 4},
        {"model": "batches", "steps": [0.5, 0.1, 1.0, 0.25, 500], "removal_order": "random"},
        "batches to 0.5, 0.1, 1.0, 0.25, 500, random",
    ),
    "time_window": ({}, {"model": "time_window", "duration": "120m", "lateness": "600s"}, "time window of 2h"),
}


def config(folder: Path, name: str, **cluster: Any) -> dict[str, Any]:
    source, stream, _ = STREAMS[name]
    return {
        "source": {"kind": "parquet", "path": str(folder / "t.parquet"), "id": "k", "ts": "when", **source},
        "stream": {**stream, "on_error": "skip"},
        "learner": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 6},
        "cluster": {"backend": "in_process", **cluster},
        "output": {"metrics_every": 100},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A minute a row, a little out of order; rows 100 and 300 are bad, rows 200 and 400 two hours late."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 2))
    minute = np.arange(N) - rng.integers(0, 10, N)
    minute[[200, 400]] -= 120
    x[[100, 300], 0] = np.inf
    columns = {
        "k": [f"c{i}" for i in range(N)],
        "a": x[:, 0],
        "b": x[:, 1],
        "y": np.where(x[:, 0] > x[:, 1], "yes", "no"),
        "when": np.datetime64("2024-05-31T12:00", "us") + minute.astype("timedelta64[m]"),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return tmp_path


@pytest.mark.parametrize("name", STREAMS)
def test_a_run_is_recorded_audited_and_the_same_in_any_batches(name: str, folder: Path) -> None:
    found = replay(config(folder, name), folder / "run")
    summary = found.summary
    when = pq.read_table(folder / "t.parquet")["when"].to_numpy()
    young = np.count_nonzero(when > when.max() - np.timedelta64(120, "m"))
    assert summary["active"] == {"batches": 500, "time_window": young}[name]
    bad = {"batches": [100, 300], "time_window": [100, 200, 300, 400]}[name]
    quarantine = pq.read_table(folder / "run" / "quarantine")
    assert summary["skipped"] == len(bad) == len(quarantine)
    named = sorted(int(reason.split("row ")[1].split(",")[0]) for reason in quarantine["reason"].to_pylist())
    assert named == bad
    assert STREAMS[name][2] in (folder / "run" / "report.html").read_text()

    audit = audit_run(folder / "run")
    assert audit.conformance == "holds"

    other = replay(config(folder, name, shards=1, batch_size=7), folder / "other").summary
    for key in ("model_digest", "updates", "inserts", "deletes", "metrics", "skipped"):
        assert other[key] == summary[key], key
