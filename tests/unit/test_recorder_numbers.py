"""What a run of a regression records: numbers in tables and scores, however it is cut, and after a restore."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_replay_recorder import FakeSource, FakeStream

from pipelines.operation import Output
from pipelines.run_folder import RunFolder
from pipelines.running.records import Recorder, metrics_schema
from raydt.evaluation.regression import PrequentialErrors
from raydt.examples.updates import CARRIES_ROW, DELETE, INSERT, NUMBERS, QUERY, UPDATE, BatchResult, UpdateBatch

N, EVERY = 90, 10
RNG = np.random.default_rng(2)
OP = RNG.choice([INSERT, INSERT, DELETE, UPDATE, QUERY], N).astype(np.int8)
TRUTH = np.where(OP == QUERY, np.nan, np.round(RNG.normal(size=N), 2))
PREDICTION = np.where(CARRIES_ROW[OP] & (np.arange(N) >= 8), TRUTH + RNG.normal(size=N), np.nan)
PREDICTION[OP == QUERY] = 0.25


class NumberSource(FakeSource):
    target_dtype = NUMBERS
    classes = ()


class NumberStream(FakeStream):
    def __init__(self) -> None:
        self.source = NumberSource()


def opened(folder: Path) -> Recorder:
    return Recorder(RunFolder(folder), Output(metrics_every=EVERY, predictions=True), NumberStream())


def work(recorder: Recorder, size: int, stop: int) -> Recorder:
    while recorder.updates < stop:
        begin = recorder.updates
        end = min(stop, begin + size, begin + EVERY - begin % EVERY)
        part = slice(begin, end)
        carries = CARRIES_ROW[OP[part]]
        rows = np.zeros((int(carries.sum()), 1)), TRUTH[part][carries]
        batch = UpdateBatch(begin, OP[part], np.arange(begin, end), *rows, 0, np.arange(begin, end))
        recorder.record(batch, BatchResult(end - begin, PREDICTION[part]), 0.0)
    return recorder


@pytest.mark.parametrize("size", [1, 7, 90])
def test_tables_and_scores(tmp_path: Path, size: int) -> None:
    recorder = work(opened(tmp_path), size, N)
    recorder.close()
    metrics = pq.read_table(tmp_path / "metrics")
    assert metrics.schema == metrics_schema(PrequentialErrors.columns)
    predictions = pq.read_table(tmp_path / "predictions")
    assert predictions.schema.types[2:] == [pa.float64(), pa.float64()]
    there = ~np.isnan(PREDICTION)
    np.testing.assert_array_equal(predictions["prediction"], PREDICTION[there])
    np.testing.assert_array_equal(predictions["truth"].to_numpy(), TRUTH[there])
    assert predictions["truth"].null_count == int((OP == QUERY).sum())
    scored = there & np.isin(OP, [INSERT, UPDATE])
    error = (TRUTH - PREDICTION)[scored]
    assert recorder.metrics()["mse"] == pytest.approx(np.mean(error**2), rel=1e-12)
    assert list(recorder.baselines()) == ["no_change", "mean"]
    assert (recorder.predictions, recorder.n_classes, recorder.classes) == (int(there.sum()), 0, [])
    assert metrics["mse"][-1].as_py() == recorder.metrics()["mse"]


def test_scores_that_are_no_numbers_are_null(tmp_path: Path) -> None:
    recorder = opened(tmp_path)
    assert set(recorder.metrics().values()) == {None}
    op, key = np.zeros(2, dtype=np.int8), np.arange(2)
    batch = UpdateBatch(0, op, key, np.zeros((2, 1)), np.array([1e300, -1e300]), 0, key)
    recorder.record(batch, BatchResult(2, np.zeros(2)), 0.0)
    json.dumps([recorder.metrics(), recorder.baselines()], allow_nan=False)
    assert recorder.metrics()["mse"] is None
    assert recorder.metrics()["mae"] == 1e300
