"""Axes and paths: where numbers are drawn, and what ticks say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.report.svg import FEW, dots_of, path, readout
from raydt.presentation.charts import (
    Chart,
    Dots,
    Panel,
    Series,
    boxes,
    curve,
    linear,
    powers,
    stacked_bars,
    updates_axis,
)
from raydt.presentation.words import ABSENT, count, share

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: float(f"{value:.6g}"))


@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_a_linear_axis_holds_its_values_and_has_a_few_ticks_in_order(values: list[float]) -> None:
    axis = linear([values])
    assert (axis.at(values) >= -1e-9).all()
    assert (axis.at(values) <= 1 + 1e-9).all()
    places = [tick.at for tick in axis.ticks]
    assert places == sorted(places)
    assert 2 <= len(places) <= 8
    assert -1e-9 <= places[0] <= places[-1] <= 1 + 1e-9


@given(st.floats(0, 0.999), st.floats(1e-4, 1))
def test_ticks_of_shares_never_repeat_and_stay_shares(low: float, span: float) -> None:
    axis = linear([[low, min(low + span, 1.0)]], within=(0.0, 1.0), form="share")
    labels = [tick.label for tick in axis.ticks]
    assert len(set(labels)) == len(labels)
    assert axis.low >= 0
    assert axis.high <= 1


@given(st.integers(0, 10**12))
def test_an_axis_of_updates_has_whole_ticks(last: int) -> None:
    axis = updates_axis(last)
    labels = [tick.label for tick in axis.ticks]
    assert labels[0] == "0"
    assert len(set(labels)) == len(labels) <= 9
    assert all(0 <= tick.at <= 1 for tick in axis.ticks)


def test_an_axis_without_numbers_is_still_an_axis() -> None:
    assert linear([[np.nan, np.nan]]).ticks
    assert linear([]).ticks
    assert linear([[3, 3, 3]]).at(3) == pytest.approx(0.5)
    assert [tick.label for tick in powers(0).ticks] == ["1", "10"]
    assert [tick.label for tick in powers(1500).ticks] == ["1", "10", "100", "1k", "10k"]
    assert [tick.label for tick in powers(25_000, 4_463).ticks] == ["1k", "10k", "100k"]
    assert powers(25_000, 4_463).at([1000, 100_000]).tolist() == pytest.approx([0, 1])
    assert [tick.label for tick in powers(100, 100).ticks] == ["100", "1k"]
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


def test_a_line_read_at_other_places_has_the_next_value() -> None:
    axes = (updates_axis(300), linear([[0, 9]], whole=True))
    line = curve(axes, np.array([100, 200]), Series(np.array([4, 7]), "a", "learner"), count)
    assert line.read_at(np.array([100, 200]), np.array([50.0, 100.0, 150.0, 250.0])).values == ("4", "4", "7", ABSENT)


def test_boxes_and_dots() -> None:
    assert path(boxes([0, 0.5, 0.2], 0.0, [0.5, 0.5, 0], [1, 0.25, 1])) == "M0 0h500v1000h-500zM500 750h500v250h-500z"
    assert path(Dots(np.array([0.501, 0.0]), np.array([1.0, np.nan]))) == "M501 0h0"
    many = np.tile([0.5, 0.501, 0.0], FEW)
    assert path(Dots(many, np.tile([1.0, 1.0, 0.0], FEW))) == "M0 1000h0M500 0h0"


def test_bars_stand_on_one_another() -> None:
    panel = stacked_bars(["a", "b"], [("x", "learner", np.array([1, 2])), ("y", "live", np.array([3, 0]))], "n")
    assert [mark.values for mark in panel.marks] == [("1", "2"), ("3", "0")]
    assert [mark.now for mark in panel.marks] == ["3", "3"]
    assert path(panel.marks[1].shape).startswith(f"M40 0h420v{1000 * 3 / panel.axis.high:g}")


def test_what_can_be_pointed_at_is_json() -> None:
    axes = (updates_axis(2), linear([[0, 2]], whole=True))
    mark = curve(axes, np.arange(3), Series(np.arange(3), 'a "name"', "learner"), count)
    panels = (Panel("n", (mark,), axes[1]),)
    chart = Chart("k", "t", "c", "l", panels, axes[0].ticks, "updates", [0, 0.5, 1], ["0", "1", "2"])
    assert json.loads(readout(chart)) == {"at": [0, 0.5, 1], "names": ["0", "1", "2"], "values": [["0", "1", "2"]]}
    assert readout(Chart("k", "t", "c", "l", (Panel("n", (), axes[1]),), (), "updates")) == ""
