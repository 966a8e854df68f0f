"""Series for the charts: merging must equal having written fewer rows."""

from __future__ import annotations

import numpy as np
import pytest
from fabricated_run import fabricated_metrics

from raydt.presentation.series import increments, merged, per_unit, size_classes


@pytest.mark.parametrize("limit", [1, 7, 200, 449])
def test_merged_windows_are_what_a_coarser_run_would_have_written(limit: int) -> None:
    metrics = fabricated_metrics(450, 100)
    drawn = merged(metrics, limit)
    ends = np.searchsorted(metrics["seq"], drawn["seq"])
    assert len(ends) == limit
    assert drawn["seq"][-1] == metrics["seq"][-1]
    for cumulative in ("accuracy", "no_change", "majority"):
        window = f"window_{cumulative}"
        hits = np.diff(drawn[cumulative] * drawn["predictions"], prepend=0.0)
        np.testing.assert_allclose(drawn[window], hits / np.diff(drawn["predictions"], prepend=0))
        np.testing.assert_array_equal(drawn[cumulative], metrics[cumulative][ends])


def test_short_tables_are_left_alone() -> None:
    metrics = fabricated_metrics(50, 100)
    assert merged(metrics, 50) is metrics


def test_windows_without_predictions_have_no_weight() -> None:
    metrics = {
        "seq": np.arange(1, 7) * 10,
        "predictions": np.array([0, 0, 10, 10, 20, 50]),
        "window_accuracy": np.array([np.nan, np.nan, 0.5, np.nan, 1.0, 0.0]),
    }
    drawn = merged(metrics, 3)
    np.testing.assert_array_equal(drawn["seq"], [20, 40, 60])
    np.testing.assert_allclose(drawn["window_accuracy"], [np.nan, 0.5, 0.25])


def test_rates_where_nothing_moved_are_unknown() -> None:
    np.testing.assert_array_equal(increments(np.array([3, 5, 5])), [3, 2, 0])
    np.testing.assert_array_equal(per_unit(np.array([4, 6, 7]), np.array([2, 2, 4])), [2, np.nan, 0.5])


def test_size_classes_are_exact_at_powers_of_two() -> None:
    rows = np.array([0, 1, 2, 3, 4, 7, 8, 2**31 - 1, 2**31])
    np.testing.assert_array_equal(size_classes(rows), [-1, 0, 1, 1, 2, 2, 3, 30, 31])
