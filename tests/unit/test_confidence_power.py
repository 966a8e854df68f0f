"""A rule that is a little off changes trees, not only figures: what the comparison with the twin would not miss.

The rule of the coordinator is replaced; the twin keeps the printed one. Compared is the shape of the trees alone: which
node was split how, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raydt.learners.confidence_tree.bounds import SplitRule
from tests.confidence_streams import GroupedStream, grown, observed, session_of, twin_of

WIDTH, BEATS = SplitRule.width, SplitRule.beats
SHAPE = ("feature", "cut", "left", "right", "created")

STREAMS = [grown(seed, 260) for seed in range(40, 56)]
#: The other settings take so many of them.
FEW = 5
COMMON: dict[str, Any] = {"renew_bins": 0, "leaf_prediction": "majority"}
PRACTICAL = COMMON | {"c": 0.01, "grace_period": 2, "max_bins": 8}
HOEFFDING = COMMON | {"rule": "hoeffding", "delta": 0.99, "grace_period": 2, "max_bins": 8}
CORRECTED = COMMON | {"rule": "corrected", "delta": 0.97, "grace_period": 2, "max_bins": 8}
THEOREM = COMMON | {"confidence": "theorem", "delta": 0.99, "tie_threshold": 2.5, "grace_period": 2, "max_bins": 8}
BY_TIME = COMMON | {"rule": "hoeffding", "delta": "1/t", "tie_threshold": 0.25, "grace_period": 2, "max_bins": 8}


def shape_of(stream: GroupedStream, options: dict[str, Any]) -> dict[str, Any]:
    session = session_of(stream, options, 2)
    for batch in stream.batches([1000]):
        session.apply(batch)
    seen = observed(session.state()[0])
    return {name: seen[name] for name in SHAPE}


def shape_of_twin(stream: GroupedStream, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    twin = twin_of(stream, options)
    for batch in stream.columns.batches([1000]):
        twin.process(batch)
    seen = twin.canonical()
    return {name: seen[name] for name in SHAPE}, twin.done["splits"]


def streams(options: dict[str, Any]) -> list[GroupedStream]:
    return STREAMS if options == PRACTICAL else STREAMS[:FEW]


EXPECTED: dict[str, tuple[list[dict[str, Any]], int]] = {}


def expected(options: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Trees of the twin, and how many splits they took."""
    key = repr(options)
    if key not in EXPECTED:
        shapes, splits = zip(*(shape_of_twin(stream, options) for stream in streams(options)), strict=True)
        EXPECTED[key] = list(shapes), sum(splits)
    return EXPECTED[key]


def changed(options: dict[str, Any]) -> int:
    """How many of the streams get another tree than the twin's."""
    return sum(
        shape_of(stream, options) != twin for stream, twin in zip(streams(options), expected(options)[0], strict=True)
    )


def one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eps for 2 eps."""
    monkeypatch.setattr(SplitRule, "beats", lambda self, best, rival, width: BEATS(self, best, rival, width / 2))


def two_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 eps for eps."""
    monkeypatch.setattr(SplitRule, "beats", lambda self, best, rival, width: BEATS(self, best, rival, width * 2))


def no_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SplitRule, "width", lambda self, m, t, depth, classes: WIDTH(self, m, t, 0, classes))


def examples_for_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """m for t."""
    monkeypatch.setattr(SplitRule, "width", lambda self, m, t, depth, classes: WIDTH(self, m, m, depth, classes))


def time_for_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SplitRule, "width", lambda self, m, t, depth, classes: WIDTH(self, t, t, depth, classes))


Mutant = Callable[[pytest.MonkeyPatch], None]
CAUGHT: list[tuple[Mutant, dict[str, Any]]] = [
    (one_width, PRACTICAL),
    (no_depth, PRACTICAL),
    (examples_for_time, PRACTICAL),
    (time_for_examples, PRACTICAL),
    (no_depth, THEOREM),
    (examples_for_time, THEOREM),
    (two_widths, HOEFFDING),
    (one_width, CORRECTED),
    (examples_for_time, BY_TIME),
]
SETTINGS = (PRACTICAL, THEOREM, HOEFFDING, CORRECTED, BY_TIME)


def test_trees_are_those_of_the_twin_and_have_splits_enough() -> None:
    assert [changed(options) for options in SETTINGS] == [0] * len(SETTINGS)
    assert expected(PRACTICAL)[1] >= 200
    assert all(expected(options)[1] >= 15 for options in SETTINGS)


@pytest.mark.parametrize(
    ("mutant", "options"),
    CAUGHT,
    ids=lambda v: getattr(v, "__name__", v.get("rule", "ctree") if isinstance(v, dict) else None),
)
def test_a_rule_that_is_a_little_off_changes_trees(
    mutant: Mutant, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert changed(options) > 0
