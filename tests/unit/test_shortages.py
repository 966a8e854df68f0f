"""Runs that are cut off: by shortages, full disks, folders that are gone, and checkpoints that fail."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import doctor, prediction, replay, resume
from pipelines.operation import dump_yaml
from pipelines.run_folder import RunFolder
from pipelines.running.intake import RestartBudget
from raydt import load_model
from raydt.errors import (
    STORAGE_REMEDIES,
    CheckpointsFailError,
    ConfigError,
    ModelFileError,
    ProcessLostError,
    RaydtError,
    ResourceError,
)
from raydt.exchange.messages import injected
from raydt.folders.folder import LOCK, Folder, locked, locked_here
from raydt.messages import message
from raydt.sessions.session import InProcessSession
from raydt.sources.files.csv import CsvDataFile
from raydt.sources.files.datafile import ArrowDataFile, DataFile, ParquetDataFile, reading
from raydt.sources.files.libsvm import LibsvmDataFile
from tests.refusals import refused
from tests.storage_faults import Fault, FaultyStorage, cut
from tests.unit.updatable import JOB

# -- shortages -------------------------------------------------------------------------------------------------------
# A machine that is short of memory or of open files is named, and never the file that was being read.

pytestmark = pytest.mark.usefixtures("steady_checkpoints")

OF_MEMORY: list[BaseException] = [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 4096 failed"),
    OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
]
SHORTAGES = [*OF_MEMORY, *(OSError(number, os.strerror(number)) for number in (errno.EMFILE, errno.ENFILE))]
#: What blames a file.
BLAME = ("complete", "damaged", "Restore", "does not hold", "different types")


def of(error: BaseException) -> str:
    return "out of memory" if error in OF_MEMORY else "many open files"


def named(error: BaseException) -> str:
    return f"{type(error).__name__} {error}"


def assert_not_blamed(text: str, error: BaseException) -> None:
    assert of(error) in text
    assert not [word for word in BLAME if word in text], text


def test_open_files_are_counted_by_the_system(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "rows.parquet")
    before, held = resource.getrlimit(resource.RLIMIT_NOFILE), [os.open(tmp_path, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 8, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(tmp_path, os.O_RDONLY))
        with refused("machine.process_files", ResourceError), reading("rows.parquet"):
            pq.ParquetFile(tmp_path / "rows.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in held:
            os.close(descriptor)


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, str]:
    """The same rows in a file of each kind."""
    n = 3000
    table = pa.table({"x": [float(i * 37 % 101) for i in range(n)], "y": [i * 37 % 101 > 50 for i in range(n)]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=500)
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as writer:
        writer.write_table(table, 500)
    lines = [f"{x},{int(y)}" for x, y in zip(*table.to_pydict().values(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y", *lines]), encoding="utf-8")
    lines = [f"{int(y)} 1:1 {2 + i % 50}:1" for i, y in enumerate(table["y"].to_pylist())]
    (tmp_path / "rows.libsvm").write_text("\n".join(lines), encoding="utf-8")
    return {kind: str(tmp_path / f"rows.{kind}") for kind in ("parquet", "arrow", "csv", "libsvm")}


KINDS: dict[str, type[DataFile]] = {
    "parquet": ParquetDataFile,
    "arrow": ArrowDataFile,
    "csv": CsvDataFile,
    "libsvm": LibsvmDataFile,
}


class Short:
    """Batches of a file, or an error in place of the batch ``at``, counted from 1, of all that are read."""

    def __init__(self, work: Callable[..., Iterator[Any]], error: BaseException | None = None, at: int = 0) -> None:
        self.work, self.error, self.at, self.count = work, error, at, 0

    def batches(self, file: DataFile, *arguments: Any) -> Iterator[Any]:
        for batch in self.work(file, *arguments):
            self.count += 1
            if self.error is not None and self.count == self.at:
                raise self.error
            yield batch


@pytest.mark.turns(7)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", SHORTAGES, ids=named)
def test_a_run_that_lacks_something_resumes(
    kind: str, error: BaseException, rows: dict[str, str], tmp_path: Path, monkeypatch, raydt
) -> None:
    label = {} if kind == "libsvm" else {"label": "y"}
    learner = {"kind": "sparse_tree"} if kind == "libsvm" else {"kind": "fudyadt", "max_depth": 3}
    job = {**JOB, "source": {"kind": kind, "path": rows[kind], **label}, "learner": learner}
    work = KINDS[kind]._batches
    all_read = Short(work)
    with monkeypatch.context() as patch:
        patch.setattr(KINDS[kind], "_batches", lambda *arguments: all_read.batches(*arguments))
        right = replay(job, tmp_path / "right").summary["model_digest"]
    (tmp_path / "job.yaml").write_text(dump_yaml(job), encoding="utf-8")
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        short = Short(work, error, random.Random(f"{kind} {error}").randrange(all_read.count) + 1)
        patch.setattr(KINDS[kind], "_batches", lambda *arguments: short.batches(*arguments))
        code, out, err = raydt("replay", tmp_path / "job.yaml", "--out", run)
    assert (code, out) == (1, "")
    assert_not_blamed(err, error)
    assert "Traceback" not in err
    if run.exists():  # it has begun
        assert f"raydt resume {run}" in err
        assert json.loads((run / "summary.json").read_text(encoding="utf-8"))["exit_reason"] != "bad_input"
        assert resume(run).summary["model_digest"] == right


@pytest.mark.parametrize("error", SHORTAGES, ids=named)
def test_a_state_is_not_blamed(error: BaseException, tmp_path: Path, monkeypatch, raydt) -> None:
    run = tmp_path / "run"
    replay(JOB, run)
    pq.write_table(pa.table({f"x{i}": [1.0] for i in range(3)}), tmp_path / "new.parquet")
    work, draw = Folder._open_to_read, random.Random(str(error))

    def at(number: int) -> Callable[..., Any]:
        left = iter(range(number))

        def fail(folder: Folder, path: str) -> Any:
            if next(left, None) is None:
                raise error
            return work(folder, path)

        return fail

    for command in (["predict", run, tmp_path / "new.parquet", "--out", tmp_path / "p.parquet"], ["audit", run]):
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "_open_to_read", at(draw.randrange(2, 5) if command[0] == "audit" else 1))
            code, out, err = raydt(*command)
        assert (code, out) == (1, ""), err
        assert_not_blamed(err, error)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "_open_to_read", at(0))
        with pytest.raises(ResourceError) as raised:
            load_model(run)
    assert_not_blamed(str(raised.value), error)
    load_model(run)


# -- cut off ---------------------------------------------------------------------------------------------------------
# Ray's object plane is cut off and its control plane is not: batches are applied, and no part of a shard arrives.
#
# Such a checkpoint fails as if the shard were lost, although it is not. ``tests/integration/test_ray_kills.py`` has
# the same on real Ray.

#: 25 batches.
CONFIG = {**JOB, "cluster": {"backend": "in_process", "batch_size": 20}}
SILENT = message("cluster.no_progress", name="shard 0 (pid 7 on far)", seconds=20)


def every(updates: int) -> dict[str, Any]:
    """A job with a checkpoint every so many updates."""
    return {**CONFIG, "checkpoint": {"every_seconds": None, "every_updates": updates}}


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No parts arrive, nine times; which births the snapshots without parts had. Then they do, so that a test ends."""
    snapshot, lost = InProcessSession.snapshot, list[int]()

    def parts() -> Iterator[Any]:
        raise ProcessLostError(SILENT, actor="shard", shard=0)
        yield

    def cut(self: InProcessSession, *arguments: Any) -> Any:
        taken = snapshot(self, *arguments)
        if len(lost) < 9:
            lost.append(len(taken.born))
            taken.parts = parts()
        return taken

    monkeypatch.setattr(InProcessSession, "snapshot", cut)
    return lost


def test_a_run_stops_with_the_cause_instead_of_going_on_without_checkpoints(tmp_path: Path, cut_off: list[int]) -> None:
    with refused("runs.no_checkpoint", CheckpointsFailError, failed=5, cause=SILENT):
        replay(every(20), tmp_path / "run")
    assert cut_off == [20, 40, 60, 80, 100, 120]  # the last comes with the batch after which the run is found to fail
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["exit_reason"], summary["restarts"]) == ("failed", "CheckpointsFailError", 0)
    assert (summary["checkpoints"]["failed"], summary["checkpoints"]["written"]) == (5, 0)
    cut_off += [0] * 9
    assert resume(tmp_path / "run").digest == replay(CONFIG, tmp_path / "whole").digest


def test_a_run_that_comes_to_its_last_checkpoint_is_not_repeated_for_ever(
    tmp_path: Path, cut_off: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is due before, and a pass takes so long that the budget of restarts has room for one more each time."""
    monkeypatch.setattr("pipelines.running.loop.RestartBudget", lambda: RestartBudget(seconds=0.0))
    with refused("runs.no_checkpoint", CheckpointsFailError, failed=5, cause=SILENT):
        replay(every(10**6), tmp_path / "run")
    assert cut_off == [500] * 5
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["restarts"]) == ("failed", 4)


# -- full disk -------------------------------------------------------------------------------------------------------
# Storage that is full, read-only or no folder: one clear error, nothing left behind, and a verdict all the same.

CONFIG_DISK = {
    **JOB,
    "cluster": {"backend": "in_process", "batch_size": 20},
    "checkpoint": {"every_seconds": None, "every_updates": 200},
    "output": {"report": False, "metrics_every": 50},
}

REPORTED = {**CONFIG_DISK, "output": {**CONFIG_DISK["output"], "report": True}}


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
        cut(CONFIG_DISK, run, 16)  # after its first checkpoint
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
        (tmp_path / "job.yaml").write_text(dump_yaml(CONFIG_DISK))
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
        (tmp_path / "job.yaml").write_text(dump_yaml(CONFIG_DISK))
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
        replay(CONFIG_DISK, run)
        pq.write_table(pa.table({f"x{i}": [1.0] for i in range(3)}), tmp_path / "new.parquet")
        with monkeypatch.context() as patch:
            patch.setattr(prediction.pq, "ParquetWriter", of_storage(errno.EROFS))
            patch.setattr(prediction.Path, "unlink", of_storage(errno.EROFS))
            ended = raydt("predict", run, tmp_path / "new.parquet", "--out", tmp_path / "p.parquet")
        assert_one_error(ended, 2, "p.parquet: the predictions cannot be")

    def test_a_page_that_cannot_be_written_leaves_nothing(self, run, raydt, tmp_path, monkeypatch):
        replay(CONFIG_DISK, run)
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
        job = {**CONFIG_DISK, "checkpoint": {"path": f"{tmp_path}/file{below}"}}
        (tmp_path / "job.yaml").write_text(dump_yaml(job))
        said = f"checkpoint.path = {tmp_path}/file{below}: "
        assert_one_error(raydt("replay", tmp_path / "job.yaml", "--out", run), 2, said)
        assert not run.exists()
        replay(CONFIG_DISK, run)
        before = sorted(run.rglob("*"))
        ended = raydt("replay", tmp_path / "job.yaml", "--out", run, "--overwrite")
        assert_one_error(ended, 2, message("configs.file_path", file=f"{tmp_path}/file"))
        assert sorted(run.rglob("*")) == before
        assert (tmp_path / "file").read_text() == "mine"

    def test_a_run_whose_checkpoints_have_become_a_file_is_not_resumed(self, run, tmp_path):
        cut({**CONFIG_DISK, "checkpoint": {**CONFIG_DISK["checkpoint"], "path": f"{tmp_path}/states"}}, run, 16)
        (tmp_path / "states").rename(tmp_path / "kept")
        (tmp_path / "states").touch()
        with refused("configs.file_path", ConfigError, file=f"{tmp_path}/states"):
            resume(run)


# -- newest checkpoint -----------------------------------------------------------------------------------------------
# Checkpoints of a run at work: a command takes the newest complete one, or names it, never the one being written.

COMMANDS = {
    "predict": ["predict", "{}", "new.parquet", "--out", "predictions.parquet", "--overwrite"],
    "audit": ["audit", "{}", "--json"],
    "export": ["export", "{}", "--to", "sklearn", "--out", "model.skops", "--overwrite"],
    "update": ["update", "{}", "--delete", "ids.parquet", "--out", "state", "--dry-run"],
}


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Checkpoints of a run, at updates 100 to 500."""
    monkeypatch.chdir(tmp_path)
    every = {"every_seconds": None, "every_updates": 100, "keep": 5}
    replay({**JOB, "cluster": {"backend": "in_process", "batch_size": 100}, "checkpoint": every}, tmp_path / "run")
    pq.write_table(pa.table({f"x{i}": [1.0] for i in range(3)}), "new.parquet")
    pq.write_table(pa.table({"id": [3]}), "ids.parquet")
    states = tmp_path / "run" / "checkpoints"
    assert [states / f"{number}00" in list(states.iterdir()) for number in range(1, 6)] == [True] * 5
    return states


@pytest.mark.parametrize("command", COMMANDS)
def test_the_newest_complete_one_is_taken_or_named(raydt, states: Path, command: str) -> None:
    draw = random.Random(command)
    incomplete = {500, *draw.sample([200, 300, 400], draw.randrange(4))}
    for number in incomplete:  # the manifest is written last, and removed first
        (states / str(number) / "manifest.json").unlink()
    newest = max({100, 200, 300, 400} - incomplete)

    def answer(place: Path) -> tuple[int, str, str]:
        return raydt(*(word.format(place) for word in COMMANDS[command]))

    right = answer(states / str(newest))
    assert right[0] == 0
    for place in (states, Path(f"{states}/"), states.relative_to(Path.cwd())):
        assert answer(place)[0] == 0
    for number in (*incomplete, 600):
        code, out, err = answer(states / str(number))
        said = message("models.incomplete", newest=f"{states}/{newest}", above=str(states))
        assert (code, out) == (2, "")
        assert err.splitlines()[-1] == f"error: {states}/{number}: {said}"


def test_an_estimator_is_loaded_from_the_newest(states: Path) -> None:
    (states / "500" / "manifest.json").unlink()
    assert load_model(states).digest() == load_model(states / "400").digest()
    with refused("models.incomplete", ModelFileError, file=str(states / "500"), newest=str(states / "400")):
        load_model(states / "500")
    for number in (100, 200, 300, 400):
        (states / str(number) / "manifest.json").unlink()
    with refused("models.no_model", ModelFileError):
        load_model(states)


def test_a_run_at_work_names_its_checkpoints(raydt, states: Path) -> None:
    run = states.parent
    (run / "summary.json").unlink()
    code, _, err = raydt("predict", run, "new.parquet", "--out", "p.parquet")
    assert code == 2
    assert message("runs.unsaved", run=run) in err


# -- removed folder --------------------------------------------------------------------------------------------------
# A run folder that is removed, or replaced, while the run is at work: one error, and no promise to resume.

CONFIG_FOLDER = {
    **JOB,
    "source": {"kind": "synthetic", "generator": "sea", "n": 2000},
    "cluster": {"backend": "in_process", "batch_size": 20},
    "checkpoint": {"every_seconds": None, "every_updates": 200},
    "output": {"report": True, "metrics_every": 50, "predictions": True},
}

#: Points that a run passes, and how often at least.
POINTS = {"driver.recorded": 90, "checkpoint.before_manifest": 8, "run.before_compaction": 1, "run.before_report": 1}


def moved(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))


def removed(run: Path) -> None:
    moved(run)  # at once, whatever another thread writes there
    shutil.rmtree(run.with_name("elsewhere"), ignore_errors=True)


def replaced(run: Path) -> None:
    """By a run of another process."""
    removed(run)
    run.mkdir()
    for name in (LOCK, "config.yaml"):
        (run / name).write_text("another's", encoding="utf-8")


def a_file(run: Path) -> None:
    removed(run)
    run.write_text("mine", encoding="utf-8")


@pytest.mark.turns(6)
@pytest.mark.parametrize("how", [removed, moved, replaced, a_file])
@pytest.mark.parametrize("point", POINTS)
def test_one_error_says_that_the_run_is_lost(point: str, how: Callable[[Path], None], tmp_path: Path) -> None:
    run, draw = tmp_path / "run", random.Random(f"{point} {how.__name__}")
    at, passed = draw.randrange(POINTS[point]), iter(range(10**6))
    stopped = draw.random() < 0.3  # by a signal, too, which would promise to resume

    def remove(there: str) -> None:
        if there == point and next(passed) == at:
            how(run)
            if stopped:
                os.kill(os.getpid(), signal.SIGTERM)

    with injected(remove), refused("runs.removed", RaydtError) as raised:
        replay(CONFIG_FOLDER, run)
    assert str(raised.value).startswith(f"{run}: ")
    assert not raised.value.kept
    assert not (run / "summary.json").exists()
    if how is replaced:
        assert {path.read_text(encoding="utf-8") for path in (run / LOCK, run / "config.yaml")} == {"another's"}
