"""Values of subsets: each score and contribution is that of trainings, and means are those over all subsets.

The twin trains a forest for each of the subsets of ten rows. The mean over all orders of four players is their exact
value: the estimate is unbiased, whatever the seed.
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
from raydt.attribution.values import Subsets, strata_of
from raydt.errors import ConfigError, InputError
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


def score_of(table: Table, rows: Any) -> float:
    """The score of a training on some rows, to the last bit."""
    predicted = table.trained(rows).predict(table.X_val)
    if table.numeric:
        return float((-((predicted - table.y_val) ** 2)).mean())
    return float((predicted == table.y_val).astype(np.float64).mean())


@pytest.mark.filterwarnings("ignore:the weight")  # too small to split a node
@examples(1500, least=40, deadline=None)
@given(st.integers(0, 2**32))
def test_contributions_are_those_of_trainings(seed: int) -> None:
    """Of each of the first rows of an order to the others of its block, and some rows that are in every subset."""
    table = Table(np.random.default_rng(seed))
    draws, model, ids = table.draws, table.model, table.live[table.header :][:12]
    n = len(ids)
    if not n:
        return
    before, kept = model.digest(), np.setdiff1d(table.live, ids)
    subsets = Subsets(model, table.X_val, table.y_val, groups_of(model, ids, None), None)
    assert subsets.score == score_of(table, table.live)
    order, size, most = draws.permutation(n), int(draws.integers(n)), int(draws.integers(1, n + 1))
    with crew(int(draws.choice(NUMBERS))):
        added = subsets.added(order, size, most)
    assert len(added) == most
    for place in range(most):
        begin = place - place % (size + 1)
        block = [int(order[(begin + i) % n]) for i in range(size + 1)]
        others = [one for one in block if one != order[place]]
        assert len(set(block)) == size + 1
        scores = [score_of(table, np.sort(np.append(kept, ids[some]))) for some in (block, others)]
        assert added[place] == scores[0] - scores[1]
    assert model.digest() == before


def exact(X: Any, y: Any, X_val: Any, y_val: Any, each: int = 1) -> tuple[Any, Any]:
    """Shapley and Banzhaf values of players of ``each`` rows, by the accuracy of a training on every subset."""
    n, scores = len(y) // each, {}
    for size in range(n + 1):
        for rows in itertools.combinations(range(n), size):
            predicted: Any = np.zeros(len(y_val))  # without any example the first class
            if rows:
                some = [each * player + i for player in rows for i in range(each)]
                predicted = ExactForestClassifier(**OPTIONS).fit(X[some], y[some], ids=some).predict(X_val)
            scores[frozenset(rows)] = float((predicted == y_val).mean())
    return means_of(n, scores)


def means_of(n: int, scores: dict[frozenset[int], float]) -> tuple[Any, Any]:
    """Shapley and Banzhaf values by their definition, from the scores of all subsets of n players."""
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
    found = data_values(model, X_val, y_val, samples=40)
    assert (np.abs(found.values - shapley) <= 5 * found.errors + 1e-12).all()
    assert np.abs(found.values - shapley).max() < 0.05
    assert (found.samples, found.score) == (40, model.score(X_val, y_val))
    of_subsets = data_values(model, X_val, y_val, "banzhaf", samples=1500)
    assert (np.abs(of_subsets.values - banzhaf) <= 5 * of_subsets.errors).all()
    assert np.abs(of_subsets.values - banzhaf).max() < 0.1
    runs = []
    for threads in NUMBERS:
        with crew(threads):
            again = data_values(model, X_val, y_val, samples=4)
        runs.append((again.values.tolist(), again.errors.tolist()))
    assert all(run == runs[0] for run in runs)
    assert data_values(model, X_val, y_val, samples=4, random_state=1).values.tolist() != runs[0][0]
    loo = data_values(model, X_val, y_val, "loo")
    assert loo.values.tolist() == leave_one_out(model, X_val, y_val).values.tolist()


@pytest.mark.parametrize("each", [1, 2])
def test_the_mean_over_all_orders_is_the_value(each: int) -> None:
    """Of four players of so many rows: every stratum, every size in it, every order."""
    X, y, X_val, y_val = data = small(4, 4 * each)
    model = ExactForestClassifier(**OPTIONS).fit(X, y, subjects=np.arange(len(y)) // each)
    subsets, values = Subsets(model, X_val, y_val, groups_of(model, None, "all"), None), np.zeros(4)
    orders = [np.array(order) for order in itertools.permutations(range(4))]
    for sizes in strata_of(4):
        for size in sizes:
            for order in orders:
                values[order] += subsets.added(order, size, 4) / len(sizes) / len(orders) * (len(sizes) / 4)
    assert values == pytest.approx(exact(*data, each)[0], abs=1e-12)


def test_strata_double() -> None:
    for n in range(70):
        strata = strata_of(n)
        assert [size for sizes in strata for size in sizes] == list(range(n))
        assert all(sizes.stop == max(1, 2 * sizes.start) for sizes in strata[:-1])
    assert data_values(ExactForestClassifier(**OPTIONS).fit(*small(1)[:2]), *small(1)[2:], ids=[]).values.tolist() == []


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_rows_are_known_without_chance(n: int) -> None:
    X, y, X_val, y_val = small(6, 8)
    model = ExactForestClassifier(**OPTIONS).fit(X, y)
    found = data_values(model, X_val, y_val, ids=range(n), samples=3)
    assert (found.errors == 0).all()
    scores: dict[frozenset[int], float] = {}
    for size in range(n + 1):
        for some in itertools.combinations(range(n), size):
            with model.without([one for one in range(n) if one not in some]):
                scores[frozenset(some)] = model.score(X_val, y_val)
    assert found.values == pytest.approx(means_of(n, scores)[0], abs=1e-12)


def test_standard_errors_are_those_of_other_seeds() -> None:
    """The mean of their squares is the mean squared distance from the exact values, over many seeds."""
    data = small(8, 6)
    model, (shapley, _) = ExactForestClassifier(**OPTIONS).fit(*data[:2]), exact(*data)
    runs = [data_values(model, *data[2:], samples=4, random_state=seed) for seed in range(30)]
    far = np.mean([(run.values - shapley) ** 2 for run in runs])
    assert 0.6 < far / np.mean([run.errors**2 for run in runs]) < 1.6


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
