"""Largest difference between every learner's outputs and those of its exports: ``python benchmarks/exports.py``.

Each model learns ``--rows`` rows, forgets a tenth of them, and predicts ``--rows`` others in each format's own library.
A difference of 0 means that every double is equal.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from harness import arguments, print_machine, show

import raydt
from raydt.errors import InputError
from raydt.export import FORMATS

NUMBERS, WIDTH = 8, 200


def frame(n: int, draw: Any, missing: bool) -> pd.DataFrame:
    """Numbers of many sizes and two columns of categories; some numbers are missing if ``missing``."""
    X = pd.DataFrame(draw.standard_normal((n, NUMBERS)) * 10.0 ** np.arange(-3, NUMBERS - 3), columns=list("abcdefgh"))
    if missing:
        X = X.mask(draw.random((n, NUMBERS)) < 0.05)
    return X.assign(colour=draw.choice(["red", "green", "blue"], n), size=draw.choice(list("SML"), n))


def target(X: pd.DataFrame) -> Any:
    numbers = X[list("abcdefgh")].fillna(0.0).to_numpy() / 10.0 ** np.arange(-3, NUMBERS - 3)
    return numbers[:, 0] * (X["colour"] == "red") + np.sin(numbers[:, 1] * 2) + numbers[:, 2] * (X["size"] != "S")


def dense(classes: int, missing: bool = False) -> Callable[[int, Any], tuple[Any, Any, Any]]:
    def make(n: int, draw: Any) -> tuple[Any, Any, Any]:
        X, others = frame(n, draw, missing), frame(n, draw, missing)
        y = target(X).to_numpy() + 0.3 * draw.standard_normal(n)
        return X, np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)) if classes else y, others

    return make


def sparse(n: int, draw: Any) -> tuple[Any, Any, Any]:
    X, others = (scipy.sparse.random(n, WIDTH, 0.03, "csr", random_state=draw, data_rvs=np.ones) for _ in range(2))
    score = X @ draw.standard_normal(WIDTH) + 0.3 * draw.standard_normal(n)
    return X, (score > 0).astype(int), others


Make = Callable[[int, Any], tuple[Any, Any, Any]]
BOOSTING = raydt.OnlineGradientBoostingClassifier
MODELS: dict[str, tuple[Any, Make]] = {
    "FullyDynamicTreeClassifier, 3 classes": (raydt.FullyDynamicTreeClassifier(), dense(3)),
    "FullyDynamicTreeRegressor": (raydt.FullyDynamicTreeRegressor(), dense(0)),
    "ConfidenceTreeClassifier, majority": (raydt.ConfidenceTreeClassifier(leaf_prediction="majority"), dense(2, True)),
    "ConfidenceTreeClassifier, naive Bayes": (raydt.ConfidenceTreeClassifier(), dense(2, True)),
    "SparseDynamicTreeClassifier": (raydt.SparseDynamicTreeClassifier(), sparse),
    "SparseBestSplit": (raydt.SparseBestSplit(), sparse),
    "ExactForestClassifier, 3 classes": (raydt.ExactForestClassifier(), dense(3, True)),
    "ExactForestRegressor": (raydt.ExactForestRegressor(), dense(0, True)),
    "OnlineGradientBoostingClassifier, 2 classes": (BOOSTING(), dense(2, True)),
    "OnlineGradientBoostingClassifier, 3 classes": (BOOSTING(), dense(3, True)),
    "OnlineGradientBoostingRegressor": (raydt.OnlineGradientBoostingRegressor(), dense(0, True)),
}


def numbers_of(model: Any, X: Any) -> Any:
    if scipy.sparse.issparse(X):
        return X.toarray()
    categories = model.interface().categories
    columns = [X[name].map(categories[name]).fillna(-1) if name in categories else X[name] for name in X.columns]
    return np.ascontiguousarray(np.column_stack(columns), dtype=np.float64)


def outputs(to: str, model: Any, X: Any, trees: Any) -> Any:
    """Outputs before the link, by the library of the format, shape (n, outputs)."""
    if to == "treelite":
        import treelite

        found = treelite.gtil.predict(model, X, pred_margin=True)
    elif to == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        found = session.run(["scores"], {"X": X})[0]
    elif to == "lightgbm":
        found = model.predict(X, raw_score=trees.link != "identity")
    elif trees.link != "identity":
        found = model.decision_function(X)
    else:
        found = model.predict_proba(X) if len(trees.codes) else model.predict(X)
    return np.asarray(found).reshape(len(X), -1)


def row(name: str, n: int) -> list[str]:
    """A row of the table: trees and nodes, then the largest difference of each format, or why it refuses."""
    draw = np.random.default_rng(0)
    estimator, make = MODELS[name]
    X, y, others = make(n, draw)
    model = estimator.fit(X, y)
    model.forget(model.row_ids_[: n // 10])
    try:
        trees = model.tree_sum()
    except InputError:
        return [name, "-", "-", *["refused: naive Bayes at leaves"] * len(FORMATS)]
    rows, sparse_rows = model._rows(others)
    expected = trees.scores(rows, sparse_rows.get("sparse"))
    table_of = numbers_of(model, others)
    cells = []
    for to in FORMATS:
        try:
            found = outputs(to, model.export(to), table_of, trees)
        except InputError as error:
            cells.append(f"refused: {error.problem.split(',')[0]}")
            continue
        equal = found.shape == expected.shape and (found == expected).all()
        cells.append("0" if equal else f"{np.abs(found - expected).max():.2g}")
    return [name, f"{trees.trees:,}", f"{len(trees.feature):,}", *cells]


if __name__ == "__main__":
    given = arguments(__doc__, rows=10_000, only="")
    print_machine("treelite", "onnxruntime", "lightgbm", "scikit-learn")
    lines = [row(name, given.rows) for name in MODELS if given.only in name]
    show("Largest difference", ["Model", "trees", "nodes", *FORMATS], lines)
