"""Exported models say in every double what the learner says, for every case; what a format cannot say is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from raydt import ExactForestClassifier, FullyDynamicTreeClassifier, OnlineGradientBoostingClassifier
from raydt.errors import InputError
from raydt.export import FORMATS, Interface, build, suffix_of
from raydt.messages import message_of
from raydt.sessions.session import small_stream
from raydt.trees.shapley import TreeSum
from tests.cases import Trial, every_case
from tests.exported import largest_difference, outputs_of, probabilities_of
from tests.property.test_tree_sum import described, plain, rows_of
from tests.refusals import refused
from tests.unit.test_replace_examples import ESTIMATORS, takes_sparse_rows_only

for library in ("treelite", "onnxruntime", "onnx", "lightgbm", "sklearn", "skops"):
    pytest.importorskip(library)


_DESCRIBED: dict[str, tuple[TreeSum | None, Interface]] = {}


def exported(trial: Trial) -> tuple[TreeSum | None, Interface]:
    if trial.name in _DESCRIBED:
        return _DESCRIBED[trial.name]
    labels = [f"class {code}" for code in range(trial.case.classes)]
    values = {"c": [f"value {code}" for code in range(3)]}
    interface = Interface.of(small_stream(trial.case)[0], values, labels, by_value=False)
    return _DESCRIBED.setdefault(trial.name, (described(trial)[1], interface))


@every_case("exports")
@pytest.mark.parametrize("to", FORMATS)
def test_every_double_is_equal(trial: Trial, to: Any) -> None:
    trees, interface = exported(trial)
    if trees is None:  # it says so: test_tree_sum
        return
    X, sparse = rows_of(trial.case, 1000, 3)
    model = build(trees, interface, to)
    table, scores = np.ascontiguousarray(plain(X, sparse)), trees.scores(X, sparse)
    assert largest_difference(scores, outputs_of(to, model, table, trees)) == 0.0
    if trees.link == "identity":
        return
    found = probabilities_of(to, model, table)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    one = trees.outputs == 1
    expected = 1 / (1 + np.exp(-scores)) if one else odds / odds.sum(axis=1, keepdims=True)
    # treelite computes the shares of several classes in single precision.
    within = 2.0**-22 if to == "treelite" and not one else 1e-13
    np.testing.assert_allclose(found[:, -1:] if one else found, expected, rtol=within)


ROWS = np.random.default_rng(5).random((300, 3))
TARGETS = (ROWS[:, 0] + ROWS[:, 1] > 1).astype(int)


def forest() -> Any:
    return ExactForestClassifier(n_estimators=7, sample_share=0.6).fit(ROWS, TARGETS)


@pytest.mark.parametrize("to", FORMATS)
def test_files_are_read_by_the_formats_library(to: Any, tmp_path: Path) -> None:
    model, path = forest(), tmp_path / f"model{suffix_of(to)}"
    built = model.export(to, path)
    again: Any = None
    if to == "treelite":
        import treelite

        again = treelite.Model.deserialize(str(path))
    elif to == "onnx":
        import onnx

        again = onnx.load(path)
    elif to == "lightgbm":
        import lightgbm

        again = lightgbm.Booster(model_file=str(path))
    else:
        import skops.io

        trusted = json.loads((tmp_path / f"{path.name}.json").read_text())["trusted"]
        assert {name.split(".")[0] for name in trusted} <= {"numpy", "sklearn"}
        again = skops.io.load(path, trusted=trusted)
    trees = model.tree_sum()
    assert largest_difference(outputs_of(to, built, ROWS, trees), outputs_of(to, again, ROWS, trees)) == 0.0
    assert largest_difference(model.predict_proba(ROWS), outputs_of(to, again, ROWS, trees)) == 0.0
    told = json.loads((tmp_path / f"{path.name}.json").read_text())
    assert [column["name"] for column in told["columns"]] == ["x0", "x1", "x2"]
    assert (told["format"], told["outputs"], told["meaning"].split()[0]) == (to, [0, 1], "shares")


@pytest.mark.parametrize("to", ["treelite", "onnx", "sklearn"])
def test_categories_that_are_numbers_of_their_values_are_exported(to: Any) -> None:
    import pandas as pd

    colours = np.array(["red", "green", "blue"])[np.random.default_rng(2).integers(0, 3, 300)]
    frame = pd.DataFrame({"size": ROWS[:, 0], "colour": colours})
    y = (colours == "red") ^ (ROWS[:, 0] > 0.5)
    model = ExactForestClassifier(n_estimators=5, sample_share=1.0).fit(frame, y)
    numbers = model.interface().categories["colour"]
    table = np.column_stack([ROWS[:, 0], [numbers[colour] for colour in colours]])
    assert model.tree_sum().is_set.any()
    assert (
        largest_difference(model.predict_proba(frame), outputs_of(to, model.export(to), table, model.tree_sum())) == 0.0
    )
    with refused("export.large_category", InputError):
        model.export("lightgbm")


@pytest.mark.parametrize("to", FORMATS)
def test_missing_values_go_where_they_do_in_the_tree(to: Any) -> None:
    """Splits that ask whether a category is missing, numbers on either side, and sides that are not decided."""
    import pandas as pd

    draw = np.random.default_rng(2)
    colours = np.array(["red", "green", None], dtype=object)[draw.integers(0, 3, 300)]
    size = np.where(draw.random(300) < 0.3, np.nan, ROWS[:, 0])
    frame = pd.DataFrame({"size": size, "colour": colours, "whole": ROWS[:, 1]})
    y = (pd.isna(colours) ^ ~(size > 0.4)) & (ROWS[:, 1] < 0.8)
    model = FullyDynamicTreeClassifier(smoothing=0).fit(frame, y)
    frame["whole"] = np.where(draw.random(300) < 0.3, np.nan, ROWS[:, 1])
    numbers = model.interface().categories["colour"]
    table = np.column_stack([size, [numbers.get(colour, -1) for colour in colours], frame["whole"]])
    trees = model.tree_sum()
    assert trees.missing_left.any()
    assert -1 in trees.members
    assert largest_difference(model.predict_proba(frame), outputs_of(to, model.export(to), table, trees)) == 0.0


def test_what_lightgbm_would_round_is_refused() -> None:
    model = FullyDynamicTreeClassifier().fit(ROWS, TARGETS)
    trees, interface = model.tree_sum(), model.interface()
    tiny = replace(trees, threshold=np.where(trees.feature >= 0, 1e-36, trees.threshold))
    with refused("export.tiny_threshold", InputError, value=1e-36):
        build(tiny, interface, "lightgbm")


@pytest.mark.parametrize("to", FORMATS)
def test_neighbouring_doubles_are_told_apart(to: Any) -> None:
    """Thresholds that float32 would round, and rows on either side of them."""
    x = np.nextafter(0.1, [[0.0], [1.0]])
    model = FullyDynamicTreeClassifier(smoothing=0).fit([[0.1], [x[1, 0]]] * 20, [0, 1] * 20)
    rows = np.concatenate([x, [[0.1]]])
    assert model.predict(rows).tolist() == [0, 1, 0]
    found = outputs_of(to, model.export(to), rows, model.tree_sum())
    assert largest_difference(model.predict_proba(rows), found) == 0.0


def test_a_format_that_is_not_there_and_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = OnlineGradientBoostingClassifier(max_iter=2).fit(ROWS, TARGETS)
    with refused("export.no_format", InputError, format="pmml", formats="treelite, onnx, lightgbm, sklearn"):
        model.export("pmml")
    monkeypatch.setitem(__import__("sys").modules, "lightgbm", None)
    with refused("export.no_library", InputError, format="lightgbm", libraries="lightgbm"):
        model.export("lightgbm")


@pytest.mark.parametrize("blocked", ["", ".json"])
@pytest.mark.parametrize("to", FORMATS)
def test_files_stay_as_they_are_where_new_ones_cannot_be_written(to: Any, blocked: str, tmp_path: Path) -> None:
    model, path = forest(), tmp_path / f"model{suffix_of(to)}"
    beside = path.with_name(path.name + ".json")
    for file in (path, beside):
        file.write_text("old")
    (tmp_path / f".{path.name}{blocked}.unfinished").mkdir()
    with refused("export.not_written", InputError):
        model.export(to, path)
    assert (path.read_text(), beside.read_text()) == ("old", "old")
    assert len(list(tmp_path.iterdir())) == 3


def test_an_export_to_a_file_builds_the_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from raydt.export import to_onnx

    built: list[Any] = []

    def counted(trees: TreeSum, interface: Interface, own: Any = to_onnx.build) -> Any:
        built.append(own(trees, interface))
        return built[-1]

    monkeypatch.setattr(to_onnx, "build", counted)
    assert [forest().export("onnx", tmp_path / "model.onnx")] == built


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_a_model_of_one_class_predicts_it_or_is_refused(estimator: Any, to: Any, tmp_path: Path) -> None:
    if "Regressor" in estimator.__name__:
        return
    X = (ROWS > 0.5) * 1.0
    model = estimator(**{"leaf_prediction": "majority"} if "Confidence" in estimator.__name__ else {})
    model.fit(csr_matrix(X) if takes_sparse_rows_only(estimator) else X, ["only"] * len(X))
    try:
        built = model.export(to, tmp_path / "model")
    except InputError as error:
        said = message_of(error)
        if said is None or said.id != "export.one_class":
            raise
        assert not [*tmp_path.iterdir()]
        return
    assert largest_difference(np.ones((len(X), 1)), outputs_of(to, built, X, model.tree_sum())) == 0.0
    assert json.loads((tmp_path / "model.json").read_text())["outputs"] == ["only"]


def test_categories_that_treelite_cannot_hold_are_refused() -> None:
    model = FullyDynamicTreeClassifier().fit(ROWS, TARGETS)
    trees, interface = model.tree_sum(), model.interface()
    first = np.where(np.arange(len(trees.feature) + 1) > 0, 2, 0)
    wide = replace(trees, first_member=first, members=np.array([1.0, 2.0**32]))
    with refused("export.treelite_category", InputError):
        build(wide, interface, "treelite")
