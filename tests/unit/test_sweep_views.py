"""Table, plot and words of a sweep: what is best, what failed, where a dot lies."""

from __future__ import annotations

import re
from itertools import pairwise

import pyarrow as pa
import pytest

from pipelines.report.charts import dots_of, path
from pipelines.sweeping.page import SHOWN, against_baselines, best, chart_of, pooled, table_of, tables
from raydt.presentation.charts import Dots
from tests.unit.fabricated_sweep import fabricated_page, failed, rows_of


def test_the_table_is_in_the_order_of_the_grid_whatever_came_first():
    axes, rows = rows_of(["learner.epsilon=0.1,0.2,0.3"], [0.5, 0.6, 0.7])
    rows[1] = failed(1, {"learner.epsilon": 0.2})
    table = table_of(axes, rows[::-1])
    assert table["setting"].to_pylist() == [0, 1, 2]
    assert table["accuracy"].to_pylist() == [0.5, None, 0.7]
    assert table["error"].to_pylist() == [None, "a <b>bad</b> update\nmore", None]
    assert table_of(axes, []).schema == table.schema


@pytest.mark.parametrize(
    ("values", "kind", "column"),
    [
        ("1,2", pa.int64(), [1, 2]),
        ("1,2.5", pa.float64(), [1.0, 2.5]),
        ("5,null", pa.int64(), [5, None]),
        ("auto,0.1", pa.string(), ["auto", "0.1"]),
        ("true,false", pa.bool_(), [True, False]),
        ("[1],[2]", pa.string(), ["[1]", "[2]"]),
    ],
)
def test_types_of_keys(values, kind, column):
    axes, rows = rows_of([f"stream.x={values}"], [0.5, 0.6])
    table = table_of(axes, rows)
    assert (table.schema.field("stream.x").type, table["stream.x"].to_pylist()) == (kind, column)


def test_the_best_is_the_first_of_equals_and_never_a_failure():
    _, rows = rows_of(["learner.epsilon=1:4:1"], [0.6, 0.8, 0.8, 0.1])
    rows.append(failed(4, {"learner.epsilon": 5}))
    assert best(rows)["accuracy"]["setting"] == 1
    assert best(rows)["us_per_update"]["setting"] == 0
    assert best([rows[-1]]) == {}


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ([0.8, 0.9], "Every"),
        ([0.8, 0.6], "1 of 2 .* 70.00%"),
        ([0.7, 0.6], "0 of 2 .* 70.00%"),
    ],
)
def test_the_baselines_have_their_say(accuracies, words):
    assert re.search(words, against_baselines(rows_of(["learner.epsilon=1,2"], accuracies)[1]))


def test_a_terminal_shows_fewer_columns_and_the_best_of_many() -> None:
    axes, rows = rows_of(["learner.epsilon=1:40:1"], [0.5 + k / 100 for k in range(40)])
    rows[3] = failed(3, {"learner.epsilon": 4})
    results, failures = tables([axis.key for axis in axes], rows, 1, brief=True)
    assert len(results.columns) < len(tables([axis.key for axis in axes], rows, 1)[0].columns)
    assert [row.cells[:2] for row in results.rows[:2]] == [("40", "89.00%"), ("39", "88.00%")]
    assert len(results.rows) == SHOWN
    assert [row.cells for row in failures.rows] == [("4", "3", "a <b>bad</b> update")]


def places(mark):
    """Where the dots of a series are."""
    drawn = dots_of(mark.shape) or path(mark.shape)
    return [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", drawn)]


def test_dots_lie_where_their_values_say():
    axes, rows = rows_of(["learner.epsilon=4,3,2,1,0"], [0.9, 0.8, 0.7, 0.6, 0.5])
    chart = chart_of(axes, rows)
    rates, times = chart.panels
    learner, no_change, _ = rates.marks
    x, y = zip(*places(learner), strict=True)
    assert len({round(b - a) for a, b in pairwise(x)}) == 1
    assert y == (1000, 750, 500, 250, 0)
    assert [tick.label for tick in chart.ticks] == ["0", "1", "2", "3", "4"]
    assert set(re.findall(r" ([\d.]+)", path(no_change.shape))) == {"500"}
    assert (learner.now, times.marks[0].now) == ("90.00%", "2")
    assert chart.at == [tick.at for tick in chart.ticks]
    assert learner.values == ("50.00%", "60.00%", "70.00%", "80.00%", "90.00%")


def test_a_failed_setting_is_a_gap_and_other_baselines_are_lines_of_their_own() -> None:
    axes, rows = rows_of(["learner.epsilon=1,2,3"], [0.5, 0.6, 0.7])
    one_failed = [rows[0], failed(1, {"learner.epsilon": 2}), rows[2]]
    assert path(chart_of(axes, one_failed).panels[0].marks[0].shape).count("M") == 2
    assert chart_of(axes, one_failed[1:2]) is None
    axes, rows = rows_of(["learner.epsilon=1,2", "stream.window=5,6"], [0.6] * 4)
    rows[1]["no_change"] = 0.71
    assert len(chart_of(axes, rows).panels[0].marks) == 5


@pytest.mark.parametrize("grid", ["learner.epsilon=auto,0.1,7", "learner.epsilon=0.01,1,100"])
def test_texts_stand_at_equal_distances_and_wide_ranges_are_logarithms(grid):
    (a, _), (b, _), (c, _) = places(chart_of(*rows_of([grid], [0.5, 0.6, 0.7])).panels[0].marks[0])
    assert b - a == pytest.approx(c - b, abs=0.2)


def test_nothing_joins_categories_and_numbers_run_across() -> None:
    (mark, *_), _ = (panel.marks for panel in chart_of(*rows_of(["learner.kind=gbdt,forest"], [0.5, 0.6])).panels)
    assert (type(mark.shape), mark.values) == (Dots, ("50.00%", "60.00%"))
    axes, rows = rows_of(["learner.kind=gbdt,forest", "learner.epsilon=1,2"], [0.5, 0.6, 0.7, 0.8])
    chart = chart_of(axes, rows)
    assert (chart.unit, [mark.name for mark in chart.panels[0].marks[:2]]) == (
        "learner.epsilon",
        ["learner.kind gbdt", "learner.kind forest"],
    )


def test_labels_have_room():
    for n in (1, 2, 21, 500):
        axes, rows = rows_of([f"learner.epsilon={','.join(map(str, range(n)))}"], [0.5] * n)
        ticks = chart_of(axes, rows).ticks
        assert 1 <= len(ticks) <= 17
        assert all(0 <= tick.at <= 1 for tick in ticks)
    axes, rows = rows_of([f"stream.x={','.join(f'{k}{k:<<40}' for k in range(9))}"], [0.5] * 9)
    assert 2 < len(chart_of(axes, rows).ticks) < 6


def test_what_data_say_is_text_on_the_page():
    axes, rows = rows_of(["stream.x='<i>&','b'"], [0.5, 0.6])
    page = fabricated_page(axes, [rows[0], failed(1, {"stream.x": "b"})], "<u>")
    assert not [text for text in ("<i>&", "<u>", "<b>bad") if text in page]
    assert "&lt;i&gt;&amp;" in page
    assert "a &lt;b&gt;bad" in page
    assert "raydt replay /x/config.yaml --set &#39;stream.x=&lt;i&gt;&amp;&#39;" in page


def test_trials_of_a_setting_are_one_row_with_their_mean():
    axes, rows = rows_of(["source.seed=1,2", "learner.epsilon=1,2"], [0.5, 0.7, 0.55, 0.9])
    rows[2]["nodes"] = 8
    kept, found = pooled(axes, rows[::-1])
    assert [axis.key for axis in kept] == ["learner.epsilon"]
    assert [(row["setting"], row["learner.epsilon"], row["nodes"], row["promised"]) for row in found] == [
        (0, 1, 6.5, True),
        (1, 2, 5, False),
    ]
    assert [row["accuracy"] for row in found] == pytest.approx([0.525, 0.8])
    assert all("source.seed" not in row and row["digest"] is None for row in found)
    rows[3] = failed(3, rows[3] | {})
    assert pooled(axes, rows)[1][1]["error"]
    assert best(pooled(axes, rows)[1])["accuracy"]["setting"] == 0


def test_trials_alone_are_compared_as_they_are():
    axes, rows = rows_of(["source.permutation=1,2"], [0.5, 0.7])
    assert pooled(axes, rows) == (axes, rows)
