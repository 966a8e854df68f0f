"""SparseDynamicTreeClassifier: sparse matrices, frames with lists, two classes, deletion, saving."""

import numpy as np
import pyarrow as pa
import pytest

from raydt import SparseDynamicTreeClassifier
from raydt.errors import ConfigError, InputError
from raydt.messages import message, message_of
from tests.refusals import refused

scipy_sparse = pytest.importorskip("scipy.sparse")


def rows(n=150, width=30, seed=1):
    rng = np.random.default_rng(seed)
    X = scipy_sparse.csr_matrix((rng.random((n, width)) < 0.2).astype(np.int8))
    dense = X.toarray()
    return X, np.where((dense[:, 0] ^ dense[:, 1]) | dense[:, 2] & dense[:, 3], "spam", "ham")


def test_a_column_of_lists_beside_numbers_and_text():
    X, y = rows()
    lists = pa.array([X[i].indices.tolist() for i in range(X.shape[0])], pa.list_(pa.int32()))
    frame = pa.table({"ones": lists, "size": np.arange(150) % 7 * 1.0, "kind": ["a", "b", "c"] * 50})
    tree = SparseDynamicTreeClassifier(finder="updgini", alpha=0.05, beta=0.05).fit(frame, y)
    assert tree.n_features_in_ == 2 + 30
    tree.forget(tree.row_ids_[::3])
    assert tree.audit().ok
    with pytest.raises(InputError, match="features 'size', 'kind' are"):
        SparseDynamicTreeClassifier(finder="updent").fit(frame, y)


@pytest.mark.parametrize("X", [[[0.5], [1.5]], [["a"], ["b"]], [1, 2], "words", pa.array([1, 2])])
def test_other_forms_are_refused_with_those_that_are_taken(X):
    with pytest.raises(InputError) as caught:
        SparseDynamicTreeClassifier(finder="updgini").fit(X, [0, 1])
    assert message_of(caught.value).id in ("estimators.no_lists", "estimators.bad_lists")


def test_what_it_does_not_take():
    X, y = rows()
    with refused("estimators.third_class", InputError, label=2, first=0, second=1):
        SparseDynamicTreeClassifier(finder="updgini").fit(X, np.arange(150) % 3)
    with refused("estimators.third_class", InputError, row=None, argument="classes", label="c", first="a", second="b"):
        SparseDynamicTreeClassifier(finder="updgini").partial_fit(X[:1], ["a"], classes=["a", "b", "c"])
    others = r"confidence_tree, .*fudyadt.* or [a-z_]+$"
    with pytest.raises(InputError, match=rf"no feature .*sparse.* use learner.kind: {others}"):
        SparseDynamicTreeClassifier(finder="updgini").fit(X.toarray(), y)
    with pytest.raises(ConfigError, match=message("learners.no_beta")):
        SparseDynamicTreeClassifier(finder="updgini", beta=0.0).fit(X, y)
