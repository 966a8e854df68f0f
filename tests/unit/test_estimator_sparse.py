"""Estimators on sparse matrices."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.prediction import _predicted
from pipelines.saved_runs import open_state
from pipelines.updating.changes import StateNames, find_rows, no_deletions, open_rows, read_insertions
from raydt import FullyDynamicTreeClassifier, SparseDynamicTreeClassifier, load_model
from raydt.errors import ConfigError, InputError
from raydt.examples.store import ExampleStore
from raydt.examples.updates import Features
from raydt.messages import message, message_of
from raydt.sessions.saved_model import understood
from tests.refusals import refused

# -- estimator sparse ------------------------------------------------------------------------------------------------
#
# Sparse matrices and columns of lists in estimators and in files for a saved model.

scipy_sparse = pytest.importorskip("scipy.sparse")


@pytest.fixture
def estimator():
    return SparseDynamicTreeClassifier()


def frame(lists, **columns):
    return pa.table({**columns, "words": pa.array(lists, pa.list_(pa.int32()))})


ROWS = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]])


class TestMatrices:
    @pytest.mark.parametrize("make", ["csr_array", "csc_matrix", "coo_array", "dok_array"])
    @pytest.mark.parametrize("kind", [np.int8, np.float64, np.bool_])
    def test_ones_are_taken_whatever_their_layout(self, estimator, make, kind):
        X = getattr(scipy_sparse, make)(ROWS.astype(kind))
        estimator.fit(X, [0, 0, 1])
        assert estimator.predict(X).tolist() == [0, 0, 1]
        assert estimator.predict_proba(X).tolist() == [[1, 0], [1, 0], [0, 1]]
        assert estimator.n_features_in_ == 4
        assert not hasattr(estimator, "feature_names_in_")
        estimator.partial_fit(X[:2] if make.startswith("csr") else X.tocsr()[:2], [1, 1])
        state, groups = estimator.session_.state()
        assert state["y"].tolist() == [0, 0, 1, 1, 1]
        assert sum(len(arrays["sparse_values"]) for arrays in groups.values()) == 5
        estimator.forget([0], digests=False)
        assert sum(len(arrays["sparse_values"]) for arrays in estimator.session_.state()[1].values()) == 3

    def test_explicit_zeros_and_unsorted_indices(self, estimator):
        X = scipy_sparse.csr_array((np.array([1.0, 0.0, 1.0]), np.array([3, 2, 0]), np.array([0, 3])), shape=(1, 4))
        assert estimator.fit(X, [0]).predict(X).tolist() == [0]

    def test_what_is_refused(self, estimator):
        X = scipy_sparse.csr_array(ROWS * 2.5)
        with refused("estimators.not_one", InputError, row=0, column="x1", value=2.5):
            estimator.fit(X, [0, 0, 1])
        twice = scipy_sparse.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(1, 4))
        with refused("estimators.not_one", InputError, value=2.0):
            estimator.fit(twice, [0])
        estimator.fit(scipy_sparse.csr_array(ROWS), [0, 0, 1])
        with refused("estimators.other_width", InputError, width=3, estimator="SparseDynamicTreeClassifier", wanted=4):
            estimator.predict(scipy_sparse.csr_array(ROWS[:, :3]))
        with refused("estimators.wants_matrix", InputError):
            estimator.predict(ROWS)
        with refused("estimators.sparse_categories", InputError):
            SparseDynamicTreeClassifier(categorical_features=[0]).fit(scipy_sparse.csr_array(ROWS), [0, 0, 1])


class TestFrames:
    def test_lists_beside_numbers(self, estimator):
        X = frame([[3, 1], [], [0]], size=[0.5, 1.5, 2.5])
        assert estimator.fit(X, [0, 0, 1]).predict(X).tolist() == [0, 0, 1]
        assert estimator.feature_names_in_.tolist() == ["size", "words"]
        assert estimator.n_features_in_ == 1 + 4
        for named in ([1], [False, True]):  # the lists are a column of X, too
            found = SparseDynamicTreeClassifier(categorical_features=named).fit(X.select(["words", "size"]), [0, 0, 1])
            assert found._features().categorical == (True,)
        with refused("estimators.list_categories", InputError, column="words"):
            SparseDynamicTreeClassifier(categorical_features=["words"]).fit(X, [0, 0, 1])
        _, groups = estimator.session_.state()
        assert np.concatenate([groups[g]["X"] for g in sorted(groups)], axis=1).tolist() == [[0.5], [1.5], [2.5]]

    def test_width_of_the_metadata(self, estimator):
        X = frame([[3, 1], []]).replace_schema_metadata({"n_features": "9"})
        assert estimator.fit(X, [0, 1]).n_features_in_ == 9
        estimator.partial_fit(frame([[8]]), [0])

    @pytest.mark.parametrize(
        ("lists", "row", "name", "parameters"),
        [
            ([[1], [4]], 1, "index_beyond", {"value": "4", "width": 4}),
            ([[1], None], 1, "no_list", {}),
            ([[1, None]], 0, "null_index", {}),
            ([[1, 1]], 0, "repeated_index", {"value": "1"}),
            ([[1, -1]], 0, "negative_index", {"value": "-1"}),
        ],
    )
    def test_rows_that_are_refused(self, estimator, lists, row, name, parameters):
        estimator.fit(frame([[3], []]), [0, 1])
        with refused(f"rows.{name}", InputError, row=row, column="words", **parameters) as caught:
            estimator.partial_fit(frame(lists), [0] * len(lists))
        assert "file" not in caught.value.remedy

    def test_frames_that_are_refused(self, estimator):
        estimator.fit(frame([[3], []], size=[1, 2]), [0, 1])
        with refused("estimators.no_column", InputError, name="words"):
            estimator.predict(pa.table({"size": [1]}))
        with refused("estimators.other_column", InputError, kind="integers", was="lists of indices"):
            estimator.predict(pa.table({"size": [1], "words": [1]}))

    def test_a_learner_without_sparse_features(self):
        refusal = r"column 'words': .* which this learner does not take. Use learner.kind: best"
        with pytest.raises(InputError, match=refusal):
            FullyDynamicTreeClassifier().fit(frame([[3], []], size=[1, 2]), [0, 1])
        with refused("estimators.not_dense", TypeError):
            FullyDynamicTreeClassifier().fit(scipy_sparse.csr_array(ROWS), [0, 0, 1])


class TestFilesForAModel:
    """What ``raydt predict`` and ``raydt update`` do with files of sparse rows."""

    @pytest.fixture
    def saved(self, estimator, tmp_path):
        table = frame([[3, 1], [], [5], []], size=[0, 1, 0, 1]).replace_schema_metadata({"n_features": "6"})
        estimator.fit(table, ["a", "b", "a", "b"]).save(tmp_path / "state", with_examples=True)
        return open_state(tmp_path / "state")[0]

    def read(self, saved, folder, table):
        pq.write_table(table, folder / "t.parquet")
        return open_rows(saved, *find_rows(saved, str(folder / "t.parquet"), None, wanted={}))

    def test_predictions(self, saved, tmp_path):
        assert saved.features == Features(("size",), (False,), 16, 6, "words")
        source = self.read(saved, tmp_path, frame([[3, 1], None, [5]], size=[1, 2, 0], other=[0, 0, 0]))
        (rows,) = source.rows()
        assert list(rows.bad) == [1]
        predicted, *shares = (column.to_pylist() for column in _predicted(saved, saved.predictor(), rows))
        expected = load_model(tmp_path / "state").predict(frame([[3, 1], [5]], size=[1, 0])).tolist()
        assert predicted == [expected[0], None, expected[1]]
        assert [share[1] for share in shares] == [None, None]

    def test_insertions(self, saved, tmp_path):
        table = frame([[3, 1], [5]], size=[1, 2], y=["b", "a"])
        pq.write_table(table, tmp_path / "new.parquet")
        path, names = str(tmp_path / "new.parquet"), StateNames.of(saved)
        new = read_insertions(path, None, saved, names, ExampleStore(1).find, no_deletions())
        assert new.sparse.indices.tolist() == [1, 3, 5]
        assert new.X.tolist() == [[1.0], [2.0]]
        assert new.classes == ["a", "b"]

    @pytest.mark.parametrize(
        ("columns", "name", "wrong"),
        [
            ({"size": [1]}, "no_feature", "words"),
            ({"size": [1], "words": [1]}, "other_column", "words"),
            ({"size": [[1]], "words": [[1]]}, "other_column", "size"),
        ],
    )
    def test_columns_of_another_kind(self, saved, tmp_path, columns, name, wrong):
        with refused(f"updates.{name}", column=wrong):
            self.read(saved, tmp_path, pa.table(columns))

    @pytest.mark.parametrize(
        "change",
        [
            lambda features: [features[1], features[0]],
            lambda features: [*features, features[1]],
            lambda features: [features[0], {**features[1], "features": 0}],
            lambda features: [features[0], {**features[1], "features": 2**31}],
        ],
    )
    def test_a_manifest_that_does_not_fit(self, saved, change):
        meta = {**saved.meta, "features": change(saved.meta["features"])}
        with refused("models.unfit", InputError, kind="state"):
            understood(meta, saved.components, "state")
        meta = {**saved.meta, "learner": {"kind": "fudyadt"}}
        with refused("models.unfit", InputError, reason=message("models.sparse_last")):
            understood(meta, saved.components, "state")


# -- sparse tree estimator -------------------------------------------------------------------------------------------
#
# SparseDynamicTreeClassifier: sparse matrices, frames with lists, two classes, deletion, saving.


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
