"""The confidence tree through all commands, across shards, losses and a kill, and on Ray."""

from __future__ import annotations

import json
import shutil
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
from raydt.errors import ConfigError, InputError
from raydt.learners.confidence_tree.bounds import RESTARTED, TIE
from raydt.learners.confidence_tree.describe import splits_in_words
from tests.integration.losing import lost_and_interrupted

N = 900
WINDOW = {"model": "sliding_window", "window": 300, "warmup": 100}
#: By name: the features, and options with which much happens in few updates.
KINDS: dict[str, tuple[list[str] | None, dict[str, Any]]] = {
    "dense": (["a", "b", "c"], {"drift_period": 20}),
    "mixed": (None, {"rule": "hoeffding", "delta": 0.2, "tie_threshold": 0.2}),
    "sparse": (["words"], {"tie_threshold": 0.05}),
}


def table(path: Path, rows: int, classes: str = "np", seed: int = 4) -> Path:
    """A number that may be missing, a category and few tokens; what goes with the last class changes in the middle."""
    rng = np.random.default_rng(seed)
    words, labels, numbers, kinds = [], [], [], []
    for i in range(rows):
        label, late = int(rng.integers(len(classes))), i >= rows // 2
        mine = {f"word{j}" for j in rng.integers(3, 40, rng.integers(0, 6)).tolist()}
        if label and rng.random() < 0.9:
            mine.add("late" if late else "early")
        words.append(sorted(mine))
        labels.append(classes[label])
        signal = label if rng.random() < 0.9 else 1 - min(label, 1)
        numbers.append(None if rng.random() < 0.1 else round(rng.random() + (0.0 if late else signal), 2))
        kinds.append("c" if late and signal else str(rng.choice(["a", "b"])))
    columns = {
        "words": pa.array(words, pa.list_(pa.string())),
        "a": numbers,
        "b": kinds,
        "c": rng.random(rows),
        "y": labels,
    }
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("data") / "rows.parquet", N)


def config(data: Path, kind: str = "dense", learner: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    features, options = KINDS[kind]
    width = {} if kind == "dense" else {"n_features": 50}
    default = {"grace_period": 20} | ({} if "rule" in options else {"c": 0.02})
    return {
        "source": {"kind": "parquet", "path": str(data), "label": "y", "features": features, **width},
        "stream": WINDOW,
        "learner": {"kind": "confidence_tree", **default, **options, **(learner or {})},
        "cluster": {"backend": "in_process", "shards": 1, **cluster},
        "checkpoint": {"every_updates": 70, "every_seconds": None},
        "output": {"report": False, "predictions": True, "metrics_every": 50},
    }


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    job = config(data, request.param)
    job["output"]["report"] = True
    return Path(replay(job, tmp_path_factory.mktemp("runs") / "tree").path), request.param


def summary_of(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return summary


def told(run: Path) -> str:
    """What must not depend on how a run was done, as text, since NaN is not NaN."""
    summary = summary_of(run)
    counts = ("checks", "splits", "ties", "restarted")
    names = ("model_digest", "updates", "inserts", "deletes", "replaced", "active", "metrics", "baselines", "nodes")
    tables = [pq.read_table(run / name).to_pylist() for name in ("predictions", "events")]
    columns = ["seq", "nodes", "leaves", "checks", "splits", "ties", "restarted", "accuracy"]
    metrics = pq.read_table(run / "metrics", columns=columns).to_pylist()
    return repr(({name: summary[name] for name in (*names, *counts)}, tables, metrics))


def raydt(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    return ended.exit_code, ended.stdout


def test_every_split_is_in_the_log(run: tuple[Path, str]) -> None:
    summary, events = summary_of(run[0]), pq.read_table(run[0] / "events").to_pydict()
    reasons = events["reason"]
    assert summary["splits"] == sum(reason != RESTARTED for reason in reasons) > 1
    assert (summary["ties"], summary["restarted"]) == (reasons.count(TIE), reasons.count(RESTARTED))
    assert events["seq"] == sorted(events["seq"])
    assert (summary["rebuilds"], summary["replaced"]) == (0, 0)
    assert summary["metrics"]["accuracy"] > summary["baselines"]["majority"]
    for feature, threshold, left in zip(events["feature"], events["threshold"], events["m"], strict=True):
        assert (feature < 0) == (threshold != threshold) == (left == 0)
    page = (run[0] / "report.html").read_text()
    assert "Splits, and what they were decided by" in page
    assert splits_in_words(summary) in raydt_line(summary)


def test_it_is_what_its_algorithm_says(run: tuple[Path, str]) -> None:
    code, out = raydt("audit", run[0], "--json")
    report = json.loads(out)
    assert report["failures"] == []
    assert (code, report["conformance"], report["feasibility"]) == (0, "holds", "not_promised")


def raydt_line(summary: dict[str, Any]) -> str:
    from pipelines.display import run_lines

    return run_lines(summary, "run")


@pytest.mark.parametrize("cluster", [{"shards": 2}, {"shards": 3, "batch_size": 7}], ids=str)
def test_the_same_on_any_shards(run: tuple[Path, str], data: Path, tmp_path: Path, cluster: dict[str, Any]) -> None:
    replay(config(data, run[1], **cluster), tmp_path / "run")
    assert told(tmp_path / "run") == told(run[0])


@pytest.mark.ray
@pytest.mark.nightly
def test_the_same_on_ray(cluster: Any, data: Path, tmp_path: Path) -> None:
    replay(config(data, "mixed"), tmp_path / "here")
    replay(config(data, "mixed", backend="ray", shards=2, batch_size=64), tmp_path / "run")
    assert told(tmp_path / "run") == told(tmp_path / "here")


def test_the_same_after_a_loss_and_a_resume(run: tuple[Path, str], data: Path, tmp_path: Path) -> None:
    with lost_and_interrupted(50):
        replay(config(data, run[1], batch_size=16, shards=2), tmp_path / "run")
    resume(tmp_path / "run", overrides=["cluster.shards=3"])
    assert summary_of(tmp_path / "run")["restarts"] == 1
    assert told(tmp_path / "run") == told(run[0])


def test_predictions_and_an_update(run: tuple[Path, str], tmp_path: Path) -> None:
    new = table(tmp_path / "new.parquet", 60, seed=9)
    predict_file(run[0], new, tmp_path / "out.parquet")
    assert set(pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist()) == {"n", "p"}
    (tmp_path / "gone.csv").write_text("id\n" + "\n".join(str(i) for i in range(N - 30, N)) + "\n")
    receipt = update(run[0], insert=new, delete=tmp_path / "gone.csv", out=tmp_path / "second")
    assert (receipt.active_before, receipt.active) == (300, 330)
    assert receipt.deletions.keys() == {"id", "label", "leaf", "path", "changed"}
    counts = {"counts_changed", "checks", "splits", "ties", "restarted"}
    assert (receipt.work.keys(), receipt.rebuilds) == (counts, 0)
    assert receipt.work["splits"] + receipt.work["restarted"] == len(receipt.log.get("seq", ()))
    assert receipt.digest_after != receipt.digest_before
    second = load_model(tmp_path / "second")
    assert second.digest() == receipt.digest_after
    assert second.audit().conformance == "holds"
    code, out = raydt("update", run[0], "--delete", tmp_path / "gone.csv", "--dry-run")
    assert code == 0
    assert "tree changed" in out
    assert "best feature" not in out


def test_it_stands_beside_others_in_a_comparison(run: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(run[0], tmp_path / "copy")
    code, _ = raydt("report", run[0], tmp_path / "copy", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text().split("Comparison of the runs")[1].split("<article>")[0]
    assert code == 0
    assert "Checks" in page
    assert "Rebuilds" not in page
    assert "Rows rebuilt" not in page


def test_what_it_does_not_take(data: Path, tmp_path: Path) -> None:
    job = config(data) | {"stream": {"model": "incremental"}}
    with pytest.raises(ConfigError, match=r"stream.warmup = 0: confidence_tree derives the bins .* Set stream.warmup"):
        replay(job, tmp_path / "none")
    with pytest.raises(ConfigError, match=r"delta applies only to confidence: theorem"):
        replay(config(data, learner={"delta": 0.1}), tmp_path / "delta")
    three = table(tmp_path / "three.parquet", 300, "npq")
    with pytest.raises(InputError, match=r"row \d+, column 'y': label 'n' is of a class beyond the 2 that"):
        replay(config(three, "mixed"), tmp_path / "three")
    assert replay(config(three), tmp_path / "dense").summary["splits"] > 0
