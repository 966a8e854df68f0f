"""What a model would be without examples: predictions are those of training anew, bit for bit, and scores follow.

Tables are small and hurt: few distinct values, copies of rows, missing values, categories, rows that are the last of a
class or a leaf, numeric labels whose unit one row decides, weights, and deletions and insertions before. Number of
threads, lazy rebuilding and loading are drawn, too. The twin trains a forest on the other rows.
"""

from __future__ import annotations

import copy
import itertools
import math
import signal
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raydt
from raydt import ExactForestClassifier, ExactForestRegressor, load_model
from raydt.attribution import JackknifePlusRegressor, cross_val_score_by_deletion, label_quality, leave_one_out
from raydt.attribution.jackknife import interval
from raydt.errors import ConfigError, InputError, UpdateError
from raydt.messages import message_of
from tests.crews import NUMBERS, crew
from tests.oracles import intervals
from tests.volume import examples

pytestmark = [
    pytest.mark.timeout(3000),
    pytest.mark.filterwarnings("ignore:the weight"),  # too small to split a node
]


class Table:
    """A fitted forest with a past, and all that training it anew takes."""

    def __init__(self, draws: np.random.Generator) -> None:
        self.draws, d = draws, int(draws.integers(1, 5))
        self.numeric = bool(draws.random() < 0.4)
        self.categorical = [j for j in range(d) if draws.random() < 0.3]
        self.header = 4  # rows that stay: categories have the same codes in a training without others
        n = int(draws.integers(6, 70))
        self.X = np.stack([self.column(n + self.header, j) for j in range(d)], axis=1)
        same = draws.integers(0, n, n // 3)
        self.X[self.header + same] = self.X[self.header + draws.integers(0, n, len(same))]
        self.y = self.labels(n + self.header)
        self.weight = None
        if draws.random() < 0.3:
            self.weight = draws.choice([0.5, 1.0, 2.0, 0.0], len(self.y))
            self.weight[0] = 1.0
        self.subjects = draws.integers(0, 6, len(self.y))
        self.options: dict[str, Any] = {
            "n_estimators": int(draws.integers(1, 7)),
            "sample_share": float(draws.choice([0.3, 0.5, 1.0])),
            "max_features": int(draws.integers(1, d + 1)),
            "thresholds": int(draws.integers(1, 4)),
            "max_depth": int(draws.choice([0, 2, 20])),
            "min_samples_split": int(draws.integers(2, 6)),
            "rebuild": str(draws.choice(["eager", "lazy"])),
            "random_state": int(draws.integers(0, 5)),
            "categorical_features": self.categorical or None,
        }
        first = int(draws.integers(self.header, len(self.y) + 1))
        self.model = self.trained(np.arange(first))
        self.live = np.arange(len(self.y))
        if first < len(self.y):
            rest = self.live[first:]
            self.model.partial_fit(self.X[rest], self.y[rest], **self.beside(rest))
        gone = self.live[self.header :][draws.random(n) < draws.choice([0.0, 0.3])]
        if len(gone):
            self.model.forget(gone)
            self.live = np.setdiff1d(self.live, gone)
        self.X_val = np.concatenate(
            [self.X[draws.integers(0, len(self.y), 12)], self.X[:3] + draws.normal(size=(3, d))]
        )
        self.X_val[:, self.categorical] = np.abs(np.round(self.X_val[:, self.categorical]))
        self.y_val = self.y[draws.integers(0, len(self.y), len(self.X_val))]

    def column(self, n: int, j: int) -> Any:
        """Few distinct values, many, or missing ones; a category begins with all values."""
        if j in self.categorical:
            return np.concatenate([np.arange(4.0), self.draws.integers(0, 4, n - 4)])
        column = self.draws.integers(0, 4, n).astype(np.float64)
        if self.draws.random() < 0.5:
            column = self.draws.normal(size=n)
        if self.draws.random() < 0.3:
            column[self.draws.random(n) < 0.2] = np.nan
        return column

    def labels(self, n: int) -> Any:
        if self.numeric:
            offset = float(self.draws.choice([0.0, 0.0, 1.7e9]))
            return offset + self.draws.choice(
                [0.0, -1.5, 1.25, 0.1, 0.3, 900.0, 7.0], n, p=[0.2] * 4 + [0.1, 0.02, 0.08]
            )
        labels = self.draws.integers(0, int(self.draws.integers(2, 12)), n)
        labels[:2] = 0, 1
        return labels

    def beside(self, rows: Any) -> dict[str, Any]:
        weight = {} if self.weight is None else {"sample_weight": self.weight[rows]}
        return {"ids": rows, "subjects": self.subjects[rows], **weight}

    def trained(self, rows: Any) -> Any:
        """A forest that has seen only these rows."""
        kind = ExactForestRegressor if self.numeric else ExactForestClassifier
        return kind(**self.options).fit(self.X[rows], self.y[rows], **self.beside(rows))

    def predictions(self, model: Any) -> Any:
        """Predictions as those of a model of all classes: shares of absent classes are 0."""
        if self.numeric:
            return model.predict(self.X_val)
        shares = np.zeros((len(self.X_val), len(self.model.classes_)))
        shares[:, [self.model.classes_.tolist().index(label) for label in model.classes_]] = model.predict_proba(
            self.X_val
        )
        return shares


@examples(1500, least=40, deadline=None)
@given(st.integers(0, 2**32))
def test_every_row_left_out_is_training_without_it(seed: int) -> None:
    table = Table(np.random.default_rng(seed))
    draws, model, header = table.draws, table.model, table.header
    before = model.digest()
    ids = table.live[header:]
    method = "predict" if table.numeric else "predict_proba"
    with crew(int(draws.choice(NUMBERS))):
        found = leave_one_out(
            model, table.X_val, table.y_val, ids=ids, return_predictions=method
        )  # fmt: skip
    assert model.digest() == before
    assert found.ids.tolist() == ids.tolist()
    for number, one in enumerate(ids.tolist()):
        anew = table.trained(np.setdiff1d(table.live, [one]))
        assert np.array_equal(found.predictions[number], table.predictions(anew))
        predicted = anew.predict(table.X_val)
        score = -((predicted - table.y_val) ** 2).mean() if table.numeric else (predicted == table.y_val).mean()
        assert found.values[number] == pytest.approx(found.score - score, abs=1e-9 * max(1.0, abs(score)))
    one = int(draws.choice(ids)) if len(ids) else 0
    if one:
        anew = table.trained(np.setdiff1d(table.live, [one]))
        with model.without([one]):
            assert model.predict(table.X_val).tolist() == anew.predict(table.X_val).tolist()
            assert model.digest() == anew.digest()
        assert model.digest() == before


@examples(600, least=20, deadline=None)
@given(st.integers(0, 2**32))
def test_subjects_left_out_are_training_without_their_rows(seed: int) -> None:
    table = Table(np.random.default_rng(seed))
    model, whose = table.model, table.subjects[table.live]
    found = leave_one_out(model, table.X_val, table.y_val, subjects="all", return_predictions=True)
    assert set(found.ids.tolist()) == set(whose.tolist())
    for number, one in enumerate(found.ids.tolist()):
        rest = table.live[whose != one]
        if len(np.setdiff1d(np.arange(table.header), rest)):  # the codes of categories would be others
            anew = copy.deepcopy(model)
            anew.forget(subjects=[one], digests=False)
        else:
            anew = table.trained(rest)
        assert found.predictions[number].tolist() == anew.predict(table.X_val).tolist()
        with model.without(subjects=[one]):
            assert model.predict(table.X_val).tolist() == anew.predict(table.X_val).tolist()


@examples(300, least=20, deadline=None)
@given(st.integers(0, 2**32))
def test_rows_that_are_asked_again_are_those_given_now(seed: int) -> None:
    """The caller writes to its rows between calls; examples with new categories come meanwhile, and threads ask."""
    table = Table(np.random.default_rng(seed))
    draws, model, rows = table.draws, table.model, np.ascontiguousarray(table.X_val)
    for number in range(5):
        if draws.random() < 0.4:
            new, beside = table.X[:1].copy(), table.beside(np.array([0]))
            new[:, table.categorical] = draws.integers(3, 7)
            model.partial_fit(new, table.y[:1], **beside | {"ids": [1000 + number]})
        one = int(draws.choice(model.live_ids_[1:]))
        less = copy.deepcopy(model)
        less.forget([one], digests=False)
        with model.without([one]), ThreadPoolExecutor(2) as pool:
            for _ in range(3):
                if draws.random() < 0.6:
                    place = int(draws.integers(len(rows)))
                    rows[place] = table.X[draws.integers(len(table.X))]
                    rows[place, table.categorical] = draws.integers(0, 7)
                for given, found in zip(asked := [rows, rows[::-1], rows], pool.map(model.predict, asked), strict=True):
                    assert found.tolist() == less.predict(given.copy()).tolist()
        rows[0] = table.X[draws.integers(len(table.X))]
        found = leave_one_out(model, rows, table.y_val, ids=[one], return_predictions=True)
        assert found.predictions is not None
        assert found.predictions[0].tolist() == less.predict(rows.copy()).tolist()


def drawn(seed: int, numeric: bool) -> Table:
    """The first table from a seed on that has such labels, and rows enough."""
    while (table := Table(np.random.default_rng(seed))).numeric != numeric or len(table.live) < 20:
        seed += 1
    return table


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "neg_brier_score", "f1_macro"])
def test_scores_are_those_of_scikit_learn(scoring: str) -> None:
    from sklearn.metrics import get_scorer

    table = drawn(7, False)
    y_val = np.where(np.isin(table.y_val, table.model.classes_), table.y_val, table.model.classes_[0])
    y_val[: len(table.model.classes_)] = table.model.classes_[: len(y_val)]
    found = leave_one_out(table.model, table.X_val, y_val, scoring=scoring)
    scorer = get_scorer(scoring)
    assert found.score == pytest.approx(scorer(table.model, table.X_val, y_val), abs=1e-12)
    for one, value in zip(found.ids.tolist(), found.values.tolist(), strict=True):
        with table.model.without([one]):
            assert value == pytest.approx(found.score - scorer(table.model, table.X_val, y_val), abs=1e-12)


def test_a_loaded_model_and_other_learners_answer_alike(tmp_path: Path) -> None:
    table = drawn(3, False)
    expected = leave_one_out(table.model, table.X_val, table.y_val)
    table.model.save(tmp_path / "state", with_examples=True)
    loaded = load_model(tmp_path / "state")
    found = leave_one_out(loaded, table.X_val, table.y_val)
    assert found.values.tolist() == expected.values.tolist()
    assert loaded.digest() == table.model.digest()
    X, y = np.nan_to_num(table.X), table.y % 2
    tree = raydt.FullyDynamicTreeClassifier().fit(X, y)
    before, told = tree.digest(), leave_one_out(tree, X, y, ids=[3, 5])
    for one, value in zip([3, 5], told.values, strict=True):
        other = copy.deepcopy(tree)
        other.forget([one])
        assert value == pytest.approx(tree.score(X, y) - other.score(X, y), abs=1e-12)
    assert tree.digest() == before
    assert (told.standard.id, expected.standard.id) == ("attribution.forgotten", "attribution.equal")  # type: ignore[attr-defined]


def test_parameters_are_set_outside_of_a_block_whatever_they_were() -> None:
    assert ExactForestClassifier(n_jobs=0).set_params(n_jobs=1).n_jobs == 1


def test_boosting_that_always_trains_again_is_training_without_the_row() -> None:
    draws = np.random.default_rng(5)
    X, y = draws.normal(size=(80, 3)), draws.integers(0, 2, 80)
    options: dict[str, Any] = {"max_iter": 5, "retrain": "always"}
    model = raydt.OnlineGradientBoostingClassifier(**options).fit(X, y)
    found = leave_one_out(model, X, y, ids=range(8), return_predictions="predict_proba")
    assert found.predictions is not None
    for one in range(8):
        rest = np.delete(np.arange(80), one)
        anew = raydt.OnlineGradientBoostingClassifier(**options).fit(X[rest], y[rest], ids=rest)
        assert found.predictions[one].tolist() == anew.predict_proba(X).tolist()


def test_the_digest_is_that_of_the_forest_without_the_rows() -> None:
    table = drawn(11, False)
    model, before = table.model, table.model.digest()
    gone, rest = table.live[5:9], np.delete(table.live, slice(5, 9))
    anew = table.trained(rest)
    with model.without(gone) as less:
        assert less is model
        assert model.digest() == anew.digest()
        assert model.live_ids_.tolist() == rest.tolist()
        assert copy.deepcopy(model).forget([int(rest[0])]).active == len(rest) - 1  # a copy is a model of its own
        with model.without([int(rest[0])]):
            assert len(model.live_ids_) == len(rest) - 1
        assert model.audit().conformance == "holds"
    assert model.digest() == before
    assert model.live_ids_.tolist() == table.live.tolist()


@contextmanager
def refused(id: str, kind: type[Exception]) -> Iterator[None]:
    with pytest.raises(kind) as raised:
        yield
    told = message_of(raised.value)
    assert told is not None
    assert told.id == id


def test_what_is_wrong_is_said_and_nothing_has_changed() -> None:
    table = drawn(11, False)
    model, before = table.model, table.model.digest()
    X, y = table.X_val, table.y_val
    with refused("estimators.refused", UpdateError), model.without([10**6]):
        pass
    for wrong in (
        lambda: model.forget([int(table.live[0])]),
        lambda: model.partial_fit(table.X[:1], table.y[:1]),
        lambda: model.fit(table.X, table.y),
        lambda: model.set_params(random_state=9),
    ):
        with model.without(table.live[:1]), refused("estimators.left_out", UpdateError):
            wrong()
    with refused("attribution.ids_or_subjects", InputError):
        leave_one_out(model, X, y, ids=[4], subjects=[1])
    with refused("estimators.other_labels", InputError):
        leave_one_out(model, X, y[:-1])
    with refused("attribution.scoring", ConfigError):
        leave_one_out(model, X, y, scoring="nonsense")
    with refused("attribution.no_estimator", ConfigError):
        leave_one_out(object(), X, y)  # type: ignore[arg-type]
    with refused("attribution.returned", ConfigError):
        leave_one_out(model, X, y, return_predictions="shares")  # type: ignore[arg-type]
    with refused("estimators.no_subjects", InputError):
        leave_one_out(ExactForestClassifier(n_estimators=2).fit(table.X, table.y), X, y, subjects="all")
    with pytest.raises(ZeroDivisionError), model.without(table.live[:2]):
        raise ZeroDivisionError
    assert model.digest() == before
    assert model.forget([int(table.live[0])]).active == len(table.live) - 1


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as a terminal has it: a shell lets what it starts in the background ignore it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def interrupted(model: Any, gone: Any, before: str, seen: list[bool]) -> None:
    """Note if the digest is that of before: in a block, and in it once Ctrl-C has arrived."""
    with model.without(gone):
        seen.append(model.digest() == before)
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            seen.append(model.digest() == before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_the_block_brings_the_model_back_first() -> None:
    table = drawn(11, False)
    model, before, former = table.model, table.model.digest(), signal.getsignal(signal.SIGINT)
    seen: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(model, table.live[:2], before, seen)
    assert seen == [False, True]
    assert signal.getsignal(signal.SIGINT) is former
    assert model.digest() == before


def test_a_handler_of_ctrl_c_that_returns_lets_the_block_go_on() -> None:
    table = drawn(11, False)
    model, before, former = table.model, table.model.digest(), signal.getsignal(signal.SIGINT)
    noted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    try:
        with model.without(table.live[:2]), model.without(table.live[2:3]):
            without = model.digest()
            signal.raise_signal(signal.SIGINT)
            assert (noted, model.digest()) == ([signal.SIGINT], without)
    finally:
        signal.signal(signal.SIGINT, former)
    assert without != before == model.digest()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_nested_blocks_brings_the_model_and_the_handler_back() -> None:
    table = drawn(11, False)
    model, before, former = table.model, table.model.digest(), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), model.without(table.live[:2]), model.without(table.live[2:3]):
        signal.raise_signal(signal.SIGINT)
    assert model.digest() == before
    assert signal.getsignal(signal.SIGINT) is former


def test_blocks_end_in_any_order() -> None:
    table = drawn(11, False)
    model, before, former = table.model, table.model.digest(), signal.getsignal(signal.SIGINT)
    for order in itertools.permutations(range(3)):
        blocks = [model.without(one) for one in table.live[:3]]
        for block in blocks:
            block.__enter__()
        for number in order:
            assert model.digest() != before
            blocks[number].__exit__(None, None, None)
        assert model.digest() == before
        assert signal.getsignal(signal.SIGINT) is former


def test_a_block_is_entered_once() -> None:
    table = drawn(11, False)
    model, before, block = table.model, table.model.digest(), table.model.without([])
    with pytest.raises(AttributeError), block, block:  # as the contexts of contextlib
        pass
    with pytest.raises(AttributeError), block:
        pass
    assert model.digest() == before
    model.forget(table.live[0])
    assert model.digest() != before


# -- folds ------------------------------------------------------------------------------------------------------------


@examples(600, least=20, deadline=None)
@given(st.integers(0, 2**32))
def test_scores_of_folds_are_those_of_scikit_learn(seed: int) -> None:
    from sklearn.model_selection import (
        GroupKFold,
        KFold,
        LeaveOneOut,
        PredefinedSplit,
        ShuffleSplit,
        TimeSeriesSplit,
        check_cv,
        cross_val_score,
    )

    table = Table(np.random.default_rng(seed))
    draws, model = table.draws, table.model
    rows, whose = model.live_ids_, None  # in the order of the folds
    of_headers = np.where(rows < table.header, -1, draws.integers(0, 3, len(rows)))
    splitters = [PredefinedSplit(of_headers)]
    if not table.categorical:  # else a training without a header has other codes
        splitters += [KFold(4), LeaveOneOut(), ShuffleSplit(3, random_state=seed % 9), TimeSeriesSplit(3), 3]
        splitters += [GroupKFold(2)] if len(set(table.subjects[rows].tolist())) > 1 else []
    cv = splitters[int(draws.integers(len(splitters)))]
    if cv == 3 and not table.numeric and np.unique(table.y[rows], return_counts=True)[1].max() < 3:
        cv = KFold(3)  # folds of each class need as many examples
    if isinstance(cv, GroupKFold):
        whose = table.subjects[rows]
    scoring = [None, "neg_mean_absolute_error" if table.numeric else "balanced_accuracy"][int(draws.integers(2))]
    before, beside = model.digest(), table.beside(rows)
    beside.pop("subjects")
    with crew(int(draws.choice(NUMBERS))), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of classes that a fold lacks
        if beside.get("sample_weight") is not None and not all(
            beside["sample_weight"][train].any()
            for train, _ in check_cv(cv, table.y[rows], classifier=not table.numeric).split(rows, table.y[rows], whose)
        ):
            return  # no training has only weights of 0
        found = cross_val_score_by_deletion(
            model, cv, groups=None if whose is None else "subjects", scoring=scoring
        )  # fmt: skip
        kind = ExactForestRegressor if table.numeric else ExactForestClassifier
        X, y = table.X[rows], table.y[rows]
        expected = cross_val_score(kind(**table.options), X, y, cv=cv, groups=whose, scoring=scoring, params=beside)
    assert np.array_equal(found, expected, equal_nan=True), cv
    assert model.digest() == before


# -- labels -----------------------------------------------------------------------------------------------------------


def suspects(y: list[int], shares: list[list[float]]) -> list[bool]:
    """The labels that confident learning takes for wrong, in plain loops."""
    least = {}
    for label in set(y):
        own = [row[label] for row, own_label in zip(shares, y, strict=True) if own_label == label]
        least[label] = sum(own) / len(own)
    found = []
    for row, own_label in zip(shares, y, strict=True):
        likely = [(-row[label], label) for label in least if row[label] >= least[label]]
        found.append(bool(likely) and min(likely)[1] != own_label)
    return found


@examples(600, least=20, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([None, "subjects", "folds"]))
def test_the_quality_of_a_label_is_by_training_without_its_row(seed: int, groups: str | None) -> None:
    """Or without all rows of its subject, or of its fold."""
    table = Table(np.random.default_rng(seed))
    model, live, before = table.model, table.live, table.model.digest()
    fold = np.arange(len(live))
    if groups == "subjects":
        fold = table.subjects[live]
    elif groups == "folds":
        fold = np.sort(table.draws.integers(0, 3, len(live)))
    if groups == "folds":
        cv = [(np.flatnonzero(fold != one), np.flatnonzero(fold == one)) for one in np.unique(fold)[::-1]]
        found = label_quality(model, cv)
    else:
        with crew(int(table.draws.choice(NUMBERS))):
            found = label_quality(model, groups=groups)
    assert model.digest() == before
    order = model.live_ids_.tolist()
    assert found.ids.tolist() == order
    fold, y = fold[np.searchsorted(live, order)] if groups == "subjects" else fold, table.y[order]
    codes = None if table.numeric else [model.classes_.tolist().index(one) for one in y.tolist()]
    for place, one in enumerate(order):
        with model.without(np.array(order)[fold == fold[place]]):
            assert found.predicted[place] == model.predict(table.X[[one]])[0]
            if codes is not None:
                share = model.predict_proba(table.X[[one]])[0]
                assert found.shares[place].tolist() == share.tolist()
                assert found.quality[place] == share[codes[place]]
    if codes is None:
        far = np.abs(y - found.predicted)
        middle = sorted(far.tolist())
        median = (middle[len(far) // 2] + middle[(len(far) - 1) // 2]) / 2
        assert found.suspect.tolist() == [r > 3 * 1.4826 * median for r in far.tolist()]
        assert found.quality.tolist() == pytest.approx([median / (median + r) if r else 1.0 for r in far.tolist()])
    else:
        assert found.suspect.tolist() == suspects(codes, found.shares.tolist())


def test_wrong_labels_have_a_low_quality() -> None:
    draws = np.random.default_rng(4)
    X = draws.normal(size=(200, 3))
    right = (X[:, 0] > 0).astype(int)
    wrong = draws.choice(200, 20, replace=False)
    y = right.copy()
    y[wrong] = 1 - y[wrong]
    found = label_quality(ExactForestClassifier(n_estimators=30).fit(X, y))
    assert np.isin(np.argsort(found.quality)[:20], wrong).sum() >= 16
    assert found.standard.id == "attribution.equal"  # type: ignore[attr-defined]
    model = ExactForestRegressor(n_estimators=30).fit(X, np.where(np.isin(np.arange(200), wrong), 9.0, X[:, 0]))
    assert set(np.flatnonzero(label_quality(model).suspect).tolist()) >= set(wrong.tolist())
    with refused("attribution.cv", ConfigError):
        label_quality(model, groups=[0, 1])
    with refused("attribution.no_partition", ConfigError):
        label_quality(model, [([0, 1], [2, 3])])


# -- intervals --------------------------------------------------------------------------------------------------------


def expected_intervals(without: list[list[float]], errors: list[float], alpha: str) -> list[list[float]]:
    """The ends of the jackknife+, in plain fractions: ``without`` has the predictions of each row without example i."""
    n, share = len(errors), Fraction(alpha)
    low, high = math.floor(share * (n + 1)), math.ceil((1 - share) * (n + 1))
    found = []
    for row in range(len(without[0])):
        lower = sorted(own[row] - error for own, error in zip(without, errors, strict=True))
        upper = sorted(own[row] + error for own, error in zip(without, errors, strict=True))
        found.append([lower[low - 1] if low else -math.inf, upper[high - 1] if high <= n else math.inf])
    return found


@examples(300, least=6, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["0.1", "0.5", "0.03", "0.9"]), st.sampled_from([None, 2, 3]))
def test_intervals_are_those_of_training_without_each_example(seed: int, alpha: str, cv: int | None) -> None:
    """Or of training without each fold, which is a block of the order of birth."""
    draws = np.random.default_rng(seed)
    n = int(draws.integers(3, 90))
    X = draws.integers(0, 5, (n, 2)) + draws.choice([0.0, 0.5], (n, 2))
    y = X[:, 0] * 2.0 + draws.normal(size=n)
    options = {"n_estimators": 5, "min_samples_split": int(draws.integers(2, 6)), "random_state": seed % 7}
    model = JackknifePlusRegressor(ExactForestRegressor(**options), cv=cv).fit(X[: n // 2], y[: n // 2])
    if cv is None or n // 2 >= cv:
        model.predict_interval(X[:2])
    model.partial_fit(X[n // 2 :], y[n // 2 :])
    gone = draws.integers(0, n, n // 5)
    if len(gone):
        model.forget(gone)
    live, X_new = np.setdiff1d(np.arange(n), gone), draws.normal(2.0, 2.0, (4, 2))
    without, errors = [], []
    for fold in np.array_split(live, len(live) if cv is None else cv):
        rest = np.setdiff1d(live, fold)
        if not len(rest):
            return
        anew = ExactForestRegressor(**options).fit(X[rest], y[rest], ids=rest)
        for one in fold.tolist():
            without.append(anew.predict(X_new).tolist())
            errors.append(abs(float(y[one] - anew.predict(X[[one]])[0])))
    if cv is not None and len(live) < cv:
        with refused("attribution.cv", ConfigError):
            model.predict_interval(X_new, float(alpha))
        return
    assert model.predict_interval(X_new, float(alpha)).tolist() == expected_intervals(without, errors, alpha)
    assert model.guarantee_.id == ("attribution.jackknife_plus" if cv is None else "attribution.cv_plus")


@examples(300, least=6, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["0.1", "0.5", "0.2", "0.9"]))
def test_intervals_of_persons_are_those_of_training_without_each_person(seed: int, alpha: str) -> None:
    """Whose rows share the weight of one, with weights of rows, after a person and some rows have gone."""
    draws = np.random.default_rng(seed)
    n, persons = int(draws.integers(4, 60)), int(draws.integers(3, 14))
    X = draws.integers(0, 5, (n, 2)) + draws.choice([0.0, 0.5], (n, 2))
    y, whose = X[:, 0] * 2.0 + draws.normal(size=n), draws.integers(0, persons, n)
    weight = draws.choice([0.5, 1.0, 2.0], n) if seed % 2 else np.ones(n)
    options = {"n_estimators": 4, "min_samples_split": int(draws.integers(2, 6)), "random_state": seed % 7}
    part, rest = slice(n // 2), slice(n // 2, n)
    model = JackknifePlusRegressor(ExactForestRegressor(**options))
    for some in (part, rest):
        model.partial_fit(X[some], y[some], subjects=whose[some], sample_weight=weight[some])
    assert model.guarantee_.id == "attribution.jackknife_plus_subjects"
    live = np.arange(n)
    if seed % 3 and len(set(whose.tolist())) > 2:
        model.forget(subjects=whose[:1])
        live = live[whose != whose[0]]
    model.forget(live[:1])
    live, X_new = live[1:], draws.normal(2.0, 2.0, (4, 2))
    without: list[Any] = [None] * len(live)
    errors = [0.0] * len(live)
    for person in set(whose[live].tolist()):
        kept = live[whose[live] != person]
        if not len(kept):
            return
        beside = {"subjects": whose[kept], "sample_weight": weight[kept]}
        anew = ExactForestRegressor(**options).fit(X[kept], y[kept], ids=kept, **beside)
        for place in np.flatnonzero(whose[live] == person).tolist():
            without[place] = anew.predict(X_new).tolist()
            errors[place] = abs(float(y[live[place]] - anew.predict(X[[live[place]]])[0]))
    before = model.estimator_.digest()
    found = model.predict_interval(X_new, float(alpha)).tolist()
    assert found == intervals.ends_of(without, errors, whose[live].tolist(), alpha)
    assert model.estimator_.digest() == before
    rows = [*range(len(live))]
    assert expected_intervals(without, errors, alpha) == intervals.ends_of(without, errors, rows, alpha)


def test_quantiles_of_persons_are_exact_for_any_numbers_of_rows() -> None:
    """Also where the whole numbers that weigh rows alike do not fit in 64 bits."""
    draws = np.random.default_rng(4)
    for most in (1, 2, 3, 60):
        sizes = np.arange(1, most + 1) if most > 3 else draws.integers(1, most + 1, 12)
        persons = np.repeat(np.arange(len(sizes)), sizes)
        order = draws.permutation(len(persons))
        n, whose, rows = len(persons), persons[order].tolist(), np.repeat(sizes, sizes)[order]
        without, errors = draws.integers(0, 9, (n, 3)).astype(float), draws.integers(0, 4, n).astype(float)
        for alpha in ("0.05", "0.1", "0.25", "0.5"):
            found = interval(without, errors, float(alpha), rows)
            assert found.tolist() == intervals.ends_of(without.tolist(), errors.tolist(), whose, alpha)


def test_intervals_of_persons_hold_the_promised_share_where_those_of_rows_do_not() -> None:
    """60 tables of 12 persons with 4 rows each, whose labels have most of their spread from person to person."""
    from sklearn.model_selection import LeaveOneOut

    alpha, persons, each = 0.2, 12, 4
    held: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(60):
        draws = np.random.default_rng(seed)
        whose = np.repeat(np.arange(persons + 40), each)
        own = draws.normal(size=persons + 40)
        X = np.stack([own[whose], draws.normal(size=len(whose))], axis=1)
        y = 3 * draws.normal(size=persons + 40)[whose] + 0.3 * draws.normal(size=len(whose))
        n = persons * each
        for by_row in held:
            forest = ExactForestRegressor(n_estimators=10, min_samples_split=2)
            model = JackknifePlusRegressor(forest, LeaveOneOut() if by_row else None)
            model.fit(X[:n], y[:n], subjects=whose[:n])
            low, high = model.predict_interval(X[n:], alpha).T
            held[by_row].append(((low <= y[n:]) & (y[n:] <= high)).mean())
    assert 1 - 2 * alpha <= np.mean(held[False])
    assert abs(np.mean(held[False]) - (1 - alpha)) < 0.08
    assert np.mean(held[True]) < 1 - 2 * alpha


@pytest.mark.parametrize("cv", [None, 5])
def test_intervals_hold_the_share_of_labels_that_the_theorem_promises(cv: int | None) -> None:
    """Of 60 tables of 40 examples with heavy tails, and 50 new rows of each."""
    alpha, n, held = 0.2, 40, []
    for seed in range(60):
        draws = np.random.default_rng(seed)
        X = draws.normal(size=(n + 50, 3))
        y = X[:, 0] * 2.0 + np.abs(X[:, 1]) * draws.standard_t(2, n + 50)
        model = JackknifePlusRegressor(ExactForestRegressor(n_estimators=10, min_samples_split=4), cv).fit(X[:n], y[:n])
        low, high = model.predict_interval(X[n:], alpha).T
        held.append(((low <= y[n:]) & (y[n:] <= high)).mean())
    share, folds = float(np.mean(held)), n if cv is None else cv
    less = min(2 * (1 - 1 / folds) / (n / folds + 1), (1 - folds / n) / (folds + 1))  # theorem 4; 0 of n folds
    assert 1 - 2 * alpha - less <= share
    assert abs(share - (1 - alpha)) < 0.04  # as in most data


def test_folds_that_are_none_are_refused() -> None:
    from sklearn.model_selection import ShuffleSplit, TimeSeriesSplit

    X = np.arange(24.0).reshape(12, 2)
    y = X[:, 0]
    for cv in (ShuffleSplit(3, random_state=0), TimeSeriesSplit(3), [([0, 1], [2, 3])]):
        model = JackknifePlusRegressor(ExactForestRegressor(n_estimators=3), cv).fit(X, y)
        with refused("attribution.no_partition", ConfigError):
            model.predict_interval(X)
    for cv in (13, "5", [([0], [12])]):
        with refused("attribution.cv", ConfigError):
            cross_val_score_by_deletion(model.estimator_, cv)
    with refused("attribution.repeated", ConfigError):
        cross_val_score_by_deletion(model.estimator_, [([0, 0], [1])])
    with refused("attribution.groups", ConfigError):
        cross_val_score_by_deletion(model.estimator_, 3, groups="persons")
    with refused("estimators.no_subjects", InputError):
        cross_val_score_by_deletion(model.estimator_, 3, groups="subjects")
    tree = raydt.FullyDynamicTreeRegressor(min_samples_split=4).fit(X, y)
    before, other = tree.digest(), copy.deepcopy(tree)
    other.forget(range(6))
    assert cross_val_score_by_deletion(tree, 2)[0] == other.score(X[:6], y[:6])
    assert tree.digest() == before


def test_intervals_of_other_learners_are_those_after_forget() -> None:
    draws = np.random.default_rng(2)
    X = draws.normal(size=(40, 2))
    y = X[:, 0] + 0.1 * draws.normal(size=40)
    model = JackknifePlusRegressor(raydt.FullyDynamicTreeRegressor(min_samples_split=4)).fit(X, y)
    without, errors = [], []
    for one in range(40):
        other = copy.deepcopy(model.estimator_)
        other.forget([one])
        without.append(other.predict(X[:3]).tolist())
        errors.append(abs(float(y[one] - other.predict(X[[one]])[0])))
    assert model.predict_interval(X[:3], 0.2).tolist() == expected_intervals(without, errors, "0.2")
    assert model.guarantee_.id == "attribution.heuristic"
    for alpha in (0.0, math.nan, "0.1"):
        with refused("attribution.alpha", InputError):
            model.predict_interval(X, alpha)  # type: ignore[arg-type]
    with refused("attribution.no_regressor", ConfigError):
        JackknifePlusRegressor(ExactForestClassifier()).fit(X, y)
    few = JackknifePlusRegressor(ExactForestRegressor(n_estimators=3)).fit(X[:5], y[:5])
    assert np.isinf(few.predict_interval(X[:1], 0.1)).all()
