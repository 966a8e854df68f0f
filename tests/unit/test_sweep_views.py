"""Table, comparison and words of a sweep: what is best, and what failed."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from pipelines.report.charts import ACCURACY
from pipelines.report.compare import table_of_runs
from pipelines.sweeping.grid import SHOWN, Settings, against_baselines, best, pooled, table_of
from raydt.presentation.blocks import Best, Table
from raydt.presentation.charts import Chart
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
    runs = Settings(axes, rows, {0: {}}, {})
    results, failures = runs.tables()
    on_page = table_of_runs(runs.runs, runs.labels, ACCURACY)
    assert set(results.columns) < set(on_page.columns)
    assert [row.cells[:3] for row in results.rows[:2]] == [("40", "500,000", "89.00%"), ("39", "500,000", "88.00%")]
    assert (len(results.rows), len(on_page.rows)) == (SHOWN, 40)
    assert [row.cells for row in failures.rows] == [("learner.epsilon 4", "3", "a <b>bad</b> update")]


def test_options_and_scores_are_in_one_table_of_the_comparison() -> None:
    axes, rows = rows_of(["learner.epsilon=1:4:1", "stream.window=5,6"], [0.5 + k / 100 for k in range(8)])
    curve = {"updates": [5, 9], "predictions": [5, 9], "leaves": [1, None], "accuracy": [0.5, 0.6], "f1": [0.1, 0.2]}
    article = Settings(axes, rows, {0: {}}, dict.fromkeys(range(8), curve)).article(
        {"name": "n", "verdict": ""}, [("settings", "8")], "raydt replay x", "a: b"
    )
    blocks = article.sections[0].blocks
    (table,) = (block for block in blocks if isinstance(block, Table) and "learner.epsilon" in block.columns)
    assert table.columns[:2] == ["learner.epsilon", "stream.window"]
    accuracy = table.columns.index("Accuracy")
    assert [tuple(row.cells[:2]) for row in table.rows] == [(str(e), str(w)) for e in range(1, 5) for w in (5, 6)]
    assert [isinstance(row.cells[accuracy], Best) for row in table.rows] == [False] * 7 + [True]
    charts = {block.key: block for block in blocks if isinstance(block, Chart)}
    assert charts["compared-scores"].panels[0].marks[0].values[0] == "50.00%"
    assert [mark.name for mark in charts["compared-accuracy"].panels[0].marks] == [
        f"learner.epsilon {e}, stream.window {w}" for e in range(1, 5) for w in (5, 6)
    ]


def test_what_data_say_is_text_on_the_page():
    axes, rows = rows_of(["stream.x='<i>&','b'"], [0.5, 0.6])
    page = fabricated_page(axes, [rows[0], failed(1, {"stream.x": "b"})], "<u>")
    assert not [text for text in ("<i>&", "<u>", "<b>bad") if text in page]
    assert "&lt;i&gt;&amp;" in page
    assert "a &lt;b&gt;bad" in page
    assert "raydt replay --set &lt;u&gt;" in page


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
