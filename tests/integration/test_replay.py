"""Replays, how they end, their streams, their report, and the audit of what they leave."""

from __future__ import annotations

import html
import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import fs

import pipelines
from pipelines import replay
from pipelines.auditing import audit_run, verify_run
from pipelines.cli import cli
from pipelines.doctor import run_demo, story
from pipelines.prediction import predict_file
from pipelines.purging import purge
from pipelines.run_folder import RunFolder
from raydt import load_model
from raydt.errors import ConfigError, DeadlineMissedError, InputError, NotWrittenError, RaydtError, UpdateError
from raydt.folders.arrays import load_folder
from raydt.folders.checkpoint import CheckpointStore
from raydt.sessions.session import InProcessSession
from tests import volume
from tests.cases import CASES
from tests.fuzz.mutations import with_arrays
from tests.refusals import refused

# -- replay ----------------------------------------------------------------------------------------------------------
# The replay job as a whole, in this process: what it leaves behind, and how it ends when something is wrong.


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


# -- replay ends -----------------------------------------------------------------------------------------------------
# How a run ends when saving fails, and what its model predicts from other formats.

RNG = np.random.default_rng(5)
N = 600


@pytest.fixture
def table_ends() -> pa.Table:
    colour = RNG.integers(0, 5, N)
    return pa.table({"colour": colour, "size": RNG.random(N), "y": np.isin(colour, [1, 4]).astype(int)})


def config_ends(path: Path) -> dict[str, Any]:
    kind = "csv" if path.suffix == ".csv" else "parquet"
    return {
        "source": {"kind": kind, "path": str(path), "label": "y", "categorical": ["colour"]},
        "stream": {"model": "incremental", "warmup": 200},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "shards": 1},
        "output": {"report": False},
    }


@pytest.mark.parametrize("trained", ["rows.parquet", "rows.csv"])
def test_a_model_predicts_the_same_from_parquet_and_csv(trained: str, table_ends: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table_ends, tmp_path / "rows.parquet")
    pyarrow.csv.write_csv(table_ends, tmp_path / "rows.csv")
    pipelines.replay(config_ends(tmp_path / trained), tmp_path / "run")
    truth = table_ends["y"].to_pylist()
    for name in ("rows.parquet", "rows.csv"):
        out = tmp_path / f"{Path(name).suffix[1:]}.out.parquet"
        predict_file(tmp_path / "run", tmp_path / name, out)
        assert pq.read_table(out)["prediction"].to_pylist() == truth, f"trained on {trained}, predicted {name}"
    if trained == "rows.parquet":
        frame = table_ends.select(["colour", "size"])
        assert load_model(tmp_path / "run").predict(frame).tolist() == truth


def test_a_failure_while_saving_is_in_the_summary(
    table_ends: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table_ends, tmp_path / "rows.parquet")

    def broken(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr("raydt.folders.checkpoint.write_manifest", broken)
    with pytest.raises(NotWrittenError, match=r"checkpoints/600: cannot be written: no space left") as caught:
        pipelines.replay(config_ends(tmp_path / "rows.parquet"), tmp_path / "run")
    assert caught.value.exit_code == 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["exit_reason"]) == ("failed", "NotWrittenError")
    assert not (tmp_path / "run" / "model").exists(), "a model without its state"


@pytest.mark.parametrize("kind", ["confidence_tree", "forest", "fudyadt", "gbdt"])
def test_a_model_of_a_run_that_ended_before_its_first_row_predicts_nothing(kind: str, tmp_path: Path) -> None:
    rows = pa.table({"id": range(30), "a": [float("inf"), *range(29)], "y": [i % 2 for i in range(30)]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    config = config_ends(tmp_path / "rows.parquet") | {"learner": {"kind": kind}}
    config["source"] |= {"id": "id", "categorical": []}
    with refused("rows.infinite"):
        pipelines.replay(config, tmp_path / "run")
    model = load_model(tmp_path / "run")
    for method in (model.predict, model.predict_proba):
        with refused("predictions.no_class"):
            method(rows.select(["a"]).slice(1))
    assert CliRunner().invoke(cli, ["report", str(tmp_path / "run")]).exit_code == 0


def test_a_missed_erasure_deadline_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints begin to fail while an older one holds examples that are deleted: the command says so and exits 1."""
    write, apply, checkpoints = CheckpointStore.write, InProcessSession.apply, []

    def full(self: Any, number: int, *arguments: Any) -> int:
        checkpoints.append(number)
        if len(checkpoints) > 1:
            raise NotWrittenError("cannot be written: the disk is full", file="checkpoints")
        return write(self, number, *arguments)

    def slow(self: Any, *arguments: Any, **more: Any) -> Any:
        time.sleep(0.02)
        return apply(self, *arguments, **more)

    monkeypatch.setattr(CheckpointStore, "write", full)
    monkeypatch.setattr(InProcessSession, "apply", slow)
    job = {
        "source": {"kind": "synthetic", "generator": "sea", "n": 2000},
        "stream": {"model": "sliding_window", "window": 60},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 10},
        "checkpoint": {"every_seconds": 1, "max_age": "1s"},
        "erasure": {"deadline": "2s"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    result = CliRunner().invoke(
        cli, ["replay", str(tmp_path / "job.yaml"), "--out", str(tmp_path / "run")], standalone_mode=False
    )
    assert isinstance(result.exception, DeadlineMissedError), result.output
    said = result.exception.message
    assert (said.id, said.parameters["deadline"]) == ("runs.deadline_missed", "2s")
    assert "the disk is full" in said.parameters["cause"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["exit_code"]) == ("failed", 1)
    assert "erasure.deadline" in summary["error"]
    monkeypatch.undo()
    resumed = pipelines.resume(tmp_path / "run", overrides=["erasure.deadline=null"])
    whole = pipelines.replay({**job, "erasure": {}, "checkpoint": {}}, tmp_path / "whole")
    assert resumed.summary["model_digest"] == whole.summary["model_digest"]
    assert purge(tmp_path / "run")["digest"] == resumed.summary["model_digest"]


# -- replay streams --------------------------------------------------------------------------------------------------
# Whole runs over streams that read rows again or work by event time: what is recorded, audited and saved.

STREAMS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "batches": (
        {"permutation": 4},
        {"model": "batches", "steps": [0.5, 0.1, 1.0, 0.25, 500], "removal_order": "random"},
        "batches to 0.5, 0.1, 1.0, 0.25, 500, random",
    ),
    "time_window": ({}, {"model": "time_window", "duration": "120m", "lateness": "600s"}, "time window of 2h"),
}


def config_streams(folder: Path, name: str, **cluster: Any) -> dict[str, Any]:
    source, stream, _ = STREAMS[name]
    return {
        "source": {"kind": "parquet", "path": str(folder / "t.parquet"), "id": "k", "ts": "when", **source},
        "stream": {**stream, "on_error": "skip"},
        "learner": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 6},
        "cluster": {"backend": "in_process", **cluster},
        "output": {"metrics_every": 100},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A minute a row, a little out of order; rows 100 and 300 are bad, rows 200 and 400 two hours late."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 2))
    minute = np.arange(N) - rng.integers(0, 10, N)
    minute[[200, 400]] -= 120
    x[[100, 300], 0] = np.inf
    columns = {
        "k": [f"c{i}" for i in range(N)],
        "a": x[:, 0],
        "b": x[:, 1],
        "y": np.where(x[:, 0] > x[:, 1], "yes", "no"),
        "when": np.datetime64("2024-05-31T12:00", "us") + minute.astype("timedelta64[m]"),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return tmp_path


@pytest.mark.parametrize("name", STREAMS)
def test_a_run_is_recorded_audited_and_the_same_in_any_batches(name: str, folder: Path) -> None:
    found = replay(config_streams(folder, name), folder / "run")
    summary = found.summary
    when = pq.read_table(folder / "t.parquet")["when"].to_numpy()
    young = np.count_nonzero(when > when.max() - np.timedelta64(120, "m"))
    assert summary["active"] == {"batches": 500, "time_window": young}[name]
    bad = {"batches": [100, 300], "time_window": [100, 200, 300, 400]}[name]
    quarantine = pq.read_table(folder / "run" / "quarantine")
    assert summary["skipped"] == len(bad) == len(quarantine)
    named = sorted(int(reason.split("row ")[1].split(",")[0]) for reason in quarantine["reason"].to_pylist())
    assert named == bad
    assert STREAMS[name][2] in (folder / "run" / "report.html").read_text()

    audit = audit_run(folder / "run")
    assert audit.conformance == "holds"

    other = replay(config_streams(folder, name, shards=1, batch_size=7), folder / "other").summary
    for key in ("model_digest", "updates", "inserts", "deletes", "metrics", "skipped"):
        assert other[key] == summary[key], key


# -- report ----------------------------------------------------------------------------------------------------------
# The report of runs as the job leaves them, not of made-up folders.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replay of 1,500 rows whose label follows from a number and a colour."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(3)
    x, colour = rng.normal(size=1500), rng.choice(["red", "<b>green", "blue"], 1500)
    label = np.where((x > 0) ^ (colour == "red"), "yes", "no")
    pq.write_table(pa.table({"x": x, "colour": colour, "label": label}), folder / "data.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / "data.parquet"), "label": "label"},
        "stream": {"model": "sliding_window", "window": 300},
        "learner": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 4},
        "cluster": {"backend": "in_process"},
        "output": {"report": True, "metrics_every": 100},
    }
    return Path(replay(config, folder / "run").path)


def cards(page: str) -> list[str]:
    return [html.unescape(detail) for detail in re.findall(r'class="card[^"]*" title="([^"]*)"', page)]


def test_categories_have_their_names(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert any(card.startswith("colour = red. ") for card in cards(page))
    assert "= code" not in page


def test_every_node_has_a_card_with_its_counters(run: Path) -> None:
    model = load_folder(run / "model", "model")[1]["arrays"]
    shown = cards((run / "report.html").read_text(encoding="utf-8"))
    assert len(shown) == len(model["feature"])
    for s, c in zip(model["s"].tolist(), model["c"].tolist(), strict=True):
        left = s // 5 - c  # epsilon is a little above 1/5, so that the floor is that of s / 5
        words = f"{left:,} of {s // 5:,} left" if s >= 5 else "no budget"
        assert any(f" from {s:,}, {c:,} update" in card and card.endswith(words) for card in shown), (s, c)


# -- verify command --------------------------------------------------------------------------------------------------
# ``raydt verify``: the model is the one that the remaining examples give, or verify says what is not.

#: The docs promise it of ``fudyadt`` with ``epsilon: 0``, whatever the labels, and a range that the warm-up has found.
WITHOUT_A_PAST = [
    replace(trial, case=replace(trial.case, name=f"{trial.case.name}, epsilon 0", options=options))
    for trial in CASES
    if trial.learner.kind == "fudyadt"
    for options in [{**trial.case.options, "epsilon": 0.0}]
]
VERIFIED = [trial for trial in CASES if trial.learner.traits(trial.options).retrained] + WITHOUT_A_PAST


def raydt(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], standalone_mode=False)
    return result.return_value, result.output


def different(place: Any) -> list[str]:
    """Ids of what differs from the model trained from nothing."""
    return [said.id for said in verify_run(place)["different"]]


@pytest.mark.turns(2)
@pytest.mark.share
@pytest.mark.parametrize("trial", volume.spread(VERIFIED, 6), ids=lambda trial: trial.name)
def test_a_run_and_its_states_are_what_remains_gives(trial: Any, tmp_path: Path) -> None:
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    assert run.summary["deletes"] > 20
    code, out = raydt("verify", run.path, "--json")
    found = json.loads(out)
    assert (code, found["equal"], found["digest"]) == (0, True, run.digest)
    assert found["examples"] < found["inserted"]
    state = max((Path(run.path) / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    assert raydt("verify", state)[0] == 0


@pytest.mark.turns(2)
@pytest.mark.share
@pytest.mark.parametrize("trial", volume.spread(VERIFIED, 6), ids=lambda trial: trial.name)
def test_what_is_not_of_this_run_is_found(trial: Any, tmp_path: Path) -> None:
    """The saved model of a run without most deletions; the last state with other thresholds, resealed; a digest."""
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    (tmp_path / "fewer").mkdir()
    other = pipelines.replay(trial.config(tmp_path / "fewer", updates=60), tmp_path / "other")
    shutil.rmtree(Path(run.path) / "model")
    shutil.copytree(Path(other.path) / "model", Path(run.path) / "model")
    assert different(run.path) == ["verdicts.model"]
    state = max((Path(run.path) / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    names = {entry["name"] for entry in json.loads((state / "manifest.json").read_text())["files"]} | {"manifest.json"}

    def change(components: dict[str, Any]) -> None:
        arrays = components["coordinator"]
        arrays["threshold"] = np.where(arrays["feature"] >= 0, arrays["threshold"] + 0.25, arrays["threshold"])

    if trial is VERIFIED[0]:
        for name, content in with_arrays({name: (state / name).read_bytes() for name in names}, change).items():
            (state / name).write_bytes(content)
        assert different(run.path) == ["verdicts.run_state"]
        assert different(state) == ["verdicts.state"]
    summary = Path(run.path) / "summary.json"
    summary.write_text(summary.read_text().replace(run.digest, "sha256:" + "0" * 64))
    assert different(run.path)[0] == "verdicts.digest"
    assert raydt("verify", run.path)[0] == 3


def test_a_model_with_a_past_cannot_be_verified(tmp_path: Path) -> None:
    trial = next(trial for trial in CASES if trial.shipped and not trial.learner.traits(trial.options).retrained)
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    with refused("verdicts.order", kind=trial.learner.kind):
        verify_run(run.path)
