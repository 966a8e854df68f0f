"""The sparse best split: its estimator, and what its audit and the checks of its files find."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from raydt import SparseBestSplit
from raydt.errors import InputError
from raydt.learners.best_split.coordinator import due
from raydt.learners.best_split.options import BestSplitOptions


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
