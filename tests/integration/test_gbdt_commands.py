"""The in-place online GBDT through all commands, on streams that grow and shrink, and across losses and a kill."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipelines.auditing import audit_run
from pipelines.cli import cli
from pipelines.prediction import predict_file
from pipelines.running.job import replay, resume
from pipelines.updating import update
from raydt import load_model
from raydt.errors import ProcessLostError
from raydt.exchange.faults import injected

N = 600
#: 8 iterations of three trees.
LEARNER = {"kind": "gbdt", "max_iter": 8, "max_leaf_nodes": 5, "max_bins": 32, "update_every": 50, "retrain": "never"}
TREES = 24
WINDOW = {"model": "sliding_window", "window": 200, "warmup": 150}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with text ids, of three classes that follow from a number, which may be missing, and a colour."""
    rng = np.random.default_rng(3)
    x, colour = np.round(rng.normal(size=(N, 2)), 2), rng.choice(["red", "green", "blue"], N)
    label = np.where(x[:, 0] > 0.3, "up", np.where(colour == "red", "flat", "down"))
    columns = {"a": pa.array(x[:, 0], mask=rng.random(N) < 0.05), "b": x[:, 1], "colour": colour, "y": label}
    file = tmp_path_factory.mktemp("data") / "rows.parquet"
    pq.write_table(pa.table({"k": [f"c{i}" for i in range(N)], **columns}), file)
    return file


def config(data: Path, stream: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "parquet", "path": str(data), "id": "k"},
        "stream": stream,
        "learner": LEARNER,
        "cluster": {"backend": "in_process", **cluster},
        "checkpoint": {"every_updates": 70, "every_seconds": None},  # D' wait in most of them
        "output": {"report": False, "predictions": True, "metrics_every": 50},
    }


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = config(data, WINDOW)
    job["output"]["report"] = True
    return Path(replay(job, tmp_path_factory.mktemp("runs") / "gbdt").path)


def told(run: Path) -> dict[str, Any]:
    """What must not depend on how a run was done."""
    summary = json.loads((run / "summary.json").read_text())
    events = pq.read_table(run / "events").drop_columns(["seconds", "rounds"])
    tables = [pq.read_table(run / "predictions").to_pylist(), events.to_pylist()]
    names = ("model_digest", "updates", "inserts", "deletes", "active", "metrics", "baselines", "rebuilds", "leaves")
    return {**{name: summary[name] for name in names}, "tables": tables}


def raydt(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    return ended.exit_code, ended.stdout


def test_it_learns_and_its_audit_finds_what_is_stored(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["metrics"]["accuracy"] > max(summary["baselines"].values()) + 0.2
    code, out = raydt("audit", run, "--json")
    report = json.loads(out)
    assert (code, report["conformance"], report["feasibility"]) == (0, "holds", "proven")


def test_predictions_are_those_of_the_saved_model(run: Path, data: Path, tmp_path: Path) -> None:
    predict_file(run, data, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist()
    table = pq.read_table(data)
    assert np.mean(np.array(found) == table["y"].to_numpy()) > 0.9
    assert load_model(run).predict(table.select(["a", "b", "colour"])).tolist() == found


def test_an_update_and_its_receipt(run: Path, data: Path, tmp_path: Path) -> None:
    table = pq.read_table(data)
    gone, new = table.slice(N - 30, 30), table.slice(0, 10)
    pq.write_table(gone.select(["k"]).rename_columns(["id"]), tmp_path / "gone.parquet")
    pq.write_table(new, tmp_path / "new.parquet")
    files = {"delete": tmp_path / "gone.parquet", "insert": tmp_path / "new.parquet"}
    receipt = update(run, out=tmp_path / "second", **files)
    assert receipt.deletions.keys() == {"id", "label"}
    assert receipt.deletions["id"].tolist() == gone["k"].to_pylist()
    assert receipt.deletions["label"].tolist() == gone["y"].to_pylist()
    assert receipt.work["trees_checked"] == 2 * TREES
    assert 0 < receipt.work["trees_retrained"] <= receipt.rebuilds <= receipt.rebuilt_rows
    assert (receipt.active_before, receipt.active) == (200, 180)
    assert any("bins were made from" in place for place in receipt.copies)
    told = receipt.as_dict()
    assert told["refreshed"] == receipt.work["refreshed"] > 0
    assert "counts_changed" not in told
    second = load_model(tmp_path / "second")
    assert second.digest() == receipt.digest_after != receipt.digest_before
    assert second.audit().conformance == "holds"
    predict_file(tmp_path / "second", data, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    X = table.select(["a", "b", "colour"])
    assert found["prediction"] == second.predict(X).tolist()
    shares = np.array([found[f"p_{label}"] for label in second.classes_]).T
    np.testing.assert_array_equal(shares, second.predict_proba(X))
    code, out = raydt("update", run, "--delete", files["delete"], "--dry-run")
    assert code == 0
    assert re.search(rf"^trees checked +{TREES}$", out, re.MULTILINE)
    assert re.search(r"^deleted id +class$", out, re.MULTILINE)
    assert "rebuilt because of it" not in out


def test_a_state_without_trees_predicts_what_is_most_frequent(data: Path, tmp_path: Path) -> None:
    passed = iter(range(1, 10**6))

    def end(point: str) -> None:
        if point == "driver.recorded" and next(passed) == 8:
            raise KeyboardInterrupt

    with injected(end), pytest.raises(KeyboardInterrupt):
        replay(config(data, WINDOW, batch_size=16), tmp_path / "run")
    (state,) = (tmp_path / "run" / "checkpoints").glob("[0-9]*")
    read = int(state.name)
    predict_file(state, data, tmp_path / "out.parquet")
    labels = pq.read_table(data)["y"].to_pylist()[:read]
    assert 0 < read < WINDOW["warmup"]
    assert set(pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist()) == {max(labels, key=labels.count)}


def test_the_report_says_what_was_touched(run: Path) -> None:
    page = (run / "report.html").read_text()
    events = pq.read_table(run / "events").to_pandas()
    batches = events[events["trees_checked"] > 0]
    assert f"{TREES} trees in 8 iterations; drawn: the 3 of the first iteration." in page
    assert [name in page for name in ("Tree of up", "Tree of flat", "Tree of down")] == [True] * 3
    assert re.search(r'title="a ≤ [\d.-]+\. gain [\d.]+\."', page)
    assert "The first training, on 150 rows, took " in page
    assert f"All {len(batches)} batches took " in page
    assert all(f'<th scope="row">{seq + 1:,}</th>' in page for seq in batches.nlargest(3, "seconds")["seq"])
    assert "What features gain" in page
    assert "no rebuilds" not in page


STREAMS = {
    "grows, shrinks": ([0.05, 1.0, 0.05], "random", 30),
    "shrinks, grows": ([1.0, 0.05, 1.0], "fifo", 300),
    "tenths, the last first": ([k / 10 for k in (*range(1, 11), *range(9, 0, -1))], "lifo", 60),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_grow_and_shrink(name: str, data: Path, tmp_path: Path) -> None:
    steps, order, warmup = STREAMS[name]
    stream = {"model": "batches", "steps": steps, "removal_order": order, "warmup": warmup}
    replay(config(data, stream), tmp_path / "run")
    replay(config(data, stream, shards=3, batch_size=37), tmp_path / "again")
    assert told(tmp_path / "run") == told(tmp_path / "again")
    summary = told(tmp_path / "run")
    assert summary["active"] == round(steps[-1] * N)
    ups = [max(now - before, 0.0) for before, now in zip([0.0, *steps], steps, strict=False)]
    assert summary["inserts"] == round(sum(ups) * N)
    events = pq.read_table(tmp_path / "run" / "events").to_pandas()
    assert (events["seq"] == warmup - 1 + 50 * np.arange(len(events))).sum() >= len(events) - 1  # the last may be short
    assert audit_run(tmp_path / "run").conformance == "holds"


def test_a_lost_process_changes_nothing(run: Path, data: Path, tmp_path: Path) -> None:
    passed = iter(range(1, 10**6))

    def lose(point: str) -> None:
        if point == "driver.recorded" and next(passed) in (13, 40):
            raise ProcessLostError("shard 0 died")

    with injected(lose):
        replay(config(data, WINDOW, batch_size=16, shards=2), tmp_path / "run")
    assert len(json.loads((tmp_path / "run" / "summary.json").read_text())["recoveries"]) == 2
    assert told(tmp_path / "run") == told(run)


def test_a_run_that_was_ended_goes_on(run: Path, data: Path, tmp_path: Path) -> None:
    passed = iter(range(1, 10**6))

    def end(point: str) -> None:
        if point == "driver.recorded" and next(passed) == 30:
            raise KeyboardInterrupt

    with injected(end), pytest.raises(KeyboardInterrupt):
        replay(config(data, WINDOW, batch_size=16), tmp_path / "run")
    assert resume(tmp_path / "run").status == "completed"
    assert told(tmp_path / "run") == told(run)
