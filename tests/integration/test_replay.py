"""The replay job as a whole, in this process: what it leaves behind, and how it ends when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from pipelines import load_config, replay
from pipelines.auditing import audit_run
from pipelines.doctor import run_demo, story
from pipelines.prediction import predict_file
from pipelines.run_folder import RunFolder
from raydt.errors import ConfigError, InputError, RaydtError, UpdateError
from raydt.folders.arrays import load_folder
from raydt.folders.checkpoint import read_checkpoint
from raydt.folders.folder import Folder
from raydt.sessions.session import InProcessSession
from tests.refusals import refused

ROOT = Path(__file__).parents[2]


def config(source=None, stream=None, learner=None, **sections):
    return {
        "source": source or {"kind": "synthetic", "generator": "sea", "n": 3000},
        "stream": stream or {"model": "sliding_window", "window": 300, "warmup": 50},
        "learner": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 6, **(learner or {})},
        "cluster": {"backend": "in_process", **sections.pop("cluster", {})},
        "output": {"report": False, "metrics_every": 500, **sections.pop("output", {})},
        **sections,
    }


def table(run, name):
    return pq.read_table(Path(run) / name / "part-00000.parquet").to_pylist()


def summary_of(run):
    return json.loads((Path(run) / "summary.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with everything switched on."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    return replay(config(output={"predictions": True, "report": True}), folder)


@pytest.fixture
def data(tmp_path):
    """A Parquet file of 400 rows with text and numbers, whose label follows from them."""
    rng = np.random.default_rng(3)
    x, colour = rng.normal(size=400), rng.choice(["red", "green", "blue"], 400)
    label = np.where((x > 0) ^ (colour == "red"), "yes", "no")
    ids = [f"c{i}" for i in range(400)]
    file = tmp_path / "data.parquet"
    pq.write_table(pa.table({"k": ids, "x": x, "colour": colour, "label": label}), file)
    return file


def on_file(file, **source):
    return {"kind": "parquet", "path": str(file), "label": "label", "id": "k", **source}


def spoil(file, row, column, value):
    """Change one value of a Parquet file."""
    rows = pq.read_table(file).to_pylist()
    rows[row][column] = value
    pq.write_table(pa.Table.from_pylist(rows), file)


class TestFinishedRun:
    def test_summary_says_what_happened(self, finished):
        summary = summary_of(finished.path)
        assert summary == finished.summary
        assert (finished.status, finished.exit_code, summary["exit_reason"]) == ("completed", 0, "end_of_stream")
        assert (summary["inserts"], summary["deletes"], summary["active"]) == (3000, 2700, 300)
        assert summary["updates"] == summary["inserts"] + summary["deletes"]
        assert summary["predictions"] == 3000 - 50 == np.sum(summary["metrics"]["confusion"])
        assert summary["baselines"]["majority"] < summary["metrics"]["accuracy"]
        assert summary["updates_per_second"] == pytest.approx(summary["updates"] / summary["seconds"])
        assert summary["report_seconds"] > 0
        assert summary["classes"] == ["0", "1"]
        assert repr(finished) == f"RunResult({finished.path!r}, completed, 5,700 updates)"

    def test_tables_agree_with_the_summary_and_with_each_other(self, finished):
        summary, metrics = finished.summary, table(finished.path, "metrics")
        assert [row["seq"] for row in metrics] == [*range(500, 5501, 500), 5700]
        last = metrics[-1]
        for name in ("inserts", "deletes", "active", "predictions", "rebuilds", "rebuilt_rows", "nodes", "depth"):
            assert last[name] == summary[name]
        for name in ("accuracy", "f1", "macro_f1", "kappa"):
            assert last[name] == summary["metrics"][name]
        predictions = table(finished.path, "predictions")
        assert len(predictions) == summary["predictions"]
        assert sum(row["prediction"] == row["truth"] for row in predictions) / len(predictions) == last["accuracy"]
        events = table(finished.path, "events")
        assert len(events) == summary["rebuilds"]
        assert sum(row["rows"] for row in events) == summary["rebuilt_rows"]

    def test_the_resolved_config_gives_the_same_run_again(self, finished, tmp_path):
        again = replay(Path(finished.path) / "config.yaml", tmp_path / "again")
        assert again.digest == finished.digest
        assert again.metrics == finished.metrics
        assert again.summary["config_hash"] == finished.summary["config_hash"]

    def test_the_model_holds_no_training_row(self, finished):
        meta, components = load_folder(Path(finished.path) / "model")
        assert meta["kind"] == "model"
        assert components.keys() == {"arrays"}
        assert {"id", "y", "born", "X"}.isdisjoint(components["arrays"])

    def test_audit_reads_the_source_again_and_is_recorded(self, finished):
        report = audit_run(finished.path)
        assert report.conformance == "holds"
        assert max(report.checked.values()) >= 3000
        assert summary_of(finished.path)["audit"]["ok"] is True
        assert report.feasibility == "not_promised"  # epsilon 0.2 lies beyond the theorem


@pytest.mark.ray
class TestOnRay:
    """With batches read ahead by a thread, and several under way at the coordinator."""

    @pytest.fixture(autouse=True)
    def _connected(self, cluster):
        """Runs use the private Ray that is connected already."""

    def test_the_demo_has_its_shards_work_and_passes_its_audit(self, tmp_path):
        result = run_demo(tmp_path / "demo")
        summary = summary_of(tmp_path / "demo")
        assert summary == result.summary
        assert (summary["audit"]["conformance"], summary["audit"]["feasibility"]) == ("holds", "proven")
        assert min(summary["inserts"], summary["deletes"], summary["rounds"]) > 0
        assert all(shard["requests"] > 0 for shard in summary["work"])
        assert summary["metrics"]["accuracy"] > max(summary["baselines"].values())
        assert (tmp_path / "demo" / "report.html").exists()
        assert summary["model_digest"] in story(summary, result.path)

    def test_a_refused_update_leaves_model_and_stream_at_one_position(self, data, tmp_path):
        spoil(data, 250, "k", "c7")
        on_ray = {"backend": "ray", "shards": 2, "batch_size": 16}
        with pytest.raises(UpdateError, match=r"row 250: update 250: .* id is live"):
            replay(config(on_file(data), {"model": "incremental"}, cluster=on_ray), tmp_path / "run")
        _, components = load_folder(tmp_path / "run" / "checkpoints" / "250", "state")
        assert components["stream"]["seq"] == components["coordinator"]["seq"][0] == 250
        assert audit_run(tmp_path / "run").conformance == "holds"


class TestBadInput:
    def test_a_lost_learner_leaves_tables_and_summary_but_no_model(self, tmp_path, monkeypatch):
        apply = InProcessSession.apply

        def failing(self, batch, **options):
            if batch.start >= 1000:
                raise RaydtError("shard 1 died")
            return apply(self, batch, **options)

        monkeypatch.setattr(InProcessSession, "apply", failing)
        with pytest.raises(RaydtError, match="shard 1 died"):
            replay(config(), tmp_path / "run")
        summary = summary_of(tmp_path / "run")
        assert (summary["status"], summary["exit_code"], summary["model_digest"]) == ("failed", 1, None)
        assert summary["updates"] == table(tmp_path / "run", "metrics")[-1]["seq"] == 1000
        assert not (tmp_path / "run" / "model").exists()
        entry = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
        assert entry["level"] == "error"
        with refused("runs.failed", InputError, error="shard 1 died"):
            audit_run(tmp_path / "run")

    def test_a_missing_file_leaves_a_folder_that_can_be_used(self, data, tmp_path):
        job = config(on_file(data.with_name("absent.parquet")), {"model": "incremental"})
        for _ in range(2):
            with pytest.raises(InputError, match=r"absent\.parquet"):
                replay(job, tmp_path / "run")

    def test_data_that_changed_after_the_run_are_not_audited(self, data, tmp_path):
        run = replay(config(on_file(data), {"model": "incremental"}), tmp_path / "run")
        spoil(data, 5, "x", 0.0)
        with refused("verdicts.other_data", file=run.path):
            audit_run(run.path)

    def test_inside_a_ray_job_the_folder_must_be_absolute(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
        for out in (None, "run"):
            with refused("runs.relative_folder", ConfigError):
                replay(config(), out)


def test_text_labels_and_categories_survive_to_the_predictions(data, tmp_path):
    run = replay(config(on_file(data, positive="yes"), {"model": "incremental"}), tmp_path / "run")
    assert run.summary["classes"] == ["no", "yes"]
    assert run.summary["positive"] == ["yes"]
    rows = [*pq.read_table(data).select(["colour", "x"]).to_pylist(), {"colour": "mauve", "x": 0.5}]
    new = tmp_path / "new.parquet"
    pq.write_table(pa.Table.from_pylist(rows), new)
    result = predict_file(run.path, new, tmp_path / "out.parquet")
    predicted = pq.read_table(result["out"]).to_pylist()
    assert len(predicted) == 401
    assert predicted[0].keys() == {"prediction", "p_no", "p_yes"}
    truth = pq.read_table(data).column("label").to_pylist()
    right = sum(row["prediction"] == label for row, label in zip(predicted, truth, strict=False))
    assert right / 400 > 0.9
    for row in predicted:
        assert row["p_no"] + row["p_yes"] == pytest.approx(1)
        assert row["prediction"] == ("yes" if row["p_yes"] > row["p_no"] else "no")


def test_a_run_folder_may_be_a_uri(tmp_path):
    run = replay(config(output={"report": True}), f"file://{tmp_path}/run")
    assert (tmp_path / "run" / "report.html").exists()
    assert summary_of(tmp_path / "run")["model_digest"] == run.digest


def test_a_run_folder_on_another_file_system_gets_everything(tmp_path, monkeypatch):
    def create(location, overwrite):
        folder = RunFolder(tmp_path)
        folder.filesystem = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
        folder.root, folder.is_local = "run", False
        folder.filesystem.create_dir("run")
        return folder

    monkeypatch.setattr(RunFolder, "create", create)
    replay(config(output={"report": True}), "elsewhere")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.yaml", "summary.json", "metrics", "events", "model", "checkpoints", "report.html", "log.jsonl"
    }  # fmt: skip
    assert summary_of(tmp_path / "run")["report_seconds"] > 0
    assert audit_run(tmp_path / "run").conformance == "holds"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_cleanly(number, code, tmp_path):
    job = config({"kind": "synthetic", "generator": "sea", "n": 50_000_000}, {"model": "incremental"})
    job["learner"]["max_depth"] = 2
    job["checkpoint"] = {"every_seconds": 0.1}
    file = tmp_path / "job.yaml"
    file.write_text(load_config(job).to_yaml())
    command = [sys.executable, "-m", "pipelines.cli", "replay", str(file), "--out", str(tmp_path / "run"), "--json"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "run").glob("checkpoints/*/manifest.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    summary = json.loads(out)
    assert (summary["status"], summary["exit_reason"], summary["exit_code"]) == ("interrupted", number.name, code)
    assert 0 < summary["updates"] < 50_000_000
    components = read_checkpoint(Folder(tmp_path / "run" / "checkpoints" / str(summary["updates"]))).components
    assert components["stream"]["seq"] == components["coordinator"]["seq"][0] == summary["updates"]
