"""Sweeps: equal to single replays on both backends, honest about failures, complete after a signal."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines import replay, sweep
from pipelines.cli import cli
from pipelines.sweeping import trials as job
from raydt.errors import ConfigError, InputError
from raydt.messages import message
from tests.refusals import refused

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
TIMES = ("seconds", "cpu_seconds", "us_per_update")


def config(backend="in_process", **sections):
    return {
        "source": {"kind": "synthetic", "generator": "sea", "n": 2000},
        "stream": {"model": "sliding_window", "window": 300, "warmup": 50},
        "learner": {"kind": "fudyadt", "alpha": 0.0, "beta": 0.0, "max_depth": 6},  # epsilon: auto is refused then
        "cluster": {"backend": backend},
        "output": {"report": False, "metrics_every": 500},
        **sections,
    }


GRID = ["learner.epsilon=0.1:0.3:0.1", "stream.window=200,300"]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The grid, one setting after another."""
    return sweep(config(), GRID, tmp_path_factory.mktemp("sweeps") / "here")


def untimed(table):
    return table.drop_columns([*TIMES]).to_pylist()


def test_every_setting_is_what_a_replay_of_it_gives(here, tmp_path):
    rows = here.table.to_pylist()
    assert [(row["learner.epsilon"], row["stream.window"]) for row in rows] == [
        (e, w) for e in (0.1, 0.2, 0.3) for w in (200, 300)
    ]
    for row in rows[::3]:
        sets = [f"{key}={row[key]}" for key in ("learner.epsilon", "stream.window")]
        summary = replay(config(), tmp_path / str(row["setting"]), overrides=sets).summary
        assert row["digest"] == summary["model_digest"]
        expected = {**summary, **summary["metrics"], **summary["baselines"]}
        for name in set(row) & set(expected) - {*TIMES, "error"}:
            assert row[name] == expected[name], name


@pytest.mark.parametrize("n", [2, 3, 5])
def test_threads_give_the_same_table_in_the_same_order(here, n, tmp_path):
    there = sweep(config(cluster={"backend": "in_process", "threads": n}), GRID, tmp_path / "there")
    assert untimed(there.table) == untimed(here.table)
    assert there.curves == here.curves
    logs = [(Path(one.path) / "log.jsonl").read_text().splitlines() for one in (here, there)]
    assert [[json.loads(line)["setting"] for line in log] for log in logs] == [[*range(6)]] * 2
    keys = here.summary.keys() - {"parallel", "started", "best"} - {key for key in here.summary if "seconds" in key}
    assert {key: here.summary[key] for key in keys} == {key: there.summary[key] for key in keys}
    assert there.summary["parallel"] == n


@pytest.mark.parametrize("kind", ["gbdt", "forest", "confidence_tree"])
def test_settings_of_each_learner_run_at_the_same_time(kind, tmp_path):
    grid = ["stream.window=200,250,300"]
    tables = []
    for n in (1, 3):
        one = config(learner={"kind": kind}, cluster={"backend": "in_process", "threads": n})
        tables.append(untimed(sweep(one, grid, tmp_path / str(n)).table))
    assert tables[0] == tables[1]
    assert not any(row["error"] for row in tables[0])


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_ray_gives_the_same_table(here, tmp_path):
    there = sweep(config("ray"), GRID, tmp_path / "there")
    assert untimed(there.table) == untimed(here.table)
    assert there.summary["best"]["accuracy"] == here.summary["best"]["accuracy"]
    assert there.exit_code == 0


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_a_deletion_log_with_text_ids_on_ray(tmp_path):
    """Ids, places of refused updates and random draws, over arrays that arrive read-only."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=300)
    ids = [f"c{i}" for i in range(300)]
    pq.write_table(pa.table({"k": ids, "x": x, "y": (x > 0).astype(int)}), tmp_path / "data.parquet")
    pq.write_table(pa.table({"id": ["c5", "c7", "nobody"], "after": [100, 200, 250]}), tmp_path / "log.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "data.parquet"), "id": "k"}
    stream = {"model": "deletion_log", "deletion_log": str(tmp_path / "log.parquet")}
    grid = {"stream.on_error": ["skip", "error"]}
    tables = []
    for backend in ("in_process", "ray"):
        result = sweep(
            config(backend, source=source, stream=stream), {**grid, "learner.epsilon": [0.5]}, tmp_path / backend
        )
        assert (result.exit_code, result.status, result.summary["failed"]) == (2, "completed", 1)
        tables.append(untimed(result.table))
    skipped, failed = tables[0]
    assert tables[0] == tables[1]
    assert (skipped["refused"], skipped["deletes"], skipped["error"]) == (1, 2, None)
    assert "log.parquet, row 2" in failed["error"]
    assert "'nobody'" in failed["error"]
    assert (failed["updates"], failed["accuracy"], failed["digest"]) == (252, None, None)


def test_what_is_left_behind(here):
    folder = Path(here.path)
    assert {file.name for file in folder.iterdir()} == {
        "config.yaml", "sweep.parquet", "curves.parquet", "sweep.json", "sweep.html", "log.jsonl",
    }  # fmt: skip
    assert pq.read_table(folder / "sweep.parquet").equals(here.table)
    summary = json.loads((folder / "sweep.json").read_text())
    assert summary == here.summary
    assert summary["grid"] == {"learner.epsilon": [0.1, 0.2, 0.3], "stream.window": [200, 300]}
    accuracy = here.table["accuracy"].to_pylist()
    best = summary["best"]["accuracy"]
    assert (best["value"], best["setting"]) == (max(accuracy), accuracy.index(max(accuracy)))
    assert here.best["accuracy"]["values"].keys() == {"learner.epsilon", "stream.window"}
    assert pipelines.load_config(folder / "config.yaml").learner.epsilon == 0.1


@pytest.mark.parametrize("backend", ["in_process", pytest.param("ray", marks=pytest.mark.ray)])
def test_trials_have_rows_of_their_own(tmp_path, backend, request):
    if backend == "ray":
        request.getfixturevalue("cluster")
    trials = "source.permutation=5,6"
    grid = [trials, "learner.epsilon=0.1,0.5", "learner.min_samples_split=2,20"]
    done = sweep(config(backend), grid, tmp_path / "sweep")
    rows = done.table.to_pylist()
    assert [(row["source.permutation"], row["learner.min_samples_split"]) for row in rows] == [
        *[(5, 2), (5, 20)] * 2, *[(6, 2), (6, 20)] * 2,
    ]  # fmt: skip
    assert len({row["digest"] for row in rows}) == 8
    for row in rows[::7]:
        keys = [key for key in row if key.startswith(("source.", "learner.")) and row[key] is not None]
        sets = [f"{key}={row[key]}" for key in keys]
        summary = replay(config(), tmp_path / str(row["setting"]), overrides=sets).summary
        assert (row["digest"], row["accuracy"]) == (summary["model_digest"], summary["metrics"]["accuracy"])
    metrics = pq.read_table(tmp_path / "0" / "metrics").to_pylist()
    curve = [moment for moment in done.curves.to_pylist() if moment["setting"] == 0]
    assert [(m["updates"], m["leaves"], m["accuracy"]) for m in curve] == [
        (m["seq"], m["leaves"], m["accuracy"]) for m in metrics if m["seq"] % 500 == 0
    ]
    assert done.summary["trials"] == 2
    best = done.best["accuracy"]
    means = [np.mean([rows[setting]["accuracy"], rows[setting + 4]["accuracy"]]) for setting in range(4)]
    assert best["value"] == pytest.approx(max(means))
    assert "source.permutation" not in best["values"]
    page = (tmp_path / "sweep" / "sweep.html").read_text()
    command = html.unescape(re.search(r"<code>(raydt replay .*)</code>", page)[1])
    sets = [word for word in shlex.split(command)[3:] if word != "--set"]
    again = replay(tmp_path / "sweep" / "config.yaml", tmp_path / "again", overrides=sets).summary
    assert again["model_digest"] == rows[best["setting"]]["digest"]
    assert "2; numbers are their means" in page


def test_the_command_replays_the_best_setting_also_of_another_learner(tmp_path):
    """Options that the first setting's learner has, with other defaults, are not taken over."""
    done = sweep(config(learner={"kind": "fudyadt"}), ["learner.kind=fudyadt,forest"], tmp_path / "sweep")
    best = done.table.to_pylist()[done.best["accuracy"]["setting"]]
    assert best["learner.kind"] == "forest"
    page = (tmp_path / "sweep" / "sweep.html").read_text()
    command = html.unescape(re.search(r"<code>(raydt replay .*)</code>", page)[1])
    sets = [word for word in shlex.split(command)[3:] if word != "--set"]
    again = replay(tmp_path / "sweep" / "config.yaml", tmp_path / "again", overrides=sets).summary
    assert again["model_digest"] == best["digest"]


def test_a_trial_whose_rows_break_off_fails_alone(tmp_path, monkeypatch):
    pq.write_table(pa.table({"x": np.arange(60.0), "y": [0, 1] * 30}), tmp_path / "data.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "data.parquet")}
    first = job.Trial.read

    def read(trial):
        if trial.configs[0].source.permutation == 2:
            raise InputError("it is gone", file="data.parquet", row=0)
        return first(trial)

    monkeypatch.setattr(job.Trial, "read", read)
    one = config(source=source, stream={"model": "incremental"})
    done = sweep(one, ["source.permutation=1:3:1", "learner.epsilon=0.1,0.2"], tmp_path / "a")
    assert done.table["error"].to_pylist() == [None, None, *["data.parquet, row 0: it is gone"] * 2, None, None]
    assert (done.exit_code, done.summary["failed"]) == (2, 2)


def failures(done):
    """Exit code, and the errors of the settings."""
    assert done.table["setting"].to_pylist() == [*range(len(done.table))]
    return done.exit_code, done.table["error"].to_pylist()


def test_a_setting_that_is_not_valid_does_not_stop_the_others(tmp_path):
    code, (bad, good) = failures(sweep(config(), ["learner.epsilon=-0.1,0.1"], tmp_path / "a"))
    assert (code, good) == (2, None)
    assert bad.startswith("learner: epsilon must be")  # the table has the setting beside it
    one = config(stream={"model": "incremental"}, learner={"kind": "fudyadt"})
    code, (good, bad) = failures(sweep(one, {"stream.model": ["incremental", "changelog"]}, tmp_path / "b"))
    assert (code, good) == (2, None)
    assert "source.op" in bad


def test_settings_of_which_none_is_valid_are_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(job, "run_setting", None)
    with pytest.raises(ConfigError, match=r"config with learner.epsilon=-0.2: learner: epsilon must be"):
        sweep(config(), ["learner.epsilon=-0.2,-0.1"], tmp_path / "a")
    numeric = config(learner={"kind": "fudyadt", "criterion": "squared_error"})
    with pytest.raises(ConfigError, match=r"^with learner.epsilon=0.1: a sweep compares accuracies"):
        sweep(numeric, ["learner.epsilon=0.1,0.2"], tmp_path / "a")
    with refused("configs.needless_address", ConfigError, address="auto"):
        sweep(config(), ["learner.epsilon=0.1"], tmp_path / "a", address="auto")
    assert not (tmp_path / "a").exists()


def test_a_bad_row_stops_the_sweep_before_it_begins_unless_all_pass_over_it(tmp_path):
    rows = {"x": [0.5, 0.6, *range(40)], "y": [0, None] + [0, 1] * 20}
    pq.write_table(pa.table(rows), tmp_path / "data.parquet")
    one = config(source={"kind": "parquet", "path": str(tmp_path / "data.parquet")}, stream={"model": "incremental"})
    with pytest.raises(InputError, match="row 1, column 'y'"):
        sweep(one, ["learner.epsilon=0.1,0.2"], tmp_path / "a")
    assert not (tmp_path / "a").exists()
    result = sweep(one, ["learner.epsilon=0.1,0.2"], tmp_path / "a", overrides=["stream.on_error=skip"])
    assert result.table["skipped"].to_pylist() == [1, 1]


def test_finders_are_compared_where_all_take_the_features_of_the_source(tmp_path):
    lists = pa.array([[0, i % 7 + 1] if i % 2 else [i % 5 + 8] for i in range(60)], pa.list_(pa.int32()))
    columns = {"ones": lists, "size": np.arange(60.0), "y": ["a", "b"] * 30}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "t.parquet"), "label": "y"}
    learner = {"kind": "sparse_tree", "alpha": 0.05, "beta": 0.05}
    stream = {"model": "sliding_window", "window": 20, "warmup": 10}
    both = "learner.finder=updgini,updent"
    sparse = config(source={**source, "features": ["ones"]}, stream=stream, learner=learner)
    done = sweep(sparse, [both], tmp_path / "sparse")
    assert done.table["error"].to_pylist() == [None, None]
    mixed = config(source=source, stream=stream, learner=learner)
    code, (good, bad) = failures(sweep(mixed, [both], tmp_path / "mixed"))
    assert (code, good) == (2, None)
    assert "the features 'size' are" in bad
    code, (bad, good) = failures(sweep(sparse, ["learner.kind=fudyadt,sparse_tree"], tmp_path / "exact"))
    assert (code, good) == (2, None)
    assert "sparse" in bad


def test_a_used_folder_is_refused_and_replaced_on_demand(here, tmp_path):
    grid = ["learner.epsilon=0.5"]
    small = config(source={"kind": "synthetic", "generator": "sea", "n": 400})
    first = sweep(small, grid, tmp_path / "a")
    with refused("runs.other_run", ConfigError, status="completed"):
        sweep(small, grid, tmp_path / "a")
    again = sweep(small, grid, tmp_path / "a", overwrite=True)
    assert untimed(again.table) == untimed(first.table)


def test_the_command_line(tmp_path, capsys):
    file = tmp_path / "my.yaml"
    file.write_text(json.dumps(config(source={"kind": "synthetic", "generator": "sea", "n": 600})))
    arguments = ["sweep", str(file), "--grid", "learner.epsilon=0.1:4:0.1", "--out", str(tmp_path / "a")]
    assert cli.main(args=arguments, standalone_mode=False) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[:2] == ["learner.epsilon", "Updates/s"]
    assert out[31] == message("sweeps.best_shown", shown=30, settings=40)
    assert out[-1].endswith("/a/sweep.html")
    assert cli.main(args=[*arguments, "--overwrite", "--json"], standalone_mode=False) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["table"]) == printed["done"] == 40


@pytest.mark.parametrize("backend", ["in_process", pytest.param("ray", marks=pytest.mark.ray)])
def test_a_signal_keeps_what_is_done(tmp_path, backend):
    """200 settings that take a minute; SIGINT after the first few."""
    file = tmp_path / "my.yaml"
    file.write_text(json.dumps(config(backend, source={"kind": "synthetic", "generator": "sea", "n": 20_000})))
    out = tmp_path / "a"
    command = [sys.executable, "-m", "pipelines.cli", "sweep", str(file), "--grid", "learner.epsilon=0.001:0.2:0.001"]
    process = subprocess.Popen(
        [*command, "--out", str(out)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    give_up = time.monotonic() + 120
    log = out / "log.jsonl"
    while time.monotonic() < give_up and (not log.exists() or log.read_text().count("\n") < 2):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    summary = json.loads((out / "sweep.json").read_text())
    assert (summary["status"], summary["exit_reason"], summary["exit_code"]) == ("interrupted", "SIGINT", 130)
    done = pq.read_table(out / "sweep.parquet")
    assert 2 <= len(done) == summary["done"] < 200
    assert done["error"].null_count == len(done)
    if printed:
        assert f"{len(done)} of 200 done" in printed
        assert "interrupted (SIGINT)" in printed
    else:  # leaving Ray took longer than a signal leaves time for: what is done is said on stderr
        assert f"{message('sweeps.interrupted', done=len(done), settings='200 settings')}\n" in errors
