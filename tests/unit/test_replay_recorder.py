"""What a run records: against a loop over single updates, and whatever way the stream was cut."""

from __future__ import annotations

import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.operation import Output
from pipelines.run_folder import RunFolder
from pipelines.running.records import Recorder
from raydt.errors import UpdateError
from raydt.evaluation.scoring import CLASS_SCORES, FADED
from raydt.examples.updates import (
    CARRIES_ROW,
    CODES,
    DELETE,
    DUPLICATE_ID,
    INSERT,
    QUERY,
    REFUSALS,
    UNKNOWN_ID,
    UPDATE,
    BatchResult,
    Refusal,
    UpdateBatch,
)


class FakeSource:
    positive = None
    known_classes = 0
    target_dtype = CODES
    classes = ("a", "b", "c", "read ahead")

    def __init__(self, id_kind="integer"):
        self.id_kind = id_kind


class FakeStream:
    delayed = False
    planned_warmup = 0

    times = None

    def __init__(self, id_kind="integer"):
        self.source = FakeSource(id_kind)

    def where(self, row):
        return ("data.csv", row % 100) if row >= 0 else ("deletions.csv", -2 - row)


def read(folder, table):
    return pq.read_table(folder.path(f"{table}/part-00000.parquet")).to_pylist()


def updates(n, seed=1):
    rng = np.random.default_rng(seed)
    op = rng.choice([INSERT, INSERT, DELETE, UPDATE, QUERY], n).astype(np.int8)
    truth = rng.integers(0, 3, n).astype(np.int32)
    prediction = np.where(CARRIES_ROW[op], rng.integers(0, 3, n), -1).astype(np.int32)
    prediction[:5] = -1
    return op, truth, prediction


def run(folder, n, size, every, refused=(), output=None):
    """Record ``n`` updates in batches of ``size`` that never cross a multiple of ``every``."""
    op, truth, prediction = updates(n)
    prediction[list(refused)] = -1
    recorder = Recorder(folder, output or Output(metrics_every=every, predictions=True), FakeStream())
    begin = 0
    while begin < n:
        end = min(n, begin + size, begin + every - begin % every)
        part = slice(begin, end)
        carries = CARRIES_ROW[op[part]]
        batch = UpdateBatch(
            begin,
            op[part],
            np.arange(begin, end) + 1000,
            np.zeros((int(carries.sum()), 1)),
            truth[part][carries],
            3,
            np.arange(begin, end),
        )
        refusals = [Refusal(i - begin, UNKNOWN_ID) for i in refused if begin <= i < end]
        statistics = {"nodes": end, "leaves": 1, "depth": 2, "rebuilds": end, "rebuilt_rows": 4}
        result = BatchResult(end - begin, prediction[part], refusals, statistics=statistics)
        result.log = {
            "seq": np.arange(begin, end)[op[part] == DELETE],
            "rows": np.ones(int((op[part] == DELETE).sum())),
        }
        recorder.record(batch, result, float(end))
        begin = end
    recorder.close()
    return recorder, (op, truth, prediction)


def test_tables_equal_a_loop_over_updates(tmp_path):
    refused = [20, 33, 34]
    recorder, (op, truth, prediction) = run(RunFolder(tmp_path), 95, 7, 10, refused)
    rows = read(RunFolder(tmp_path), "metrics")
    assert [row["seq"] for row in rows] == [10, 20, 30, 40, 50, 60, 70, 80, 90, 95]
    inserts = deletes = predictions = scored = hits = 0
    window_scored = window_hits = 0
    for i in range(95):
        learned = op[i] in (INSERT, UPDATE) and i not in refused
        inserts += learned
        deletes += op[i] in (DELETE, UPDATE) and i not in refused
        predictions += prediction[i] >= 0
        if learned and prediction[i] >= 0:
            scored, window_scored = scored + 1, window_scored + 1
            hits, window_hits = hits + (truth[i] == prediction[i]), window_hits + (truth[i] == prediction[i])
        if (i + 1) % 10 == 0 or i == 94:
            row = rows.pop(0)
            counts = (row["seq"], row["inserts"], row["deletes"], row["predictions"], row["active"], row["nodes"])
            assert counts == (i + 1, inserts, deletes, predictions, inserts - deletes, i + 1)
            assert row["accuracy"] == hits / scored
            assert row["window_accuracy"] == pytest.approx(window_hits / window_scored)
            window_scored = window_hits = 0
    assert (recorder.inserts, recorder.deletes, recorder.refused) == (inserts, deletes, 3)
    parts = (inserts - recorder.replaced, deletes - recorder.replaced, recorder.replaced, recorder.queries, 3)
    assert sum(parts) == recorder.updates == 95
    assert min(parts) > 0


def test_predictions_carry_labels_and_queries_without_a_label_have_none(tmp_path):
    folder = RunFolder(tmp_path)
    recorder = Recorder(folder, Output(predictions=True), FakeStream())
    op = np.array([INSERT, DELETE, QUERY], dtype=np.int8)
    batch = UpdateBatch(0, op, np.array([5, 6, 0]), np.zeros((2, 1)), np.array([2, -1], np.int32), 3, np.arange(3))
    recorder.record(batch, BatchResult(3, np.array([0, -1, 1], np.int32)), 0.0)
    recorder.close()
    assert read(folder, "predictions") == [
        {"seq": 0, "id": 5, "prediction": "a", "truth": "c"},
        {"seq": 2, "id": 0, "prediction": "b", "truth": None},
    ]
    assert recorder.predictions == 2
    assert recorder.prequential.snapshot().scored == 1  # a query is only predicted


def test_predictions_carry_the_ids_of_the_user(tmp_path):
    folder = RunFolder(tmp_path)
    recorder = Recorder(folder, Output(predictions=True), FakeStream("text"))
    op = np.array([INSERT, QUERY], dtype=np.int8)
    rows = np.zeros((2, 1)), np.array([1, -1], np.int32), 3, np.arange(2)
    batch = UpdateBatch(0, op, np.array([5, -1]), *rows, names=["c5", None])
    recorder.record(batch, BatchResult(2, np.array([0, 1], np.int32)), 0.0)
    recorder.close()
    assert [row["id"] for row in read(folder, "predictions")] == ["c5", None]
    assert recorder.classes == ["a", "b"]  # others were only read ahead
    assert np.shape(recorder.metrics()["confusion"]) == (2, 2)


def test_only_the_part_that_was_taken_counts(tmp_path):
    recorder = Recorder(RunFolder(tmp_path), Output(), FakeStream())
    op = np.array([INSERT, INSERT, INSERT], dtype=np.int8)
    batch = UpdateBatch(
        7, op, np.array([1, 2, 2]), np.zeros((3, 1)), np.zeros(3, np.int32), 1, np.array([101, 102, 103])
    )
    result = BatchResult(2, np.array([0, 0, -1], np.int32), [Refusal(2, DUPLICATE_ID)])
    recorder.record(batch, result, 0.0)
    assert (recorder.updates, recorder.inserts, recorder.refused) == (9, 2, 0)
    error = recorder.update_error(batch, result.refused[0])
    assert isinstance(error, UpdateError)
    assert str(error).startswith(f"data.csv, row 3: update 9: {REFUSALS[DUPLICATE_ID][0]} (id 2). ")


def test_undefined_shares_are_null_in_the_summary_and_nan_in_the_table(tmp_path):
    folder = RunFolder(tmp_path)
    recorder = Recorder(folder, Output(), FakeStream())
    recorder.close()
    undefined = dict.fromkeys([score.name for score in CLASS_SCORES] + [f"faded_{name}" for name in FADED])
    assert recorder.metrics() == {**undefined, "alarms": 0, "confusion": []}
    assert recorder.baselines() == {"no_change": None, "majority": None}
    assert math.isnan(read(folder, "metrics")[0]["accuracy"])
