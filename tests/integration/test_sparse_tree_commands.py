"""The sparse fully dynamic tree through all commands, across shards, losses and a kill, and on Ray."""

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
from pipelines.prediction import predict_file
from pipelines.running.job import replay, resume
from pipelines.updating import update
from raydt import load_model
from raydt.errors import InputError
from tests.integration.losing import lost_and_interrupted

N, WIDTH = 400, 200
WINDOW = {"model": "sliding_window", "window": 150, "warmup": 100}


def table(path: Path, rows: int, classes: str = "np", seed: int = 4) -> Path:
    """A number, a category and few ones; the last class goes with some of the ones, or with the number."""
    rng = np.random.default_rng(seed)
    ones, labels, numbers = [], [], []
    for _ in range(rows):
        label, mine = int(rng.integers(len(classes))), set(rng.integers(3, WIDTH, rng.integers(0, 6)).tolist())
        if label and rng.random() < 0.9:
            mine.add(int(rng.integers(3)))
        ones.append(sorted(mine))
        labels.append(classes[label])
        numbers.append(round(rng.random() + 0.4 * label, 2))
    kinds = rng.choice(list("abc"), rows).tolist()
    columns = {"words": pa.array(ones, pa.list_(pa.int32())), "a": numbers, "b": kinds, "y": labels}
    pq.write_table(pa.table(columns).replace_schema_metadata({"n_features": str(WIDTH)}), path)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("data") / "rows.parquet", N)


def config(data: Path, mixed: bool = True, learner: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    columns = {} if mixed else {"features": ["words"]}
    options = {"finder": "updgini" if mixed else "updent", "beta": 0.05, "alpha": 0.05, **(learner or {})}
    return {
        "source": {"kind": "parquet", "path": str(data), "label": "y", **columns},
        "stream": WINDOW,
        "learner": {"kind": "sparse_tree", **options},
        "cluster": {"backend": "in_process", "shards": 1, **cluster},
        "checkpoint": {"every_updates": 70, "every_seconds": None},
        "output": {"report": False, "predictions": True, "metrics_every": 50},
    }


@pytest.fixture(scope="module", params=[True, False], ids=["mixed", "sparse"])
def run(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    job = config(data, request.param)
    job["output"]["report"] = True
    return Path(replay(job, tmp_path_factory.mktemp("runs") / "tree").path), request.param


def told(run: Path) -> dict[str, Any]:
    """What must not depend on how a run was done."""
    summary = json.loads((run / "summary.json").read_text())
    tables = [pq.read_table(run / name).to_pylist() for name in ("predictions", "events")]
    for row in tables[1]:
        row.pop("seconds", None)
        row.pop("place", None)
    names = ("model_digest", "updates", "inserts", "deletes", "active", "metrics", "rebuilds", "rebuilt_rows", "nodes")
    return {**{name: summary[name] for name in names}, "tables": tables}


def raydt(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    return ended.exit_code, ended.stdout


def test_it_is_proven(run: tuple[Path, bool]) -> None:
    summary = json.loads((run[0] / "summary.json").read_text())
    assert summary["rebuilds"] > 1
    code, out = raydt("audit", run[0], "--json")
    report = json.loads(out)
    assert report["failures"] == []
    assert (code, report["conformance"], report["feasibility"]) == (0, "holds", "proven")
    assert report["checked"]["counters"] == summary["nodes"] > 1
    assert (run[0] / "report.html").stat().st_size > 0


@pytest.mark.parametrize("cluster", [{"shards": 2}, {"shards": 3, "batch_size": 7}], ids=str)
def test_the_same_on_any_shards(run: tuple[Path, bool], data: Path, tmp_path: Path, cluster: dict[str, Any]) -> None:
    replay(config(data, run[1], **cluster), tmp_path / "run")
    assert told(tmp_path / "run") == told(run[0])


@pytest.mark.ray
@pytest.mark.nightly
def test_the_same_on_ray(run: tuple[Path, bool], data: Path, tmp_path: Path) -> None:
    replay(config(data, run[1], backend="ray", shards=2, batch_size=64), tmp_path / "run")
    assert told(tmp_path / "run") == told(run[0])


def test_the_same_after_a_loss_and_a_resume(run: tuple[Path, bool], data: Path, tmp_path: Path) -> None:
    with lost_and_interrupted(30):
        replay(config(data, run[1], batch_size=16, shards=2), tmp_path / "run")
    resume(tmp_path / "run", overrides=["cluster.shards=3"])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["restarts"] == 1
    assert told(tmp_path / "run") == told(run[0])


def test_predictions_and_an_update(run: tuple[Path, bool], tmp_path: Path) -> None:
    new = table(tmp_path / "new.parquet", 20, seed=9)
    predict_file(run[0], new, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist()
    assert set(found) == {"n", "p"}
    (tmp_path / "gone.csv").write_text("id\n" + "\n".join(str(i) for i in range(N - 30, N)) + "\n")
    receipt = update(run[0], insert=new, delete=tmp_path / "gone.csv", out=tmp_path / "second")
    assert (receipt.active_before, receipt.active) == (150, 140)
    second = load_model(tmp_path / "second")
    assert second.digest() == receipt.digest_after != receipt.digest_before
    assert second.audit().feasibility == "proven"
    assert raydt("audit", tmp_path / "second")[0] == 0


def test_what_it_does_not_take(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'a', 'b' are numeric or categorical.* finder: updgini"):
        replay(config(data, learner={"finder": "updent"}), tmp_path / "dense")
    dense = config(data)
    dense["source"]["features"] = ["a", "b"]
    others = r"confidence_tree, .*fudyadt.* or [a-z_]+$"
    with pytest.raises(InputError, match=rf"no feature is sparse.* use learner.kind: {others}"):
        replay(dense, tmp_path / "none")
    with pytest.raises(InputError, match=r"column 'y': label .* source.positive"):
        replay(config(table(tmp_path / "three.parquet", 200, "npq")), tmp_path / "three")
