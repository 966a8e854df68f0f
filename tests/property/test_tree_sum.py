"""Every case as a sum of trees: equal in every bit to what the learner predicts, and to a slow twin."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.errors import InputError
from raydt.learners.base import Case
from raydt.sessions.session import InProcessSession, small_stream
from raydt.trees.shapley import HasTreeSum, TreeSum, tree_sum_of
from tests.cases import Trial, every_case
from tests.oracles import tree_sum as twin
from tests.refusals import refused


def rows_of(case: Case, n: int, seed: int) -> tuple[Any, SparseRows | None]:
    """Rows like those of the small streams, with numbers between and beyond theirs, and categories nobody has."""
    draw = np.random.default_rng(seed)
    X = np.stack([draw.integers(-1, 6, n), draw.random(n) * 1.4 - 0.2, draw.integers(-1, 4, n)], axis=1)
    X[: n // 4, :2] = draw.standard_normal((n // 4, 2)) * 1e3
    if case.missing:
        X[::5, 0] = X[3::7, 1] = np.nan  # the latter were complete in training
    if not case.sparse:
        return X, None
    lengths = draw.integers(0, 4, n)
    indices = [np.sort(draw.choice(5, size, replace=False)) for size in lengths]
    sparse = SparseRows.of_lengths(lengths, np.concatenate(indices).astype(np.int32), 5)
    return (X if case.dense else X[:, :0]), sparse


def plain(X: Any, sparse: SparseRows | None) -> Any:
    """Rows as one matrix, sparse features as columns of 0 and 1."""
    if sparse is None:
        return X
    ones = np.zeros((len(X), sparse.n_features))
    ones[np.repeat(np.arange(len(X)), np.diff(sparse.indptr)), sparse.indices] = 1.0
    return np.hstack([X, ones])


def predictor_of(trial: Trial) -> Any:
    """The predictor of a case after its small stream."""
    features, batch = small_stream(trial.case)
    session = InProcessSession(trial.learner, trial.options, features, 1, trial.case.plan)
    session.apply(batch)
    session.finish()
    return trial.learner.predictor(trial.options, features, session.model())


def described(trial: Trial) -> tuple[Any, TreeSum | None]:
    """The predictor of a case and its trees; None of a model that is no sum of trees, and says so."""
    predictor = predictor_of(trial)
    refused = refusal_of(predictor, trial.case.classes)
    return predictor, None if refused else tree_sum_of(predictor, trial.case.classes)


def refusal_of(predictor: Any, classes: int) -> str:
    """Why a model is no sum of trees; empty if it is one."""
    if not isinstance(predictor, HasTreeSum):
        return "it is no sum of trees"
    if not len(getattr(predictor, "_leaves", ())):
        return ""
    with refused("learners.naive_leaves", InputError) as caught:
        tree_sum_of(predictor, classes)
    return str(caught.value)


@every_case("sum of trees")
def test_outputs_are_the_learners_own_and_those_of_the_twin(trial: Trial) -> None:
    predictor, trees = described(trial)
    if trees is None:
        return
    X, sparse = rows_of(trial.case, 400, 1)
    given = {} if sparse is None else {"sparse": sparse}
    scores = trees.scores(X, sparse)
    assert [twin.scores(trees, row) for row in plain(X, sparse)] == scores.tolist()
    labels = predictor.predict(X, **given)
    if not trial.case.classes:
        assert scores[:, 0].tolist() == labels.tolist()
        return
    if trees.link == "identity":
        shares = np.empty_like(scores)
        shares[:, trees.codes] = scores
        assert shares.tolist() == predictor.predict_proba(X, trial.case.classes, **given).tolist()
    else:
        assert scores.tolist() == predictor.scores(X, **given).tolist()
    one = trees.outputs == 1
    codes = np.where(scores[:, 0] > 0, trees.codes[0], 0) if one else trees.codes[scores.argmax(axis=1)]
    tied = np.sort(scores, axis=1)[:, -2] == scores.max(axis=1) if scores.shape[1] > 1 else np.zeros(len(X), bool)
    assert codes[~tied].tolist() == labels[~tied].tolist()
    if not trial.case.sparse or trial.case.dense:
        assert codes.tolist() == labels.tolist()


@every_case("sum of trees")
def test_covers_count_the_live_examples(trial: Trial) -> None:
    _, trees = described(trial)
    if trees is None:
        return
    assert trees.cover is not None
    inner = trees.feature >= 0
    assert (trees.cover[trees.left[inner]] + trees.cover[trees.right[inner]] == trees.cover[inner]).all()
    assert trees.cover.min() >= 0
    assert trees.cover[trees.starts[:-1]].max() > 0


def test_a_model_of_another_kind_is_refused() -> None:
    assert not isinstance(object(), HasTreeSum)
    with refused("learners.no_trees", InputError):
        tree_sum_of(object(), 2)
