"""The best split and its oracle, the forest, and estimators on sparse matrices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from pipelines.prediction import _predicted
from pipelines.updating.changes import StateNames, find_rows, open_rows
from pipelines.updating.lists import ListChanges, open_insertions
from raydt import (
    ExactForestClassifier,
    FullyDynamicTreeClassifier,
    SparseBestSplit,
    SparseDynamicTreeClassifier,
    load_model,
)
from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows
from raydt.errors import ConfigError, InputError
from raydt.examples.store import ExampleStore
from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.finders.pool import buckets_of
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.best_split.coordinator import due
from raydt.learners.best_split.options import BestSplitOptions
from raydt.learners.forest import coordinator
from raydt.learners.forest.model import leaf_votes
from raydt.learners.sparse_tree import LEARNER
from raydt.learners.sparse_tree.coordinator import WindowLength
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.messages import message, message_of
from raydt.sessions.saved_model import understood
from raydt.sessions.session import InProcessSession
from tests.cases import open_state
from tests.refusals import refused

# -- best split ------------------------------------------------------------------------------------------------------
# The sparse best split: its estimator, and what its audit and the checks of its files find.


class TestSparseBestSplit:
    def test_a_feature_may_come_later(self) -> None:
        stump = SparseBestSplit().partial_fit([[0], [1]], [0, 1]).partial_fit([[2**31 - 2], [5]], [1, 0])
        assert stump.audit().ok
        with pytest.raises(InputError, match="index 60"):
            SparseBestSplit(n_features=60).partial_fit([[60]], [0])

    def test_n_features_is_that_of_frames_too(self) -> None:
        frame = pa.table({"words": pa.array([[0, 7], [3]], pa.list_(pa.int32()))})
        assert SparseBestSplit().partial_fit(frame, [0, 1]).n_features_in_ == 8
        declared = frame.replace_schema_metadata({"n_features": "9"})
        for form in (frame, declared, frame.to_pandas()):
            stump = SparseBestSplit(n_features=1000).partial_fit(form, [0, 1])
            assert stump.n_features_in_ == 1000
            stump.partial_fit([[999]], [1])
            with pytest.raises(InputError, match="beyond the 1000 features"):
                stump.partial_fit([[1000]], [1])

    def test_ties_and_empty_sides(self) -> None:
        stump = SparseBestSplit().partial_fit([[0], [0], [], [1]], [0, 1, 1, 1])
        assert stump.best_split_.feature == 0
        assert stump.predict([[0], []]).tolist() == [1, 1]  # a tie goes to the majority of both sides
        always = SparseBestSplit().partial_fit([[0], [0]], [0, 0])
        assert always.predict_proba([[]]).tolist() == [[1.0]]
        empty = SparseBestSplit().partial_fit([[]], [1], classes=[0, 1])
        assert empty.best_split_ == (-1, 0.0)
        assert empty.predict([[3]]).tolist() == [1]


def test_searches_are_due_by_the_number_of_the_update() -> None:
    whole = due(0, 40, 5, 7).tolist()
    assert whole == [4, 6, 13, 20, 27, 34]
    for size in (1, 3, 11):
        parts = [due(begin, min(begin + size, 40), 5, 7) for begin in range(0, 40, size)]
        assert np.concatenate(parts).tolist() == whole


@pytest.mark.parametrize(("seen", "chosen"), [(149, "scan"), (150, "updent")])
def test_auto_at_the_border(seen: int, chosen: str) -> None:
    options = BestSplitOptions(finder="auto", criterion="entropy")
    assert options.chosen(seen, 30, 10) == chosen


# -- sparse limits ---------------------------------------------------------------------------------------------------
# Where sparse learners end: widths, alphas, options that mean nothing, and trees that no tree can be.


def _session(n_features: int, dense: int, **options: object) -> InProcessSession:
    names = tuple(f"x{j}" for j in range(dense))
    features = Features(names, (False,) * dense, 3, n_features)
    return InProcessSession(LEARNER, SparseTreeOptions(finder="updgini", **options), features, 2)


def _insert(session: InProcessSession, rows: list[list[int]], y: list[int], n_features: int, dense: int = 0) -> None:
    n = len(rows)
    sparse = SparseRows.of_lengths(
        [len(row) for row in rows], np.array([j for row in rows for j in row], dtype=np.int32), n_features
    )
    op, ids = np.full(n, INSERT, dtype=np.int8), np.arange(n)
    X = np.zeros((n, dense))
    session.apply(UpdateBatch(0, op, ids, X, np.array(y, dtype=np.int32), 2, np.full(n, -1), 0, None, sparse))


@pytest.mark.parametrize("alpha", [0.01, 0.009, 1e3, 1001.0, float("inf"), float("nan")])
@pytest.mark.parametrize(("options", "name"), [(BestSplitOptions, "alpha"), (SparseTreeOptions, "finder_alpha")])
def test_alphas_have_bounds(options: type, name: str, alpha: float) -> None:
    if 0.01 <= alpha <= 1e3:
        assert getattr(options(finder="updgini", **{name: alpha}), name) == alpha
    else:
        with pytest.raises(ValidationError, match=f"\\n{name}\\n"):
            options(finder="updgini", **{name: alpha})


@pytest.mark.parametrize("dense", [0, 2])
def test_the_last_feature_that_fits_is_split_by(dense: int) -> None:
    width = LARGEST_WIDTH - dense
    session = _session(width, dense, alpha=0.1, beta=0.2)
    _insert(session, [[width - 1], []] * 20, [1, 0] * 20, width, dense)
    assert session.model()["feature"].tolist() == [LARGEST_WIDTH - 1, -1, -1]


@pytest.mark.parametrize("finder", ["updgini", "updent"])
def test_buckets_of_the_extreme_alphas_are_numbers(finder: str) -> None:
    for alpha in (0.01, 1e3):
        buckets = buckets_of(finder, alpha)  # type: ignore[arg-type]
        assert all(np.isfinite(array).all() for array in buckets[1:])
        BestSplitOptions(finder=finder, alpha=alpha)
        SparseTreeOptions(finder=finder, finder_alpha=alpha)


# -- speculation -----------------------------------------------------------------------------------------------------
# The length of the windows in which learners speculate.


def test_a_window_reaches_as_far_as_the_next_change() -> None:
    length = WindowLength(16, 100, 32)
    lengths = [length.steps]
    for changed in (False, False, False, True, True, True, True, False):
        length.adapt(changed=changed)
        lengths.append(length.steps)
    assert lengths == [32, 64, 100, 100, 50, 25, 16, 16, 32]


# -- forest estimator ------------------------------------------------------------------------------------------------
# The estimators of the exact forest: classes and categories by value, lazy trees, importances.

LEARNER_FOREST = learners()["forest"]
SMALL = {"n_estimators": 12, "sample_share": 0.5, "max_depth": 8, "min_samples_split": 4}


def data(n: int = 300, seed: int = 0) -> tuple[Any, Any]:
    draws = np.random.default_rng(seed)
    X = np.round(draws.normal(size=(n, 4)), 2)
    X[:, 3] = draws.integers(0, 3, n)
    X[::17, 1] = np.nan
    return X, (X[:, 0] + X[:, 3] > 1).astype(int)


def letters(n: int = 300) -> tuple[Any, Any]:
    X, _ = data(n)
    return X, np.array(["c", "a", "d", "b"])[np.floor(X[:, 0] * 2).astype(int) % 4]


def test_no_order_of_classes_shows() -> None:
    X, y = letters()
    whole = ExactForestClassifier(**SMALL).fit(X, y)
    parts = np.concatenate([np.flatnonzero(y == label) for label in "dbca"])
    other = ExactForestClassifier(**SMALL).fit(X[parts[:1]], y[parts[:1]], ids=parts[:1])
    for part in np.array_split(parts[1:], 9):
        other.partial_fit(X[part], y[part], ids=part)
    assert other.classes_.tolist() != whole.classes_.tolist()
    assert other.digest() == whole.digest()
    assert other.predict(X).tolist() == whole.predict(X).tolist()
    assert other.audit().ok


def test_lazy_trees_are_rebuilt_when_somebody_looks() -> None:
    X, y = data()
    forest = ExactForestClassifier(**SMALL, rebuild="lazy").fit(X, y)
    nodes = forest.session_.statistics()["nodes"]
    forest.forget(np.arange(200), digests=False)
    few = forest.session_.statistics()["nodes"]
    forest.predict(X[:1])
    assert few < nodes
    assert forest.digest() == ExactForestClassifier(**SMALL).fit(X[200:], y[200:], ids=range(200, 300)).digest()


def test_features_that_tell_nothing_are_not_important() -> None:
    X, y = data()
    forest = ExactForestClassifier(**SMALL).fit(X, y)
    shares = forest.feature_importances_
    assert shares.sum() == pytest.approx(1.0)
    assert min(shares[0], shares[3]) > max(shares[1], shares[2])
    assert ExactForestClassifier(**SMALL).fit(X, np.ones(300)).feature_importances_.tolist() == [0.0] * 4


def colours() -> tuple[Any, Any]:
    pd = pytest.importorskip("pandas")
    draws = np.random.default_rng(3)
    words = draws.choice(["red", "green", "blue", "black", "white", None], 200)
    frame = pd.DataFrame({"colour": words, "x": draws.random(200).round(1)})
    return frame, np.isin(words, ["red", "black"]).astype(int)


def test_categories_count_by_value_and_not_by_the_order_of_their_appearance() -> None:
    frame, y = colours()
    forward = ExactForestClassifier(**SMALL).fit(frame, y, ids=np.arange(200))
    backward = ExactForestClassifier(**SMALL).fit(frame[::-1], y[::-1], ids=np.arange(200)[::-1])
    assert forward.digest() == backward.digest()
    assert forward.score(frame, y) > 0.95
    other = type(frame)({"colour": ["violet", None], "x": [0.5, 0.5]})
    assert forward.predict(other).tolist() == backward.predict(other).tolist()
    rare = ExactForestClassifier(**SMALL).fit(frame[10:], y[10:], ids=np.arange(10, 200))
    forward.forget(np.arange(10))
    assert forward.digest() == rare.digest()


def test_codes_instead_of_values_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, y = colours()
    true = type(LEARNER_FOREST).traits
    monkeypatch.setattr(type(LEARNER_FOREST), "traits", lambda self, options: with_codes(true(self, options)))
    forward = ExactForestClassifier(**SMALL).fit(frame, y, ids=np.arange(200))
    backward = ExactForestClassifier(**SMALL).fit(frame[::-1], y[::-1], ids=np.arange(200)[::-1])
    assert forward.digest() != backward.digest()


def with_codes(traits: Any) -> Any:
    return replace(traits, reading=replace(traits.reading, by_value=False))


# -- forest limits ---------------------------------------------------------------------------------------------------
# The exact forest at its limits: large leaves, entries beyond 32 bits, trees that stay with their shards.


@pytest.mark.parametrize("rows", [2**23 - 1, 2**23, 9_000_000, 2**31 - 1])
def test_votes_of_large_leaves_are_exact(rows: int) -> None:
    totals = np.array([[rows - 5, 5], [rows, 0]])
    assert leaf_votes(totals, False).tolist() == [[(rows - 5 << 40) // rows, (5 << 40) // rows], [1 << 40, 0]]


def session(**options: object) -> InProcessSession:
    chosen = LEARNER_FOREST.Options(**{"n_estimators": 1, "sample_share": 1.0, "min_samples_split": 2, **options})
    return InProcessSession(LEARNER_FOREST, chosen, Features(("x",), (False,), 1), 1)


def test_more_entries_than_are_numbered_are_refused_before_anything_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MOST_ENTRIES", 25)
    forest = session(n_estimators=5)
    X, y = np.arange(5.0)[:, None], np.array([0, 1, 0, 1, 0], dtype=np.int32)
    op = np.full(5, INSERT, dtype=np.int8)
    forest.apply(UpdateBatch(0, op, np.arange(5), X, y, 2, np.full(5, -1)))
    with refused("learners.examples", InputError, examples=6, what="each in 5 trees", most=5):
        forest.apply(UpdateBatch(5, op[:1], np.array([5]), X[:1], y[:1], 2, np.array([-1])))
    assert forest.statistics()["active"] == 5


def test_trees_leave_their_shards_only_when_they_are_wanted() -> None:
    """Bytes of a batch do not grow with the trees; the second digest without an update fetches nothing."""
    options = LEARNER_FOREST.Options(n_estimators=8, sample_share=1.0, min_samples_split=2)
    forest = InProcessSession(LEARNER_FOREST, options, Features(("x",), (False,), 1), 4, WorkPlan(shared_store=False))
    draws = np.random.default_rng(0)
    op, none, sent = np.full(50, INSERT, dtype=np.int8), np.full(50, -1), []
    for start in range(0, 500, 50):
        before = forest.statistics()["bytes_exchanged"]
        X, y = draws.random((50, 1)), draws.integers(0, 2, 50).astype(np.int32)
        forest.apply(UpdateBatch(start, op, np.arange(start, start + 50), X, y, 2, none))
        sent.append(forest.statistics()["bytes_exchanged"] - before)
    assert forest.statistics()["nodes"] > 500
    assert max(sent) == min(sent)
    digest, rounds = forest.digest(), forest.statistics()["rounds"]
    assert forest.digest() == digest
    assert forest.statistics()["rounds"] == rounds
    one = InProcessSession(LEARNER_FOREST, options, Features(("x",), (False,), 1))
    one.restore(*forest.state())
    assert one.digest() == digest


# -- forest mutants --------------------------------------------------------------------------------------------------
# Forests that remember: each mutant breaks one rule of exactness, and the twin's digest shows it.
#
# A mutant is the learner with one function replaced before its kernels are compiled, so each runs in its own process.

ROOT = Path(__file__).parents[2]

#: Of each mutant the module, a text that is there once, and what a forgetful author might have written instead.
MUTANTS = {
    "a candidate keeps its count": (
        "candidates",
        "    add_to_bucket(buckets[b], y, by, rules.numeric)\n    return",
        "    add_to_bucket(buckets[b], y, max(by, 0), rules.numeric)\n    return",
    ),
    "a best candidate that got worse stays": (
        "build",
        "        if feature != nodes[node].feature or threshold != nodes[node].threshold:\n",
        "        if by > 0 and (feature != nodes[node].feature or threshold != nodes[node].threshold):\n",
    ),
    "extremes stay": ("candidates", "tried.lows == 0 or tried.highs == 0", "tried.lows < 0 or tried.highs < 0"),
    "features that were constant stay out": (
        "build",
        "blocks.skipped[block, word] & scratch.differs[word])",
        "blocks.skipped[block, word] & np.uint64(0))",
    ),
    "features stay out although the row differs in them": (
        "build",
        "known & ~scratch.differs[word] if",
        "known if",
    ),
    "counts of other candidates are kept": ("candidates", "if not blocks.tried[old, at - 1].stale:", "if True:"),
    "rows stay on their side": (
        "build",
        "            return False\n    return True",
        "            break\n    return True",
    ),
    "a deleted row leaves by the new split": (
        "build",
        "            if by > 0:  # one that is deleted",
        "            if True:  # one that is deleted",
    ),
    "a row is compared with those where it would have gone": (
        "build",
        "                if below != before:",
        "                if False:",
    ),
    "a byte counts any number of rows": ("candidates", "FITS = 255 // STEP * STEP", "FITS = 1 << 20"),
    "what fills the last step is a value": ("candidates", "values[i] = np.nan", "values[i] = values[0]"),
    "categories are counted like thresholds": (
        "candidates",
        "                if not category:\n                    before",
        "                if True:\n                    before",
    ),
    "a feature is constant if its last row is like its first": (
        "build",
        "            differs |= x != first",
        "            differs = x != first",
    ),
    "memberships in the order of arrival": (
        "trees",
        "        of_forest, ids = self.options.n_estimators, np.ascontiguousarray(ids, dtype=np.int64)\n",
        "        came, self.__dict__['came'] = self.__dict__.get('came', 0), self.__dict__.get('came', 0) + len(ids)\n"
        "        of_forest, ids = self.options.n_estimators, np.arange(came, came + len(ids))\n",
    ),
    "what lies beside a path stays closed": (
        "build",
        "    node = np.int64(scratch.stack[place])\n    if may_split(",
        "    node = np.int64(scratch.stack[place])\n    if place == 1 and may_split(",
    ),
    "a feature is taken for constant that is not": (
        "build",
        "constant[0, word] = constant[1, word]",
        "constant[0, word] |= constant[1, word] << np.uint64(1)",
    ),
    "equal votes go to the class that came first": (
        "model",
        "    order = order[order < votes.shape[1]]\n",
        "    order = np.arange(votes.shape[1])\n",
    ),
    "classes are digested by their codes": (
        "coordinator",
        "Counted(live[counts[live] > 0], None, per_row)",
        "Counted(np.flatnonzero(counts), None, per_row)",
    ),
    "classes without examples are digested": ("coordinator", "live[counts[live] > 0], None", "live, None"),
    "the lower word of a number with a weight stays": (
        "labels",
        "    sums[2] += by * (y & _LOWER)",
        "    sums[2] += max(by, 0) * (y & _LOWER)",
    ),
    "whether labels are crowded goes by rows": (
        "labels",
        "            by = weight if what == ADD else -weight\n",
        "            by = 1 if what == ADD else -1\n",
    ),
    "leaves that may be split stay": ("build", "if same or forest.nodes", "if same or by > 0 or forest.nodes"),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kernels of mutants are kept: those that no mutant changes are compiled once."""
    return tmp_path_factory.mktemp("kernels")


def run(tree: Path, kernels: Path, sequences: int) -> int:
    """Exit code of the known cases and the sequences under the sources in ``tree``: 0 equal, 7 a digest differs."""
    code = (
        "import sys, numpy as np\n"
        "from tests.property.test_forest_twin import KNOWN, WAYS, Run\n"
        "try:\n"
        "    for known in KNOWN:\n"
        "        known()\n"
        "except AssertionError:\n"
        "    sys.exit(7)\n"
        f"for seed in range({sequences}):\n"
        "    draws = np.random.default_rng([99, seed])\n"
        "    run = Run(draws, bool(seed % 3 == 0), bool(seed % 2))\n"
        "    try:\n"
        "        WAYS[seed % len(WAYS)](run, int(draws.integers(5, 30)))\n"
        "        run.same()\n"
        "    except AssertionError:\n"
        "        sys.exit(7)\n"
    )
    path = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(kernels)}
    return subprocess.run([sys.executable, "-c", code], env=environment, cwd=tree, check=False).returncode


@pytest.mark.nightly  # each compiles the kernels of the forest
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, kernels: Path, tmp_path: Path) -> None:
    module, old, new = MUTANTS[name]
    for folder in ("tests", "examples", "pipelines", "actors"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copytree(ROOT / "raydt", tmp_path / "raydt")
    path = tmp_path / "raydt" / "learners" / "forest" / f"{module}.py"
    text = path.read_text()
    assert text.count(old) == 1, "the text to replace is not there"
    path.write_text(text.replace(old, new))
    assert run(tmp_path, kernels, 2000) == 7  # most within 100, features taken for constant after 1,260


# -- estimator sparse ------------------------------------------------------------------------------------------------
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
        source = open_insertions(path, None, saved, names)
        changes = ListChanges(saved, names, None, source)
        new = changes.read(ExampleStore(1).find)
        assert new.sparse.indices.tolist() == [1, 3, 5]
        assert new.X.tolist() == [[1.0], [2.0]]
        assert changes.saved.classes == ["a", "b"]

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
