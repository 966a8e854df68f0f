"""scikit-learn: a pipeline of the model's tests and one tree, averaged trees or gradient boosting over their results.

scikit-learn's trees round their input to float32. So the first step replaces a number by how many thresholds of its
column lie below it (``numpy.digitize``), and a set of categories becomes a column of its own (``numpy.isin``): small
whole numbers, which float32 holds exactly. Where missing numbers go left, they become the least ones before. Only
functions of NumPy and scikit-learn are in the pipeline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.errors import InputError
from raydt.export import Interface
from raydt.messages import message
from raydt.trees.shapley import LARGEST, TreeSum

LIBRARIES, SUFFIX = ("scikit-learn", "skops"), ".skops"


class _Tests(NamedTuple):
    """Columns that the first step makes, each from one column of the input, and the test of every node on them."""

    steps: list[tuple[str, Any, list[int]]]
    column: Ints
    threshold: Floats


def build(trees: TreeSum, interface: Interface) -> Any:
    """Build a fitted ``Pipeline``; its last step is one tree, averaged trees, or gradient boosting.

    Boosting takes the classes of ``predict`` from log-odds of at least 0, where the learner's are above 0.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    tests = _tests(trees)
    width = trees.dense + trees.sparse
    transformer = ColumnTransformer(tests.steps)
    transformer.fit(np.zeros((1, width)))
    return Pipeline([("tests", transformer), ("model", _model(trees, tests, interface))])


def _tests(trees: TreeSum) -> _Tests:
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    column, threshold = np.zeros(len(trees.feature), dtype=np.int64), np.zeros(len(trees.feature))
    steps: list[tuple[str, Any, list[int]]] = []
    is_set, plain = trees.is_set, (trees.feature >= 0) & ~trees.is_set
    for j in np.unique(trees.feature[plain]).tolist():
        for least in (False, True):
            nodes = np.flatnonzero(plain & (trees.feature == j) & (trees.missing_left == least))
            if not len(nodes):
                continue
            edges = np.unique(trees.threshold[nodes])
            column[nodes] = len(steps)
            threshold[nodes] = np.searchsorted(edges, trees.threshold[nodes]) + 0.5
            ranks: Any = FunctionTransformer(np.digitize, kw_args={"bins": edges, "right": True})
            if least:
                known = FunctionTransformer(np.nan_to_num, kw_args={"nan": -LARGEST})
                ranks = Pipeline([("missing", known), ("ranks", ranks)])
            steps.append((f"ranks{j}" + "_missing" * least, ranks, [j]))
    sets: dict[tuple[int, tuple[float, ...]], int] = {}
    for node in np.flatnonzero(is_set).tolist():
        key = int(trees.feature[node]), tuple(trees.members_of(node).tolist())
        if key not in sets:
            sets[key] = len(steps)
            absent = FunctionTransformer(np.isin, kw_args={"test_elements": np.array(key[1]), "invert": True})
            steps.append((f"set{len(sets) - 1}", absent, [key[0]]))
        column[node], threshold[node] = sets[key], 0.5
    if not steps:  # a model of one leaf
        steps.append(("ranks0", FunctionTransformer(np.digitize, kw_args={"bins": np.array([LARGEST])}), [0]))
    return _Tests(steps, column, threshold)


def _model(trees: TreeSum, tests: _Tests, interface: Interface) -> Any:
    from sklearn import ensemble, tree

    if trees.link != "identity" or (trees.trees > 1 and not trees.mean):
        return _boosting(trees, tests, interface)
    labels = np.array([interface.classes[code] for code in trees.codes.tolist()])
    number = not len(labels)
    one = tree.DecisionTreeRegressor if number else tree.DecisionTreeClassifier
    grown = [_fitted(one(), trees, t, tests, trees.value, labels) for t in range(trees.trees)]
    if not trees.mean:
        return grown[0]
    averaged = (ensemble.RandomForestRegressor if number else ensemble.RandomForestClassifier)(len(grown))
    averaged.estimators_, averaged.estimator_, averaged.n_outputs_ = grown, one(), 1
    averaged.n_features_in_ = len(tests.steps)
    if not number:
        averaged.classes_, averaged.n_classes_ = labels, len(labels)
    return averaged


def _boosting(trees: TreeSum, tests: _Tests, interface: Interface) -> Any:
    from sklearn import ensemble, tree

    per = trees.outputs
    grown = [
        _fitted(tree.DecisionTreeRegressor(), trees, t, tests, trees.value[:, [t % per]], np.empty(0))
        for t in range(trees.trees)
    ]
    kind = ensemble.GradientBoostingClassifier if len(trees.codes) else ensemble.GradientBoostingRegressor
    model = kind(n_estimators=len(grown) // per, learning_rate=1.0, init="zero")
    model.estimators_ = np.array(grown, dtype=object).reshape(-1, per)
    model.n_features_in_, model.init_, model.n_estimators_ = len(tests.steps), "zero", len(grown) // per
    model.n_trees_per_iteration_ = per
    if len(trees.codes):
        codes = [0, 1] if per == 1 else trees.codes.tolist()
        model.classes_ = np.array([interface.classes[code] for code in codes])
        model.n_classes_ = len(codes)
    model._loss = model._get_loss(sample_weight=None)
    return model


def _fitted(estimator: Any, trees: TreeSum, tree: int, tests: _Tests, value: Floats, labels: AnyArray) -> Any:
    from sklearn.tree._tree import NODE_DTYPE, Tree

    begin, stop = int(trees.starts[tree]), int(trees.starts[tree + 1])
    part = slice(begin, stop)
    inner = trees.feature[part] >= 0
    nodes = np.zeros(stop - begin, dtype=NODE_DTYPE)
    nodes["left_child"] = np.where(inner, trees.left[part] - begin, -1)
    nodes["right_child"] = np.where(inner, trees.right[part] - begin, -1)
    nodes["feature"] = np.where(inner, tests.column[part], -2)
    nodes["threshold"] = np.where(inner, tests.threshold[part], -2.0)
    if trees.cover is not None and trees.examples is not None:
        nodes["n_node_samples"] = trees.examples[part]
        nodes["weighted_n_node_samples"] = trees.cover[part] / trees.unit
    outputs = value.shape[1]
    grown = Tree(len(tests.steps), np.array([outputs if len(labels) else 1], dtype=np.intp), 1)
    values = value[part].copy()
    if trees.cover is not None:
        _fill_inner(values, nodes)
    values = np.ascontiguousarray(values.reshape(stop - begin, 1, outputs))
    grown.__setstate__({"max_depth": 0, "node_count": stop - begin, "nodes": nodes, "values": values})
    estimator.tree_, estimator.n_features_in_, estimator.n_outputs_ = grown, len(tests.steps), 1
    estimator.max_features_ = len(tests.steps)
    if len(labels):
        estimator.classes_, estimator.n_classes_ = labels, len(labels)
    return estimator


def _fill_inner(values: Floats, nodes: npt.NDArray[np.void]) -> None:
    """Give inner nodes the mean of the nodes below, as scikit-learn does; no prediction reads it."""
    left, right, n = nodes["left_child"], nodes["right_child"], nodes["weighted_n_node_samples"]
    for node in np.flatnonzero(left >= 0)[::-1].tolist():
        below = [left[node], right[node]]
        values[node] = np.average(values[below], axis=0, weights=np.maximum(n[below], np.finfo(np.float64).tiny))


def write(model: Any, path: Path) -> dict[str, list[str]]:
    """Write the file that ``skops.io.load`` reads; return the names of the types and functions to trust."""
    import skops.io

    try:
        skops.io.dump(model, path)
    except skops.io.exceptions.UnsupportedTypeException as error:
        raise InputError(message("export.skops", reason=str(error))) from error
    return {"trusted": skops.io.get_untrusted_types(file=path)}
