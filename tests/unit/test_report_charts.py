"""Axes, series and events: where numbers are drawn, and that none is lost on the way there."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.report.charts import FEW, dots_of, path, readout
from raydt.learners.best_split.describe import CHANGES_SHOWN, LANES, Ranked, changes, features, over_time
from raydt.learners.confidence_tree.bounds import RESTARTED
from raydt.learners.confidence_tree.describe import SHOWN, splits
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.gbdt.describe import POINTS, batches_of, dearest, over_batches
from raydt.presentation.blocks import rebuild_work, sizes, timeline
from raydt.presentation.charts import (
    ABSENT,
    Chart,
    Dots,
    Panel,
    Series,
    Stretches,
    boxes,
    count,
    curve,
    increments,
    linear,
    merged,
    per_unit,
    powers,
    share,
    size_classes,
    stacked_bars,
    updates_axis,
)
from raydt.presentation.trees import Names
from tests.unit.fabricated_run import fabricated_events, fabricated_metrics
from tests.unit.fabricated_split import SPARSE
from tests.unit.fabricated_split import events as split_events

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: float(f"{value:.6g}"))


@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_a_linear_axis_holds_its_values_and_has_a_few_ticks_in_order(values: list[float]) -> None:
    axis = linear([values])
    assert (np.abs(axis.at(values) - 0.5) <= 0.5 + 1e-9).all()
    places = [tick.at for tick in axis.ticks]
    assert places == sorted(places)
    assert 2 <= len(places) <= 8
    assert -1e-9 <= places[0] <= places[-1] <= 1 + 1e-9


@given(st.floats(0, 0.999), st.floats(1e-4, 1))
def test_ticks_of_shares_never_repeat_and_stay_shares(low: float, span: float) -> None:
    axis = linear([[low, min(low + span, 1.0)]], within=(0.0, 1.0), form="share")
    labels = [tick.label for tick in axis.ticks]
    assert len(set(labels)) == len(labels)
    assert 0 <= axis.low < axis.high <= 1


@given(st.integers(0, 10**12))
def test_an_axis_of_updates_has_whole_ticks(last: int) -> None:
    labels = [tick.label for tick in updates_axis(last).ticks]
    assert labels[0] == "0"
    assert len(set(labels)) == len(labels) <= 9
    assert all(0 <= tick.at <= 1 for tick in updates_axis(last).ticks)


def test_an_axis_without_numbers_is_still_an_axis() -> None:
    assert linear([[np.nan, np.nan]]).ticks
    assert linear([]).ticks
    assert linear([[3, 3, 3]]).at(3) == pytest.approx(0.5)
    assert [tick.label for tick in powers(0).ticks] == ["1", "10"]
    assert [tick.label for tick in powers(25_000, 4_463).ticks] == ["1k", "10k", "100k"]
    assert powers(1000).at([0, 1, 10, 1000]).tolist() == pytest.approx([0, 0, 1 / 3, 1])


def test_a_line_has_gaps_and_a_lone_point_is_a_dot() -> None:
    axes = (updates_axis(4), linear([[0.0, 1.0]], form="share"))
    y = np.array([0.0, 1.0, np.nan, 0.5, np.nan])
    line = curve(axes, np.arange(5), Series(y, "a", "learner"), share)
    assert (path(line.shape), dots_of(line.shape)) == ("M0 1000L250 0M750 500", "M750 500h0")
    assert (line.now, line.values) == ("50.00%", ("0.00%", "100.00%", ABSENT, "50.00%", ABSENT))
    assert path(curve(axes, np.arange(2), Series(y[:2], "a", "learner", step=True), share).shape) == "M0 1000H250V0"
    dotted = curve(axes, np.arange(5), Series(y, "a", "learner", dotted=True), share)
    assert dots_of(dotted.shape) == "M0 1000h0M250 0h0M750 500h0"
    assert line.read_at(np.arange(5) * 100, np.array([0.0, 50.0, 300.0, 900.0])).values == (
        "0.00%",
        "100.00%",
        "50.00%",
        ABSENT,
    )


def test_boxes_bars_and_dots() -> None:
    assert path(boxes([0, 0.5, 0.2], 0.0, [0.5, 0.5, 0], [1, 0.25, 1])) == "M0 0h500v1000h-500zM500 750h500v250h-500z"
    assert path(Dots(np.array([0.501, 0.0]), np.array([1.0, np.nan]))) == "M501 0h0"
    assert path(Dots(np.tile([0.5, 0.501, 0.0], FEW), np.tile([1.0, 1.0, 0.0], FEW))) == "M0 1000h0M500 0h0"
    panel = stacked_bars(["a", "b"], [("x", "learner", np.array([1, 2])), ("y", "live", np.array([3, 0]))], "n")
    assert [(mark.now, mark.values) for mark in panel.marks] == [("3", ("1", "2")), ("3", ("3", "0"))]
    assert path(panel.marks[1].shape).startswith(f"M40 0h420v{1000 * 3 / panel.axis.high:g}")


def test_what_can_be_pointed_at_is_json() -> None:
    axes = (updates_axis(2), linear([[0, 2]], whole=True))
    mark = curve(axes, np.arange(3), Series(np.arange(3), 'a "name"', "learner"), count)
    panels = (Panel("n", (mark,), axes[1]),)
    chart = Chart("k", "t", "c", panels, axes[0].ticks, "updates", [0, 0.5, 1], ["0", "1", "2"])
    assert json.loads(readout(chart)) == {"at": [0, 0.5, 1], "names": ["0", "1", "2"], "values": [["0", "1", "2"]]}
    assert readout(Chart("k", "t", "c", panels, (), "updates")) == ""


# ---------------------------------------------------------------- series


@pytest.mark.parametrize("limit", [1, 7, 200, 449])
def test_merged_windows_are_what_a_coarser_run_would_have_written(limit: int) -> None:
    metrics = fabricated_metrics(450, 100)
    drawn = merged(metrics, limit)
    ends = np.searchsorted(metrics["seq"], drawn["seq"])
    assert len(ends) == limit
    assert drawn["seq"][-1] == metrics["seq"][-1]
    for cumulative in ("accuracy", "no_change", "majority"):
        hits = np.diff(drawn[cumulative] * drawn["predictions"], prepend=0.0)
        np.testing.assert_allclose(drawn[f"window_{cumulative}"], hits / np.diff(drawn["predictions"], prepend=0))
        np.testing.assert_array_equal(drawn[cumulative], metrics[cumulative][ends])
    assert merged(metrics, 450) is metrics


def test_windows_without_predictions_have_no_weight_and_rates_where_nothing_moved_are_unknown() -> None:
    metrics = {
        "seq": np.arange(1, 7) * 10,
        "predictions": np.array([0, 0, 10, 10, 20, 50]),
        "window_accuracy": np.array([np.nan, np.nan, 0.5, np.nan, 1.0, 0.0]),
    }
    drawn = merged(metrics, 3)
    np.testing.assert_array_equal(drawn["seq"], [20, 40, 60])
    np.testing.assert_allclose(drawn["window_accuracy"], [np.nan, 0.5, 0.25])
    np.testing.assert_array_equal(increments(np.array([3, 5, 5])), [3, 2, 0])
    np.testing.assert_array_equal(per_unit(np.array([4, 6, 7]), np.array([2, 2, 4])), [2, np.nan, 0.5])
    rows = np.array([0, 1, 2, 3, 4, 7, 8, 2**31 - 1, 2**31])
    np.testing.assert_array_equal(size_classes(rows), [-1, 0, 1, 1, 2, 2, 3, 30, 31])


# ---------------------------------------------------------------- events


def total(chart: Chart, panel: int) -> int:
    return sum(int(value.split()[0].replace(",", "")) for mark in chart.panels[panel].marks for value in mark.values)


@pytest.mark.parametrize(("rebuilds", "last"), [(6000, 45_000), (3, 2), (500, 50), (1, 0)])
def test_every_rebuild_is_counted_once(rebuilds: int, last: int) -> None:
    events = fabricated_events(rebuilds, max(last, 1))
    drawn = timeline(events, fabricated_metrics(20, 100), last), *sizes(events)
    assert [total(drawn[0], 0), total(drawn[1], 0)] == [rebuilds] * 2
    assert [total(drawn[0], 1), total(drawn[2], 0)] == [events["rows"].sum()] * 2
    assert [int(row.cells[1].replace(",", "")) for row in rebuild_work(events, 9.0).rows][-1] == rebuilds


def test_stretches_are_equal_and_hold_their_updates() -> None:
    events = {"seq": np.array([0, 99, 100, 999])}
    parts = Stretches.by(events, 1000)
    assert parts.n == 120
    for seq, part in zip(events["seq"], parts.of, strict=True):
        assert parts.edges[part] <= seq < parts.edges[part + 1]
    assert Stretches.by({"seq": np.array([0])}, 1).n == 1
    assert Stretches.by({"seq": np.array([10**12])}, 0).of.tolist() == [119]


def test_the_time_that_no_rebuild_was_timed_for_is_the_loops() -> None:
    events = {"seq": [1, 2, 3, 4], "rows": [5, 10, 900, 5000], "place": [0, 1, 1, 2], "seconds": [0.0, 0.0, 1.0, 3.0]}
    table = rebuild_work({key: np.array(values) for key, values in events.items()}, 10.0)
    assert [(*row.cells[1:], row.share) for row in table.rows] == [
        ("1", "5,000", "3 s", "30.0%", 0.3),
        ("1", "900", "1 s", "10.0%", 0.1),
        ("2", "15", "6 s", "60.0%", 0.6),
        ("4", "5,915", "10 s", "", None),
    ]


def test_what_was_the_best_feature_for_longest_comes_first() -> None:
    table = {
        "seq": np.array([9, 19, 59, 89]),
        "feature": np.array([5, 7, 5, -1]),
        "score": np.array([0.4, 0.3, 0.2, 0.1]),
        "n": np.array([10, 20, 60, 0]),
        "n1": np.array([5, 5, 6, 0]),
    }
    names = Ranked(table, 100, Names(SPARSE))
    shown = [("words[5]", "2", "40", "40.0%"), ("words[7]", "1", "40", "40.0%"), ("no feature", "1", "10", "10.0%")]
    assert [row.cells[:4] for row in features(table, 100, names).rows] == shown
    assert changes(table, names).rows[2].cells == ("60", "words[5]", "0.2", "10.0%", "60")
    lanes = over_time(table, 100, names).panels[0].marks
    assert [(mark.name, mark.now) for mark in lanes] == [(name, part) for name, *_, part in shown]


def test_ten_thousand_changes_of_the_best_feature() -> None:
    table = split_events(10_000, 50_000, kinds=3000)
    names = Ranked(table, 50_000, Names(SPARSE))
    chart = over_time(table, 50_000, names)
    assert len(chart.panels[0].marks) == LANES + 1
    assert sum(len(path(mark.shape)) for panel in chart.panels for mark in panel.marks) < 60_000
    assert len(changes(table, names).rows) == CHANGES_SHOWN
    whole = sum(float(mark.now[:-1]) for mark in chart.panels[0].marks)
    assert whole == pytest.approx(100 * (1 - table["seq"][0] / 50_000), abs=1)
    for updates in (1, 2, 119, 121):
        one = {name: column[:1] for name, column in split_events(1, updates, kinds=1).items()}
        assert len(over_time(one, updates, Ranked(one, updates, Names(SPARSE))).at) == min(updates, 120)


def test_many_batches_share_points_and_the_first_training_is_none() -> None:
    def events(n: int) -> dict[str, np.ndarray]:
        names = ("deletes", "subtrees", "rows", "nodes", "depth", "refreshed", "rounds")
        checked = np.append(0, np.full(n, 20))
        return {
            **{name: np.arange(n + 1) for name in names},
            "seq": 99 + 50 * np.arange(n + 1),
            "trees_checked": checked,
            "trees_retrained": checked // 4,
            "inserts": np.append(100, np.full(n, 25)),
            "trained": np.append(100, np.zeros(n, np.int64)),
            "seconds": np.arange(n + 1) / 1000,
        }

    assert len(batches_of(events(30))["seq"]) == 30
    assert dearest(events(30)).rows[0].cells[-1] == "30 ms"
    assert dearest(events(0)).rows == []
    chart = over_batches(batches_of(events(1000)))
    assert len(chart.at) == POINTS
    rows = chart.panels[1].marks[0].values
    assert (rows[0], rows[-1]) == ("2", "998")  # the means of three and of four rows counts


def test_the_first_and_the_last_splits_are_listed_with_gains_in_the_unit_of_the_width() -> None:
    n, nan = 100, float("nan")
    one = {"depth": 0, "feature": 0, "threshold": 0.25, "m": 100, "reason": 0, "rival_feature": -1}
    one |= {"rival_threshold": nan, "phi": 0.2, "rival_phi": 0.4, "impurity": 0.5, "epsilon": 0.05}
    events = {name: np.full(n, value) for name, value in one.items()} | {"seq": np.arange(n)}
    events["reason"][-1] = RESTARTED
    names = Names([{"name": "a", "kind": "numeric"}])
    table = splits(events, ConfidenceTreeOptions().split_rule(5), names)
    half = SHOWN // 2
    assert [int(row.cells[0]) for row in table.rows] == [*range(1, half + 1), *range(n - half + 1, n + 1)]
    assert table.rows[0].cells[4:9] == ("0.3", "none", "0.1", "0.2", "0.05")
    assert table.rows[-1].cells[3:9] == (ABSENT,) * 6
    bits = splits(events, ConfidenceTreeOptions(rule="mcdiarmid").split_rule(5), names)
    assert float(bits.rows[0].cells[4]) == pytest.approx(0.3 * 2 / np.log(2), rel=1e-2)
