"""A sweep over keys: each setting is what a run of models by key says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from raydt.errors import ConfigError
from raydt.messages import message

GRID = {"learner.epsilon": [0.1, 0.4], "stream.window": [20, 30]}


def config(folder: Path, **stream: Any) -> dict[str, Any]:
    rng, n = np.random.default_rng(5), 160
    columns = {f"x{j}": rng.normal(size=n) for j in range(3)}
    place = rng.integers(0, 4, size=n)
    town = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, size=n)]
    label = np.where(columns["x0"] + 0.3 * rng.normal(size=n) > (place % 2) - 0.5, "yes", "no")
    time = np.arange(n) // 4 * 60
    rows = pa.table({**columns, "town": town, "place": place, "time": pa.array(time, pa.timestamp("s")), "y": label})
    pq.write_table(rows, folder / "rows.parquet")
    return {
        "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "label": "y", "key": "place", "ts": "time"},
        "stream": stream or {"model": "sliding_window", "window": 20},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }


@pytest.mark.parametrize(
    ("stream", "axes"),
    [({}, GRID), ({"model": "time_window", "duration": "20m"}, {"learner.epsilon": [0.1, 0.4]})],
    ids=["rows", "time"],
)
def test_a_setting_is_what_a_run_of_it_is(tmp_path: Path, stream: dict[str, Any], axes: dict[str, Any]) -> None:
    base = config(tmp_path, **stream)
    found = pipelines.sweep(base, axes, tmp_path / "sweep")
    rows = found.table.to_pylist()
    assert len(rows) == int(np.prod([len(values) for values in axes.values()]))
    assert found.status == "completed"
    for row in rows:
        changes = [f"{name}={row[name]}" for name in axes]
        run = pipelines.replay(base, tmp_path / f"run-{row['setting']}", overrides=changes)
        assert row["error"] is None
        assert row["digest"] == run.digest
        for name in ("accuracy", "no_change", "majority"):
            assert row[name] == {**run.summary["metrics"], **run.summary["baselines"]}[name]
        for name in ("updates", "inserts", "deletes", "predictions", "active", "nodes", "leaves", "depth", "rebuilds"):
            assert row[name] == run.summary[name], name
    assert found.best["accuracy"]["value"] == max(row["accuracy"] for row in rows)
    assert (tmp_path / "sweep" / "sweep.html").is_file()


def test_a_stream_that_no_key_can_have_is_refused(tmp_path: Path) -> None:
    base = config(tmp_path, model="batches", steps=[20, 10])
    with pytest.raises(ConfigError) as caught:
        pipelines.sweep(base, {"learner.epsilon": [0.1, 0.4]}, tmp_path / "sweep")
    assert message("keyed.stream", model="batches") in str(caught.value)


def test_a_setting_that_fails_says_why_and_after_how_many_updates(tmp_path: Path) -> None:
    rows = [{"op": "insert", "id": i, "k": "uv"[i % 2], "a": i % 7, "y": "pq"[i % 3 == 0]} for i in range(300)]
    unknown = {"op": "delete", "id": 9999, "k": "u", "a": None, "y": None}
    pq.write_table(pa.Table.from_pylist([*rows, unknown]), tmp_path / "log.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "log.parquet"), "label": "y", "id": "id", "op": "op"}
    base = config(tmp_path, model="changelog") | {"source": {**source, "key": "k"}}
    base["cluster"]["batch_size"] = 10  # a block of rows has 16 of these
    table = pipelines.sweep(base, {"learner.epsilon": [0.1, 0.4]}, tmp_path / "sweep").table
    for row in table.to_pylist():
        assert row["updates"] == 160
        assert "9999" in row["error"]
        assert "checkpoint" not in row["error"]


@pytest.mark.nightly
def test_processes_of_ray_find_the_same(tmp_path: Path) -> None:
    base, axes = config(tmp_path), {"learner.epsilon": [0.1, 0.4]}
    here = pipelines.sweep(base, axes, tmp_path / "here").table
    there = pipelines.sweep(base | {"cluster": {"backend": "ray"}}, axes, tmp_path / "there").table
    times = ["seconds", "cpu_seconds", "us_per_update"]
    assert here.drop_columns(times) == there.drop_columns(times)
