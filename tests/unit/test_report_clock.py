"""Charts over time: an axis of event times, ticks at round dates, and no last window of a handful of rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import replay
from pipelines.report.folder import read_run
from pipelines.report.page import render
from raydt.presentation.charts import (
    Chart,
    Clock,
    Line,
    Series,
    line_panel,
    over_stream,
    time_axis,
    timed,
    whole_windows,
)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def seconds(*date: int) -> float:
    return (datetime(*date, tzinfo=timezone.utc) - EPOCH).total_seconds()  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        ((2013, 5, 1, 10), (2013, 5, 1, 10, 5), ["10:00", "10:01", "10:02", "10:03", "10:04", "10:05"]),
        ((2013, 5, 1, 22), (2013, 5, 2, 4), ["22:00", "23:00", "2 May", "01:00", "02:00", "03:00", "04:00"]),
        (
            (2013, 4, 29),
            (2013, 5, 3),
            ["29 Apr", "12:00", "30 Apr", "12:00", "1 May", "12:00", "2 May", "12:00", "3 May"],
        ),
        ((2012, 12, 20), (2013, 1, 30), ["24 Dec", "31 Dec", "7 Jan", "14 Jan", "21 Jan", "28 Jan"]),
        ((2012, 10, 2), (2013, 4, 2), ["Nov", "Dec", "2013", "Feb", "Mar", "Apr"]),
        ((2010, 6, 1), (2017, 6, 1), ["2011", "2012", "2013", "2014", "2015", "2016", "2017"]),
    ],
)
def test_ticks_are_round_dates(low: tuple[int, ...], high: tuple[int, ...], labels: list[str]) -> None:
    axis = time_axis(seconds(*low), seconds(*high), True)
    assert [tick.label for tick in axis.ticks] == labels
    assert all(0 <= tick.at <= 1 for tick in axis.ticks)


@given(st.floats(-6e10, 2e11), st.floats(1, 6e10))
def test_no_span_has_many_ticks(low: float, span: float) -> None:
    assert len(time_axis(low, low + span, True).ticks) <= 10


def test_updates_of_one_date_share_its_day() -> None:
    day = 86_400_000_000
    seq, times = np.array([10, 20, 30, 40, 50, 60]), np.array([0, 0, 1, 1, 1, 2]) * day
    clock = Clock.of(seq, times, True, 0.0)
    assert clock is not None
    assert clock.ends == (0.0, 2 * 86_400.0)
    assert clock.at([0, 15, 30, 45, 60]).tolist() == [0.0, 43_200.0, 86_400.0, 129_600.0, 172_800.0]
    assert Clock.of(seq, np.array([0, 0, np.nan, 1, 1, 1]), True, None) is None
    assert Clock.of(seq, np.zeros(6), True, 0.0) is None
    assert Clock.of(seq, times * 10**9, True, 0.0) is None  # beyond the calendar
    assert Clock.of(seq, times, False, None) is not None


def test_a_chart_over_updates_becomes_one_over_time() -> None:
    table = {"seq": np.array([10, 20, 30, 40]), "a": np.array([1.0, 2.0, 3.0, 4.0])}
    chart = over_stream("k", "t", "c", table, (line_panel(table, [Series(table["a"], "a", "learner")], "u", 1.0),))
    chart = replace(chart, uprights=(0.5,))
    clock = Clock.of(table["seq"], np.array([100, 100 + 30, 100 + 300, 100 + 400]), False, 100)
    found = timed(chart, clock)
    assert isinstance(found, Chart)
    assert found.at == pytest.approx([0.0375, 0.075, 0.75, 1.0])  # update 10 has the time of the first
    line = found.panels[0].marks[0].shape
    assert isinstance(line, Line)
    assert line.x.tolist() == pytest.approx(found.at)
    assert found.uprights == pytest.approx((0.075,))
    assert found.names[-1] == "update 40, 500"
    assert found.unit == "event time, from 100 to 500"
    assert timed(chart, None) is chart


def test_a_short_last_window_is_merged() -> None:
    columns = {"seq": [100, 200, 300, 310], "predictions": [50, 100, 150, 155], "window_accuracy": [0.5, 0.6, 0.8, 0.2]}
    metrics = {name: np.array(values, dtype=float) for name, values in columns.items()} | {"nodes": np.arange(4)}
    found = whole_windows(metrics)
    assert found["seq"].tolist() == [100, 200, 310]
    assert found["nodes"].tolist() == [0, 1, 3]
    assert found["window_accuracy"].tolist() == pytest.approx([0.5, 0.6, (0.8 * 50 + 0.2 * 5) / 55])
    metrics["seq"][-1], metrics["predictions"][-1] = 350, 175  # half a window is shown as one
    assert whole_windows(metrics) is metrics


@pytest.mark.parametrize(
    "model", [{"model": "time_window", "duration": "3d"}, {"model": "sliding_window", "window": 50}]
)
def test_a_run_with_times_has_a_report_over_time(tmp_path: Path, model: dict[str, object]) -> None:
    """A row without a time is bad in a window of time only; anywhere else it is as good as others."""
    n, rng = 300, np.random.default_rng(0)
    when: list[datetime | None] = [datetime(2013, 5, 1) + timedelta(hours=k) for k in range(n)]
    when[5] = None
    x = rng.normal(size=n)
    pq.write_table(pa.table({"x": x, "y": x * (np.arange(n) < 150) > 0, "at": when}), tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "label": "y", "ts": "at"},
        "stream": {**model, "on_error": "skip"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"metrics_every": 40},
    }
    summary = replay(config, tmp_path / "run").summary
    assert summary["skipped"] == (model["model"] == "time_window")
    assert summary["times"]["column"] == "at"
    run = read_run(tmp_path / "run")
    assert run.clock is not None
    assert run.clock.ends == (seconds(2013, 5, 1), seconds(2013, 5, 13, 11))
    metrics = pq.read_table(tmp_path / "run" / "metrics").column("time").to_pylist()
    assert metrics == sorted(metrics)
    assert metrics[-1] == datetime(2013, 5, 13, 11, tzinfo=timezone.utc)
    page = render([tmp_path / "run"])
    assert "event time, from 2013-05-01 to 2013-05-13 11:00" in page
    assert "2013-05-01 to 2013-05-13 11:00 (at)" in page
