"""Weights of the classification tree FuDyADT and of the exact forest, through their estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raydt
from raydt import (
    ConfidenceTreeClassifier,
    ExactForestClassifier,
    ExactForestRegressor,
    FullyDynamicTreeClassifier,
    FullyDynamicTreeRegressor,
)
from raydt.errors import InputError
from raydt.examples.store import ExampleStore
from raydt.examples.updates import INSERT, UNIT, fixed
from tests.refusals import refused

#: Sums of weights in models, in units if there is one.
SUMS = ("counts", "s", "c", "gone", "totals")
#: What weights do not scale.
TREES = ("tree_nodes", "feature", "threshold", "left", "right", "exponent")
SHAPE = ("feature", "threshold", "left", "right", "missing", "m0")


def rows(n: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features with ties and holes, labels that follow them with noise, and small whole weights."""
    draws = np.random.default_rng(n)
    X = draws.integers(0, 6, (n, 3)).astype(float)
    y = ((X[:, 0] > 2).astype(int) + (draws.random(n) < 0.2)) % classes
    X[draws.random(X.shape) < 0.1] = np.nan
    w = draws.integers(1, 4, n)
    y[:classes], w[:classes] = np.arange(classes), 2  # classes appear in their order, whatever is left out
    return X, y, w


def in_rows(model: dict[str, np.ndarray]) -> dict[str, list[Any]]:
    """A model in rows of weight 1, without the times of its builds."""
    unit = int(model["unit"][0]) if "unit" in model else 1
    found = {name: array // unit if name in SUMS else array for name, array in model.items()}
    return {name: found[name].tolist() for name in sorted(found.keys() - {"unit", "built"})}


def forest(**options: Any) -> ExactForestClassifier:
    return ExactForestClassifier(n_estimators=5, min_samples_split=2, **options)


def number_tree(**options: Any) -> FullyDynamicTreeRegressor:
    return FullyDynamicTreeRegressor(n_jobs=1, **options)


def number_forest(**options: Any) -> ExactForestRegressor:
    return ExactForestRegressor(n_estimators=5, min_samples_split=2, **options)


def tree(**options: Any) -> FullyDynamicTreeClassifier:
    return FullyDynamicTreeClassifier(**options)


@pytest.mark.parametrize("new", [tree, forest, ConfidenceTreeClassifier])
def test_a_digest_that_is_kept_up_knows_when_all_counts_become_masses(new: Any) -> None:
    """Nodes that no update has reached count units, too."""
    X, y, w = rows(90)
    kept, made = new().fit(X[:80], y[:80]), new().fit(X[:80], y[:80])
    kept.digest()
    for model in (kept, made):
        model.partial_fit(X[80:], y[80:], sample_weight=w[80:])
    assert kept.digest() == made.digest()


@pytest.mark.parametrize("new", [tree, forest])
def test_balanced_classes_are_weights_that_stay_as_they_were_found(new: Any) -> None:
    X, y, w = rows(90)
    sums = np.bincount(y[:60], w[:60])
    factors = np.rint(UNIT * sums.sum() / (2 * sums)) / UNIT
    own, given = new(class_weight="balanced"), new()
    own.fit(X[:60], y[:60], sample_weight=w[:60])
    given.fit(X[:60], y[:60], sample_weight=(w * factors[y])[:60])
    for model, weights in ((own, w), (given, w * factors[y])):
        model.forget(model.row_ids_[5:25])
        model.partial_fit(X[60:], y[60:], sample_weight=weights[60:])
        assert model.audit().ok
    assert in_rows(own.session_.model()) == in_rows(given.session_.model())
    assert own.predict_proba(X).tolist() == given.predict_proba(X).tolist()


def test_whole_weights_equal_repeated_rows_where_every_tree_has_all() -> None:
    X, y, w = rows(80, 3)
    copies = np.repeat(np.arange(len(X)), w)
    own, repeated = forest(sample_share=1.0), forest(sample_share=1.0)
    own.fit(X, y, sample_weight=w)
    repeated.fit(X[copies], y[copies])
    gone = np.arange(10, 40)
    own.forget(gone)
    repeated.forget(np.flatnonzero(np.isin(copies, gone)))
    assert in_rows(own.session_.model()) == in_rows(repeated.session_.model())
    assert own.predict_proba(X).tolist() == repeated.predict_proba(X).tolist()


def test_a_forest_whose_last_other_weight_is_gone_is_one_that_never_had_any() -> None:
    X, y, w = rows(60)
    own, never = forest(), forest()
    own.fit(X, y, sample_weight=np.where(w == 3, 0.25, 1.0))
    own.forget(np.flatnonzero(w == 3))
    never.fit(X[w < 3], y[w < 3], ids=np.flatnonzero(w < 3))
    assert own.digest() == never.digest()
    assert "unit" not in own.session_.model()


@pytest.mark.parametrize("new", [tree, forest])
def test_the_heaviest_rows_are_counted_exactly(new: Any) -> None:
    """More than 2^43 units: shares, and votes of a forest, are those of rows of weight 1."""
    X, y, _ = rows(2100)
    heavy, light = (new().fit(X, y, sample_weight=weight) for weight in (65535, 1))
    names = {"feature", "threshold", "left", "right"}
    first, second = (one.session_.model() for one in (heavy, light))
    assert {name: first[name].tolist() for name in names} == {name: second[name].tolist() for name in names}
    if new is forest:
        assert heavy.predict_proba(X).tolist() == light.predict_proba(X).tolist()
    assert heavy.audit().ok


def test_a_row_of_weight_0_is_predicted_and_deleted_but_counts_nothing() -> None:
    X, y, w = rows(60)
    for new in (tree, forest):
        own, without = new(), new()
        own.fit(X, y, sample_weight=w - 1)
        without.fit(X[w > 1], y[w > 1], sample_weight=(w - 1)[w > 1], ids=np.flatnonzero(w > 1))
        assert in_rows(own.session_.model()) == in_rows(without.session_.model())
        receipt = own.forget(np.flatnonzero(w == 1))
        assert receipt.active == np.count_nonzero(w > 1)
        assert own.digest() == without.digest()
        assert own.audit().ok


def test_whole_weights_of_numbers_equal_repeated_rows() -> None:
    X, _, w = rows(120)
    y, copies = X[:, 0] * 1.7 - np.nan_to_num(X[:, 1]), np.repeat(np.arange(len(X)), w)
    y = np.nan_to_num(y)
    own = number_tree().fit(X, y, sample_weight=w)
    repeated = number_tree().fit(X[copies], y[copies])
    assert own.predict(X).tolist() == repeated.predict(X).tolist()
    model, other = (one.session_.model() for one in (own, repeated))
    assert {name: model[name].tolist() for name in SHAPE} == {name: other[name].tolist() for name in SHAPE}
    sums, whole, rest = model["sums"].T
    assert np.stack([sums // UNIT, whole], axis=1).tolist() == other["sums"].tolist()
    assert not rest.any()
    assert own.explain(X[:3]).values.tolist() == repeated.explain(X[:3]).values.tolist()


def test_whole_weights_of_numbers_equal_repeated_rows_in_forests() -> None:
    X, _, w = rows(120)
    y = np.nan_to_num(X[:, 0] * 1.7 - X[:, 1])
    for offset in (0.0, 1.7e9):  # sums in one word, and in two
        copies = np.repeat(np.arange(len(X)), w)
        own, repeated = number_forest(sample_share=1.0), number_forest(sample_share=1.0)
        own.fit(X, y + offset, sample_weight=w)
        repeated.fit(X[copies], y[copies] + offset)
        assert own.explain(X[:3]).values.tolist() == repeated.explain(X[:3]).values.tolist()
        gone = np.arange(10, 40)
        own.forget(gone)
        repeated.forget(np.flatnonzero(np.isin(copies, gone)))
        assert same_sums(own, repeated)
        assert own.predict(X).tolist() == repeated.predict(X).tolist()
        assert own.feature_importances_.tolist() == repeated.feature_importances_.tolist()
        assert own.audit().failures == []


def same_sums(own: ExactForestRegressor, repeated: ExactForestRegressor) -> bool:
    """Whether two forests have the same trees, with sums of numbers of whole weights and of rows."""
    model, other = (one.session_.model() for one in (own, repeated))
    assert {name: model[name].tolist() for name in TREES} == {name: other[name].tolist() for name in TREES}
    sums = model["totals"].astype(object) / UNIT
    total = sums[:, 1] if sums.shape[1] == 2 else sums[:, 1] * 2**20 + sums[:, 2]
    return bool((np.stack([sums[:, 0], total], axis=1) == other["totals"][:, :2]).all())


def test_a_forest_of_numbers_whose_last_other_weight_is_gone_is_one_that_never_had_any() -> None:
    """Also one whose first weights come late; rows of weight 0 do not move the scale of labels."""
    X, _, w = rows(60)
    for offset in (0.0, 1.7e9):
        y = np.nan_to_num(X[:, 0] / 3) + offset
        own, never = number_forest(), number_forest()
        own.fit(X[w < 3], y[w < 3], ids=np.flatnonzero(w < 3))
        digest, model = own.digest(), own.session_.model()
        own.partial_fit(X[w == 3], 1e3 * y[w == 3], sample_weight=np.zeros((w == 3).sum()), ids=np.flatnonzero(w == 3))
        assert own.predict(X).tolist() == never.fit(X[w < 3], y[w < 3], ids=np.flatnonzero(w < 3)).predict(X).tolist()
        own.forget(np.flatnonzero(w == 3))
        own.partial_fit(X[w == 3], 1e3 * y[w == 3], sample_weight=w[w == 3] / 7, ids=np.flatnonzero(w == 3))
        assert "unit" in own.session_.model()
        assert own.audit().failures == []
        own.forget(np.flatnonzero(w == 3))
        assert own.digest() == digest == never.digest()
        assert {k: v.tolist() for k, v in own.session_.model().items()} == {k: v.tolist() for k, v in model.items()}


@pytest.mark.parametrize("number_tree", [number_tree, number_forest])
def test_weights_of_numbers_that_are_updated_saved_and_audited(number_tree: Any, tmp_path: Path) -> None:
    X, _, w = rows(120)
    y, w = np.nan_to_num(X[:, 0] * 1.7), w / 3
    model = number_tree().fit(X[:60], y[:60])
    model.partial_fit(X[60:90], y[60:90], sample_weight=w[60:90])
    model.replace_examples(range(20), X[90:110], y[90:110], sample_weight=w[90:110])
    model.forget([25, 70])
    assert model.audit().failures == []
    model.save(tmp_path / "model", with_examples=True)
    again = raydt.load_model(tmp_path / "model")
    for one in (model, again):
        one.partial_fit(X[110:], y[110:])
        assert one.audit().failures == []
    assert again.digest() == model.digest()
    assert again.predict(X).tolist() == model.predict(X).tolist()
    ones = number_tree().fit(X, y, sample_weight=np.ones(len(X)))
    assert ones.digest() == number_tree().fit(X, y).digest()


def test_weights_of_numbers_may_add_up_to_as_much_as_there_may_be_rows() -> None:
    """Of the heaviest rows, half at either end of the range, sums are exact; one row more is refused."""
    X, y = np.arange(256.0)[:, None], np.tile([0.0, 65536.0], 128)
    y[:6] = 1.0
    model = number_tree(label_range=(0.0, 65536.0)).fit(X, y, sample_weight=np.full(256, 65535.0))
    total, whole, rest = model.session_.model()["sums"][0].tolist()
    weight = 65535 * UNIT
    assert total == weight * int(y.sum())
    assert whole * UNIT + rest == weight * int((y * y).sum())
    assert model.audit().failures == []
    before = model.digest()
    with refused("examples.heavy", InputError, most=2**24):
        model.partial_fit(X[:1], y[:1], sample_weight=[257.0])
    assert model.digest() == before
    light = number_tree(label_range=(0.0, 65536.0)).fit(X, y)
    assert light.predict(X).tolist() == model.predict(X).tolist()


def test_weights_of_a_forest_of_numbers_may_add_up_to_as_much_as_there_may_be_rows() -> None:
    X, y = np.arange(32.0)[:, None], np.tile([-1.0, 1.0], 16)
    for offset in (0.0, 1.7e9):
        model = number_forest().fit(X, y + offset, sample_weight=np.full(32, 65535.0))
        assert model.audit().failures == []
        before = model.digest()
        with refused("examples.heavy", InputError, most=2**21):
            model.partial_fit(X[:1], y[:1], sample_weight=[33.0])
        assert model.digest() == before
        assert model.predict(X).tolist() == number_forest().fit(X, y + offset).predict(X).tolist()


def test_a_tree_whose_last_other_weight_is_gone_goes_on_after_a_restore(tmp_path: Path) -> None:
    """It still counts in units, though its state has no weights of rows."""
    X, y, w = rows(90)
    model = tree().fit(X[:60], y[:60], sample_weight=np.where(np.arange(60) < 5, w[:60] + 1, 1))
    model.forget(model.row_ids_[:5])
    model.save(tmp_path / "model", with_examples=True)
    again = raydt.load_model(tmp_path / "model")
    for one in (model, again):
        one.partial_fit(X[60:], y[60:])
        one.forget(range(5, 20))
        assert one.audit().ok
    assert again.digest() == model.digest()


def test_without_memory_for_weights_nothing_of_a_batch_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, w = rows(90)
    model = tree().fit(X[:60], y[:60])
    before, session = model.digest(), model.session_

    def fails(store: ExampleStore) -> None:
        raise MemoryError

    monkeypatch.setattr(ExampleStore, "weigh", fails)
    op, weight = np.full(30, INSERT, dtype=np.int8), fixed(w[60:].astype(np.float64))
    batch = model._next_batch(op, np.arange(60, 90), X[60:], y[60:].astype(np.int32), None, weight=weight)
    with pytest.raises(MemoryError):
        session.apply(batch)
    assert session.whole
    assert model.digest() == before
