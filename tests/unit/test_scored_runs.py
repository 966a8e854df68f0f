"""Scores of whole runs: delayed labels, alarms, and the scores of class 1 that learners give."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest

from pipelines import replay
from raydt.evaluation.scoring import LEVELS, NO_LEVEL
from raydt.examples.updates import CARRIES_ROW, DELETE, UPDATE, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import InProcessSession, small_stream

IN_PROCESS = {"backend": "in_process", "shards": 1}


def rows_of(n: int, delay: int) -> list[dict[str, Any]]:
    """A query of each row, and its insert with the label ``delay`` rows later; the concept turns in the middle."""
    draw = np.random.default_rng(3)
    x = draw.random((n, 2)).round(3)
    label = np.where((x[:, 0] > 0.5) ^ (np.arange(n) > n // 2), "yes", "no")
    rows = []
    for i in range(n + delay):
        features = {"a": x[min(i, n - 1), 0], "b": x[min(i, n - 1), 1]}
        if i < n:
            rows.append({"op": "query", "id": i, **features, "label": ""})
        if i >= delay:
            k = i - delay
            rows.append({"op": "insert", "id": k, "a": x[k, 0], "b": x[k, 1], "label": label[k]})
    return rows


def delayed_run(folder: Path, batch_size: int, delayed: bool = True) -> Any:
    rows = rows_of(1500, 40)
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    source = {"kind": "csv", "path": str(folder / "log.csv"), "op": "op", "id": "id", "label": "label"}
    config = {
        "source": source,
        "stream": {"model": "changelog", "delayed_labels": delayed},
        "learner": {"kind": "fudyadt"},
        "cluster": {**IN_PROCESS, "batch_size": batch_size},
        "output": {"predictions": True, "metrics_every": 500, "report": False},
    }
    return replay(config, folder / f"run-{batch_size}-{delayed}")


def test_delayed_labels_are_scored_by_the_query(tmp_path: Path) -> None:
    run = delayed_run(tmp_path, 64)
    table = ds.dataset(f"{run.path}/predictions").to_table().to_pylist()
    asked = {row["id"]: row["prediction"] for row in table if row["truth"] is None}
    inserted = [row for row in table if row["truth"] is not None]
    hits = [row["truth"] == asked[row["id"]] for row in inserted]
    assert run.summary["metrics"]["accuracy"] == np.mean(hits)
    at_once = delayed_run(tmp_path, 64, delayed=False)
    assert at_once.summary["metrics"]["accuracy"] == np.mean([r["truth"] == r["prediction"] for r in inserted])
    assert at_once.summary["model_digest"] == run.summary["model_digest"]
    # Without a delay in between, no-change would have known the label of the row before.
    labels = [row["truth"] for row in inserted]
    known = [labels[k - 41] if k > 40 else run.summary["classes"][0] for k in range(len(labels))]
    assert run.summary["baselines"]["no_change"] == np.mean([a == b for a, b in zip(labels, known, strict=True)])


def test_no_score_and_no_alarm_depends_on_the_batches(tmp_path: Path) -> None:
    runs = [delayed_run(tmp_path, size) for size in (1, 37, 4096)]
    tables = [
        {name: ds.dataset(f"{run.path}/{name}").to_table().to_pydict() for name in ("metrics", "alarms")}
        for run in runs
    ]
    for table in tables:
        del table["metrics"]["seconds"]
    assert repr(tables[0]) == repr(tables[1]) == repr(tables[2])
    alarms = tables[0]["alarms"]
    assert len(alarms["seq"]) == runs[0].summary["metrics"]["alarms"] >= 1
    assert all(after > before for before, after in zip(alarms["error_before"], alarms["error_after"], strict=True))
    assert any(1500 < seq < 2200 for seq in alarms["seq"]), "the concept turns after update 1,540"
    summary = json.loads((Path(runs[0].path) / "summary.json").read_text())
    assert 0.5 < summary["metrics"]["auc"] < 1
    assert tables[0]["metrics"]["auc"][-1] == summary["metrics"]["auc"]


CASES = [
    pytest.param(kind, case, id=f"{kind}, {case.name}")
    for kind, learner in learners().items()
    for case in learner.cases()
    if case.classes == 2
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_the_score_of_a_prediction_is_the_share_that_the_model_gives(kind: str, case: Any) -> None:
    """After the warm-up one update at a time, against ``predict_proba`` just before it, without smoothing."""
    learner = learners()[kind]
    features, batch = small_stream(case)
    options = {**case.options, "kind": kind}
    if "smoothing" in learner.Options.model_fields:
        options["smoothing"] = 0
    session = InProcessSession(learner, learner.Options.model_validate(options), features, 1, case.plan)
    traits = learner.traits(learner.Options.model_validate(options))
    row, given = 0, 0
    warmup, starts = case.warmup, [0, *range(max(1, case.warmup), len(batch))]
    for at, stop in zip(starts, [*starts[1:], len(batch)], strict=True):
        carried = int(CARRIES_ROW[batch.op[at:stop]].sum())
        part, rows = slice(at, stop), slice(row, row + carried)
        sparse = None if batch.sparse is None else batch.sparse[np.arange(row, row + carried)]
        one = UpdateBatch(
            *(at, batch.op[part], batch.id[part], batch.X[rows], batch.y[rows], 2, batch.row[part], warmup),
            sparse=sparse,
        )
        row += carried
        more: dict[str, Any] = {} if sparse is None else {"sparse": sparse}
        before = session
        if at and one.op[0] == UPDATE and traits.parts:  # a learner of parts predicts once the old example is deleted
            before = InProcessSession(learner, learner.Options.model_validate(options), features, 1, case.plan)
            before.restore(*session.state())
            none = None if sparse is None else sparse[np.empty(0, np.int64)]
            before.apply(
                UpdateBatch(at, np.array([DELETE], np.int8), one.id, one.X[:0], one.y[:0], 2, one.row, sparse=none)
            )
        before.driver.run(before.coordinator.gather())
        expected = before.coordinator.predict_proba(one.X, 2, **more) if carried and at else None
        result = session.apply(one)
        if result.levels is None or result.levels[0] == NO_LEVEL or expected is None or one.op[0] == DELETE:
            continue
        if session.statistics()["active"] > 1:
            assert int(result.levels[0]) == int(np.floor(expected[0, 1] * LEVELS + 0.5))
            given += 1
    if kind in gives_scores():
        assert given > 20, traits


def gives_scores() -> set[str]:
    """Learners whose predictions have scores, as the documentation says."""
    text = (Path(__file__).parents[2] / "docs/explanation/evaluation.md").read_text()
    sentence = text[text.index("score for every prediction.") : text.index("give such a\nscore")]
    return {kind for kind in learners() if f"`{kind}`" in sentence}
