"""After a purge no byte of a run's folder holds a deleted example, for every case, also after kills.

The example has a text id, numbers, a category and an event time that occur nowhere else. It is inserted after the
warm-up, which alone fixes bins, and predicted; messages about refused updates quote its id.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pipelines
from pipelines.auditing import audit_run
from pipelines.prediction import predict_file
from pipelines.purging import purge
from pipelines.run_folder import RunFolder
from pipelines.running.outcome.summary import read_summary
from pipelines.saving import load_state
from raydt.folders.folder import Folder
from tests.canaries import canary, hits
from tests.cases import Trial, change_log, every_case, one_of_each
from tests.small_tables import SCHEMA, derived, examples, table_of, written


class Killed(BaseException):
    """The process ends here."""


def run_with_canaries(trial: Trial, folder: Path) -> Path:
    """A finished run whose stream inserts an example, refuses it again, and deletes it."""
    config = trial.config(folder, 90)
    config["output"]["report"] = True
    before = [{**derived(one), **one} for one in change_log(90, trial.case.warmup)]
    base, *after = ({**derived(one), **one} for one in examples(13, 5))
    row, again = {**base, **canary()}, {**base, **canary("again ")}
    more = [
        {**row, "op": "insert"},
        {**row, "op": "query"},
        {**row, "op": "insert"},  # its id is live: refused, and quoted
        *({**one, "id": f"after {i}", "op": "insert"} for i, one in enumerate(after)),
        {**row, "op": "delete"},
        {**again, "op": "delete"},  # unknown: quoted, too
        *({**one, "id": f"later {i}", "op": "insert"} for i, one in enumerate(after[:4])),
    ]
    written(folder / "changes.arrow", pa.Table.from_pylist([*before, *more], SCHEMA))
    return Path(pipelines.replay(config, folder / "run").path)


def ops(monkeypatch: pytest.MonkeyPatch, stop: int | None) -> list[str]:
    """Count what is done to the storage; the process dies before operation ``stop``."""
    done: list[str] = []
    for name in ("_rename", "_delete_file", "_open_to_write", "_delete_all"):
        real = getattr(Folder, name)

        def step(self: Any, *arguments: Any, real: Any = real, name: str = name) -> Any:
            if stop is not None and len(done) >= stop:
                raise Killed
            done.append(name)
            return real(self, *arguments)

        monkeypatch.setattr(Folder, name, step)
    return done


@every_case("a purge", one_of_each)
def test_nothing_of_a_deleted_example_remains(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with_canaries(trial, tmp_path)
    assert {name.split("/")[0] for name in hits(run)} >= {"checkpoints", "predictions", "quarantine"}
    digest = read_summary(RunFolder(run))["model_digest"]
    draw = random.Random(trial.name)
    for _ in range(3):
        with monkeypatch.context() as patched:
            ops(patched, draw.randrange(12))
            with pytest.raises(Killed):
                purge(run)
    done = purge(run)
    assert hits(run) == {}
    assert (done["digest"], len(list((run / "checkpoints").glob("[0-9]*")))) == (digest, 1)
    assert purge(run)["digest"] == digest
    report = audit_run(run)
    assert report.ok, report
    assert load_state(RunFolder(run / "checkpoints"))[0]["offset"] == read_summary(RunFolder(run))["updates"]
    assert pipelines.resume(run).summary["model_digest"] == digest
    gone = tmp_path / "gone.csv"
    gone.write_text("id\nlater 0\n")
    receipt = pipelines.update(run, delete=gone, out=tmp_path / "second")
    assert receipt.digest_before == digest
    assert hits(tmp_path / "second") == {}
    rows = written(tmp_path / "rows.arrow", table_of(examples(5)))
    assert predict_file(run, rows, tmp_path / "predicted.parquet")["rows"] == 5
