"""The sparse best split: its estimator, and what its audit and the checks of its files find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from raydt import SparseBestSplit, load_model
from raydt.errors import ConfigError, InputError, UpdateError
from raydt.examples.features import Features
from raydt.examples.history import history_of_live
from raydt.learners import learners
from raydt.learners.best_split.options import BestSplitOptions
from raydt.learners.best_split.schedule import due

LEARNER = learners()["best_split"]
RNG = np.random.default_rng(7)
ROWS = [np.unique(RNG.integers(0, 60, RNG.integers(0, 6))) for _ in range(200)]
Y = np.array([int(len(row) > 0 and row[0] < 9) ^ int(RNG.random() < 0.15) for row in ROWS])


def csr(rows: list[np.ndarray], width: int = 60) -> Any:
    sparse = pytest.importorskip("scipy.sparse")
    indptr = np.cumsum([0, *map(len, rows)])
    return sparse.csr_matrix((np.ones(indptr[-1]), np.concatenate(rows), indptr), shape=(len(rows), width))


class TestSparseBestSplit:
    def test_rows_may_be_lists_arrow_columns_frames_or_matrices(self) -> None:
        lists = pa.array([row.tolist() for row in ROWS], pa.list_(pa.int32()))
        given = (ROWS, lists, pa.chunked_array([lists]), pa.table({"words": lists}), csr(ROWS))
        splits = {SparseBestSplit().partial_fit(X, Y).best_split_ for X in given}
        assert len(splits) == 1
        stump = SparseBestSplit().partial_fit(ROWS, Y)
        assert stump.predict(lists).tolist() == stump.predict(ROWS).tolist()

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

    @pytest.mark.parametrize("finder", ["updgini", "updent", "scan", "auto"])
    def test_learning_forgetting_and_saving(self, finder: str, tmp_path: Path) -> None:
        stump = SparseBestSplit(finder=finder, alpha=0.5).partial_fit(ROWS[:120], Y[:120])
        stump.partial_fit(ROWS[120:], Y[120:])
        forgotten = SparseBestSplit(finder=finder, alpha=0.5).partial_fit(ROWS[:120], Y[:120])
        forgotten.partial_fit(ROWS[120:], Y[120:])
        assert stump.forget(stump.row_ids_[:20]).active == 180
        forgotten.forget_examples(ROWS[120:140], Y[120:140])
        for one in (stump, forgotten):
            assert one.audit().feasibility == "proven"
            assert one.predict_proba(ROWS).sum(axis=1) == pytest.approx(1.0)
        stump.save(tmp_path / "state", with_examples=True)
        again = load_model(tmp_path / "state")
        assert (again.digest(), again.best_split_) == (stump.digest(), stump.best_split_)
        assert again.partial_fit(ROWS[:5], Y[:5]).digest() == stump.partial_fit(ROWS[:5], Y[:5]).digest()
        stump.save(tmp_path / "model")
        model = load_model(tmp_path / "model")
        assert model.best_split_ == stump.best_split_
        assert model.predict(ROWS).tolist() == stump.predict(ROWS).tolist()

    def test_what_it_does_not_take(self) -> None:
        with pytest.raises(
            InputError, match=r"row 3: .* takes two classes .* y has 0 in addition to 2 and 1\. .* == 2 does"
        ):
            SparseBestSplit().partial_fit([[0], [1], [2], [3]], [2, 1, 2, 0])
        stump = SparseBestSplit().partial_fit([[0], [1]], [0, 1])
        before = stump.digest()
        for X, y, error, words in (
            ([[0]], [2], InputError, "takes two classes"),
            ([[0, 0]], [1], InputError, "index 0 is repeated"),
            ([[-1]], [1], InputError, "index -1 is negative"),
            ([["a"]], [1], InputError, "not a list of rows"),
            (np.eye(2), [0, 1], InputError, "rows must be lists of indices"),
            (pa.table({"x": [1.0]}), [1], InputError, "X lacks the column 'indices'"),
        ):
            with pytest.raises(error, match=words):
                stump.partial_fit(X, y)
        with pytest.raises(UpdateError, match="row 0: no live example equals this one"):
            stump.forget_examples([[1]], [0])
        assert stump.digest() == before
        with pytest.raises(InputError, match="numeric or categorical"):
            SparseBestSplit().partial_fit(pa.table({"x": [1.0, 2.0]}), [0, 1])
        with pytest.raises(ConfigError, match="alpha=0 should be greater than or equal"):
            SparseBestSplit(alpha=0).partial_fit(ROWS, Y)

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


def state_of(finder: str) -> tuple[Any, Features, dict[str, Any], dict[int, dict[str, Any]], Any]:
    """A model in which one feature is far better than all others."""
    rows = [np.union1d(row, [7]) if y else np.setdiff1d(row, [7]) for row, y in zip(ROWS[:-5], Y, strict=False)]
    rows += ROWS[-5:]
    stump = SparseBestSplit(finder=finder, feature_groups=3, n_features=60).partial_fit(rows, Y)
    state, groups = stump.session_.state()
    features = stump._features()
    return stump._fitted_options, features, state, groups, history_of_live(state, groups, features)


def another_feature(state: dict[str, Any], group: dict[str, Any]) -> None:
    """One that is by far not the best, with its counts."""
    at = int(np.argmin(group["n1"]))
    state["split"][[0, 3, 4]] = group["feature"][at], group["n1"][at], group["c11"][at]


def wrong_counts(state: dict[str, Any], group: dict[str, Any]) -> None:
    state["split"][3] += 1


def wrong_counter(state: dict[str, Any], group: dict[str, Any]) -> None:
    group["n1"][0] += 1


def wrong_bucket(state: dict[str, Any], group: dict[str, Any]) -> None:
    group["bucket"][0] = 0


def no_bucket(state: dict[str, Any], group: dict[str, Any]) -> None:
    group["bucket"][0] = 3000


def lost_row(state: dict[str, Any], group: dict[str, Any]) -> None:
    state["id"][0] = 999


MUTANTS = (another_feature, wrong_counts, wrong_counter, wrong_bucket, no_bucket, lost_row)


@pytest.mark.parametrize("finder", ["updgini", "updent"])
@pytest.mark.parametrize("mutate", MUTANTS)
def test_the_audit_finds(finder: str, mutate: Callable[..., None]) -> None:
    options, features, state, groups, history = state_of(finder)
    assert LEARNER.audit(options, features, state, history, groups).ok
    state = {name: array.copy() for name, array in state.items()}
    mutate(state, groups[1])
    report = LEARNER.audit(options, features, state, history, groups)
    assert not report.ok
    assert report.failures
    assert (report.feasibility == "violated") == (mutate is another_feature)


@pytest.mark.parametrize("name", ["n1", "c11", "feature", "bucket", "node", "sparse_lengths"])
def test_files_with_other_counters_are_refused(name: str) -> None:
    options, features, state, groups, _ = state_of("updgini")
    LEARNER.check(options, features, 2, state, groups)
    groups[1][name][0] = 3000
    with pytest.raises(ValueError, match=r".*"):
        LEARNER.check(options, features, 2, state, groups)


@pytest.mark.parametrize(("place", "value"), [(0, 60), (1, -1), (2, 10**6), (3, 0), (4, 199)])
def test_a_split_that_cannot_be_is_refused(place: int, value: int) -> None:
    options, features, state, groups, _ = state_of("updgini")
    state["split"][place] = value
    with pytest.raises(ValueError, match="'split'"):
        LEARNER.check(options, features, 2, state, groups)
