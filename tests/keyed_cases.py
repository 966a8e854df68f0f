"""Small runs with a model for each key: a change log of several keys, the same rows apart, and tables to compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tests.cases import Trial, change_log
from tests.small_tables import table_of, written

KEYS = ["north", "south", "7"]


def files(trial: Trial, folder: Path) -> tuple[Path, dict[str, Path]]:
    """A change log of several keys, and one file for each of them."""
    rows: list[dict[str, Any]] = []
    own = {}
    logs = {key: change_log(70, trial.case.warmup, seed) for seed, key in enumerate(KEYS)}
    for key, log in logs.items():
        own[key] = written(folder / f"{len(own)}.arrow", table_of(log))
    while any(logs.values()):
        for key, log in logs.items():
            rows += [{**row, "key": key} for row in log[:3]]
            del log[:3]
    table = table_of(rows).append_column("key", pa.array([row["key"] for row in rows], pa.string()))
    return written(folder / "all.arrow", table), own


def config(trial: Trial, path: Path, **source: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "arrow", "path": str(path), "op": "op", **trial.columns, **source},
        "stream": {"model": "changelog", "warmup": trial.case.warmup, "on_error": "skip"},
        "learner": trial.section,
        "cluster": {"backend": "in_process", "batch_size": 2},
        "checkpoint": {"every_updates": 40, "every_seconds": None},
        "output": {"report": False, "predictions": True, "metrics_every": 25},
    }


def rows_of(run: str, table: str, key: str | None = None) -> list[dict[str, Any]]:
    """Rows of a table, without the columns that count time or traffic."""
    folder = Path(run) / table
    if not folder.is_dir():
        return []
    found = ds.dataset(folder).to_table().to_pylist()
    left_out = {"seconds", "rounds", "bytes_exchanged", "rebuilt_rows", "key", "source_row", "file", "reason"}
    return [
        {name: value for name, value in row.items() if name not in left_out}
        for row in found
        if key is None or row["key"] == key
    ]
