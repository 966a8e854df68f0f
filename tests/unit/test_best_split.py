"""The best split, limits of sparse finders, and speculation."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from raydt import SparseBestSplit
from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows
from raydt.errors import InputError
from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.finders.pool import buckets_of
from raydt.learners.best_split.coordinator import due
from raydt.learners.best_split.options import BestSplitOptions
from raydt.learners.sparse_tree.coordinator import WindowLength
from raydt.learners.sparse_tree.learner import LEARNER
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.sessions.session import InProcessSession

# -- best split ------------------------------------------------------------------------------------------------------
#
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
        for given in (frame, declared, frame.to_pandas()):
            stump = SparseBestSplit(n_features=1000).partial_fit(given, [0, 1])
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
#
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
#
# The length of the windows in which learners speculate.


def test_a_window_reaches_as_far_as_the_next_change() -> None:
    length = WindowLength(16, 100, 32)
    lengths = [length.steps]
    for changed in (False, False, False, True, True, True, True, False):
        length.adapt(changed=changed)
        lengths.append(length.steps)
    assert lengths == [32, 64, 100, 100, 50, 25, 16, 16, 32]
