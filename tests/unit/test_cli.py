"""The command line: exit codes, what goes to stdout and what to stderr, and an example in every help."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from pipelines.cli import cli, main
from pipelines.yaml12 import dump_yaml

ROOT = Path(__file__).parents[2]
JOB = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 500},
    "stream": {"model": "incremental"},
    "learner": {"kind": "fudyadt", "max_depth": 3},
    "cluster": {"backend": "in_process"},
    "output": {"report": False},
}


@pytest.fixture
def raydt(capfd):
    """Run a command; gives exit code, stdout and stderr."""

    def run(*arguments):
        before = list(logging.getLogger().handlers)
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        logging.getLogger().handlers[:] = before
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def job(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(dump_yaml(JOB))
    return file


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_help_has_an_example_that_parses(command, raydt):
    code, out, _ = raydt(command, "--help")
    assert code == 0
    example = re.search(r"Example:\s+raydt (.*)", out).group(1).split()
    assert example[0] == command
    assert cli.commands[command].make_context(command, example[1:]).params is not None


def test_commands_are_those_that_work():
    assert set(cli.commands) == {"demo", "replay", "predict", "audit", "report", "validate", "warmup", "doctor"}


def test_version_and_no_arguments(raydt):
    assert raydt("--version")[1].startswith("raydt, version ")
    assert "replay" in "".join(raydt()[1:])


def test_results_are_on_stdout_and_progress_on_stderr(raydt, job, tmp_path):
    code, out, err = raydt("replay", job, "--out", tmp_path / "run", "--json")
    assert code == 0
    assert json.loads(out)["updates"] == 500
    assert json.loads(out)["path"] == str(tmp_path / "run")
    assert err == "starting fudyadt with 2 shards in this process\n"


def test_the_text_names_the_run_and_the_baselines(raydt, job, tmp_path):
    _, out, _ = raydt("replay", job, "--out", tmp_path / "run")
    assert str(tmp_path / "run") in out
    assert re.search(r"accuracy\s+0\.\d{3}  \(no change 0\.\d{3}, majority 0\.\d{3}\)", out)


def test_set_reaches_the_config(raydt, job, tmp_path):
    raydt("replay", job, "--out", tmp_path / "run", "--set", "source.n=77", "--set", "learner.epsilon=1e-2")
    assert "epsilon: 0.01" in (tmp_path / "run" / "config.yaml").read_text()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["updates"] == 77


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "absent.yaml"], "absent.yaml: cannot read the config"),
        (["replay", "{job}", "--set", "learner.epsilom=1"], "Did you mean 'epsilon'?"),
        (["replay", "{job}", "--out", "{here}"], "not empty"),
        (["replay", "{job}", "--frobnicate"], "No such option"),
        (["validate"], "give a CONFIG, or --schema"),
        (["audit", "{here}"], "no finished run"),
        (["predict", "{here}", "x.parquet", "--out", "y.parquet"], "no model is here"),
        (["report", "{here}"], "not a run folder"),
    ],
)
def test_bad_input_is_code_2_with_one_message_on_stderr(raydt, job, tmp_path, arguments, said):
    code, out, err = raydt(*(argument.format(job=job, here=tmp_path) for argument in arguments))
    assert code == 2
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_a_violated_guarantee_is_code_3(raydt, job, tmp_path):
    import numpy as np

    from raydt.persistence import load_folder, save_folder

    raydt("replay", job, "--out", tmp_path / "run")
    assert raydt("audit", tmp_path / "run")[0] == 0
    state = tmp_path / "run" / "checkpoints" / "500"
    meta, components = load_folder(state, "state")
    threshold = components["coordinator"]["threshold"]
    components["coordinator"]["threshold"] = np.where(threshold != 0, threshold + 0.5, threshold)
    save_folder(state, "state", {k: v for k, v in meta.items() if k not in ("kind", "raydt_version")}, components)
    code, out, _ = raydt("audit", tmp_path / "run")
    assert code == 3
    assert re.search(r"conformance\s+violated", out)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["audit"]["ok"] is False


def test_predict_writes_what_it_says(raydt, job, tmp_path):
    raydt("replay", job, "--out", tmp_path / "run")
    (tmp_path / "new.csv").write_text("x0,x1,x2,other\n1,2,3,a\n9,9,9,b\n")
    code, out, _ = raydt(
        "predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "p" / "out.parquet", "--json"
    )
    assert (code, json.loads(out)["rows"]) == (0, 2)
    assert (tmp_path / "p" / "out.parquet").exists()


def test_report_of_several_runs(raydt, job, tmp_path):
    for name in ("a", "b"):
        raydt("replay", job, "--out", tmp_path / name)
    assert raydt("report", tmp_path / "a")[1].strip() == str(tmp_path / "a" / "report.html")
    code, out, _ = raydt("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both.html")
    assert (code, out.strip()) == (0, str(tmp_path / "both.html"))
    assert (tmp_path / "both.html").stat().st_size > 1000


class TestValidate:
    def test_says_what_would_be_read(self, raydt, job):
        code, out, _ = raydt("validate", job, "--json")
        result = json.loads(out)
        assert code == 0
        assert (result["rows"], result["updates"], len(result["features"])) == (500, 500, 3)

    def test_finds_bad_rows_in_the_first_ones(self, raydt, tmp_path):
        (tmp_path / "data.csv").write_text("a,y\n1,u\n,v\n")
        config = {"source": {"kind": "csv", "path": "data.csv"}, "learner": {"kind": "fudyadt"}}
        (tmp_path / "job.yaml").write_text(dump_yaml(config))
        code, out, _ = raydt("validate", tmp_path / "job.yaml")
        assert code == 2
        assert "row 1, column 'a'" in out
        skip = ("--set", "stream.model=incremental", "--set", "stream.on_error=skip")
        assert raydt("validate", tmp_path / "job.yaml", *skip)[0] == 0

    def test_prints_the_schema(self, raydt):
        code, out, _ = raydt("validate", "--schema")
        assert code == 0
        assert {"source", "stream", "learner"} <= json.loads(out)["properties"].keys()

    @pytest.mark.parametrize("name", ["fudyadt", "laptop", "cluster"])
    def test_configs_of_the_repository_can_be_run(self, raydt, name):
        assert raydt("validate", ROOT / "configs" / f"{name}.yaml")[0] == 0


def test_doctor_prints_facts(raydt):
    code, out, _ = raydt("doctor", "--json")
    assert code == 0
    assert {"raydt", "ray", "cpus", "numba_cache_dir", "ray_auth_mode"} <= json.loads(out).keys()
    assert "numba cache dir" in raydt("doctor")[1]
