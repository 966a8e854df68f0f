"""Table, plot and words of a sweep: what is best, what failed, where a dot lies."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from pipelines.sweeping.chart import HEIGHT, LEFT, LINES, RIGHT, TOP, WIDTH, plot_of
from pipelines.sweeping.grid import read_grid, settings_of
from pipelines.sweeping.page import render
from pipelines.sweeping.table import against_baselines, best, table_lines, table_of


def row(setting, keys, accuracy, us=2.0, **more):
    scores = dict.fromkeys(("f1", "macro_f1", "kappa"), accuracy)
    work = dict.fromkeys(("updates", "rebuilds", "nodes", "depth"), 5)
    levels = {"no_change": 0.7, "majority": 0.5}
    return {"setting": setting, **keys, "accuracy": accuracy, "us_per_update": us, **scores, **work, **levels, **more}


def failed(setting, keys, error="a <b>bad</b> update\nmore"):
    return {"setting": setting, **keys, "updates": 3, "error": error, "exit_code": 2}


def rows_of(grid, accuracies):
    axes = read_grid(grid)
    return axes, [row(i, keys, a) for i, (keys, a) in enumerate(zip(settings_of(axes), accuracies, strict=True))]


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
    ("accuracies", "sentence"),
    [
        ([0.8, 0.9], "Every setting beats both baselines."),
        ([0.8, 0.6], "Only 1 of 2 settings beat the better baseline (no-change, accuracy 0.700)."),
        ([0.7, 0.6], "No setting beats the better baseline (no-change, accuracy 0.700)."),
    ],
)
def test_the_baselines_have_their_say(accuracies, sentence):
    assert against_baselines(rows_of(["learner.epsilon=1,2"], accuracies)[1]) == sentence


def test_lines_for_a_terminal():
    _, rows = rows_of(["learner.epsilon=0.1,0.2"], [0.5, 0.6])
    lines = table_lines(["learner.epsilon"], [*rows, failed(2, {"learner.epsilon": 0.3})])
    assert lines[2].split() == ["0.2", *["0.600"] * 3, "2.00", "5", "5", "5", "best", "accuracy"]
    assert lines[3].endswith("failed: a <b>bad</b> update")
    assert len({line.index(text) for line, text in zip(lines[1:3], ["2.00", "2.00"], strict=True)}) == 1


def heights(plot, panel, line):
    return [dot.y for dot in plot.panels[panel].lines[line].dots]


def test_dots_lie_where_their_values_say():
    axes, rows = rows_of(["learner.epsilon=0:4:1"], [0.5, 0.6, 0.7, 0.8, 0.9])
    plot = plot_of(axes, rows)
    assert plot is not None
    *baselines, learner = plot.panels[0].lines
    steps = {round(b.x - a.x, 6) for a, b in zip(learner.dots, learner.dots[1:], strict=False)}
    assert len(steps) == 1
    assert all(LEFT <= dot.x <= WIDTH - RIGHT and TOP <= dot.y <= TOP + HEIGHT for dot in learner.dots)
    assert [tick.label for tick in plot.panels[0].ticks] == ["50%", "60%", "70%", "80%", "90%"]
    assert [round(tick.at, 6) for tick in plot.panels[0].ticks] == [round(dot.y, 6) for dot in learner.dots]
    assert [line.name for line in baselines] == ["no-change", "majority"]
    level = re.search(r"M[\d.]+ ([\d.]+)L", baselines[0].path)
    assert level is not None
    assert float(level[1]) == pytest.approx(learner.dots[2].y, abs=0.06)


def test_a_failed_setting_is_a_gap():
    axes, rows = rows_of(["learner.epsilon=1,2,3"], [0.5, 0.6, 0.7])
    rows[1] = failed(1, {"learner.epsilon": 2})
    plot = plot_of(axes, rows)
    assert plot is not None
    assert plot.panels[0].lines[-1].path.count("M") == 2
    assert len(plot.panels[0].lines[-1].dots) == 2
    assert plot_of(axes, rows[1:2]) is None


def test_texts_stand_at_equal_distances_and_wide_ranges_are_logarithms():
    for grid in ("learner.epsilon=auto,0.1,7", "learner.epsilon=0.01,1,100"):
        axes, rows = rows_of([grid], [0.5, 0.6, 0.7])
        plot = plot_of(axes, rows)
        assert plot is not None
        a, b, c = (dot.x for dot in plot.panels[0].lines[-1].dots)
        assert b - a == pytest.approx(c - b)


def test_only_the_best_lines_are_drawn():
    values = ",".join(map(str, range(20)))
    axes, rows = rows_of(["learner.epsilon=1,2", f"stream.window={values}"], [i / 50 for i in range(40)])
    plot = plot_of(axes, rows)
    assert plot is not None
    drawn = [line.name for line in plot.panels[1].lines]
    assert drawn == [f"stream.window {i}" for i in range(20 - LINES, 20)]
    assert plot.remark.startswith("4 more lines")


def test_what_data_say_is_text_on_the_page():
    axes, rows = rows_of(["stream.x='<i>&','b'"], [0.5, 0.6])
    rows[1] = failed(1, {"stream.x": "b"})
    summary = {
        "name": "<u>", "learner": "fudyadt", "rows": 9, "status": "interrupted", "exit_reason": "SIGINT", "done": 2,
        "settings": 3, "failed": 1, "verdict": "", "backend": "ray", "parallel": 2, "positive": ["<p>"], "label": "<l>",
        "seconds": 1.0, "read_seconds": 1.0, "startup_seconds": 1.0, "started": "2024-01-01", "raydt_version": "1",
        "versions": {},
    }  # fmt: skip
    page = render(axes, rows, summary, "a: <v>", "/x")
    assert not [text for text in ("<i>&", "<u>", "<l>", "<v>", "<b>bad") if text in page]
    assert "&lt;i&gt;&amp;" in page
    assert "a &lt;b&gt;bad" in page
    assert "Interrupted (SIGINT) after 2 of 3 settings" in page
