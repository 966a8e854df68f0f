"""ConfidenceTreeClassifier: scikit-learn's checks, parameters, cuts of calls, NaN, sparse rows, deletion, saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from raydt import ConfidenceTreeClassifier, load_model
from raydt.errors import ConfigError, InputError

scipy_sparse = pytest.importorskip("scipy.sparse")

RNG = np.random.default_rng(5)
X = np.round(RNG.normal(size=(600, 4)), 1)
Y = (X[:, 0] > 0).astype(int) + (X[:, 2] > 0.5)
SOON: dict[str, Any] = {"grace_period": 20, "c": 0.05}


def test_parameters_that_do_not_fit_are_named() -> None:
    with pytest.raises(ConfigError, match=r"delta applies only to confidence: theorem.* Remove it, or set it to null"):
        ConfidenceTreeClassifier(delta=0.1).fit(X, Y)
    with pytest.raises(InputError, match=r"takes two classes .* == 0 does, or use criterion: gini"):
        ConfidenceTreeClassifier(criterion="kearns_mansour").fit(X, Y)


def test_the_first_call_makes_the_first_bins_and_later_ones_may_be_cut_anyhow() -> None:
    first = ConfidenceTreeClassifier(**SOON).partial_fit(X[:200], Y[:200], [0, 1, 2])
    whole = clone(first).partial_fit(X[:200], Y[:200], [0, 1, 2]).partial_fit(X[200:], Y[200:])
    for begin in range(200, 600, 7):
        first.partial_fit(X[begin : begin + 7], Y[begin : begin + 7])
    assert first.digest() == whole.digest()
    assert first.score(X, Y) > 0.9
    assert first.fit(X, Y).score(X, Y) > 0.9


def test_few_first_rows_and_bins_that_stay_are_warned_of() -> None:
    tree = ConfidenceTreeClassifier(renew_bins=0)
    with pytest.warns(UserWarning, match=r"the bins are made once, from 5 rows: .* or set renew_bins: 100"):
        tree.partial_fit(X[:5], Y[:5])
    tree.partial_fit(X[5:], Y[5:])
    ConfidenceTreeClassifier(renew_bins=0).partial_fit(X[:20], Y[:20])  # nor do later calls warn, or renewed bins
    ConfidenceTreeClassifier().partial_fit(X[:5], Y[:5])


def test_forgets_and_is_saved(tmp_path: Path) -> None:
    rows = X.copy()
    rows[::7, 1] = np.nan
    tree = ConfidenceTreeClassifier(**SOON).fit(rows, Y)
    assert tree.forget(tree.row_ids_[:100]).active == 500
    assert tree.forget_examples(rows[[105, 106]], Y[[105, 106]]).active == 498
    tree.save(tmp_path / "state", with_examples=True)
    again = load_model(tmp_path / "state")
    assert isinstance(again, ConfidenceTreeClassifier)
    assert again.digest() == tree.digest()
    assert again.partial_fit(rows[:50], Y[:50]).digest() == tree.partial_fit(rows[:50], Y[:50]).digest()
    tree.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict_proba(rows), tree.predict_proba(rows))


def test_text_is_categorical_and_missing_numbers_are_taken() -> None:
    frame = pd.DataFrame({"a": np.where(X[:, 0] > 1, np.nan, X[:, 0]), "kind": np.array(list("rgb"))[Y]})
    tree = ConfidenceTreeClassifier(**SOON).fit(frame, Y > 0)
    assert tree.score(frame, Y > 0) == 1.0


def test_sparse_rows() -> None:
    ones = (RNG.random((500, 30)) < 0.3).astype(np.int8)
    y = np.where(ones[:, 3] | (ones[:, 5] & ones[:, 7]), "spam", "ham")
    matrix = scipy_sparse.csr_matrix(ones)
    lists = [np.flatnonzero(row).tolist() for row in ones]
    of_matrix = ConfidenceTreeClassifier(**SOON).fit(matrix, y)
    of_lists = ConfidenceTreeClassifier(**SOON, n_features=30).fit(lists, y)
    assert of_matrix.digest() == of_lists.digest()
    assert of_matrix.score(matrix, y) > 0.9
    with pytest.raises(InputError, match="takes two classes with sparse features"):
        ConfidenceTreeClassifier(**SOON).fit(matrix, np.arange(500) % 3)


@pytest.mark.filterwarnings("ignore:ConfidenceTreeClassifier. the bins are made once:UserWarning")
@pytest.mark.parametrize("first", [1, 5, 400])
def test_a_first_call_of_few_rows_is_enough(first: int) -> None:
    """Its rows make the first bins only; with bins that stay, one row leaves nothing to split by."""
    rng = np.random.default_rng(4)
    X = rng.random((3000, 3))
    y = X[:, 1] > 0.5
    right = {}
    for renew_bins in (None, 0):
        tree = ConfidenceTreeClassifier(renew_bins=renew_bins, leaf_prediction="majority")
        tree.partial_fit(X[:first], y[:first], [False, True])
        for begin in range(first, 2500, 100):
            tree.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
        right[renew_bins] = tree.score(X[2500:], y[2500:])
    assert right[None] > 0.95
    assert right[0] < 0.95 or first > 1


def test_naive_bayes_leaves_predict_where_no_split_is_sure() -> None:
    """Three weak features: together they tell more than the majority, and nothing is left after a deletion."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 1500)
    X = rng.normal(size=(1500, 3)) + y[:, None]
    by_kind = {}
    for kind in ("majority", "naive_bayes", "adaptive"):
        tree = ConfidenceTreeClassifier(leaf_prediction=kind, c=1.0).fit(X[:1000], y[:1000])
        by_kind[kind] = tree.score(X[1000:], y[1000:])
        shares = tree.predict_proba(X[1000:])
        assert (tree.predict(X[1000:]) == tree.classes_[shares.argmax(axis=1)]).all()
        tree.forget(tree.row_ids_)
        assert len(set(tree.predict(X).tolist())) == 1
    assert by_kind["majority"] < 0.6 < 0.75 < by_kind["naive_bayes"]
    assert by_kind["adaptive"] == by_kind["naive_bayes"]


def test_a_model_has_bins_only_if_leaves_predict_by_them() -> None:
    for kind, wanted in (("majority", False), ("naive_bayes", True), ("adaptive", True)):
        model = ConfidenceTreeClassifier(leaf_prediction=kind, **SOON).fit(X, Y).session_.model()
        assert any(name.startswith(("bins_", "naive_")) for name in model) == wanted
