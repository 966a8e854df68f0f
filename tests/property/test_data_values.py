"""Values of subsets: each score on a walk is that of training on the subset, and means are those over all subsets.

The twin trains a forest for each of the subsets of ten rows.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raydt
from raydt import ExactForestClassifier, ExactForestRegressor
from raydt.attribution import data_values, influence, leave_one_out
from raydt.attribution.leave_one_out import groups_of
from raydt.attribution.values import Subsets
from raydt.errors import ConfigError, InputError
from raydt.learners.forest import coordinator
from tests.crews import NUMBERS, crew
from tests.property.test_leave_one_out import Table
from tests.refusals import refused
from tests.volume import examples

pytestmark = pytest.mark.timeout(3000)
OPTIONS: dict[str, Any] = {"n_estimators": 3, "sample_share": 1.0, "min_samples_split": 2, "random_state": 1}


def small(seed: int, n: int = 10, numeric: bool = False) -> tuple[Any, Any, Any, Any]:
    """Training and validation rows of two columns; one label in ten is wrong."""
    draws = np.random.default_rng(seed)
    X, X_val = draws.integers(0, 6, (n, 2)).astype(float), draws.uniform(0, 6, (25, 2))
    y, y_val = (rows[:, 0] * 1.5 if numeric else (rows[:, 0] > 2.5).astype(int) for rows in (X, X_val))
    if not numeric:
        y[:2] = 0, 1
    return X, y, X_val, y_val


@examples(400, least=6, deadline=None)
@given(st.integers(0, 2**32))
def test_a_walk_has_the_scores_of_trainings(seed: int) -> None:
    numeric = seed % 2 == 1
    X, y, X_val, y_val = small(seed, 24, numeric)
    kind = ExactForestRegressor if numeric else ExactForestClassifier
    model: Any = kind(**OPTIONS).fit(X, y, subjects=np.arange(24) // 3)
    before = model.digest()
    subsets = Subsets(model, X_val, y_val, groups_of(model, None, "all"), None)
    draws = np.random.default_rng(seed)
    for _ in range(4):
        has = draws.random(8) < 0.5
        rows = np.flatnonzero(np.repeat(has, 3))
        score = subsets.score_of(has)
        if not len(rows):
            continue
        anew = kind(**OPTIONS).fit(X[rows], y[rows], ids=rows)
        predicted = anew.predict(X_val)
        expected = -((predicted - y_val) ** 2).mean() if numeric else (predicted == y_val).mean()
        assert score == pytest.approx(expected, abs=1e-12)
    assert model.digest() == before


@pytest.mark.filterwarnings("ignore:the weight")  # too small to split a node
@examples(1500, least=40, deadline=None)
@given(st.integers(0, 2**32))
def test_live_predictions_are_those_of_the_forest_after_every_update(seed: int) -> None:
    """Digests, which share the marks of what has changed, come in between, and batches that build all trees again."""
    with pytest.MonkeyPatch.context() as patch:
        if seed % 4:  # else a table is so small that every batch builds its trees again
            patch.setattr(coordinator, "STEPS_OF_A_BUILD", 0)
        follow(Table(np.random.default_rng(seed)))


def follow(table: Table) -> None:
    """Compare live predictions with those of the forest along some updates."""
    draws, model, live = table.draws, table.model, table.live.tolist()
    session = model.session_
    X, n_classes = np.ascontiguousarray(table.X_val), len(model._classes)
    with crew(int(draws.choice(NUMBERS))):
        predictions = session.live_predictions(X, n_classes)
        gone: list[int] = []
        for _ in range(int(draws.integers(1, 12))):
            some = int(draws.choice([1, 1, 1, 5]))
            if draws.random() < 0.6 and len(live) > some:
                out = [live.pop(int(draws.integers(len(live)))) for _ in range(some)]
                model.forget(out, digests=bool(draws.random() < 0.2))
                gone += out
            elif gone:
                back = [gone.pop(int(draws.integers(len(gone)))) for _ in range(min(some, len(gone)))]
                model.partial_fit(table.X[back], table.y[back], **table.beside(np.array(back)))
                live += back
            if draws.random() < 0.2:
                model.digest()
            if draws.random() < 0.8:
                predicted, shares = predictions()
                assert predicted.tolist() == session.coordinator.predict(X).tolist()
                if n_classes:
                    assert shares.tolist() == session.coordinator.predict_proba(X, n_classes).tolist()
        assert predictions()[0].tolist() == session.coordinator.predict(X).tolist()
        if live:
            other = table.trained(np.array(sorted(live))) if set(range(table.header)) <= set(live) else model
            assert model.digest() == other.digest() == model.digest()


def exact(X: Any, y: Any, X_val: Any, y_val: Any) -> tuple[Any, Any]:
    """Shapley and Banzhaf values by the accuracy of a training on every subset."""
    n, scores = len(y), {}
    for size in range(n + 1):
        for rows in itertools.combinations(range(n), size):
            predicted: Any = np.zeros(len(y_val))  # without any example the first class
            if rows:
                some = list(rows)
                predicted = ExactForestClassifier(**OPTIONS).fit(X[some], y[some], ids=some).predict(X_val)
            scores[frozenset(rows)] = float((predicted == y_val).mean())
    shapley, banzhaf = np.zeros(n), np.zeros(n)
    for rows, score in scores.items():
        for one in set(range(n)) - rows:
            added = scores[rows | {one}] - score
            shapley[one] += added * math.factorial(len(rows)) * math.factorial(n - len(rows) - 1) / math.factorial(n)
            banzhaf[one] += added / 2 ** (n - 1)
    return shapley, banzhaf


def test_values_are_those_over_all_subsets_of_ten_rows() -> None:
    data = small(3)
    X, y, X_val, y_val = data
    model = ExactForestClassifier(**OPTIONS).fit(X, y)
    shapley, banzhaf = exact(*data)
    found = data_values(model, X_val, y_val, samples=400)
    assert (np.abs(found.values - shapley) <= 5 * found.errors + 1e-12).all()
    assert found.values.sum() == pytest.approx(shapley.sum(), abs=1e-9)  # of every permutation
    assert (found.samples, found.score) == (400, model.score(X_val, y_val))
    of_subsets = data_values(model, X_val, y_val, "banzhaf", samples=1500)
    assert (np.abs(of_subsets.values - banzhaf) <= 5 * of_subsets.errors).all()
    assert np.abs(of_subsets.values - banzhaf).max() < 0.1
    again = data_values(model, X_val, y_val, samples=400)
    assert again.values.tolist() == found.values.tolist()
    loo = data_values(model, X_val, y_val, "loo")
    assert loo.values.tolist() == leave_one_out(model, X_val, y_val).values.tolist()


def test_it_stops_once_the_errors_are_small_and_says_how_far_it_is() -> None:
    X, y, X_val, y_val = small(5)
    model = ExactForestClassifier(**OPTIONS).fit(X, y)
    told: list[tuple[int, float]] = []
    found = data_values(model, X_val, y_val, samples=5000, tolerance=0.02, progress=lambda *so_far: told.append(so_far))
    assert 10 <= found.samples == len(told) < 5000
    assert found.errors.mean() == told[-1][1] <= 0.02
    assert all(error > 0.02 for _, error in told[9:-1])


def test_influence_has_the_rows_that_move_a_prediction_most_first() -> None:
    X, y, X_val, _ = small(7, 40)
    model = ExactForestClassifier(**OPTIONS).fit(X, y)
    found = influence(model, X_val[:1])
    assert sorted(found.ids.tolist()) == list(range(40))
    assert (np.diff(np.abs(found.values)) <= 0).all()
    assert found.prediction == model.predict(X_val[:1])[0]
    code = model.classes_.tolist().index(found.prediction)
    assert found.output == model.predict_proba(X_val[:1])[0, code]
    for one, value in zip(found.ids[:10].tolist(), found.values[:10].tolist(), strict=True):
        with model.without([one]):
            assert value == found.output - model.predict_proba(X_val[:1])[0, code]


def test_what_has_no_value_is_refused() -> None:
    X, y, X_val, y_val = small(7, 40)
    tree = raydt.FullyDynamicTreeClassifier().fit(X, y)
    with refused("attribution.order", ConfigError):
        data_values(tree, X_val, y_val)
    assert len(data_values(tree, X_val, y_val, "loo", ids=[1, 2]).values) == 2
    model = ExactForestClassifier(**OPTIONS).fit(X, y)
    with refused("attribution.method", ConfigError):
        data_values(model, X_val, y_val, "none")  # type: ignore[arg-type]
    for samples in (0, 2.5, "3"):
        with refused("attribution.samples", InputError):
            data_values(model, X_val, y_val, samples=samples)  # type: ignore[arg-type]
    with refused("attribution.one_row", InputError):
        influence(model, X_val)
