"""How runs end when something fails on the way to the end, what they say then, and what the next process knows."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_job import JOB

import pipelines.running.checkpoint as restoring
from pipelines import replay, resume, update
from pipelines.auditing import audit_run, audit_state
from pipelines.display import Lines
from pipelines.operation import dump_yaml
from pipelines.run_folder import RunFolder
from pipelines.running import ending
from pipelines.running import replay as job
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.ending import past_of
from pipelines.running.intake import Incarnations
from pipelines.saved_runs import load_model
from raydt.errors import ConfigError, InputError, NotWrittenError, ProcessLostError, RaydtError, RestartsSpentError
from raydt.exchange.messages import injected
from raydt.folders.checkpoint import CheckpointStore
from raydt.messages import message, message_of
from tests.cut_runs import Gone, at, cut, gone
from tests.refusals import refused

CONFIG = {
    **JOB,
    "cluster": {"backend": "in_process", "batch_size": 20},
    "checkpoint": {"every_seconds": None, "every_updates": 200},
    "output": {"report": False, "metrics_every": 50},
}

REPORTED = {**CONFIG, "output": {**CONFIG["output"], "report": True}}

pytestmark = pytest.mark.usefixtures("steady_checkpoints")


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
def run(tmp_path):
    return tmp_path / "run"


def test_the_log_says_who_was_lost_and_which_processes_came_instead(run):
    with injected(at(15, lose)):
        replay(CONFIG, run)
    (lost,) = records(run, "process_lost")
    assert (lost["actor"], lost["shard"], lost["epoch"]) == ("shard", 1, 1)
    opened = records(run, "session_opened")
    assert [record["epoch"] for record in opened] == [1, 2]
    assert opened[0]["pids"] == [os.getpid()] * len(opened[0]["pids"]) != []
    assert (opened[0]["actor"], opened[0]["shard"]) == ("driver", None)


class TestReport:
    def test_that_a_completed_run_lacks_is_written_by_a_resume(self, run):
        cut(REPORTED, run, 1, "run.before_report")
        before = summary_of(run)
        assert before["status"] == "completed"
        assert not (run / "report.html").exists()
        assert resume(run).summary == before
        assert "<html" in (run / "report.html").read_text()

    def test_that_cannot_be_written_is_a_warning(self, run, raydt, tmp_path, monkeypatch, caplog):
        (tmp_path / "job.yaml").write_text(dump_yaml(REPORTED))
        monkeypatch.setattr(ending, "publish_report", no_space)
        code, out, _ = raydt("replay", tmp_path / "job.yaml", "--out", run)
        assert (code, "completed" in out) == (0, True)
        (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert said.exc_info is None, "what has a traceback is not shown on stderr"
        assert said.getMessage() == message("runs.no_report", error="[Errno 28] No space left on device", run=run)
        assert (summary_of(run)["status"], summary_of(run)["report_seconds"]) == ("completed", None)
        assert records(run, "report_failed")
        monkeypatch.undo()
        assert resume(run).status == "completed"
        assert (run / "report.html").exists()


class TestStorage:
    def test_a_full_disk_under_a_table_is_said_and_passes(self, run, raydt, tmp_path, monkeypatch):
        config = {**CONFIG, "output": {**CONFIG["output"], "predictions": True}}
        (tmp_path / "job.yaml").write_text(dump_yaml(config))
        write, left = pq.ParquetWriter.write_table, 3

        def full(*arguments, **options):
            nonlocal left
            left -= 1
            return no_space() if left < 0 else write(*arguments, **options)

        monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
        code, _, err = raydt("replay", tmp_path / "job.yaml", "--out", run)
        assert code == 1
        assert f"error: {run}/" in err
        assert "cannot be written: [Errno 28] No space left on device" in err
        assert f"raydt resume {run} continues from update 200" in err
        assert (summary_of(run)["status"], summary_of(run)["exit_reason"]) == ("failed", "NotWrittenError")
        monkeypatch.undo()
        assert resume(run).status == "completed"
        assert audit_run(run).ok
        assert pq.read_table(run / "predictions")["seq"].to_pylist() == list(range(500))

    def test_the_first_error_is_told_though_the_summary_cannot_be_written_either(self, run, monkeypatch):
        def fail():
            raise RaydtError("something else")

        monkeypatch.setattr(ending, "write_summary", no_space)
        with injected(at(15, fail)), pytest.raises(RaydtError, match="something else") as raised:
            replay(CONFIG, run)
        assert raised.value.kept.endswith(f"raydt resume {run} continues from update 200")

    def test_a_summary_that_cannot_be_written_is_named(self, run, monkeypatch):
        with monkeypatch.context() as patched:
            patched.setattr(ending, "write_summary", no_space)
            with pytest.raises(NotWrittenError, match=r"run/summary.json: cannot be written: .*No space") as raised:
                replay(CONFIG, run)
        assert raised.value.kept.endswith(f"raydt resume {run} continues from update 500")
        assert resume(run).status == "completed"

    def test_checkpoints_that_cannot_be_looked_at_end_a_recovery_in_a_sentence(self, run, monkeypatch):
        def lose_with_the_disk():
            monkeypatch.setattr(CheckpointStore, "numbers", no_space)
            lose()

        with injected(at(15, lose_with_the_disk)), refused("runs.no_rollback", RaydtError) as raised:
            replay(CONFIG, run)
        assert raised.value.message.parameters["lost"] == "shard 1 died"
        assert f"raydt resume {run} continues from update 200" in raised.value.kept


def test_a_bad_row_does_not_pass_so_nothing_says_that_the_run_goes_on(run, tmp_path):
    x = np.where(np.arange(500) == 390, np.inf, 0.5)
    pq.write_table(pa.table({"x": x, "y": np.arange(500) % 2}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="row 390") as raised:
        replay({**CONFIG, "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet")}}, run)
    assert raised.value.kept == message("runs.kept_model", updates="390 updates", run=run)


def test_restarts_spent_before_the_first_update_leave_nothing_and_say_so(run, monkeypatch):
    monkeypatch.setattr(Incarnations, "open", lambda self: lose())
    with refused("runs.restarts_spent", RestartsSpentError, restarts="5 restarts", minutes="1 minute") as raised:
        replay(CONFIG, run)
    assert "resume" not in str(raised.value)
    assert raised.value.kept == ""
    assert not run.exists()


def test_a_signal_after_a_recovery_that_failed_does_not_keep_the_run_from_saying_so(run, monkeypatch):
    close = Checkpointer.close

    def close_under_a_signal(checkpointer):
        os.kill(os.getpid(), signal.SIGTERM)
        close(checkpointer)

    monkeypatch.setattr(Checkpointer, "close", close_under_a_signal)
    monkeypatch.setattr(CheckpointStore, "numbers", no_space)
    with injected(at(5, lose)), pytest.raises((RaydtError, SystemExit)):
        replay(CONFIG, run)
    summary = summary_of(run)
    assert (summary["status"], summary["exit_code"]) == ("failed", 1)


class TestBeginning:
    def test_a_run_has_its_config_before_its_log(self, run, monkeypatch):
        def killed(folder, *_):
            assert folder.has("config.yaml")
            assert not folder.has("log.jsonl")
            raise Gone

        monkeypatch.setattr(job, "log_to", killed)
        with pytest.raises(Gone):
            replay(CONFIG, run)

    def test_a_config_alone_can_be_resumed(self, run):
        cut(CONFIG, run, 1)
        (run / "log.jsonl").unlink()
        assert resume(run).summary["updates"] == 500

    def test_what_was_half_written_is_swept_and_nothing_else(self, run):
        cut(CONFIG, run, 15)
        for name in (f".summary.json.{32 * 'a'}", f".config.yaml.{32 * '0'}", f".report.html.{32 * '1'}", ".notes"):
            (run / name).touch()
        resume(run)
        assert [path.name for path in run.glob(".*")] == [".notes"]

    def test_a_folder_with_nothing_but_a_half_written_config_is_empty(self, run):
        run.mkdir()
        (run / f".config.yaml.{32 * 'a'}").touch()
        assert replay(CONFIG, run).status == "completed"
        assert not list(run.glob(".*"))

    def test_the_run_folder_itself_is_no_place_for_checkpoints(self, run):
        with refused("configs.run_path", ConfigError):
            replay({**CONFIG, "checkpoint": {"path": str(run)}}, run)
        assert not run.exists()


def test_a_checkpoint_after_the_loss_of_row_segments_can_be_resumed(run, tmp_path):
    """Somebody removes them after 200 updates; the checkpoint after 300 would share those of the one before."""
    config = {**CONFIG, "checkpoint": {"every_seconds": None, "every_updates": 100}}
    removing, ending = at(14, lambda: shutil.rmtree(run / "checkpoints" / "rows")), at(20)

    def both(name):
        removing(name)
        ending(name)

    with injected(both), pytest.raises(Gone):
        replay(config, run)
    assert resume(run).summary["model_digest"] == replay(CONFIG, tmp_path / "whole").summary["model_digest"]
    (restored,) = records(run, "restored")
    assert restored["at"] == 300


def test_a_run_that_was_killed_is_not_audited_and_the_message_says_what_to_do(run):
    cut(CONFIG, run, 15)
    with refused("runs.not_ended", InputError, run=str(run)):
        audit_run(run)


@pytest.mark.parametrize("status", [None, "interrupted", "failed"])
def test_a_run_without_a_last_state_is_refused_by_all_and_its_checkpoints_are_not(run, status, tmp_path):
    cut(CONFIG, run, 15)
    if status is not None:
        said = {"status": status, "exit_reason": "x", "error": None, "updates": 250, "model_digest": None}
        (run / "summary.json").write_text(json.dumps(said))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "ids.parquet")
    problems = ("runs.not_ended", "runs.unsaved") if status is None else (f"runs.{status}",)
    for act in (
        lambda: audit_run(run),
        lambda: update(run, delete=tmp_path / "ids.parquet", out=tmp_path / "out"),
        lambda: load_model(run),
    ):
        with pytest.raises(InputError) as raised:
            act()
        said = message_of(raised.value)
        assert said.id in problems
        assert said.parameters["run"] == str(run)
        assert "None" not in str(raised.value)
    assert audit_state(run / "checkpoints" / "200").ok
    assert load_model(run / "checkpoints" / "200").is_state


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
def test_a_checkpoint_that_lacks_something_is_damaged(run, path, monkeypatch, caplog):
    cut({**CONFIG, "checkpoint": {"every_seconds": None, "every_updates": 100}}, run, 15)
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
        return {file: file.read_bytes() for file in run.rglob("*") if file.is_file() and file.name != "log.jsonl"}

    monkeypatch.setattr(restoring, "read_checkpoint", lacking)
    before = contents()
    with refused("runs.bad_checkpoints", RaydtError) as raised:
        resume(run)
    assert re.search(rf"{run}/checkpoints/200.*{path[-1]!r} is missing", str(raised.value))
    assert contents() == before
    damaged.remove("100")
    caplog.clear()
    (entry,) = resume(run).summary["recoveries"]  # the attempt that failed does not count
    assert (entry["kind"], entry["from_update"]) == ("resumed", 100)
    skipped = [record for record in caplog.records if getattr(record, "event", "") == "checkpoint_damaged"]
    assert [(record.at, "is missing" in record.getMessage()) for record in skipped] == [(200, True)]


class TestPast:
    def test_a_resume_that_led_to_no_checkpoint_is_not_forgotten_and_its_number_not_used_again(self, run):
        cut(CONFIG, run, 15)
        for _ in range(2):
            with injected(at(2)), pytest.raises(Gone):
                resume(run)
        entries = resume(run).summary["recoveries"]
        assert [(entry["kind"], entry["epoch"]) for entry in entries] == [("resumed", n) for n in (1, 2, 3)]
        assert all(entry["from_update"] == 200 and entry["seconds"] > 0 for entry in entries)
        assert [record["epoch"] for record in records(run, "session_opened")] == [1, 2, 3, 4]

    def test_a_loss_is_known_whatever_came_of_it(self, run):
        with injected(at(15, lose)), pytest.MonkeyPatch.context() as patched:
            patched.setattr("pipelines.running.loop.newest_restorable", lambda *_, **__: gone())
            with pytest.raises(Gone):
                replay(CONFIG, run)
        lost, again = resume(run).summary["recoveries"]
        assert (lost["kind"], lost["epoch"], lost["what"], lost["at_update"]) == ("lost", 1, "shard 1 died", 250)
        assert (lost["from_update"], lost["seconds"]) == (None, None)
        assert (again["kind"], again["epoch"]) == ("resumed", 2)

    def test_a_log_with_anything_in_it_does_no_harm(self, run):
        run.mkdir()
        lines = ["[1]", "{", '{"recovery": 3}', '{"recovery": {"epoch": "x", "kind": "lost"}}', '{"epoch": 7}']
        (run / "log.jsonl").write_text("\n".join(lines))
        past = past_of(RunFolder(run), None, None)
        assert (past.epoch, past.recoveries) == (7, [])

    def test_where_a_run_goes_on_is_said_and_where_a_signal_came_is_known(self, run, capfd):
        with injected(at(15, lambda: signal.raise_signal(signal.SIGTERM))):
            stopped = replay(CONFIG, run, progress=Lines()).summary
        capfd.readouterr()
        with injected(at(2, lose)):
            entries = resume(run, progress=Lines()).summary["recoveries"]
        assert [(entry["kind"], entry["at_update"] is None) for entry in entries] == [
            ("resumed", False),
            ("lost", False),
        ]
        assert entries[0]["at_update"] == stopped["updates"]
        said = capfd.readouterr().err
        assert re.search(r"resuming from update \d+ \(checkpoint of \d\d:\d\d:\d\d\)\n", said)
        assert re.search(rf"recovered in [\d.]+ m?s, resuming from update {entries[1]['from_update']}\n", said)
