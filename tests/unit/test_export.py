"""Exports and explanations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from scipy.sparse import csr_matrix

from pipelines import replay
from pipelines.cli import main
from pipelines.prediction import explain_row, export_model
from raydt import (
    ConfidenceTreeClassifier,
    ExactForestClassifier,
    ExactForestRegressor,
    FullyDynamicTreeClassifier,
    FullyDynamicTreeRegressor,
    OnlineGradientBoostingClassifier,
    OnlineGradientBoostingRegressor,
    SparseBestSplit,
    SparseDynamicTreeClassifier,
)
from raydt.errors import ConfigError, InputError
from raydt.export import FORMATS, Interface, build, suffix_of
from raydt.messages import message_of
from raydt.sessions.session import small_stream
from raydt.trees import shapley
from raydt.trees.canonical_arrays import SUMS
from raydt.trees.shapley import TreeSum
from tests.cases import Trial, every_case
from tests.oracles.digests import shapley as defined
from tests.property.test_tree_sum import described, plain, rows_of
from tests.refusals import refused
from tests.unit.test_update_subjects import ESTIMATORS, takes_sparse_rows_only

# -- export ----------------------------------------------------------------------------------------------------------
# Exported models say in every double what the learner says, for every case; what a format cannot say is refused.

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


# -- export command --------------------------------------------------------------------------------------------------
# ``raydt export`` and ``raydt predict --explain``, of models and states that were saved.

DRAW = np.random.default_rng(3)
FRAME = pd.DataFrame({"age": DRAW.integers(18, 90, 200).astype(float), "pet": DRAW.choice(["cat", "dog"], 200)})
LABELS = np.where((FRAME["age"] > 40) & (FRAME["pet"] == "dog"), "yes", "no")


def classifier() -> Any:
    return FullyDynamicTreeClassifier().fit(FRAME, LABELS)


@pytest.mark.parametrize("with_examples", [False, True])
def test_a_saved_model_or_state_is_exported(with_examples: bool, tmp_path: Path, capsys: Any) -> None:
    onnx = pytest.importorskip("onnx")
    model, out = classifier(), tmp_path / "model.onnx"
    model.save(tmp_path / "saved", with_examples=with_examples)
    with pytest.raises(SystemExit) as ended:
        main(["export", str(tmp_path / "saved"), "--to", "onnx", "--out", str(out), "--json"])
    assert ended.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["trees"], told["outputs"]) == ("onnx", 1, ["no", "yes"])
    interface = json.loads(Path(told["interface"]).read_text())
    numbers = dict(interface["columns"][1]["values"])
    table = np.column_stack([FRAME["age"], FRAME["pet"].map(numbers)]).astype(float)
    found = outputs_of("onnx", onnx.load(out), table, model.tree_sum())
    assert largest_difference(model.predict_proba(FRAME), found) == 0.0


def test_what_cannot_be_exported_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    classifier().save(tmp_path / "saved")
    for out, said in (("model.txt", "outputs.other_name"), ("s3://b/m.onnx", "outputs.not_local")):
        with refused(said):
            export_model(tmp_path / "saved", "onnx", out if "://" in out else tmp_path / out)
    with pytest.raises(ConfigError, match="--out"):
        export_model(tmp_path / "saved", "onnx", tmp_path / "saved" / "model.onnx")
    export_model(tmp_path / "saved", "onnx", tmp_path / "model.onnx")
    with refused("outputs.exists", file=str(tmp_path / "model.onnx")):
        export_model(tmp_path / "saved", "onnx", tmp_path / "model.onnx")
    export_model(tmp_path / "saved", "onnx", tmp_path / "model.onnx", overwrite=True)
    naive = ConfidenceTreeClassifier(leaf_prediction="naive_bayes").fit(FRAME, LABELS)
    naive.save(tmp_path / "naive", with_examples=True)
    with refused("learners.naive_leaves", InputError):
        export_model(tmp_path / "naive", "onnx", tmp_path / "naive.onnx")
    assert not (tmp_path / "naive.onnx").exists()


def test_one_row_is_explained_in_words_and_numbers(tmp_path: Path, capsys: Any) -> None:
    model = classifier()
    model.save(tmp_path / "saved")
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path / "saved"), str(tmp_path / "rows.csv"), "--explain", "7"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(sentence in text for sentence in model.explain_path(FRAME[7:8])[0])
    found = explain_row(tmp_path / "saved", tmp_path / "rows.csv", 7)
    assert found["output"] == model.predict_proba(FRAME[7:8])[0].tolist()
    added = np.array(found["base"]) + np.sum([values for _, values in found["values"]], axis=0)
    np.testing.assert_allclose(added, found["output"], atol=1e-12)
    with refused("predictions.no_row", row=200):
        explain_row(tmp_path / "saved", tmp_path / "rows.csv", 200)


def test_a_state_of_numbers_is_explained_too(tmp_path: Path) -> None:
    model = ExactForestRegressor(n_estimators=4, sample_share=1.0).fit(FRAME, FRAME["age"] * 2)
    model.save(tmp_path / "saved", with_examples=True)
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    found = explain_row(tmp_path / "saved", tmp_path / "rows.csv", 0, tree=3)
    assert (found["trees"], found["outputs"], found["meaning"]) == (4, ["prediction"], "the predicted number")
    assert found["output"] == model.predict(FRAME[:1]).tolist()


def test_tokens_are_named_in_the_second_file_and_in_explanations(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    words = [["free", "now"], ["tea"], ["free", "tea"], ["now"]] * 10
    table = pa.table({"w": words, "y": ["spam" if "free" in row else "ham" for row in words]})
    pq.write_table(table, tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet")},
        "stream": {"model": "incremental"},
        "learner": {"kind": "sparse_tree"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    replay(config, tmp_path / "run")
    export_model(tmp_path / "run", "onnx", tmp_path / "model.onnx")
    (column,) = json.loads((tmp_path / "model.onnx.json").read_text())["columns"]
    assert (column["name"], column["kind"], column["tokens"]) == ("w", "sparse", ["free", "now", "tea"])
    found = explain_row(tmp_path / "run", tmp_path / "rows.parquet", 0)
    assert found["path"][0] == "free is 1"
    assert found["values"][0][0] == "free"


# -- explain ---------------------------------------------------------------------------------------------------------
# Shapley values against their definition and against shap, importances against a loop, and paths in words.

DRAW_EXPLAIN = np.random.default_rng(8)
N, D = 240, 5
DENSE = np.column_stack(
    [DRAW_EXPLAIN.integers(0, 4, (N, 3)).astype(float), DRAW_EXPLAIN.random((N, 1)), DRAW_EXPLAIN.integers(0, 3, N)]
)
ONES = (DRAW_EXPLAIN.random((N, D)) < 0.4).astype(float)
NOISE = DRAW_EXPLAIN.random(N) < 0.1


def labels(X: Any, classes: int) -> Any:
    return ((X[:, 0] + (X[:, 1] > 0) * (X[:, 3] > 0.5) + NOISE) % classes).astype(int)


def fitted(estimator: Any, X: Any, y: Any, forget: int = 0) -> Any:
    estimator.fit(X, y)
    if forget:
        estimator.forget(estimator.row_ids_[:forget])
    return estimator


def csr(X: Any) -> Any:
    return scipy.sparse.csr_matrix(X)


MODELS = {
    "two classes": lambda: (fitted(FullyDynamicTreeClassifier(), DENSE, labels(DENSE, 2)), DENSE),
    "unsmoothed": lambda: (
        fitted(FullyDynamicTreeClassifier(smoothing=0, beta=0.01), DENSE, labels(DENSE, 2), 100),
        DENSE,
    ),
    "three classes, categories, deletions": lambda: (
        fitted(FullyDynamicTreeClassifier(categorical_features=[0, 4]), DENSE, labels(DENSE, 3), 60),
        DENSE,
    ),
    "numbers": lambda: (
        fitted(FullyDynamicTreeRegressor(label_range=(0, 9)), DENSE, DENSE[:, 0] + DENSE[:, 3], 80),
        DENSE,
    ),
    "sparse": lambda: (fitted(SparseDynamicTreeClassifier(), csr(ONES), labels(ONES, 2), 40), csr(ONES)),
    "confidence": lambda: (
        fitted(
            ConfidenceTreeClassifier(tie_threshold=0.3, grace_period=20, leaf_prediction="majority"),
            DENSE,
            labels(DENSE, 2),
        ),
        DENSE,
    ),
}


def inside(model: Any, X: Any) -> tuple[dict[str, Any], Any, Any]:
    """The tree, its outputs by node, and a function of row and node that says where the row goes."""
    predictor = model._predictor()
    tree, kinds = predictor._model, predictor._categorical
    numeric = hasattr(predictor, "numbers")
    outputs = predictor.numbers[:, None] if numeric else predictor._shares(len(model.classes_))
    dense = model._rows(X)[0] if isinstance(X, np.ndarray) else X.toarray()  # codes in place of categories

    def left(row: int, node: int) -> bool:
        j, value = int(tree["feature"][node]), dense[row, int(tree["feature"][node])]
        if j >= len(kinds):
            return bool(value == 0)
        return bool(value == tree["threshold"][node] if kinds[j] else value <= tree["threshold"][node])

    return tree, outputs, left


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_definition_and_add_up(name: str) -> None:
    model, X = MODELS[name]()
    tree, outputs, left = inside(model, X)
    assert (tree["feature"] >= 0).sum() >= 2
    found = model.explain(X)
    numeric = name == "numbers"
    expected = model.predict(X) if numeric else model.predict_proba(X)
    assert found.values.shape == ((N, D) if numeric else (N, D, len(model.classes_)))
    assert np.abs(found.values.sum(axis=1) + found.base - expected).max() < 1e-9
    for row in range(0, N, 24):
        values, base = defined(tree, outputs, lambda node, row=row: left(row, node), D)
        np.testing.assert_allclose(found.values[row].reshape(D, -1), values, atol=1e-12)
        np.testing.assert_allclose(found.base, base.ravel() if not numeric else base[0], atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_importances_are_what_the_splits_take_from_the_impurity(name: str) -> None:
    model, X = MODELS[name]()
    tree, _, _ = inside(model, X)
    taken = np.zeros(D)

    def impurity(node: int) -> float:
        counts = tree["counts"][node].astype(float)
        if name == "numbers":  # less the sum of squares, which all sides share
            total = model._model()[SUMS][node, 0]
            return -(float(total) ** 2) / counts[0] if counts[0] else 0.0
        return float(counts.sum() - (counts**2).sum() / counts.sum()) if counts.sum() else 0.0

    for node in np.flatnonzero(tree["feature"] >= 0):
        sides = impurity(tree["left"][node]) + impurity(tree["right"][node])
        taken[tree["feature"][node]] += max(0.0, impurity(node) - sides)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(model.feature_importances_, taken / taken.sum(), atol=1e-12)


def test_a_tree_without_a_split_has_nothing_to_explain() -> None:
    model = FullyDynamicTreeClassifier().fit([[0.0, 1.0], [1.0, 1.0]], [1, 1])
    assert model.feature_importances_.tolist() == [0.0, 0.0]
    found = model.explain([[0.5, 0.5]])
    assert found.values.tolist() == [[[0.0], [0.0]]]
    assert found.base.tolist() == [1.0]


def test_nodes_that_deletions_have_emptied_add_up_too() -> None:
    X = np.arange(40.0).reshape(-1, 1)
    model = FullyDynamicTreeClassifier(schedule="published", epsilon=5.0, smoothing=0).fit(
        X, (X[:, 0] > 19).astype(int)
    )
    model.forget(model.row_ids_[:20])
    assert (model._predictor()._model["counts"].sum(axis=1) == 0).any()
    found = model.explain(X)
    assert np.abs(found.values.sum(axis=1) + found.base - model.predict_proba(X)).max() < 1e-12


def test_the_best_split_is_all_that_counts_and_unknown_widths_are_refused() -> None:
    rows = csr(ONES)
    stump = SparseBestSplit().fit(rows, labels(ONES, 2))
    expected = np.zeros(D)
    expected[stump.best_split_.feature] = 1.0
    assert stump.feature_importances_.tolist() == expected.tolist()
    for estimator in (SparseBestSplit(), SparseDynamicTreeClassifier()):
        estimator.fit([[0, 7], [7], [0, 3], []], [1, 1, 0, 0])
        with refused("export.unknown_width", InputError):
            _ = estimator.feature_importances_
        with refused("export.unknown_width", InputError):
            estimator.explain_path([[0, 7]])


SMALL = {"max_iter": 5, "max_leaf_nodes": 6, "max_bins": 16, "candidate_fraction": 0.5}
SUMS_OF_TREES = {
    "forest, two classes": (ExactForestClassifier(n_estimators=6, sample_share=0.5), labels(DENSE, 2)),
    "forest, three classes": (ExactForestClassifier(n_estimators=3, sample_share=1.0), labels(DENSE, 3)),
    "forest, numbers": (ExactForestRegressor(n_estimators=5, sample_share=0.6), DENSE[:, 0] + DENSE[:, 3]),
    "boosting, two classes": (OnlineGradientBoostingClassifier(**SMALL), labels(DENSE, 2)),
    "boosting, three classes": (OnlineGradientBoostingClassifier(**SMALL), labels(DENSE, 3)),
    "boosting, numbers": (OnlineGradientBoostingRegressor(**SMALL), DENSE[:, 0] + DENSE[:, 3]),
}


def sums_of_tree(trees: Any, tree: int) -> tuple[Any, Any]:
    """One tree of a sum as the definition takes it, and its outputs by node."""
    part = slice(int(trees.starts[tree]), int(trees.starts[tree + 1]))
    nodes = {"feature": trees.feature[part], "counts": trees.cover[part]}
    nodes |= {name: getattr(trees, name)[part] - part.start for name in ("left", "right")}
    return nodes, trees.value[part]


def side_taken(trees: Any, x: Any, begin: int) -> Any:
    """Whether a row goes left at a node, by its number within the tree that begins there."""

    def left(node: int) -> bool:
        members = trees.members_of(begin + node).tolist()
        value = x[trees.feature[begin + node]]
        return bool(value in members if members else value <= trees.threshold[begin + node])

    return left


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", SUMS_OF_TREES)
def test_values_of_sums_of_trees_are_those_of_the_definition_and_add_up(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapley, "_TASK_NS", 1)  # so that few rows are divided among threads
    estimator, y = SUMS_OF_TREES[name]
    for categorical in (None, [0, 4]):
        model = fitted(estimator.set_params(categorical_features=categorical), DENSE, y, 60)
        trees, X, found = model.tree_sum(), model._rows(DENSE)[0], model.explain(DENSE)
        for threads in (2, 3, 5):
            again = model.set_params(n_jobs=threads).explain(DENSE)
            assert (again.values.tobytes(), np.asarray(again.base).tobytes()) == (
                found.values.tobytes(),
                np.asarray(found.base).tobytes(),
            )
        scores = trees.scores(X)[:, np.argsort(trees.codes) if len(trees.codes) else [0]]
        added = (found.values.sum(axis=1) + found.base).reshape(N, -1)
        assert np.abs(added - scores).max() < 1e-9
        if trees.link == "identity":
            predicted = model.predict_proba(DENSE) if len(trees.codes) else model.predict(DENSE)
            assert np.abs(added - predicted.reshape(N, -1)).max() < 1e-9
        for row in (0, 100):
            total = np.zeros((D, trees.outputs))
            for tree in range(trees.trees):
                nodes, outputs = sums_of_tree(trees, tree)
                left = side_taken(trees, X[row], int(trees.starts[tree]))
                total += defined(nodes, outputs, left, D)[0]
            total = total / trees.trees if trees.mean else total
            total = total[:, np.argsort(trees.codes)] if len(trees.codes) > 1 else total
            np.testing.assert_allclose(found.values[row].reshape(D, -1), total, atol=1e-11)


@pytest.mark.parametrize("name", SUMS_OF_TREES)
def test_values_equal_those_of_shap_on_the_exported_model(name: str) -> None:
    """shap reads LightGBM's trees, boosted ones, and scikit-learn's forests, whose columns are ranks of ours.

    It needs two sides with examples at every node, and computes with float32 thresholds of its own making.
    """
    shap = pytest.importorskip("shap")
    estimator, y = SUMS_OF_TREES[name]
    model = fitted(estimator.set_params(categorical_features=None), DENSE, y, 60)
    ours = model.explain(DENSE)
    if name.startswith("boosting"):
        booster = model.export("lightgbm")
        theirs = booster.predict(DENSE, pred_contrib=True).reshape(N, -1, D + 1)
        theirs, base = np.moveaxis(theirs[:, :, :-1], 1, 2), theirs[:, :, -1]
        expected = shap.TreeExplainer(booster).shap_values(DENSE)
        np.testing.assert_allclose(np.asarray(expected).reshape(N, D, -1), theirs, atol=1e-9)
        np.testing.assert_allclose(base, np.broadcast_to(ours.base, base.shape), atol=1e-9)
    else:
        pipeline = model.export("sklearn")
        used = [int(name.removeprefix("ranks")) for name, _, _ in pipeline[0].transformers]
        found = shap.TreeExplainer(pipeline[-1]).shap_values(pipeline[0].transform(DENSE), check_additivity=False)
        theirs = np.zeros((N, D, ours.values.reshape(N, D, -1).shape[2]))
        theirs[:, used] = np.asarray(found).reshape(N, len(used), -1)
    np.testing.assert_allclose(ours.values.reshape(N, D, -1), theirs, atol=1e-9)


def test_a_path_in_words_names_feature_threshold_and_value() -> None:
    import pandas as pd

    frame = pd.DataFrame({"age": [20.0, 25.5, 40.0, 60.0] * 10, "pet": ["cat", "dog", "cat", "dog"] * 10})
    y = ["yes" if age > 30 and pet == "dog" else "no" for age, pet in zip(frame["age"], frame["pet"], strict=True)]
    model = FullyDynamicTreeClassifier(smoothing=0).fit(frame, y)
    young, old = model.explain_path(pd.DataFrame({"age": [27.0, 70.0], "pet": ["cat", "dog"]}))
    assert set(young[:-1]) <= {f"age {test} (value 27)" for test in ("> 25.5", "<= 25.5", "<= 40", "<= 50")} | {
        "pet is cat (value cat)",
        "pet is not dog (value cat)",
    }
    assert any(word.startswith(("age > ", "pet is dog", "pet is not cat")) for word in old)
    assert "leaf of" in young[-1]
    assert "no 1, yes 0" in young[-1]
    unknown = model.explain_path(pd.DataFrame({"age": [27.0], "pet": ["fish"]}))[0]
    assert all("value unknown" in word for word in unknown if word.startswith("pet"))
    with refused("export.no_tree", InputError, tree=1, trees=1):
        model.explain_path(frame, tree=1)


def test_paths_of_missing_numbers_sparse_features_and_scores() -> None:
    X = DENSE[:, :2].copy()
    X[::3, 0] = np.nan
    boosting = OnlineGradientBoostingClassifier(**SMALL).fit(X, labels(DENSE, 2))
    words = [sentence for tree in range(5) for path in boosting.explain_path(X[:9], tree) for sentence in path]
    assert any("x0 is missing" in word for word in words)
    assert all(word.endswith("to the score") for word in words if word.startswith("leaf"))
    stump = SparseDynamicTreeClassifier().fit(csr(ONES), labels(ONES, 2))
    sentences = stump.explain_path(csr(ONES[:5]))
    assert all(word.endswith((" is 0", " is 1")) for path in sentences for word in path[:-1])


def test_leaves_of_naive_bayes_are_not_explained() -> None:
    model = fitted(ConfidenceTreeClassifier(leaf_prediction="naive_bayes"), DENSE, labels(DENSE, 2))
    with refused("learners.naive_leaves", InputError):
        model.explain(DENSE)


# -- exported ----------------------------------------------------------------------------------------------------------
# What exported models say of rows, by the library of each format.


def outputs_of(to: str, model: Any, X: Any, trees: Any) -> Any:
    """Outputs before the link, shape (n, outputs)."""
    if to == "treelite":
        import treelite

        return treelite.gtil.predict(model, X, nthread=1, pred_margin=True).reshape(len(X), -1)
    if to == "onnx":
        from onnxruntime import InferenceSession

        session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(["scores"], {"X": X})[0]
    if to == "lightgbm":
        return model.predict(X, raw_score=trees.link != "identity", num_threads=1).reshape(len(X), -1)
    if trees.link != "identity":
        return model.decision_function(X).reshape(len(X), -1)
    found = model.predict_proba(X) if len(trees.codes) else model.predict(X)
    return np.asarray(found).reshape(len(X), -1)


def probabilities_of(to: str, model: Any, X: Any) -> Any:
    """What the format makes of the outputs: shares of the classes, or of the second one."""
    if to == "treelite":
        import treelite

        return treelite.gtil.predict(model, X, nthread=1).reshape(len(X), -1)
    if to == "onnx":
        from onnxruntime import InferenceSession

        session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(["shares"], {"X": X})[0]
    if to == "lightgbm":
        return model.predict(X, num_threads=1).reshape(len(X), -1)
    return model.predict_proba(X)


def largest_difference(expected: Any, found: Any) -> float:
    """0 if every double is equal."""
    if expected.shape != found.shape:
        raise AssertionError(f"shapes {expected.shape} and {found.shape}")
    return float(np.abs(expected - found).max(initial=0.0)) if (expected != found).any() else 0.0
