"""Performance against number of leaves: the curve of a trial, the mean of trials, and the chart."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fabricated_sweep import fabricated_page, failed, row, rows_of

from pipelines import sweep
from pipelines.report.svg import readout
from pipelines.sweeping.grid import merged, read_grids, settings_of
from pipelines.sweeping.leaves import averaged, performance_at, sizes_between
from pipelines.sweeping.leaves_chart import POINTS, leaves_chart
from pipelines.sweeping.table import curves_of
from raydt.presentation.words import ABSENT

NAN = float("nan")
#: Confidence trees that split soon.
TREES = {
    "source": {"kind": "synthetic", "generator": "randcbt", "leaves": 4, "n": 2000},
    "stream": {"model": "incremental", "warmup": 200},
    "learner": {"kind": "confidence_tree", "grace_period": 20},
    "cluster": {"backend": "in_process"},
    "output": {"metrics_every": 100},
}
GRID = ["learner.rule=ctree", "learner.c=0.1,0.2", "source.seed=1,2", "or"]
GRID += ["learner.rule=hoeffding,corrected", "learner.delta=0.5", "source.seed=1,2"]


def curve(leaves, accuracy, f1=None):
    return {"updates": range(len(leaves)), "leaves": leaves, "accuracy": accuracy, "f1": f1 or accuracy}


def test_the_curve_goes_through_the_mean_of_each_number_of_leaves():
    leaves = np.array([1, 1, 3, 3, 5, 2])
    score = np.array([NAN, 0.5, 0.6, 0.8, 0.9, NAN])
    found = performance_at(leaves, score, np.array([0, 1, 2, 3, 4, 5, 6]))
    np.testing.assert_allclose(found, [NAN, 0.5, 0.6, 0.7, 0.8, 0.9, NAN])
    assert np.isnan(performance_at(leaves, np.full(6, NAN), np.array([1, 2]))).all()


def test_the_order_of_moments_and_settings_does_not_matter():
    rng = np.random.default_rng(3)
    leaves, score = rng.integers(1, 40, 500), rng.random(500)
    places, order = np.arange(1, 41), rng.permutation(500)
    twin = [np.mean(score[leaves == n]) if (leaves == n).any() else NAN for n in places]
    np.testing.assert_allclose(performance_at(leaves, score, places), twin)
    np.testing.assert_allclose(performance_at(leaves[order], score[order], places), twin)


def test_the_mean_is_of_those_that_have_come_so_far_if_they_are_half():
    curves = [np.array([0.2, 0.4, NAN, NAN]), np.array([0.4, NAN, NAN, NAN]), np.array([0.6, 0.8, 0.5, NAN])]
    np.testing.assert_allclose(averaged(curves), [0.4, 0.6, NAN, NAN])
    np.testing.assert_allclose(averaged([curves[0]]), curves[0])


def test_sizes():
    assert sizes_between(1, 5, 10).tolist() == [1, 2, 3, 4, 5]
    many = sizes_between(1, 5000, POINTS)
    assert (many[0], many[-1], len(many) <= POINTS) == (1, 5000, True)
    assert (np.diff(many) > 0).all()


@pytest.fixture
def grown():
    """Axes, rows and curves: trial 2 is a tenth better, c 0.2 too, hoeffding never beyond 3 leaves."""
    groups = read_grids(GRID)
    rows, curves = [], {}
    for index, keys in enumerate(settings_of(groups)):
        more = 0.1 * (keys["source.seed"] == 2) + 0.1 * (keys.get("learner.c") == 0.2)
        sizes = [1, 2, 3] if keys["learner.rule"] == "hoeffding" else [1, 2, 3, 4]
        curves[index] = curve(sizes, [0.5 + more + 0.01 * n for n in sizes], [0.1 + more] * len(sizes))
        rows.append(row(index, keys, curves[index]["accuracy"][-1]))
    return merged(groups), rows, curves


def test_a_line_for_each_rule_is_the_mean_over_settings_then_trials(grown):
    axes, rows, curves = grown
    chart = leaves_chart(axes, rows, curves_of(curves), positive=True)
    assert [panel.unit for panel in chart.panels] == ["accuracy", "F1"]
    assert [tick.label for tick in chart.ticks] == ["1", "2", "3", "4"]
    accuracy = {mark.name: mark.values for mark in chart.panels[0].marks}
    assert accuracy == {
        "learner.rule ctree": ("61.00%", "62.00%", "63.00%", "64.00%"),
        "learner.rule hoeffding": ("56.00%", "57.00%", "58.00%", ABSENT),
        "learner.rule corrected": ("56.00%", "57.00%", "58.00%", "59.00%"),
    }
    assert chart.panels[1].marks[0].values == ("20.00%",) * 4
    assert "mean of 2 trials" in chart.caption
    assert json.loads(readout(chart))["names"] == ["1 leaf", "2 leaves", "3 leaves", "4 leaves"]
    assert len(leaves_chart(axes, rows, curves_of(curves), positive=False).panels) == 1


def test_settings_are_lines_where_nothing_has_a_name():
    axes, rows = rows_of(["learner.c=0.1,0.2"], [0.5, 0.6])
    curves = {0: curve([1, 2], [0.4, 0.5]), 1: curve([1, 200], [0.4, 0.6])}
    chart = leaves_chart(axes, rows, curves_of(curves), positive=False)
    assert [mark.name for mark in chart.panels[0].marks] == ["learner.c 0.1", "learner.c 0.2"]
    assert [tick.label for tick in chart.ticks] == ["1", "2", "5", "10", "20", "50", "100", "200"]
    middle = chart.ticks[3].at
    assert middle == pytest.approx(1 / np.log10(200))
    assert "trials" not in chart.caption


def test_trees_that_never_grow_and_learners_without_trees_have_no_chart():
    axes, rows = rows_of(["learner.c=0.1,0.2"], [0.5, 0.6])
    for leaves in ([1, 1], [None, None]):
        assert leaves_chart(axes, rows, curves_of({0: curve(leaves, [0.4, 0.5])}), positive=False) is None
    assert leaves_chart(axes, rows, curves_of({}), positive=False) is None
    gone = [failed(index, {"learner.c": 0.1 * index}) for index in range(2)]
    assert leaves_chart(axes, gone, curves_of({0: curve([1, 2], [0.4, 0.5])}), positive=False) is None


def test_the_page_has_one_row_for_each_setting_and_one_plot(grown):
    axes, rows, curves = grown
    page = fabricated_page(axes, rows, curves=curves, trials=2)
    assert page.count('<th scope="row">') == 4
    assert page.count('id="leaves"') == 1
    assert "Accuracy and time per update" not in page  # no key that all settings have tells them apart
    assert "mean of 2 trials" in page
    assert f'<th scope="row">ctree</th><td>0.2</td><td>{ABSENT}</td>' in page
    assert "--set learner.rule=ctree --set learner.c=0.2</code>" in page


def test_a_tree_that_knows_no_rebuilds_has_no_such_columns(grown, tmp_path):
    axes, rows, _ = grown
    assert '<th scope="col">rebuilds</th>' in fabricated_page(axes, rows)
    found = sweep(TREES, ["learner.c=0.02,0.1"], tmp_path / "sweep")
    assert found.table["leaves"][0].as_py() > 1
    for name in ("rebuilds", "rebuilt_rows"):
        assert found.table[name].to_pylist() == [None, None]
    page = (tmp_path / "sweep" / "sweep.html").read_text()
    assert '<th scope="col">leaves</th>' in page
    assert "rebuil" not in page
    assert found.lines[0].split() == [
        *("learner.c", "accuracy", "f1", "kappa", "us/update", "leaves", "depth", "promised"),
    ]


def test_a_rule_left_at_its_default_has_its_name(tmp_path):
    groups = [{"learner.c": [0.02, 0.1]}, {"learner.rule": ["hoeffding"], "learner.c": [None], "learner.delta": [0.5]}]
    groups.append({"learner.confidence": ["theorem"], "learner.c": [None], "learner.delta": [0.5]})
    given = {**TREES, "learner": {**TREES["learner"], "c": 0.5}}
    found = sweep(given, groups, tmp_path / "sweep")
    assert found.exit_code == 0
    assert found.table["learner.rule"].to_pylist() == ["ctree", "ctree", "hoeffding", "ctree"]
    assert found.table["learner.confidence"].to_pylist() == ["practical", "practical", None, "theorem"]
    assert found.table["learner.delta"].to_pylist() == [None, None, 0.5, 0.5]
    page = (tmp_path / "sweep" / "sweep.html").read_text()
    for line in ("learner.rule ctree, learner.confidence practical", "learner.rule hoeffding"):
        assert f" {line}: at most" in page
    assert " learner: at most" not in page


def test_curves_are_a_table():
    table = curves_of({3: curve([1, 2], [NAN, 0.5]), 1: {}, 0: curve([None], [0.1])})
    assert table.to_pylist() == [
        {"setting": 0, "updates": 0, "leaves": None, "accuracy": 0.1, "f1": 0.1},
        {"setting": 3, "updates": 0, "leaves": 1, "accuracy": None, "f1": None},
        {"setting": 3, "updates": 1, "leaves": 2, "accuracy": 0.5, "f1": 0.5},
    ]
    assert curves_of({}).schema == table.schema
