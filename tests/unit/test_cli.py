"""Commands, their options, and what validate says."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.placement import Placement
from pipelines.cli import cli
from pipelines.config import load_config
from pipelines.display import STARTING_RAY, updates
from pipelines.operation import dump_yaml
from pipelines.running.intake import Incarnations
from raydt import OnlineGradientBoostingClassifier
from raydt.errors import RaydtError
from raydt.examples.updates import MOST_CLASSES, Features
from raydt.learners import described, for_numbers
from raydt.messages import message
from tests.unit.updatable import JOB

# -- cli -------------------------------------------------------------------------------------------------------------
# The command line: exit codes, what goes to stdout and what to stderr, and an example in every help.

ROOT = Path(__file__).parents[2]
FOUR_SHARDS = message("configs.idle_shards", shards=4, cause="3 features", most=3)


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_help_has_an_example_that_parses(command, raydt):
    code, out, _ = raydt(command, "--help")
    assert code == 0
    example = re.search(r"Example:(?:.*\n)*?.*raydt (.*)", out).group(1).split()
    assert example[0] == command
    assert cli.commands[command].make_context(command, example[1:]).params is not None


def test_commands_are_those_that_work():
    expected = (
        "audit demo doctor export follow predict purge replay report resume serve sweep train update validate "
        "value verify"
    )
    assert sorted(cli.commands) == expected.split()


def test_doctor_compiles_all_kernels(raydt, monkeypatch):
    monkeypatch.setattr("pipelines.doctor.compile_all", lambda: {"gbdt": 1.5})
    code, out, _ = raydt("doctor", "--compile")
    assert code == 0
    assert re.search(r"compiled gbdt +1\.5 s", out)


@pytest.mark.parametrize(
    ("command", "instead"),
    [("warmup", "raydt doctor --compile"), ("explain", "raydt predict MODEL DATA --explain ROW")],
)
def test_a_retired_command_names_what_to_use_instead(raydt, command, instead):
    code, _, err = raydt(command, "runs/first", "new.csv")
    assert code == 2
    assert message("commands.retired", command=command, instead=instead) in err


def test_version_and_no_arguments(raydt):
    assert raydt("--version")[1].startswith("raydt, version ")
    assert "replay" in "".join(raydt()[1:])


def test_results_are_on_stdout_and_progress_on_stderr(raydt, job, tmp_path):
    code, out, err = raydt("replay", job, "--out", tmp_path / "run", "--json")
    assert code == 0
    assert json.loads(out)["updates"] == 500
    assert json.loads(out)["path"] == str(tmp_path / "run")
    assert err == message("runs.starting", learner="fudyadt", where=message("runs.in_process")) + "\n"


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
        (
            ["replay", "absent.yaml"],
            message("configs.unreadable", reason="No such file or directory").at("absent.yaml"),
        ),
        (["replay", "{job}", "--set", "learner.epsilom=1"], message("configs.misspelt_key", close="'epsilon'")),
        (["replay", "{job}", "--out", "{here}"], "not empty"),
        (["replay", "{job}", "--frobnicate"], "No such option"),
        (["validate"], message("commands.no_config")),
        (["audit", "{here}"], message("runs.no_summary")),
        (["predict", "{here}", "x.parquet", "--out", "y.parquet"], message("models.no_model")),
        (["replay", "{job}", "--out", "{job}/x"], "cannot be created"),
        (["replay", "{job}", "--address", "auto"], message("configs.unused_key", key="address")),
        (["replay", "{job}", "--set", "cluster.shards=4"], FOUR_SHARDS),
        (["validate", "{job}", "--set", "cluster.shards=4"], FOUR_SHARDS),
        (["report", "{here}"], message("reports.no_run")),
        (["predict", "{here}", "x.csv"], message("commands.out_or_explain")),
        (["predict", "{here}", "x.csv", "--out", "y.pq", "--explain", "0"], message("commands.out_or_explain")),
        (["predict", "{here}", "x.csv", "--explain", "0", "--id", "id"], message("commands.only_with_out")),
        (["predict", "{here}", "x.csv", "--out", "y.pq", "--tree", "0"], message("commands.only_with_explain")),
    ],
)
def test_bad_input_is_code_2_with_one_message_on_stderr(raydt, job, tmp_path, arguments, said):
    code, out, err = raydt(*(argument.format(job=job, here=tmp_path) for argument in arguments))
    assert code == 2
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_a_bad_row_is_one_line_and_its_traceback_is_in_the_log(raydt, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.display.Lines.advance", lambda *_: None)  # a busy machine has time for a line
    (tmp_path / "data.csv").write_text("a,y\n1,u\n2,\n")
    config = {**JOB, "source": {"kind": "csv", "path": "data.csv"}}
    (tmp_path / "job.yaml").write_text(dump_yaml(config))
    code, out, err = raydt("replay", tmp_path / "job.yaml", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert [line.split()[0] for line in err.splitlines()[1:]] == ["error:", "kept:"]
    assert "row 1, column 'y'" in err
    assert err.splitlines()[-1] == message("runs.kept_model", updates="1 update", run=tmp_path / "run").at("kept")
    assert "Traceback" in (tmp_path / "run" / "log.jsonl").read_text()
    code, _, err = raydt("replay", tmp_path / "job.yaml", "--out", tmp_path / "run")
    assert code == 2
    assert message("runs.other_run", status="failed") in err
    out = raydt("audit", tmp_path / "run")[1]
    assert re.match(r"run +failed \(InputError\); audited at update 1\n", out)
    fixed = ("--set", "stream.on_error=skip", "--overwrite")
    code, out, _ = raydt("replay", tmp_path / "job.yaml", "--out", tmp_path / "run", *fixed)
    assert code == 0
    assert "skipped      1 bad row, 0 refused updates; see quarantine/" in out


def test_a_signal_at_the_start_leaves_nothing(raydt, job, tmp_path, monkeypatch):
    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("pipelines.running.loop.Incarnations", interrupted)
    code, out, err = raydt("replay", job, "--out", tmp_path / "run")
    assert (code, out) == (130, "")
    assert err.endswith("\ninterrupted\n")
    assert not (tmp_path / "run").exists()


def test_the_parts_of_the_updates_add_up():
    counts = {"updates": 23, "inserts": 12, "deletes": 7, "replaced": 3, "queries": 4, "refused": 3}
    assert updates(counts) == "23: 9 inserted, 4 deleted, 3 replaced, 4 only predicted, 3 refused"


@pytest.mark.parametrize("command", ["replay", "sweep", "doctor"])
def test_the_start_of_ray_is_announced(raydt, job, tmp_path, monkeypatch, command):
    """It takes seconds; a connection, which is quick, is not announced."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("actors.cluster._is_connected", lambda: False)

    def connect(*_, **__):
        sys.stderr.write("connecting\n")
        raise RaydtError("not now")

    monkeypatch.setattr("pipelines.running.intake.connect", connect)
    monkeypatch.setattr("actors.cluster.connect", connect)
    ray = ("--set", "cluster.backend=ray", "--out", tmp_path / "out")
    arguments = {"replay": (job, *ray), "sweep": (job, "--grid", "learner.beta=0.1,0.2", *ray), "doctor": ("--ray",)}
    code, out, err = raydt(command, *arguments[command])
    assert (code, out) == (1, "")
    lines = [line for line in err.splitlines() if not line.startswith("compiling")]  # as the first run here does
    assert lines[-3:] == [STARTING_RAY, "connecting", "error: not now"]
    if command == "replay":
        assert STARTING_RAY not in raydt("replay", job, *ray, "--address", "127.0.0.1:1")[2]


def test_what_ray_prints_goes_to_the_log_and_not_to_stdout(job, capsys, caplog, monkeypatch):
    def printing(*_, **__):
        sys.stdout.write("(raylet) WARNING\n")
        return SimpleNamespace(close=lambda: sys.stdout.write("closed\n"))

    monkeypatch.setattr("pipelines.running.intake.connect", printing)
    caplog.set_level(logging.INFO, "pipelines")
    config = load_config(job, ["cluster.backend=ray"]).placed(Placement(1, "on Ray"))
    with Incarnations(config, Features(("a",), (False,))):
        pass
    sys.stdout.write("result\n")
    assert capsys.readouterr() == ("result\n", "")
    messages = [record.message for record in caplog.records if getattr(record, "event", "") == "ray"]
    assert messages == ["(raylet) WARNING", "closed"]


def test_help_lists_the_exit_codes_and_whole_sentences(raydt):
    out = raydt("--help")[1]
    assert re.search(r"\b3 +a guarantee is violated", out)
    assert "..." not in out.split("Commands:")[1]


def test_a_violated_guarantee_is_code_3(raydt, job, tmp_path):
    import numpy as np

    from raydt.folders.arrays import load_folder, save_folder

    raydt("replay", job, "--out", tmp_path / "run")
    assert raydt("audit", tmp_path / "run")[0] == 0
    state = tmp_path / "run" / "checkpoints" / "500"
    meta, components = load_folder(state, "state")
    threshold = components["coordinator"]["threshold"]
    components["coordinator"]["threshold"] = np.where(threshold != 0, threshold + 0.5, threshold)
    save_folder(
        state,
        "state",
        {k: v for k, v in meta.items() if k not in ("kind", "raydt_version", "format_version")},
        components,
    )
    code, out, _ = raydt("audit", tmp_path / "run")
    assert code == 3
    assert re.search(r"conformance\s+violated", out)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["audit"]["ok"] is False


class TestPredictedFiles:
    @pytest.fixture
    def run(self, raydt, job, tmp_path):
        raydt("replay", job, "--out", tmp_path / "run")
        (tmp_path / "new.csv").write_text("key,x0,x1,x2\na,1,2,3\nb,inf,2,3\n,9,9,9\n")
        return tmp_path / "run"

    def test_ids_come_along_and_rows_keep_their_order(self, raydt, run, tmp_path):
        command = ("predict", run, tmp_path / "new.csv", "--out", tmp_path / "p" / "out.parquet", "--id", "key")
        code, _, err = raydt(*command)
        assert code == 2
        assert "row 1, column 'x0': an infinite value" in err
        assert "--on-error skip" in err
        assert "source.features" not in err
        assert "stream.on_error" not in err
        assert not (tmp_path / "p").exists()
        code, out, err = raydt(*command, "--on-error", "skip")
        assert code == 0
        assert out.startswith("2 predictions in ")
        assert err.startswith("warning: skipped 1 bad row; ")
        rows = pq.read_table(tmp_path / "p" / "out.parquet").to_pylist()
        assert list(rows[0]) == ["key", "prediction", "p_0", "p_1"]
        assert [row["key"] for row in rows] == ["a", "b", None]
        assert [row["prediction"] is None for row in rows] == [False, True, False]
        assert [row["p_1"] is None for row in rows] == [False, True, False]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["new.csv", "--out", "out.csv"], message("outputs.other_name", kind="Parquet", ends=".parquet or .pq")),
            (["new.csv", "--out", "new.csv/out.parquet"], "the predictions cannot be"),
            (["new.csv", "--out", "there.parquet"], message("outputs.exists")),
            (["new.csv", "--out", "s3://bucket/out.parquet"], message("outputs.not_local")),
            (["new.csv", "--out", "folder.pq"], message("outputs.is_folder", kind="Parquet")),
            (["new.csv", "--out", "out.parquet", "--id", "kez"], "column 'kez': --id names"),
            (["less.csv", "--out", "out.parquet"], message("updates.no_feature", columns="x0, x1")),
        ],
    )
    def test_what_cannot_be_done_is_said(self, raydt, run, tmp_path, monkeypatch, arguments, said):
        (tmp_path / "less.csv").write_text("x0,x1\n1,2\n")
        (tmp_path / "there.parquet").write_text("")
        (tmp_path / "folder.pq").mkdir()
        monkeypatch.chdir(tmp_path)
        code, out, err = raydt("predict", run, *arguments)
        assert (code, out) == (2, "")
        assert said in err
        assert len(err.splitlines()) == 1
        assert (tmp_path / "there.parquet").read_text() == ""

    def test_ids_that_cannot_be_copied_are_an_error(self, raydt, run, tmp_path):
        (tmp_path / "new.csv").write_text("p_1,x0,x1,x2\na,1,2,3\n")
        (tmp_path / "new").mkdir()
        for name, key in (("a", [1]), ("b", ["x"])):
            columns = {"key": key, **{f"x{i}": [1.0] for i in range(3)}}
            pq.write_table(pa.table(columns), tmp_path / f"new/{name}.parquet")
        for data, column, said in (("new.csv", "p_1", "taken_id"), ("new", "key", "mixed_ids")):
            out = tmp_path / "out.parquet"
            code, _, err = raydt("predict", run, tmp_path / data, "--out", out, "--id", column)
            assert (code, err) == (2, f"error: column '{column}': {message(f'predictions.{said}')}\n")
            assert not out.exists()

    def test_a_file_is_replaced_on_request(self, raydt, run, tmp_path):
        (tmp_path / "new.csv").write_text("x0,x1,x2\n1,2,3\n")
        (tmp_path / "out.pq").write_text("old")
        code, _, _ = raydt("predict", run, tmp_path / "new.csv", "--out", tmp_path / "out.pq", "--overwrite")
        assert (code, pq.read_table(tmp_path / "out.pq").num_rows) == (0, 1)


def test_report_of_several_runs(raydt, job, tmp_path):
    for name in ("a", "b"):
        raydt("replay", job, "--out", tmp_path / name)
    assert raydt("report", tmp_path / "a", tmp_path / "a")[:2] == (2, "")
    assert raydt("report", tmp_path / "a")[1].strip() == str(tmp_path / "a" / "report.html")
    code, out, _ = raydt("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both.html")
    assert (code, out.strip()) == (0, str(tmp_path / "both.html"))
    assert (tmp_path / "both.html").stat().st_size > 1000
    assert raydt("report", tmp_path / "a", "--out", tmp_path / "both.html")[0] == 0  # a page replaces a page


def test_a_report_replaces_nothing_but_a_page(raydt, job, tmp_path):
    raydt("replay", job, "--out", tmp_path / "run")
    for name, said in (
        ("precious.csv", message("outputs.other_name", kind="HTML", ends=".html")),
        ("precious.html", message("outputs.no_page")),
    ):
        (tmp_path / name).write_text("a,b\n1,2\n")
        code, out, err = raydt("report", tmp_path / "run", "--out", tmp_path / name)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert said in err
        assert (tmp_path / name).read_text() == "a,b\n1,2\n"


def test_a_sweep_is_no_run_to_report(raydt, job, tmp_path):
    raydt("sweep", job, "--grid", "learner.epsilon=0.5", "--out", tmp_path / "a")
    before = {file: file.read_bytes() for file in (tmp_path / "a").iterdir()}
    code, out, err = raydt("report", tmp_path / "a")
    assert (code, out) == (2, "")
    assert message("reports.sweep") in err
    assert {file: file.read_bytes() for file in (tmp_path / "a").iterdir()} == before


def test_categories_that_the_model_has_not_seen_are_counted(raydt, tmp_path):
    (tmp_path / "data.csv").write_text("a,s,t,y\n" + "1,p,m,u\n2,q,m,v\n" * 5)
    config = {**JOB, "source": {"kind": "csv", "path": "data.csv"}}
    (tmp_path / "job.yaml").write_text(dump_yaml(config))
    raydt("replay", tmp_path / "job.yaml", "--out", tmp_path / "run")
    (tmp_path / "new.csv").write_text("a,s,t\n1,r,m\n9,p,m\ninf,r,m\n3,z,m\n")
    command = ("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "out.parquet")
    _, _, err = raydt(*command, "--on-error", "skip")
    assert message("commands.unseen_categories", rows="2 rows", columns="s") + "\n" in err
    (tmp_path / "new.csv").write_text("a,s,t\n1,p,m\n9,q,m\n")
    assert raydt(*command, "--overwrite")[2] == ""


def test_doctor_prints_facts(raydt):
    code, out, _ = raydt("doctor", "--json")
    assert code == 0
    assert {"raydt", "ray", "cpus", "numba_cache_dir", "ray_auth_mode"} <= json.loads(out).keys()
    assert "numba cache dir" in raydt("doctor")[1]


def test_doctor_lists_the_port_that_shards_open(raydt, monkeypatch):
    monkeypatch.setattr("pipelines.doctor._ANSWER_SECONDS", 0.2)  # the port of a shard answers no HTTP

    def here(_cluster, work, parts):
        return ((0, work(shared, item)) for shared, items in parts for item in items)

    monkeypatch.setattr("actors.cluster.connect", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr("actors.keyed_session.run_tasks", here)
    code, out, _ = raydt("doctor", "--ray", "--json")
    assert code == 0
    (port,) = [one for one in json.loads(out)["listeners"] if one["process"] == message("verdicts.channel")]
    assert port["loopback"]
    assert not port["metrics"]


def test_an_audit_of_a_state_says_what_its_measures_are(raydt, tmp_path):
    X = [[float(i % 7)] for i in range(40)]
    model = OnlineGradientBoostingClassifier(max_iter=2).fit(X, [row[0] > 3 for row in X])
    model.save(tmp_path / "state", with_examples=True)
    code, out, _ = raydt("audit", tmp_path / "state")
    assert code == 0
    for name, said in described("gbdt").measures.items():  # also those whose names other learners have
        assert re.search(rf"worst {name} .*: {said.lower()}", out)


# -- cli validate ----------------------------------------------------------------------------------------------------
# What ``validate`` says of a config, its data and its promises.


class TestValidate:
    def test_says_what_would_be_read(self, raydt, job):
        code, out, _ = raydt("validate", job, "--json")
        result = json.loads(out)
        assert code == 0
        assert (result["rows"], result["updates"], len(result["features"])) == (500, 500, 3)

    def test_finds_bad_rows_in_the_first_ones(self, raydt, tmp_path):
        (tmp_path / "data.csv").write_text("a,y\n1,u\ninf,v\n")
        config = {"source": {"kind": "csv", "path": "data.csv"}, "learner": {"kind": "fudyadt"}}
        (tmp_path / "job.yaml").write_text(dump_yaml(config))
        code, out, _ = raydt("validate", tmp_path / "job.yaml")
        assert code == 2
        assert "row 1, column 'a'" in out
        assert "stream.on_error" in out
        bad = message("commands.first_rows", bad="1 bad row", rows="2 rows")
        assert out.splitlines()[-1].endswith(message("commands.bad_rows", bad=bad).at("job.yaml"))
        skip = ("--set", "stream.model=incremental", "--set", "stream.on_error=skip")
        code, out, _ = raydt("validate", tmp_path / "job.yaml", *skip)
        assert code == 0
        assert "stream.on_error" not in out
        assert out.splitlines()[-1].endswith(message("commands.valid_but", skipped=bad).at("job.yaml"))

    @pytest.mark.parametrize(
        ("option", "words"),
        [
            (
                "epsilon=auto",
                r"promised: after every update, .* 0.2 \(beta\) .* 0.498% of its rows",
            ),
            ("epsilon=0.004", r"promised: epsilon 0.004 is below"),
            ("epsilon=1.9", r"not promised: epsilon 1.9 .* 0.00497512"),
        ],
    )
    def test_says_whether_a_guarantee_is_promised(self, raydt, job, option, words):
        out = raydt("validate", job, "--set", f"learner.{option}")[1]
        assert re.search(rf"^guarantee +{words}", out, re.MULTILINE)

    def test_a_warmup_that_is_hardly_meant_is_a_warning(self, raydt, job):
        learner = ("--set", "stream.model=incremental", "--set", "learner={kind: confidence_tree, renew_bins: 0}")
        out = raydt("validate", job, *learner, "--set", "stream.warmup=500")[1]
        said = re.escape(message("configs.all_warmup", warmup=500, rows="500 rows"))
        assert re.search(rf"^warning +{said}", out, re.MULTILINE)
        out = raydt("validate", job, *learner, "--set", "stream.warmup=5")[1]
        assert re.search(rf"^outlook +{message('learners.few_rows', rows='5 rows')}$", out, re.MULTILINE)
        assert "warning" not in out
        out = raydt("validate", job, *learner, "--set", "stream.warmup=20")[1]
        assert re.search(rf"^outlook +{re.escape(message('learners.unexplained'))}$", out, re.MULTILINE)
        majority = ("--set", "learner.leaf_prediction=majority")
        assert "outlook" not in raydt("validate", job, *learner, *majority, "--set", "stream.warmup=20")[1]

    def test_a_deletion_log_is_counted_and_a_time_column_has_its_place(self, raydt, tmp_path):
        when = pa.array([0, 1], pa.timestamp("us"))
        pq.write_table(pa.table({"k": [1, 2], "a": [0.0, 1.0], "t": when, "y": [0, 1]}), tmp_path / "data.parquet")
        (tmp_path / "log.csv").write_text("id\n1\n")
        source = {"kind": "parquet", "path": "data.parquet", "id": "k"}
        stream = {"model": "deletion_log", "deletion_log": "log.csv"}
        (tmp_path / "job.yaml").write_text(dump_yaml({**JOB, "source": source, "stream": stream}))
        code, _, err = raydt("validate", tmp_path / "job.yaml")
        assert code == 2
        assert "set source.ts: t\n" in err
        code, out, _ = raydt("validate", tmp_path / "job.yaml", "--set", "source.ts=t")
        assert code == 0
        assert re.search(r"^deletion log +1 row$", out, re.MULTILINE)
        assert re.search(
            rf"^ids +{message('commands.all_ids', updates='3 updates', found=message('commands.right_ids'))}$",
            out,
            re.MULTILINE,
        )
        assert out.splitlines()[-1].endswith(message("commands.valid").at("job.yaml"))

    @pytest.mark.parametrize("ids", ["text", "integer", "row"])
    def test_ids_that_stop_a_replay_are_found(self, raydt, tmp_path, ids):
        """An id twice in the rows, an unknown id in the log, a deletion before its insertion, and one twice."""
        a, b, c, z = {"text": "abcz", "integer": "1239", "row": "0129"}[ids]
        rows = f"k,a,y\n{a},1,u\n{b},2,v\n{c},3,v\n" + f"{a},4,u\n" * (ids != "row")
        (tmp_path / "data.csv").write_text(rows)
        (tmp_path / "log.csv").write_text(f"id,after\n{c},1\n{z},2\n{a},\n{a},\n")
        source = {"kind": "csv", "path": "data.csv", **({"features": ["a"]} if ids == "row" else {"id": "k"})}
        stream = {"model": "deletion_log", "deletion_log": "log.csv"}
        (tmp_path / "job.yaml").write_text(dump_yaml({**JOB, "source": source, "stream": stream}))
        code, out, _ = raydt("validate", tmp_path / "job.yaml", "--json")
        found = json.loads(out)
        assert (code, found["ok"], found["stops_at"], found["ids_all"]) == (2, False, 1, True)
        said = found["bad_updates"]
        named = repr(c) if ids == "text" else c
        assert "log.csv, row 0: update 1: " in said[0]
        assert f"(id {named}); row 2 of {tmp_path}/data.csv" in said[0]
        assert "log.csv, row 1: update 3: " in said[1]
        assert "data.csv" not in said[1]
        assert "data.csv, row 3: " in said[2] or ids == "row"
        assert "log.csv, row 3: update" in said[-1]
        assert found["refused"] == len(said) == (3 if ids == "row" else 4)
        code, _, err = raydt("replay", tmp_path / "job.yaml", "--out", tmp_path / "run")
        assert code == 2
        assert "log.csv, row 0: update 1: " in err
        code, out, _ = raydt("validate", tmp_path / "job.yaml", "--set", "stream.on_error=skip")
        assert code == 0
        valid = message("commands.valid_but", skipped=f"{len(said)} bad updates")
        assert out.splitlines()[-1].endswith(valid.at("job.yaml"))

    def test_the_search_for_ids_is_bounded_and_says_so(self, raydt, tmp_path, monkeypatch):
        monkeypatch.setattr("pipelines.id_check.MOST_UPDATES", 3)
        (tmp_path / "data.csv").write_text("k,a,y\n1,1,u\n2,2,v\n3,3,v\n1,4,u\n")
        config = {**JOB, "source": {"kind": "csv", "path": "data.csv", "id": "k"}, "stream": {"model": "incremental"}}
        (tmp_path / "job.yaml").write_text(dump_yaml(config))
        code, out, _ = raydt("validate", tmp_path / "job.yaml")
        assert code == 0
        assert re.search(
            rf"^ids +{message('commands.other_ids', updates='3 updates', found=message('commands.right_ids'))}$",
            out,
            re.MULTILINE,
        )

    def test_each_key_has_live_ids_of_its_own(self, raydt, tmp_path):
        """A refused update of a key is found in its row of the file, and the row that comes too late for it, too."""
        rows = ["insert,u,1,1,p", "insert,v,1,2,q", "insert,u,1,3,p", "delete,u,1,,", "delete,v,1,,"]
        (tmp_path / "data.csv").write_text("op,g,k,a,y\n" + "".join(f"{row}\n" for row in rows))
        source = {"kind": "csv", "path": "data.csv", "op": "op", "key": "g", "id": "k", "features": ["a"]}
        (tmp_path / "job.yaml").write_text(dump_yaml({**JOB, "source": source, "stream": {"model": "changelog"}}))
        found = json.loads(raydt("validate", tmp_path / "job.yaml", "--json")[1])
        assert (found["ids_checked"], found["ids_all"], found["refused"], found["stops_at"]) == (5, True, 1, 1)
        (said,) = found["bad_updates"]
        place = f"{tmp_path}/data.csv"
        assert said.startswith(f"{place}, row 2: update 1: ")
        assert f"(id 1); row 3 of {place} deletes it later" in said

    def test_a_window_stops_at_an_id_that_is_live(self, raydt, tmp_path):
        (tmp_path / "data.csv").write_text("k,a,y\n1,1,u\n2,2,v\n1,3,v\n")
        config = {**JOB, "source": {"kind": "csv", "path": "data.csv", "id": "k"}}
        config["stream"] = {"model": "sliding_window", "window": 9}
        (tmp_path / "job.yaml").write_text(dump_yaml(config))
        code, out, _ = raydt("validate", tmp_path / "job.yaml")
        assert code == 2
        assert re.search(r"^bad update +.*data.csv, row 2, column 'k': id 1: ", out, re.MULTILINE)
        assert out.splitlines()[-1].endswith(message("commands.stops", update=2).at("job.yaml"))

    def test_a_deletion_in_the_warmup_ends_it_with_a_warning(self, raydt, tmp_path):
        (tmp_path / "log.csv").write_text("id,after\n1,40\n2,20\n")
        stream = {"model": "deletion_log", "deletion_log": "log.csv", "warmup": 30}
        (tmp_path / "job.yaml").write_text(dump_yaml({**JOB, "stream": stream}))
        early = message("runs.early_warmup", updates=20, warmup=30, op="delete")
        code, out, _ = raydt("validate", tmp_path / "job.yaml")
        assert code == 0
        assert str(early) in out
        assert raydt("replay", tmp_path / "job.yaml", "--out", tmp_path / "run")[0] == 0
        assert (tmp_path / "run" / "log.jsonl").read_text().count(str(early)) == 1
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert summary["early_warmup"] == {"updates": 20, "warmup": 30, "op": "delete"}
        page = tmp_path / "page.html"
        assert raydt("report", tmp_path / "run", "--out", page)[0] == 0
        assert str(early) in page.read_text()

    def test_a_data_file_is_not_taken_for_a_config(self, raydt, tmp_path):
        pq.write_table(pa.table({"a": [1]}), tmp_path / "data.parquet")
        assert message("configs.data_file") in raydt("validate", tmp_path / "data.parquet")[2]

    def test_prints_the_schema(self, raydt):
        code, out, _ = raydt("validate", "--schema")
        assert code == 0
        assert {"source", "stream", "learner"} <= json.loads(out)["properties"].keys()

    @pytest.mark.parametrize("name", ["fudyadt", "gbdt", "laptop", "cluster"])
    def test_configs_of_the_repository_can_be_run(self, raydt, name):
        assert raydt("validate", ROOT / "configs" / f"{name}.yaml")[0] == 0

    @pytest.mark.turns(1)
    @pytest.mark.parametrize("kind", ["fudyadt", "gbdt", "confidence_tree"])
    def test_ids_as_labels_are_a_warning_and_then_refused(self, raydt, tmp_path, kind):
        def written(labels):
            lines = [f"{row},id{row % labels}" for row in range(3000)]
            (tmp_path / "data.csv").write_text("\n".join(["a,y", *lines, ""]))
            config = {"source": {"kind": "csv", "path": "data.csv"}, "learner": {"kind": kind}}
            config |= {"stream": {"model": "incremental", "warmup": 50}, "cluster": {"backend": "in_process"}}
            (tmp_path / "job.yaml").write_text(dump_yaml(config))
            return tmp_path / "job.yaml"

        result = json.loads(raydt("validate", written(100), "--json")[1])
        assert (result["ok"], result["warnings"]) == (True, [])
        result = json.loads(raydt("validate", written(1000), "--json")[1])
        assert (result["ok"], result["bad_rows"]) == (True, [])
        found = {"column": "y", "classes": 1000, "rows": 3000, "most": MOST_CLASSES, "numeric": for_numbers()}
        assert result["warnings"] == [message("configs.many_classes", **found)]
        assert re.search(r"^warning +column 'y' ", raydt("validate", tmp_path / "job.yaml")[1], re.MULTILINE)
        for command in ("validate", "replay"):  # before anything is learned, and no row to pass over
            for on_error in ("error", "skip"):
                out = ("--out", tmp_path / on_error) if command == "replay" else ()
                code, _, err = raydt(command, written(1500), "--set", f"stream.on_error={on_error}", *out)
                assert code == 2
                assert "row 1000, column 'y': label 'id1000' " in err
                assert "1,500 different labels" in err
                if command == "replay":
                    assert json.loads((tmp_path / on_error / "summary.json").read_text())["updates"] == 0
