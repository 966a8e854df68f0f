"""Runs in chapters for tests: their config, their folders, and what these hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.run_folder import RunFolder
from tests.live_tables import LiveTable
from tests.unit.test_follow import job


def in_chapters(table: LiveTable, every: int = 10, **given: Any) -> dict[str, Any]:
    options = {"chapter_updates": every, "keep": None, **given.pop("follow", {})}
    return job(table, **{"checkpoint": {"every_seconds": None}, **given, "follow": options})


def folders(run: Path) -> list[Path]:
    return [Path(folder.root) for folder in RunFolder(run).chapters()]


def summary(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return read


def rows(places: list[Path], table: str) -> list[dict[str, Any]]:
    parts = [pq.read_table(part) for place in places for part in sorted((place / table).glob("part-*.parquet"))]
    clock = ("seconds", "rounds", "bytes_exchanged")
    return [
        {name: value for name, value in row.items() if name not in clock and value == value}
        for row in pa.concat_tables(parts).to_pylist()
    ]
