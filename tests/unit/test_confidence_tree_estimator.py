"""ConfidenceTreeClassifier: scikit-learn's checks, parameters, cuts of calls, NaN, sparse rows, deletion, saving."""

from __future__ import annotations

import re
from typing import get_args

import numpy as np
import pytest

from raydt import ConfidenceTreeClassifier
from raydt.learners.confidence_tree.naive_bayes import LeafPrediction
from raydt.messages import message

RNG = np.random.default_rng(5)
X = np.round(RNG.normal(size=(600, 4)), 1)
Y = (X[:, 0] > 0).astype(int) + (X[:, 2] > 0.5)


def test_few_first_rows_and_bins_that_stay_are_warned_of() -> None:
    tree = ConfidenceTreeClassifier(renew_bins=0)
    with pytest.warns(UserWarning, match=re.escape(message("learners.few_rows", rows="5 rows"))):
        tree.partial_fit(X[:5], Y[:5])
    tree.partial_fit(X[5:], Y[5:])
    ConfidenceTreeClassifier(renew_bins=0).partial_fit(X[:20], Y[:20])  # nor do later calls warn, or renewed bins
    ConfidenceTreeClassifier().partial_fit(X[:5], Y[:5])


@pytest.mark.filterwarnings("ignore:ConfidenceTreeClassifier. the bins:UserWarning")
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


@pytest.mark.parametrize("kind", get_args(LeafPrediction))
def test_a_receipt_tells_of_choices_wherever_leaves_choose(kind: str) -> None:
    tree = ConfidenceTreeClassifier(leaf_prediction=kind).fit([[i % 5] for i in range(30)], [i % 2 for i in range(30)])
    told = [copy for copy in tree.forget([3]).copies if copy.startswith("which prediction of a leaf was right")]
    assert len(told) == kind.startswith("adaptive")
