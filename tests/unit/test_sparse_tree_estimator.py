"""SparseDynamicTreeClassifier: sparse matrices, frames with lists, two classes, deletion, saving."""

import numpy as np
import pyarrow as pa
import pytest

from raydt import SparseDynamicTreeClassifier, load_model
from raydt.errors import ConfigError, InputError

scipy_sparse = pytest.importorskip("scipy.sparse")


def rows(n=150, width=30, seed=1):
    rng = np.random.default_rng(seed)
    X = scipy_sparse.csr_matrix((rng.random((n, width)) < 0.2).astype(np.int8))
    dense = X.toarray()
    return X, np.where((dense[:, 0] ^ dense[:, 1]) | dense[:, 2] & dense[:, 3], "spam", "ham")


@pytest.mark.parametrize("finder", ["updgini", "updent"])
def test_learns_forgets_and_is_proven(finder, tmp_path):
    X, y = rows()
    tree = SparseDynamicTreeClassifier(finder=finder, finder_alpha=0.05, alpha=0.0, beta=0.001).fit(X, y)
    assert tree.score(X, y) > 0.9
    tree.forget(tree.row_ids_[:40])
    tree.forget_examples(X[50:52], y[50:52])
    tree.partial_fit(X[:10], y[:10])
    report = tree.audit()
    assert (report.conformance, report.feasibility) == ("holds", "proven")
    tree.save(tmp_path / "state", with_examples=True)
    again = load_model(tmp_path / "state")
    assert again.digest() == tree.digest()
    assert again.partial_fit(X[:5], y[:5]).digest() == tree.partial_fit(X[:5], y[:5]).digest()
    tree.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict_proba(X), tree.predict_proba(X))


def test_a_column_of_lists_beside_numbers_and_text():
    X, y = rows()
    lists = pa.array([X[i].indices.tolist() for i in range(X.shape[0])], pa.list_(pa.int32()))
    frame = pa.table({"ones": lists, "size": np.arange(150) % 7 * 1.0, "kind": ["a", "b", "c"] * 50})
    tree = SparseDynamicTreeClassifier(finder="updgini", alpha=0.05, beta=0.05).fit(frame, y)
    assert tree.n_features_in_ == 2 + 30
    tree.forget(tree.row_ids_[::3])
    assert tree.audit().ok
    with pytest.raises(InputError, match="'size', 'kind' are numeric or categorical"):
        SparseDynamicTreeClassifier(finder="updent").fit(frame, y)


@pytest.mark.parametrize("finder", ["updgini", "updent"])
def test_rows_may_be_lists_arrays_arrow_columns_frames_or_matrices(finder, tmp_path):
    X, y = rows()
    arrays = [X[i].indices for i in range(X.shape[0])]
    lists = pa.array([a.tolist() for a in arrays], pa.list_(pa.int32()))
    objects = np.empty(len(arrays), dtype=object)
    objects[:] = arrays
    forms = (lists.to_pylist(), arrays, objects, lists, pa.chunked_array([lists]), pa.table({"words": lists}), X)
    trees = [SparseDynamicTreeClassifier(finder=finder, alpha=0.0, beta=0.01).fit(form, y) for form in forms]
    expected = trees[-1].predict_proba(X)
    for tree, form in zip(trees, forms, strict=True):
        np.testing.assert_array_equal(tree.predict_proba(form), expected)
        np.testing.assert_array_equal(tree.predict_proba(arrays), expected)
    tree = trees[0].partial_fit([[2**31 - 2], []], ["ham", "spam"])  # a feature may come later
    tree.forget_examples(arrays[:2], y[:2])
    assert tree.audit().ok
    tree.save(tmp_path / "state", with_examples=True)
    assert load_model(tmp_path / "state").partial_fit([[7]], ["ham"]).predict([[3]]).shape == (1,)


@pytest.mark.parametrize("X", [[[0.5], [1.5]], [["a"], ["b"]], [1, 2], "words", pa.array([1, 2])])
def test_other_forms_are_refused_with_those_that_are_taken(X):
    with pytest.raises(InputError, match=r"sequence of lists of indices, an Arrow column .* frame .* scipy sparse"):
        SparseDynamicTreeClassifier(finder="updgini").fit(X, [0, 1])


def test_what_it_does_not_take():
    X, y = rows()
    with pytest.raises(InputError, match="takes two classes"):
        SparseDynamicTreeClassifier(finder="updgini").fit(X, np.arange(150) % 3)
    with pytest.raises(InputError, match=r"^SparseDynamic.* and classes has 'c' in addition to 'a' and 'b'"):
        SparseDynamicTreeClassifier(finder="updgini").partial_fit(X[:1], ["a"], classes=["a", "b", "c"])
    tree = SparseDynamicTreeClassifier(finder="updgini").partial_fit(X, y)
    before = tree.digest()
    with pytest.raises(
        InputError, match=r"row 2: .* takes two classes .* y has 'eggs' in addition to 'ham' and 'spam'"
    ):
        tree.partial_fit(X[:3], ["ham", "spam", "eggs"])
    assert tree.classes_.tolist() == ["ham", "spam"]
    assert tree.digest() == before
    others = r"confidence_tree, .*fudyadt.* or [a-z_]+$"
    with pytest.raises(InputError, match=rf"no feature is sparse.* use learner.kind: {others}"):
        SparseDynamicTreeClassifier(finder="updgini").fit(X.toarray(), y)
    with pytest.raises(ConfigError, match="beta must be greater than 0"):
        SparseDynamicTreeClassifier(finder="updgini", beta=0.0).fit(X, y)
    with pytest.raises(ConfigError, match=r"finder_alpha=0\.001 should be greater than or equal to 0.01"):
        SparseDynamicTreeClassifier(finder_alpha=0.001).fit(X, y)
