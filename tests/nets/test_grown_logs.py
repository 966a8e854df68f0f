"""A completed run of a change log in a folder goes on with the files that have come since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run
from raydt.errors import ConfigError
from raydt.exchange.messages import injected
from tests.cases import Trial, change_log, every_case, one_of_each
from tests.cut_runs import Gone, at
from tests.nets.test_continued import numbered
from tests.nets.test_runs import results
from tests.refusals import refused

BEGIN, END = 90, 150


class Grown:
    """A change log in a folder that gets a second file."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        rows = numbered(change_log(END, max(24, trial.case.warmup)))
        self.folder, self.parts = folder / "changes", (rows.slice(0, BEGIN), rows.slice(BEGIN))
        self.folder.mkdir()
        config: dict[str, Any] = trial.config(folder)
        sparse = {"n_features": 16} if trial.case.sparse else {}
        source = {**config["source"], "kind": "parquet", "path": str(self.folder), **sparse}
        self.config = {**config, "source": source}

    def write(self, number: int) -> None:
        """Write one file of the log."""
        pq.write_table(self.parts[number], self.folder / f"{number}.parquet")


def whole(trial: Trial, folder: Path) -> pipelines.RunResult:
    """A run of both files."""
    folder.mkdir()
    grown = Grown(trial, folder)
    grown.write(0)
    grown.write(1)
    return pipelines.replay(grown.config, folder / "run")


@every_case("a change log that grows", one_of_each)
def test_a_completed_run_goes_on_with_new_files(trial: Trial, tmp_path: Path) -> None:
    grown = Grown(trial, tmp_path)
    grown.write(0)
    before = pipelines.replay(grown.config, tmp_path / "run")
    assert pipelines.resume(before.path).digest == before.digest  # nothing to do
    grown.write(1)
    with injected(at(2)), pytest.raises(Gone):
        pipelines.resume(before.path)
    run = pipelines.resume(before.path)
    assert run.summary["updates"] == END
    report = audit_run(run.path)
    assert (report.conformance, report.failures) == ("holds", [])
    if not trial.learner.traits(trial.options).collects_updates:  # the end of a run completes their last batch
        expected = results(whole(trial, tmp_path / "whole"))
        found = results(run)
        rows = {name for name in found if name.startswith("metrics.")}  # one more, where the run had ended
        assert {name: found[name] for name in found.keys() - rows} == {
            name: expected[name] for name in expected.keys() - rows
        }
        assert run.metrics == whole(trial, tmp_path / "again").metrics
    (grown.folder / "0.parquet").unlink()
    grown.write(1)
    pq.write_table(grown.parts[0], grown.folder / "2.parquet")
    pq.write_table(grown.parts[0], grown.folder / "3.parquet")
    with refused("runs.other_data", ConfigError):
        pipelines.resume(before.path)
