"""Change logs applied to a saved state, file by file, leave what one stream of all of them leaves.

The twin is one session that applies the whole change log; where labels are scored, one replay of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import pipelines
from pipelines.auditing import audit_run, audit_state, verify_run
from pipelines.saved_runs import open_state
from pipelines.updating import apply_changes
from raydt.sessions.session import InProcessSession
from raydt.streams.deletion_log import Changelog
from tests.cases import Trial, change_log, every_case, one_of_each
from tests.nets.test_continued import numbered
from tests.nets.test_runs import exactly
from tests.small_tables import written

#: Updates of the run, and of the two files that follow.
BEGIN, NEXT, END = 70, 100, 140


def config_of(trial: Trial, folder: Path) -> dict[str, Any]:
    """The config of a case, whose scores count weights where rows have some."""
    return trial.config(folder, output={"weighted_metrics": trial.case.weighted})


def in_parts(trial: Trial, folder: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Write a change log in three parts, the last as JSON Lines; all of it, and the config of the first."""
    rows = numbered(change_log(END, max(24, trial.case.warmup)))
    config = config_of(trial, folder)
    written(folder / "changes.arrow", rows.slice(0, BEGIN).replace_schema_metadata(rows.schema.metadata))
    pq.write_table(rows.slice(BEGIN, NEXT - BEGIN), folder / "second.parquet")
    lines = [json.dumps(row) for row in rows.slice(NEXT).to_pylist()]
    (folder / "third.jsonl").write_text("\n".join(lines) + "\n")
    return rows, config


def twin(trial: Trial, rows: pa.Table, folder: Path) -> InProcessSession:
    """One session that applies the whole change log, and completes what waits where a file ends."""
    folder.mkdir()
    config = trial.config(folder)
    written(folder / "changes.arrow", rows)
    stream = Changelog.model_validate(config["stream"]).make(trial.source(config))
    session, done = trial.session(stream), 0
    for stop in (BEGIN, NEXT, END):
        while done < stop:
            batch = next(stream.batches(min(7, stop - done)))
            session.apply(batch, skip_refused=True)
            done = batch.stop
        session.finish()
    return session


@every_case("change files")
def test_files_leave_what_one_stream_leaves(trial: Trial, tmp_path: Path) -> None:
    rows, config = in_parts(trial, tmp_path)
    run = pipelines.replay(config, tmp_path / "run")
    first = apply_changes(run.path, tmp_path / "second.parquet", out=tmp_path / "states", on_error="skip")
    both = [tmp_path / "second.parquet", tmp_path / "third.jsonl"]
    second = apply_changes(tmp_path / "states", both, on_error="skip")
    assert [len(first.files), len(first.known), len(second.files), len(second.known)] == [1, 0, 1, 1]
    expected = twin(trial, rows, tmp_path / "twin")
    saved, _ = open_state(tmp_path / "states")
    session = saved.session()
    assert session.digest() == expected.digest() == second.receipt.digest_after
    assert exactly(session.model()) == exactly(expected.model())
    state, own = expected.state()[0], saved.arrays
    assert exactly({name: own[name] for name in ("id", "y", "born")}) == exactly(
        {name: state[name] for name in ("id", "y", "born")}
    )
    assert saved.meta["offset"] == END
    assert (tmp_path / "states" / "latest").read_text() == f"{END}\n"
    live = session.coordinator.store.live
    for done in (first, second):
        receipt = done.receipt
        assert receipt.active == receipt.active_before - len(receipt.ids) + len(receipt.inserted)
        assert (done.counts["deletes"], done.counts["inserts"]) == (len(receipt.ids), len(receipt.inserted))
    assert second.receipt.active == live
    if not trial.learner.traits(trial.options).collects_updates:
        whole = tmp_path / "whole"
        whole.mkdir()
        config = config_of(trial, whole)
        written(whole / "changes.arrow", rows)
        metrics = pipelines.replay(config, whole / "run").metrics
        name = "mse" if trial.reading.regression else "accuracy"
        assert second.scores[name] == metrics[name]


@every_case("change files", one_of_each)
def test_the_new_state_is_audited_and_its_run_takes_it_in(trial: Trial, tmp_path: Path) -> None:
    _, config = in_parts(trial, tmp_path)
    run = pipelines.replay(config, tmp_path / "run")
    both = [tmp_path / "second.parquet", tmp_path / "third.jsonl"]
    done = apply_changes(run.path, both, out=tmp_path / "states", on_error="skip")
    assert audit_state(tmp_path / "states").ok
    taken = pipelines.resume(run.path, state=tmp_path / "states")
    assert taken.digest == done.receipt.digest_after
    report = audit_run(run.path)
    assert (report.conformance, report.failures) == ("holds", [])
    if trial.learner.traits(trial.options).retrained:
        assert verify_run(run.path)["equal"]
