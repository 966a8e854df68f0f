"""The sparse best split through all commands, across shards, losses and a kill, and on Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipelines.cli import cli
from pipelines.display import receipt_lines
from pipelines.prediction import predict_file
from pipelines.running.job import replay, resume
from pipelines.updating import update
from raydt import load_model
from raydt.errors import ConfigError, InputError
from tests.integration.losing import lost_and_interrupted

N, WIDTH = 500, 300
WINDOW = {"model": "sliding_window", "window": 150, "warmup": 100}


def libsvm(path: Path, rows: int, classes: str = "nnp", seed: int = 4) -> Path:
    """Rows of few ones; the last class goes with the first features."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        label = rng.choice(list(classes))
        ones = set(rng.integers(1, WIDTH, rng.integers(0, 6)).tolist())
        if label == classes[-1] and rng.random() < 0.9:
            ones.add(int(rng.integers(1, 4)))
        lines.append(" ".join([str("np?".index(label)), *(f"{j}:1" for j in sorted(ones))]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return libsvm(tmp_path_factory.mktemp("data") / "rows.libsvm", N)


def config(data: Path, learner: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "libsvm", "path": str(data), "n_features": WIDTH},
        "stream": WINDOW,
        "learner": {"kind": "best_split", **(learner or {})},
        "cluster": {"backend": "in_process", "shards": 1, **cluster},
        "checkpoint": {"every_updates": 70, "every_seconds": None},
        "output": {"report": False, "predictions": True, "metrics_every": 50},
    }


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = config(data)
    job["output"]["report"] = True
    return Path(replay(job, tmp_path_factory.mktemp("runs") / "split").path)


def told(run: Path) -> dict[str, Any]:
    """What must not depend on how a run was done."""
    summary = json.loads((run / "summary.json").read_text())
    tables = [pq.read_table(run / name).to_pylist() for name in ("predictions", "events")]
    metrics = pq.read_table(run / "metrics", columns=["seq", "nodes", "changes", "moves", "buckets"]).to_pylist()
    names = ("model_digest", "updates", "inserts", "deletes", "active", "metrics", "baselines")
    own = ("split", "finder", "changes", "moves", "buckets")
    return {**{name: summary[name] for name in (*names, *own)}, "tables": [*tables, metrics]}


def raydt(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    return ended.exit_code, ended.stdout


def test_it_is_proven_and_beats_the_majority(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["finder"] == {"name": "updgini"}
    assert (summary["rebuilds"], summary["rebuilt_rows"]) == (0, 0)
    assert summary["changes"] == pq.read_table(run / "events").num_rows > 1
    assert summary["moves"] > summary["buckets"] > 1
    split = summary["split"]
    assert split["name"] == f"indices[{split['feature']}]"
    assert 0 < split["with_feature"] < split["rows"] == 150
    code, out = raydt("audit", run, "--json")
    report = json.loads(out)
    assert (code, report["conformance"], report["feasibility"]) == (0, "holds", "proven")
    assert report["checked"]["splits"] == 1
    assert 0 < report["worst"]["optimum"] <= report["worst"]["score"]
    assert (run / "report.html").stat().st_size > 0


@pytest.mark.parametrize("cluster", [{"shards": 2}, {"shards": 3, "batch_size": 7}], ids=str)
def test_the_same_on_any_shards(run: Path, data: Path, tmp_path: Path, cluster: dict[str, Any]) -> None:
    replay(config(data, **cluster), tmp_path / "run")
    assert told(tmp_path / "run") == told(run)


@pytest.mark.ray
@pytest.mark.nightly
def test_the_same_on_ray(run: Path, data: Path, tmp_path: Path) -> None:
    replay(config(data, backend="ray", shards=2, batch_size=64), tmp_path / "run")
    assert told(tmp_path / "run") == told(run)


def test_the_same_after_a_loss_and_a_resume(run: Path, data: Path, tmp_path: Path) -> None:
    with lost_and_interrupted(30):
        replay(config(data, batch_size=16, shards=2), tmp_path / "run")
    resume(tmp_path / "run", overrides=["cluster.shards=3"])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["restarts"] == 1
    assert told(tmp_path / "run") == told(run)


def test_predictions_and_an_update(run: Path, data: Path, tmp_path: Path) -> None:
    new = libsvm(tmp_path / "new.libsvm", 20, seed=9)
    predict_file(run, new, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist()
    (tmp_path / "gone.csv").write_text("id\n" + "\n".join(str(i) for i in range(N - 30, N)) + "\n")
    receipt = update(run, insert=new, delete=tmp_path / "gone.csv", out=tmp_path / "second")
    assert (receipt.active_before, receipt.active) == (150, 140)
    work = dict(receipt.work)
    assert (work.pop("counts_changed"), work.pop("moves") > 0) == (2 * 50, True)
    assert work == {"changes": len(receipt.log["seq"])}
    assert receipt.deletions.keys() == {"id", "label", "path", "changed"}
    assert (receipt.rebuilds, receipt.rebuilt_rows) == (0, 0)
    second = load_model(tmp_path / "second")
    assert second.digest() == receipt.digest_after != receipt.digest_before
    assert second.audit().feasibility == "proven"
    lines = receipt_lines(receipt, "first", "second")
    assert "30 deleted, 20 inserted; 100 class counts changed, of all examples or a side of the split" in lines
    assert "node" not in lines
    assert raydt("audit", tmp_path / "second")[0] == 0
    assert set(found) <= {"0", "1", 0, 1}


@pytest.mark.parametrize("scan", [True, False])
def test_auto_chooses_by_the_warm_up(tmp_path: Path, scan: bool) -> None:
    """Rows of six ones have 250 features, 42 times as many; rows of a single one 250 times."""
    rows = tmp_path / "rows.libsvm"
    ones = [sorted({(i + 40 * k) % 250 + 1 for k in range(6 if scan else 1)}) for i in range(280)]
    rows.write_text("".join(f"{i % 2} {' '.join(f'{j}:1' for j in row)}\n" for i, row in enumerate(ones)))
    job = config(rows, {"finder": "auto", "criterion": "entropy"})
    job["stream"] = {"model": "incremental", "warmup": 250}
    replay(job, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    warmup = {"features": 250, "ones": 250, "rows": 250}
    assert summary["finder"]["name"] == ("scan" if scan else "updent")
    assert summary["finder"]["rows"] == 250
    assert scan or summary["finder"] == {"name": "updent", **warmup}
    assert (summary["buckets"] == 0) is scan
    assert raydt("audit", tmp_path / "run")[0] == 0


def test_what_it_does_not_take(data: Path, tmp_path: Path) -> None:
    job = config(data, {"finder": "auto"}) | {"stream": {"model": "incremental"}}
    with pytest.raises(ConfigError, match=r"stream.warmup = 0: best_split with finder: auto .* Set stream.warmup"):
        replay(job, tmp_path / "auto")
    with pytest.raises(ConfigError, match=r"criterion: gini does not fit finder: updent"):
        replay(config(data, {"finder": "updent", "criterion": "gini"}), tmp_path / "criterion")
    dense = config(data) | {"source": {"kind": "synthetic", "generator": "sea", "n": 200}}
    others = r"'x0', 'x1', 'x2' are numeric or categorical.* learner.kind: confidence_tree"
    with pytest.raises(InputError, match=others):
        replay(dense, tmp_path / "dense")
    three = libsvm(tmp_path / "three.libsvm", 200, "np?")
    with pytest.raises(InputError, match=r"three.libsvm, row \d+, column 'y': label \d .* source.positive"):
        replay(config(three), tmp_path / "three")
    job = config(three)
    job["stream"] = {**WINDOW, "on_error": "skip"}
    assert replay(job, tmp_path / "skipped").summary["skipped"] > 20
    assert raydt("audit", tmp_path / "skipped")[0] == 0
