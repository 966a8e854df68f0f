"""The charts of rebuilds: nothing of the log is lost in them."""

from __future__ import annotations

import numpy as np
import pytest
from fabricated_run import fabricated_events, fabricated_metrics

from pipelines.report.svg import path
from raydt.presentation.charts import Chart, Stretches
from raydt.presentation.rebuilds import sizes, timeline


def total(chart: Chart, panel: int) -> int:
    return sum(int(value.split()[0].replace(",", "")) for mark in chart.panels[panel].marks for value in mark.values)


@pytest.mark.parametrize(("rebuilds", "last"), [(6000, 45_000), (3, 2), (500, 50), (1, 0)])
def test_every_rebuild_is_counted_once(rebuilds: int, last: int) -> None:
    events = fabricated_events(rebuilds, max(last, 1))
    chart = timeline(events, fabricated_metrics(20, 100), last)
    assert total(chart, 0) == rebuilds
    assert total(chart, 1) == events["rows"].sum()
    number, rows = sizes(events)
    assert total(number, 0) == rebuilds
    assert total(rows, 0) == events["rows"].sum()


def test_stretches_are_equal_and_hold_their_updates() -> None:
    events = {"seq": np.array([0, 99, 100, 999])}
    parts = Stretches.by(events, 1000)
    assert parts.n == 120
    for seq, part in zip(events["seq"], parts.of, strict=True):
        assert parts.edges[part] <= seq < parts.edges[part + 1]
    assert Stretches.by({"seq": np.array([0])}, 1).n == 1
    assert Stretches.by({"seq": np.array([10**12])}, 0).of.tolist() == [119]


def test_lanes_and_their_names() -> None:
    events = {
        "seq": np.array([0, 1, 2, 3]),
        "rows": np.array([1, 3, 4, 20_000]),
        "depth": np.array([2, 1, 1, 0], dtype=np.int32),
        "place": np.array([0, 1, 1, 2], dtype=np.int8),
        "seconds": np.array([0, 0, 0.0, 0.5]),
    }
    chart = timeline(events, {"seq": np.array([4]), "seconds": np.array([2.0])}, 4)
    lanes, rows, time = chart.panels
    assert [mark.name for mark in lanes.marks] == ["depth 0", "depth 1", "depth 2", "in all"]
    assert [path(mark.shape).count("M") for mark in lanes.marks] == [1, 2, 1, 0]
    assert [tick.label for tick in lanes.axis.ticks][:3] == ["1", "4", "16"]
    assert [mark.now for mark in rows.marks] == ["1", "7", "20,000"]
    assert [(mark.name, mark.now) for mark in time.marks] == [("all other work", "1.5 s"), ("shards, timed", "500 ms")]
