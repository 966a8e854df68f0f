"""Runs that are resumed, and how runs end."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines.running.checkpoint as restoring
from pipelines import replay, resume, update
from pipelines.auditing import audit_run, audit_state
from pipelines.display import Lines
from pipelines.operation import dump_yaml
from pipelines.run_folder import RunFolder
from pipelines.running import ending
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.ending import past_of
from pipelines.running.intake import Incarnations
from pipelines.saved_runs import load_model
from raydt.errors import (
    ConfigError,
    InputError,
    ModelFileError,
    NotWrittenError,
    ProcessLostError,
    RaydtError,
    RestartsSpentError,
)
from raydt.exchange.messages import injected
from raydt.folders.checkpoint import CheckpointStore
from raydt.folders.folder import LOCK, Folder, locked
from raydt.messages import message, message_of
from tests.refusals import refused
from tests.storage_faults import Gone, at, cut, gone
from tests.unit.updatable import JOB

# -- resume ----------------------------------------------------------------------------------------------------------
# What a resume refuses and how it says it; when there is nothing to do; who may write a run.

pytestmark = pytest.mark.usefixtures("steady_checkpoints")

N = 400


def write_rows(path, n=N, **changes):
    rng = np.random.default_rng(1)
    columns = {"k": np.arange(n), "x": rng.random(n), "z": rng.random(n)}
    columns["y"] = (columns["x"] > columns["z"]).astype(np.int64)
    pq.write_table(pa.table({**columns, **changes}), path)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    write_rows(tmp_path / "data" / "rows.parquet")
    pq.write_table(pa.table({"id": [3, 5], "after": [10, 350]}), tmp_path / "data" / "log.parquet")
    return tmp_path / "data"


def config(data, **sections):
    plain = {
        "source": {"kind": "parquet", "path": str(data / "rows.parquet"), "id": "k"},
        "stream": {"model": "deletion_log", "deletion_log": str(data / "log.parquet")},
        "learner": {"kind": "fudyadt", "max_depth": 4},
        "cluster": {"backend": "in_process", "batch_size": 20},
        "checkpoint": {"every_seconds": None, "every_updates": 100},
        "output": {"report": False, "metrics_every": 50},
    }
    return {name: {**plain.get(name, {}), **sections.get(name, {})} for name in plain}


def contents(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "log.jsonl"}


def checkpoints(run):
    return sorted(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit())


@pytest.fixture
def run(data, tmp_path):
    """A run whose driver is gone after 16 batches of 20 updates, with checkpoints at 100, 200 and 300."""
    return cut(config(data), tmp_path / "run", 16)


def refusal_of(run, *overrides, error=ConfigError):
    """The error of a resume that is refused, which has changed nothing."""
    before = contents(run)
    with pytest.raises(error) as raised:
        resume(run, overrides=overrides)
    assert raised.value.exit_code == 2
    assert contents(run) == before
    return raised.value


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    "model", ["incremental", "sliding_window", "adaptive_window", "random_updates", "deletion_log"]
)
def test_what_becomes_of_bad_rows_may_change_and_does_not_show(data, tmp_path, model):
    """Neither in the result nor in an audit, whatever the policy is then."""
    x = np.random.default_rng(2).random(N)
    x[[120, 180, 300]] = np.inf
    write_rows(data / "rows.parquet", x=x)
    own = {"deletion_log": {"deletion_log": str(data / "log.parquet")}, "sliding_window": {"window": 60}}
    plain, stream = config(data), {"model": model, **own.get(model, {})}
    whole = replay({**plain, "stream": {**stream, "on_error": "skip"}}, tmp_path / "whole")
    run = cut({**plain, "stream": {**stream, "on_error": "skip"}}, tmp_path / "run", 10)
    with refused("rows.infinite", InputError):
        resume(run, overrides=["stream.on_error=fail"])
    written = (run / "config.yaml").read_text()
    assert "on_error: fail" in written
    (run / "config.yaml").write_text(written.replace("on_error: fail", "on_error: error"))  # as earlier versions did
    with refused("rows.infinite", InputError):
        resume(run)
    assert "on_error: fail" in (run / "config.yaml").read_text()
    assert audit_run(run).conformance == "holds"
    done = resume(run, overrides=["stream.on_error=skip"])
    assert (done.digest, done.summary["skipped"]) == (whole.digest, whole.summary["skipped"]) == (whole.digest, 3)
    assert audit_run(run).conformance == "holds"


class TestConfig:
    @pytest.mark.parametrize(
        ("override", "words", "now", "then"),
        [
            ("learner.epsilon=0.2", "change", "0.2", '"auto"'),
            ("stream.warmup=10", "change", "10", "0"),
            ("source.limit=10", "change", "10", "null"),
            ("output.predictions=true", "predictions_change", "true", "false"),
            ("output.metrics_every=10", "rows_change", "10", "50"),
            ("checkpoint.path=/elsewhere", "path_change", '"/elsewhere"', "null"),
        ],
    )
    def test_of_another_model_or_other_tables_is_refused(self, run, override, words, now, then):
        error = refusal_of(run, override)
        assert error.message.id == ("runs.other_model" if words == "change" else "runs.other_tables")
        assert error.lines[0].startswith(f"{run}/config.yaml: ")
        change = message(f"runs.{words}", key=override.partition("=")[0], now=now, then=then)
        assert error.lines[1:-1] == [f"  {change}"]

    def test_every_key_that_differs_is_named(self, run):
        said = str(refusal_of(run, "stream={model: sliding_window, window: 7}", "learner.max_depth=5"))
        for words in ('stream.model = "sliding_window"', "stream.window = 7 here, nothing", "max_depth = 5"):
            assert words in said

    def test_operation_may_change_and_is_kept_only_if_the_run_goes_on(self, run):
        written = (run / "config.yaml").read_text()
        refusal_of(run, "cluster.shards=1", "learner.epsilon=0.2")
        assert (run / "config.yaml").read_text() == written
        resume(run, overrides=["cluster.shards=1", "checkpoint.keep=1", "output.report=true"])
        assert "shards: 1" in (run / "config.yaml").read_text()
        assert (run / "report.html").exists()
        assert len(checkpoints(run)) == 1

    def test_that_was_edited_by_hand_is_refused_by_what_the_checkpoint_says(self, run):
        text = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(text.replace("max_depth: 4", "max_depth: 9"))
        change = message("runs.change", key="learner.max_depth", now=9, then=4)
        assert refusal_of(run).lines[1:-1] == [f"  {change}"]

    def test_that_is_damaged_is_named(self, run):
        (run / "config.yaml").write_text("source: [")
        error = refusal_of(run, error=InputError)
        assert error.message.id == "runs.damaged_config"
        assert "config.yaml" in str(error)


class TestData:
    def test_may_lie_in_another_folder(self, run, data, tmp_path):
        shutil.move(data, tmp_path / "moved")
        assert "no such file" in str(refusal_of(run, error=InputError))
        places = ("source.path={}/rows.parquet", "stream.deletion_log={}/log.parquet")
        assert resume(run, overrides=[text.format(tmp_path / "moved") for text in places]).status == "completed"
        assert audit_run(run).ok

    def test_of_another_name_are_another_config(self, run, data):
        shutil.copy(data / "rows.parquet", data / "other.parquet")
        assert 'other.parquet" here' in str(refusal_of(run, f"source.path={data / 'other.parquet'}"))

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"n": N + 1}, "rows.parquet: 400 rows then, 401 now"),
            ({"y": np.zeros(N, np.int64)}, "rows.parquet: "),
            ({"w": np.zeros(N)}, "column 'w' (double) is new"),
            ({"x": np.arange(N)}, "column 'x': double then, int64 now"),
        ],
    )
    def test_that_changed_are_refused(self, run, data, changes, words):
        write_rows(data / "rows.parquet", **changes)
        error = refusal_of(run)
        assert words in str(error)
        assert error.message.id == "runs.other_data"

    def test_a_deletion_log_that_changed_is_refused(self, run, data):
        pq.write_table(pa.table({"id": [3, 5, 7], "after": [10, 350, 390]}), data / "log.parquet")
        assert "stream.deletion_log: log.parquet: 2 rows then, 3 now" in str(refusal_of(run))


class TestCheckpoints:
    def test_an_updated_state_is_never_gone_on_from(self, run):
        last = run / "checkpoints" / str(checkpoints(run)[-1])
        pq.write_table(pa.table({"id": [7]}), run.parent / "requests.parquet")
        update(last, delete=run.parent / "requests.parquet", out=run.parent / "updated")
        shutil.copytree(run.parent / "updated", run / "checkpoints" / "9999")
        error = refusal_of(run)
        assert error.message.id == "runs.updated_state"
        assert "checkpoints/9999: " in str(error)

    def test_a_damaged_last_state_is_not_audited_and_the_one_before_is_named(self, run):
        resume(run)
        *_, before, last = checkpoints(run)
        (run / "checkpoints" / str(last) / "manifest.json").write_text("{}")
        with pytest.raises(ModelFileError, match=rf"checkpoints/{last}.*raydt audit .*/checkpoints/{before}$"):
            audit_run(run)


class TestPlaceOfCheckpoints:
    def test_of_another_run_is_refused_unless_overwritten(self, data, tmp_path):
        place = tmp_path / "states"
        job = config(data, checkpoint={"path": str(place)})
        cut(job, tmp_path / "first", 16)
        with refused("configs.used_path", ConfigError) as caught:
            replay(job, tmp_path / "second")
        assert str(caught.value).startswith(f"checkpoint.path = {place}: ")
        assert not (tmp_path / "second").exists()
        assert resume(tmp_path / "first").status == "completed"
        (place / "notes").mkdir()
        (tmp_path / "second").mkdir()
        replay(job, tmp_path / "second", overwrite=True)
        assert audit_run(tmp_path / "second").ok
        assert (place / "notes").exists()

    def test_other_files_are_never_removed(self, data, tmp_path):
        (tmp_path / "states" / "2024").mkdir(parents=True)
        (tmp_path / "states" / "2024" / "photo.jpg").touch()
        with refused("configs.foreign_path", ConfigError, file="2024/photo.jpg"):
            replay(config(data, checkpoint={"path": str(tmp_path / "states")}), tmp_path / "run", overwrite=True)
        assert (tmp_path / "states" / "2024" / "photo.jpg").exists()


class TestRunFolder:
    def test_a_completed_run_is_left_as_it_is(self, data, tmp_path, raydt):
        first = replay(config(data), tmp_path / "run")
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
        again = resume(tmp_path / "run", overrides=["cluster.shards=1"])
        assert (again.status, again.digest) == ("completed", first.digest)
        assert refusal_of(tmp_path / "run", "learner.max_depth=5").message.id == "runs.other_model"
        code, out, err = raydt("resume", tmp_path / "run", "--json")
        assert (code, json.loads(out)["model_digest"]) == (0, first.digest)
        assert message("runs.completed") in err
        assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}

    @pytest.mark.parametrize(
        ("make", "problem"),
        [
            (lambda folder: None, "no_run"),
            (lambda folder: (folder / "manifest.json").touch(), "saved_model"),
            (lambda folder: (folder / "sweep.json").touch(), "sweep"),
        ],
    )
    def test_what_is_no_run_is_refused(self, tmp_path, make, problem, raydt):
        make(tmp_path)
        code, _, err = raydt("resume", tmp_path)
        assert code == 2
        assert message(f"runs.{problem}") in err


HOLD = """
import sys
from raydt.folders.folder import locked
from raydt.folders.folder import Folder
with locked(Folder(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


class TestOneWriter:
    def test_a_second_process_is_refused_and_the_first_is_named(self, run, data):
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            with pytest.raises(ConfigError, match=f"process {holder.pid} on .* is writing here"):
                resume(run)
            with pytest.raises(ConfigError, match=f"process {holder.pid} on .* is writing here"):
                replay(config(data), run, overwrite=True)
            assert (run / "config.yaml").exists()
        finally:
            holder.kill()
            holder.wait()
            holder.stdin.close()
            holder.stdout.close()
        assert (run / LOCK).exists(), "it could not clear up"
        assert resume(run).status == "completed"
        assert not (run / LOCK).exists()

    def test_a_lock_that_was_removed_meanwhile_is_not_taken_for_one(self, tmp_path, monkeypatch):
        """Whoever opened the file just before its holder removed it must not hold a file without a name."""
        import fcntl

        real, removed = fcntl.flock, []

        def removed_before(descriptor, how):
            if not removed:
                removed.append(os.unlink(tmp_path / LOCK))
            return real(descriptor, how)

        monkeypatch.setattr(fcntl, "flock", removed_before)
        with locked(Folder(tmp_path)):
            assert (tmp_path / LOCK).read_text().startswith(f"{os.getpid()} on ")


# -- run ends --------------------------------------------------------------------------------------------------------
# How runs end when something fails on the way to the end, what they say then, and what the next process knows.

CONFIG = {
    **JOB,
    "cluster": {"backend": "in_process", "batch_size": 20},
    "checkpoint": {"every_seconds": None, "every_updates": 200},
    "output": {"report": False, "metrics_every": 50},
}

REPORTED = {**CONFIG, "output": {**CONFIG["output"], "report": True}}


def lose():
    raise ProcessLostError("shard 1 died", actor="shard", shard=1)


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def records(run, event):
    found = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [record for record in found if record["event"] == event]


def summary_of(run):
    return json.loads((run / "summary.json").read_text())


@pytest.fixture
def run_ends(tmp_path):
    return tmp_path / "run"


def test_the_log_says_who_was_lost_and_which_processes_came_instead(run_ends):
    with injected(at(15, lose)):
        replay(CONFIG, run_ends)
    (lost,) = records(run_ends, "process_lost")
    assert (lost["actor"], lost["shard"], lost["epoch"]) == ("shard", 1, 1)
    opened = records(run_ends, "session_opened")
    assert [record["epoch"] for record in opened] == [1, 2]
    assert opened[0]["pids"] == [os.getpid()] * len(opened[0]["pids"]) != []
    assert (opened[0]["actor"], opened[0]["shard"]) == ("driver", None)


class TestReport:
    def test_that_a_completed_run_lacks_is_written_by_a_resume(self, run_ends):
        cut(REPORTED, run_ends, 1, "run.before_report")
        before = summary_of(run_ends)
        assert before["status"] == "completed"
        assert not (run_ends / "report.html").exists()
        assert resume(run_ends).summary == before
        assert "<html" in (run_ends / "report.html").read_text()

    def test_that_cannot_be_written_is_a_warning(self, run_ends, raydt, tmp_path, monkeypatch, caplog):
        (tmp_path / "job.yaml").write_text(dump_yaml(REPORTED))
        monkeypatch.setattr(ending, "publish_report", no_space)
        code, out, _ = raydt("replay", tmp_path / "job.yaml", "--out", run_ends)
        assert (code, "completed" in out) == (0, True)
        (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert said.exc_info is None, "what has a traceback is not shown on stderr"
        assert said.getMessage() == message("runs.no_report", error="[Errno 28] No space left on device", run=run_ends)
        assert (summary_of(run_ends)["status"], summary_of(run_ends)["report_seconds"]) == ("completed", None)
        assert records(run_ends, "report_failed")
        monkeypatch.undo()
        assert resume(run_ends).status == "completed"
        assert (run_ends / "report.html").exists()


class TestStorage:
    def test_a_full_disk_under_a_table_is_said_and_passes(self, run_ends, raydt, tmp_path, monkeypatch):
        config = {**CONFIG, "output": {**CONFIG["output"], "predictions": True}}
        (tmp_path / "job.yaml").write_text(dump_yaml(config))
        write, left = pq.ParquetWriter.write_table, 3

        def full(*arguments, **options):
            nonlocal left
            left -= 1
            return no_space() if left < 0 else write(*arguments, **options)

        monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
        code, _, err = raydt("replay", tmp_path / "job.yaml", "--out", run_ends)
        assert code == 1
        assert f"error: {run_ends}/" in err
        assert "cannot be written: [Errno 28] No space left on device" in err
        assert f"raydt resume {run_ends} continues from update 200" in err
        assert (summary_of(run_ends)["status"], summary_of(run_ends)["exit_reason"]) == ("failed", "NotWrittenError")
        monkeypatch.undo()
        assert resume(run_ends).status == "completed"
        assert audit_run(run_ends).ok
        assert pq.read_table(run_ends / "predictions")["seq"].to_pylist() == list(range(500))

    def test_the_first_error_is_told_though_the_summary_cannot_be_written_either(self, run_ends, monkeypatch):
        def fail():
            raise RaydtError("something else")

        monkeypatch.setattr(ending, "write_summary", no_space)
        with injected(at(15, fail)), pytest.raises(RaydtError, match="something else") as raised:
            replay(CONFIG, run_ends)
        assert raised.value.kept.endswith(f"raydt resume {run_ends} continues from update 200")

    def test_a_summary_that_cannot_be_written_is_named(self, run_ends, monkeypatch):
        with monkeypatch.context() as patched:
            patched.setattr(ending, "write_summary", no_space)
            with pytest.raises(NotWrittenError, match=r"run/summary.json: cannot be written: .*No space") as raised:
                replay(CONFIG, run_ends)
        assert raised.value.kept.endswith(f"raydt resume {run_ends} continues from update 500")
        assert resume(run_ends).status == "completed"

    def test_checkpoints_that_cannot_be_looked_at_end_a_recovery_in_a_sentence(self, run_ends, monkeypatch):
        def lose_with_the_disk():
            monkeypatch.setattr(CheckpointStore, "numbers", no_space)
            lose()

        with injected(at(15, lose_with_the_disk)), refused("runs.no_rollback", RaydtError) as raised:
            replay(CONFIG, run_ends)
        assert raised.value.message.parameters["lost"] == "shard 1 died"
        assert f"raydt resume {run_ends} continues from update 200" in raised.value.kept


def test_a_bad_row_does_not_pass_so_nothing_says_that_the_run_goes_on(run_ends, tmp_path):
    x = np.where(np.arange(500) == 390, np.inf, 0.5)
    pq.write_table(pa.table({"x": x, "y": np.arange(500) % 2}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="row 390") as raised:
        replay({**CONFIG, "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet")}}, run_ends)
    assert raised.value.kept == message("runs.kept_model", updates="390 updates", run=run_ends)


def test_restarts_spent_before_the_first_update_leave_nothing_and_say_so(run_ends, monkeypatch):
    monkeypatch.setattr(Incarnations, "open", lambda self: lose())
    with refused("runs.restarts_spent", RestartsSpentError, restarts="5 restarts", minutes="1 minute") as raised:
        replay(CONFIG, run_ends)
    assert "resume" not in str(raised.value)
    assert raised.value.kept == ""
    assert not run_ends.exists()


def test_a_signal_after_a_recovery_that_failed_does_not_keep_the_run_from_saying_so(run_ends, monkeypatch):
    close = Checkpointer.close

    def close_under_a_signal(checkpointer):
        os.kill(os.getpid(), signal.SIGTERM)
        close(checkpointer)

    monkeypatch.setattr(Checkpointer, "close", close_under_a_signal)
    monkeypatch.setattr(CheckpointStore, "numbers", no_space)
    with injected(at(5, lose)), pytest.raises((RaydtError, SystemExit)):
        replay(CONFIG, run_ends)
    summary = summary_of(run_ends)
    assert (summary["status"], summary["exit_code"]) == ("failed", 1)


class TestBeginning:
    def test_a_run_has_its_config_before_its_log(self, run_ends, monkeypatch):
        def killed(folder, *_):
            assert folder.has("config.yaml")
            assert not folder.has("log.jsonl")
            raise Gone

        monkeypatch.setattr("pipelines.running.loop.log_to", killed)
        with pytest.raises(Gone):
            replay(CONFIG, run_ends)

    def test_a_config_alone_can_be_resumed(self, run_ends):
        cut(CONFIG, run_ends, 1)
        (run_ends / "log.jsonl").unlink()
        assert resume(run_ends).summary["updates"] == 500

    def test_what_was_half_written_is_swept_and_nothing_else(self, run_ends):
        cut(CONFIG, run_ends, 15)
        for name in (f".summary.json.{32 * 'a'}", f".config.yaml.{32 * '0'}", f".report.html.{32 * '1'}", ".notes"):
            (run_ends / name).touch()
        resume(run_ends)
        assert [path.name for path in run_ends.glob(".*")] == [".notes"]

    def test_a_folder_with_nothing_but_a_half_written_config_is_empty(self, run_ends):
        run_ends.mkdir()
        (run_ends / f".config.yaml.{32 * 'a'}").touch()
        assert replay(CONFIG, run_ends).status == "completed"
        assert not list(run_ends.glob(".*"))

    def test_the_run_folder_itself_is_no_place_for_checkpoints(self, run_ends):
        with refused("configs.run_path", ConfigError):
            replay({**CONFIG, "checkpoint": {"path": str(run_ends)}}, run_ends)
        assert not run_ends.exists()


def test_a_checkpoint_after_the_loss_of_row_segments_can_be_resumed(run_ends, tmp_path):
    """Somebody removes them after 200 updates; the checkpoint after 300 would share those of the one before."""
    config = {**CONFIG, "checkpoint": {"every_seconds": None, "every_updates": 100}}
    removing, ending = at(14, lambda: shutil.rmtree(run_ends / "checkpoints" / "rows")), at(20)

    def both(name):
        removing(name)
        ending(name)

    with injected(both), pytest.raises(Gone):
        replay(config, run_ends)
    assert resume(run_ends).summary["model_digest"] == replay(CONFIG, tmp_path / "whole").summary["model_digest"]
    (restored,) = records(run_ends, "restored")
    assert restored["at"] == 300


def test_a_run_that_was_killed_is_not_audited_and_the_message_says_what_to_do(run_ends):
    cut(CONFIG, run_ends, 15)
    with refused("runs.not_ended", InputError, run=str(run_ends)):
        audit_run(run_ends)


@pytest.mark.parametrize("status", [None, "interrupted", "failed"])
def test_a_run_without_a_last_state_is_refused_by_all_and_its_checkpoints_are_not(run_ends, status, tmp_path):
    cut(CONFIG, run_ends, 15)
    if status is not None:
        said = {"status": status, "exit_reason": "x", "error": None, "updates": 250, "model_digest": None}
        (run_ends / "summary.json").write_text(json.dumps(said))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "ids.parquet")
    problems = ("runs.not_ended", "runs.unsaved") if status is None else (f"runs.{status}",)
    for act in (
        lambda: audit_run(run_ends),
        lambda: update(run_ends, delete=tmp_path / "ids.parquet", out=tmp_path / "out"),
        lambda: load_model(run_ends),
    ):
        with pytest.raises(InputError) as raised:
            act()
        said = message_of(raised.value)
        assert said.id in problems
        assert said.parameters["run"] == str(run_ends)
        assert "None" not in str(raised.value)
    assert audit_state(run_ends / "checkpoints" / "200").ok
    assert load_model(run_ends / "checkpoints" / "200").is_state


@pytest.mark.parametrize(
    "path",
    [
        ("recorder",),
        ("recorder", "tables", "events", "schema"),
        ("recorder", "row_at"),
        ("scores", "confusion"),
        ("stream", "source"),
    ],
    ids=".".join,
)
def test_a_checkpoint_that_lacks_something_is_damaged(run_ends, path, monkeypatch, caplog):
    cut({**CONFIG, "checkpoint": {"every_seconds": None, "every_updates": 100}}, run_ends, 15)
    read, damaged = restoring.read_checkpoint, {"100", "200"}

    def lacking(place, *, apart):
        checkpoint = read(place, apart=apart)
        if place.location.rpartition("/")[2] in damaged:
            *outer, last = path
            held = components = dict(checkpoint.components)
            for name in outer:
                held = held[name]
            del held[last]
            return replace(checkpoint, components=components)
        return checkpoint

    def contents():
        return {file: file.read_bytes() for file in run_ends.rglob("*") if file.is_file() and file.name != "log.jsonl"}

    monkeypatch.setattr(restoring, "read_checkpoint", lacking)
    before = contents()
    with refused("runs.bad_checkpoints", RaydtError) as raised:
        resume(run_ends)
    assert re.search(rf"{run_ends}/checkpoints/200.*{path[-1]!r} is missing", str(raised.value))
    assert contents() == before
    damaged.remove("100")
    caplog.clear()
    (entry,) = resume(run_ends).summary["recoveries"]  # the attempt that failed does not count
    assert (entry["kind"], entry["from_update"]) == ("resumed", 100)
    skipped = [record for record in caplog.records if getattr(record, "event", "") == "checkpoint_damaged"]
    assert [(record.at, "is missing" in record.getMessage()) for record in skipped] == [(200, True)]


class TestPast:
    def test_a_resume_that_led_to_no_checkpoint_is_not_forgotten_and_its_number_not_used_again(self, run_ends):
        cut(CONFIG, run_ends, 15)
        for _ in range(2):
            with injected(at(2)), pytest.raises(Gone):
                resume(run_ends)
        entries = resume(run_ends).summary["recoveries"]
        assert [(entry["kind"], entry["epoch"]) for entry in entries] == [("resumed", n) for n in (1, 2, 3)]
        assert all(entry["from_update"] == 200 and entry["seconds"] > 0 for entry in entries)
        assert [record["epoch"] for record in records(run_ends, "session_opened")] == [1, 2, 3, 4]

    def test_a_loss_is_known_whatever_came_of_it(self, run_ends):
        with injected(at(15, lose)), pytest.MonkeyPatch.context() as patched:
            patched.setattr("pipelines.running.checkpoint.Checkpointer.newest_restorable", lambda *_, **__: gone())
            with pytest.raises(Gone):
                replay(CONFIG, run_ends)
        lost, again = resume(run_ends).summary["recoveries"]
        assert (lost["kind"], lost["epoch"], lost["what"], lost["at_update"]) == ("lost", 1, "shard 1 died", 250)
        assert (lost["from_update"], lost["seconds"]) == (None, None)
        assert (again["kind"], again["epoch"]) == ("resumed", 2)

    def test_a_log_with_anything_in_it_does_no_harm(self, run_ends):
        run_ends.mkdir()
        lines = ["[1]", "{", '{"recovery": 3}', '{"recovery": {"epoch": "x", "kind": "lost"}}', '{"epoch": 7}']
        (run_ends / "log.jsonl").write_text("\n".join(lines))
        past = past_of(RunFolder(run_ends), None, None)
        assert (past.epoch, past.recoveries) == (7, [])

    def test_where_a_run_goes_on_is_said_and_where_a_signal_came_is_known(self, run_ends, capfd):
        with injected(at(15, lambda: signal.raise_signal(signal.SIGTERM))):
            stopped = replay(CONFIG, run_ends, progress=Lines()).summary
        capfd.readouterr()
        with injected(at(2, lose)):
            entries = resume(run_ends, progress=Lines()).summary["recoveries"]
        assert [(entry["kind"], entry["at_update"] is None) for entry in entries] == [
            ("resumed", False),
            ("lost", False),
        ]
        assert entries[0]["at_update"] == stopped["updates"]
        said = capfd.readouterr().err
        assert re.search(r"resuming from update \d+ \(checkpoint of \d\d:\d\d:\d\d\)\n", said)
        assert re.search(rf"recovered in [\d.]+ m?s, resuming from update {entries[1]['from_update']}\n", said)
