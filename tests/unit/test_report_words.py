"""Numbers as people read them, and verdicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipelines.report.page import against_baselines
from raydt.learners.confidence_tree.describe import rule_in_words, why_no_split
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.presentation import charts as words
from raydt.presentation.charts import ABSENT


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (words.count, 1234567, "1,234,567"),
        (words.count, np.int64(12), "12"),
        (words.count, None, ABSENT),
        (words.share, 0.88049, "88.05%"),
        (words.share, math.nan, ABSENT),
        (words.figure, 315234.7, "315,000"),
        (words.figure, 0.7336, "0.734"),
        (words.figure, 9.999, "10"),
        (words.figure, 100, "100"),
        (words.figure, -0.25, "-0.25"),
        (words.figure, 3e-7, "3e-07"),
        (words.figure, True, ABSENT),
        (words.threshold, 0.0704794999, "0.07048"),
        (words.threshold, 12345.678, "12,346"),
        (words.threshold, 1.5e-9, "1.5e-09"),
        (words.brief, 0.0, "0"),
        (words.brief, 1500.0, "1.5k"),
        (words.brief, 20_000_000, "20M"),
        (words.duration, 0.0000032, "3.2 µs"),
        (words.duration, 0.284, "284 ms"),
        (words.duration, 59.96, "60 s"),
        (words.duration, 252, "4 min 12 s"),
        (words.duration, 3599.9, "1 h 0 min"),
        (words.duration, 0, "0 s"),
        (words.size, 312_400_000, "312 MB"),
        (words.size, 999, "999 B"),
        (words.moment, "2025-03-04T09:15:27.123456Z", "2025-03-04 09:15:27 UTC"),
        (words.moment, "2025-03-04T09:15:27+02:00", "2025-03-04 09:15:27 +0200"),
        (words.moment, "yesterday", "yesterday"),
        (words.moment, None, ABSENT),
        (lambda value: words.names(value, 2), ["a", "b", "c"], "a, b, c"),
        (lambda value: words.names(value, 2), ["a", "b", "c", "d"], "a, b and 2 more"),
        (lambda value: words.counted(value, "leaf"), 1, "1 leaf"),
        (lambda value: words.counted(value, "leaf"), 2, "2 leaves"),
        (lambda value: words.counted(value, "batch"), 1200, "1,200 batches"),
    ],
)
def test_numbers_for_people(form: Any, value: Any, text: str) -> None:
    assert form(value) == text


WINDOWS = {
    "window_accuracy": np.array([np.nan, 0.9, 0.7, 0.8]),
    "window_no_change": np.array([np.nan, 0.8, 0.6, 0.9]),
    "window_majority": np.array([np.nan, 0.8, 0.8, np.nan]),
}


@pytest.mark.parametrize(
    ("accuracy", "baselines", "windows", "tone", "said"),
    [
        (0.9, {"no_change": 0.8, "majority": 0.6}, {}, "good", ["beats", "80.00%", "60.00%", "90.00%"]),
        (0.7, {"no_change": 0.8, "majority": 0.6}, {}, "bad", ["loses", "80.00%", "70.00%", "beats", "60.00%"]),
        (0.6, {"no_change": 0.5, "majority": 0.6}, {}, "bad", ["no better", "60.00%"]),
        (None, {}, {}, "plain", []),
        (0.7, {}, {}, "plain", []),
        (0.8, {"no_change": 0.7}, WINDOWS, "good", ["2 of 3"]),
        (0.8, {"no_change": 0.7}, {key: column[1:2] for key, column in WINDOWS.items()}, "good", ["only", "not"]),
    ],
)
def test_the_verdict_about_the_baselines(accuracy: Any, baselines: Any, windows: Any, tone: str, said: Any) -> None:
    verdict = against_baselines({"metrics": {"accuracy": accuracy}, "baselines": baselines}, windows)
    assert verdict.tone == f"verdict {tone}"
    at = 0
    for word in said:
        at = verdict.text.index(word, at)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"max_bins": 64}, "a smaller c"),
        ({"renew_bins": 0}, "warmup"),
        ({"rule": "hoeffding"}, "tie_threshold"),
        ({"confidence": "theorem"}, "practical"),
    ],
)
def test_advice_about_a_tree_without_splits_goes_by_its_options(options: dict[str, Any], advice: str) -> None:
    none = {"checks": 1, "splits": 0}
    assert advice in why_no_split(none, ConfidenceTreeOptions(**options))
    assert why_no_split({"splits": 1}) == ""
    assert "grace_period" in why_no_split({"checks": 0, "splits": 0})
    assert "delta = 1/t" in rule_in_words(ConfidenceTreeOptions(rule="hoeffding", delta="1/t", tie_threshold=0.05))
