"""Reports of runs that lack something: each piece is taken away once, and the rest still shows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from fabricated_run import fabricated_run, fabricated_tree, write_model, write_table

from pipelines.report.folder import read_run
from pipelines.report.page import render
from pipelines.report.tables import shard_work
from pipelines.reporting import publish_report
from pipelines.run_folder import RunFolder as StoredRun
from raydt.presentation.blocks import Text
from raydt.presentation.rebuilds import rebuild_work


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fabricated_run(tmp_path / "run", rows=20, rebuilds=40)


def notes(run: Path) -> str:
    return " ".join(read_run(run).notes)


def test_a_complete_run_needs_no_note(run: Path) -> None:
    folder = read_run(run)
    assert folder.notes == []
    assert len(folder.metrics["seq"]) == 20
    assert (np.diff(folder.metrics["seq"]) > 0).all()
    assert len(folder.events["rows"]) == 40


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("metrics", "wrote no metrics"),
        ("events", "recorded no rebuilds"),
        ("model", "saved no model"),
        ("config.yaml", "There is no config.yaml"),
        ("summary.json", "There is no summary.json"),
    ],
)
def test_each_piece_may_be_missing(run: Path, missing: str, said: str) -> None:
    path = run / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    page = render([run])
    assert said in page
    assert 'id="environment"' in page


def test_empty_tables(run: Path) -> None:
    for name in ("metrics", "events"):
        folder = read_run(run)
        columns = getattr(folder, name)
        shutil.rmtree(run / name)
        write_table(run / name, {key: values[:0] for key, values in columns.items()})
    page = render([run])
    assert "recorded no rebuilds" in page
    assert "wrote no metrics" in page


def test_nothing_was_predicted(run: Path) -> None:
    metrics = read_run(run).metrics
    scores = ["accuracy", "f1", "macro_f1", "kappa", "no_change", "majority"]
    scores += ["window_accuracy", "window_no_change", "window_majority"]
    metrics.update({name: np.full(20, np.nan) for name in scores}, predictions=np.zeros(20, dtype=np.int64))
    shutil.rmtree(run / "metrics")
    write_table(run / "metrics", metrics)
    summary = json.loads((run / "summary.json").read_text())
    summary["metrics"] = dict.fromkeys(("accuracy", "f1", "macro_f1", "kappa"))
    summary["baselines"] = {"no_change": None, "majority": None}
    (run / "summary.json").write_text(json.dumps(summary))
    page = render([run])
    assert "No accuracy was recorded" in page
    assert "nan" not in page.split("<script")[0].lower().replace("name", "")


def test_the_audit_that_was_not_run_names_its_command(tmp_path: Path) -> None:
    folder = fabricated_run(tmp_path / "my run", rows=5, rebuilds=5, audit=None)
    page = render([folder])
    assert "Not run." in page
    assert "raydt audit &#39;" in page


def test_a_violated_audit_lists_its_failures(tmp_path: Path) -> None:
    audit = {"conformance": "violated", "feasibility": "violated", "reason": "gap", "failures": ["node 7: count"]}
    page = render([fabricated_run(tmp_path / "run", rows=5, rebuilds=5, audit=audit)])
    assert "<li>node 7: count</li>" in page
    assert page.count('<div class="bad">') == 3


def test_skipped_rows_are_shown(run: Path) -> None:
    reasons = [f"missing label in row {row}" for row in range(30)]
    write_table(
        run / "quarantine",
        {"seq": np.full(30, -1), "source_row": np.arange(30), "file": ["rows.csv"] * 30, "reason": reasons},
    )
    page = render([run])
    assert "Skipped rows and updates: 30 in all, the first 20 shown" in page
    assert reasons[19] in page
    assert reasons[20] not in page


def test_a_truncated_part_is_left_out_and_named(run: Path) -> None:
    part = run / "metrics" / "part-00002.parquet"
    part.write_bytes(part.read_bytes()[:100])
    assert "metrics/part-00002.parquet cannot be read" in notes(run)
    assert 0 < len(read_run(run).metrics["seq"]) < 20


def test_damaged_json_and_yaml_are_named(run: Path) -> None:
    (run / "summary.json").write_text("{")
    (run / "config.yaml").write_text("a: [")
    assert "summary.json cannot be read" in notes(run)
    assert "config.yaml cannot be parsed" in notes(run)
    assert "a: [" in render([run])


def test_a_tree_that_is_no_tree_is_not_drawn(run: Path) -> None:
    tree = fabricated_tree(classes=3, depth=4, rows=500)
    for name, value in (("left", 0), ("left", -1), ("right", len(tree["left"])), ("right", tree["left"][0])):
        damaged = {key: values.copy() for key, values in tree.items()}
        damaged[name][0] = value
        write_model(run, damaged)
        assert "do not describe one tree" in notes(run), (name, value)
    write_model(run, {**tree, "counts": tree["counts"][:-1]})
    assert "do not describe one tree" in notes(run)
    write_model(run, tree)
    assert notes(run) == ""


def test_a_damaged_model_is_named(run: Path) -> None:
    arrays = next((run / "model").glob("arrays.*.npz"))
    arrays.write_bytes(arrays.read_bytes()[:-1])
    assert arrays.name in notes(run)
    assert "There is no tree to show" in render([run])


def test_a_model_of_another_shape_is_no_error(run: Path) -> None:
    write_model(run, {"leaf_values": np.zeros(3)})
    assert read_run(run).notes == []
    assert "There is no tree to show" in render([run])


def test_the_time_that_no_rebuild_was_timed_for_is_the_loops(tmp_path: Path) -> None:
    run = fabricated_run(tmp_path / "run", rows=20, rebuilds=40, seconds=10.0)
    shutil.rmtree(run / "events")
    events = {"seq": [1, 2, 3, 4], "rows": [5, 10, 900, 5000], "place": [0, 1, 1, 2], "seconds": [0.0, 0.0, 1.0, 3.0]}
    write_table(run / "events", {key: np.array(values) for key, values in events.items()})
    table = rebuild_work(read_run(run).events, 10.0)
    assert [(*row.cells[1:], row.share) for row in table.rows] == [
        ("1", "5,000", "3 s", "30.0%", 0.3),
        ("1", "900", "1 s", "10.0%", 0.1),
        ("2", "15", "6 s", "60.0%", 0.6),
        ("4", "5,915", "10 s", "", None),
    ]
    assert table.rows[2].cells[0] == "Compiled loop: routing and small rebuilds"
    assert "1 rebuild only reset a leaf." in table.remark


def test_what_was_passed_over_is_counted_in_the_header(tmp_path: Path) -> None:
    page = render([fabricated_run(tmp_path / "run", rows=5, rebuilds=5, refused=3, skipped=1234)])
    assert "<dt>Refused updates</dt><dd>3</dd>" in page
    assert "<dt>Bad rows skipped</dt><dd>1,234</dd>" in page
    assert "deletes, 3 refused" in page


def test_a_report_of_a_remote_run_names_its_uri(run: Path) -> None:
    folder = StoredRun(run)
    folder.is_local, folder.location = False, "s3://bucket/runs/first"
    publish_report(folder)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "raydt audit s3://bucket/runs/first<" in page
    assert "raydt-" not in page.split("<main")[1].split("<script")[0]  # nothing of the temporary copy


def test_copied_folders_are_called_by_their_location(run: Path) -> None:
    assert "raydt audit s3://bucket/run" in render([run], ["s3://bucket/run"])


@pytest.mark.parametrize(
    ("seconds", "requests", "said"),
    [
        ([2.0, 2.0], 3, "All shards worked equally long."),
        ([1.0, 3.0], 3, "The busiest shard worked 1.5 times the mean."),
        ([2.0], 3, ""),
        ([0.0], 0, "The shard was given no work: the model stayed below cluster.local_work_limit, so the coordinator"),
        ([], 0, "The run recorded no work by shards."),
    ],
)
def test_how_evenly_the_shards_worked(tmp_path: Path, seconds: list[float], requests: int, said: str) -> None:
    work = [{"shard": k, "columns": [k], "requests": requests, "seconds": spent} for k, spent in enumerate(seconds)]
    words, *_ = shard_work(read_run(fabricated_run(tmp_path / "run", rows=5, rebuilds=5, work=work)))
    assert isinstance(words, Text)
    assert words.text.startswith(said)


def test_a_run_that_ended_early_says_so(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"status": "failed", "error": "rows.csv, row 3: bad"}))
    page = render([tmp_path])
    assert "<strong>The run failed.</strong> rows.csv, row 3: bad" in page
    assert "The run failed before" in page
    assert "No accuracy was recorded" in page
    page = render([fabricated_run(tmp_path / "run", rows=5, rebuilds=5, status="interrupted", exit_reason="SIGINT")])
    assert "The run was interrupted (SIGINT): figures cover the updates up to that point." in page.split("<section")[0]
    assert "the model after the last update before that, after 500 updates." in page
    assert "before that" not in render([fabricated_run(tmp_path / "whole", rows=2, rebuilds=5)])
