"""Numbers, sentences and the tree as the page words them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipelines.display import where
from pipelines.report.verdicts import against_baselines
from raydt.learners import described
from raydt.presentation import words as formatting
from raydt.presentation.words import ABSENT


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (formatting.count, 1234567, "1,234,567"),
        (formatting.count, np.int64(12), "12"),
        (formatting.count, None, ABSENT),
        (formatting.share, 0.88049, "88.05%"),
        (formatting.share, math.nan, ABSENT),
        (formatting.figure, 315234.7, "315,000"),
        (formatting.figure, 0.7336, "0.734"),
        (formatting.figure, 0.0312, "0.0312"),
        (formatting.figure, 9.999, "10"),
        (formatting.figure, 100, "100"),
        (formatting.figure, -0.25, "-0.25"),
        (formatting.figure, 3e-7, "3e-07"),
        (formatting.figure, True, ABSENT),
        (formatting.threshold, 0.0704794999, "0.07048"),
        (formatting.threshold, 12345.678, "12,346"),
        (formatting.threshold, -3.0, "-3"),
        (formatting.threshold, 1.5e-9, "1.5e-09"),
        (formatting.brief, 0.0, "0"),
        (formatting.brief, 1500.0, "1.5k"),
        (formatting.brief, 20_000_000, "20M"),
        (formatting.duration, 0.0000032, "3.2 µs"),
        (formatting.duration, 0.284, "284 ms"),
        (formatting.duration, 59.96, "60 s"),
        (formatting.duration, 252, "4 min 12 s"),
        (formatting.duration, 3599.9, "1 h 0 min"),
        (formatting.duration, 0, "0 s"),
        (formatting.size, 312_400_000, "312 MB"),
        (formatting.size, 999, "999 B"),
        (formatting.moment, "2025-03-04T09:15:27.123456Z", "2025-03-04 09:15:27 UTC"),
        (formatting.moment, "2025-03-04T09:15:27+02:00", "2025-03-04 09:15:27 +0200"),
        (formatting.moment, "yesterday", "yesterday"),
        (formatting.moment, None, ABSENT),
    ],
)
def test_numbers_for_people(form: Any, value: Any, text: str) -> None:
    assert form(value) == text


def test_long_lists_of_names_are_cut() -> None:
    assert formatting.names(["a", "b", "c"], 2) == "a, b, c"
    assert formatting.names(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def verdict(accuracy: float | None, **baselines: float) -> tuple[str, str]:
    result = against_baselines({"metrics": {"accuracy": accuracy}, "baselines": baselines}, {})
    return result.tone.removeprefix("verdict "), result.text


def test_sentences_about_the_baselines() -> None:
    assert verdict(0.9, no_change=0.8, majority=0.6) == (
        "good",
        "The learner beats no-change (80.00%) and majority (60.00%) with an accuracy of 90.00%.",
    )
    assert verdict(0.5, no_change=0.8, majority=0.6) == (
        "bad",
        "The learner loses to no-change (80.00%) and majority (60.00%): its accuracy is 50.00%.",
    )
    assert verdict(0.6, no_change=0.5, majority=0.6) == (
        "bad",
        "The learner is no better than majority (60.00%): its accuracy is 60.00%.",
    )
    assert verdict(None)[0] == "plain"
    assert verdict(0.7)[0] == "plain"


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "leaf", "1 leaf"), (2, "leaf", "2 leaves"), (0, "node", "0 nodes"), (1200, "batch", "1,200 batches")],
)
def test_nouns_have_their_plural(number: int, noun: str, text: str) -> None:
    assert formatting.counted(number, noun) == text


def test_boosted_trees_are_counted() -> None:
    summary = {"learner": "gbdt", "nodes": 1140, "leaves": 600, "depth": 5, "rebuilds": 0, "rebuilt_rows": 0}
    assert described("gbdt").lines(summary)[0] == ("trees", "60 trees, 1,140 nodes, 600 leaves, depth 5")
    summary = {"nodes": 1, "leaves": 1, "depth": 0, "rebuilds": 0, "rebuilt_rows": 0}
    assert described("fudyadt").lines(summary)[0] == ("tree", "1 node, 1 leaf, depth 0")


@pytest.mark.parametrize(
    ("backend", "rounds", "text"),
    [
        ("in_process", 0, "in process: this process did all work"),
        ("in_process", 7, "in process: this process did all work of 2 shards, in 7 rounds"),
        ("ray", 0, "ray, 2 shards, 0 rounds with them: the coordinator held the whole model"),
    ],
)
def test_where_a_run_was_done(backend: str, rounds: int, text: str) -> None:
    assert where({"backend": backend, "rounds": rounds, "shards": 2}) == text


def test_windows_lost_are_counted_against_the_better_baseline() -> None:
    windows = {
        "window_accuracy": np.array([np.nan, 0.9, 0.7, 0.8]),
        "window_no_change": np.array([np.nan, 0.8, 0.6, 0.9]),
        "window_majority": np.array([np.nan, 0.8, 0.8, np.nan]),
    }
    summary = {"metrics": {"accuracy": 0.8}, "baselines": {"no_change": 0.7}}
    assert against_baselines(summary, windows).text.endswith(
        "In 2 of 3 windows of the stream it was behind the better of the two."
    )


def test_a_single_window_is_not_spoken_of_in_the_plural() -> None:
    summary = {"metrics": {"accuracy": 0.8}, "baselines": {"no_change": 0.7}}
    for accuracy, said in ((0.9, "it was not behind"), (0.5, "it was behind")):
        windows = {"window_accuracy": [accuracy], "window_no_change": [0.7], "window_majority": [0.6]}
        text = against_baselines(summary, {key: np.array(value) for key, value in windows.items()}).text
        assert text.endswith(f" In the only window of the stream {said} the better of the two.")
