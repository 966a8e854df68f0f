"""Storage that is full, read-only or no folder: one clear error, nothing left behind, and a verdict all the same."""

from __future__ import annotations

import errno
import logging
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_job import JOB

from pipelines import doctor, prediction, replay, resume
from pipelines.operation import dump_yaml
from pipelines.run_folder import RunFolder
from raydt.errors import STORAGE_REMEDIES, ConfigError
from raydt.folders.folder import LOCK, Folder, locked, locked_here
from raydt.messages import message
from tests.cut_runs import cut
from tests.refusals import refused
from tests.storage_faults import Fault, FaultyStorage

CONFIG = {
    **JOB,
    "cluster": {"backend": "in_process", "batch_size": 20},
    "checkpoint": {"every_seconds": None, "every_updates": 200},
    "output": {"report": False, "metrics_every": 50},
}

REPORTED = {**CONFIG, "output": {**CONFIG["output"], "report": True}}

pytestmark = pytest.mark.usefixtures("steady_checkpoints")


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def of_storage(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


def assert_one_error(ended, code, said):
    """A command that has failed printed nothing but one error, which says so."""
    found, out, err = ended
    (line,) = [line for line in err.splitlines() if not line.startswith(("starting", "reading"))]
    assert (found, out) == (code, "")
    assert line.startswith("error: ")
    assert said in line


no_space = of_storage(errno.ENOSPC)


class TestFullDisk:
    SAID = f"No space left on device. {STORAGE_REMEDIES[errno.ENOSPC]}"

    def test_a_resume_that_cannot_mend_the_log_is_one_error_and_changes_nothing(self, run, raydt):
        cut(CONFIG, run, 16)  # after its first checkpoint
        (run / "log.jsonl").write_bytes((run / "log.jsonl").read_bytes()[:-20])  # as a full disk leaves it
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        handlers = len(logging._handlerList)
        with FaultyStorage(Fault.FULL, 1):
            assert_one_error(raydt("resume", run), 1, f"{run}/log.jsonl: cannot be written: [Errno 28] {self.SAID}")
        assert len(logging._handlerList) <= handlers + 1, "a log that was never opened would be closed at exit"
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
        assert resume(run).status == "completed"

    @pytest.mark.parametrize("command", [["replay"], ["sweep", "--grid", "learner.epsilon=0.1,0.2"]])
    @pytest.mark.parametrize("at", [1, 3])
    def test_a_beginning_is_one_error_and_leaves_nothing(self, run, raydt, tmp_path, command, at):
        (tmp_path / "job.yaml").write_text(dump_yaml(CONFIG))
        with FaultyStorage(Fault.FULL, at):
            assert_one_error(raydt(*command, tmp_path / "job.yaml", "--out", run), 1, self.SAID)
        assert not run.exists()

    def test_the_holder_of_a_lock_goes_unnamed(self, tmp_path, monkeypatch):
        monkeypatch.setattr("raydt.folders.folder.Path.write_text", no_space)
        with locked(RunFolder(tmp_path)):
            assert locked_here(RunFolder(tmp_path))
            assert (tmp_path / LOCK).read_text() == ""
        assert not (tmp_path / LOCK).exists()

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
    def test_a_lock_that_cannot_be_made_is_one_error_and_leaves_nothing(
        self, run, raydt, tmp_path, monkeypatch, number
    ):
        (tmp_path / "job.yaml").write_text(dump_yaml(CONFIG))
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", of_storage(number))
            said = f"error: {run}: cannot be written: {os.strerror(number)}"
            code = 2 if number == errno.EROFS else 1
            assert_one_error(raydt("replay", tmp_path / "job.yaml", "--out", run), code, said)
        assert not run.exists()

    def test_an_audit_tells_its_verdict(self, run, raydt, caplog):
        replay(REPORTED, run)
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        with FaultyStorage(Fault.FULL, 1):
            code, out, _ = raydt("audit", run)
        assert code == 0
        assert out.startswith("conformance")
        (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert said == f"{message('verdicts.not_stored', folder=str(run))}: [Errno 28] No space left on device"
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

    def test_predictions_that_cannot_be_written_are_one_error(self, run, raydt, tmp_path, monkeypatch):
        replay(CONFIG, run)
        pq.write_table(pa.table({f"x{i}": [1.0] for i in range(3)}), tmp_path / "new.parquet")
        with monkeypatch.context() as patch:
            patch.setattr(prediction.pq, "ParquetWriter", of_storage(errno.EROFS))
            patch.setattr(prediction.Path, "unlink", of_storage(errno.EROFS))
            ended = raydt("predict", run, tmp_path / "new.parquet", "--out", tmp_path / "p.parquet")
        assert_one_error(ended, 2, "p.parquet: the predictions cannot be")

    def test_a_page_that_cannot_be_written_leaves_nothing(self, run, raydt, tmp_path, monkeypatch):
        replay(CONFIG, run)
        before = sorted(tmp_path.rglob("*"))
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "_rename", no_space)
            ended = raydt("report", run, "--out", tmp_path / "page.html")
        assert_one_error(ended, 2, "page.html: the report cannot be")
        assert sorted(tmp_path.rglob("*")) == before

    def test_what_nobody_expected_is_one_error_too(self, raydt, monkeypatch):
        monkeypatch.setattr(doctor, "examine", no_space)
        assert_one_error(raydt("doctor"), 1, self.SAID)


class TestPlaceOfCheckpoints:
    @pytest.mark.parametrize("below", ["", "/states"])
    def test_a_file_is_no_place_for_checkpoints(self, run, raydt, tmp_path, below):
        (tmp_path / "file").write_text("mine")
        job = {**CONFIG, "checkpoint": {"path": f"{tmp_path}/file{below}"}}
        (tmp_path / "job.yaml").write_text(dump_yaml(job))
        said = f"checkpoint.path = {tmp_path}/file{below}: "
        assert_one_error(raydt("replay", tmp_path / "job.yaml", "--out", run), 2, said)
        assert not run.exists()
        replay(CONFIG, run)
        before = sorted(run.rglob("*"))
        ended = raydt("replay", tmp_path / "job.yaml", "--out", run, "--overwrite")
        assert_one_error(ended, 2, message("configs.file_path", file=f"{tmp_path}/file"))
        assert sorted(run.rglob("*")) == before
        assert (tmp_path / "file").read_text() == "mine"

    def test_a_run_whose_checkpoints_have_become_a_file_is_not_resumed(self, run, tmp_path):
        cut({**CONFIG, "checkpoint": {**CONFIG["checkpoint"], "path": f"{tmp_path}/states"}}, run, 16)
        (tmp_path / "states").rename(tmp_path / "kept")
        (tmp_path / "states").touch()
        with refused("configs.file_path", ConfigError, file=f"{tmp_path}/states"):
            resume(run)
