"""Charts and trees of a report, and the margins between them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.report.charts import dots_of, path, readout
from pipelines.report.folder import read_run
from raydt import (
    ExactForestClassifier,
    FullyDynamicTreeClassifier,
    FullyDynamicTreeRegressor,
    OnlineGradientBoostingClassifier,
)
from raydt.folders.arrays import load_folder
from raydt.learners.best_split.describe import CHANGES_SHOWN, LANES, Ranked, changes, over_time
from raydt.learners.confidence_tree.bounds import TIE
from raydt.learners.confidence_tree.describe import SHOWN, split_notes, splits
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.description import LEADING, leading_trees
from raydt.learners.fudyadt.describe import (
    FuDyADTDescription,
    certified_margins,
    expected,
    margins,
    margins_of,
    proven_gaps,
)
from raydt.learners.gbdt.describe import POINTS, batches_of, dearest, over_batches
from raydt.messages import message
from raydt.presentation.blocks import Fold, rebuild_work
from raydt.presentation.charts import (
    ABSENT,
    Chart,
    Panel,
    Series,
    Stretches,
    boxes,
    count,
    counted,
    curve,
    figure,
    increments,
    linear,
    merged,
    per_unit,
    share,
    size_classes,
    stacked_bars,
    updates_axis,
)
from raydt.presentation.trees import (
    CARD_LEVELS,
    CARDS,
    Names,
    class_tones,
    drawn_tree,
    feature_count,
    feature_name,
    features_used,
    legend,
)
from tests.unit.fabricated_run import (
    FEATURES,
    SPARSE,
    fabricated_run,
    fabricated_tree,
    write_model,
)
from tests.unit.fabricated_run import events as split_events

# -- report charts ---------------------------------------------------------------------------------------------------
# Axes, series and events: where numbers are drawn, and that none is lost on the way there.

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


def test_a_line_has_gaps_and_a_lone_point_is_a_dot() -> None:
    axes = (updates_axis(4), linear([[0.0, 1.0]], form="share"))
    y = np.array([0.0, 1.0, np.nan, 0.5, np.nan])
    line = curve(axes, np.arange(5), Series(y, "a", "learner"), share)
    assert (path(line.shape), dots_of(line.shape)) == ("M0 1000L250 0M750 500", "M750 500h0")
    assert (line.now, line.values) == ("50.00%", ("0.00%", "100.00%", ABSENT, "50.00%", ABSENT))
    assert path(curve(axes, np.arange(2), Series(y[:2], "a", "learner", step=True), share).shape) == "M0 1000H250V0"
    assert line.read_at(np.arange(5) * 100, np.array([0.0, 50.0, 300.0, 900.0])).values == (
        "0.00%",
        "100.00%",
        "50.00%",
        ABSENT,
    )


def test_boxes_and_bars() -> None:
    assert path(boxes([0, 0.5, 0.2], 0.0, [0.5, 0.5, 0], [1, 0.25, 1])) == "M0 0h500v1000h-500zM500 750h500v250h-500z"
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
    names = Names([{"name": "a", "kind": "numeric"}])
    table = splits(events, ConfidenceTreeOptions().split_rule(5), names)
    half = SHOWN // 2
    assert [int(row.cells[0]) for row in table.rows] == [*range(1, half + 1), *range(n - half + 1, n + 1)]
    assert table.rows[0].cells[4:9] == ("0.3", "none", "0.1", "0.2", "0.05")
    bits = splits(events, ConfidenceTreeOptions(rule="mcdiarmid").split_rule(5), names)
    assert float(bits.rows[0].cells[4]) == pytest.approx(0.3 * 2 / np.log(2), rel=1e-2)


# -- report margins --------------------------------------------------------------------------------------------------
# Margins against the rule of the algorithm itself, in exact arithmetic.


@given(st.floats(0, 1e6), st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
def test_the_budget_is_the_largest_number_of_updates_that_rebuilds_nothing(epsilon: float, sizes: list[int]) -> None:
    s = np.array(sizes)
    for budget, size in zip(margins(s, np.zeros_like(s), epsilon).budget.tolist(), sizes, strict=True):
        assert budget <= Fraction(epsilon) * size < budget + 1


def test_margins_and_their_tones() -> None:
    assert 0.7 * 10 == 7.0
    assert Fraction(0.7) * 10 < 7
    assert margins(np.array([10]), np.array([6]), 0.7).left.tolist() == [0]  # a product is not rounded up
    margin = margins(np.array([100] * 5 + [5]), np.array([0, 5, 6, 9, 10, 0]), 0.1)
    assert [margin.tone(node) for node in range(6)] == ["wide", "wide", "half", "tight", "spent", "none"]
    assert [margin.words(node).split()[:3] for node in (0, 3, 4)] == [
        ["10", "of", "10"],
        ["1", "of", "10"],
        ["0", "of", "10"],
    ]
    np.testing.assert_allclose(margin.spent, [0, 0.5, 0.6, 0.9, 1.0, 0])


def test_margins_of_sums_of_weights() -> None:
    """A node may have any part of an example of weight 1: no mass is lost to it, and no update is promised too much."""
    counts = np.array([[1.0, 1.0], [0.25, 0.25], [0.75, 0.75]])
    tree = {"feature": np.array([0, -1, -1]), "left": np.array([1, -1, -1]), "right": np.array([2, -1, -1])}
    more = {"m0": np.array([0.5, 0.0, 0.0]), "gone": np.zeros(3), "c": np.zeros(3)}
    assert proven_gaps({**tree, **more, "counts": counts}).tolist() == [0.25, 0, 0]  # 1/2 of 1/2 + 3/4 of 1/2 - 1/2
    few = {**more, "m0": more["m0"] / 8}
    assert proven_gaps({**tree, **few, "counts": counts / 8}).tolist() == [0.25, 0, 0]
    one, other = FullyDynamicTreeRegressor(n_jobs=1), FullyDynamicTreeRegressor(n_jobs=1)
    X, y = np.arange(200.0)[:, None], np.sin(np.arange(200.0) / 9)
    drawn = [
        FuDyADTDescription().drawable(model.fit(X, y, sample_weight=np.full(200, w)).session_.model())
        for model, w in ((one, 1.0), (other, 3.0))
    ]
    assert drawn[0]["number"].tolist() == drawn[1]["number"].tolist()
    np.testing.assert_allclose(proven_gaps(drawn[0]), proven_gaps(drawn[1]), atol=1e-12)
    margin = margins(np.array([10.5, 10.5, 30.0]), np.array([0.02, 0.9, 0.0]), float(Fraction(1, 10)))
    assert margin.left.tolist() == [1, 0, 3]
    assert margins(np.array([10.0]), np.array([6.0]), 0.7).left.tolist() == [0]


def test_the_next_rebuilds_are_those_that_the_stream_reaches_first() -> None:
    live = np.array([100, 80, 20, 0])
    margin = margins(np.array([100, 80, 20, 50]), np.array([0, 7, 1, 0]), 0.1)
    assert expected(margin, live) == [(1, 2.5), (2, 10.0), (0, 11.0)]


def test_epsilon_comes_from_the_models_options(tmp_path: Path) -> None:
    folder = fabricated_run(tmp_path / "run", rows=5, rebuilds=5)
    margin = margins_of(read_run(folder))
    assert margin is not None
    assert margin.epsilon == 0.1
    tree = fabricated_tree(classes=2, depth=3, rows=100)
    write_model(folder, tree, epsilon="auto", alpha=0.1, beta=0.2)
    assert margins_of(read_run(folder)) is None  # of an earlier version: no certificates
    write_model(folder, tree, epsilon="auto", schedule="published", alpha=0.1, beta=0.2)
    margin = margins_of(read_run(folder))
    assert margin is not None
    assert margin.epsilon == pytest.approx(1 / 41)
    for broken in ({"epsilon": "auto"}, {"epsilon": -1}, {"kind": "gbdt"}, {"unheard_of": 1}):
        write_model(folder, tree, **broken)
        assert margins_of(read_run(folder)) is None
    write_model(folder, {name: values for name, values in tree.items() if name != "s"})
    assert margins_of(read_run(folder)) is None


PUBLISHED = {"epsilon": 0.3, "alpha": 0.0, "beta": 0.0}


def grown_tree(rng: np.random.Generator, **options: float) -> FullyDynamicTreeClassifier:
    """A tree that has learned 300 noisy examples and forgotten 60."""
    tree = FullyDynamicTreeClassifier(**(options or PUBLISHED), max_depth=4)
    X = rng.integers(0, 12, (300, 3)).astype(float)
    tree.partial_fit(X, (X[:, 0] + rng.normal(0, 3, 300) > 6).astype(int), classes=[0, 1])
    tree.forget(tree.row_ids_[:60])
    return tree


def arrays(tree: FullyDynamicTreeClassifier, folder: Path) -> dict[str, np.ndarray]:
    tree.save(folder)
    return load_folder(folder, "model")[1]["arrays"]


def test_the_root_is_rebuilt_by_the_first_update_beyond_its_margin(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    tree = grown_tree(rng)
    model = arrays(tree, tmp_path / "before")
    left = int(margins(model["s"], model["c"], 0.3).left[0])
    assert left > 5
    for step in range(left + 1):
        assert arrays(tree, tmp_path / "now")["built"][0] == model["built"][0], step
        tree.partial_fit(rng.integers(0, 12, (1, 3)).astype(float), [int(rng.integers(2))])
    assert arrays(tree, tmp_path / "after")["built"][0] > model["built"][0]


@pytest.mark.parametrize("seed", range(3))
def test_certificates_outlast_their_margins(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = grown_tree(rng, alpha=0.05, beta=0.2)
    model = arrays(tree, tmp_path / "before")
    margin = certified_margins(model, 0.01, 0.2)
    left = int(margin.left[0])
    assert 0 < left <= margin.budget[0] == int(0.2 * 240 / 2.2)
    assert margin.spent.max() <= 1
    for step in range(left):
        tree.forget(tree.row_ids_[60 + step : 61 + step])
        now = arrays(tree, tmp_path / "now")
        assert now["built"][0] == model["built"][0], step
    assert (proven_gaps(now) <= 0.2).all()
    used = certified_margins(now, 0.01, 0.2).spent[now["feature"] >= 0]
    assert tree.audit().worst["slack"] == pytest.approx(used.max(), abs=1e-9)


def test_a_root_may_be_rebuilt_while_its_certificate_lasts(tmp_path: Path) -> None:
    """With a node of nearly its size: so a report promises the certificate, not the node."""
    x0, x1 = np.repeat([0.0, 1.0, 1.0], [240, 130, 130]), np.repeat([0.0, 0.0, 1.0], [240, 130, 130])
    y = np.ones(500, dtype=int)
    y[247:370] = y[396:] = 0  # of the 260 rows on the right, 5 and 20 % of class 1 below
    tree = FullyDynamicTreeClassifier(alpha=0.05, beta=0.2, max_depth=2).fit(np.column_stack([x0, x1]), y)
    before = arrays(tree, tmp_path / "before")
    margin, ids = certified_margins(before, 0.01, 0.2), tree.row_ids_
    assert margin.left[0] == 45
    for step in range(30):
        tree.forget(ids[250 + step : 251 + step])
    now = arrays(tree, tmp_path / "now")
    assert now["built"][0] > before["built"][0]


@pytest.mark.parametrize("options", [PUBLISHED, {"alpha": 0.05, "beta": 0.2}], ids=["published", "certificate"])
@pytest.mark.parametrize("seed", range(5))
def test_no_measured_gap_is_wider_than_the_proven_one(tmp_path: Path, seed: int, options: dict[str, float]) -> None:
    tree = grown_tree(np.random.default_rng(seed), **options)
    proven = proven_gaps(arrays(tree, tmp_path / "model"))
    assert proven.max() > 0.01
    assert tree.audit().worst["gap"] <= proven.max()


# -- report trees ----------------------------------------------------------------------------------------------------
# The trees as the page draws them: questions, limits, colours.

COLOURED = [{"name": "x", "kind": "numeric"}, {"name": "colour", "kind": "categorical"}]


def tree_of(feature: list[int], threshold: list[float], children: dict[int, tuple[int, int]], counts: Any) -> Any:
    """Return the arrays of a tree."""
    sides = [[children.get(node, (-1, -1))[side] for node in range(len(feature))] for side in (0, 1)]
    return {
        "feature": np.array(feature, np.int32),
        "threshold": np.array(threshold),
        "left": np.array(sides[0], np.int32),
        "right": np.array(sides[1], np.int32),
        "counts": np.array(counts),
    }


#: x <= 0.0704... at the root; on its yes side colour = 2; five nodes.
SMALL = tree_of(
    [0, 1, -1, -1, -1],
    [0.07047949999999999, 2, 0, 0, 0],
    {0: (1, 4), 1: (2, 3)},
    [[6, 4], [6, 1], [5, 0], [1, 1], [0, 3]],
)


def below(node: Any) -> list[Any]:
    """A node and all that is drawn below it."""
    return [node, *(deeper for child in node.children for deeper in below(child))]


def chain(length: int) -> dict[str, np.ndarray]:
    """A tree that splits one example off at each of ``length`` levels."""
    at = np.arange(2 * length + 1)
    inner = (at % 2 == 0) & (at < 2 * length)
    live = np.where(at % 2 == 0, length + 1 - at // 2, 1)
    return {
        "feature": np.where(inner, 0, -1).astype(np.int32),
        "threshold": at.astype(np.float64),
        "left": np.where(inner, at + 1, -1).astype(np.int32),
        "right": np.where(inner, at + 2, -1).astype(np.int32),
        "counts": np.stack([live, np.zeros(len(at), np.int64)], axis=1),
    }


def test_a_card_has_its_question_rounded_and_its_detail_exact() -> None:
    root = drawn_tree(SMALL, Names(COLOURED, ["UP", "DOWN"], {"colour": ["red", "green", "blue"]}))
    assert (root.name, root.test, root.rows, root.counts) == ("x", "\u2264 0.07048", 10, "60% UP")
    assert root.detail.startswith("x \u2264 0.07047949999999999.")
    yes, no = root.children
    assert (yes.answer, yes.name, yes.test, yes.hidden) == ("yes", "colour", "= blue", 0)
    assert (no.answer, no.name, no.leaf) == ("no", "DOWN", True)
    assert [leaf.name for leaf in yes.children] == ["UP", "UP"]  # a tie goes to the smaller class
    assert yes.mix == [("class-0", 6 / 7), ("class-1", 1 / 7)]
    assert drawn_tree(SMALL, Names(COLOURED)).children[0].test == "= code 2"
    used = features_used(SMALL, Names(COLOURED))
    assert [(row.cells, row.share) for row in used.rows] == [(("x", "1", "10"), 1.0), (("colour", "1", "7"), 0.7)]
    empty = drawn_tree(tree_of([-1], [0], {}, [[0, 0]]), Names())
    assert (empty.tone, empty.mix, empty.cards()) == ("", [], 1)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_leading_trees_are_those_whose_outputs_differ_most(classes: int) -> None:
    """Against the leaf of each row in each tree; boosted trees hold all rows."""
    rng = np.random.default_rng(8)
    X = rng.integers(9, size=(300, 2)).astype(np.float64)
    X[::11, 0] = np.nan
    y = (np.nan_to_num(X[:, 0]) + X[:, 1]).astype(np.int64) // 5 % classes
    model = OnlineGradientBoostingClassifier(max_iter=6).fit(X, y)
    trees, outputs = model.tree_sum(), np.zeros((300, 0))
    for tree, leaf in enumerate(model.apply(X).reshape(300, -1).T):
        value = trees.value[trees.starts[tree] + leaf]
        outputs = np.column_stack([outputs, value[:, tree % trees.outputs]])
    order = np.argsort(-outputs.var(axis=0), kind="stable")[:LEADING]
    names = Names([{"name": name, "kind": "numeric"} for name in ("a", "b")], [str(k) for k in range(classes)])
    [fold] = leading_trees(trees, names)
    assert isinstance(fold, Fold)
    for tree, shown in zip(order.tolist(), fold.blocks, strict=True):
        nodes = counted(int(np.diff(trees.starts)[tree]), "node")
        said = message(
            "reports.leading_tree", number=tree + 1, trees=trees.trees, nodes=nodes, drawn=shown.root.cards()
        )
        assert shown.about == f"{said}."
        assert (shown.root.rows, shown.root.counts) == (300, f"mean {figure(outputs[:, tree].mean())}")
        first = trees.starts[tree]
        name, test = names.asked(int(trees.feature[first]), float(trees.threshold[first]))
        assert (shown.root.name, shown.root.test) == (name, test + " or missing" * bool(trees.missing_left[first]))


def test_a_leading_tree_of_a_forest_has_shares_of_its_own_rows() -> None:
    rng = np.random.default_rng(8)
    X = rng.integers(9, size=(300, 2)).astype(np.float64)
    model = ExactForestClassifier(n_estimators=5).fit(X, np.where(X[:, 0] > 5, "yes", "no"))
    trees = model.tree_sum()
    [fold] = leading_trees(trees, Names([{"name": "a"}, {"name": "b"}], ["no", "yes"]))
    assert len(fold.blocks) == LEADING
    for shown in fold.blocks:
        tree = int(re.search(r"Tree (\d+)", shown.about)[1]) - 1
        leaves = np.arange(trees.starts[tree], trees.starts[tree + 1])
        leaves = leaves[trees.feature[leaves] < 0]
        yes = float((trees.cover[leaves] * trees.value[leaves, 1]).sum())
        assert shown.root.rows == trees.cover[trees.starts[tree]] == trees.cover[leaves].sum()
        assert shown.root.mix[1] == ("class-1", pytest.approx(yes / shown.root.rows))
    assert leading_trees(replace(trees, cover=None), Names()) == []


@pytest.mark.parametrize("cards", [1, 2, 3, 50, 10_000])
def test_cards_are_bounded_and_what_has_none_is_counted(cards: int) -> None:
    tree = fabricated_tree(classes=5, depth=12, rows=60_000)
    root = drawn_tree(tree, Names([{"name": name, "kind": "numeric"} for name in FEATURES]), cards=cards)
    nodes = below(root)
    assert len(nodes) == root.cards() <= cards
    assert len(nodes) + sum(node.hidden for node in nodes) == len(tree["feature"])
    assert all(len(node.children) in (0, 2) for node in nodes)
    drawn = min((node.rows for node in nodes if node.children), default=0)
    assert all(node.rows <= drawn for node in nodes if node.hidden) or cards < 3


def test_a_tree_of_tens_of_thousands_of_nodes_stays_small() -> None:
    tree = chain(40_000)
    assert drawn_tree(tree, Names()).cards() == 2 * (CARD_LEVELS - 1) + 1 <= CARDS


def test_of_many_classes_the_largest_have_colours_of_their_own() -> None:
    counts = np.array([[5, 90, 1, 1, 1, 30, 1, 70, 1, 1, 60, 50, 40, 20]])
    tones = class_tones({"counts": counts})
    assert [k for k, tone in enumerate(tones) if tone != "class-other"] == [1, 5, 7, 10, 11, 12, 13]
    assert len(set(tones)) == 8
    assert legend({"counts": counts}, [])[-1][0].split()[0] == "7"
    assert class_tones({"counts": counts[:, :8]}) == [f"class-{k}" for k in range(8)]


def test_a_sparse_feature_is_asked_whether_it_is_1() -> None:
    """Rows without it go to the left, so that yes leads to the right; yes comes first all the same."""
    features = [{"name": "size", "kind": "numeric"}, {"name": "words", "kind": "sparse", "features": 5}]
    assert [feature_name(features, j) for j in range(7)] == ["size", *(f"words[{i}]" for i in range(5)), "column 6"]
    assert feature_count(features) == 6
    names = Names(features, ["no", "yes"], {"words": ["the", "offer"]})
    counts = [[6, 4], [5, 0], [1, 4], [1, 0], [0, 4]]
    tree = tree_of([2, -1, 0, -1, -1], [0.5, 0, 1.5, 0, 0], {0: (1, 2), 2: (3, 4)}, counts)
    root = drawn_tree(tree, names)
    assert (root.name, root.test) == ("offer", "is 1")
    assert [(child.answer, child.rows) for child in root.children] == [("yes", 5), ("no", 5)]
    assert [(child.answer, child.name) for child in root.children[0].children] == [("yes", "no"), ("no", "yes")]


def test_a_card_has_the_record_of_its_split() -> None:
    model = tree_of([0, -1, -1], [0, 0, 0], {0: (1, 2)}, [[3, 2], [3, 0], [0, 2]])
    rule, names = ConfidenceTreeOptions().split_rule(5), Names(COLOURED)
    assert split_notes(model, rule, names) == {}
    record = {"stamp": 2001, "m": 500, "rival_feature": 0, "reason": TIE}
    record |= {"phi": 0.2, "rival_phi": 0.4, "impurity": 0.5, "epsilon": 0.05}
    notes = split_notes(model | {f"split_{name}": np.array([value]) for name, value in record.items()}, rule, names)
    assert notes.keys() == {0}
    assert re.findall(r"[\d,.]*\d", " ".join(notes[0].lines)) == ["1,001", "500", "0.3", "0.05", "0.1"]
