"""Shards on Ray that read the rows of the warm-up themselves: what comes out is what a run in this process gives."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.validation import look_at
from tests.integration.test_ray_kills import results

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ROWS, WARMUP = 1500, 1100
LEARNERS = {
    "fudyadt": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 6, "feature_groups": 4},
    "gbdt": {"kind": "gbdt", "max_iter": 4, "feature_groups": 4, "objective": "multiclass"},
    "forest": {"kind": "forest", "n_estimators": 6, "feature_groups": 4},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    draw = np.random.default_rng(7)
    columns = {f"x{j}": draw.integers(0, 60, ROWS) / 4 for j in range(6)}
    columns["word"] = [f"w{v}" for v in draw.integers(0, 9, ROWS)]
    columns["y"] = [f"c{int(a + b) // 8}" for a, b in zip(columns["x0"], columns["x1"], strict=True)]
    columns["id"] = draw.permutation(ROWS) + 100
    columns["x3"][[600, 1300]] = np.inf
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(pa.table(columns), folder / "t.parquet", row_group_size=200)
    pacsv.write_csv(pa.table(columns), folder / "t.csv")
    return folder


def config_of(files, learner, form, **source):
    return {
        "source": {"kind": form, "path": str(files / f"t.{form}"), "id": "id", **source},
        "stream": {"model": "sliding_window", "window": WARMUP + 50, "warmup": WARMUP, "on_error": "skip"},
        "learner": LEARNERS[learner],
        "cluster": {"backend": "in_process", "batch_size": 100},
        "checkpoint": {"every_updates": 500, "every_seconds": None},
        "output": {"report": False, "predictions": True, "metrics_every": 90},
    }


def on_ray(config, shards):
    return {**config, "cluster": {"shards": shards, "batch_size": 100, "memory_limit": 0}}


def events(run):
    with open(f"{run.path}/log.jsonl") as lines:
        return [json.loads(line).get("event") for line in lines]


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(("form", "source"), [("parquet", {}), ("csv", {"permutation": 4}), ("csv", {})])
def test_same_run(files, tmp_path, monkeypatch, cluster, learner, form, source):
    config = config_of(files, learner, form, **source)
    expected = results(pipelines.replay(config, tmp_path / "here"))
    monkeypatch.setattr("raydt.sources.divided.BLOCK_ROWS", 128)
    for shards in (1, 2, 3):
        run = pipelines.replay(on_ray(config, shards), tmp_path / f"{shards}")
        assert results(run) == expected, shards
        assert "rows_read" in events(run)


def test_a_shard_that_is_killed_while_it_reads(files, tmp_path, monkeypatch, cluster):
    config = config_of(files, "fudyadt", "parquet")
    expected = results(pipelines.replay(config, tmp_path / "here"))
    monkeypatch.setattr("raydt.sources.divided.BLOCK_ROWS", 128)
    monkeypatch.setenv("RAYDT_FAULTS", f"shard.before_block/1@{random.randint(1, 5)}#1=kill")
    run = pipelines.replay(on_ray(config, 2), tmp_path / "there")
    assert results(run) == expected
    assert [one["kind"] for one in run.summary["recoveries"]] == ["lost"]


def test_validate_says_who_reads(files):
    config = pipelines.load_config(on_ray(config_of(files, "gbdt", "parquet"), 2))
    assert "columns that it owns" in str(look_at(config)["reading"])
    config = pipelines.load_config(config_of(files, "gbdt", "parquet"))
    assert look_at(config)["reading"] is None
