"""No command writes over what it reads, nor into a run, a model or a state, by whatever name the place is called."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_job import JOB

from pipelines.operation import dump_yaml
from pipelines.saved_runs import Input, require_apart
from raydt.errors import ConfigError
from tests.refusals import refused


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}


@pytest.fixture
def place(tmp_path, raydt, job):
    """A run, a state made of it, data under several names, and the working directory."""
    assert raydt("replay", job, "--out", tmp_path / "run")[0] == 0
    pq.write_table(pa.table({f"x{i}": [1.0, 2.0] for i in range(3)}), tmp_path / "x.parquet")
    (tmp_path / "more").mkdir()
    pq.write_table(pa.table({f"x{i}": [1.0, 2.0] for i in range(3)}), tmp_path / "more" / "x.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "x.parquet")
    os.link(tmp_path / "x.parquet", tmp_path / "hard.parquet")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "run")
    pq.write_table(pa.table({"id": [3]}), tmp_path / "ids.parquet")
    assert raydt("update", tmp_path / "run", "--delete", tmp_path / "ids.parquet", "--out", tmp_path / "state")[0] == 0
    return tmp_path


def assert_refused(raydt, place, said, *command):
    before = contents(place)
    code, out, err = raydt(*command)
    assert (code, out) == (2, ""), err
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert contents(place) == before


@pytest.mark.parametrize(
    ("data", "out", "said"),
    [
        ("x.parquet", "x.parquet", "this is DATA itself"),
        ("x.parquet", "more/../x.parquet", "this is DATA itself"),
        ("x.parquet", "link.parquet", "this is DATA itself"),
        ("x.parquet", "hard.parquet", "this is DATA itself"),
        ("link.parquet", "hard.parquet", "this is DATA itself"),
        ("*.parquet", "hard.parquet", "this is a file of DATA itself"),
        ("more", "more/x.parquet", "it lies in DATA"),
        ("more", "more/new.parquet", "it lies in DATA"),
        ("x.parquet", "run/metrics/part-00001.parquet", "it lies in MODEL"),
        ("x.parquet", "elsewhere/metrics/part-00001.parquet", "it lies in MODEL"),
        ("x.parquet", "run/metrics/part-00000.parquet", "it lies in MODEL"),
        ("x.parquet", "sweep/new.parquet", "sweep, a run"),
        ("x.parquet", "state/new.parquet", "state, a run"),
    ],
)
def test_predictions(raydt, place, data, out, said):
    (place / "ids.parquet").unlink()  # of other columns
    (place / "sweep").mkdir()
    for name in ("config.yaml", "sweep.json"):
        (place / "sweep" / name).touch()
    assert_refused(raydt, place, said, "predict", place / "run", place / data, "--out", place / out, "--overwrite")


def test_predictions_beside_their_input_are_written(raydt, place):
    for data, out in (("x.parquet", "more/y.parquet"), ("more/x*", "more/y.parquet"), ("x.parquet", "more/x.parquet")):
        code, _, err = raydt("predict", place / "run", place / data, "--out", place / out, "--overwrite")
        assert code == 0, err


@pytest.mark.parametrize("state", ["run", "state"])
@pytest.mark.parametrize("out", ["run/new", "elsewhere/checkpoints/new", "state/new"])
def test_a_new_state(raydt, place, state, out):
    command = ("update", place / state, "--delete", place / "ids.parquet", "--out", place / out)
    assert_refused(raydt, place, "--out", *command)


@pytest.mark.parametrize("command", [["replay"], ["sweep", "--grid", "learner.epsilon=0.1,0.2"]])
@pytest.mark.parametrize(
    ("path", "out", "said"),
    [
        ("run/more", "run", "source.path lies in it"),
        ("elsewhere/more/*.parquet", "run", "source.path lies in it"),
        ("run/more/y.parquet", "elsewhere", "source.path lies in it"),
        ("more", "more/run", "it lies in source.path"),
        ("mo**", "more/run", "it lies in source.path"),
        ("more/y.parquet", "run/metrics/new", "run, a run"),
        ("more/y.parquet", "state/new", "state, a run"),
    ],
)
def test_a_run_and_a_sweep(raydt, place, command, path, out, said):
    for folder in (place / "more", place / "run" / "more"):
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": [1.0, 2.0], "y": ["u", "v"]}), folder / "y.parquet")
    (place / "job2.yaml").write_text(dump_yaml({**JOB, "source": {"kind": "parquet", "path": path}}))
    assert_refused(raydt, place, said, *command, place / "job2.yaml", "--out", place / out, "--overwrite")


def test_the_config_is_not_removed_with_its_run(raydt, place):
    run = place / "run"
    said = f"CONFIG lies in it ({run}/config.yaml)"
    assert_refused(raydt, place, said, "replay", run / "config.yaml", "--out", run, "--overwrite")


def test_checkpoints(raydt, place, job):
    command = ("replay", job, "--out", place / "new", "--set")
    assert_refused(raydt, place, "run, a run", *command, f"checkpoint.path={place}/elsewhere/metrics")
    assert not (place / "new").exists()
    own = f"checkpoint.path={place}/run/states"
    assert raydt("replay", job, "--out", place / "run", "--overwrite", "--set", own)[0] == 0


@pytest.mark.parametrize("out", ["run/comparison.html", "run/report.html", "elsewhere/metrics/x.html", "state/x.html"])
def test_a_comparison(raydt, place, job, out):
    raydt("replay", job, "--out", place / "other")
    command = ("report", place / "run", place / "other", "--out", place / out)
    assert_refused(raydt, place, "a run, model", *command)


def test_a_report_in_its_own_run_is_written(raydt, place):
    assert raydt("report", place / "run", "--out", place / "elsewhere" / "report.html")[0] == 0
    before = contents(place)
    assert raydt("report", place / "state" / ".." / "run", "--out", place / "run" / "notes.html")[0] == 2
    assert contents(place) == before


def test_uris_are_compared_by_their_text():
    with refused("outputs.around_input", ConfigError, name="source.path"):
        require_apart("--out", "s3://bucket/run", [Input("source.path", "s3://bucket/run/data/*.parquet")])
    with refused("outputs.same", ConfigError, name="DATA"):
        require_apart("--out", "s3://bucket/x", [Input("DATA", "s3://bucket/x/")])
    require_apart("--out", "s3://bucket/run", [Input("source.path", "s3://bucket/runs/x"), Input("CONFIG", "job.yaml")])
    with refused("outputs.same", ConfigError, name="DATA"):
        require_apart("--out", str(Path(__file__)), [Input("DATA", Path(__file__).as_uri())])
