"""`raydt audit` on runs of confidence trees: numbers with NaN, categories, sparse features, deletions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipelines.cli import cli
from pipelines.running.job import replay

N, WIDTH = 1200, 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The class follows a number, which is missing here and there, and one sparse feature."""
    rng = np.random.default_rng(8)
    ones = [np.flatnonzero(rng.random(WIDTH) < 0.1).tolist() for _ in range(N)]
    numbers = [None if rng.random() < 0.05 else round(rng.random(), 2) for _ in range(N)]
    labels = ["np"[(number or 0.9) > 0.5 or 3 in row] for number, row in zip(numbers, ones, strict=True)]
    kinds = rng.choice(list("abc"), N).tolist()
    columns = {"words": pa.array(ones, pa.list_(pa.int32())), "a": numbers, "b": kinds, "y": labels}
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata({"n_features": str(WIDTH)}), path)
    return path


@pytest.mark.parametrize(
    "learner",
    [
        {"c": 0.03},
        {"c": 0.03, "drift_period": 50},
        {"rule": "hoeffding", "delta": 0.01},
    ],
    ids=["c", "drift", "hoeffding"],
)
def test_a_run_is_audited(data: Path, learner: dict[str, Any], tmp_path: Path) -> None:
    job = {
        "source": {"kind": "parquet", "path": str(data), "label": "y"},
        "stream": {"model": "sliding_window", "window": 500, "warmup": 100},
        "learner": {"kind": "confidence_tree", "grace_period": 30, **learner},
        "cluster": {"backend": "in_process", "shards": 2},
        "output": {"report": False},
    }
    run = Path(replay(job, tmp_path / "run").path)
    done = CliRunner().invoke(cli, ["audit", str(run), "--json"])
    report = json.loads(done.stdout)
    assert report["failures"] == []
    assert (done.exit_code, report["conformance"], report["feasibility"]) == (0, "holds", "not_promised")
    assert report["checked"]["splits_replayed"] == report["checked"]["splits"] > 1
    assert report["checked"]["live"] == 500
