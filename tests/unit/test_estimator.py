"""FullyDynamicTreeClassifier: ids, bad calls, frames, saving. The contract of all learners is in the nets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

from raydt import FullyDynamicTreeClassifier, load_model
from raydt.errors import ConfigError, InputError, ModelFileError
from raydt.messages import message
from tests.refusals import refused, warned

RNG = np.random.default_rng(4)
X = np.round(RNG.normal(size=(300, 4)), 1)
Y = (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 1)


def test_calls_may_be_cut_anyhow() -> None:
    whole = FullyDynamicTreeClassifier(epsilon=0.3).partial_fit(X, Y, [0, 1, 2])
    parts = FullyDynamicTreeClassifier(epsilon=0.3)
    for begin in range(0, 300, 7):
        parts.partial_fit(X[begin : begin + 7], Y[begin : begin + 7], [0, 1, 2])
    assert whole.digest() == parts.digest()
    assert (whole.row_ids_ == np.arange(300)).all()
    assert (parts.row_ids_ == np.arange(294, 300)).all()


def test_fit_builds_at_once_and_forgets_what_was() -> None:
    tree = FullyDynamicTreeClassifier(alpha=0.01, beta=0.01, smoothing=0.0).partial_fit(X, Y).fit(X, Y)
    assert tree.session_.statistics()["active"] == 300
    assert tree.session_.statistics()["rebuilds"] == 1
    assert tree.score(X, Y) > 0.95
    assert clone(tree).get_params() == tree.get_params()


def test_forget_gives_a_receipt_and_leaves_no_count() -> None:
    tree = FullyDynamicTreeClassifier().partial_fit(X, Y, ids=np.arange(1000, 1300))
    receipt = tree.forget([1000, 1299, 1004])
    assert receipt.active == 297
    assert receipt.digest_before != receipt.digest_after == tree.digest()
    state, groups = tree.session_.state()
    assert not np.isin([1000, 1299, 1004], state["id"]).any()
    left = np.setdiff1d(np.arange(300), [0, 299, 4])
    assert (state["counts"][0] == np.bincount(Y[left])).all()
    assert all(len(group["X"]) == 297 for group in groups.values())


@pytest.mark.parametrize(
    ("call", "id", "parameters"),
    [
        (lambda t: t.forget([5, 999]), "estimators.refused", {"subject": "id 999", "row": 1}),
        (lambda t: t.forget([5, 999, 5, 777]), "estimators.unknown", {"names": "id 999, id 777"}),
        (lambda t: t.forget(), "estimators.nothing_named", {}),
        (lambda t: t.forget(subjects=[5]), "estimators.no_subjects", {}),
        (lambda t: t.forget([5], missing="pass"), "estimators.missing_choice", {"given": "pass"}),
        (lambda t: t.partial_fit(X[:2], Y[:2], ids=[777, 5]), "estimators.refused", {"subject": "id 5", "row": 1}),
        (lambda t: t.partial_fit(X[:2], [0, 9]), "estimators.new_class", {"label": 9}),
        (lambda t: t.partial_fit(np.where(X[:3] > 9, X[:3], np.inf), Y[:3]), "rows.infinite", {}),
        (lambda t: t.partial_fit([[0, 0, 0, 2**53 + 1]], [0]), "rows.inexact", {"row": 0, "column": "x3"}),
        (lambda t: t.partial_fit(np.full((2, 4), 2**64 - 1, "u8"), Y[:2]), "rows.inexact", {"column": "x0"}),
        (lambda t: t.predict(np.full((2, 4), -(2**53) - 1)), "rows.inexact", {"column": "x0"}),
        (lambda t: t.partial_fit(X[:3], Y[:2]), "estimators.other_labels", {"rows": 3, "labels": 2}),
        (lambda t: t.partial_fit(X[:3, :2], Y[:3]), "estimators.other_width", {"width": 2, "wanted": 4}),
        (lambda t: t.partial_fit(X[:2], Y[:2], ids=["a", {}]), "estimators.id_type", {"value": {}}),
        (lambda t: t.partial_fit(X[:2], Y[:2], ids=[900.0, 900.5]), "estimators.id_type", {"row": 1, "value": 900.5}),
        (lambda t: t.forget([2**63]), "estimators.id_type", {"value": 2**63}),
        (lambda t: t.forget([[1, 2]]), "estimators.id_shape", {"shape": (1, 2)}),
        (lambda t: t.partial_fit(X[:2], [0, None]), "estimators.unusable_label", {"row": 1, "what": "missing values"}),
        (lambda t: t.partial_fit(X[:2], ["a", np.nan]), "estimators.unusable_label", {"what": "missing values"}),
        (lambda t: t.partial_fit(X[:2], [0.0, np.nan]), "estimators.unusable_label", {"what": "NaN or infinity"}),
        (lambda t: t.partial_fit(X[:2], ["a", "b"]), "estimators.mixed_classes", {"label": "a"}),
        (lambda t: t.forget_examples(X[[7, 7]], Y[[7, 7]]), "examples.unknown_value", {"row": 0}),
    ],
)
def test_a_bad_call_has_no_effect(call: Any, id: str, parameters: dict[str, Any]) -> None:
    rows = X + np.arange(300)[:, None] * 1e-6  # all distinct
    tree = FullyDynamicTreeClassifier().partial_fit(rows, Y, [0, 1, 2])
    before = tree.digest()
    with refused(id, InputError, **parameters):
        call(tree)
    assert tree.digest() == before
    assert tree.session_.statistics()["active"] == 300


def test_frames_of_all_kinds_agree_and_text_is_categorical() -> None:
    words = np.array(["red", "green", "blue"])[(X[:, 3] > 0).astype(int) + (X[:, 2] > 0)]
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "colour": words})
    table = pa.Table.from_pandas(frame, preserve_index=False)
    trees = [
        FullyDynamicTreeClassifier().partial_fit(data, Y)
        for data in (frame, pl.from_pandas(frame), table, table.to_batches()[0])
    ]
    assert len({tree.digest() for tree in trees}) == 1
    assert trees[0].feature_names_in_.tolist() == ["a", "b", "colour"]
    assert trees[0]._features().categorical == (False, False, True)
    unseen = frame.assign(colour="mauve")
    with warned("estimators.unseen", rows=300, name="colour"):
        assert len(trees[0].predict(unseen[["colour", "b", "a"]])) == 300  # by name, in any order
    with refused("estimators.no_column", InputError, name="b", estimator="FullyDynamicTreeClassifier"):
        trees[0].predict(frame[["a", "colour"]])
    with refused("estimators.was_numbers", InputError, column="b", kind="text", was="numbers"):
        trees[0].predict(frame.assign(b="1.0"))
    with refused("estimators.was_text", InputError, column="colour", kind="integers", was="text"):
        trees[0].predict(frame.assign(colour=1))


def test_integers_that_float64_would_round_are_refused() -> None:
    frame = pd.DataFrame({"a": [1, 2**53, 2**53 + 1], "b": [1.5, 2, 3]})
    with refused("rows.inexact", InputError, row=2, column="a"):
        FullyDynamicTreeClassifier().partial_fit(frame, [0, 1, 0])
    FullyDynamicTreeClassifier().partial_fit(frame[:2], [0, 1])
    categories = FullyDynamicTreeClassifier(categorical_features=["a"]).partial_fit(frame, [0, 1, 0])
    assert len(categories._encoder.dictionaries["a"].values) == 3
    with refused("estimators.string", ConfigError, given="a"):
        FullyDynamicTreeClassifier(categorical_features="a").partial_fit(frame[:2], [0, 1])


def test_a_model_without_its_examples_only_predicts(tmp_path: Path) -> None:
    FullyDynamicTreeClassifier().fit(X, Y).save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    for call in (lambda: model.partial_fit(X, Y), lambda: model.forget([1]), model.audit, model.digest):
        with refused("estimators.no_rows", ModelFileError):
            call()


def test_the_ids_of_a_loaded_model_come_oldest_first(tmp_path: Path) -> None:
    tree = FullyDynamicTreeClassifier().partial_fit(X[:3], Y[:3], ids=[30.0, 10.0, 20.0])
    tree.forget(10)
    tree.partial_fit(X[3:5], Y[3:5], ids=[5, 10]).save(tmp_path / "tree", with_examples=True)
    assert load_model(tmp_path / "tree").row_ids_.tolist() == [30, 20, 5, 10]


def test_a_run_folder_stands_for_its_model(tmp_path: Path) -> None:
    tree = FullyDynamicTreeClassifier().fit(X, Y)
    tree.save(tmp_path / "run" / "model")
    for place in (tmp_path / "run", f"{tmp_path}/run/", (tmp_path / "run").as_uri()):
        assert (load_model(place).predict(X) == tree.predict(X)).all()
    with refused("models.no_model", ModelFileError, file=str(tmp_path)):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": "foo"}, "^epsilon='foo' should be a valid number.*, or should be 'auto'$"),
        ({"max_depth": -1, "alpha": 3}, "^alpha=3 should be .* equal to 1; max_depth=-1 should be .* equal to 0$"),
    ],
)
def test_a_parameter_that_is_not_allowed_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FullyDynamicTreeClassifier(**options).fit(X, Y)


def test_works_without_scikit_learn() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from raydt import FullyDynamicTreeClassifier as T\n"
        "t = T().fit([[0.0], [1.0]], [0, 1]); print(t.predict([[1.0]]))\n"
        "try: T().predict([[1.0]])\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = message("estimators.not_fitted", estimator="FullyDynamicTreeClassifier")
    assert done.stdout == f"[1]\n{said}\n"


def test_labels_stay_text_or_numbers() -> None:
    """At every call that takes some; whole numbers, floats and truth values that are equal are one class."""
    texts = np.array(["0", "1", "2"])[Y]
    for own, other in ((Y, texts), (texts, Y)):
        tree = FullyDynamicTreeClassifier().fit(X, own)
        before = tree.digest()
        for call in (tree.partial_fit, tree.forget_examples, tree.score):
            with refused("estimators.mixed_classes", InputError):
                call(X[:3], other[:3])
        assert tree.digest() == before
    tree = FullyDynamicTreeClassifier().fit(X, Y).partial_fit(X[:3], Y[:3].astype(float)).partial_fit(X[:3], Y[:3] > 0)
    assert tree.classes_.tolist() == [0, 1, 2]
