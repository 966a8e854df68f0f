"""What a resume refuses and how it says it; when there is nothing to do; who may write a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import replay, resume, update
from pipelines.auditing import audit_run
from raydt.errors import ConfigError, InputError, ModelFileError
from raydt.folders.folder import LOCK, Folder, locked
from raydt.messages import message
from tests.cut_runs import cut
from tests.refusals import refused

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


@pytest.mark.parametrize("model", ["incremental", "sliding_window", "random_updates", "deletion_log"])
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
