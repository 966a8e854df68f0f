"""The adapters for river: each is the model of its estimator, one example at a time."""

from __future__ import annotations

import inspect
import random
from typing import Any

import pandas as pd
import pytest

import raydt
from raydt.errors import InputError, UpdateError
from raydt.estimators.river import RiverClassifier
from raydt.examples.updates import CLASSES, Reading
from raydt.learners import learners
from tests.small_tables import derived, examples

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ADAPTERS = [each for each in PUBLIC if isinstance(each, type) and issubclass(each, RiverClassifier)]
#: Options with which much happens in few updates.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "confidence_tree": [
        {"grace_period": 5, "c": 0.01, "leaf_prediction": leaves, "drift_period": drift}
        for leaves, drift in (
            ("majority", 0),
            ("naive_bayes", 0),
            ("adaptive_normal", 0),
            ("adaptive_inherited", 0),
            ("adaptive", 15),
        )
    ],
    "forest": [
        {"n_estimators": 4, "sample_share": 0.5, "thresholds": 2, "min_samples_split": 2, "rebuild": rebuild}
        for rebuild in ("eager", "lazy")
    ],
    "gbdt": [{"max_iter": 4, "max_leaf_nodes": 4, "update_every": 1}],
    "fudyadt": [{"epsilon": 0.3, "alpha": 0.0, "beta": 0.0, "max_depth": 6, "smoothing": smooth} for smooth in (0, 5)],
}


def rows_of(n: int, reading: Reading) -> tuple[list[dict[str, Any]], list[str]]:
    """Examples as dictionaries, one of the smaller label first, so that codes of labels are the same for both."""
    rows = [{**derived(row), **row} for row in examples(n, 4)]
    rows.insert(0, rows.pop(next(i for i, row in enumerate(rows) if row["y"] == "x" and row["b"])))
    a, d = ("a_or_null", "d_or_null") if reading.missing else ("a", "d")
    of = dict(zip("pqr", range(3), strict=True)) if reading.by_value else {}  # text has other numbers in a frame
    xs = [{"d": of.get(row[d], row[d]), "a": row[a], "b": row["b"]} for row in rows]
    return xs, [row["y"] for row in rows]


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("adapter", "options"),
    [
        pytest.param(adapter, options, marks=[] if options is every[-1] else pytest.mark.nightly)
        for adapter in ADAPTERS
        for every in [OPTIONS[adapter.estimator.kind]]
        for options in every
    ],
    ids=lambda value: getattr(value, "__name__", "") or str(value),
)
def test_it_is_the_model_of_the_estimator(adapter: Any, options: dict[str, Any]) -> None:
    """Learned, predicted and forgotten one by one, with every value that may be missing."""
    ones = adapter(**options)
    names = inspect.signature(adapter).parameters.keys() - {"categorical_features", "update_every"}
    other = adapter.estimator(**{name: getattr(ones, name) for name in names})
    xs, ys = rows_of(120, learners()[adapter.estimator.kind].traits(ones._options()).reading)
    frame = pd.DataFrame(xs)[["a", "b", "d"]]
    begun = 1
    draw = random.Random(adapter.__name__)
    kept: list[int] = []
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        ones.learn_one(x, y)
        kept.append(i)
        begun = getattr(ones, "_first", 0) or begun  # the first examples make the bins at once
        if i + 1 == begun:
            other.partial_fit(frame[:begun], ys[:begun], ids=range(begun), classes=["x", "y"])
        elif i >= begun:
            other.partial_fit(frame[i : i + 1], [y], ids=[i])
        if i >= begun and draw.random() < (0.2 if i < 70 else 0.8):
            gone = draw.choice(kept)
            ones.forget_one(xs[gone], ys[gone])
            (oldest,) = other.forget_examples(frame[gone : gone + 1], [ys[gone]]).deletions["id"].tolist()
            kept.remove(oldest)
        if i % 30 == 29 and i >= begun:
            assert ones._session.digest() == other.digest(), i
            shares = other.predict_proba(frame)
            for row, share in zip(xs, shares.tolist(), strict=True):
                assert ones.predict_proba_one(row) == dict(zip(ones._labels, share, strict=False))
            predicted = [ones.predict_one(row) for row in xs]
            assert predicted == [max(zip("xy", share, strict=True), key=lambda pair: pair[1])[0] for share in shares]
    assert len(kept) < 80
    assert ones._session.statistics()["nodes"] > 4
    report = ones.audit()
    assert (report.conformance, report.checked["live"]) == ("holds", len(kept))
    assert report.feasibility == ("proven" if ones._options().promise().promised else "not_promised")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_refused_example_changes_nothing(adapter: Any) -> None:
    ones = adapter()
    assert (ones.predict_one({"a": 1}), ones.predict_proba_one({"a": 1})) == (None, {})
    xs, ys = rows_of(60, CLASSES)
    for x, y in zip(xs, ys, strict=True):
        ones.learn_one(x, y)
    before = ones._session.digest()
    with pytest.raises(UpdateError):
        ones.forget_one({**xs[0], "a": 77.0}, ys[0])
    for bad in ({"a": 1.0}, {**xs[0], "more": 1}, {**xs[0], "a": float("inf")}, {**xs[0], "a": "text"}):
        for call in (ones.learn_one, ones.forget_one):
            with pytest.raises(InputError):
                call(bad, ys[0])
    assert ones._session.digest() == before
