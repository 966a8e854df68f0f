"""Margins against the rule of the algorithm itself, in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.report.charts import path
from pipelines.report.folder import read_run
from raydt import FullyDynamicTreeClassifier, FullyDynamicTreeRegressor
from raydt.folders.arrays import load_folder
from raydt.learners.fudyadt.describe import (
    FuDyADTDescription,
    by_depth,
    by_size,
    certified_margins,
    expected,
    margins,
    margins_of,
    proven_gaps,
)
from raydt.presentation.trees import depths
from tests.unit.fabricated_run import fabricated_run, fabricated_tree, write_model


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


def test_charts_count_every_node_and_stay_small() -> None:
    tree = fabricated_tree(classes=3, depth=14, rows=500_000)
    margin, n = margins(tree["s"], tree["c"], 0.1), len(tree["s"])
    chart = by_depth(margin, depths(tree))
    assert sum(int(value.replace(",", "")) for mark in chart.panels[0].marks for value in mark.values) == n
    scatter = by_size(margin, tree, 0.2)
    assert [mark.now for mark in scatter.panels[0].marks] == [
        f"{(tree['feature'] < 0).sum():,}",
        f"{(tree['feature'] >= 0).sum():,}",
    ]
    assert sum(len(path(mark.shape)) if mark.shape else 0 for panel in scatter.panels for mark in panel.marks) < 600_000
    assert [mark.name for mark in scatter.panels[1].marks] == ["splits", "beta"]
