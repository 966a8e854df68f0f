"""The audit of a run that follows a table compares its live examples with the table at the version."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("deltalake")

from pipelines import replay
from pipelines.auditing import audit_run, last_of
from pipelines.following.follow import follow
from pipelines.following.table_audit import CHECKED, compare_with_table
from pipelines.run_folder import RunFolder
from raydt.audits.audit_report import AuditReport
from tests.live_tables import LiveTable
from tests.unit.test_follow import changed, job


def test_the_live_examples_are_the_rows_of_the_table_at_the_version(tmp_path: Path) -> None:
    table = changed(tmp_path)
    follow(job(table), tmp_path / "run", until_idle=0.0)
    rows = len(table.at(None))
    table.delete()  # which the run has not seen
    report = audit_run(tmp_path / "run")
    assert report.ok, report
    assert report.checked[CHECKED] == rows


@pytest.mark.parametrize("what", ["value", "label", "id"])
def test_an_example_that_is_not_as_in_the_table_is_a_violation(tmp_path: Path, what: str) -> None:
    table = LiveTable(tmp_path / "table")
    table.overwrite()
    replay(job(table), tmp_path / "run")
    ended = last_of(RunFolder(tmp_path / "run"))
    history, live = ended.history, int(np.argmax(ended.history.deleted))
    if what == "value":
        history.X[live, 0] += 1
    elif what == "label":
        history.y[live] = (history.y[live] + 1) % 3
    else:
        history.deleted[live] = 50
    report = AuditReport("holds", "proven", "")
    compare_with_table(report, ended.config, ended.components["stream"], history, ended.names)
    assert report.conformance == "violated"
    assert "version 1" in report.failures[0]
